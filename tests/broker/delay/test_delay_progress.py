"""The offsets of the delay levels, and when they may be saved."""

import pathlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from slow_disk import SlowDisk
from stores import StoreDirectory, new_record

from rocketlet.broker.delay.delay_progress import DelayFile, DelayProgress, DelaySaveJob
from rocketlet.broker.topic.config_table import ConfigFolder
from rocketlet.common.errors import StoreNotWritableError
from rocketlet.common.java_json import read_json_as
from rocketlet.common.metadata import DataVersion
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
def store(tmp_path: pathlib.Path, disk: SlowDisk) -> Iterator[MessageStore]:
    """Open a store on the disk."""
    directory = StoreDirectory(tmp_path / "store")
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
    fresh = DelayProgress(lambda: 0)
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
    await DelaySaveJob(store, folder, moved, 10_000).run()
    assert (store.flushed_offset, saved(folder)) == (store.log_max_offset, {1: 1})
    assert disk.syncs > before
    before = disk.syncs
    await DelaySaveJob(store, folder, moved, 10_000).run()
    assert disk.syncs == before


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
