"""Queue files: entries, rolling over, pre-blanks, bounds; and many queues with few descriptors."""

import pathlib
import shutil
import struct

import pytest
from stores import LimitedFiles, StoreDirectory, new_record, read_all, read_queue, sample

from rocketlet.store.consumequeue.consume_queue import ENTRY, ConsumeQueue, QueueSpace
from rocketlet.store.consumequeue.queue_reader import ReadLimits, ReadStatus
from rocketlet.store.files.files import OS_FILES, Descriptors

TAG_A = 2598919  # "TagA".hashCode()


def make_queue(directory: StoreDirectory, descriptors: Descriptors) -> ConsumeQueue:
    """Return a queue of ten entries a file, outside a store."""
    return ConsumeQueue(QueueSpace(OS_FILES, str(directory.root / "consumequeue"), 200, descriptors), "T", 0)


def fill(queue: ConsumeQueue, first: int, count: int) -> None:
    """Write entries whose log offset is ten times their number."""
    queue.pending += b"".join(ENTRY.pack(10 * number, 10, number) for number in range(first, first + count))
    queue.write_pending()


@pytest.mark.parametrize(("queue_offset", "first"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)])
def test_files_from_an_entry_on_are_to_be_flushed(
    directory: StoreDirectory, descriptors: Descriptors, queue_offset: int, first: int
) -> None:
    """The one that holds the entry, and those behind it."""
    space = QueueSpace(OS_FILES, str(directory.root / "consumequeue"), 200, descriptors)
    queue = ConsumeQueue(space, "T", 0)
    fill(queue, 0, 30)
    space.dirty_paths.clear()
    queue.mark_written_from(queue_offset)
    assert sorted(space.dirty_paths) == queue.paths()[first:]


def test_entry_has_twenty_bytes() -> None:
    """Log offset 8, size 4, tags code 8."""
    assert ENTRY.size == 20


@pytest.mark.feature("H9")
def test_entries_hold_offset_size_and_tags_code(directory: StoreDirectory) -> None:
    """The file is at its full size, named by its first byte, zeros behind the entries."""
    with directory.open() as store:
        placed = [store.append(new_record(TAGS="TagA")), store.append(new_record())]
        store.commit()
    data = directory.queue_file().read_bytes()
    assert list(struct.iter_unpack(">qiq", data[:40])) == [
        (placed[0].log_offset, placed[0].size, TAG_A),
        (placed[1].log_offset, placed[1].size, 0),
    ]
    assert data[40:] == bytes(160)


@pytest.mark.parametrize("batch", [1, 3, 25])
def test_queue_rolls_over(directory: StoreDirectory, batch: int) -> None:
    """The eleventh entry opens the second file, also in the middle of a commit."""
    store = directory.open()
    for number in range(25):
        store.append(sample(number, queues=1))
        if number % batch == batch - 1:
            store.commit()
    store.commit()
    assert [directory.queue_file(number=number).stat().st_size for number in range(3)] == [200, 200, 200]
    assert [record.queue_offset for record in read_queue(store, "T", 0)] == list(range(25))
    directory.close_all()
    assert [record.queue_offset for record in read_queue(directory.open(), "T", 0)] == list(range(25))


@pytest.mark.parametrize("offset", [0, 1, 10, 13, 29])
def test_queue_that_begins_later_is_filled_with_blanks(
    directory: StoreDirectory, descriptors: Descriptors, offset: int
) -> None:
    """The first file begins at a multiple of its size; what lies before the first entry is pre-blank."""
    queue = make_queue(directory, descriptors)
    queue.set_end(offset)
    fill(queue, offset, 3)
    base = offset - offset % 10
    blanks = directory.queue_file(number=base // 10).read_bytes()[: 20 * (offset - base)]
    assert blanks == struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * (offset - base)
    again = make_queue(directory, descriptors)
    again.set_files(queue.first_base, queue.last_base)
    again.find_end()
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset) == (offset, offset + 3)


