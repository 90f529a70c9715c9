"""Extended queue entries of a Java broker: read through, never written, right as they are."""

import pathlib
import struct
from collections.abc import Sequence

import pytest
from stores import StoreDirectory, file_bytes, new_record

from rocketlet.common.properties import tags_code
from rocketlet.common.record import decode_record
from rocketlet.store.consumequeue.consume_queue import ENTRY
from rocketlet.store.consumequeue.queue_reader import ReadLimits
from rocketlet.store.consumequeue.queue_table import LAST_ADDRESS, ExtQueues, ExtUnit, is_same_entry
from rocketlet.store.files.files import OS_FILES, Descriptors

FIRST_ADDRESS = -(2**63)
EXT_BYTES = 200
UNIT_BYTES = 24


def unit(code: int, bitmap: bytes = b"bits") -> bytes:
    """Return the bytes of a unit."""
    return struct.pack(">hqqh", 20 + len(bitmap), code, 1_750_000_000_000, len(bitmap)) + bitmap


def ext_queues(root: pathlib.Path) -> ExtQueues:
    """Return the extended entries of a store."""
    return ExtQueues(OS_FILES, str(root / "consumequeue_ext"), Descriptors(OS_FILES, 8))


def extend(directory: StoreDirectory, tags: Sequence[str]) -> list[int]:
    """Make the entries of the queue extended ones, as Java's broker writes them; return their addresses."""
    folder = directory.root / "consumequeue_ext" / "T" / "0"
    folder.mkdir(parents=True)
    data, addresses = bytearray(), list[int]()
    for tag in tags:
        if len(data) % EXT_BYTES + UNIT_BYTES + 4 > EXT_BYTES:
            data += struct.pack(">h", -1).ljust(EXT_BYTES - len(data) % EXT_BYTES, b"\0")
        addresses.append(FIRST_ADDRESS + len(data))
        data += unit(tags_code(tag))
    for base in range(0, len(data), EXT_BYTES):
        (folder / f"{base:020d}").write_bytes(data[base : base + EXT_BYTES].ljust(EXT_BYTES, b"\0"))
    for path in sorted((directory.root / "consumequeue" / "T" / "0").iterdir()):
        entries = bytearray(path.read_bytes())
        for position in range(0, len(entries), 20):
            number = (int(path.name) + position) // 20
            if number < len(addresses):
                struct.pack_into(">q", entries, position + 12, addresses[number])
        path.write_bytes(entries)
    return addresses


@pytest.fixture
def extended(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a closed store of 20 messages with the tags t0, t1 and t2, all entries extended."""
    directory = StoreDirectory(tmp_path / "store")
    with directory.open() as store:
        for number in range(20):
            store.append(new_record(body=b"%d" % number, TAGS=f"t{number % 3}"))
            store.commit()
    extend(directory, [f"t{number % 3}" for number in range(20)])
    return directory


def read_tagged(directory: StoreDirectory, tag: str) -> list[int]:
    """Return the queue offsets of what a filter for one tag lets through."""
    offset, found = 0, list[int]()
    with directory.open() as store:
        while offset < store.max_offset("T", 0):
            result = store.read("T", 0, offset, ReadLimits(), accepts=lambda code: code == tags_code(tag))
            found += [decode_record(part[at:]).queue_offset for part in result.records for at in _starts(part)]
            offset = result.next_offset
    return found


def _starts(part: memoryview) -> list[int]:
    starts, position = list[int](), 0
    while position < len(part):
        starts.append(position)
        position += int.from_bytes(part[position : position + 4], "big")
    return starts


def test_filter_sees_the_code_behind_the_address(extended: StoreDirectory) -> None:
    """A read with a filter finds the messages of its tag, over units in several files."""
    assert len(list((extended.root / "consumequeue_ext" / "T" / "0").iterdir())) == 3
    assert read_tagged(extended, "t1") == list(range(1, 20, 3))


def test_missing_file_lets_the_client_filter(extended: StoreDirectory) -> None:
    """Messages whose unit cannot be read are all handed out."""
    (extended.root / "consumequeue_ext" / "T" / "0" / f"{EXT_BYTES:020d}").unlink()
    lost = set(range(8, 16))
    assert read_tagged(extended, "t1") == sorted(lost | set(range(1, 20, 3)))


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_extended_entries_are_right_as_they_are(state: str, extended: StoreDirectory) -> None:
    """A start changes neither queue nor units, and new messages get plain entries behind them."""
    if state == "killed":
        extended.abort.write_text("1")
    before = file_bytes(extended.root / "consumequeue"), file_bytes(extended.root / "consumequeue_ext")
    extended.open()
    extended.close_all()
    assert (file_bytes(extended.root / "consumequeue"), file_bytes(extended.root / "consumequeue_ext")) == before
    with extended.open() as store:
        store.append(new_record(body=b"new", TAGS="t1"))
        store.commit()
    assert read_tagged(extended, "t1") == [*range(1, 20, 3), 20]


def test_queue_written_anew_has_plain_codes(extended: StoreDirectory) -> None:
    """Without its files the queue comes from the log, with the hashes of the tags."""
    for path in (extended.root / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    assert read_tagged(extended, "t1") == list(range(1, 20, 3))
    first = ENTRY.unpack_from(extended.queue_file().read_bytes())
    assert first[2] == tags_code("t0")


def test_deleted_topic_loses_its_units(extended: StoreDirectory) -> None:
    """The files of a deleted topic go with its queues."""
    with extended.open() as store:
        store.delete_topic("T")
    assert list((extended.root / "consumequeue_ext").iterdir()) == []


def test_unit_holds_code_time_and_bitmap(extended: StoreDirectory) -> None:
    """The unit at an address is what was put there."""
    found = ext_queues(extended.root).unit("T", 0, FIRST_ADDRESS + UNIT_BYTES)
    assert found == ExtUnit(tags_code("t1"), 1_750_000_000_000, b"bits")


@pytest.mark.parametrize("position", [8 * UNIT_BYTES, EXT_BYTES - 3, 100 * EXT_BYTES], ids=["end", "edge", "behind"])
def test_address_without_a_unit(position: int, extended: StoreDirectory) -> None:
    """An address that no whole unit stands at yields nothing."""
    assert ext_queues(extended.root).unit("T", 0, FIRST_ADDRESS + position) is None


def test_queue_without_extended_files_has_no_unit(extended: StoreDirectory) -> None:
    """Neither one whose directory is not there, nor one whose files are empty."""
    (extended.root / "consumequeue_ext" / "T" / "1").mkdir()
    (extended.root / "consumequeue_ext" / "T" / "1" / f"{0:020d}").touch()
    assert [ext_queues(extended.root).unit("T", queue_id, FIRST_ADDRESS) for queue_id in (1, 2)] == [None, None]


@pytest.mark.parametrize(("code", "is_address"), [(LAST_ADDRESS, True), (-(2**31), False), (0, False)])
def test_ordinary_hashes_are_no_addresses(code: int, is_address: bool) -> None:
    """-2147483649 is an address, the smallest hash is none: such an entry must have the right code."""
    assert is_same_entry(ENTRY.pack(5, 100, code), ENTRY.pack(5, 100, 77)) == is_address
    assert not is_same_entry(ENTRY.pack(5, 101, code), ENTRY.pack(5, 100, 77))
