"""What a block gives to queues and index: what each of its records would give."""

import pathlib
import random
import struct
from collections.abc import Sequence

import pytest
from logbuilder import LogBuilder

from rocketlet.common.ids import encode_host
from rocketlet.common.message import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.properties import TAGS, parse_properties, tags_code
from rocketlet.common.record import Record, decode_record
from rocketlet.store.commitlog.block_tags import exact_codes
from rocketlet.store.commitlog.record_blocks import Block, BlockScan, ScanLimits, SegmentBytes
from rocketlet.store.consumequeue.appended import describe
from rocketlet.store.recovery.block_dispatch import describe_block, iter_runs, with_due_times
from rocketlet.store.recovery.dispatcher import due_at

V4, V6 = encode_host("192.0.2.9", 1), encode_host("fd00::1", 10911)
ENTRY = struct.Struct(">qiq")
DELAYS_MS = (1_000, 5_000, 30_000)


def block_of(log: LogBuilder) -> Block:
    """Return the block of a log of one file."""
    log.save()
    path = log.files()[0]
    segment = SegmentBytes(str(path), int(path.name), memoryview(path.read_bytes()))
    (block,) = BlockScan(segment, 0, segment.size, ScanLimits())
    return block


def topics_like(draw: random.Random) -> list[str]:
    """Return topics that differ in one letter, or in how long they are."""
    base = "abcdefghijklmnopqrstuvwxyz"[: draw.choice([1, 7, 8, 9, 15, 16, 17, 26])]
    return [base, base[:-1] + "X", base + "Y", "X" + base[1:], "t"]


def mixed_log(folder: pathlib.Path, seed: int) -> LogBuilder:
    """Return records of several queues, of which some have no entry."""
    draw = random.Random(seed)
    log = LogBuilder(folder, 1 << 20, first_file=seed % 3)
    topics = topics_like(draw)
    flags = [0] * 20 + [TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, INNER_BATCH]
    for number in range(120):
        odd_offset = draw.randrange(1_000) if draw.random() < 0.05 else None
        log.add(
            b"x" * draw.randrange(5), topic=draw.choice(topics), queue_id=draw.randrange(3), queue_offset=odd_offset,
            properties=draw.choice([b"", b"TAGS\x01a\x02", b"TAGS\x01b", b"TAGS\x01\x02", b"KEYS\x01k%d\x02" % number]),
            sys_flag=draw.choice(flags), born_host=draw.choice([V4, V6]),
        )  # fmt: skip
    return log


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_the_records_of_each_queue_in_order(tmp_path: pathlib.Path, seed: int) -> None:
    """Each row is in one run; a run has one queue, one kind and offsets that follow each other, and is as it can be."""
    block = block_of(mixed_log(tmp_path / "log", seed))
    codes = exact_codes(block)
    records: list[Record] = [decode_record(block.segment.view, at) for at in block.positions.tolist()]
    without = INNER_BATCH | TRANSACTION_PREPARED
    plain = [
        bool(each) and not record.sys_flag & without
        for each, record in zip(codes.is_plain.tolist(), records, strict=True)
    ]
    seen: list[int] = []
    last_row: dict[tuple[bytes, int], int] = {}
    ends: dict[tuple[bytes, int], tuple[int, bool]] = {}
    for run in iter_runs(block, codes):
        rows: list[int] = run.rows.tolist()
        place = (run.topic, run.queue_id)
        assert rows == sorted(rows)
        assert rows[0] > last_row.get(place, -1)
        last_row[place] = rows[-1]
        assert {(records[row].topic.encode(), records[row].queue_id) for row in rows} == {place}
        assert [records[row].queue_offset for row in rows] == [run.queue_offset + step for step in range(len(rows))]
        assert {plain[row] for row in rows} == {plain[rows[0]]}
        assert ends.get(place) != (run.queue_offset, plain[rows[0]])  # it would go on with the run before
        ends[place] = (run.queue_offset + len(rows), plain[rows[0]])
        expected = [
            ENTRY.pack(records[row].log_offset, records[row].total_size, tags_code(records[row].properties.get(TAGS)))
            for row in rows
        ]
        assert bytes(run.entries) == (b"".join(expected) if plain[rows[0]] else b"")
        seen += rows
    assert sorted(seen) == list(range(len(records)))


