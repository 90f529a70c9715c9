import pickle

import pytest

from rocketlet.export.plan.log_end import LogStop
from rocketlet.export.plan.selection import Reason
from rocketlet.export.report.counters import (
    QueueCounters,
    RowSums,
    SplitRead,
    StoreCounters,
    find_split_faults,
    store_from_json,
    store_to_json,
)


def split(start: int, stop: int, began: int | None, ended: int | None, path: str = "log") -> SplitRead:
    """Return a split of a file."""
    return SplitRead(path, start, stop, began, ended)


@pytest.mark.parametrize(
    ("splits", "faults"),
    [
        ([split(0, 10, 0, 12), split(10, 20, 12, 20)], []),
        ([split(10, 20, 12, 20), split(0, 10, 0, 12)], []),
        ([split(0, 10, 0, 25), split(10, 20, None, None), split(20, 30, 25, 30)], []),
        ([split(0, 10, 0, 12), split(10, 20, None, None), split(30, 40, 33, 40)], []),
        ([split(0, 10, 0, 12), split(10, 20, 12, 20, "other")], []),
        (
            [split(0, 10, 0, 12), split(10, 20, 14, 20)],
            ["log at position 10: the part before it ends at 12, it begins at 14"],
        ),
        (
            [split(0, 10, 0, 25), split(10, 20, None, None), split(20, 30, 22, 30)],
            ["log at position 20: the part before it ends at 25, it begins at 22"],
        ),
        ([split(0, 10, 0, 10), split(5, 20, 5, 20)], ["log at position 5: read twice"]),
        ([split(0, 10, 0, 10), split(0, 10, 0, 10)], ["log at position 0: read twice"]),
    ],
)
def test_seams_of_splits(splits: list[SplitRead], faults: list[str]) -> None:
    """Splits that touch must meet at one record, over splits without a record too; overlaps are told."""
    assert list(find_split_faults(splits)) == faults


def test_skipped_bytes_and_failed_checksums_are_counted() -> None:
    """Damage that was skipped is a fault with its place, and a failed checksum counts for store and queue."""
    counters = StoreCounters("store")
    counters.skip("log", 7, 100, "the magic is unknown")
    counters.fail_crc("Topic", 3)
    assert counters.faults() == ["log at position 7: 100 bytes skipped, the magic is unknown"]
    assert (counters.skipped_bytes, counters.crc_failures, counters.queues["Topic", 3].crc_failures) == (100, 1, 1)


def test_passed_over_messages_fill_gaps() -> None:
    """Messages that an index excludes count as left out, and what was expected is complete with them."""
    counters = StoreCounters("store", pushed=["tags = a"])
    counters.expect(("Topic", 0), 0, 10)
    queue = counters.queue("Topic", 0)
    queue.count(Reason.WANTED, 4)
    counters.delivered_rows = 4
    queue.offsets.add(0, 4)
    assert counters.faults() == ["Topic queue 0: queue offsets 4 to 9 were to be read and were not"]
    counters.pass_over(("Topic", 0), Reason.TAG, 4, 10)
    assert counters.faults() == []
    assert counters.left_out == {Reason.TAG: 6}


@pytest.mark.parametrize("delivered", [0, 2, 4])
def test_rows_that_were_not_delivered_break_the_proof(delivered: int) -> None:
    """Three rows and one left out were counted: as many rows must have been handed out, neither fewer nor more."""
    counters = StoreCounters("store")
    queue = counters.queue("Topic", 0)
    queue.count(Reason.WANTED, 3)
    queue.count(Reason.TAG, 1)
    queue.offsets.add(0, 4)
    counters.delivered_rows = delivered
    assert counters.faults() == [f"4 messages are not {delivered} rows and 1 left out"]
    counters.delivered_rows = 3
    assert counters.faults() == []


def test_gaps_prove_nothing_where_records_were_not_looked_at() -> None:
    """With pushed filters a gap in a queue is no fault; without them it is."""
    counters = StoreCounters("store", pushed=["queueOffset in [0, 9]"])
    for start in (0, 8):
        counters.queue("Topic", 0).offsets.add(start, start + 1)
    assert counters.faults() == []
    counters.pushed.clear()
    assert counters.faults() == ["Topic queue 0: missing queue offsets: 7, the first is 1"]


def test_counters_survive_json() -> None:
    """What a task has counted is the same when its report is read back: repeats, gaps and sums, too."""
    counters = StoreCounters("store", 1, 2, 3, 4.5, 6, 7, 8, 9, pushed=["tags = a"], splits=[split(0, 10, 0, 12)])
    counters.end = LogStop("log", 12, "zeros", "it may go on")
    counters.skip("log", 3, 5, "the magic is unknown")
    counters.fail_crc("Topic", 3)
    queue = counters.queue("Topic", 3)
    queue.count(Reason.WANTED, 5)
    queue.count(Reason.TAG, 2)
    for start, end in (0, 4), (2, 3), (6, 8):
        queue.offsets.add(start, end)
    queue.delivered.add(1, 7, 11)
    queue.count_times(20, 30)
    counters.expect(("Topic", 3), 5, 9)
    again = store_from_json(store_to_json(counters))
    assert store_to_json(again) == store_to_json(counters)
    for pushed in (["tags = a"], []):
        counters.pushed, again.pushed = pushed, pushed
        assert again.faults() == counters.faults() != []
        assert "Topic queue 3: repeated queue offsets: 1" in again.faults()