@pytest.mark.parametrize(("log_min", "least"), [(0, 0), (1, 1), (10, 1), (95, 10), (240, 24), (241, 25), (9999, 25)])
def test_min_offset_is_the_first_entry_in_the_log(
    directory: StoreDirectory, descriptors: Descriptors, log_min: int, least: int
) -> None:
    """When all records are gone, the minimum is the maximum and the numbering goes on."""
    queue = make_queue(directory, descriptors)
    fill(queue, 0, 25)
    queue.correct_min_offset(log_min)
    assert (queue.min_offset, queue.max_offset) == (least, 25)


@pytest.mark.parametrize("end", [0, 1, 9, 10, 11, 20, 24, 25])
def test_cut_entries_are_zeroed(directory: StoreDirectory, descriptors: Descriptors, end: int) -> None:
    """Entries behind the cut would count as valid at the next start; later files go."""
    queue = make_queue(directory, descriptors)
    fill(queue, 0, 25)
    queue.cut(end)
    data = b"".join(path.read_bytes() for path in sorted(directory.queue_file().parent.iterdir()))
    assert [entry[2] for entry in ENTRY.iter_unpack(data) if entry[1]] == list(range(end))
    fill(queue, end, 30)
    assert [queue.entry(number) for number in (end, end + 29)] == [(10 * end, 10, end), (10 * end + 290, 10, end + 29)]


