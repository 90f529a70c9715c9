"""Cleaning: which files go when, and that numbering, reading and reopening do not mind."""

import logging
import os
import pathlib
from datetime import datetime
from typing import Any

import pytest
from retention import HOUR_MS, MeasuredFiles, age, clean_until, cleaned_directory, log_files
from stores import StoreDirectory, new_record, read_all, read_queue, sample

from rocketlet.common.record import Record
from rocketlet.store.consumequeue.queue_reader import ReadLimits, ReadStatus
from rocketlet.store.message_store import MessageStore


def bodies_by_offset(store: MessageStore) -> dict[tuple[str, int], dict[int, bytes]]:
    """Return the body of every message by queue and queue offset."""
    return {key: dict(messages) for key, messages in read_all(store).items()}


def records_of(store: MessageStore) -> list[Record]:
    """Return all messages of the three queues."""
    return [record for queue_id in range(3) for record in read_queue(store, "T", queue_id)]


def test_expired_files_go_and_the_rest_is_read_as_before(aged: StoreDirectory) -> None:
    """Files older than the reserved time go, min offsets move to the first message left, no other message changes."""
    store = aged.open(MeasuredFiles())
    before = bodies_by_offset(store)
    store.clean_now()
    assert log_files(aged) == [6, 7]
    assert store.log_min_offset == 6 * 4096
    left = bodies_by_offset(store)
    for key, messages in left.items():
        assert messages == {at: body for at, body in before[key].items() if at >= store.min_offset(*key)}
        assert 0 < store.min_offset(*key) < store.max_offset(*key) == len(before[key])
    assert all(record.log_offset >= store.log_min_offset for record in records_of(store))


@pytest.mark.parametrize("is_killed", [False, True])
def test_store_is_the_same_after_reopening(aged: StoreDirectory, is_killed: bool) -> None:
    """A restart after cleaning finds the same offsets and goes on numbering."""
    store = aged.open(MeasuredFiles())
    store.clean_now()
    before = bodies_by_offset(store), [store.min_offset("T", number) for number in range(3)], store.log_min_offset
    if is_killed:
        aged = aged.copy("killed")
    else:
        aged.close_all()
    store = aged.open(MeasuredFiles())
    try:
        assert (
            bodies_by_offset(store),
            [store.min_offset("T", one) for one in range(3)],
            store.log_min_offset,
        ) == before
        assert store.append(new_record()).queue_offset == 40
    finally:
        aged.close_all()


def test_old_offsets_are_answered_as_too_small(aged: StoreDirectory) -> None:
    """Reading below the first message names it as the next offset; there reading goes on."""
    store = aged.open(MeasuredFiles())
    store.clean_now()
    found = store.read("T", 0, 0, ReadLimits())
    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, store.min_offset("T", 0))
    assert store.read("T", 0, found.next_offset, ReadLimits()).status is ReadStatus.FOUND


def test_deleted_messages_are_found_nowhere(aged: StoreDirectory) -> None:
    """Not by key, not by log offset; times before the first message lead to it."""
    store = aged.open(MeasuredFiles())
    deleted = read_queue(store, "T", 0)[0]
    store.clean_now()
    assert store.query("T", "k0", 32, 0, 1 << 60).records == []
    assert store.record_at(deleted.log_offset) is None
    assert len(store.query("T", "k119", 32, 0, 1 << 60).records) == 1
    first = read_queue(store, "T", 0)[0]
    assert store.earliest_stored_at("T", 0) == first.stored_at_ms
    assert store.offset_by_time("T", 0, deleted.stored_at_ms) == store.min_offset("T", 0) == first.queue_offset
    assert store.offset_by_time("T", 0, first.stored_at_ms + 30) == first.queue_offset + 1


def test_first_file_that_is_too_young_ends_it(aged: StoreDirectory) -> None:
    """Nothing is deleted from the middle of the log, however old."""
    age(aged, range(2, 3), hours=0.9)
    aged.open(MeasuredFiles()).clean_now()
    assert log_files(aged) == [2, 3, 4, 5, 6, 7]


def test_last_file_stays_however_old(aged: StoreDirectory) -> None:
    """Also when all messages have expired."""
    age(aged, range(8), hours=1000)
    store = aged.open(MeasuredFiles())
    clean_until(store, lambda: log_files(aged) == [7])
    store.clean_now()
    assert log_files(aged) == [7]


