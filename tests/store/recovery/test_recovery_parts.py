"""What a start asks of the log, tells the checkpoint, and brings to the disk: each rule by itself."""

import errno
import pathlib
from collections.abc import Iterator

import pytest
from logbuilder import LogBuilder
from stores import StoreDirectory, new_record, sample
from syncs import NamedFiles, RecordedSyncs, checkpoint

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.store.commitlog.commit_log import CommitLog
from rocketlet.store.consumequeue.consume_queue import ENTRY, PRE_BLANK, ConsumeQueue, QueueSpace
from rocketlet.store.files.checkpoint import Checkpoint
from rocketlet.store.files.files import Descriptors
from rocketlet.store.files.segments import SegmentFile
from rocketlet.store.recovery.recovery import (
    LogReplay,
    LogSource,
    Recovered,
    checkpoint_after_recovery,
    mark_unsynced,
    save_if_changed,
    sync_recovered_log,
    sync_recovered_queues,
)


@pytest.mark.parametrize(
    ("last_at_ms", "log_at_ms"),
    [(500, 500), (999, 999), (1_000, 999), (1_001, 1_000), (0, 999), (1, 1)],
    ids=["before now", "just before", "now", "the clock is behind", "an empty log", "the first millisecond"],
)
@pytest.mark.parametrize(("queues_at_ms", "index_at_ms"), [(0, 0), (400, 300), (999, 1_000), (5_000, 6_000)])
def test_checkpoint_after_a_start(last_at_ms: int, log_at_ms: int, queues_at_ms: int, index_at_ms: int) -> None:
    """The log is sure up to its last record, or just before it while the clock stands there; the rest no further."""
    found = Checkpoint(7_000, queues_at_ms, index_at_ms, 44, 55)
    for are_settled, queues in [(True, log_at_ms), (False, min(queues_at_ms, log_at_ms))]:
        said = checkpoint_after_recovery(found, Recovered(8, last_at_ms, 3), 1_000, are_queues_settled=are_settled)
        assert said == Checkpoint(log_at_ms, queues, min(index_at_ms, log_at_ms), 44, 55)


def test_checkpoint_is_written_when_it_says_something_new(tmp_path: pathlib.Path) -> None:
    """Or when there is none."""
    directory = StoreDirectory(tmp_path)
    path = str(tmp_path / "checkpoint")
    for found, said, is_written in [
        (Checkpoint(), Checkpoint(), True),
        (Checkpoint(1), Checkpoint(1), False),
        (Checkpoint(1), Checkpoint(2), True),
    ]:
        disk = RecordedSyncs()
        save_if_changed(disk, path, found, said)
        assert bool(disk.synced) is is_written
        assert checkpoint(directory) == (said if is_written else Checkpoint())


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 20_000, [1, 2, 3, 4]),  # the log begins with file 1
        (4_096, 20_000, [1, 2, 3, 4]),
        (8_191, 20_000, [1, 2, 3, 4]),
        (8_192, 20_000, [2, 3, 4]),
        (19_999, 20_000, [4]),
        (16_383, 16_384, [3]),
        (4_096, 4_096, []),
    ],
)
def test_log_files_from_the_walk_on_are_flushed(
    tmp_path: pathlib.Path, start: int, end: int, expected: list[int]
) -> None:
    """Those that the walk read, and the directories with their names."""
    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    disk = RecordedSyncs()
    log = CommitLog(disk, str(folder), 4096)
    log.set_bounds(4096, end)
    for number in range(1, 5):
        (folder / f"{number * 4096:020d}").write_bytes(bytes(4096))
    sync_recovered_log(disk, log, start, [str(folder)])
    assert disk.synced == [*(f"commitlog/{number * 4096:020d}" for number in expected), "commitlog/"]


@pytest.fixture
def disk() -> RecordedSyncs:
    """Give a disk that notes what is flushed."""
    return RecordedSyncs()


@pytest.fixture
def space(tmp_path: pathlib.Path, disk: RecordedSyncs) -> Iterator[QueueSpace]:
    """Give a place for queues with ten entries to a file."""
    descriptors = Descriptors(disk, 8)
    yield QueueSpace(disk, str(tmp_path / "store" / "consumequeue"), 200, descriptors)
    descriptors.close()


def queue_of(space: QueueSpace, *log_offsets: int) -> ConsumeQueue:
    """Return a queue whose entries name these places of the log, all of it on the disk."""
    queue = ConsumeQueue(space, "T", 0)
    queue.pending += b"".join(ENTRY.pack(at, 100, 0) if at >= 0 else PRE_BLANK for at in log_offsets)
    queue.write_pending()
    space.dirty_paths.clear()
    space.new_directories.clear()
    return queue


@pytest.mark.parametrize(
    ("start", "expected"), [(0, [0, 1, 2]), (900, [0, 1, 2]), (901, [1, 2]), (2_400, [2]), (2_401, []), (9_999, [])]
)
def test_queue_files_with_entries_of_the_walk_are_to_be_flushed(
    space: QueueSpace, disk: RecordedSyncs, start: int, expected: list[int]
) -> None:
    """Those from that of the first entry on, and all the names that lead to them; then nothing is left to do."""
    queue = queue_of(space, *range(0, 2_500, 100))
    mark_unsynced([ConsumeQueue(space, "Empty", 0), queue], start)
    assert sorted(space.dirty_paths) == [f"{queue.directory}/{200 * number:020d}" for number in expected]
    sync_recovered_queues(space)
    names = ["/", "consumequeue/", "consumequeue/T/", "consumequeue/T/0/"] if expected else []
    assert disk.synced == [*(f"consumequeue/T/0/{200 * number:020d}" for number in expected), *names]
    assert not space.dirty_paths
    assert not space.new_directories


