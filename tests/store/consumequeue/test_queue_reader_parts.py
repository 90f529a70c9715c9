"""Single questions to a reader: of queues that lost their records, of times, topics and files."""

import os
import pathlib
import struct

import pytest
from logbuilder import FIRST_MS, LogBuilder
from msgspec.structs import replace
from queue_reading import open_reader
from stores import StoreDirectory, new_record

from rocketlet.common.ids import encode_host
from rocketlet.common.message import BORN_HOST_V6, STORE_HOST_V6
from rocketlet.store.commitlog.commit_log import CommitLog
from rocketlet.store.consumequeue.consume_queue import QueueSpace
from rocketlet.store.consumequeue.queue_reader import QueueReader, ReadLimits, ReadStatus
from rocketlet.store.consumequeue.queue_table import BatchQueueTable, QueueTable
from rocketlet.store.files.files import OS_FILES, Descriptors

FILE_BYTES = 4096


def fill(directory: StoreDirectory, *queues: tuple[str, int], body_bytes: int = 100) -> list[int]:
    """Write a message to each queue, ten milliseconds apart; return where they lie. Topic B has batch queues."""
    starts: list[int] = []
    with directory.open() as store:
        if "B" in dict(queues):
            store.set_batch_topics(["B"])
        for topic, queue_id in queues:
            directory.now_ms += 10
            starts.append(store.append(new_record(topic, queue_id, bytes(body_bytes))).log_offset)
            store.commit()
    return starts


