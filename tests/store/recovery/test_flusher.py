"""The flusher: what a request brings to the disk, and what a failed flush means."""

import pathlib
import sys
import threading
from collections.abc import Callable

import pytest
from stores import LimitedFiles, StoreDirectory, assert_recovered, new_record, read_all, sample
from syncs import LOG, NAMES, QUEUE, CrowdedFiles, RecordedSyncs, checkpoint, flush, flush_what_is_due, write

from rocketlet.common.errors import StoreFullError, StoreNotWritableError
from rocketlet.store.files.file_sync import SIDE_BY_SIDE_FROM
from rocketlet.store.index.key_index import INDEX_BATCH_RECORDS

Copy = Callable[..., StoreDirectory]


def test_sync_flush_shows_nothing_before_it_is_on_disk(tmp_path: pathlib.Path) -> None:
    """A committed message is read, found by key, by its place and by time only when it is flushed."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=True)
    arrived: list[int] = []
    with directory.open() as store:
        store.subscribe(lambda records: arrived.extend(record.queue_offset for record in records))
        for number in range(2):
            place = store.append(sample(0))
            store.commit()
            assert (store.confirm_offset, store.max_offset("T", 0)) == (place.log_offset, number)
            assert store.record_at(place.log_offset) is None
            assert len(store.query("T", "k0", 64, 0, 1 << 62).log_offsets) == number
            store.flush()
            assert arrived == list(range(number + 1))
            assert [offset for offset, _ in read_all(store)["T", 0]] == arrived
            assert store.record_at(place.log_offset) is not None
            assert len(store.query("T", "k0", 64, 0, 1 << 62).log_offsets) == number + 1


def test_sync_flush_shows_exactly_what_is_on_disk(tmp_path: pathlib.Path) -> None:
    """Of two commits the flushed one is shown, also after a queue had no room; the other follows with its flush."""
    directory, disk = StoreDirectory(tmp_path / "store", is_sync_flush=True), LimitedFiles()
    with directory.open(disk) as store:
        arrived: list[int] = []
        store.subscribe(lambda records: arrived.extend(record.queue_offset for record in records))
        store.append(new_record())
        store.commit()
        assert flush(store) is None
        store.append(new_record(body=b"longer" * 50))
        store.commit()
        disk.room = 0
        store.advance()
        assert (arrived, store.max_offset("T", 0)) == ([], 0)
        disk.room = None
        store.tick()
        assert (arrived, store.max_offset("T", 0)) == ([0], 1)
        disk.room = 0
        store.flush()
        assert arrived == [0]
        disk.room = None
        store.tick()
        assert (arrived, store.max_offset("T", 0)) == ([0, 1], 2)


def test_sync_flush_is_stopped_cleanly_with_messages_on_their_way(tmp_path: pathlib.Path) -> None:
    """Closing flushes and dispatches what was committed; ``abort`` goes and the next start finds it."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=True)
    with directory.open() as store:
        write(store, "T", "U")
    assert not directory.abort.exists()
    with directory.open() as store:
        assert sorted(read_all(store)) == [("T", 0), ("U", 0)]


def test_failed_flush_under_sync_flush_publishes_nothing(tmp_path: pathlib.Path) -> None:
    """The message whose flush failed is never readable while the store is open; what was before it is."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=True)
    disk = LimitedFiles()
    with directory.open(disk) as store:
        write(store, "T")
        store.flush()
        write(store, "T")
        disk.fails_sync = True
        with pytest.raises(StoreNotWritableError, match="a flush failed"):
            store.flush()
        disk.fails_sync = False
        store.advance()
        store.tick()
        assert read_all(store) == {("T", 0): [(0, b"body")]}
        with pytest.raises(StoreNotWritableError, match="a flush failed"):
            store.append(new_record())
    assert directory.abort.exists()


def test_stopping_flushes_many_new_queues(directory: StoreDirectory) -> None:
    """More queues than are flushed one after the other: each file and each name is on disk before ``abort`` goes."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    topics = [f"T{number}" for number in range(2 * SIDE_BY_SIDE_FROM)]
    write(store, *topics)
    disk.synced.clear()
    directory.close_all()
    expected = {f"consumequeue/{topic}/0/{0:020d}" for topic in topics} | {
        f"consumequeue/{topic}/{rest}" for topic in topics for rest in ("", "0/")
    }
    assert expected <= set(disk.synced)
    assert len(disk.synced) == len(set(disk.synced)) + 1  # the root, once more without ``abort``
    assert (disk.synced[-2:], directory.abort.exists()) == (["checkpoint", "/"], False)


