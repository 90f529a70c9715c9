"""Answers to pulls as record batches."""

import pathlib
from collections.abc import Sequence
from typing import Any

import pytest
from javastores import Read
from logbuilder import LogBuilder

from rocketlet.common.compression import deflate
from rocketlet.common.errors import ConfigError, RecordError
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.export.columns.schema import pick_columns
from rocketlet.export.plan.selection import Selection
from rocketlet.export.report.counters import StoreCounters
from rocketlet.export.write.log_reader import ReadOptions
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA, PulledReader, PulledRecords, pick_live_columns
from rocketlet.store.commitlog.record_blocks import ScanLimits

BATCH = encode_batch([BatchPart(0, body, b"TAGS\x01" + body) for body in (b"a", b"b", b"c")])
HOST_V6 = bytes(15) + b"\x01" + b"\x00\x00\x2a\x9f"


def records_of(log: LogBuilder) -> list[bytes]:
    """Return the records of a log of one file, as a broker copies them."""
    data = log.save().joinpath("commitlog", f"{0:020d}").read_bytes()
    return [data[start:end] for start, end in zip(log.offsets, [*log.offsets[1:], log.end], strict=True)]


def answer(records: Sequence[bytes], first: int = 0, end: int = 1 << 40) -> PulledRecords:
    """Return an answer of a queue."""
    return PulledRecords("Topic", 0, first, end, b"".join(records))


def rows_of(
    answers: Sequence[PulledRecords], options: ReadOptions, counters: StoreCounters | None = None
) -> list[dict[str, Any]]:
    """Return what a reader makes of answers."""
    reader = PulledReader("broker-a", options, counters)
    return [row for batch in reader.read(answers) for row in batch.to_pylist()]


EVERYTHING = ReadOptions(schema=LIVE_SCHEMA)


def test_rows_are_those_of_the_log(log: LogBuilder, read: Read, tmp_path: pathlib.Path) -> None:
    """Hosts of both kinds, compressed bodies, properties, transactions: as a reading of the log sees them."""
    log.add(b"plain", properties={"TAGS": "t", "KEYS": "k1 k2", "x": "y"})
    log.add(deflate(b"small" * 99), sys_flag=0x301, properties={"UNIQ_KEY": "U"})
    log.add(b"wide", sys_flag=0x30, born_host=HOST_V6, store_host=HOST_V6)
    log.add(b"", sys_flag=0x8, reconsume_times=3)
    log.add(BATCH, sys_flag=0xC0, queue_offset=4)
    log.add(b"long topic", topic="T" * 130, queue_offset=7)
    records = records_of(log)
    expected, _ = read(log.root)
    counters = StoreCounters("broker-a")
    rows = rows_of([answer(records[:2]), answer(records[2:3]), answer(records[3:])], EVERYTHING, counters)
    assert rows == [row | {"brokerName": "broker-a"} for row in expected]
    assert (counters.records, counters.messages, counters.delivered_rows) == (6, 8, 8)
    assert not counters.faults()


def test_columns_are_picked_in_any_order() -> None:
    """The broker's name among them."""
    assert pick_live_columns(["body", "brokerName", "topic"]).names == ["body", "brokerName", "topic"]
    assert pick_live_columns(["topic"]) == pick_columns(["topic"])
    with pytest.raises(ConfigError, match="there is no column brokerNames"):
        pick_live_columns(["brokerNames"])


@pytest.mark.parametrize(
    ("first", "end", "bodies"),
    [(0, 9, b"xabcyz"), (1, 4, b"abc"), (2, 3, b"b"), (3, 5, b"cy"), (0, 1, b"x"), (4, 9, b"yz"), (6, 9, b"")],
)
def test_only_what_was_asked_for_is_given(log: LogBuilder, first: int, end: int, bodies: bytes) -> None:
    """A batch that begins before or ends behind the range is cut; the rest is counted, and without a gap."""
    log.add(b"x")
    log.add(BATCH, sys_flag=0xC0, queue_offset=1)
    log.add(b"y", queue_offset=4)
    log.add(b"z", queue_offset=5)
    counters = StoreCounters("broker-a")
    rows = rows_of([answer(records_of(log), first, end)], EVERYTHING, counters)
    assert b"".join(row["body"] for row in rows) == bodies
    assert [row["queueOffset"] for row in rows] == list(range(6))[first:end]
    assert counters.messages == len(rows)
    assert not counters.faults()


def test_records_of_other_topics_stay(log: LogBuilder) -> None:
    """A light queue holds records of other topics, whose offsets are those of other queues."""
    log.add(b"x", topic="Other", queue_offset=77)
    assert len(rows_of([PulledRecords("%LMQ%x", 0, 0, 1, b"".join(records_of(log)))], EVERYTHING)) == 1


def test_messages_are_selected_by_tags_and_keys(log: LogBuilder) -> None:
    """By the tags themselves, of which a broker knows hashes only."""
    for tag, key in (("AaAa", "1"), ("BBBB", "1"), ("AaAa", "2")):
        log.add(tag.encode(), properties={"TAGS": tag, "KEYS": key})
    selection = Selection(tags=frozenset({"AaAa"}), keys=frozenset({"1"}), includes_system=True)
    rows = rows_of([answer(records_of(log))], ReadOptions(selection, LIVE_SCHEMA))
    assert [row["queueOffset"] for row in rows] == [0]


def test_body_without_its_checksum_is_an_error(log: LogBuilder) -> None:
    """That names queue and offset; without checks it is a row."""
    log.add(b"first")
    log.add(b"second")
    first, second = records_of(log)
    broken = answer([first, second.replace(b"second", b"Second")])
    with pytest.raises(RecordError, match="queue 0 of Topic behind offset 0: a body does not have its checksum"):
        rows_of([broken], EVERYTHING)
    unchecked = ReadOptions(schema=LIVE_SCHEMA, limits=ScanLimits(checks_crc=False))
    assert [row["body"] for row in rows_of([broken], unchecked)] == [b"first", b"Second"]


@pytest.mark.parametrize("size", [1, 3, 50, 90, 100])
def test_answer_that_is_cut_off_is_an_error(log: LogBuilder, size: int) -> None:
    """At every length; the place is named."""
    log.add(b"first")
    log.add(b"second")
    first, second = records_of(log)
    with pytest.raises(RecordError, match=r"queue 0 of Topic behind offset [01]: what follows is no record"):
        rows_of([answer([first]), answer([second[:size]]), answer([second])], EVERYTHING)


def test_answer_that_is_no_record_is_an_error() -> None:
    """From its first byte on."""
    with pytest.raises(RecordError, match="queue 0 of Topic at offset 5: what follows is no record"):
        rows_of([answer([b"HTTP/1.1 200 OK" * 20], 5)], EVERYTHING)


def test_nothing_is_counted_unless_asked(log: LogBuilder) -> None:
    """A reader without counters reads all the same."""
    log.add(b"x")
    reader = PulledReader("broker-a", EVERYTHING)
    assert [batch.num_rows for batch in reader.read([answer(records_of(log))])] == [1]
