"""What a start makes of queues whose topic was deleted and made again: the old numbering stays away."""

import os
import pathlib
import random
from collections import defaultdict
from collections.abc import Callable

import pytest
from stores import StoreDirectory, new_record, read_all

from rocketlet.store.files.store_config import ENTRY_BYTES

Copy = Callable[..., StoreDirectory]
Contents = dict[tuple[str, int], list[tuple[int, bytes]]]


def send(directory: StoreDirectory, count: int, body: bytes, topic: str = "T") -> None:
    """Store messages in one queue of a store that is open."""
    (store,) = directory._open  # pyright: ignore[reportPrivateUsage] # the store that the test has opened
    for number in range(count):
        directory.now_ms += 10
        store.append(new_record(topic, 0, body + b" %d" % number, TAGS=f"t{number % 2}"))
    store.commit()


@pytest.fixture(params=["record by record", "in blocks"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the starts look at single records, or at blocks."""
    if request.param == "in blocks":
        monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", 300)


def age(directory: StoreDirectory) -> list[pathlib.Path]:
    """Date back the files of all queues and return them."""
    files = [path for path in sorted((directory.root / "consumequeue").rglob("*")) if path.is_file()]
    for path in files:
        os.utime(path, (1, 1))
    return files


@pytest.mark.usefixtures("walk")
@pytest.mark.parametrize("is_clean", [True, False])
def test_queue_of_a_topic_made_again_is_not_written_at_a_start(
    directory: StoreDirectory, copy_of: Copy, *, is_clean: bool
) -> None:
    """The records of two older numberings lie in the log, longer than the last one; no queue file is touched."""
    store = directory.open()
    for count in (40, 60):
        send(directory, count, b"old")
        send(directory, 3, b"other", "U")
        store.delete_topic("T")
    send(directory, 25, b"new")
    send(directory, 3, b"other", "U")
    before = read_all(store)
    assert len(before["T", 0]) == 25
    if is_clean:
        directory.close_all()
    twin = copy_of()
    files = age(twin)
    with twin.open() as again:
        assert read_all(again) == before
    assert len(files) > 3
    assert [path for path in files if path.stat().st_mtime != 1] == []


@pytest.mark.usefixtures("walk")
def test_entry_of_a_record_behind_the_end_proves_nothing(
    directory: StoreDirectory, copy_of: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    """A slot whose write was lost holds the entry of a record that an earlier crash cut off: the new record gets it."""
    store = directory.open()
    send(directory, 5, b"kept")
    send(directory, 1, b"kept", "V")
    end = store.log_max_offset
    send(directory, 8, b"filler", "U")
    cut_off = store.log_max_offset
    send(directory, 1, b"cut off")
    cut_off_bytes = directory.segment().read_bytes()[cut_off:]
    lost_queue = directory.queue_file().read_bytes()
    directory.close_all()
    path = directory.segment()
    path.write_bytes(path.read_bytes()[:end].ljust(len(path.read_bytes()), b"\0"))
    directory.abort.touch()
    store = directory.open()
    send(directory, 1, b"new")
    expected = read_all(store)["T", 0]
    assert expected[5] == (5, b"new 0")
    twin = copy_of()
    path = twin.segment()
    path.write_bytes(path.read_bytes()[:cut_off] + cut_off_bytes)
    twin.queue_file().write_bytes(lost_queue)
    other = twin.queue_file("V")
    data = other.read_bytes()
    other.write_bytes(data[:ENTRY_BYTES] + data[: len(data) - ENTRY_BYTES])  # a second entry, which proves nothing
    with twin.open() as again:
        assert read_all(again)["T", 0] == expected
        assert again.max_offset("V", 0) == 1
    assert "T/0 lacks records of the log, rebuilding it" in caplog.text


@pytest.mark.usefixtures("walk")
@pytest.mark.parametrize("seed", range(30))
def test_queues_are_right_whatever_was_deleted_and_spoilt(directory: StoreDirectory, copy_of: Copy, seed: int) -> None:
    """Topics deleted and made again, starts between, entries that were swapped or lost: each queue is its numbering."""
    draw = random.Random(seed)
    live: Contents = defaultdict(list)
    store = directory.open()
    for number in range(draw.randrange(30, 90)):
        keys = [(draw.choice("TU"), draw.randrange(2))]
        if draw.random() < 0.1:
            keys = [(keys[0][0], 0), (keys[0][0], 1)]
            store.delete_topic(keys[0][0])
        elif draw.random() < 0.05:
            directory.close_all()
            store = directory.open()
        for key in keys:
            live[key] = [] if len(keys) > 1 else live[key]
            body = b"%d" % number * draw.randrange(1, 9)
            live[key].append((store.append(new_record(*key, body, TAGS=draw.choice("xyz"))).queue_offset, body))
        store.commit()
    if draw.random() < 0.5:
        directory.close_all()
    twin = copy_of()
    spoil(draw, twin)
    with twin.open() as again:
        found = read_all(again)
    assert {key: found[key] for key in live} == live
    files = age(twin)
    with twin.open() as again:
        assert {key: read_all(again)[key] for key in live} == live
    touched = [path for path in files if path.stat().st_mtime != 1 and key_of(path) in live]
    assert touched == []


def key_of(path: pathlib.Path) -> tuple[str, int]:
    """Return topic and queue id of a queue file."""
    return path.parent.parent.name, int(path.parent.name)


def spoil(draw: random.Random, directory: StoreDirectory) -> None:
    """Swap some entries of the queues, or set them to zero."""
    files = [path for path in sorted((directory.root / "consumequeue").rglob("*")) if path.is_file()]
    for _ in range(draw.randrange(3)):
        path, other = draw.choice(files), draw.choice(files)
        content = bytearray(path.read_bytes())
        entry = other.read_bytes()[draw.randrange(10) * ENTRY_BYTES :][:ENTRY_BYTES]
        at = draw.randrange(10) * ENTRY_BYTES
        content[at : at + ENTRY_BYTES] = draw.choice((entry, bytes(ENTRY_BYTES)))
        path.write_bytes(content)
