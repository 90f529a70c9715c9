"""Which offset of a queue a time leads to: blanks, records that are gone, files, and batch queues."""

import pytest
from stores import StoreDirectory

from rocketlet.store.consumequeue.batch_queue import BatchQueue, encode_unit
from rocketlet.store.consumequeue.consume_queue import ENTRY, ConsumeQueue, QueueSpace
from rocketlet.store.consumequeue.offset_by_time import batch_offset_by_time, offset_by_time
from rocketlet.store.files.files import OS_FILES, Descriptors
from rocketlet.store.files.store_config import BATCH_UNIT_BYTES

BEGIN = 6
TIMES = (10, 20, 20, 30, 40, 40, 40, 50)
BATCH_TIMES = (10, 20, 30, 40, 50, 60, 60, 70, 80)


def make_queue(directory: StoreDirectory, descriptors: Descriptors) -> ConsumeQueue:
    """Return a queue without entries that begins at offset 6, four entries a file."""
    queue = ConsumeQueue(QueueSpace(OS_FILES, str(directory.root / "consumequeue"), 80, descriptors), "T", 0)
    queue.begin_at(BEGIN)
    return queue


def stored_at(entry: tuple[int, int, int]) -> int:
    """Return the store time of a record, which is its entry's tags code."""
    return entry[2]


@pytest.mark.parametrize("is_corrected", [False, True])
@pytest.mark.parametrize("gone", range(len(TIMES) + 1))
def test_time_leads_to_the_offset_of_a_list(
    gone: int, directory: StoreDirectory, descriptors: Descriptors, *, is_corrected: bool
) -> None:
    """Blanks and entries whose records are gone count as too early, in whichever file they stand."""
    queue = make_queue(directory, descriptors)
    queue.pending += b"".join(ENTRY.pack(100 + 10 * number, 10, time) for number, time in enumerate(TIMES))
    queue.write_pending()
    log_min = 100 + 10 * gone
    queue.min_offset = 4
    if is_corrected:
        queue.correct_min_offset(log_min)
    end = BEGIN + len(TIMES)
    known = {4: -1, 5: -1} | {BEGIN + number: -1 if number < gone else time for number, time in enumerate(TIMES)}
    offsets = range(queue.min_offset, end)
    for at_ms in range(0, 61, 5):
        lower = next((one for one in offsets if known[one] >= at_ms), end)
        upper = next((one for one in reversed(offsets) if known[one] <= at_ms), queue.min_offset)
        assert offset_by_time(queue, at_ms, "LOWER", stored_at, log_min) == lower, at_ms
        assert offset_by_time(queue, at_ms, "UPPER", stored_at, log_min) == upper, at_ms


def test_time_leads_to_the_begin_of_an_empty_queue(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """Without entries there is one offset only."""
    queue = make_queue(directory, descriptors)
    for boundary in ("LOWER", "UPPER"):
        assert offset_by_time(queue, 5, boundary, stored_at, 0) == BEGIN


@pytest.mark.parametrize(
    ("at_ms", "lower", "upper"),
    [
        (0, 0, 0),
        (10, 0, 0),
        (15, 1, 0),
        (20, 1, 1),
        (25, 2, 0),
        (30, 2, 2),
        (35, 3, 3),
        (40, 3, 3),
        (45, 3, 3),
        (50, 4, 4),
        (55, 5, 0),
        (60, 5, 6),
        (65, 7, 7),
        (70, 7, 7),
        (80, 8, 8),
        (95, 8, 8),
    ],
)
def test_time_leads_to_a_batch(
    at_ms: int, lower: int, upper: int, directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """The file first; in it Java's search, which misses or passes some times that lie between two batches."""
    root = str(directory.root / "batchconsumequeue")
    queue = BatchQueue(QueueSpace(OS_FILES, root, 4 * BATCH_UNIT_BYTES, descriptors, BATCH_UNIT_BYTES), "T", 0)
    queue.pending.extend(
        b"".join(encode_unit((10 * number, 10, 0), time, 3 * number, 3) for number, time in enumerate(BATCH_TIMES))
    )
    queue.write_pending()
    found = batch_offset_by_time(queue, at_ms, "LOWER"), batch_offset_by_time(queue, at_ms, "UPPER")
    assert found == (3 * lower, 3 * upper)


def test_time_leads_to_the_least_offset_of_an_empty_batch_queue(
    directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """Java tells -1 of it."""
    root = str(directory.root / "batchconsumequeue")
    queue = BatchQueue(QueueSpace(OS_FILES, root, 4 * BATCH_UNIT_BYTES, descriptors, BATCH_UNIT_BYTES), "T", 0)
    assert batch_offset_by_time(queue, 5, "LOWER") == batch_offset_by_time(queue, 5, "UPPER") == -1
