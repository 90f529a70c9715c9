"""Queues behind a log that has lost files: where they begin, and which of them go as a whole."""

import pathlib

import pytest
from retention import MeasuredFiles, age, clean_until, cleaned_directory, log_files
from stores import StoreDirectory, new_record, read_all, read_queue

from rocketlet.common.errors import StoreNotWritableError


def test_queue_keeps_its_last_file_and_its_numbering(tmp_path: pathlib.Path) -> None:
    """Leading files go when their last entry lies before the log; a queue without messages keeps the last file."""
    directory = cleaned_directory(tmp_path / "store", queue_file_bytes=200)
    with directory.open() as store:
        for number in range(35):
            store.append(new_record("Old", 0, b"%d" % number))
            store.commit()
    directory.fill(120, queues=1)
    age(directory, range(20), hours=2)
    store = directory.open(MeasuredFiles())
    clean_until(store, lambda: len(log_files(directory)) == 1)
    queue = directory.root / "consumequeue" / "Old" / "0"
    assert [path.name for path in queue.iterdir()] == [f"{600:020d}"]
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (35, 35)
    assert store.earliest_stored_at("Old", 0) == -1
    first = store.min_offset("T", 0)
    names = sorted(int(path.name) for path in (directory.root / "consumequeue" / "T" / "0").iterdir())
    assert names == list(range(first * 20 // 200 * 200, 120 * 20, 200))
    directory.close_all()
    store = directory.open(MeasuredFiles())
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (35, 35)
    assert store.append(new_record("Old", 0)).queue_offset == 35
    store.commit()
    assert [one.queue_offset for one in read_queue(store, "Old", 0)] == [35]
    directory.close_all()


def test_queue_that_began_late_is_cleaned(tmp_path: pathlib.Path) -> None:
    """Pre-blank entries before a queue's first message count as gone."""
    directory = cleaned_directory(tmp_path / "store", queue_file_bytes=200)
    directory.fill(120, queues=1)
    age(directory, range(3), hours=2)
    store = directory.open(MeasuredFiles())
    store.clean_now()
    directory.close_all()
    for path in (directory.root / "consumequeue").rglob("*"):
        if path.is_file():
            path.unlink()
    (directory.root / "abort").touch()
    store = directory.open(MeasuredFiles())
    first = store.min_offset("T", 0)
    assert [one.queue_offset for one in read_queue(store, "T", 0)] == list(range(first, 120))
    age(directory, range(4, 5), hours=0)
    age(directory, range(3, 4), hours=2)
    store.clean_now()
    assert store.min_offset("T", 0) > first
    assert [one.queue_offset for one in read_queue(store, "T", 0)] == list(range(store.min_offset("T", 0), 120))
    directory.close_all()


def test_batch_queue_is_cleaned(tmp_path: pathlib.Path) -> None:
    """Its leading files go by the same rule; offsets count messages on."""
    directory = cleaned_directory(tmp_path / "store", batch_file_bytes=460)
    with directory.open() as store:
        store.set_batch_topics(["B"])
        for number in range(60):
            store.append(new_record("B", 0, b"%0200d" % number))
            store.commit()
    age(directory, range(3), hours=2)
    store = directory.open(MeasuredFiles())
    before = read_queue(store, "B", 0)
    store.clean_now()
    first = store.min_offset("B", 0)
    left = [record for record in before if record.log_offset >= store.log_min_offset]
    assert first == left[0].queue_offset > 0
    assert store.max_offset("B", 0) == 60
    names = sorted(int(path.name) for path in (directory.root / "batchconsumequeue" / "B" / "0").iterdir())
    assert names[0] == first * 46 // 460 * 460
    directory.close_all()
    store = directory.open()
    assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (first, 60)
    directory.close_all()


def test_queues_without_messages_are_removed_on_demand(aged: StoreDirectory) -> None:
    """Those of topics to keep stay; the numbering of a removed one begins anew."""
    with aged.open() as store:
        before = store.log_max_offset // 4096
    directory = StoreDirectory(aged.root.with_name("second"), cleaning=aged.config.cleaning)
    with directory.open() as store:
        for topic in ("Old", "SCHEDULE_TOPIC_XXXX"):
            store.append(new_record(topic, 3))
            store.commit()
    directory.fill(120)
    age(directory, range(before - 1), hours=2)
    store = directory.open(MeasuredFiles())
    store.clean_now()
    for step in store.cleaner.expired_queues(lambda topic: topic.startswith("SCHEDULE")):
        step.run()
    assert sorted(path.name for path in (directory.root / "consumequeue").iterdir()) == ["SCHEDULE_TOPIC_XXXX", "T"]
    assert store.append(new_record("Old", 3)).queue_offset == 0
    store.commit()
    assert len(read_queue(store, "Old", 3)) == 1
    assert store.max_offset("SCHEDULE_TOPIC_XXXX", 3) == 1
    directory.close_all()
    assert len(read_queue(directory.open(), "Old", 3)) == 1
    directory.close_all()


def test_topics_that_are_not_wanted_lose_their_queues(aged: StoreDirectory) -> None:
    """All of a topic's queues go, with its directory, and take no message meanwhile; other topics stay."""
    store = aged.open()
    store.append(new_record("Kept", 0))
    store.commit()
    for queue_id, step in enumerate(store.cleaner.unused_topics(lambda topic: topic == "Kept")):
        with pytest.raises(StoreNotWritableError, match="is being removed, try again"):
            store.append(new_record("T", queue_id))
        step.run()
    assert [path.name for path in (aged.root / "consumequeue").iterdir()] == ["Kept"]
    assert sorted(store.queues()) == [("Kept", 0)]


@pytest.mark.parametrize("removable", [0, 1])
@pytest.mark.parametrize("is_batch", [False, True])
def test_queue_that_cannot_be_removed_stays(tmp_path: pathlib.Path, *, removable: int, is_batch: bool) -> None:
    """What is left of it is read and its numbering goes on; a start completes it from the log."""
    directory = cleaned_directory(tmp_path / "store", queue_file_bytes=200, batch_file_bytes=460)
    with directory.open(disk := MeasuredFiles()) as store:
        if is_batch:
            store.set_batch_topics(["T"])
        for _ in range(15):
            store.append(new_record())
            store.commit()
        before = read_all(store)["T", 0]
        disk.unlinks_left = removable
        for step in store.cleaner.unused_topics(lambda _: False):
            step.run()
        disk.unlinks_left = None
        assert read_all(store) == {("T", 0): before[10 * removable :]}
        assert store.append(new_record()).queue_offset == 15
        store.commit()
    with directory.open() as store:
        assert read_all(store) == {("T", 0): [*before, (15, b"body")]}


def test_queue_and_index_files_that_cannot_be_deleted_go_after_a_start(
    aged: StoreDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is said, nothing of them is read meanwhile, and the first round after a start deletes them."""
    disk = MeasuredFiles()
    disk.unlinks_left = 6  # the files of the log
    with aged.open(disk) as store:
        store.clean_now()
        assert log_files(aged) == [6, 7]
        assert "consumequeue/T/0/00000000000000000000, retrying after the next start" in caplog.text
        assert "/index/" in caplog.text
        left = read_all(store)
        disk.unlinks_left = None
    assert aged.queue_file().exists()
    with aged.open(disk) as store:
        store.clean_now()
        assert not aged.queue_file().exists()
        assert read_all(store) == left
