"""What a read returns: status, next offset, slices, limits, filters."""

import random
import weakref

import pytest
from stores import StoreDirectory, new_record, sample

from rocketlet.common.record import iter_records
from rocketlet.store.commitlog.commit_log import CommitLog
from rocketlet.store.consumequeue.consume_queue import ConsumeQueue, QueueSpace
from rocketlet.store.consumequeue.queue_reader import QueueReader, ReadLimits, ReadResult, ReadStatus
from rocketlet.store.consumequeue.queue_table import BatchQueueTable, QueueTable
from rocketlet.store.files.files import OS_FILES, Descriptors, Files
from rocketlet.store.message_store import MessageStore


def bodies(result: ReadResult) -> list[bytes]:
    """Return the bodies of a result."""
    return [bytes(record.body) for part in result.records for record in iter_records(part)]


def filled(directory: StoreDirectory, count: int, body: bytes = b"x") -> MessageStore:
    """Return a store with one queue of messages tagged A and B in turn."""
    store = directory.open()
    for number in range(count):
        store.append(new_record(body=body, TAGS="AB"[number % 2]))
    store.commit()
    return store


def open_parts(directory: StoreDirectory, descriptors: Descriptors) -> tuple[QueueReader, CommitLog, ConsumeQueue]:
    """Return a reader over the log and queue T-0 of a closed store, whose bounds a test may move."""
    config = directory.config
    with directory.open() as store:
        end = store.log_max_offset
    log = CommitLog(OS_FILES, config.log_directories[0], config.segment_bytes)
    log.set_bounds(0, end)
    root = str(directory.root / "consumequeue")
    space = QueueSpace(OS_FILES, root, config.queue_file_bytes, descriptors)
    queues = QueueTable(space, BatchQueueTable(space))
    queue = queues.obtain("T", 0)
    names = sorted(path.name for path in directory.queue_file().parent.iterdir())
    queue.set_files(int(names[0]), int(names[-1]))
    queue.find_end()
    return QueueReader(log, queues, config), log, queue


@pytest.mark.feature("P2", "P3", "P4")
@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (0, ReadStatus.OFFSET_TOO_SMALL, 4),
        (3, ReadStatus.OFFSET_TOO_SMALL, 4),
        (4, ReadStatus.FOUND, 6),
        (6, ReadStatus.OFFSET_OVERFLOW_ONE, 6),
        (7, ReadStatus.OFFSET_OVERFLOW_BADLY, 6),
    ],
)
def test_read_outside_the_queue(
    directory: StoreDirectory, descriptors: Descriptors, offset: int, status: ReadStatus, next_offset: int
) -> None:
    """Below the minimum, at the end and beyond it, as store.md §3.10 lists."""
    directory.fill(6, queues=1)
    reader, _, queue = open_parts(directory, descriptors)
    queue.min_offset = 4
    result = reader.read("T", 0, offset, ReadLimits())
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (4, 6)
    assert (result.message_count > 0, result.size) == (status is ReadStatus.FOUND, sum(map(len, result.records)))