def test_failing_disk_is_noticed_among_many_queues(directory: StoreDirectory) -> None:
    """One of many flushes side by side fails: the store is not closed cleanly."""
    disk = LimitedFiles()
    store = directory.open(disk)
    write(store, *(f"T{number}" for number in range(2 * SIDE_BY_SIDE_FROM)))
    assert flush(store) is None
    disk.fails_sync = True
    directory.close_all()
    assert directory.abort.exists()


def test_removed_topic_leaves_the_disk(directory: StoreDirectory) -> None:
    """The directory that lost the topic's name is flushed with the next."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    write(store, "T", "U")
    store.flush()
    store.delete_topic("U")
    directory.now_ms += 60_000
    disk.synced.clear()
    store.flush()
    assert "consumequeue/" in disk.synced


def test_killed_process_leaves_nothing_to_memory(directory: StoreDirectory, copy_of: Copy) -> None:
    """After a kill, log, queues and their names are flushed before the checkpoint says that they are."""
    store = directory.open()
    write(store, "T")
    twin = copy_of()
    disk = RecordedSyncs()
    opened = twin.open(disk)
    assert disk.synced[:2] == [LOG, "commitlog/"]
    assert checkpoint(twin).queues_at_ms < directory.now_ms
    disk.synced.clear()
    opened.flush()
    assert {QUEUE, *NAMES} <= set(disk.synced)


def test_queue_that_a_start_wrote_anew_is_on_disk_before_abort(directory: StoreDirectory) -> None:
    """The checkpoint speaks for queue files that were there; after a power loss, the next start must find those."""
    with directory.open() as store:
        write(store, "T", count=3)
    directory.queue_file().unlink()
    files = RecordedSyncs()
    directory.open(files)
    assert files.synced.index(QUEUE) < files.synced.index("abort")
    assert files.synced.index("consumequeue/T/0/") < files.synced.index("abort")


@pytest.mark.parametrize("trouble", [None, "fails_sync", "is_crowded"])
def test_full_files_are_closed_once_whatever_their_flush_meets(directory: StoreDirectory, trouble: str | None) -> None:
    """A flush that fails, or is put off, closes the files that nobody writes to as well; only the last stays open."""
    disk = CrowdedFiles()
    store = directory.open(disk)
    write(store, "T", count=60)
    if trouble is not None:
        setattr(disk, trouble, True)
    flush(store)
    disk.is_crowded = disk.fails_sync = False
    if store.flush_failure is None:
        write(store, "T", count=60)
        assert flush(store) is None
    last = store.log_max_offset - store.log_max_offset % 4096
    assert last >= 4096
    assert [path for path in disk.opened.values() if "commitlog" in path] == [f"{directory.root}/commitlog/{last:020d}"]


@pytest.mark.parametrize("keeps_order", [True, False])
def test_full_files_are_flushed_and_closed(directory: StoreDirectory, keeps_order: bool) -> None:
    """Every file that was written since the last flush is flushed, full ones too; none stays open."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    disk.synced.clear()
    for number in range(60):
        store.append(sample(number))
        if keeps_order:
            store.commit()
    store.commit()
    assert flush(store) is None
    names = [f"commitlog/{base:020d}" for base in range(0, store.log_max_offset, 4096)]
    assert disk.synced[: len(names)] == names
    before = read_all(store)
    directory.close_all()
    assert read_all(directory.open()) == before


def test_many_requests_are_all_answered(directory: StoreDirectory) -> None:
    """Requests that wait together are served together; each is answered once."""
    store = directory.open()
    answered: list[int] = []
    everything = threading.Event()

    def answer(number: int) -> None:
        answered.append(number)
        if len(answered) == 50:
            everything.set()

    for number in range(50):
        store.append(sample(number))
        store.commit()
        store.request_flush(lambda _, number=number: answer(number))
    assert everything.wait(30)
    assert sorted(answered) == list(range(50))
    assert store.flushed_offset == store.log_max_offset


def test_closed_store_leaves_no_thread(directory: StoreDirectory) -> None:
    """Whatever was flushed: the threads end with the store."""
    before = set(threading.enumerate())
    with directory.open() as store:
        write(store, "T")
        assert flush(store) is None
        assert "rocketlet-log-flusher" in {thread.name for thread in threading.enumerate()}
    assert set(threading.enumerate()) <= before


def test_failed_flush_makes_the_store_unwritable(directory: StoreDirectory) -> None:
    """Every waiter gets the error, also later ones; appends are refused, reads go on, ``abort`` stays."""
    disk = LimitedFiles()
    store = directory.open(disk)
    write(store, "T")
    disk.fails_sync = True
    assert isinstance(flush(store), StoreNotWritableError)
    disk.fails_sync = False
    assert isinstance(flush(store), StoreNotWritableError)
    assert store.flushed_offset == 0
    with pytest.raises(StoreNotWritableError, match="a flush failed"):
        store.append(new_record())
    assert read_all(store) == {("T", 0): [(0, b"body")]}
    assert_recovered(directory)


