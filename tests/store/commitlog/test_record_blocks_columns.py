"""Columns and bounds of blocks, and the walk in blocks: what a look at each record finds."""

import pathlib
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest
from logbuilder import LogBuilder

from rocketlet.common.ids import encode_host
from rocketlet.common.record import (
    MAGIC_BLANK,
    Verdict,
    check_record,
    decode_record,
    reserve_property_crc,
    seal_property_crc,
)
from rocketlet.store.commitlog.log_end import LogWalk, Stop
from rocketlet.store.commitlog.record_blocks import (
    ADDED_BYTES,
    BORN_HOST_AT,
    STORE_HOST_AT,
    Block,
    BlockScan,
    BlockWalk,
    ScanLimits,
    SegmentBytes,
    has_body_crc,
    measure,
)
from rocketlet.store.files.segments import SegmentFile

V4 = encode_host("192.0.2.9", 1)
V6 = encode_host("fd00::1", 10911)
BASE = 3 * 65_536


def segment_of(log: LogBuilder, number: int = 0) -> SegmentBytes:
    """Return a file of the saved log."""
    path = log.files()[number]
    return SegmentBytes(str(path), int(path.name), memoryview(path.read_bytes()))


def whole_block(log: LogBuilder) -> Block:
    """Return the records of a log of one file."""
    segment = segment_of(log)
    (block,) = BlockScan(segment, 0, segment.size, ScanLimits())
    return block


@pytest.fixture
def mixed(tmp_path: pathlib.Path) -> LogBuilder:
    """Give a log of records of every kind, in one file that is not the first."""
    log = LogBuilder(tmp_path / "mixed", 65_536, first_file=3)
    draw = random.Random(5)
    for number in range(60):
        log.add(
            draw.randbytes(draw.randrange(40)),
            topic="t" * draw.choice([1, 20, 127, 128, 300]),
            queue_id=number % 5,
            properties={"K": "v" * number} if number % 3 else b"",
            store_host=draw.choice([V4, V6]),
            born_host=draw.choice([V4, V6]),
            flag=number,
            born_at_ms=number * 7,
            reconsume_times=number % 4,
            prepared_transaction_offset=number * 11,
        )
    log.save()
    return log


def test_columns_are_those_of_the_records(mixed: LogBuilder) -> None:
    """Numbers of the head, and where body, topic and properties are."""
    block, view = whole_block(mixed), segment_of(mixed).view
    records = [decode_record(view, position) for position in block.positions.tolist()]
    assert [record.log_offset for record in records] == mixed.offsets
    for column, name in {"size": "total_size"}.items():
        assert block.number(column).tolist() == [getattr(record, name) for record in records]
    for name in [
        "body_crc",
        "queue_id",
        "flag",
        "queue_offset",
        "log_offset",
        "sys_flag",
        "born_at_ms",
        "stored_at_ms",
        "reconsume_times",
        "prepared_transaction_offset",
    ]:
        assert block.number(name).tolist() == [getattr(record, name) for record in records], name
        assert block.number(name).dtype.isnative
    assert block.number("body_bytes").tolist() == [len(record.body) for record in records]
    parts = {"body": "body", "topic": "topic", "properties": "property_text"}
    for column, name in parts.items():
        places = zip(getattr(block, f"{column}_at").tolist(), getattr(block, f"{column}_bytes").tolist(), strict=True)
        found = [bytes(view[at : at + size]) for at, size in places]
        wanted = [getattr(record, name) for record in records]
        assert found == [each.encode() if isinstance(each, str) else bytes(each) for each in wanted], column


def test_hosts_stand_where_heads_have_them(tmp_path: pathlib.Path) -> None:
    """Both are of 8 bytes; a long one of the sender moves that of the store by the added bytes."""
    log = LogBuilder(tmp_path / "log")
    log.add(born_host=V4)
    log.add(born_host=V4, store_host=encode_host("192.0.2.10", 2))
    log.save()
    block = whole_block(log)
    for at, name in ((BORN_HOST_AT, "born_host"), (STORE_HOST_AT, "store_host")):
        assert block.segment.gather(block.positions + at, "V8").tolist() == block.heads[name].tolist()
    long_host = LogBuilder(tmp_path / "long")
    long_host.add(born_host=V6, store_host=V4)
    long_host.save()
    block = whole_block(long_host)
    assert block.segment.gather(block.positions + STORE_HOST_AT + ADDED_BYTES, "V8").tolist() == [V4]


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_least_record_may_end_with_its_file(tmp_path: pathlib.Path, born: bytes, store: bytes) -> None:
    """One without body, topic and properties, whatever its hosts; nothing is reserved behind it unless that is said."""
    log = LogBuilder(tmp_path / "log")
    log.add(b"", topic="", born_host=born, store_host=store)
    log.save()
    whole = segment_of(log)
    segment = SegmentBytes(whole.path, whole.base_offset, whole.view[: log.end])
    assert [len(block) for block in BlockScan(segment, 0, segment.size, ScanLimits())] == [1]