def test_end_is_found_at_every_length(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """The first invalid entry of the last file that holds any."""
    queue = make_queue(directory, descriptors)
    for count in range(1, 32):
        fill(queue, count - 1, 1)
        again = make_queue(directory, descriptors)
        again.set_files(queue.first_base, queue.last_base)
        again.find_end()
        assert again.max_offset == again.next_offset == count


@pytest.mark.parametrize("begin", [0, 13])
@pytest.mark.parametrize("end", [0, 10, 12, 13, 15, 19, 20, 24, 25])
def test_cut_sets_the_bounds(begin: int, end: int, directory: StoreDirectory, descriptors: Descriptors) -> None:
    """The file of the cut stays, whatever lies behind it goes, also what was not yet written."""
    queue = make_queue(directory, descriptors)
    queue.begin_at(begin)
    fill(queue, begin, 25 - begin)
    bases = [int(path[-20:]) // 20 for path in queue.paths()]
    queue.pending += ENTRY.pack(250, 10, 25)
    queue.cut(end)
    assert [int(path[-20:]) // 20 for path in queue.paths()] == [base for base in bases if base <= end]
    assert sorted(path.name for path in directory.queue_file().parent.iterdir()) == [
        path[-20:] for path in queue.paths()
    ]
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (min(begin, end), end, end)
    assert not queue.pending


def test_removed_queue_begins_anew(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """At 0, without files and without what was not yet written; the next flush takes its directory only."""
    space = QueueSpace(OS_FILES, str(directory.root / "consumequeue"), 200, descriptors)
    queue = ConsumeQueue(space, "T", 0)
    queue.begin_at(13)
    fill(queue, 13, 12)
    queue.pending += ENTRY.pack(250, 10, 25)
    space.new_directories.clear()
    queue.remove()
    assert (queue.min_offset, queue.max_offset, queue.next_offset, queue.paths()) == (0, 0, 0, [])
    assert not list(directory.queue_file().parent.iterdir())
    assert (space.dirty_paths.take(), space.new_directories) == ([], {queue.directory})
    fill(queue, 0, 3)
    assert queue.entry(2) == (20, 10, 2)


def test_flush_takes_what_was_written(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """The bytes of all writes to a file count together; a full file is taken however little was written."""
    space = QueueSpace(OS_FILES, str(directory.root / "consumequeue"), 200, descriptors)
    queue = ConsumeQueue(space, "T", 0)
    for number in range(3):
        fill(queue, number, 1)
    assert space.dirty_paths.take(61) == []
    assert space.dirty_paths.take(60) == queue.paths()
    fill(queue, 3, 9)
    assert space.dirty_paths.take(1 << 30) == queue.paths()[:1]
    assert space.dirty_paths.take(41) == []
    assert space.dirty_paths.take(40) == queue.paths()[1:]


@pytest.mark.parametrize("room", [0, 19, 20, 59, 60, 200, 259])
def test_entries_that_find_no_room_are_written_later(room: int, directory: StoreDirectory) -> None:
    """Those of a file are written together or not at all; nothing is left where there was no room."""
    disk = LimitedFiles()
    descriptors = Descriptors(disk, 8)
    queue = ConsumeQueue(QueueSpace(disk, str(directory.root / "consumequeue"), 200, descriptors), "T", 0)
    fill(queue, 0, 7)
    disk.room = room
    with pytest.raises(OSError, match="No space"):
        fill(queue, 7, 14)
    written = 10 if room >= 60 else 7
    assert (queue.max_offset, len(queue.pending)) == (written, 20 * (21 - written))
    data = b"".join(path.read_bytes() for path in sorted(directory.queue_file().parent.iterdir()))
    assert not any(data[20 * written :])
    disk.room = None
    queue.write_pending()
    assert [queue.entry(number) for number in range(21)] == [(10 * number, 10, number) for number in range(21)]
    descriptors.close()


@pytest.mark.parametrize("begin", [0, 13])
@pytest.mark.parametrize("end", [20, 25])
def test_read_gives_entries_of_one_file(
    begin: int, end: int, directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """It ends at the end of the file and at that of the queue; outside of the files there is nothing."""
    queue = make_queue(directory, descriptors)
    queue.begin_at(begin)
    fill(queue, begin, end - begin)
    for first in range(32):
        for count in (0, 1, 2, 10, 30):
            stop = min(first + count, end, first - first % 10 + 10)
            known = [number for number in range(first, stop) if number >= begin - begin % 10]
            found = list(ENTRY.iter_unpack(queue.read(first, count)))
            assert [entry[2] for entry in found] == [number if number >= begin else 0 for number in known]


def test_read_of_a_queue_without_entries(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """There is nothing, wherever it begins."""
    for begin in (0, 5):
        queue = make_queue(directory, descriptors)
        queue.begin_at(begin)
        assert [queue.read(first, 10) for first in range(12)] == [b""] * 12
        assert queue.entry(begin) is None


@pytest.mark.parametrize("empty_files", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 79, 80, 81, 82, 150, 199, 200, 201, 202, 280, 281, 400])
def test_end_is_found_in_long_files(
    count: int, empty_files: int, directory: StoreDirectory, descriptors: Descriptors
) -> None:
    """Files of 200 entries are not read whole; those behind the last entry, made in advance, are removed."""
    space = QueueSpace(OS_FILES, str(directory.root / "consumequeue"), 4000, descriptors)
    queue = ConsumeQueue(space, "T", 0)
    fill(queue, 0, count)
    first = -(-count // 200)
    for number in range(first, first + empty_files):
        if count:
            descriptors.create(f"{queue.directory}/{4000 * number:020d}", 4000)
    again = ConsumeQueue(space, "T", 0)
    if count:
        again.set_files(0, 4000 * (first + empty_files - 1))
    again.find_end()
    assert (again.min_offset, again.max_offset, again.next_offset) == (0, count, count)
    assert len(again.paths()) == first
    assert again.paths() == queue.paths()
    assert [path.name for path in sorted((directory.root / "consumequeue").rglob("0000*"))] == [
        path[-20:] for path in queue.paths()
    ]
    fill(again, count, 250)
    assert again.entry(count + 249) == (10 * (count + 249), 10, count + 249)


def test_many_queues_live_with_few_descriptors(directory: StoreDirectory) -> None:
    """The least recently used file is closed when the bound is reached, and opened again when needed."""
    descriptors = Descriptors(OS_FILES, 5)
    space = QueueSpace(OS_FILES, str(directory.root / "consumequeue"), 200, descriptors)
    queues = [ConsumeQueue(space, "T", number) for number in range(40)]
    for first in (0, 1, 2):
        for queue in queues:
            fill(queue, first, 1)
    assert repr(descriptors) == "<Descriptors 5 of 5>"
    assert all(queue.entry(2) == (20, 10, 2) for queue in queues)
    descriptors.close()
    assert repr(descriptors) == "<Descriptors 0 of 5>"


def test_delayed_messages_carry_their_time_to_deliver(directory: StoreDirectory) -> None:
    """In SCHEDULE_TOPIC_XXXX the code is store time plus delay; a level above the last counts as the last."""
    store = directory.open()
    for level in ("1", "3", "18", "30", "0", "x"):
        store.append(new_record("SCHEDULE_TOPIC_XXXX", DELAY=level, TAGS="TagA"))
    store.commit()
    codes = [entry[2] for entry in ENTRY.iter_unpack(directory.queue_file("SCHEDULE_TOPIC_XXXX").read_bytes())][:6]
    delays = [1_000, 10_000, 7_200_000, 7_200_000]
    assert codes == [directory.now_ms + delay for delay in delays] + [TAG_A, TAG_A]


def test_old_transaction_records_get_no_entry(directory: StoreDirectory) -> None:
    """Prepared (0x4) and rolled back (0xC) take no queue offset; committed ones (0x8) do."""
    store = directory.open()
    for sys_flag in (0x4, 0, 0xC, 0x8):
        record = new_record(body=b"%d" % sys_flag)
        record.sys_flag = sys_flag
        store.append(record)
    store.commit()
    assert [(record.queue_offset, bytes(record.body)) for record in read_queue(store, "T", 0)] == [(0, b"0"), (1, b"8")]
    result = store.read("T", 0, 0, ReadLimits())
    assert (result.status, result.next_offset) == (ReadStatus.FOUND, 2)


def test_deleted_topic_is_gone_from_disk(directory: StoreDirectory) -> None:
    """Its queues and directories go; the other topics stay."""
    store = directory.open()
    for topic in ("Gone", "Kept"):
        store.append(new_record(topic))
    store.commit()
    store.delete_topic("Gone")
    assert list(store.queues()) == [("Kept", 0)]
    assert [path.name for path in (directory.root / "consumequeue").iterdir()] == ["Kept"]
    assert store.append(new_record("Gone")).queue_offset == 0


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("is_committed", [False, True])
def test_message_on_its_way_to_a_deleted_topic_gets_no_entry(
    tmp_path: pathlib.Path, *, before: int, is_committed: bool
) -> None:
    """It is deleted with the topic; the messages of other topics behind it become readable all the same."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=True)
    with directory.open() as store:
        for _ in range(before):
            store.append(new_record("Gone"))
        store.commit()
        store.flush()
        store.append(new_record("Gone"))
        store.append(new_record("Kept"))
        if is_committed:
            store.commit()
        store.delete_topic("Gone")
        store.commit()
        store.flush()
        assert store.refusal is None
        assert read_all(store) == {("Kept", 0): [(0, b"body")]}
        assert not (directory.root / "consumequeue" / "Gone").exists()
        assert store.append(new_record("Gone")).queue_offset == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_deleted_topic_stays_deleted_after_a_clean_stop(directory: StoreDirectory, *, is_clean: bool) -> None:
    """Its records are still in the log, but topics.json does not list it; after a kill the list may be an old one."""
    config = directory.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text('{"topicConfigTable":{"Kept":{"topicName":"Kept"}}}')
    with directory.open() as store:
        for topic in ("Gone", "Kept"):
            store.append(new_record(topic))
        store.commit()
        store.delete_topic("Gone")
    if not is_clean:
        directory.abort.touch()
    shutil.rmtree(directory.root / "consumequeue" / "Kept")
    store = directory.open()
    assert sorted(store.queues()) == ([("Kept", 0)] if is_clean else [("Gone", 0), ("Kept", 0)])
