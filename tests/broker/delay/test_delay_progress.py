"""The offsets of the delay levels, and when they may be saved."""

import pathlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from slow_disk import SlowDisk
from stores import HOST, StoreDirectory, new_record

from rocketlet.broker.delay.delay_progress import (
    DelayFile,
    DelayProgress,
    DelaySaveJob,
    DeliveredCopies,
    find_copies,
    find_start,
)
from rocketlet.broker.delay.delayed_messages import Delays
from rocketlet.broker.topic.config_table import ConfigFolder
from rocketlet.common.errors import StoreNotWritableError
from rocketlet.common.java_json import read_json_as
from rocketlet.common.metadata import DataVersion
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.record import NewRecord, Record, decode_record, encode_record
from rocketlet.store.message_store import MessageStore

JAVA_FILE = """{
	"dataVersion":{
		"counter":2,
		"stateVersion":0,
		"timestamp":1795249689264
	},
	"offsetTable":{
		1:4,
		2:1,
		18:0
	}
}"""


@pytest.fixture
def disk() -> SlowDisk:
    """Give the disk."""
    return SlowDisk()


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return where the store is."""
    return StoreDirectory(tmp_path / "store", delays_ms=(1_000, 5_000))


@pytest.fixture
def store(directory: StoreDirectory, disk: SlowDisk) -> Iterator[MessageStore]:
    """Open a store on the disk."""
    yield directory.open(disk)
    disk.go_on(failing=disk.fails)
    directory.close_all()


@pytest.fixture
def progress() -> DelayProgress:
    """Return fresh progress."""
    return DelayProgress(lambda: 7, version_step=3)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[ConfigFolder]:
    """Return an empty folder with a thread of its own."""
    with ThreadPoolExecutor(1) as writer:
        yield ConfigFolder(str(tmp_path / "config"), writer)


def saved(folder: ConfigFolder) -> dict[int, int]:
    """Return the offsets in the file."""
    fresh = DelayProgress(lambda: 0, version_step=200)
    folder.load(fresh)
    return fresh.latest()


def test_file_of_a_java_broker_is_read(progress: DelayProgress) -> None:
    """Levels without quotes, as Java writes them, are offsets; a level that is not named is at 0."""
    progress.load(read_json_as(JAVA_FILE, DelayFile))
    assert [progress.next_offset(level) for level in (1, 2, 3, 18)] == [4, 1, 0, 0]
    assert progress.content().data_version == DataVersion(counter=2, timestamp=1795249689264)


def test_data_version_moves_with_deliveries(progress: DelayProgress) -> None:
    """The version moves every so many messages (delayOffsetUpdateVersionStep), of whatever levels."""
    counters: list[int] = []
    for level, offset in ((1, 1), (1, 2), (2, 1), (2, 6), (3, 1)):
        progress.move(level, offset)
        counters.append(progress.content().data_version.counter)
    assert counters == [0, 0, 1, 2, 3]
    assert progress.content().data_version.timestamp == 7


@pytest.fixture
def moved(progress: DelayProgress, store: MessageStore) -> DelayProgress:
    """Return the progress behind a message of the store, which is not on disk yet."""
    store.append(new_record())
    store.commit()
    progress.move(1, 1)
    return progress


@pytest.mark.feature("L3")
async def test_progress_is_saved_when_the_messages_are_on_disk(
    moved: DelayProgress, folder: ConfigFolder, store: MessageStore, disk: SlowDisk
) -> None:
    """Saving flushes the log first, so that no crash leaves an offset behind which a delivered message is lost."""
    before = disk.syncs
    job = DelaySaveJob(store, folder, moved, 10_000)
    assert await job.run() == 10_000
    assert (store.flushed_offset, saved(folder)) == (store.log_max_offset, {1: 1})
    assert disk.syncs > before
    before = disk.syncs
    assert await job.run() == 10_000
    assert disk.syncs == before
    for offset in (2, 3):
        moved.move(1, offset)
        await job.run()
        assert saved(folder) == {1: offset}


async def test_progress_is_not_saved_when_the_disk_fails(
    moved: DelayProgress, folder: ConfigFolder, store: MessageStore, disk: SlowDisk
) -> None:
    """When the flush fails the file keeps what was certain, and the last save of a broker only logs it."""
    disk.go_on(failing=True)
    job = DelaySaveJob(store, folder, moved, 10_000)
    with pytest.raises(StoreNotWritableError):
        await job.run()
    await job.run_once()
    assert saved(folder) == {}


COPY = {"UNIQ_KEY": "k", "REAL_TOPIC": "T", "DELAY": "1", "TIMER_OUT_MS": "5", "TIMER_ROLL_TIMES": "1"}


def read_back(new: NewRecord) -> Record:
    """Return a record as it is in the log."""
    return decode_record(encode_record(new, 0, 0, 1, HOST))


def copy_of(topic: str = "T", queue_id: int = 0, **properties: str) -> NewRecord:
    """Return the copy of a message that waited."""
    return new_record(topic, queue_id, b"x", **{**COPY, **properties})


def test_each_copy_counts_for_one_message() -> None:
    """Two equal copies stand for two messages, a third one is to be delivered."""
    copies = DeliveredCopies()
    assert (bool(copies), len(copies), copies.take(copy_of())) == (False, 0, False)
    for _ in range(2):
        copies.add(read_back(copy_of()))
    assert (bool(copies), len(copies)) == (True, 2)
    assert [copies.take(copy_of()) for _ in range(3)] == [True, True, False]
    assert (bool(copies), len(copies)) == (False, 0)


@pytest.mark.parametrize(
    "other",
    [
        *(copy_of("T", 0, **{name: "9"}) for name in COPY if name != "REAL_TOPIC"),
        copy_of("Other"),
        copy_of(queue_id=1),
        msgspec.structs.replace(copy_of(), born_at_ms=1),
        msgspec.structs.replace(copy_of(), reconsume_times=1),
    ],
)
def test_copy_of_another_message(other: NewRecord) -> None:
    """Key, level or time, round, place, birth and attempts tell messages apart."""
    copies = DeliveredCopies()
    copies.add(read_back(copy_of()))
    assert not copies.take(other)
    assert copies.take(copy_of())


@pytest.mark.parametrize(
    "new", [copy_of(SCHEDULE_TOPIC), new_record(UNIQ_KEY="k", DELAY="1"), new_record(REAL_TOPIC="T", DELAY="1")]
)
def test_record_that_is_no_copy(new: NewRecord) -> None:
    """What waits still, what never waited, and what has no unique key count for nothing."""
    copies = DeliveredCopies()
    copies.add(read_back(new))
    assert not copies
    copies.add(read_back(copy_of()))
    assert not copies.take(new) or new.topic == SCHEDULE_TOPIC


def test_log_is_read_from_a_little_before(store: MessageStore, directory: StoreDirectory) -> None:
    """It begins with the last message that was parked 10 s before the time in question, of all levels."""
    delays, start_ms = Delays((1_000, 5_000)), directory.now_ms
    places: list[int] = []
    for number in range(30):
        places.append(store.append(delays.park(new_record(), 1 + number % 2)).log_offset)
        store.append(new_record())
        store.commit()
        directory.now_ms += 1_000

    def start(after_ms: int, log_offset: int = 0) -> int:
        return find_start(store, start_ms + after_ms, log_offset)

    assert [start(after_ms) for after_ms in (0, 10_000, 10_001, 11_000, 11_001)] == [0, 0, 0, 0, places[1]]
    assert [start(after_ms) for after_ms in (24_000, 24_001, 99_000)] == [places[13], places[14], places[29]]
    assert start(24_000, places[20]) == places[20]


def test_copies_are_those_between_two_positions(store: MessageStore) -> None:
    """Other records are passed over."""
    places: list[int] = []
    for number in range(6):
        places.append(store.append(copy_of(UNIQ_KEY=f"k{number}")).log_offset)
        store.append(new_record())
    store.commit()
    copies = find_copies(store, places[1], places[4])
    assert len(copies) == 3
    assert [copies.take(copy_of(UNIQ_KEY=f"k{number}")) for number in range(6)] == [False, *[True] * 3, False, False]


def test_each_confirmation_is_counted(progress: DelayProgress) -> None:
    """By another number than before: the table is saved then."""
    counts = [progress.change_count]
    for _ in range(3):
        progress.confirm(progress.latest())
        counts.append(progress.change_count)
    assert len(set(counts)) == 4
