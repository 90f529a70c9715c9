"""Readings of logs give the rows and the counts that plain Python finds, one record after the other."""

import itertools
import pathlib
import random
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
from javastores import Row
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.common.compression import deflate
from rocketlet.common.errors import StoreDamagedError, StoreError
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.export.columns.record_columns import inflate_in_pieces
from rocketlet.export.columns.schema import pick_columns
from rocketlet.export.plan.log_end import LogStop
from rocketlet.export.plan.read_plan import PlanOptions, plan_stores
from rocketlet.export.plan.selection import Selection
from rocketlet.export.report.counters import StoreCounters, store_to_json
from rocketlet.export.write.log_reader import LogReader, ReadOptions, SplitReader, count_stores
from rocketlet.store.commitlog.record_blocks import ScanLimits

TOPICS = ("Orders", "Other", "Rare", "%RETRY%group")
QUEUE_IDS = (0, 1, 2, 65_536, 70_000, 2**31 - 1, -1, -2)
NAMES = pick_columns(["topic", "queueId", "queueOffset", "tags", "keys", "body"])


class Message(NamedTuple):
    """A message as it was written: its place, and what it is chosen by."""

    topic: str
    queue_id: int
    queue_offset: int
    tag: str | None
    key: str | None
    body: bytes | None


class Written(NamedTuple):
    """A record as it was written."""

    is_queued: bool
    is_batch: bool
    size_bytes: int
    stored_at_ms: int
    messages: list[Message]


def write_any(log: LogBuilder, draw: random.Random, queue_ids: tuple[int, ...], count: int) -> list[Written]:
    """Write records of any kind to queues that have gaps and repeats, and return what was written."""
    offsets: dict[tuple[str, int], int] = defaultdict(lambda: draw.randrange(5))
    written: list[Written] = []
    for number in range(count):
        queue = draw.choice(TOPICS), draw.choice(queue_ids)
        log.next_ms = FIRST_MS + draw.randrange(1_000)
        first = offsets[queue] = max(0, offsets[queue] + draw.choice([0, 0, 0, 0, 0, 2, -1]))
        tags = [draw.choice(["a", "b", None]) for _ in range(draw.choice([1, 1, 1, 1, 2, 3]))]
        messages = [
            Message(*queue, first + place, tag, draw.choice(["k", "l", None]), b"%d/%d" % (number, place))
            for place, tag in enumerate(tags)
        ]
        written.append(write(log, messages, draw.choice([0, 0, 0, 0, 8, 4, 12])))
        offsets[queue] += len(messages)
    log.save()
    return written


def write(log: LogBuilder, messages: list[Message], transaction: int) -> Written:
    """Write a record of one message, or an inner batch."""
    texts = [
        encode_properties({name: word for name, word in (("TAGS", one.tag), ("KEYS", one.key)) if word})
        for one in messages
    ]
    first, stored_at_ms, is_batch = messages[0], log.next_ms, len(messages) > 1
    body, text = first.body or b"", texts[0]
    if is_batch:
        parts = [BatchPart(0, one.body or b"", text) for one, text in zip(messages, texts, strict=True)]
        body, text = encode_batch(parts), b""
    at = log.add(
        body,
        topic=first.topic,
        queue_id=first.queue_id,
        queue_offset=first.queue_offset,
        properties=text,
        sys_flag=transaction | (0xC0 if is_batch else 0),
    )
    return Written(transaction not in (4, 12), is_batch, log.end - at, stored_at_ms, messages)


def reason_of(record: Written, message: Message, selection: Selection) -> str | None:
    """Return why a message is no row, ``None`` if it is one."""
    low, high = selection.from_offset, selection.until_offset
    is_outside = message.queue_offset < (low or 0) or (high is not None and message.queue_offset >= high)
    is_late = selection.until_ms is not None and record.stored_at_ms >= selection.until_ms
    if not record.is_queued:
        return "not queued"
    if selection.topics and message.topic not in selection.topics:
        return "topic"
    if not selection.topics and message.topic.startswith("%RETRY%"):
        return "retry topic"
    if selection.queue_ids is not None and message.queue_id not in selection.queue_ids:
        return "queue"
    if is_late and (record.is_batch or not is_outside):
        return "time"
    if is_outside:
        return "offset"
    if selection.tags and message.tag not in selection.tags:
        return "tag"
    return "key" if selection.keys and message.key not in selection.keys else None


