"""Users and policies on the disk: private, whole, and there when a change is answered."""

import asyncio
import json
import os
import pathlib
import stat
from collections.abc import Callable
from typing import TypeVar

import pytest
from crash.disk import Disk, Image
from crash.recorder import Item, Mark, Recorder
from stores import LimitedFiles

from rocketlet.broker.security.policies import AclTable
from rocketlet.broker.security.storage import SecurityFiles, SecurityStore, load_security
from rocketlet.broker.security.tables import Security, SecurityTables
from rocketlet.broker.security.users import User, UserTable
from rocketlet.broker.settings.refusal import Refusal
from rocketlet.common.access import AclInfo, EntryInfo, PolicyInfo
from rocketlet.common.errors import ConfigError
from rocketlet.store.files.files import OS_FILES, Files

T = TypeVar("T")
GRANT = AclInfo(policies=[PolicyInfo(entries=[EntryInfo(resource="Topic:T", actions=["Pub"], decision="Allow")])])
WORDS = ("one", "two")


async def in_thread(work: Callable[[], T]) -> T:
    """Do what waits for the disk elsewhere."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def opened(root: pathlib.Path, files: Files = OS_FILES) -> SecurityStore:
    """Return the users and policies of a store."""
    return await load_security(str(root), in_thread, files)


def with_alice(tables: SecurityTables) -> SecurityTables:
    """Add a user with a policy."""
    users = tables.users.put(User(name="alice", password=WORDS[0]))
    policies = tables.policies.merge("User:alice", GRANT, users)
    assert isinstance(policies, AclTable)
    return SecurityTables(users, policies)


def without_alice(tables: SecurityTables) -> SecurityTables | Refusal:
    """Remove the user and the policy."""
    users = tables.users.delete("alice", by_super=True)
    return users if isinstance(users, Refusal) else SecurityTables(users, tables.policies.without("alice"))


@pytest.mark.feature("A19")
async def test_changes_are_there_after_a_restart(tmp_path: pathlib.Path) -> None:
    """Users and policies read back are those that were written."""
    store = await opened(tmp_path)
    assert await store.change(with_alice) is None
    again = (await opened(tmp_path)).security
    assert again.find_user("alice") == store.security.find_user("alice")
    assert again.tables.policies.list() == store.security.tables.policies.list() != []


@pytest.mark.feature("A19")
async def test_files_are_private_and_json(tmp_path: pathlib.Path) -> None:
    """Only the owner reads them, whatever was left there before; their form is the documented one."""
    config = tmp_path / "config"
    await asyncio.to_thread(config.mkdir)
    for name in ("users.json", "acls.json.tmp"):
        (config / name).write_text("{}")
        (config / name).chmod(0o644)
    await (await opened(tmp_path)).change(with_alice)
    assert sorted(path.name for path in config.iterdir()) == ["acls.json", "users.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in config.iterdir()} == {0o600}
    assert json.loads((config / "users.json").read_text()) == {
        "alice": {"password": "one", "userStatus": "enable", "userType": "Normal"}
    }
    entry = {"actions": ["Pub"], "decision": "Allow", "resource": "Topic:T"}
    assert json.loads((config / "acls.json").read_text()) == {
        "User:alice": {"policies": [{"entries": [entry], "policyType": "Custom"}], "subject": "User:alice"}
    }


class SlowlyPrivate(Files):
    """Notes who may read a file whenever something is written into it."""

    def __init__(self) -> None:
        self.modes: list[int] = []

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Note and write."""
        self.modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return super().pwrite(descriptor, data, position)


@pytest.mark.feature("A19")
async def test_files_are_private_before_anything_is_written(tmp_path: pathlib.Path) -> None:
    """There is no moment at which another account could read a password."""
    files = SlowlyPrivate()
    await (await opened(tmp_path, files)).change(with_alice)
    assert files.modes == [0o600, 0o600]


@pytest.mark.feature("A19")
async def test_change_that_cannot_be_written_has_not_happened(tmp_path: pathlib.Path) -> None:
    """A full disk is an error for who asks; the users stay, and the next change takes both files with it."""
    disk = LimitedFiles()
    store, told = await opened(tmp_path, disk), list[int]()
    store.security.subscribe(lambda: told.append(len(store.security.tables.users)))
    disk.room = 0
    with pytest.raises(OSError, match="No space left"):
        await store.change(with_alice)
    assert (store.security.find_user("alice"), told) == (None, [])
    disk.room = None
    assert await store.change(with_alice) is None
    assert told == [1]
    assert (await opened(tmp_path)).security.find_user("alice") is not None