LEVELS = [
    b"DELAY\x011\x02", b"DELAY\x012", b"DELAY\x013\x02K\x01v\x02", b"K\x01v\x02DELAY\x012\x02", b"DELAY\x0199\x02",
    b"DELAY\x0110", b"DELAY\x014\x02", b"DELAY\x0103\x02", b"K\x01\xc3\xa4\x02DELAY\x011\x02",
    b"DELAY\x019\x02TAGS\x01a\x02",
]  # fmt: skip
UNTOLD = [
    b"", b"DELAY\x01", b"DELAY\x01\x02", b"DELAY\x010\x02", b"DELAY\x0100\x02", b"DELAY\x01100\x02", b"DELAY\x01x\x02",
    b"DELAY\x011x\x02", b"DELAY\x01x1\x02", b"XDELAY\x011\x02", b"K\x01DELAY\x011\x02", b"DELAY\x01+1\x02",
    b"DELAY\x01 1\x02", b"DELAY\x011 \x02", b"DELAY\x01/\x02", b"DELAY\x01:\x02", b"DELAY\x011/\x02",
    b"DELAY\x011:\x02", b"DELAY\x01\x02K\x011\x02",
]  # fmt: skip


@pytest.mark.parametrize("first", [b"K\x01v\x02", b""])
@pytest.mark.parametrize("delays_ms", [DELAYS_MS, ()])
def test_delayed_messages_have_the_time_they_are_due(
    tmp_path: pathlib.Path, first: bytes, delays_ms: Sequence[int]
) -> None:
    """Of the schedule topic only; a level that is not one or two digits is left to a parser."""
    log = LogBuilder(tmp_path / "log", 1 << 20)
    texts = [*LEVELS, *UNTOLD, *LEVELS]
    for text in texts:
        log.add(topic=SCHEDULE_TOPIC, properties=text)
        log.add(topic=SCHEDULE_TOPIC[:-1] + "Y", properties=first + b"DELAY\x011\x02TAGS\x01tag\x02")
        log.add(topic=SCHEDULE_TOPIC + "X", properties=first + b"DELAY\x011\x02")
    block = block_of(log)
    before = exact_codes(block)
    others = before.values.tolist()[1::3], before.values.tolist()[2::3]
    codes = with_due_times(block, exact_codes(block), delays_ms)
    assert (codes.values.tolist()[1::3], codes.values.tolist()[2::3]) == others
    assert codes.is_plain.tolist()[1::3] == codes.is_plain.tolist()[2::3] == [True] * len(texts)
    stored = block.number("stored_at_ms").tolist()[::3]
    told = [text in LEVELS for text in texts]
    assert codes.is_plain.tolist()[::3] == told
    for text, is_told, stored_at_ms, code in zip(texts, told, stored, codes.values.tolist()[::3], strict=True):
        if is_told:
            assert code == due_at(parse_properties(text), stored_at_ms, delays_ms), text


def test_block_without_delayed_messages_keeps_its_codes(tmp_path: pathlib.Path) -> None:
    """The topic alone tells them."""
    log = LogBuilder(tmp_path / "log")
    for number in range(3):
        log.add(properties=b"DELAY\x011\x02TAGS\x01t%d\x02" % number)
    block = block_of(log)
    codes = with_due_times(block, exact_codes(block), DELAYS_MS)
    assert codes.values.tolist() == [tags_code(f"t{number}") for number in range(3)]
    assert codes.is_plain.all()


@pytest.mark.parametrize("seed", range(3))
def test_index_is_told_of_each_record(tmp_path: pathlib.Path, seed: int) -> None:
    """As the description of a single record tells it."""
    log = mixed_log(tmp_path / "log", seed)
    log.add(topic="Grüße", properties={"K": "ä"})
    block, view = block_of(log), block_of(log).segment.view
    sizes = block.number("size").tolist()
    expected = [describe(view[at : at + size]) for at, size in zip(block.positions.tolist(), sizes, strict=True)]
    names = (
        "log_offset",
        "queue_offset",
        "size",
        "topic",
        "queue_id",
        "sys_flag",
        "stored_at_ms",
        "properties",
        "queue",
    )
    found = describe_block(block)
    for name in names:
        assert [getattr(each, name) for each in found] == [getattr(each, name) for each in expected], name
