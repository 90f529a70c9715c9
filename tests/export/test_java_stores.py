import pathlib
from typing import Any

import pytest
from javastores import (
    STORES,
    JavaStores,
    Read,
    comparable,
    expected_row,
    is_inner_batch,
    load_truth,
    truth_messages,
)

from rocketlet.common.message import COMPRESSED
from rocketlet.export.plan.selection import Reason, Selection
from rocketlet.export.report.report import Report
from rocketlet.export.write.log_reader import ReadOptions, count_stores
from rocketlet.store.commitlog.record_blocks import ScanLimits

LOGS = {"plain": (413, 5), "killed": (653, 5), "delay-retry": (71, 0), "batchcrc": (19, 0)}


def told(report: Report) -> dict[str, Any]:
    """Return what a report tells, but for the time that the reading took."""
    found = report.to_json()
    return {**found, "stores": [{**store, "seconds": 0} for store in found["stores"]]}


@pytest.mark.parametrize("name", STORES)
def test_rows_equal_what_a_java_consumer_read(
    name: str, java_stores: JavaStores, vectors: pathlib.Path, read: Read
) -> None:
    """Every message that a Java consumer reads is a row, with each field the same, and there are no other rows."""
    rows, _ = read(java_stores[name])
    messages = truth_messages(load_truth(vectors, name))
    batches = {message["physicOffset"] for message in messages if is_inner_batch(message)}
    singles = [expected_row(message) for message in messages if not is_inner_batch(message)]
    assert comparable(row for row in rows if row["logOffset"] not in batches) == singles
    assert {row["logOffset"] for row in rows} == {message["physicOffset"] for message in messages}


@pytest.mark.parametrize("name", STORES)
def test_report_proves_the_reading_complete(
    name: str, java_stores: JavaStores, vectors: pathlib.Path, read: Read
) -> None:
    """Records, blanks, offsets per queue and the end of the log are what the Java broker says."""
    rows, report = read(java_stores[name])
    (counters,) = report.stores
    truth = load_truth(vectors, name)
    assert not report.faults()
    assert (counters.records, counters.blanks) == LOGS[name]
    assert (counters.rows, counters.messages) == (len(rows), len(rows))
    assert counters.log_bytes == truth["commitLogMaxOffset"]
    found = {key: (queue.offsets.first, (queue.offsets.last or 0) + 1) for key, queue in counters.queues.items()}
    assert found == {
        (topic["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"])
        for topic in truth["topics"]
        for queue in topic["queues"]
        if queue["maxOffset"]
    }


def test_inner_batches_become_one_row_per_message(java_stores: JavaStores, vectors: pathlib.Path, read: Read) -> None:
    """The two inner batches of 3 and 4 messages give 7 rows with offsets, bodies, keys and tags of their own."""
    rows, _ = read(java_stores["batchcrc"])
    messages = truth_messages(load_truth(vectors, "batchcrc"))
    batches = [message for message in messages if is_inner_batch(message)]
    assert [int(batch["properties"]["INNER_NUM"]) for batch in batches] == [3, 4]
    for number, batch in enumerate(batches):
        parts = [row for row in rows if row["logOffset"] == batch["physicOffset"]]
        base = int(batch["properties"]["INNER_BASE"])
        size = int(batch["properties"]["INNER_NUM"])
        assert [row["queueOffset"] for row in parts] == list(range(base, base + size))
        assert [row["body"] for row in parts] == [b"inner %d/%d" % (number, place) for place in range(size)]
        assert [row["keys"] for row in parts] == [[f"ib{number}{place}"] for place in range(size)]
        assert {row["tags"] for row in parts} == {"ib"}
        assert len({row["msgId"] for row in parts}) == size
        assert {row["bodyCrc"] for row in parts} == {batch["bodyCRC"]}
        assert {row["offsetMsgId"] for row in parts} == {batch["offsetMsgId"]}


def test_compressed_bodies_are_inflated(java_stores: JavaStores, read: Read) -> None:
    """The store holds all compression kinds, and sysFlag keeps saying so."""
    rows, _ = read(java_stores["plain"])
    assert {row["sysFlag"] >> 8 & 7 for row in rows if row["sysFlag"] & COMPRESSED} == {1, 2, 3}


def test_default_selection_leaves_out_what_brokers_copy(java_stores: JavaStores, read: Read) -> None:
    """System, retry and dead-letter topics are counted by reason and are no rows, unless asked for."""
    rows, report = read(java_stores["delay-retry"], options=ReadOptions())
    everything, _ = read(java_stores["delay-retry"])
    left_out = report.stores[0].left_out
    assert not report.faults()
    assert len(rows) + sum(left_out.values()) == len(everything) == 71
    assert set(left_out) == {Reason.SYSTEM_TOPIC, Reason.RETRY_TOPIC, Reason.DEAD_LETTER_TOPIC}
    assert not any(row["topic"].startswith(("%RETRY%", "%DLQ%", "rmq_sys_", "SCHEDULE_")) for row in rows)


@pytest.mark.parametrize("block_records", [1, 2, 7])
@pytest.mark.parametrize("name", STORES)
def test_block_size_does_not_change_the_rows(
    name: str, block_records: int, java_stores: JavaStores, read: Read
) -> None:
    """Blocks of few records, or of few bytes, give the same rows and the same report."""
    rows, report = read(java_stores[name])
    options = ReadOptions(Selection(includes_system=True), limits=ScanLimits(True, block_records, 1000))
    small_rows, small_report = read(java_stores[name], options=options)
    assert small_rows == rows
    assert told(small_report) == told(report)


def test_counting_reads_no_rows(java_stores: JavaStores, read: Read) -> None:
    """A count alone gives the report of a reading, store by store."""
    stores = [java_stores["plain"], java_stores["killed"]]
    _, report = read(*stores, options=ReadOptions())
    assert told(count_stores(map(str, stores), Selection())) == told(report)
    assert [pathlib.Path(counters.store).name for counters in report.stores] == ["plain", "killed"]