def test_files_before_the_first_entry_of_the_log_are_looked_at_from_their_begin(space: QueueSpace) -> None:
    """Whatever the queue takes for its first entry, a file is flushed as a whole."""
    queue = queue_of(space, -1, -1, *range(200, 1_500, 100))
    queue.min_offset = 9
    mark_unsynced([queue], 300)
    assert sorted(path[-3:] for path in space.dirty_paths) == ["000", "200"]


class Log:
    """A log of three records in files of 4096 bytes, the last record in the third file."""

    def __init__(self, folder: pathlib.Path) -> None:
        built = LogBuilder(folder, 4096, first_file=1)
        for size in (10, 20, 3_900):
            built.add(bytes(size))
        built.save()
        self.offsets = built.offsets
        self.end = built.end
        self.paths = built.files()
        self.segments = [SegmentFile(str(path), int(path.name), 4096) for path in self.paths]

    def source(self, *, checks_crc: bool = True) -> LogSource:
        """Return what a walk reads."""
        return LogSource(
            self.segments, lambda segment: memoryview(pathlib.Path(segment.path).read_bytes()), checks_crc=checks_crc
        )


def test_record_is_found_where_one_begins(tmp_path: pathlib.Path) -> None:
    """Not before the log, behind it, or in the middle of another; one with a wrong checksum only if nobody asks."""
    log = Log(tmp_path)
    for number, at in enumerate(log.offsets):
        found = log.source().record_at(at)
        assert found is not None
        assert (found.log_offset, found.queue_offset) == (at, number)
        assert log.source().record_at(at + 1) is None
    assert [log.source().record_at(at) for at in (0, 4095, log.end, 3 * 4096, 1 << 40)] == [None] * 5
    data = bytearray(log.paths[0].read_bytes())
    data[90] ^= 1
    log.paths[0].write_bytes(data)
    assert log.source().record_at(4096) is None
    assert log.source(checks_crc=False).record_at(4096) is not None
    assert log.source().unchecked().record_at(4096) is not None
    assert log.source().first == 4096


@pytest.mark.parametrize("is_in_blocks", [False, True])
def test_walk_ends_at_a_place_or_with_the_log(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *, is_in_blocks: bool
) -> None:
    """It says what ended it, and when the last record was stored; where nothing lies before the place, nothing."""
    monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", 0 if is_in_blocks else 1 << 20)
    log = Log(tmp_path)
    stop = LogReplay(log.source(), None, None).run(4096)
    assert stop is not None
    assert (stop.log_offset, stop.is_torn) == (log.end, False)
    for end in log.offsets:
        assert LogReplay(log.source(), None, None).run(4096, end) is None
    assert LogReplay(log.source(), None, None).run(4096, log.end) is not None


def test_walk_knows_when_its_last_record_was_stored(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it looks at records or at blocks; without records it does not know."""
    log = Log(tmp_path)
    last = log.source().record_at(log.offsets[2])
    assert last is not None
    for small_bytes in (0, 1 << 20):
        monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", small_bytes)
        for start, expected in [(4096, last.stored_at_ms), (log.end, 0)]:
            replay = LogReplay(log.source(), None, None)
            replay.run(start)
            assert replay.last_at_ms == expected


class FullIndexDisk(NamedFiles):
    """The disk of the index cannot be written, for this reason."""

    reason = 0

    def _write(self, descriptor: int, data: bytes, position: int) -> int:
        if self.reason and "/index/" in self.opened[descriptor]:
            raise OSError(self.reason, "no")
        return super()._write(descriptor, data, position)


def test_index_without_room_is_built_when_there_is(directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start on a full disk keeps what the index lacks; any other failure stops it."""
    monkeypatch.setattr("rocketlet.store.recovery.recovery.INDEX_BATCH_RECORDS", 10)
    directory.fill(45)
    for path in (directory.root / "index").iterdir():
        path.unlink()
    directory.abort.touch()
    disk = FullIndexDisk()
    disk.reason = errno.EIO
    with pytest.raises(ConfigError, match="cannot use the store directory"):
        directory.open(disk)
    disk.reason = errno.ENOSPC
    store = directory.open(disk)
    for _ in range(2):
        assert [len(store.query("T", f"k{number}", 9, 0, 1 << 60).records) for number in range(45)] == [1] * 45
        disk.reason = 0
        store.tick()
    store.append(sample(45))
    store.commit()
    directory.close_all()
    assert not directory.abort.exists()


@pytest.mark.parametrize(("record", "is_found"), [(3, False), (4, True), (10, True)])
def test_clean_start_looks_at_the_last_8_mib(tmp_path: pathlib.Path, record: int, *, is_found: bool) -> None:
    """Damage before that is left to ``store check``."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=1 << 24)
    with directory.open() as store:
        for _ in range(12):
            store.append(new_record(body=bytes((1 << 20) - 92)))
        store.commit()
        assert store.log_max_offset == 12 << 20
    with directory.segment().open("r+b") as file:
        file.seek((record << 20) + 1_000)
        file.write(b"1")
    if is_found:
        with pytest.raises(StoreDamagedError, match=f"at position {record << 20}"):
            directory.open()
    else:
        directory.open()
        directory.close_all()