@pytest.mark.parametrize("topic", ["T", "B"])
def test_records_that_left_the_log_are_passed_over(
    topic: str, directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """Alone they make MESSAGE_WAS_REMOVING; among others, before or behind, they are only not there."""
    directory = StoreDirectory(directory.root, queue_file_bytes=1_000, batch_file_bytes=46 * 50)
    starts = fill(directory, *[(topic, 0)] * 45)
    reader, log, _ = open_reader(directory, descriptors, directory.config)
    first = sum(start < FILE_BYTES for start in starts)
    log.set_bounds(FILE_BYTES, log.max_offset)
    for offset, status, count in (
        (first - 3, ReadStatus.MESSAGE_WAS_REMOVING, 0),
        (first - 2, ReadStatus.FOUND, 1),
        (first, ReadStatus.FOUND, 3),
    ):
        accepts = None if topic == "T" else {0}.__contains__
        result = reader.read(topic, 0, offset, ReadLimits(max_messages=3), accepts)
        if topic == "T":
            assert (result.status, result.message_count, result.next_offset) == (status, count, offset + 3)
        else:
            assert (result.status, result.message_count) == (ReadStatus.FOUND, 3)
            assert result.next_offset == max(offset, first) + 3
    log.set_bounds(FILE_BYTES, starts[first + 2])
    result = reader.read(topic, 0, first, ReadLimits(max_messages=9))
    assert (result.status, result.message_count) == (ReadStatus.FOUND, 2)
    log.set_bounds(FILE_BYTES, starts[first])
    result = reader.read(topic, 0, first, ReadLimits(max_messages=9))
    assert (result.status, result.message_count, result.records) == (ReadStatus.MESSAGE_WAS_REMOVING, 0, [])


def test_entry_over_the_border_of_two_files_is_read_in_two_slices(
    directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """Whatever a damaged queue says, no more than a file is taken from a map."""
    fill(directory, *[("T", 0)] * 45)
    reader, _, _ = open_reader(directory, descriptors, directory.config)
    content = bytearray(directory.queue_file().read_bytes())
    struct.pack_into(">qi", content, 0, FILE_BYTES - 10, 30)
    struct.pack_into(">qi", content, 20, 2 * FILE_BYTES - 10, 10)
    struct.pack_into(">qi", content, 40, 2 * FILE_BYTES, 5)
    directory.queue_file().write_bytes(content)
    result = reader.read("T", 0, 0, ReadLimits(max_messages=3))
    log = b"".join(directory.segment(number).read_bytes() for number in range(3))
    assert [bytes(part) for part in result.records] == [
        log[start:end] for start, end in ((4_086, 4_096), (4_096, 4_116), (8_182, 8_192), (8_192, 8_197))
    ]


@pytest.mark.parametrize("topic", ["T", "B"])
def test_filter_sees_what_an_int_holds_of_a_code(
    topic: str, directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """Java compares tags codes as ints, though entries have room for longer ones."""
    fill(directory, *[(topic, 0)] * 5)
    reader, _, _ = open_reader(directory, descriptors, directory.config)
    folder = directory.root / ("consumequeue" if topic == "T" else "batchconsumequeue") / topic / "0"
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    for number, code in enumerate((7, 7 + (1 << 32), -(1 << 31), 1 << 31, 8)):
        struct.pack_into(">q", content, (20 if topic == "T" else 46) * number + 12, code)
    file.write_bytes(content)
    for codes, count in (({7}, 2), ({-(1 << 31)}, 2), ({8}, 1), ({7 + (1 << 32), 1 << 31}, 0)):
        assert reader.read(topic, 0, 0, ReadLimits(), codes.__contains__).message_count == count


def test_batch_queue_without_a_file_is_found_null(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """An offset for which there is no unit sends the reader to the end."""
    fill(directory, *[("B", 0)] * 5)
    reader, _, queues = open_reader(directory, descriptors, directory.config)
    (queue,) = queues.batches
    queue.slots.min_offset = 3
    assert reader.read("B", 0, 3, ReadLimits(max_messages=1)).status is ReadStatus.FOUND
    result = reader.read("B", 0, 2, ReadLimits())
    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (
        ReadStatus.OFFSET_FOUND_NULL,
        5,
        0,
        5,
    )


def test_queues_that_do_not_exist(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """They begin and end at 0; those of a batch topic begin at -1, as Java has it."""
    fill(directory, ("T", 0), ("B", 0))
    reader, _, _ = open_reader(directory, descriptors, directory.config)
    assert [reader.min_offset(topic, 7) for topic in ("T", "B", "X")] == [0, -1, 0]
    assert [reader.max_offset(topic, 7) for topic in ("T", "B", "X")] == [0, 0, 0]
    assert [reader.max_offset(topic, 0) for topic in ("T", "B", "X")] == [1, 1, 0]
    for topic, least in (("T", 0), ("B", -1)):
        result = reader.read(topic, 7, 0, ReadLimits())
        assert (result.status, result.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert (result.min_offset, result.max_offset, result.records) == (least, 0, [])
    assert reader.entries("T", 7, 0, 9) == reader.entries("B", 0, 0, 9) == []


def test_entries_end_with_their_file_and_their_count(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """They are those of the queue: where the records lie."""
    starts = fill(directory, *[("T", 0)] * 15)
    reader, _, _ = open_reader(directory, descriptors, directory.config)
    for offset, count, end in ((0, 3, 3), (8, 9, 10), (10, 9, 15), (15, 9, 15)):
        assert [entry[0] for entry in reader.entries("T", 0, offset, count)] == starts[offset:end]


def test_queues_and_batch_topics_are_listed(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """Queues that never had a message are not; a batch topic has as many queues as its last one says."""
    fill(directory, ("T", 0), ("B", 3), ("B", 1), ("T", 2))
    reader, _, queues = open_reader(directory, descriptors, directory.config)
    queues.obtain("T", 5)
    queues.batch_topics.add("Empty")
    assert sorted(reader.queues()) == [("B", 1), ("B", 3), ("T", 0), ("T", 2)]
    assert reader.batch_topics() == {"B": 4, "Empty": 0}


def test_topics_are_found_by_their_newest_message(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """Those nobody knows whose newest message is not too old and not before a position, with all of their queues."""
    first_ms = directory.now_ms + 10
    starts = fill(directory, ("Old", 4), ("New", 2), ("New", 0), ("Known", 0), ("Old", 1), ("B", 0))
    reader, _, queues = open_reader(directory, descriptors, directory.config)
    queues.obtain("Never", 3)

    def found(at_ms: int, met_from: int) -> dict[str, int]:
        return reader.topics_since(at_ms, met_from, {"Known"}.__contains__)

    assert found(0, 0) == {"Old": 5, "New": 3}
    assert found(first_ms + 20, 0) == {"Old": 5, "New": 3}
    assert found(first_ms + 21, 0) == {"Old": 5}
    assert found(first_ms + 40, 0) == {"Old": 5}
    assert found(first_ms + 41, 0) == {}
    assert found(0, starts[2]) == {"Old": 5, "New": 3}
    assert found(0, starts[2] + 1) == {"Old": 5}
    assert found(0, starts[4] + 1) == {}


@pytest.mark.parametrize(("step", "file"), [(-1, 0), (0, 0), (1, 1)])
def test_last_file_before_a_time_is_found(
    step: int, file: int, directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """The last one whose first record was stored before the time; the first one when there is none."""
    starts = fill(directory, *[("T", 0)] * 70)
    reader, log, _ = open_reader(directory, descriptors, directory.config)
    first_ms = reader.first_stored_at()
    assert first_ms == directory.now_ms - 690
    bases = [number for number, start in enumerate(starts) if start % FILE_BYTES == 0]
    assert len(bases) == 4
    for number, first in enumerate(bases[1:]):
        assert reader.file_start_before(
            first_ms + 10 * first + step,
        ) == FILE_BYTES * (number + file)
    assert reader.file_start_before(first_ms - 1) == reader.file_start_before(0) == 0
    assert reader.file_start_before(1 << 62) == 3 * FILE_BYTES
    log.set_bounds(FILE_BYTES, 3 * FILE_BYTES)
    assert reader.file_start_before(0) == FILE_BYTES
    assert reader.file_start_before(1 << 62) == 2 * FILE_BYTES
    log.set_bounds(FILE_BYTES, FILE_BYTES)
    assert (reader.file_start_before(1 << 62), reader.first_stored_at()) == (FILE_BYTES, -1)


@pytest.mark.parametrize("sys_flag", [0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6])
def test_store_time_is_read_behind_any_host(sys_flag: int, directory: StoreDirectory, descriptors: Descriptors) -> None:
    """The host of the sender stands before it and may be long, that of the store behind it."""
    store = directory.open()
    if sys_flag & STORE_HOST_V6:
        store.set_store_host(encode_host("fd00::2", 10911))
    record = new_record()
    if sys_flag & BORN_HOST_V6:
        record.born_host = encode_host("fd00::1", 10911)
    store.append(record)
    store.commit()
    at_ms = directory.now_ms
    directory.close_all()
    reader, _, _ = open_reader(directory, descriptors, directory.config)
    assert reader.stored_at("T", 0, 0) == reader.first_stored_at() == at_ms
    assert reader.is_in_memory("T", 0, 0)


def test_near_is_a_share_of_the_memory(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """In percent of all there is (``accessMessageInMemoryMaxRatio``)."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for percent, near_bytes in ((0, 0), (50, memory // 2), (100, memory)):
        config = replace(directory.config, in_memory_percent=percent)
        assert open_reader(directory, descriptors, config)[0].near_bytes == near_bytes


def test_store_time_of_the_least_record_is_read(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Also where the log ends behind it."""
    made = LogBuilder(tmp_path / "store")
    made.add(b"", topic="")
    made.save()
    directory = StoreDirectory(tmp_path / "store")
    log = CommitLog(OS_FILES, f"{tmp_path}/store/commitlog", FILE_BYTES)
    log.set_bounds(0, made.end)
    space = QueueSpace(OS_FILES, f"{tmp_path}/store/consumequeue", 200, descriptors)
    reader = QueueReader(log, QueueTable(space, BatchQueueTable(space)), directory.config)
    assert reader.first_stored_at() == FIRST_MS
    log.set_bounds(0, made.end - 1)
    assert reader.first_stored_at() == -1
    log.close()