def test_removed_queue_does_not_fail_the_flush(directory: StoreDirectory) -> None:
    """A topic may be deleted between the request and the flush of its files."""
    store = directory.open()
    store.append(new_record())
    store.commit()
    store.append(new_record("Gone"))
    store.commit()
    store.delete_topic("Gone")
    for path in (directory.root / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    directory.now_ms += 1000
    assert flush(store) is None
    assert store.refusal is None


def test_flush_without_descriptors_is_made_up_for(directory: StoreDirectory) -> None:
    """The log is flushed, queues and checkpoint are by the next request, and the store stays writable."""
    files = CrowdedFiles()
    store = directory.open(files)
    write(store, "T")
    assert flush(store) is None  # the log's file has its name on disk now
    write(store, "T")
    files.synced.clear()
    files.is_crowded = True
    directory.now_ms += 60_000
    with pytest.raises(StoreNotWritableError, match="no descriptor was free"):
        store.flush()
    assert (files.synced, store.flushed_offset) == ([LOG], store.log_max_offset)
    files.is_crowded = False
    store.flush()
    assert {QUEUE, *NAMES} <= set(files.synced)
    assert checkpoint(directory).queues_at_ms > 0
    assert store.refusal is None


def test_log_whose_name_is_not_on_disk_does_not_count_as_flushed(directory: StoreDirectory) -> None:
    """Without a descriptor for its directory a new file may vanish: the offset waits for the next request."""
    files = CrowdedFiles()
    store = directory.open(files)
    write(store, "T")
    files.is_crowded = True
    assert flush(store) is None
    assert store.flushed_offset == 0
    files.is_crowded = False
    flush_what_is_due(store)


def test_stop_without_descriptors_keeps_abort(directory: StoreDirectory) -> None:
    """Queues that could not be flushed are made good by the next start."""
    files = CrowdedFiles()
    store = directory.open(files)
    write(store, "T")
    files.is_crowded = True
    assert_recovered(directory)


def test_send_without_descriptors_works_later(directory: StoreDirectory) -> None:
    """A file that cannot be opened for want of descriptors refuses messages only as long as that lasts."""
    files = CrowdedFiles()
    store = directory.open(files)
    files.is_crowded = True
    store.append(new_record(body=b"refused"))
    with pytest.raises(StoreFullError, match="Too many open files"):
        store.commit()
    files.is_crowded = False
    store.append(new_record(body=b"taken"))
    store.commit()
    files.is_crowded = True
    store.append(new_record("Other", body=b"kept"))
    store.commit()
    assert isinstance(store.refusal, StoreFullError)
    files.is_crowded = False
    store.append(new_record())
    store.commit()
    assert read_all(store) == {("T", 0): [(0, b"taken"), (1, b"body")], ("Other", 0): [(0, b"kept")]}


def test_index_tools_that_cannot_be_loaded_stop_no_commit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numpy cannot be loaded for want of descriptors: committed messages are readable, then the store waits for it."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=1 << 20, index_entries=10_000)
    store = directory.open()
    with monkeypatch.context() as patched:
        patched.setattr("rocketlet.store.index.key_index._MOST_WAITING", INDEX_BATCH_RECORDS)
        patched.delattr("rocketlet.store.index.index_build")
        patched.setitem(sys.modules, "rocketlet.store.index.index_build", None)
        with pytest.raises(OSError, match="cannot load what builds the index"):
            store.prepare_index()
        for number in range(INDEX_BATCH_RECORDS):
            store.append(sample(number))
        store.commit()
        assert sum(map(len, read_all(store).values())) == INDEX_BATCH_RECORDS
        with pytest.raises(StoreFullError, match="cannot load what builds the index"):
            store.append(new_record())
    store.append(new_record(KEYS="later"))
    store.commit()
    for key in ("k0", f"k{INDEX_BATCH_RECORDS - 1}", "later"):
        assert len(store.query("T", key, 64, 0, 1 << 62).log_offsets) == 1
    directory.close_all()
    assert not directory.abort.exists()


def test_many_queues_are_flushed_without_more_threads(
    directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has no thread left, files are flushed one after the other, and the store stays writable."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    topics = [f"T{number}" for number in range(2 * SIDE_BY_SIDE_FROM)]
    write(store, *topics)
    directory.now_ms += 60_000
    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", _refuse_to_start)
        store.flush()
    assert {f"consumequeue/{topic}/0/{0:020d}" for topic in topics} <= set(disk.synced)
    assert store.refusal is None


def _refuse_to_start(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