def test_rows_before_and_behind_a_place(mixed: LogBuilder) -> None:
    """Those that begin before it, and those that begin behind it; one that begins there is neither."""
    block = whole_block(mixed)
    assert block.end == mixed.end
    assert len(block) == len(mixed.offsets)
    first, last = mixed.offsets[0], mixed.offsets[-1]
    for log_offset in [first - 1, first, first + 1, mixed.offsets[7], mixed.offsets[7] + 1, last, last + 1, mixed.end]:
        before, behind = block.rows_before(log_offset), block.rows_behind(log_offset)
        assert (before.positions + BASE).tolist() == [each for each in mixed.offsets if each < log_offset]
        assert (behind.positions + BASE).tolist() == [each for each in mixed.offsets if each > log_offset]
        assert len(before.heads) == len(before.properties_bytes) == len(before)


@pytest.mark.parametrize(("born", "store", "has_v6"), [(V4, V4, False), (V6, V4, True), (V4, V6, True)])
def test_block_tells_of_long_hosts(tmp_path: pathlib.Path, born: bytes, store: bytes, has_v6: bool) -> None:
    """Any record of it with one is enough."""
    log = LogBuilder(tmp_path / "log")
    log.add()
    log.add(born_host=born, store_host=store)
    log.add()
    log.save()
    assert whole_block(log).has_v6 is has_v6


SIZES = [0, 1, 40, 511, 512, 513, 600]


