"""Dump files: what is written is read, by other libraries too, and what is damaged or foreign is named."""

import os
import pathlib
import struct
import zlib
from datetime import datetime
from typing import Any

import msgpack
import msgspec
import pyarrow as pa
import pytest
from javastores import STORES, unpack_store
from logbuilder import FIRST_MS, LogBuilder, write_dump

from rocketlet.common.errors import ConfigError, DecodeError, StoreError
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.dump_file import COLUMNS, MAGIC, DumpedMessage, DumpReader, messages_of
from rocketlet.export.write.log_reader import ReadOptions, SplitReader
from rocketlet.export.write.writers import write_all

EVERYTHING = ReadOptions(Selection(includes_system=True), COLUMNS)


def batches_of(store: pathlib.Path) -> list[pa.RecordBatch]:
    """Return all messages of a store."""
    return [batch for split in plan_stores([str(store)]) for batch in SplitReader(EVERYTHING).read(split)]


def read(path: pathlib.Path, first: int = 0) -> list[DumpedMessage]:
    """Return the messages of the blocks from that of a message on."""
    with DumpReader(str(path)) as dump:
        return [message for block in dump.blocks(first) for message in block.messages]


def message(number: int) -> DumpedMessage:
    """Return a message whose body is its number."""
    properties = {"KEYS": f"k{number}", "größe": "ä"}
    ids, hosts, times = ("A0", "B0"), ("192.0.2.1:1", "192.0.2.2:2"), (1_700_000_000_000, 1_700_000_000_001)
    return DumpedMessage("T", 1, number, 0, *ids, properties, b"%d" % number, -1, 0, *times, *hosts, 0, 0, 7)


