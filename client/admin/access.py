"""Users of brokers and what they may do (3001 to 3010), as ``Admin.access`` gives it.

Each broker keeps users and rights for itself, slaves too: what is changed is changed on all of them, one after the
other, and when one fails, those before it are changed. What is asked is asked of one master, the first by name.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ...common.access import (
    AclInfo,
    Decision,
    EntryInfo,
    PolicyInfo,
    PolicyType,
    UserInfo,
    UserStatus,
    UserType,
    find_word,
)
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.route import MASTER_ID
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.security import DeleteAclHeader, ListAclsHeader, ListUsersHeader, SubjectHeader, UserHeader
from .admin_calls import AdminCalls

_SUBJECT = "User:"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUser:
    """A user of brokers; the password is ``******`` unless a broker is told to show it."""

    name: str
    is_super: bool = False
    is_enabled: bool = True
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What may be done with a resource, or may not (Java's ``PolicyEntry``).

    ``resource`` is ``Topic:orders``, ``Topic:ord*``, ``Topic:*``, likewise with ``Group:`` and ``Cluster:``, or ``*``;
    ``actions`` are ``Pub``, ``Sub``, ``Get``, ``List``, ``Create``, ``Update``, ``Delete``, or ``All``. Without
    ``source_ips`` it is for all addresses. A default right counts where no other one fits.
    """

    resource: str
    actions: tuple[str, ...]
    is_allowed: bool = True
    source_ips: tuple[str, ...] = ()
    is_default: bool = False


class UserAccess:
    """Users and rights on the brokers of one cluster, on some, or on all.

    All calls raise ``RouteNotFoundError`` where there is no such broker, ``ValueError`` where there is no such cluster,
    and ``ResponseError`` with the words of a broker that refused: code 16 without the right, or for what cannot be.
    """

    def __init__(self, calls: AdminCalls, cluster: str | None, brokers: Collection[str] | None) -> None:
        self._calls = calls
        self._cluster = cluster
        self._brokers = brokers

    def __repr__(self) -> str:
        return f"<UserAccess to {self._brokers or self._cluster or 'all brokers'}>"

    async def users(self, part: str = "") -> list[BrokerUser]:
        """Return the users in whose name a text stands, in the order of their names."""
        body = await self._ask(Command.request(Code.AUTH_LIST_USER, ListUsersHeader(filter=part)))
        return [_read_user(info) for info in decode_answer(list[UserInfo], body)] if body else []

    async def user(self, name: str) -> BrokerUser | None:
        """Return a user."""
        body = await self._ask(Command.request(Code.AUTH_GET_USER, UserHeader(username=name)))
        return _read_user(decode_answer(UserInfo, body)) if body else None

    async def create_user(self, name: str, password: str, *, is_super: bool = False, is_enabled: bool = True) -> None:
        """Make a user."""
        info = _write_user(password, is_super=is_super, is_enabled=is_enabled)
        await self._change(Code.AUTH_CREATE_USER, UserHeader(username=name), info)

    async def change_user(
        self, name: str, *, password: str | None = None, is_super: bool | None = None, is_enabled: bool | None = None
    ) -> None:
        """Change what is not ``None`` of a user."""
        info = _write_user(password, is_super=is_super, is_enabled=is_enabled)
        await self._change(Code.AUTH_UPDATE_USER, UserHeader(username=name), info)

    async def delete_user(self, name: str) -> None:
        """Remove a user with all rights; one who is not there is gone already."""
        await self._change(Code.AUTH_DELETE_USER, UserHeader(username=name))

    async def rights(self, user_part: str = "", resource_part: str = "") -> dict[str, list[Right]]:
        """Return rights by the name of the user, where the texts stand in user and resource."""
        header = ListAclsHeader(subject_filter=user_part, resource_filter=resource_part)
        body = await self._ask(Command.request(Code.AUTH_LIST_ACL, header))
        found = decode_answer(list[AclInfo], body) if body else []
        return {(info.subject or "").removeprefix(_SUBJECT): _read_rights(info) for info in found}

    async def rights_of(self, user: str) -> list[Right]:
        """Return all rights of a user."""
        body = await self._ask(Command.request(Code.AUTH_GET_ACL, SubjectHeader(subject=_SUBJECT + user)))
        return _read_rights(decode_answer(AclInfo, body)) if body else []

    async def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Give a user rights, each in the place of the one for the same resource; the others stay."""
        by_kind: dict[PolicyType, list[EntryInfo]] = {}
        for right in rights:
            kind = PolicyType.DEFAULT if right.is_default else PolicyType.CUSTOM
            by_kind.setdefault(kind, []).append(_write_entry(right))
        policies = [PolicyInfo(entries=entries, policy_type=kind.value) for kind, entries in by_kind.items()]
        info = AclInfo(policies=policies, subject=_SUBJECT + user)
        await self._change(Code.AUTH_UPDATE_ACL, SubjectHeader(subject=_SUBJECT + user), info)

    async def revoke(self, user: str, resource: str | None = None, *, is_default: bool = False) -> None:
        """Take from a user the right for a resource, or all rights where none is named."""
        kind = PolicyType.DEFAULT if is_default else PolicyType.CUSTOM
        header = DeleteAclHeader(subject=_SUBJECT + user, policy_type=kind.value, resource=resource)
        await self._change(Code.AUTH_DELETE_ACL, header)

    async def _ask(self, command: Command) -> bytes:
        masters = await self._calls.masters(self._cluster, self._brokers)
        return (await self._calls.ask_broker(masters[min(masters)], command)).body

    async def _change(
        self, code: Code, header: UserHeader | SubjectHeader | DeleteAclHeader, info: UserInfo | AclInfo | None = None
    ) -> None:
        masters = await self._calls.masters(self._cluster, self._brokers)
        nodes = await self._calls.brokers(self._cluster)
        slaves = [
            address
            for node in nodes
            if node.name in masters
            for broker_id, address in node.addresses.items()
            if broker_id != MASTER_ID
        ]
        body = b"" if info is None else encode_body(info)
        for address in (*masters.values(), *slaves):
            await self._calls.ask_broker(address, Command.request(code, header, body))


def _read_user(info: UserInfo) -> BrokerUser:
    return BrokerUser(
        name=info.username or "",
        is_super=find_word(UserType, info.user_type) is UserType.SUPER,
        is_enabled=find_word(UserStatus, info.user_status) is not UserStatus.DISABLE,
        password=info.password or "",
    )


def _write_user(password: str | None, *, is_super: bool | None, is_enabled: bool | None) -> UserInfo:
    kind = None if is_super is None else UserType.SUPER if is_super else UserType.NORMAL
    status = None if is_enabled is None else UserStatus.ENABLE if is_enabled else UserStatus.DISABLE
    return UserInfo(password=password, user_type=kind and kind.value, user_status=status and status.value)


def _read_rights(info: AclInfo) -> list[Right]:
    return [
        Right(
            resource=entry.resource or "",
            actions=tuple(entry.actions or ()),
            is_allowed=find_word(Decision, entry.decision) is Decision.ALLOW,
            source_ips=tuple(place for place in entry.source_ips or () if place),
            is_default=find_word(PolicyType, policy.policy_type) is PolicyType.DEFAULT,
        )
        for policy in info.policies or ()
        for entry in policy.entries or ()
    ]


def _write_entry(right: Right) -> EntryInfo:
    return EntryInfo(
        actions=[*right.actions],
        decision=(Decision.ALLOW if right.is_allowed else Decision.DENY).value,
        resource=right.resource,
        source_ips=[*right.source_ips] if right.source_ips else None,
    )
