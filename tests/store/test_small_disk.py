"""A store on a real file system of a few megabytes that is filled until it takes no more."""

import pathlib
from collections.abc import Callable
from functools import partial

import pytest
from retention import cleaned_directory, log_files
from small_disk import SmallDisk, run_on_small_disk
from stores import StoreDirectory, new_record, read_all, sample

from rocketlet.common.errors import DiskFullError, StoreFullError
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.write.log_reader import LogReader, ReadOptions
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.cleaner import measure_use
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.message_store import MessageStore

DISK_BYTES = 4 << 20
SIZES = {"segment_bytes": 65_536, "queue_file_bytes": 4_000, "index_slots": 500, "index_entries": 2_000}


@pytest.fixture
def on_disk(tmp_path: pathlib.Path) -> Callable[..., None]:
    """Give a call that runs a function with a disk of 4 MiB."""
    return partial(run_on_small_disk, tmp_path / "disk", DISK_BYTES)


def make(disk: SmallDisk, **cleaning: object) -> StoreDirectory:
    """Return a store on the disk."""
    return cleaned_directory(disk.path / "store", {"delete_when": "", **cleaning}, **SIZES)


def send(store: MessageStore, number: int) -> bool:
    """Write a message; tell whether it was kept."""
    try:
        store.append(sample(number, size=500))
        store.commit()
    except StoreFullError:
        return False
    return True


def fill_up(store: MessageStore, first: int) -> int:
    """Send until the disk is full and some refusals on; return the number of the first message refused."""
    number = first
    while send(store, number):
        number += 1
        if number % 50 == 0:
            store.flush()
    assert not any(send(store, number) for _ in range(20))
    return number


def expected(count: int) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Return what the queues hold when so many messages were sent."""
    return {
        ("T", queue_id): [(at, sample(number, size=500).body) for at, number in enumerate(range(queue_id, count, 3))]
        for queue_id in range(3)
    }


def check_all(store: MessageStore, count: int) -> None:
    """See to it that the messages up to a number are there, each in its queue and in the index, and no others."""
    assert read_all(store) == expected(count)
    for number in range(0, count, 97):
        assert len(store.query("T", f"k{number}", 64, 0, 1 << 60).records) == 1


def refuse_and_recover(disk: SmallDisk, sent_before: int) -> None:
    """Fill the disk, give it room, and go on."""
    directory = make(disk)
    store = directory.open()
    assert all(send(store, number) for number in range(sent_before))
    disk.take_room(2 << 20)
    count = fill_up(store, sent_before)
    assert count > sent_before
    last = max(range(0, count, 3))
    assert read_all(store)[("T", 0)][-1][1] == sample(last, size=500).body
    disk.give_room()
    store.tick()
    assert store.refusal is None
    assert all(send(store, number) for number in range(count, count + 300))
    store.flush()
    check_all(store, count + 300)
    directory.close_all()
    assert not directory.abort.exists()
    check_all(directory.open(), count + 300)
    directory.close_all()


@pytest.mark.parametrize("sent_before", [0, 1000])
def test_full_disk_refuses_keeps_and_recovers(on_disk: Callable[..., None], sent_before: int) -> None:
    """Sends are refused, reads go on; with room again sends succeed without a restart, queues and index are whole."""
    on_disk(refuse_and_recover, sent_before)


def reopen(disk: SmallDisk) -> None:
    """Fill the disk, and open the store again without room."""
    directory = make(disk)
    disk.take_room(2 << 20)
    count = fill_up(directory.open(), 0)
    directory.close_all()
    assert directory.abort.exists()
    store = directory.open()
    assert read_all(store) == expected(count)
    assert not any(send(store, count) for _ in range(20))
    disk.give_room()
    store.tick()
    check_all(store, count)
    assert send(store, count)
    directory.close_all()


def test_full_disk_is_opened_again(on_disk: Callable[..., None]) -> None:
    """All that was acknowledged is read without any room; with room again sends succeed without a restart."""
    on_disk(reopen)


def start_without_room(disk: SmallDisk, is_killed: int) -> None:
    """Fill all the room of the disk beside a store, and read the store in every way."""
    directory = make(disk)
    with directory.open() as store:
        assert all(send(store, number) for number in range(300))
    if is_killed:
        directory.abort.touch()
    with pytest.raises(OSError, match="No space left"):
        disk.take_room(DISK_BYTES)
    store = directory.open()
    check_all(store, 300)
    directory.close_all()
    assert StoreAudit(directory.config).run().is_sound
    assert sum(batch.num_rows for batch in LogReader(plan_stores([str(directory.root)]), ReadOptions())) == 300
    disk.give_room()
    store = directory.open()
    assert send(store, 300)
    check_all(store, 301)
    directory.close_all()


@pytest.mark.parametrize("is_killed", [False, True])
def test_start_without_room_works(on_disk: Callable[..., None], is_killed: bool) -> None:
    """A store that has nothing to write is opened, read, checked and exported on a disk without a free byte."""
    on_disk(start_without_room, int(is_killed))


def delete_and_go_on(disk: SmallDisk) -> None:
    """Fill the disk past the warning level, and clean."""
    directory = make(disk)
    store = directory.open()
    number = 0
    while measure_use(OS_FILES, str(disk.path)) <= 91:
        assert send(store, number)
        number += 1
    store.flush()
    before = len(log_files(directory))
    store.clean_now()
    with pytest.raises(DiskFullError, match=r"CL:  0\.9\d CQ:  0\.9\d INDEX:  0\.9\d"):
        store.append(new_record())
    assert len(log_files(directory)) == before - 10
    assert measure_use(OS_FILES, str(disk.path)) < 85
    store.clean_now()
    assert send(store, number)
    assert store.max_offset("T", number % 3) == number // 3 + 1
    directory.close_all()


def test_disk_rule_deletes_files_and_lets_sends_go_on(on_disk: Callable[..., None]) -> None:
    """Past the warning level by the file system's own figures files go and sends end, until the next round."""
    on_disk(delete_and_go_on)
