"""How full the disks are: when files go before their time, and when no message is taken."""

import logging

import pytest
from retention import MeasuredFiles, age, cleaned_directory, log_files
from stores import StoreDirectory, new_part, new_record, read_queue

from rocketlet.common.errors import DiskFullError


def test_full_disk_takes_no_messages_until_it_has_room(aged: StoreDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """Above the warning level sends are refused and files go before their time; below the forced level all is well."""
    disk = MeasuredFiles(91)
    age(aged, range(8), hours=0)
    store = aged.open(disk)
    caplog.set_level(logging.INFO)
    store.clean_now()
    store.clean_now()
    with pytest.raises(DiskFullError, match=r"the broker's disk is full \[CL:  0\.91 CQ:  0\.91 INDEX:  0\.91\]"):
        store.append(new_record())
    store.tick()
    with pytest.raises(DiskFullError):
        store.append_batch(new_record(), [new_part()])
    assert log_files(aged) == [7]
    assert read_queue(store, "T", 0)[-1].queue_offset == 39
    disk.percents["/"] = 86
    store.clean_now()
    assert isinstance(store.refusal, DiskFullError)
    disk.percents["/"] = 85
    store.clean_now()
    assert store.append(new_record()).queue_offset == 40
    said = [record.getMessage() for record in caplog.records if "disk of store" in record.getMessage()]
    assert [text.partition(str(aged.root))[2].partition(":")[0] for text in said] == [
        " is full",
        " is filling up, and no log file has expired yet",
        " has room again",
    ]


def test_clean_stop_on_a_full_disk_is_clean(aged: StoreDirectory) -> None:
    """A disk that is too full for more messages has room for the end of a run."""
    store = aged.open(MeasuredFiles(91))
    store.append(new_record("T", 0))
    store.commit()
    store.clean_now()
    aged.close_all()
    assert not aged.abort.exists()


@pytest.mark.parametrize(
    ("percent", "settings", "is_refused", "left"),
    [
        (91, {}, True, 1),
        (90, {}, False, 1),
        (86, {}, False, 1),
        (86, {"cleans_forcibly": False}, False, 2),
        (85, {}, False, 2),
        (76, {}, False, 2),
        (75, {}, False, 8),
        (11, {"max_used_setting": 1}, False, 2),
        (10, {"max_used_setting": 1}, False, 8),
        (91, {"warning_setting": 99}, True, 1),
        (36, {"warning_setting": 1}, True, 1),
        (31, {"forced_setting": 1}, False, 1),
        (30, {"forced_setting": 1}, False, 8),
        (-1, {}, False, 2),
    ],
)
def test_disk_ratios_have_javas_bounds(
    aged: StoreDirectory, percent: int, settings: dict[str, int], is_refused: bool, left: int
) -> None:
    """What is refused and what is deleted outside of ``deleteWhen``, for each level and its clamp."""
    directory = cleaned_directory(aged.root, {"delete_when": "", **settings})
    directory.now_ms = aged.now_ms
    store = directory.open(MeasuredFiles(percent))
    store.clean_now()
    assert isinstance(store.refusal, DiskFullError) == is_refused
    assert len(log_files(directory)) == left
    directory.close_all()


def test_full_disk_of_the_queues_counts_too(aged: StoreDirectory) -> None:
    """The queues may lie on a disk of their own."""
    disk = MeasuredFiles(10)
    disk.percents[str(aged.root / "consumequeue")] = 93
    store = aged.open(disk)
    store.clean_now()
    with pytest.raises(DiskFullError, match=r"CL:  0\.10 CQ:  0\.93 INDEX:  0\.10"):
        store.append(new_record())
    assert log_files(aged) == [7]