@pytest.mark.feature("P5")
def test_read_of_an_empty_and_a_missing_queue(directory: StoreDirectory) -> None:
    """Both point to offset 0 and are told alike, as by Java, which makes a queue when it is first asked for."""
    store = directory.open()
    store.append(new_record())
    for queue_id in range(2):
        result = store.read("T", queue_id, 5, ReadLimits())
        assert (result.status, result.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert (result.min_offset, result.max_offset) == (0, 0)


@pytest.mark.feature("P1", "P10")
def test_batch_ends_at_the_callers_count(directory: StoreDirectory) -> None:
    """Records that follow each other are one slice."""
    store = filled(directory, 9)
    result = store.read("T", 0, 2, ReadLimits(max_messages=3))
    assert (result.status, result.next_offset, result.message_count) == (ReadStatus.FOUND, 5, 3)
    assert len(result.records) == 1
    assert result.size == sum(map(len, result.records))


@pytest.mark.feature("P10")
def test_batch_ends_at_32_messages(directory: StoreDirectory) -> None:
    """A caller that asks for more gets what ``maxTransferCountOnMessageInMemory`` allows."""
    directory = StoreDirectory(directory.root, segment_bytes=1 << 20, queue_file_bytes=2000)
    with filled(directory, 50) as store:
        assert store.read("T", 0, 0, ReadLimits(max_messages=50)).message_count == 32


@pytest.mark.feature("P10")
@pytest.mark.parametrize(
    ("in_memory_percent", "most_bytes", "limits"),
    [(40, 262_144, ReadLimits()), (0, 65_536, ReadLimits()), (40, 10_000, ReadLimits(max_bytes=10_000))],
    ids=["near", "far behind", "caller's"],
)
@pytest.mark.parametrize(("more", "count"), [(0, 3), (1, 2)], ids=["full", "a byte more"])
def test_batch_ends_at_its_last_byte(
    in_memory_percent: int, most_bytes: int, limits: ReadLimits, more: int, count: int, directory: StoreDirectory
) -> None:
    """Three records that fill the bytes of a batch come together; with one byte more the third waits."""
    directory = StoreDirectory(directory.root, segment_bytes=1 << 20, in_memory_percent=in_memory_percent)
    with directory.open() as store:
        for body in (bytes(3_000), bytes(3_000)):
            store.append(new_record(body=body))
        store.commit()
        (_, size, _), _ = store.entries("T", 0, 0, 2)
        store.append(new_record(body=bytes(most_bytes - 3 * size + 3_000 + more)))
        store.commit()
        result = store.read("T", 0, 0, limits)
        assert (result.message_count, result.size <= most_bytes) == (count, True)
        assert more or result.size == most_bytes


@pytest.mark.feature("P10")
@pytest.mark.parametrize("limits", [ReadLimits(), ReadLimits(max_bytes=10)], ids=["256 KiB", "caller's"])
def test_first_message_is_given_whatever_its_size(limits: ReadLimits, directory: StoreDirectory) -> None:
    """A message above the bytes of a batch comes alone: else its consumer would never get past it."""
    directory = StoreDirectory(directory.root, segment_bytes=1 << 20)
    with filled(directory, 2, bytes(300_000)) as store:
        assert store.read("T", 0, 0, limits).message_count == 1


def test_messages_far_behind_come_in_smaller_batches(directory: StoreDirectory) -> None:
    """Beyond ``accessMessageInMemoryMaxRatio`` of the memory: 8 messages, and the result says so."""
    directory = StoreDirectory(directory.root, in_memory_percent=0, queue_file_bytes=2000)
    with filled(directory, 20) as store:
        result = store.read("T", 0, 0, ReadLimits())
        assert result.message_count == 8
        assert result.is_far_behind
        assert not store.is_in_memory("T", 0, 0)


def test_read_stops_at_the_end_of_a_queue_file(directory: StoreDirectory) -> None:
    """One queue file per call (``travelCqFileNumWhenGetMessage``)."""
    store = filled(directory, 15)
    assert store.read("T", 0, 7, ReadLimits()).next_offset == 10
    assert store.read("T", 0, 10, ReadLimits()).next_offset == 15


@pytest.mark.feature("P18")
def test_filter_sees_tag_codes_and_offsets_go_on(directory: StoreDirectory) -> None:
    """Entries that do not match are skipped before their records are touched."""
    store = filled(directory, 9)
    result = store.read("T", 0, 0, ReadLimits(max_messages=2), frozenset({ord("B")}).__contains__)
    assert (result.status, result.next_offset, result.message_count) == (ReadStatus.FOUND, 4, 2)
    assert len(result.records) == 2


def test_filter_that_matches_nothing_advances_in_steps(directory: StoreDirectory) -> None:
    """800 entries are looked at, then the caller is told where to go on."""
    directory = StoreDirectory(directory.root, segment_bytes=1 << 20, queue_file_bytes=20_000)
    with filled(directory, 900) as store:
        result = store.read("T", 0, 0, ReadLimits(), frozenset[int]().__contains__)
        assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 800)
        result = store.read("T", 0, 800, ReadLimits(), frozenset[int]().__contains__)
        assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 900)