@pytest.fixture
def dump(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a dump of 2,500 messages, in three blocks."""
    return write_dump(tmp_path / "file.dump", map(message, range(2_500)))


@pytest.fixture
def small(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a dump of one message."""
    return write_dump(tmp_path / "small.dump", [message(0)])


@pytest.mark.parametrize("name", STORES)
def test_dump_holds_what_the_java_broker_stored(vectors: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
    """Every column of every message is read as it was, from stores that a Java broker wrote."""
    batches = batches_of(unpack_store(vectors, name, tmp_path))
    write_all(batches, str(tmp_path / "file.dump"), "dump", COLUMNS)
    expected = [message for batch in batches for message in messages_of(batch)]
    assert expected
    assert read(tmp_path / "file.dump") == expected


def test_messages_are_maps_for_any_msgpack_library(dump: pathlib.Path) -> None:
    """Values with a topic are the messages; the rest are the name of the format, the head, and marks that add up."""
    with dump.open("rb") as file:
        values: list[Any] = list(msgpack.Unpacker(file, raw=False))
    messages = [value for value in values if "topic" in value]
    marks = [value for value in values if len(value) == 4]
    assert [message["body"] for message in messages] == [b"%d" % number for number in range(2_500)]
    assert messages[7]["properties"] == {"KEYS": "k7", "größe": "ä"}
    assert messages[7]["flag"] == -1
    assert values[0] == "rocketlet-dump-1"
    assert [mark[2:] for mark in marks] == [[0, 0], [1000, 0], [1000, 1000], [500, 2000], [0, 2500]]


@pytest.mark.parametrize(("first", "begins_at"), [(0, 0), (999, 0), (1000, 1000), (2499, 2000), (2500, None)])
def test_reading_begins_with_the_block_of_a_message(dump: pathlib.Path, first: int, begins_at: int | None) -> None:
    """What precedes the block is passed over; behind the last message there is nothing."""
    with DumpReader(str(dump)) as reader:
        assert next((block.number for block in reader.blocks(first)), None) == begins_at


def test_blocks_say_where_they_are(dump: pathlib.Path) -> None:
    """Each begins where the one before it ends, and the last ends at the mark of the end."""
    with DumpReader(str(dump)) as reader:
        blocks = list(reader.blocks())
    assert [block.position for block in blocks[1:]] == [block.end for block in blocks[:-1]]
    assert blocks[-1].end + 25 == dump.stat().st_size


def of_size(number: int, size: int) -> DumpedMessage:
    """Return a message that takes so many bytes, of which most are its body."""
    empty = msgspec.structs.replace(message(number), body=bytes(1 << 17))
    room = size - len(msgspec.msgpack.encode(empty))
    return msgspec.structs.replace(empty, body=bytes((1 << 17) + room))


@pytest.mark.parametrize(("size", "counts"), [(1 << 18, [4, 4, 1]), ((1 << 18) - 1, [5, 4]), (3 << 20, [1] * 9)])
def test_block_ends_at_a_mebibyte(tmp_path: pathlib.Path, size: int, counts: list[int]) -> None:
    """Or with the message that goes beyond it; each begins anew."""
    path = write_dump(tmp_path / "file.dump", [of_size(number, size) for number in range(9)])
    with DumpReader(str(path)) as dump:
        assert [len(block.messages) for block in dump.blocks()] == counts


def test_dump_is_on_disk_when_it_is_closed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, before it gets its name."""
    sizes: list[int] = []

    def note(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr("rocketlet.export.write.dump_file.os.fsync", note)
    path = write_dump(tmp_path / "file.dump", [message(0)])
    assert sizes == [path.stat().st_size]


def mark(content: bytes = b"", messages: int = 0, before: int = 0, size: int | None = None) -> bytes:
    """Return a mark, by its description."""
    size = len(content) if size is None else size
    fields = 0x94, 0xCE, zlib.crc32(content), 0xCE, size, 0xCE, messages, 0xCF, before
    return struct.pack(">BBIBIBIBQ", *fields)


HEAD = msgspec.msgpack.encode({"id": "x", "made": "now"})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (mark(HEAD) + HEAD + mark(), None),
        (mark(HEAD, messages=1) + HEAD + mark(), "byte 17: the head is missing"),
        (mark(HEAD, before=1) + HEAD + mark(), "byte 17: the head is missing"),
        (mark(b"\x01") + b"\x01" + mark(), "byte 17: the head cannot be read"),
        (mark(HEAD) + HEAD + mark(before=1), "byte 57: the block says that 1 messages precede it, not 0"),
        (mark(HEAD) + HEAD + mark(b"abc"), "byte 57: it is no end, or something follows it"),
        (mark(HEAD) + HEAD + mark(b"abc", size=0), "byte 57: it is no end, or something follows it"),
        (mark(HEAD) + HEAD + mark() + b"x", "byte 57: it is no end, or something follows it"),
        (mark(HEAD) + HEAD + mark(b"a", messages=1) + b"a", "byte 57: a message of it cannot be read"),
        (mark(HEAD) + HEAD + mark(b"a", messages=2) + b"a", "byte 57: the mark tells of 2 messages in 1 bytes"),
        (
            mark(HEAD) + HEAD + mark(size=1 << 30, messages=1),
            "is not complete: it ends at byte 82, in the block at byte 57",
        ),
        (mark(HEAD) + HEAD + mark(size=(1 << 30) + 1, messages=1), "the mark tells of 1 messages in 1073741825 bytes"),
    ],
    ids=[
        "sound",
        "messages",
        "number",
        "no head",
        "another number",
        "bytes",
        "checksum",
        "more",
        "no message",
        "too many",
        "cut",
        "too large",
    ],
)
def test_marks_must_fit(tmp_path: pathlib.Path, content: bytes, text: str | None) -> None:
    """To what precedes and follows them; the error says which does not, and where."""
    path = tmp_path / "file"
    path.write_bytes(MAGIC + content)
    if text is None:
        assert read(path) == []
        return
    with pytest.raises(DecodeError, match=text):
        read(path)


def test_dump_that_ends_with_a_block_that_is_passed_over_is_not_complete(dump: pathlib.Path) -> None:
    """What is missing is the block behind it; a byte less, and it is the block itself."""
    with DumpReader(str(dump)) as reader:
        first, second, _ = reader.blocks()
    for size, position in ((second.position, second.position), (second.position - 1, first.position)):
        os.truncate(dump, size)
        with pytest.raises(DecodeError, match=f"it ends at byte {size}, in the block at byte {position}$"):
            read(dump, 1_000)


def test_device_that_fails_is_an_error_of_the_store(tmp_path: pathlib.Path) -> None:
    """With the reason that the system gives."""
    path = tmp_path / "memory"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(StoreError, match="memory cannot be read: Input/output error"):
        read(path)


def test_times_are_milliseconds(tmp_path: pathlib.Path) -> None:
    """Those that no calendar holds are nothing."""
    log = LogBuilder(tmp_path / "store")
    log.add(born_at_ms=-1)
    log.add(born_at_ms=2**62)
    log.save()
    found = [each for batch in batches_of(log.root) for each in messages_of(batch)]
    assert [each.born_timestamp for each in found] == [-1, None]
    assert [each.store_timestamp for each in found] == [FIRST_MS, FIRST_MS + 1]


def test_dump_cut_anywhere_is_not_complete(small: pathlib.Path) -> None:
    """Without its last byte or more, a dump is an error that names the block, or no dump at all."""
    whole = small.read_bytes()
    for size in range(len(whole)):
        small.write_bytes(whole[:size])
        error, text = (ConfigError, "is no dump") if size < len(MAGIC) else (DecodeError, "is not complete: it ends at")
        with pytest.raises(error, match=text):
            read(small)


def test_flipped_bit_is_found(small: pathlib.Path) -> None:
    """Whichever byte is changed, the dump is not read as if nothing had happened; the error names the block."""
    whole = small.read_bytes()
    for position in range(len(MAGIC), len(whole)):
        small.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DecodeError, match=r"small.dump is (damaged in the block|not complete.*block) at byte \d+"):
            read(small)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "it is empty"),
        (b"PAR1" * 10, "it begins with b'PAR1"),
        (MAGIC.replace(b"1", b"2") + bytes(100), "it begins with"),
        (MAGIC + bytes(100), "damaged in the block at byte 17: there is no mark"),
        (MAGIC + bytes.fromhex("94ce00000000cefffffffece00000001cf") + bytes(8), "tells of 1 messages in 4294967294"),
    ],
    ids=["empty", "Parquet", "another version", "zeros", "huge"],
)
def test_foreign_file_is_named(tmp_path: pathlib.Path, content: bytes, text: str) -> None:
    """What is no dump is said to be none, before a message is read and without taking memory for it."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises((ConfigError, DecodeError), match=text):
        read(path)


def test_something_behind_the_end_is_damage(dump: pathlib.Path) -> None:
    """Two dumps in one file are not taken for the first of them."""
    dump.write_bytes(dump.read_bytes() * 2)
    with pytest.raises(DecodeError, match="something follows it"):
        read(dump)


@pytest.mark.parametrize("name", ["missing", "."])
def test_file_that_cannot_be_read_is_a_wrong_argument(tmp_path: pathlib.Path, name: str) -> None:
    """A path without a file is told as such."""
    with pytest.raises(ConfigError, match="cannot be read"):
        DumpReader(str(tmp_path / name))


def test_dump_says_which_it_is(dump: pathlib.Path, small: pathlib.Path) -> None:
    """By an id of its own and the time at which it was made; how many messages it has is known at its end."""
    with DumpReader(str(dump)) as one, DumpReader(str(small)) as other:
        assert len(one.info.id) == len(other.info.id) == 32
        assert one.info.id != other.info.id
        assert datetime.fromisoformat(one.info.made).tzinfo is not None
        assert one.messages is None
        assert sum(len(block.messages) for block in one.blocks()) == one.messages == 2_500
