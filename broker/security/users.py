"""Users: who may be known to a broker, and how administrators make, change and remove them (3001 to 3005).

Rules (``AuthenticationMetadataManagerImpl``, ``AdminBrokerProcessor``; spec security.md §6.1, §9)

    1. A name is as it is written; the words for type and status are matched in any case. A word that is none counts as
       the default at creation, and as "unchanged" later.
    2. Only a super user makes, changes or removes one. Who is known to nobody is not one, except where nobody is asked
       for a name.
    3. ``******`` stands for a password that is not shown: a change leaves the password then, nobody is made with it.

A table does not change: what changes it returns another one, which counts when it is on the disk (``tables.py``).
"""

from collections.abc import Iterable, Mapping
from typing import Final, final

import msgspec

from ...common.access import UserInfo, UserStatus, UserType, find_word
from ...common.codes import ResponseCode
from ...common.settings import NOT_SHOWN
from ..settings.refusal import Refusal

MAX_NAME_CHARACTERS: Final = 255
MAX_USERS: Final = 10_000


@final
class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody with a name and a secret."""

    name: str
    password: str
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    def __repr__(self) -> str:
        return f"<User {self.name!r} {self.type} {self.status}>"

    @property
    def is_super(self) -> bool:
        """Whether policies do not count."""
        return self.type is UserType.SUPER

    @property
    def is_disabled(self) -> bool:
        """Whether nothing is allowed."""
        return self.status is UserStatus.DISABLE

    def describe(self, *, shows_password: bool) -> UserInfo:
        """Return the user as it is told."""
        password = self.password if shows_password else NOT_SHOWN
        return UserInfo(password=password, user_status=self.status.value, user_type=self.type.value, username=self.name)


@final
class UserTable:
    """The users of a broker by name."""

    def __init__(self, users: Iterable[User] = ()) -> None:
        self._users = {user.name: user for user in users}

    def __repr__(self) -> str:
        return f"<UserTable {len(self._users)}>"

    def __len__(self) -> int:
        return len(self._users)

    def find(self, name: str) -> User | None:
        """Return the user of a name."""
        return self._users.get(name)

    def list(self, part: str = "") -> list[User]:
        """Return the users in whose name the text stands, in the order of their names; a blank text stands in all."""
        wanted = part if part.strip() else ""
        return [self._users[name] for name in sorted(self._users) if wanted in name]

    def create(self, name: str, info: UserInfo, *, by_super: bool) -> "UserTable | Refusal":
        """Return the table with one more user, or why not."""
        if not name:
            return _BLANK
        kind = find_word(UserType, info.user_type) or UserType.NORMAL
        if kind is UserType.SUPER and not by_super:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        problem = _find_problem(name, info.password)
        if problem is None and name in self._users:
            problem = "The user is existed"
        if problem is None and len(self._users) >= MAX_USERS:
            problem = f"there are {MAX_USERS} users, which is the limit"
        if problem is not None:
            return Refusal(ResponseCode.NO_PERMISSION, problem)
        status = find_word(UserStatus, info.user_status) or UserStatus.ENABLE
        return self.put(User(name=name, password=info.password or "", type=kind, status=status))

    def update(self, name: str, info: UserInfo, *, by_super: bool) -> "UserTable | Refusal":
        """Return the table with a user changed as far as something is said, or why not."""
        if not name:
            return _BLANK
        kind = find_word(UserType, info.user_type)
        if kind is UserType.SUPER and not by_super:
            return Refusal(ResponseCode.SYSTEM_ERROR, _ONLY_SUPER)
        old = self._users.get(name)
        if old is None:
            return Refusal(ResponseCode.NO_PERMISSION, "The user is not exist" if name.strip() else _BLANK_NAME)
        if old.is_super and not by_super:
            return Refusal(ResponseCode.NO_PERMISSION, _ONLY_SUPER)
        password = (info.password or "").strip() and info.password
        return self.put(
            User(
                name=name,
                password=old.password if not password or password == NOT_SHOWN else password,
                type=kind or old.type,
                status=find_word(UserStatus, info.user_status) or old.status,
            )
        )

    def delete(self, name: str, *, by_super: bool) -> "UserTable | Refusal":
        """Return the table without a user, who need not be there, or why not."""
        old = self._users.get(name)
        if old is None:
            return self if name.strip() else Refusal(ResponseCode.NO_PERMISSION, _BLANK_NAME)
        if old.is_super and not by_super:
            return Refusal(ResponseCode.NO_PERMISSION, _ONLY_SUPER)
        return UserTable(user for user in self._users.values() if user is not old)

    def put(self, user: User) -> "UserTable":
        """Return the table with this user."""
        return UserTable([*self._users.values(), user])

    def content(self) -> Mapping[str, UserInfo]:
        """Return what the file holds of them."""
        return {
            name: UserInfo(password=user.password, user_status=user.status.value, user_type=user.type.value)
            for name, user in sorted(self._users.items())
        }

    @classmethod
    def of(cls, content: Mapping[str, UserInfo]) -> "UserTable":
        """Return the table of what a file holds (raises ``ValueError`` for what is no user)."""
        return cls(_read(name, info) for name, info in content.items())


_ONLY_SUPER: Final = "The super user can only be update by super user"
_BLANK_NAME: Final = "username can not be blank"
_BLANK: Final = Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")


def _find_problem(name: str, password: str | None) -> str | None:
    if not name.strip():
        return _BLANK_NAME
    if len(name) > MAX_NAME_CHARACTERS:
        return f"the username has {len(name)} characters, the limit is {MAX_NAME_CHARACTERS}"
    if not (password or "").strip():
        return "password can not be blank"
    if password == NOT_SHOWN:
        return f"the password is {NOT_SHOWN}, which brokers show in place of one: say the real one"
    return None


def _read(name: str, info: UserInfo) -> User:
    """Return a user of the file, in which nothing is left to a default."""
    kind, status = find_word(UserType, info.user_type), find_word(UserStatus, info.user_status)
    if not name.strip() or not info.password or kind is None or status is None:
        raise ValueError(f"user {name!r} needs a password, userType Super or Normal, userStatus enable or disable")
    return User(name=name, password=info.password, type=kind, status=status)