def expected_rows(records: list[Written], selection: Selection) -> list[Message]:
    """Return the messages that are rows."""
    return [one for each in records for one in each.messages if reason_of(each, one, selection) is None]


def expected_queue(records: list[Written], key: tuple[str, int], selection: Selection) -> Row:
    """Return what a report tells of one queue."""
    mine = [each for each in records if each.messages[0][:2] == key]
    reasons = [reason_of(each, one, selection) for each in mine for one in each.messages]
    rows = [one.queue_offset for one in expected_rows(mine, selection)]
    met = [one.queue_offset for each in mine if each.is_queued for one in each.messages]
    places = sorted(set(met))
    breaks = [at for at in range(1, len(places)) if places[at] != places[at - 1] + 1]
    runs = [places[low:high] for low, high in itertools.pairwise([0, *breaks, len(places)])] if places else []
    return {
        "topic": key[0],
        "queueId": key[1],
        "messages": len(reasons),
        "rows": len(rows),
        "leftOut": {name: reasons.count(name) for name in reasons if name is not None},
        "firstOffset": min(met, default=None),
        "lastOffset": max(met, default=None),
        "missingOffsets": max(met) + 1 - min(met) - len(places) if met else 0,
        "repeatedOffsets": len(met) - len(places),
        "recordBytes": sum(each.size_bytes for each in mine),
        "crcFailures": 0,
        "splits": 1,
        "firstStoredMs": min(each.stored_at_ms for each in mine),
        "lastStoredMs": max(each.stored_at_ms for each in mine),
        "firstRowOffset": min(rows, default=None),
        "lastRowOffset": max(rows, default=None),
        "rowOffsetSum": str(sum(rows)),
        "ranges": [(run[0], run[-1] + 1) for run in runs],
        "expected": [],
    }