def test_round_deletes_no_more_than_its_batch(tmp_path: pathlib.Path) -> None:
    """``deleteFileBatchMax`` files go in one round, the next go in the next."""
    directory = cleaned_directory(tmp_path / "store", {"most_files": 4})
    directory.fill(120)
    age(directory, range(8), hours=2)
    store = directory.open(MeasuredFiles())
    store.clean_now()
    assert log_files(directory) == [4, 5, 6, 7]
    store.clean_now()
    assert log_files(directory) == [7]
    directory.close_all()


def test_expired_files_go_at_their_hour_only(tmp_path: pathlib.Path) -> None:
    """``deleteWhen`` names hours of the local day, by the clock that was handed in."""
    directory = cleaned_directory(tmp_path / "store", {"delete_when": "04;17"})
    directory.fill(120)
    age(directory, range(8), hours=2)
    store = directory.open(MeasuredFiles())
    day = datetime.fromtimestamp(directory.now_ms / 1000).astimezone().replace(minute=30)
    for hour in (*range(18, 24), *range(4), *range(5, 17)):
        directory.now_ms = int(day.replace(hour=hour).timestamp() * 1000) + 24 * HOUR_MS
        store.clean_now()
        assert len(log_files(directory)) == 8
    directory.now_ms = int(day.replace(hour=17).timestamp() * 1000) + 24 * HOUR_MS
    store.clean_now()
    assert log_files(directory) == [7]
    directory.close_all()


def test_asking_deletes_expired_files_at_any_hour(tmp_path: pathlib.Path) -> None:
    """The request counts for 20 rounds, and does not shorten the reserved time."""
    directory = cleaned_directory(tmp_path / "store", {"delete_when": "", "most_files": 1})
    directory.fill(120)
    age(directory, range(3), hours=2)
    age(directory, range(3, 8), hours=0.5)
    store = directory.open(MeasuredFiles())
    store.clean_now()
    assert len(log_files(directory)) == 8
    store.cleaner.ask()
    for _ in range(19):
        store.clean_now()
    assert log_files(directory) == [3, 4, 5, 6, 7]
    age(directory, range(3, 8), hours=2)
    store.clean_now()
    store.clean_now()
    assert log_files(directory) == [4, 5, 6, 7]
    directory.close_all()


def test_clock_set_back_and_files_from_the_future_delete_nothing(aged: StoreDirectory) -> None:
    """A file goes only when its last write lies behind the clock by the reserved time."""
    store = aged.open(MeasuredFiles())
    now_ms = aged.now_ms
    for back_ms in (2 * HOUR_MS, 1000 * HOUR_MS):
        aged.now_ms = now_ms - back_ms
        store.clean_now()
    aged.now_ms = now_ms
    age(aged, range(1), hours=-1000)
    store.clean_now()
    assert len(log_files(aged)) == 8


def test_unflushed_files_stay(tmp_path: pathlib.Path) -> None:
    """What is not on disk for certain is not deleted, not even on a full disk; after the flush it may go."""
    directory = cleaned_directory(tmp_path / "store")
    store = directory.open(MeasuredFiles(95))
    for number in range(100):
        store.append(sample(number))
        store.commit()
    store.clean_now()
    assert len(log_files(directory)) == 7
    store.flush()
    store.clean_now()
    assert log_files(directory)[0] == 6
    directory.close_all()


def test_file_may_go_when_the_next_holds_a_record(tmp_path: pathlib.Path) -> None:
    """One record is enough to say that all before it are in their queues."""
    directory = cleaned_directory(tmp_path / "store")
    store = directory.open(MeasuredFiles(95))
    while store.log_max_offset < 4096:
        store.append(sample(0, size=0))
        store.commit()
    store.flush()
    store.clean_now()
    assert log_files(directory)[0] == 1
    directory.close_all()


def test_prepared_file_is_not_taken_for_the_last(tmp_path: pathlib.Path) -> None:
    """The file that is being written stays, with an empty one prepared behind it; both are used afterwards."""
    directory = cleaned_directory(tmp_path / "store")
    store = directory.open(MeasuredFiles(95))
    number = 0
    while len(log_files(directory)) < 5 or store.log_max_offset % 4096 < 2500:
        store.append(sample(number))
        store.commit()
        store.flush()
        number += 1
    store.clean_now()
    active = store.log_max_offset // 4096
    assert log_files(directory) == [active, active + 1]
    store.clean_now()
    assert log_files(directory) == [active, active + 1]
    directory.close_all()


