"""One writer per directory, in this process and among all."""

import fcntl
import subprocess
import sys

import pytest
from stores import StoreDirectory, new_record, read_all

from rocketlet.common.errors import StoreDamagedError, StoreInUseError
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.log_reader import count_stores

OPEN_STORE = """
import sys
from rocketlet.common.errors import StoreInUseError
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore
try:
    store = MessageStore.open(StoreConfig(sys.argv[1], segment_bytes=4096), now_ms=lambda: 1, store_host=bytes(8))
except StoreInUseError as error:
    print(error)
else:
    print("open", flush=True)
    sys.stdin.read()
    store.close()
"""


def test_second_opening_in_this_process_is_refused(directory: StoreDirectory) -> None:
    """POSIX locks do not see their own process, so the store keeps a list; other paths to the directory count."""
    directory.open()
    link = directory.root.with_name("link")
    link.symlink_to(directory.root)
    for root in (directory.root, link):
        with pytest.raises(StoreInUseError, match="already open in this process"):
            StoreDirectory(root).open()
    directory.close_all()
    StoreDirectory(link).open().close()


def test_opening_from_another_process_is_refused(directory: StoreDirectory) -> None:
    """The other process gets the error, and this store works on, also after a reader came and went."""
    store = directory.open()
    store.append(new_record())
    store.commit()
    assert count_stores([str(directory.root)], Selection()).faults() == []
    command = [sys.executable, "-c", OPEN_STORE, str(directory.root)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, input="")
    assert "in use by another process" in found.stdout
    store.append(new_record())
    store.commit()
    assert read_all(store) == {("T", 0): [(0, b"body"), (1, b"body")]}


def test_store_of_another_process_is_refused_and_free_after_its_end(directory: StoreDirectory) -> None:
    """The lock ends with the process that holds it."""
    command = [sys.executable, "-c", OPEN_STORE, str(directory.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreInUseError, match="in use by another process"):
            directory.open()
        other.kill()
    directory.open()


def test_lock_file_is_javas(directory: StoreDirectory) -> None:
    """Four bytes of text and a write lock on byte 0."""
    with directory.open(), (directory.root / "lock").open("rb") as file:
        assert file.read() == b"lock"
        assert fcntl.LOCK_EX


def test_failed_opening_gives_the_lock_back(directory: StoreDirectory) -> None:
    """After a refusal to start the directory can be opened by whoever repairs it."""
    directory.fill(60)
    data = directory.segment(1).read_bytes()
    directory.segment(1).unlink()
    for _ in range(2):
        with pytest.raises(StoreDamagedError):
            directory.open()
    directory.segment(1).write_bytes(data)
    assert directory.open().max_offset("T", 0) == 20
