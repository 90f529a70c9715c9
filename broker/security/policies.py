"""Policies: what a user may do with which resource, from where, and how administrators change that (3006 to 3010).

Rules (``Acl``, ``Policy``, ``Resource``, ``AuthorizationMetadataManagerImpl``; spec security.md §6.2, §9)

    1. A subject is ``User:<name>``. It has a policy of custom entries, of default entries, or both.
    2. A policy has one entry for each resource; a new one for the same resource takes its place.
    3. ``Topic:name`` is one topic, ``Topic:na*`` all that begin so, ``Topic:*`` all, and ``*`` everything.
    4. Unlike upstream, a resource that is none is refused when an entry is deleted: there it takes the whole of the
       subject with it. ``Any:name`` is none, which upstream reads as ``*``.

A table does not change: what changes it returns another one, which counts when it is on the disk (``tables.py``).
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, final

from ...common.access import (
    MAX_LISTED,
    AclInfo,
    Action,
    Decision,
    EntryInfo,
    PolicyInfo,
    PolicyType,
    ResourceType,
    find_word,
)
from ...common.codes import ResponseCode
from ..settings.refusal import Refusal
from .users import UserTable

_ANYTHING: Final = "*"
_SUBJECT: Final = "User:"
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@final
class Resource(NamedTuple):
    """What is asked for or granted; without a type everything, without a name all of a type."""

    type: ResourceType | None
    name: str | None
    is_prefix: bool = False

    @classmethod
    def parse(cls, text: str) -> "Resource | None":
        """Return the resource of a text, ``None`` if there is none."""
        if text == _ANYTHING:
            return cls(None, None)
        word, _, name = text.partition(":")
        kind = find_word(ResourceType, word)
        if kind is None:
            return None
        if name == _ANYTHING:
            return cls(kind, None)
        if name.endswith(_ANYTHING):
            return cls(kind, name.partition(_ANYTHING)[0], is_prefix=True)
        return cls(kind, name)

    def __str__(self) -> str:
        if self.type is None:
            return _ANYTHING
        return f"{self.type}:{_ANYTHING if self.name is None else self.name + _ANYTHING * self.is_prefix}"

    def covers(self, asked: "Resource") -> bool:
        """Tell whether an entry of this resource is about one that is asked for by its full name."""
        if self.type is None:
            return True
        if self.type is not asked.type:
            return False
        if self.name is None:
            return True
        if self.is_prefix:
            return asked.name is not None and asked.name.startswith(self.name)
        return asked.name == self.name

    @property
    def precision(self) -> tuple[int, int]:
        """How exactly it says what it is about: a name, a longer beginning, a type, everything."""
        if self.type is None:
            return 0, 0
        if self.name is None:
            return 1, 0
        return (2, len(self.name)) if self.is_prefix else (3, 0)


@final
class Entry(NamedTuple):
    """What is decided for some actions on a resource, for requests from some addresses; from all if none is named."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision
    source_ips: tuple[str, ...] = ()

    def fits_actions(self, actions: Sequence[Action]) -> bool:
        """Tell whether it is about one of the actions."""
        return Action.ALL in self.actions or Action.ANY in actions or any(action in self.actions for action in actions)

    def fits_source(self, source_ip: str) -> bool:
        """Tell whether it is about requests from an address."""
        if not self.source_ips:
            return True
        address = _parse_address(source_ip)
        networks = (_parse_network(place) for place in self.source_ips)
        return address is not None and any(network is not None and address in network for network in networks)

    def describe(self) -> EntryInfo:
        """Return the entry as it is told."""
        return EntryInfo(
            actions=[action.value for action in self.actions],
            decision=self.decision.value,
            resource=str(self.resource),
            source_ips=[*self.source_ips] if self.source_ips else None,
        )


@final
class Policy(NamedTuple):
    """The entries of one type, one for each resource."""

    type: PolicyType
    entries: tuple[Entry, ...]