def test_damage_that_stands_first_survives_a_merge() -> None:
    """Of the damages of two parts the first in the log is kept, and with damage the log has no end."""
    counters = store_from_json(
        {**store_to_json(StoreCounters("s")), "stopped": {"file": "b", "position": 5, "reason": "b broke"}}
    )
    other = store_from_json(
        {**store_to_json(StoreCounters("s")), "stopped": {"file": "a", "position": 9, "reason": "a broke"}}
    )
    for merged in (counters, pickle.loads(pickle.dumps(other))):  # noqa: S301 # our own bytes
        merged.merge(pickle.loads(pickle.dumps(other)) if merged is counters else counters)  # noqa: S301 # as above
        assert str(merged.damage) == "a broke"


def test_sums_of_rows_are_kept_modulo_64_bits() -> None:
    """Smallest and largest offset and the sum of all are known, whatever the order of the parts."""
    sums = RowSums()
    sums.merge(RowSums())
    assert (sums.first, sums.last, sums.offset_sum) == (None, None, 0)
    sums.add(5, 7, 18)
    sums.merge(RowSums())
    assert (sums.first, sums.last, sums.offset_sum) == (5, 7, 18)
    sums.merge(RowSums(2, 3, 5))
    assert (sums.first, sums.last, sums.offset_sum) == (2, 7, 23)
    sums.add(1, 9, 2**64 - 3)
    assert (sums.first, sums.last, sums.offset_sum) == (1, 9, 20)


def test_parts_of_a_queue_add_up() -> None:
    """Counts are added, times widened, reasons and offsets joined."""
    parts: list[QueueCounters] = []
    for number in range(2):
        part = QueueCounters(record_bytes=10 + number, crc_failures=1 + number)
        part.count(Reason.WANTED, 5 + number)
        part.count(Reason.TAG, 2)
        part.count(Reason.TAG, 1)
        part.leave_out(Reason.KEY, 1)
        part.count_times(30 - 10 * number, 40 - 10 * number)
        part.offsets.add(8 * number, 8 * number + 8)
        part.expected.add(100 * number, 100 * number + 1)
        parts.append(part)
    whole, other = parts
    empty = QueueCounters()
    whole.merge(other)
    whole.merge(empty)
    assert (whole.messages, whole.rows, whole.record_bytes, whole.crc_failures, whole.splits) == (17, 9, 21, 3, 3)
    assert (whole.first_at_ms, whole.last_at_ms) == (20, 40)
    assert whole.left_out == {Reason.TAG: 6, Reason.KEY: 2}
    assert (list(whole.offsets), list(whole.expected)) == ([(0, 16)], [(0, 1), (100, 101)])
    whole.count_times(25, 50)
    assert (whole.first_at_ms, whole.last_at_ms) == (20, 50)


def test_expected_offsets_that_were_not_met_are_told_once() -> None:
    """Those between others are gaps, which are told already, unless not all was looked at."""
    queue = QueueCounters()
    queue.offsets.add(10, 12)
    queue.offsets.add(14, 16)
    for start, end in (5, 11), (12, 13), (15, 20):
        queue.expected.add(start, end)
    gap = "missing queue offsets: 2, the first is 12"
    before, between, behind = (
        f"queue offsets {first} to {last} were to be read and were not" for first, last in ((5, 9), (12, 12), (16, 19))
    )
    assert list(queue.faults()) == [gap, before, behind]
    assert list(queue.faults(saw_all=False)) == [before, between, behind]


def test_nothing_is_expected_of_an_empty_range() -> None:
    """The queue is not even known then."""
    counters = StoreCounters("store")
    counters.expect(("Topic", 0), 3, 3)
    assert counters.queues == {}


def test_reports_of_a_store_add_up() -> None:
    """Numbers are added, filters named once, and queues merged; the number of parts of a queue is counted."""
    counters = StoreCounters("store", 1, 2, 3, 4.0, 5, 6, 7, 8, pushed=["a"])
    other = StoreCounters("store", 10, 20, 30, 40.0, 50, 60, 70, 80, pushed=["a", "b"], splits=[split(0, 10, 0, 12)])
    other.end = LogStop("log", 12, "zeros")
    other.skip("log", 3, 5, "the magic is unknown")
    other.queue("Topic", 3).count(Reason.WANTED, 5)
    counters.merge(other)
    counters.merge(other)
    sums = (counters.records, counters.blanks, counters.log_bytes, counters.seconds, counters.checked_bodies)
    assert sums == (21, 42, 63, 84.0, 105)
    assert (counters.crc_failures, counters.unreadable_bodies, counters.delivered_rows) == (126, 147, 168)
    assert counters.pushed == ["a", "b"]
    assert counters.end == other.end
    assert len(counters.splits) == len(counters.skipped) == 2
    assert (counters.rows, counters.queue("Topic", 3).splits) == (10, 2)
    assert StoreCounters("store").queue("New", 0).splits == 1