@pytest.mark.parametrize("count", [1, 63, 64, 65])
def test_each_wrong_body_is_told(tmp_path: pathlib.Path, count: int) -> None:
    """Whether few or many bodies of its size are in the block, short ones or long ones; an empty one needs no sum."""
    log = LogBuilder(tmp_path / "log", 1 << 20)
    draw = random.Random(count)
    for _ in range(count):
        for size in SIZES:
            log.add(draw.randbytes(size))
    log.save()
    data = bytearray(log.files()[0].read_bytes())
    segment = SegmentBytes("0", 0, memoryview(data))
    (block,) = BlockScan(segment, 0, segment.size, ScanLimits(checks_crc=False))
    assert has_body_crc(block).tolist() == [True] * len(log.offsets)
    wrong = set(range(count // 2 * len(SIZES), (count // 2 + 1) * len(SIZES)))
    for row in wrong:
        data[log.offsets[row] + 8 + 3] ^= 1
    is_wrong = [row in wrong and size > 0 for row, size in enumerate(block.body_bytes.tolist())]
    (block,) = BlockScan(segment, 0, segment.size, ScanLimits(checks_crc=False))
    assert [not each for each in has_body_crc(block).tolist()] == is_wrong


def test_copies_are_measured_without_their_places(mixed: LogBuilder) -> None:
    """Records that were put together name other positions than those where they lie."""
    view = segment_of(mixed).view
    chosen = [bytes(view[each - BASE : each - BASE + decode_record(view, each - BASE).total_size])
              for each in mixed.offsets[20:30]]  # fmt: skip
    data = b"".join(chosen)
    copies = SegmentBytes("copies", 0, memoryview(data + bytes(91)))
    starts = whole_block(mixed).positions[:10] * 0
    starts += [len(b"".join(chosen[:number])) for number in range(10)]
    assert len(measure(copies, starts, len(data), is_log=False)) == 10
    assert len(measure(copies, starts, len(data))) == 0
    assert len(measure(copies, starts, len(data) - 1, is_log=False)) == 9


def walk_one_by_one(
    segment: SegmentBytes, position: int, stop: int, end: int, reserved_bytes: int
) -> tuple[list[int], int, Verdict | None]:
    """Return what a scan has to find."""
    positions: list[int] = []
    while position < stop:
        view, log_offset = segment.view[:end], segment.base_offset + position
        size = check_record(view, position, log_offset, reserved_bytes=reserved_bytes)
        if size <= 0:
            return positions, position, Verdict(size)
        positions.append(position)
        position += size
    return positions, position, None


def evenly(log: LogBuilder) -> None:
    """Write runs of records of one size, long and short, and others between them."""
    for count in (1, 2, 70, 1, 130, 3, 64, 1, 1, 1, 65, 300):
        for _ in range(count):
            log.add(b"x" * (count % 7), topic="T")
    for number in range(200):
        log.add(b"x" * (number % 3), topic="T")


@pytest.mark.parametrize("most", [1, 2, 63, 64, 65, 100, 128, 10_000])
def test_blocks_are_as_long_as_they_may_be(tmp_path: pathlib.Path, most: int) -> None:
    """All but the last hold so many records, whichever sizes these have; together they hold all."""
    log = LogBuilder(tmp_path / "log", 1 << 20)
    evenly(log)
    log.save()
    segment = segment_of(log)
    blocks = [block.positions.tolist() for block in BlockScan(segment, 0, segment.size, ScanLimits(block_records=most))]
    assert [position for block in blocks for position in block] == log.offsets
    assert {len(block) for block in blocks[:-1]} <= {most}
    assert len(blocks) == -(-len(log.offsets) // most)


@pytest.mark.parametrize("most", [1, 100, 1_000, 5_000])
def test_blocks_are_no_longer_than_their_bytes(tmp_path: pathlib.Path, most: int) -> None:
    """The last record of a block begins within so many bytes; the next one would begin behind them."""
    log = LogBuilder(tmp_path / "log", 1 << 20)
    evenly(log)
    log.save()
    segment = segment_of(log)
    blocks = [block.positions.tolist() for block in BlockScan(segment, 0, segment.size, ScanLimits(block_bytes=most))]
    assert [position for block in blocks for position in block] == log.offsets
    assert max(block[-1] - block[0] for block in blocks) <= most
    assert all(behind[0] - block[0] > most for block, behind in pairwise(blocks))


def test_scan_of_a_part_ends_where_it_is_told(mixed: LogBuilder) -> None:
    """Records that begin before ``stop``, end by ``end`` and leave room behind them, and why there is no other."""
    segment = segment_of(mixed)
    places = [each - BASE for each in mixed.offsets]
    end_at = mixed.end - BASE
    for position in (places[0], places[5], places[30]):
        for stop in (places[5], places[30] - 1, places[30], places[30] + 1, places[31], end_at - 1, end_at, end_at + 1):
            for end in (stop, stop + 90, stop + 91, places[31], places[31] + 1, end_at, segment.size):
                if end < stop:
                    continue
                scan = BlockScan(segment, position, stop, ScanLimits(), end)
                found = [each for block in scan for each in block.positions.tolist()]
                expected = walk_one_by_one(segment, position, stop, end, 0)
                assert (found, scan.position, scan.verdict) == expected, (position, stop, end)


@pytest.mark.parametrize("room", [0, 7, 8, 9])
@pytest.mark.parametrize("reserved", [0, 8])
def test_scan_leaves_room_behind_a_record(mixed: LogBuilder, room: int, reserved: int) -> None:
    """A record that leaves less than is reserved is none."""
    whole = segment_of(mixed)
    segment = SegmentBytes(whole.path, BASE, whole.view[: mixed.end - BASE + room])
    scan = BlockScan(segment, 0, segment.size, ScanLimits(reserved_bytes=reserved))
    found = [each for block in scan for each in block.positions.tolist()]
    assert (found, scan.position, scan.verdict) == walk_one_by_one(segment, 0, segment.size, segment.size, reserved)


def negative(data: bytearray, at: int) -> None:
    """Give the record a negative offset in its queue."""
    data[at + 20] = 0x80


def wide(data: bytearray, at: int) -> None:
    """Say that the hosts are longer."""
    data[at + 36 + 3] ^= 0x30


def huge_body(data: bytearray, at: int) -> None:
    """Make the body longer than everything."""
    data[at + 84 : at + 88] = struct.pack(">i", 2**31 - 1)


def body_to_the_end(data: bytearray, at: int) -> None:
    """Let the body reach up to the last byte of the record."""
    (size,) = struct.unpack_from(">i", data, at)
    data[at + 84 : at + 88] = struct.pack(">i", size - 88 - 2)


def longer_topic(data: bytearray, at: int) -> None:
    """Let the topic reach beyond the record."""
    data[at + 92] = 127


def negative_topic(data: bytearray, at: int) -> None:
    """Give the topic a negative length."""
    data[at + 92] = 0x80


def huge(data: bytearray, at: int) -> None:
    """Make the record longer than the file."""
    data[at] = 0x7F


def small(data: bytearray, at: int) -> None:
    """Make the record shorter than any."""
    data[at : at + 4] = struct.pack(">i", 90)


@pytest.mark.parametrize("row", [0, 1, 5, 99, 199])
@pytest.mark.parametrize(
    "damage", [negative, wide, huge_body, body_to_the_end, longer_topic, negative_topic, huge, small]
)
@pytest.mark.parametrize("host", [V4, V6])
def test_scan_of_damage_among_many_ends_there(
    tmp_path: pathlib.Path, row: int, damage: Callable[[bytearray, int], None], host: bytes
) -> None:
    """Among 200 records of one size the first bad one ends the scan."""
    log = LogBuilder(tmp_path / "log", 1 << 18)
    for _ in range(200):
        log.add(born_host=host)
    log.save()
    data = bytearray(log.files()[0].read_bytes())
    damage(data, log.offsets[row])
    segment = SegmentBytes("0", 0, memoryview(data))
    scan = BlockScan(segment, 0, segment.size, ScanLimits())
    found = [each for block in scan for each in block.positions.tolist()]
    assert (found, scan.position, scan.verdict) == walk_one_by_one(segment, 0, segment.size, segment.size, 0)


# --- walks over files


def seal_all(log: LogBuilder, content: list[bytearray]) -> None:
    """Give every record its checksum, for which there is room in its properties."""
    for log_offset in log.offsets:
        data, at = content[(log_offset - log.offsets[0]) // log.segment_bytes], log_offset % log.segment_bytes
        size = decode_record(data, at).total_size
        data[at : at + size] = seal_property_crc(bytes(data[at : at + size]))


Found = tuple[list[int], Stop | None]


def walks_over(
    log: LogBuilder, change: Callable[[list[bytearray]], object], **how: bool
) -> Iterator[tuple[Found, Found]]:
    """Yield what both walks find, from the start and from each record on."""
    content = [bytearray(path.read_bytes()) for path in log.files()]
    change(content)
    segments = [
        SegmentFile(str(path), int(path.name), len(data)) for path, data in zip(log.files(), content, strict=True)
    ]
    views = {segment.path: memoryview(data) for segment, data in zip(segments, content, strict=True)}
    for start in [segments[0].base_offset, *log.offsets[::9], log.end, segments[-1].base_offset + log.segment_bytes]:
        single = LogWalk(segments, lambda segment: views[segment.path], **how)
        blocks = BlockWalk(segments, lambda segment: views[segment.path], **how)
        found = [(block.segment.base_offset + block.positions).tolist() for block in blocks.blocks_from(start)]
        expected = [at for at, _ in single.walk_from(start)]
        yield (expected, single.stop), ([at for each in found for at in each], blocks.stop)


def three_files(folder: pathlib.Path, *, has_seals: bool = False) -> LogBuilder:
    """Return a log of three files whose properties end in a digit, or have room for their seals."""
    log = LogBuilder(folder, 8_192, first_file=2)
    while len(log.offsets) < 200:
        text = b"K\x01%d" % len(log.offsets)
        log.add(properties=reserve_property_crc(text + b"\x02") if has_seals else text, topic="T")
    log.save()
    assert has_seals or len(log.files()) == 3
    return log


Change = Callable[[LogBuilder, list[bytearray]], None]


def change_nothing(log: LogBuilder, content: list[bytearray]) -> None:
    """Leave it as it is."""


def cut_last_short(log: LogBuilder, content: list[bytearray]) -> None:
    """End the properties of the last record in a zero."""
    content[-1][log.end % 8_192 - 1] = 0


def end_first_in_zero(log: LogBuilder, content: list[bytearray]) -> None:
    """End the properties of the first record in a zero; another follows."""
    content[0][log.offsets[1] % 8_192 - 1] = 0


def cut_short_before_damage(log: LogBuilder, content: list[bytearray]) -> None:
    """End the properties of a record in a zero, and spoil the one behind it."""
    at = log.offsets[100] % 8_192
    content[1][at - 1] = 0
    content[1][at + 4] = 9


def spoil_place(log: LogBuilder, content: list[bytearray]) -> None:
    """Change a byte in the middle."""
    content[1][100] ^= 1


def remove_blank(log: LogBuilder, content: list[bytearray]) -> None:
    """Take away the end of a file."""
    content[0][-91:] = bytes(91)


def zero_file(log: LogBuilder, content: list[bytearray]) -> None:
    """Take away all that is in a file."""
    content[1][:] = bytes(8_192)


def spoil_body(log: LogBuilder, content: list[bytearray]) -> None:
    """Change a body."""
    content[0][90] = 0


def end_in_blank(log: LogBuilder, content: list[bytearray]) -> None:
    """Let a blank end the last file."""
    at = log.end % 8_192
    content[-1][at : at + 8] = struct.pack(">iI", 8_192 - at, MAGIC_BLANK)


def end_file_in_zero(log: LogBuilder, content: list[bytearray]) -> None:
    """End the last record of a file in a zero; the next file goes on."""
    blank = content[0].rindex(MAGIC_BLANK.to_bytes(4, "big")) - 4
    content[0][blank - 1] = 0


def cut_file_short(log: LogBuilder, content: list[bytearray]) -> None:
    """End the last record of a file in a zero; the next file holds nothing."""
    end_file_in_zero(log, content)
    zero_file(log, content)


def end_bodies_in_zero(log: LogBuilder, content: list[bytearray]) -> None:
    """Let there be no properties, and a zero at the end."""
    at = log.offsets[-1] % 8_192
    size = decode_record(content[-1], at).total_size
    content[-1][at : at + 4] = (93).to_bytes(4, "big")
    content[-1][at + 84 : at + size] = (1).to_bytes(4, "big") + b"x\x01T" + bytes(size - 91)
    content[-1][at + 8 : at + 12] = (zlib.crc32(b"x") & 0x7FFFFFFF).to_bytes(4, "big")


CHANGES: list[Change] = [
    change_nothing, cut_last_short, end_first_in_zero, cut_short_before_damage, spoil_place, remove_blank, zero_file,
    spoil_body, end_in_blank, end_file_in_zero, cut_file_short, end_bodies_in_zero,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("how", [{}, {"checks_crc": False}, {"demands_seals": True}], ids=str)
def test_walk_in_blocks_is_the_walk_of_records(tmp_path: pathlib.Path, change: Change, how: dict[str, bool]) -> None:
    """Both find the same records, end at the same place and say the same about it."""
    log = three_files(tmp_path / "log")
    for single, blocks in walks_over(log, partial(change, log), **how):
        assert blocks == single


@pytest.mark.parametrize("change", CHANGES)
def test_walk_of_sealed_records_looks_at_the_seal_only(tmp_path: pathlib.Path, change: Change) -> None:
    """Whatever has changed since they were sealed."""
    log = three_files(tmp_path / "log", has_seals=True)

    def seal(content: list[bytearray]) -> None:
        seal_all(log, content)
        change(log, content)

    for single, blocks in walks_over(log, seal, demands_seals=True):
        assert blocks == single


def test_walk_says_where_and_why_it_ended(tmp_path: pathlib.Path) -> None:
    """The end of what is sound, and whether what follows was torn."""
    log = three_files(tmp_path / "log")
    paths, base = [str(path) for path in log.files()], log.offsets[0]
    last = log.offsets[-1]
    expected: list[tuple[Change, int, tuple[int, int, bool]]] = [
        (change_nothing, 2, (log.end % 8_192, log.end, False)),
        (cut_last_short, 2, (last % 8_192, last, True)),
        (spoil_body, 0, (0, base, True)),
        (zero_file, 1, (0, base + 8_192, False)),
        (end_in_blank, 2, (log.end % 8_192, base + 3 * 8_192, False)),
        (end_file_in_zero, 2, (log.end % 8_192, log.end, False)),
        (end_bodies_in_zero, 2, (last % 8_192 + 93, last + 93, False)),
    ]
    for change, number, (position, log_offset, is_torn) in expected:
        (_, stop), _ = next(walks_over(log, partial(change, log)))
        assert stop is not None
        assert (stop.path, stop.position, stop.log_offset, stop.is_torn) == (
            paths[number], position, log_offset, is_torn)  # fmt: skip