@final
class Acl(NamedTuple):
    """The policies of a subject, one for each type, in the order in which they came."""

    policies: tuple[Policy, ...] = ()

    def entries(self, kind: PolicyType) -> tuple[Entry, ...]:
        """Return the entries of a type."""
        return next((policy.entries for policy in self.policies if policy.type is kind), ())

    def with_entries(self, entries: Iterable[tuple[PolicyType, Entry]]) -> "Acl":
        """Return the policies with each entry in the place of the one for the same resource, or as the last."""
        tables = {kind: {entry.resource: entry for entry in old} for kind, old in self.policies}
        for kind, entry in entries:
            tables.setdefault(kind, {})[entry.resource] = entry
        return Acl(tuple(Policy(kind, tuple(table.values())) for kind, table in tables.items()))

    def without_entry(self, kind: PolicyType, resource: Resource) -> "Acl":
        """Return the policies without the entry for a resource."""
        return self._with(kind, tuple(old for old in self.entries(kind) if old.resource != resource))

    def only_about(self, text: str) -> "Acl":
        """Return the policies with those entries in whose resource a text stands."""
        found = self
        for kind, entries in self.policies:
            found = found._with(kind, tuple(entry for entry in entries if text in str(entry.resource)))
        return found

    def describe(self, subject: str) -> AclInfo:
        """Return the policies as they are told."""
        policies = [
            PolicyInfo(entries=[entry.describe() for entry in entries], policy_type=kind.value)
            for kind, entries in self.policies
        ]
        return AclInfo(policies=policies, subject=subject)

    def _with(self, kind: PolicyType, entries: tuple[Entry, ...]) -> "Acl":
        changed = [Policy(kind, entries) if policy.type is kind else policy for policy in self.policies]
        if all(policy.type is not kind for policy in self.policies):
            changed.append(Policy(kind, entries))
        return Acl(tuple(policy for policy in changed if policy.entries))


@final
class AclDeletion(NamedTuple):
    """What shall be deleted: the entry for a resource, or all that a subject has where none is named."""

    subject: str | None
    policy_type: str | None = None
    resource: str | None = None


@final
class AclTable:
    """The policies of users."""

    def __init__(self, acls: Mapping[str, Acl] | None = None) -> None:
        self._acls = dict(acls or {})

    def __repr__(self) -> str:
        return f"<AclTable {len(self._acls)}>"

    def find(self, user_name: str) -> Acl | None:
        """Return the policies of a user."""
        return self._acls.get(user_name)

    def list(self, subject_part: str = "", resource_part: str = "") -> list[AclInfo]:
        """Return what is told of the subjects in whose name the one text stands, of the resources with the other."""
        found = [
            (_SUBJECT + name, self._acls[name].only_about(resource_part if resource_part.strip() else ""))
            for name in sorted(self._acls)
        ]
        wanted = subject_part if subject_part.strip() else ""
        return [acl.describe(subject) for subject, acl in found if wanted in subject and acl.policies]

    def merge(self, subject: str | None, info: AclInfo | None, users: UserTable) -> "AclTable | Refusal":
        """Return the table with the entries of a request put in, or why not (3006 and 3007 do the same)."""
        if info is None or not info.policies:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        name = find_user_name(subject) if find_user_name(info.subject) is None else find_user_name(info.subject)
        if name is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, "An system error occurred, please try again later.")
        try:
            acl = _merge(self.find(name) or Acl(), info.policies)
        except ValueError as error:
            return _refuse(str(error))
        if users.find(name) is None:
            return _refuse(f"The subject of {_SUBJECT}{name} is not exist.")
        return self.put(name, acl)

    def delete(self, deletion: AclDeletion, users: UserTable) -> "AclTable | Refusal":
        """Return the table without an entry, which need not be there, or without a subject; or why not."""
        found = self.get(deletion.subject, users)
        if isinstance(found, Refusal):
            return found
        name = find_user_name(deletion.subject)
        if found is None or name is None:
            return _refuse("The acl is not exist.")
        if not (deletion.resource or "").strip():
            return self.without(name)
        resource = Resource.parse(deletion.resource or "")
        if resource is None:
            return _refuse("The resource is null.")
        return self.put(name, found.without_entry(read_policy_type(deletion.policy_type), resource))

    def get(self, subject: str | None, users: UserTable) -> Acl | Refusal | None:
        """Return the policies of a subject, ``None`` if it has none, or why it cannot have any."""
        name = find_user_name(subject)
        if name is None:
            return _refuse("The subject is null.")
        return self.find(name) if users.find(name) is not None else _refuse("The subject is not exist.")

    def put(self, user_name: str, acl: Acl) -> "AclTable":
        """Return the table with these policies of a user."""
        return AclTable({**self._acls, user_name: acl}) if acl.policies else self.without(user_name)

    def without(self, user_name: str) -> "AclTable":
        """Return the table without the policies of a user."""
        if user_name not in self._acls:
            return self
        return AclTable({name: acl for name, acl in self._acls.items() if name != user_name})

    def content(self) -> Mapping[str, AclInfo]:
        """Return what the file holds of them."""
        return {_SUBJECT + name: acl.describe(_SUBJECT + name) for name, acl in sorted(self._acls.items())}

    @classmethod
    def of(cls, content: Mapping[str, AclInfo]) -> "AclTable":
        """Return the table of what a file holds (raises ``ValueError`` for what is no policy)."""
        acls: dict[str, Acl] = {}
        for subject, info in content.items():
            name = find_user_name(subject)
            if name is None:
                raise ValueError(f"subject {subject!r} is not User:<name>")
            try:
                acls[name] = _merge(Acl(), info.policies or ())
            except ValueError as error:
                raise ValueError(f"{subject}: {error}") from error
        return cls(acls)