def test_slices_of_a_deleted_file_stay_valid(aged: StoreDirectory) -> None:
    """What is being sent outlives its file."""
    store = aged.open(MeasuredFiles())
    sending = store.read("T", 0, 0, ReadLimits()).records
    before = [bytes(part) for part in sending]
    store.clean_now()
    assert log_files(aged) == [6, 7]
    assert [bytes(part) for part in sending] == before


def test_file_that_cannot_be_deleted_stays_in_the_log(aged: StoreDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """It is readable on, said once, and tried again after ``redeleteHangedFileInterval``."""
    disk = MeasuredFiles()
    store = aged.open(disk)
    before = bodies_by_offset(store)
    disk.unlinks_left = 0
    with caplog.at_level(logging.ERROR):
        store.clean_now()
        store.clean_now()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert (store.log_min_offset, bodies_by_offset(store)) == (0, before)
    disk.unlinks_left = None
    store.clean_now()
    assert len(log_files(aged)) == 8
    aged.now_ms += 120_000
    store.clean_now()
    assert log_files(aged) == [6, 7]


# --- queues and index


def test_index_files_go_but_not_the_last(aged: StoreDirectory) -> None:
    """Leading index files whose last record is gone go; keys of what is left are found."""
    index = aged.root / "index"
    before = sorted(path.name for path in index.iterdir())
    assert len(before) > 3
    store = aged.open(MeasuredFiles())
    store.clean_now()
    left = sorted(path.name for path in index.iterdir())
    assert 1 <= len(left) < len(before)
    assert before[-len(left) :] == left
    for record in records_of(store):
        assert len(store.query("T", record.properties["UNIQ_KEY"], 32, 0, 1 << 60).records) == 1


def test_interrupted_cleaning_is_finished_by_the_first_round_after_a_start(aged: StoreDirectory) -> None:
    """A stop between log and queues leaves queue files behind, which go later."""
    store = aged.open(MeasuredFiles())
    for step in store.cleaner.round():
        step.run()
        if log_files(aged) == [6, 7]:
            break
    queue = aged.root / "consumequeue" / "T" / "0"
    assert f"{0:020d}" in os.listdir(queue)
    twin = aged.copy("killed")
    store = twin.open(MeasuredFiles())
    assert store.min_offset("T", 0) > 0
    store.clean_now()
    assert f"{0:020d}" not in os.listdir(twin.root / "consumequeue" / "T" / "0")
    twin.close_all()


def test_cleaning_goes_on_between_writes(aged: StoreDirectory) -> None:
    """Messages that are written between the steps of a round are kept, also in queues that are being cut."""
    store = aged.open(MeasuredFiles())
    number = 120
    for step in store.cleaner.round():
        for _ in range(5):
            store.append(sample(number))
            number += 1
        store.commit()
        step.run()
    assert store.log_min_offset == 6 * 4096
    for queue_id in range(3):
        offsets = [record.queue_offset for record in read_queue(store, "T", queue_id)]
        assert offsets == list(range(store.min_offset("T", queue_id), store.max_offset("T", queue_id)))
    assert sum(store.max_offset("T", queue_id) for queue_id in range(3)) == number


class StepFiles(MeasuredFiles):
    """Notes what is done between the steps of a round."""

    def __init__(self) -> None:
        super().__init__()
        self.is_in_step = True
        self.outside: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        """Note the operations that may wait for the disk."""
        waiting = {"open", "pread", "unlink", "sync_directory", "list", "exists", "modified_at_ms", "disk_usage"}
        if name in waiting and not super().__getattribute__("is_in_step"):
            super().__getattribute__("outside").append(name)
        return super().__getattribute__(name)


def test_owner_never_waits_for_the_disk(tmp_path: pathlib.Path) -> None:
    """With many queues, all that reads, removes or syncs files is done in steps, of so many queues each at most."""
    directory = cleaned_directory(tmp_path / "store")
    with directory.open() as store:
        for number in range(600):
            store.append(new_record("Many", number % 200, b"x" * 100))
        store.commit()
    age(directory, range(10), hours=2)
    files = StepFiles()
    store = directory.open(files)
    steps = 0
    files.is_in_step = False
    for step in store.cleaner.round():
        files.is_in_step = True
        step.run()
        files.is_in_step = False
        steps += 1
    files.is_in_step = True
    assert files.outside == []
    assert steps > 200 // 64
    assert store.min_offset("Many", 0) > 0
    directory.close_all()


# --- disk ratios
