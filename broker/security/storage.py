"""The files of users and policies, ``config/users.json`` and ``config/acls.json``, and how these are changed.

Rules

    1. A change counts when it is on the disk, and only then is it answered: what could not be written has not happened.
       Changes are made one after the other.
    2. Each file is written anew as a whole, for its owner only, and takes the place of the old one when it is on the
       disk. Policies are written before users: nobody whose deletion a crash has cut short is left with more rights.
    3. A file that cannot be read or used stops the start: without it nobody could do anything, or what an entry denies
       would be allowed. An older copy would do the same in silence, so none is kept.

    users.json  {"<name>": {"password": …, "userStatus": "enable", "userType": "Super"}}
    acls.json   {"User:<name>": {"policies": [{"entries": [{"actions": […], "decision": …, "resource": …,
                "sourceIps": […]}], "policyType": "Custom"}], "subject": "User:<name>"}}

Directories ``config/users`` and ``config/acls`` are those of a Java broker, and left alone.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from ...common.access import AclInfo, UserInfo
from ...common.errors import ConfigError
from ...common.java_json import write_json
from ...store.files.config_files import replace_file
from ...store.files.files import OS_FILES, Files
from ..settings.refusal import Refusal
from .policies import AclTable
from .tables import Security, SecurityTables
from .users import UserTable

USERS_FILE: Final = "users.json"
ACLS_FILE: Final = "acls.json"
Change = Callable[[SecurityTables], SecurityTables | Refusal]
"""Returns other tables, or why they stay."""
_InfoT = TypeVar("_InfoT")
_ResultT = TypeVar("_ResultT")


class InThread(Protocol):
    """Does some work that waits for the disk."""

    def __call__(self, work: Callable[[], _ResultT], /) -> Awaitable[_ResultT]:
        """Return what it gives."""
        ...


class SecurityFiles:
    """The files in the folder ``config`` of a store; its calls wait for the disk."""

    def __init__(self, folder: str, files: Files = OS_FILES) -> None:
        self._users_path = os.path.join(folder, USERS_FILE)
        self._acls_path = os.path.join(folder, ACLS_FILE)
        self._files = files
        self._on_disk = SecurityTables(UserTable(), AclTable())

    def __repr__(self) -> str:
        return f"<SecurityFiles {self._users_path} {self._acls_path}>"

    def load(self) -> SecurityTables:
        """Return what the files hold; nothing where there is none.

        Raises:
            ConfigError: one cannot be read, or holds what cannot be used.
        """
        users, policies = self._read(self._users_path, UserInfo), self._read(self._acls_path, AclInfo)
        path = self._users_path
        try:
            table = UserTable.of(users)
            path = self._acls_path
            self._on_disk = SecurityTables(table, AclTable.of(policies))
        except ValueError as error:
            raise _unusable(path, error) from error
        return self._on_disk

    def save(self, tables: SecurityTables) -> None:
        """Write what is not on the disk (raises ``OSError``)."""
        if tables.policies is not self._on_disk.policies:
            self._write(self._acls_path, tables.policies.content())
            self._on_disk = self._on_disk._replace(policies=tables.policies)
        if tables.users is not self._on_disk.users:
            self._write(self._users_path, tables.users.content())
            self._on_disk = self._on_disk._replace(users=tables.users)

    def _write(self, path: str, content: Mapping[str, UserInfo] | Mapping[str, AclInfo]) -> None:
        replace_file(path, msgspec.json.format(write_json(content), indent=1), self._files, is_private=True)

    def _read(self, path: str, kind: type[_InfoT]) -> dict[str, _InfoT]:
        try:
            descriptor = self._files.open(path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        try:
            text = self._files.pread(descriptor, self._files.size(path), 0)
            return msgspec.json.decode(text, type=dict[str, kind])
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise _unusable(path, error) from error
        finally:
            self._files.close(descriptor)


def _unusable(path: str, error: Exception) -> ConfigError:
    return ConfigError(f"{path} cannot be used: {error}; repair it, or remove it to begin without")


class SecurityStore:
    """Users and policies with their files."""

    def __init__(self, security: Security, files: SecurityFiles, in_thread: InThread) -> None:
        self.security = security
        self._files = files
        self._in_thread = in_thread
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<SecurityStore {self.security!r}>"

    async def change(self, change: Change) -> Refusal | None:
        """Have other users and policies count, and return when they are on the disk; or return why they do not.

        Raises:
            OSError: the disk did not take them; nothing has changed.
        """
        async with self._turn:
            before = self.security.tables
            after = change(before)
            if isinstance(after, Refusal):
                return after
            if after != before:
                await self._in_thread(partial(self._files.save, after))
                self.security.put(after)
            return None


def make_security(root: str, in_thread: InThread, files: Files = OS_FILES) -> SecurityStore:
    """Return a store of nobody, for a broker that has had no users so far."""
    return SecurityStore(Security(UserTable(), AclTable()), SecurityFiles(_folder(root), files), in_thread)


async def load_security(root: str, in_thread: InThread, files: Files = OS_FILES) -> SecurityStore:
    """Return the users and policies of a store (raises ``ConfigError``)."""
    found = SecurityFiles(_folder(root), files)
    tables = await in_thread(found.load)
    return SecurityStore(Security(*tables), found, in_thread)


def _folder(root: str) -> str:
    return os.path.join(root, "config")
