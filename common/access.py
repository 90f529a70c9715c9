"""Users and what they may do: the words of ACL 2.0, and the JSON in which brokers tell and keep them.

The same values stand in the answers of 3001 to 3010, ``config/users.json`` and ``config/acls.json`` (upstream
``UserInfo``, ``AclInfo``, ``Action``, ``ResourceType``; spec security.md §6, §9). All words are matched in any case.
"""

from enum import StrEnum
from typing import Annotated, Final, TypeVar

import msgspec

from .metadata import Text

MAX_LISTED: Final = 4_096
"""Policies, entries, actions or addresses in one list."""
_WordT = TypeVar("_WordT", bound=StrEnum)
_LIST = msgspec.Meta(max_length=MAX_LISTED)


class UserType(StrEnum):
    """Whether policies count for a user."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Whether a user may do anything at all."""

    ENABLE = "enable"
    DISABLE = "disable"


class ResourceType(StrEnum):
    """What a policy is about."""

    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(StrEnum):
    """What somebody does with a resource; ``ANY`` may not stand in a policy."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(StrEnum):
    """What an entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """Which entries count first: those of ``DEFAULT`` where no custom one fits."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


def find_word(kind: type[_WordT], text: str | None) -> _WordT | None:
    """Return the word that a text stands for, in any case; ``None`` for another text."""
    wanted = (text or "").casefold()
    return next((word for word in kind if word.casefold() == wanted), None)


class UserInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A user as it is asked for and told; what is ``None`` was not said."""

    password: Text | None = None
    user_status: Text | None = None
    user_type: Text | None = None
    username: Text | None = None

    def __repr__(self) -> str:
        return f"<UserInfo {self.username!r} {self.user_type} {self.user_status}>"


class EntryInfo(msgspec.Struct, rename="camel", kw_only=True):
    """What may be done, or not, with one resource (``PolicyEntryInfo``)."""

    actions: Annotated[list[Text], _LIST] | None = None
    decision: Text | None = None
    resource: Text | None = None
    source_ips: Annotated[list[Text | None], _LIST] | None = None


class PolicyInfo(msgspec.Struct, rename="camel", kw_only=True):
    """The entries of one type."""

    entries: Annotated[list[EntryInfo], _LIST] | None = None
    policy_type: Text | None = None


class AclInfo(msgspec.Struct, rename="camel", kw_only=True):
    """The policies of a subject, ``User:<name>``."""

    policies: Annotated[list[PolicyInfo], _LIST] | None = None
    subject: Text | None = None