def read(log: LogBuilder, options: ReadOptions, **plan: Any) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows, and what the report says of the store."""
    reading = LogReader(plan_stores([str(log.root)], PlanOptions(**plan)), options)
    rows = [row for batch in reading for row in batch.to_pylist()]
    (counters,) = reading.report.stores
    return rows, store_to_json(counters)


def told(rows: list[Row]) -> list[Message]:
    """Return rows as messages."""
    return [
        Message(
            row["topic"], row["queueId"], row["queueOffset"], row["tags"], next(iter(row["keys"]), None), row["body"]
        )
        for row in rows
    ]


SELECTIONS = (
    Selection(),
    Selection(frozenset(TOPICS)),
    Selection(frozenset({"Orders"})),
    Selection(tags=frozenset({"a"})),
    Selection(keys=frozenset({"k"})),
    Selection(frozenset({"Orders", "Rare"}), frozenset({"a", "b"}), frozenset({"l"})),
    Selection(queue_ids=frozenset({1, 70_000, -1})),
    Selection(from_offset=3, until_offset=7, until_ms=FIRST_MS + 500),
    Selection(topics=frozenset({"Unknown"})),
)


@pytest.mark.parametrize(
    ("queue_ids", "block_records"),
    [(QUEUE_IDS, 16_384), (QUEUE_IDS[:3], 16_384), (QUEUE_IDS[:4], 7), (QUEUE_IDS[:1], 1_000)],
    ids=["any queues", "few queues", "small blocks", "one queue"],
)
def test_rows_and_counts_are_those_of_a_plain_walk(
    tmp_path: pathlib.Path, queue_ids: tuple[int, ...], block_records: int
) -> None:
    """Whatever was written and is wanted, in blocks of any size: rows, reasons, offsets, bytes and times of queues."""
    log = LogBuilder(tmp_path / "store", 1 << 16)
    records = write_any(log, random.Random(f"{len(queue_ids)} {block_records}"), queue_ids, 90)
    for selection in SELECTIONS:
        rows, counted = read(log, ReadOptions(selection, NAMES, ScanLimits(block_records=block_records)))
        expected = expected_rows(records, selection)
        assert told(rows) == expected
        keys = sorted({each.messages[0][:2] for each in records})
        assert counted["queues"] == [expected_queue(records, key, selection) for key in keys]
        assert (counted["records"], counted["checkedBodies"]) == (90, 90)
        assert counted["deliveredRows"] == counted["rows"] == len(expected)
        assert counted["messages"] == counted["rows"] + sum(counted["leftOut"].values())


def test_queues_with_large_numbers_are_counted_apart(log: LogBuilder) -> None:
    """However far they are from each other."""
    for queue_id in (0, 65_536, 65_535, 1, 65_537):
        log.add(queue_id=queue_id)
    log.save()
    _, counted = read(log, ReadOptions())
    assert [(queue["queueId"], queue["rows"]) for queue in counted["queues"]] == [
        (queue_id, 1) for queue_id in (0, 1, 65_535, 65_536, 65_537)
    ]


def test_blocks_without_what_is_counted_give_no_batch(log: LogBuilder) -> None:
    """A batch has rows, unless only its messages were unwanted; a reading without counters gives the same."""
    log.add(properties={"TAGS": "a"})
    log.add(encode_batch([BatchPart(0, b"x", b"")] * 2), topic="Batches", sys_flag=0xC0)
    log.save()
    for selection, sizes in (
        (Selection(), [3]),
        (Selection(frozenset({"Other"})), []),
        (Selection(frozenset({"Topic"}), frozenset({"a"})), [1]),
        (Selection(frozenset({"Batches"}), frozenset({"a"})), [0]),
    ):
        (split,) = plan_stores([str(log.root)])
        for counters in (StoreCounters(split.store), None):
            found = SplitReader(ReadOptions(selection), counters).read(split)
            assert [batch.num_rows for batch in found] == sizes


def test_bodies_in_pieces_keep_their_rows(log: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where inflated bodies fill several batches, each row keeps its record's topic, and only wanted ones are rows."""
    pieces = partial(inflate_in_pieces, max_bytes=1_000)
    monkeypatch.setattr("rocketlet.export.write.log_reader.inflate_in_pieces", pieces)
    for number in range(20):
        body = deflate(b"%03d" % number * 150)
        log.add(body, sys_flag=0x301, topic=f"T{number % 3}", properties={"TAGS": "ab"[number // 10]})
    log.save()
    selection = Selection(frozenset({"T0", "T2"}), frozenset({"a"}))
    rows, counted = read(log, ReadOptions(selection, NAMES))
    expected = [number for number in range(10) if number % 3 != 1]
    assert [(row["topic"], row["body"]) for row in rows] == [(f"T{n % 3}", b"%03d" % n * 150) for n in expected]
    assert [queue["rowOffsetSum"] for queue in counted["queues"]] == [str(0 + 1 + 2 + 3), "0", str(0 + 1 + 2)]
    assert counted["deliveredRows"] == 7
    assert not counted["unreadableBodies"]


def test_unreadable_bodies_are_counted_where_they_are_wanted(log: LogBuilder) -> None:
    """Of wanted records; a batch that is none and a body that does not inflate each count once, though both are so."""
    log.add(b"no zlib", sys_flag=0x301)
    log.add(b"no batch", sys_flag=0xC0)
    log.add(b"neither", sys_flag=0x3C1)
    log.add(b"elsewhere", sys_flag=0x3C1, topic="Other")
    log.add(encode_batch([BatchPart(0, b"x", b"")]), sys_flag=0xC0)
    log.save()
    topics = Selection(frozenset({"Topic"}))
    for block_records in (1, 10):
        options = ReadOptions(topics, limits=ScanLimits(block_records=block_records))
        assert read(log, options)[1]["unreadableBodies"] == 3
    assert read(log, ReadOptions(topics, pick_columns(["topic"])))[1]["unreadableBodies"] == 2
    (split,) = plan_stores([str(log.root)])
    assert [batch.num_rows for batch in SplitReader(ReadOptions(topics)).read(split)] == [4]


def read_stores(logs: list[LogBuilder], **damages: Any) -> tuple[LogReader, list[int], list[int]]:
    """Read stores, and return the reading, the log offsets of the rows, and the bytes that were told."""
    told_bytes: list[int] = []
    splits = plan_stores([str(log.root) for log in logs])
    reading = LogReader(splits, ReadOptions(), told_bytes.append, **damages)
    return reading, [at for batch in reading for at in batch.column("logOffset").to_pylist()], told_bytes


def test_bytes_are_told_block_by_block(log: LogBuilder) -> None:
    """As far as a split goes, which need not be where a record ends."""
    for _ in range(10):
        log.add()
    log.save()
    (whole,) = plan_stores([str(log.root)])
    assert log.offsets == list(range(0, 1_000, 100))
    told_bytes: list[int] = []
    splits = [replace(whole, stop=450), replace(whole, start=450)]
    reading = LogReader(splits, ReadOptions(limits=ScanLimits(block_records=3)), told_bytes.append)
    assert sum(batch.num_rows for batch in reading) == 10
    assert [size for size in told_bytes if size] == [300, 150, 350, 200]
    counters = reading.report.stores[0]
    assert counters.log_bytes == reading.size_bytes == 1_000
    assert counters.splits == [(whole.path, 0, 450, 0, 500), (whole.path, 450, 1_000, 500, 1_000)]


def test_blanks_of_files_are_counted(filled: LogBuilder) -> None:
    """Each file but the last ends in one."""
    _, counted = read(filled, ReadOptions())
    assert counted["blanks"] == len(filled.files()) - 1 > 1
    assert counted["logBytes"] == filled.end
    assert counted["crcFailures"] == 0


def test_seconds_of_splits_add_up(filled: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """From where a split is begun to where it has been read."""
    splits = plan_stores([str(filled.root)])[:2]
    with monkeypatch.context() as patched:
        patched.setattr(time, "perf_counter", iter([10.0, 13.0, 20.0, 24.0]).__next__)
        reading = LogReader(splits)
        for _ in reading:
            pass
    assert reading.report.stores[0].seconds == 7.0


def spoil_body(log: LogBuilder, number: int) -> None:
    """Change a byte of a record's body."""
    path = log.files()[0]
    path.write_bytes(path.read_bytes().replace(b"body %d" % number, b"Body %d" % number, 1))


@pytest.fixture
def two_stores(tmp_path: pathlib.Path) -> list[LogBuilder]:
    """Return a store whose fifth body is not what was stored, and a sound one."""
    logs = [LogBuilder(tmp_path / name) for name in ("one", "two")]
    for log in logs:
        for number in range(9):
            log.add(b"body %d" % number, topic="Topic" if number % 2 else "Other", queue_id=number % 3)
        log.save()
    spoil_body(logs[0], 4)
    return logs


def test_damage_ends_the_reading_of_its_store(two_stores: list[LogBuilder]) -> None:
    """The rows before it are handed out, and the next store is read; nothing is told of bytes behind it."""
    first, second = two_stores
    reading, offsets, told_bytes = read_stores(
        two_stores,
        damages={},
        ends={str(log.root): LogStop(str(log.files()[0]), log.end, "zeros", None) for log in two_stores},
    )
    assert offsets == first.offsets[:4] + second.offsets
    damaged, sound = reading.report.stores
    assert damaged.damage is not None
    assert damaged.damage.position == first.offsets[4]
    assert (damaged.crc_failures, damaged.log_bytes, damaged.end, damaged.splits) == (1, first.offsets[4], None, [])
    assert (sound.crc_failures, sound.log_bytes, sound.damage) == (0, second.end, None)
    assert sound.end is not None
    assert sum(told_bytes) == first.offsets[4] + second.end


def test_damage_is_raised_where_nobody_notes_it(two_stores: list[LogBuilder]) -> None:
    """With what was counted before it in the report."""
    reading = LogReader(plan_stores([str(log.root) for log in two_stores]))
    sizes: list[int] = []
    with pytest.raises(StoreDamagedError, match="at position"):
        sizes.extend(batch.num_rows for batch in reading)
    (counters,) = reading.report.stores
    assert (sum(sizes), counters.records, counters.crc_failures) == (4, 4, 1)
    assert counters.damage is None


def test_damage_that_the_plan_met_is_told(two_stores: list[LogBuilder]) -> None:
    """Of stores that are not read at all, too; damage that the reading met stands before it."""
    first, second = (str(log.root) for log in two_stores)
    planned = StoreDamagedError("planned", path="x", position=7)
    damages = dict.fromkeys([first, second, "elsewhere"], planned)
    reading, offsets, _ = read_stores(two_stores, damages=damages, ends={second: LogStop("x", 7, "zeros", None)})
    assert len(offsets) == 4 + 9
    found = {counters.store: counters.damage for counters in reading.report.stores}
    assert found[first] is not planned
    assert found[second] is found["elsewhere"] is planned
    assert [counters.end for counters in reading.report.stores] == [None] * 3


def test_skipped_damage_is_counted_with_its_queue(two_stores: list[LogBuilder]) -> None:
    """A reading that skips it goes on behind it."""
    first = two_stores[0]
    options = ReadOptions(skips_damage=True)
    rows, counted = read(first, options)
    assert [row["logOffset"] for row in rows] == [at for at in first.offsets if at != first.offsets[4]]
    size = first.offsets[5] - first.offsets[4]
    assert [(each["position"], each["bytes"]) for each in counted["skipped"]] == [(first.offsets[4], size)]
    assert counted["crcFailures"] == 1
    assert {(queue["topic"], queue["queueId"]): queue["crcFailures"] for queue in counted["queues"]} == {
        (topic, number): int((topic, number) == ("Other", 1)) for topic in ("Topic", "Other") for number in range(3)
    }
    splits = plan_stores([str(first.root)])
    assert sum(batch.num_rows for batch in SplitReader(options).read(splits[0])) == 8


def test_unchecked_bodies_are_not_counted_as_checked(two_stores: list[LogBuilder]) -> None:
    """Without a look at checksums, a spoilt body is a row, and the report says that none was looked at."""
    options = ReadOptions(limits=ScanLimits(checks_crc=False))
    reading = LogReader(plan_stores([str(two_stores[0].root)]), options)
    assert sum(batch.num_rows for batch in reading) == 9
    assert reading.report.stores[0].checked_bodies == 0
    assert not reading.report.checks_crc


def test_file_that_is_gone_is_named(log: LogBuilder) -> None:
    """When the split is read, not before."""
    log.add()
    log.save()
    (split,) = plan_stores([str(log.root)])
    log.files()[0].unlink()
    found = SplitReader().read(split)
    with pytest.raises(StoreError, match=log.root.name):
        next(found)


def test_count_has_the_reasons_of_a_reading(two_stores: list[LogBuilder]) -> None:
    """A count of stores reads no column that is not needed, and tells what a reading tells."""
    selection = Selection(frozenset({"Topic"}), keys=frozenset({"k"}))
    report = count_stores([str(two_stores[1].root)], selection)
    _, counted = read(two_stores[1], ReadOptions(selection))
    assert {**store_to_json(report.stores[0]), "seconds": 0} == {**counted, "seconds": 0}
    assert counted["leftOut"] == {"topic": 5, "key": 4}
    with pytest.raises(StoreDamagedError):
        count_stores([str(two_stores[0].root)], selection)
