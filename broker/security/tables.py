"""The users and policies that count, for whoever asks before a request is served."""

from collections.abc import Callable
from typing import NamedTuple

from .decision import Need, decide
from .policies import AclTable
from .users import User, UserTable


class SecurityTables(NamedTuple):
    """Users and policies at one moment."""

    users: UserTable
    policies: AclTable


class Security:
    """Who is known, and what they may do."""

    def __init__(self, users: UserTable, policies: AclTable) -> None:
        self._tables = SecurityTables(users, policies)
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Security {self._tables.users!r} {self._tables.policies!r}>"

    @property
    def tables(self) -> SecurityTables:
        """Users and policies as they are now."""
        return self._tables

    def find_user(self, name: str) -> User | None:
        """Return the user of a name."""
        return self._tables.users.find(name)

    def refuse(self, user_name: str, need: Need, source_ip: str) -> str | None:
        """Return why a user may not do what a request needs, ``None`` if they may."""
        users, policies = self._tables
        return decide(users.find(user_name), user_name, policies.find(user_name), need, source_ip)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Have somebody called whenever users or policies have changed."""
        self._listeners.append(on_change)

    def put(self, tables: SecurityTables) -> None:
        """Have other users and policies count."""
        self._tables = tables
        for on_change in self._listeners:
            on_change()