def find_user_name(subject: str | None) -> str | None:
    """Return the name in ``User:<name>``, ``None`` if a text is something else."""
    word, colon, name = (subject or "").partition(":")
    return name if colon and word.casefold() == "user" else None


def read_policy_type(text: str | None) -> PolicyType:
    """Return the type of a policy, that of custom entries unless the other is named."""
    return find_word(PolicyType, text) or PolicyType.CUSTOM


def read_entry(info: EntryInfo) -> Entry:
    """Return the entry that is asked for (raises ``ValueError`` in upstream's words)."""
    resource = Resource.parse(info.resource or "")
    if resource is None:
        raise ValueError("The resource is null.")
    actions = [action for text in info.actions or () if (action := find_word(Action, text)) is not None]
    if not actions:
        raise ValueError("The actions is empty.")
    if Action.ANY in actions:
        raise ValueError("The actions can not be Any.")
    places = tuple(place or "" for place in info.source_ips or ())
    for place in places:
        if not place.strip():
            raise ValueError("The source ip is empty.")
        if _parse_network(place) is None:
            raise ValueError("The source ip is invalid.")
    decision = find_word(Decision, info.decision)
    if decision is None:
        raise ValueError("The decision is null or illegal.")
    return Entry(resource, tuple(actions), decision, places)


def _merge(acl: Acl, policies: Iterable[PolicyInfo]) -> Acl:
    """Put entries into policies (raises ``ValueError``)."""
    infos = [(read_policy_type(each.policy_type), info) for each in policies for info in each.entries or ()]
    if not infos:
        raise ValueError("The policies is empty.")
    merged = acl.with_entries([(kind, read_entry(info)) for kind, info in infos])
    if (count := sum(len(policy.entries) for policy in merged.policies)) > MAX_LISTED:
        raise ValueError(f"the subject would have {count} entries, the limit is {MAX_LISTED}")
    return merged


def _refuse(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark)


@lru_cache(maxsize=4_096)
def _parse_address(text: str) -> _Address | None:
    """Return an address; one of IPv4 that is written as IPv6 is of IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(maxsize=4_096)
def _parse_network(text: str) -> _Network | None:
    """Return the addresses that a text stands for: one, or those with the same first bits."""
    host, slash, bits = text.partition("/")
    if slash and not (bits.isascii() and bits.isdigit()):
        return None
    address = _parse_address(host)
    try:
        return None if address is None else ipaddress.ip_network(f"{address}{slash}{bits}", strict=False)
    except ValueError:
        return None
