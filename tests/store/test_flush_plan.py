"""When what is flushed, and what the checkpoint says then."""

import pathlib
import struct
import threading
from collections.abc import Callable

import pytest
from stores import StoreDirectory, new_record, sample
from syncs import LOG, NAMES, QUEUE, CrowdedFiles, RecordedSyncs, checkpoint, flush, flush_what_is_due, write

from rocketlet.store.files.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.message_store import MessageStore

Copy = Callable[..., StoreDirectory]


def is_log_asked_for(store: MessageStore) -> bool:
    """Ask for what is due; tell whether the log was."""
    asked = threading.Event()
    store.flush_when_due(lambda _: asked.set())
    flushed = threading.Event()
    store.request_flush(lambda _: flushed.set())  # served after, or together with, what was asked for before
    assert flushed.wait(30)
    return asked.is_set()


def test_thorough_flush_brings_log_queues_and_checkpoint_in_this_order(directory: StoreDirectory) -> None:
    """New names as well, up to the store's root; the checkpoint comes last and says how far the store times went."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    disk.synced.clear()
    write(store, "T")
    assert store.flushed_offset == 0
    directory.now_ms += directory.config.flush_queue_thorough_ms
    store.flush()
    assert store.flushed_offset == store.log_max_offset
    assert disk.synced == [LOG, "commitlog/", QUEUE, *NAMES, "checkpoint"]
    written_at_ms = directory.now_ms - directory.config.flush_queue_thorough_ms
    assert checkpoint(directory)[:3] == (written_at_ms, written_at_ms, 0)


def test_queue_is_flushed_when_enough_was_written_or_a_file_is_full(tmp_path: pathlib.Path) -> None:
    """Each second: queues with two pages of new entries, and full files; a queue with less waits for its minute."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=1 << 20, queue_file_bytes=20_000)
    disk = RecordedSyncs()
    with directory.open(disk) as store:
        write(store, "Little", "Much", "Full")
        write(store, "Much", count=8192 // 20)
        write(store, "Full", count=1000)
        disk.synced.clear()
        directory.now_ms += 999
        store.flush()
        assert [name for name in disk.synced if name.startswith("consumequeue")] == []
        directory.now_ms += 1
        store.flush()
        flushed = {name.split("/")[1] for name in disk.synced if name.startswith("consumequeue")}
        assert flushed == {"Much", "Full"}
        directory.now_ms += 60_000
        store.flush()
        assert "consumequeue/Little/0/00000000000000000000" in disk.synced


def test_idle_store_leaves_the_disk_alone(directory: StoreDirectory) -> None:
    """When everything is flushed and said in the checkpoint, nothing is written however often one asks."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    write(store, "T")
    for _ in range(3):
        directory.now_ms += 60_000
        store.flush_when_due()
        store.flush()
    disk.synced.clear()
    for _ in range(100):
        directory.now_ms += 1_000
        store.flush_when_due()
        store.flush()
    assert disk.synced == []


def test_log_is_due_with_four_pages_or_a_full_file(tmp_path: pathlib.Path) -> None:
    """Each half second: four pages of 4 KiB or the end of a file; less only after ten seconds."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=1 << 16)
    with directory.open() as store:
        asked: list[bool] = []
        for size, wait_ms in [(12_000, 500), (20_000, 499), (100, 1), (100, 9_499), (100, 501), (30_000, 500)]:
            store.append(new_record(body=bytes(size)))
            store.commit()
            directory.now_ms += wait_ms
            asked.append(is_log_asked_for(store))
        assert asked == [False, False, False, False, False, True]


def test_little_in_the_log_is_flushed_after_ten_seconds(directory: StoreDirectory) -> None:
    """``flushCommitLogThoroughInterval`` brings to disk what the pages would leave."""
    with directory.open() as store:
        write(store, "T")
        directory.now_ms += 9_999
        store.flush_when_due()
        assert store.flushed_offset == 0
        directory.now_ms += 500
        flush_what_is_due(store)


def test_checkpoint_is_written_when_a_store_is_made(directory: StoreDirectory) -> None:
    """An empty store says that everything before now is on disk, and nothing about what comes."""
    disk = RecordedSyncs()
    directory.open(disk)
    assert checkpoint(directory)[:3] == (directory.now_ms - 1, directory.now_ms - 1, 0)
    assert disk.synced.index("checkpoint") < len(disk.synced) - 1 - disk.synced[::-1].index("/")  # its name, too


def test_checkpoint_never_covers_records_that_may_still_come(directory: StoreDirectory) -> None:
    """While the clock stands at the last record's time, the time before it is all that is sure."""
    store = directory.open()
    write(store, "T")
    written_at_ms = directory.now_ms
    for wait_ms, expected in [(0, -1), (999, -1), (1, 0), (60_000, 0)]:
        directory.now_ms += wait_ms
        store.flush()
        sure = checkpoint(directory).log_at_ms - written_at_ms
        assert sure == expected, wait_ms


def test_clock_that_is_set_back_gives_no_time_that_the_checkpoint_covers(directory: StoreDirectory) -> None:
    """A record gets a store time behind what was said to be on disk."""
    store = directory.open()
    write(store, "T")
    directory.now_ms += 5_000
    store.flush()
    said = checkpoint(directory).log_at_ms
    directory.now_ms -= 60_000
    assert store.append(new_record()).stored_at_ms > said


def test_queues_are_sure_only_when_all_of_them_are_flushed(directory: StoreDirectory) -> None:
    """Each second the log's time is raised; that of the queues once a minute, when none has anything unflushed."""
    store = directory.open()
    before = checkpoint(directory).queues_at_ms
    for _ in range(59):
        write(store, "T")
        directory.now_ms += 1_000
        store.flush()
        assert checkpoint(directory)[:2] == (directory.now_ms - 1_000, before)
    directory.now_ms += 1_000
    store.flush()
    assert checkpoint(directory)[:2] == (directory.now_ms - 2_000, directory.now_ms - 2_000)


def test_index_file_is_flushed_when_it_is_full(directory: StoreDirectory) -> None:
    """Then its end stands in the checkpoint; the file that is being filled waits."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    for number in range(12):  # four keys each, 39 to a file
        directory.now_ms += 10
        store.append(sample(number))
        store.commit()
    store.query("T", "k1", 1, 0, 1)  # builds what waits
    disk.synced.clear()
    store.flush()
    file, *names = [name for name in disk.synced if not name.startswith("commitlog")]
    assert (file[:6], names) == ("index/", ["/", "index/", "checkpoint"])
    full_end_at_ms = checkpoint(directory).index_at_ms
    assert directory.now_ms - 200 < full_end_at_ms < directory.now_ms
    disk.synced.clear()
    directory.now_ms += directory.config.flush_queue_thorough_ms
    store.flush()
    assert sum(name.startswith("index/") for name in disk.synced) == 1  # the other file; no name is new any more
    assert "index/" not in disk.synced


@pytest.mark.parametrize("is_sync", [False, True])
def test_whatever_was_written_is_due_under_sync_flush(tmp_path: pathlib.Path, *, is_sync: bool) -> None:
    """Each half second; else it waits for pages."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=is_sync)
    with directory.open() as store:
        asked: list[bool] = []
        for is_written in (False, True, True, False):
            if is_written:
                write(store, "T")
            directory.now_ms += 500
            asked.append(is_log_asked_for(store))
    assert asked == [False, is_sync, is_sync, False]


def test_flush_that_found_no_descriptor_is_due_at_once(directory: StoreDirectory) -> None:
    """It is asked for again without waiting for pages or time."""
    disk = CrowdedFiles()
    store = directory.open(disk)
    write(store, "T")
    disk.is_crowded = True
    flush(store)
    assert store.flushed_offset == 0
    disk.is_crowded = False
    flush_what_is_due(store)
    assert not is_log_asked_for(store)


def test_clean_stop_writes_the_checkpoint(directory: StoreDirectory) -> None:
    """Log and queue times are those of the last message; the index time is the end of the newest full file."""
    with directory.open() as store:
        for number in range(30):
            directory.now_ms += 10
            store.append(sample(number))
            store.commit()
    found = checkpoint(directory)
    assert (found.log_at_ms, found.queues_at_ms) == (directory.now_ms, directory.now_ms)
    assert directory.now_ms - 300 < found.index_at_ms <= directory.now_ms
    assert found.sure_at_ms == directory.now_ms - 3000


@pytest.mark.parametrize(
    ("log_at_ms", "queues_at_ms", "sure_at_ms"),
    [(50_000, 90_000, 47_000), (90_000, 50_000, 47_000), (90_000, 0, 0), (0, 90_000, 0), (2_999, 2_999, 0)],
)
def test_older_time_is_sure(log_at_ms: int, queues_at_ms: int, sure_at_ms: int) -> None:
    """A record is on disk for certain when its log and its queues are; 3 s less, as in Java."""
    assert Checkpoint(log_at_ms, queues_at_ms, 10).sure_at_ms == sure_at_ms


def test_checkpoint_file_is_javas(directory: StoreDirectory) -> None:
    """Five longs, 4096 bytes, the rest zero; missing and short files say nothing."""
    directory.root.mkdir()
    path = directory.root / "checkpoint"
    assert load_checkpoint(OS_FILES, str(path)) == Checkpoint()
    save_checkpoint(OS_FILES, str(path), Checkpoint(1, 2, 3, 4, 5))
    assert path.read_bytes() == struct.pack(">5q", 1, 2, 3, 4, 5) + bytes(4056)
    assert load_checkpoint(OS_FILES, str(path)) == Checkpoint(1, 2, 3, 4, 5)
    path.write_bytes(b"\x01\x02")
    assert load_checkpoint(OS_FILES, str(path)) == Checkpoint()


def test_clean_stop_says_that_everything_is_on_disk(directory: StoreDirectory) -> None:
    """Up to the millisecond of the last message, in the log and in the queues: no record gets it any more."""
    with directory.open() as store:
        for number in range(3):
            directory.now_ms += 10
            store.append(sample(number))
            store.commit()
        last_at_ms = directory.now_ms
        directory.now_ms += 500
    found = checkpoint(directory)
    assert (found.log_at_ms, found.queues_at_ms) == (last_at_ms, last_at_ms)