async def test_refused_change_and_change_of_nothing_write_nothing(tmp_path: pathlib.Path) -> None:
    """Neither touches the disk, and nobody is told."""
    store, told = await opened(tmp_path), list[int]()
    store.security.subscribe(lambda: told.append(1))
    assert await store.change(lambda tables: tables) is None
    assert await store.change(lambda _: Refusal(16, "no")) == Refusal(16, "no")
    assert (told, (tmp_path / "config").exists()) == ([], False)


async def test_changes_come_one_after_the_other(tmp_path: pathlib.Path) -> None:
    """Each begins with what the one before has left, though all wait for the disk."""
    store = await opened(tmp_path)

    def add(number: int) -> Callable[[SecurityTables], SecurityTables]:
        return lambda tables: tables._replace(users=tables.users.put(User(name=f"u{number}", password=WORDS[0])))

    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(store.change(add(number)))
    names = [f"u{number}" for number in range(10)]
    assert [user.name for user in store.security.tables.users.list()] == names
    assert [user.name for user in (await opened(tmp_path)).security.tables.users.list()] == names


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("users.json", "", "Input data was truncated"),
        ("users.json", "{", "Input data was truncated"),
        ("users.json", '{"alice": {"password": "veryS3cret"}}', "user 'alice' needs a password"),
        ("users.json", '{"alice": {"password": ["veryS3cret"]}}', "Expected `str | null`, got `array`"),
        ("acls.json", '{"User:alice": {}}', "User:alice: The policies is empty."),
        ("acls.json", "[]", "Expected `object`, got `array`"),
        ("acls.json", "\xff", "cannot be used"),
    ],
)
async def test_file_that_cannot_be_used_stops_the_start(
    tmp_path: pathlib.Path, name: str, text: str, words: str
) -> None:
    """Going on without it would let in whom it keeps out; the error names the file, and shows no password."""
    await asyncio.to_thread((tmp_path / "config").mkdir)
    (tmp_path / "config" / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        await opened(tmp_path)
    assert str(tmp_path / "config" / name) in str(caught.value)
    assert words in str(caught.value)
    assert "S3cret" not in str(caught.value)


def _ends(trace: list[Item]) -> list[tuple[bool, Image]]:
    """Return the disk after each operation, killed or without power, and whether the change was answered before."""
    disk, images, is_answered = Disk(), list[tuple[bool, Image]](), False
    is_begun = False
    for number, item in enumerate(trace):
        disk.apply(item)
        is_begun, is_answered = is_begun or item == Mark("begun"), is_answered or item == Mark("answered")
        if is_begun:
            images += [(is_answered, image) for image in (disk.everything(), disk.certain(), disk.sample(f"{number}"))]
    return images


@pytest.mark.feature("A19")
@pytest.mark.parametrize(("before", "change"), [(None, with_alice), (with_alice, without_alice)], ids=["new", "gone"])
async def test_change_is_there_whenever_a_broker_ends(
    tmp_path: pathlib.Path,
    before: Callable[[SecurityTables], SecurityTables] | None,
    change: Callable[[SecurityTables], SecurityTables | Refusal],
) -> None:
    """Kill and power loss at each operation leave files that can be used; what was answered is there.

    Between the two files nobody has more rights than before or after: policies come first.
    """
    lived = tmp_path / "lived"
    await asyncio.to_thread(lived.mkdir)
    recorder = Recorder(lived)
    store = await opened(lived, recorder)
    old = store.security.tables
    if before is not None:
        await store.change(before)
        old = store.security.tables
    recorder.mark("begun")
    await store.change(change)
    recorder.mark("answered")
    new, seen = store.security.tables, set[tuple[bool, bool]]()
    for number, (is_answered, image) in enumerate(_ends(list(recorder.trace))):
        await asyncio.to_thread((tmp_path / f"{number}").mkdir)
        await asyncio.to_thread(image.write, str(tmp_path / f"{number}"))
        found = (await opened(tmp_path / f"{number}")).security.tables
        is_new = tuple(have.content() == now.content() for have, now in zip(found, new, strict=True))
        is_old = tuple(have.content() == was.content() for have, was in zip(found, old, strict=True))
        assert all(one or other for one, other in zip(is_new, is_old, strict=True))
        assert is_new == (True, True) or not is_answered
        seen.add((is_new[0], is_new[1]))
    assert seen == {(False, False), (False, True), (True, True)}


def test_security_tells_whom_it_knows() -> None:
    """The parts in their text are counted, nothing is shown."""
    security = Security(UserTable([User(name="alice", password=WORDS[0])]), AclTable())
    assert repr(security) == "<Security <UserTable 1> <AclTable 0>>"
    assert WORDS[0] not in repr(SecurityFiles("config"))