def test_record_filter_sees_the_bytes(directory: StoreDirectory) -> None:
    """The second filter gets the place of the record in its file."""
    store = directory.open()
    for number in range(6):
        store.append(sample(number, queues=1, size=0))
    store.commit()
    result = store.read("T", 0, 0, ReadLimits(), None, lambda log, start, end: b"000004" in bytes(log[start:end]))
    assert (bodies(result), result.next_offset) == ([sample(4, size=0).body], 6)


def test_entries_of_removed_records_are_skipped(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """When the log's first file is gone, its entries are passed over; alone they make MESSAGE_WAS_REMOVING."""
    directory.fill(10, queues=1, size=1000)
    reader, log, queue = open_parts(directory, descriptors)
    log.min_offset = directory.config.segment_bytes
    gone = sum(1 for number in range(10) if (queue.entry(number) or (0,))[0] < log.min_offset)
    result = reader.read("T", 0, 0, ReadLimits())
    assert (result.status, result.next_offset, result.message_count) == (ReadStatus.FOUND, 10, 10 - gone)
    log.min_offset = log.max_offset
    result = reader.read("T", 0, 0, ReadLimits(max_messages=gone))
    assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, gone)


def test_entry_beyond_the_queue_files_is_found_null(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """A queue file that is not there sends the reader to the next one."""
    directory.fill(25, queues=1)
    reader, _, queue = open_parts(directory, descriptors)
    queue.first_base = 200
    result = reader.read("T", 0, 3, ReadLimits())
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 10)


@pytest.mark.feature("Q6")
def test_record_at_refuses_other_positions(directory: StoreDirectory) -> None:
    """Inside a record, behind the end, before the start, or with another size: none."""
    store = filled(directory, 2)
    record = store.record_at(0)
    assert record is not None
    assert store.record_at(0, len(record)) == record
    assert store.record_at(0, len(record) + 1) is None
    for log_offset in (1, -1, store.log_max_offset, 1 << 40):
        assert store.record_at(log_offset) is None


def test_only_messages_that_are_there_are_in_memory(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """Not before the first one of a queue, not behind its last, and none of a queue that does not exist."""
    directory.fill(6, queues=1)
    reader, log, queue = open_parts(directory, descriptors)
    queue.min_offset = 2
    assert [reader.is_in_memory("T", 0, offset) for offset in range(1, 7)] == [False, True, True, True, True, False]
    assert not reader.is_in_memory("T", 1, 2)
    assert [reader.stored_at("T", 0, offset) >= 0 for offset in (1, 2, 5, 6)] == [False, True, True, False]
    last = queue.entry(5)
    assert last is not None
    reader.near_bytes = log.max_offset - last[0]
    assert [reader.is_in_memory("T", 0, offset) for offset in (4, 5)] == [False, True]
    reader.near_bytes -= 1
    assert not reader.is_in_memory("T", 0, 5)


def test_slices_outlive_the_store(directory: StoreDirectory) -> None:
    """What is being sent stays readable when maps are dropped and the store is closed."""
    store = filled(directory, 2, b"still here")
    part = store.read("T", 0, 0, ReadLimits()).records[0]
    directory.close_all()
    assert [bytes(record.body) for record in iter_records(part)] == [b"still here"] * 2


class CountedMaps(Files):
    """Knows which maps are alive."""

    def __init__(self) -> None:
        self.maps: list[weakref.ref[object]] = []

    def map(self, path: str, size: int) -> memoryview:
        """Map, and remember it without keeping it."""
        view = super().map(path, size)
        self.maps.append(weakref.ref(view.obj))
        return view

    @property
    def alive(self) -> int:
        """How many maps have not ended."""
        return sum(1 for one in self.maps if one() is not None)


def test_maps_are_bounded(directory: StoreDirectory) -> None:
    """The least recently read file is dropped, and mapped again when it is read; slices keep theirs alive."""
    directory.fill(120, queues=1)
    files = CountedMaps()
    log = CommitLog(files, directory.config.log_directories[0], 4096, max_maps=2)
    log.set_bounds(0, 7 * 4096)
    kept = [log.slice(4096 * number, 8) for number in (0, 1, 0, 2, 0, 1)]
    assert (len(files.maps), files.alive) == (4, 4)
    assert kept[0] == kept[2] == kept[4]
    kept.clear()
    assert files.alive == 2


def test_time_search_of_empty_and_missing_queues(directory: StoreDirectory) -> None:
    """There is nothing to find but the minimum, and no store time."""
    store = directory.open()
    store.append(new_record())
    for queue_id in (0, 7):
        assert store.offset_by_time("T", queue_id, 5, "LOWER") == 0
        assert store.earliest_stored_at("T", queue_id) == -1
        assert store.stored_at("T", queue_id, 0) == -1


@pytest.mark.feature("Q8")
def test_time_search_over_several_files(directory: StoreDirectory) -> None:
    """LOWER finds the first message at or after a time, UPPER the last at or before it, in 30 files."""
    directory.fill(300, queues=1, size=0)
    first = directory.now_ms - 2990
    store = directory.open()
    for number in range(0, 300, 7):
        at_ms = first + 10 * number
        assert store.offset_by_time("T", 0, at_ms, "LOWER") == number
        assert store.offset_by_time("T", 0, at_ms, "UPPER") == number
        assert store.offset_by_time("T", 0, at_ms + 1, "LOWER") == number + 1
        assert store.offset_by_time("T", 0, at_ms + 1, "UPPER") == number
    assert store.offset_by_time("T", 0, first - 1, "LOWER") == 0
    assert store.offset_by_time("T", 0, first + 10_000, "LOWER") == 300


@pytest.mark.feature("Q8")
@pytest.mark.parametrize("seed", range(4))
def test_time_search_is_that_of_a_list(directory: StoreDirectory, seed: int) -> None:
    """Messages of one millisecond, gaps, a head that has expired: the first at or after, the last at or before."""
    draw = random.Random(seed)
    with directory.open() as store:
        for _ in range(draw.randrange(30, 90)):
            directory.now_ms += draw.choice([0, 0, 1, 2, 50])
            store.append(new_record(body=b"x" * 100))
            store.commit()
    if seed % 2:
        directory.segment().unlink()
    store = directory.open()
    low, high = store.min_offset("T", 0), store.max_offset("T", 0)
    times = {offset: store.stored_at("T", 0, offset) for offset in range(low, high)}
    assert (low > 0) == bool(seed % 2)
    for at_ms in range(min(times.values()) - 2, max(times.values()) + 3):
        lower = next((offset for offset, time in times.items() if time >= at_ms), high)
        upper = max((offset for offset, time in times.items() if time <= at_ms), default=low)
        found = [store.offset_by_time("T", 0, at_ms, boundary) for boundary in ("LOWER", "UPPER")]
        assert found == [lower, upper]


def test_spans_tell_where_queues_begin_and_end(directory: StoreDirectory) -> None:
    """Those that exist, below a number; they follow their queue, and are others when one has come or gone."""
    with directory.open() as store:
        for queue_id in (2, 0, 5):
            store.append(new_record(queue_id=queue_id))
        store.commit()
        spans, changes = store.spans("T", 5), store.queue_change_count
        assert [(one.queue_id, one.min_offset, one.max_offset) for one in spans] == [(0, 0, 1), (2, 0, 1)]
        store.append(new_record(queue_id=2))
        store.commit()
        assert ([one.max_offset for one in spans], store.queue_change_count) == ([1, 2], changes)
        store.append(new_record(queue_id=1))
        store.commit()
        assert store.queue_change_count != changes
        assert [one.queue_id for one in store.spans("T", 5)] == [0, 1, 2]
        assert store.spans("other", 5) == ()
