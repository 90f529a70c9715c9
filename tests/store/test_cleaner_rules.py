"""What the figures of the disks mean, how they are measured, and what a cleaning says of files that stay."""

import logging
import os
import pathlib

import pytest
from retention import HOUR_MS, MeasuredFiles, age, cleaned_directory, log_files
from stores import StoreDirectory, new_record, read_all, sample
from syncs import RecordedSyncs

from rocketlet.store.cleaner import DiskUse, DiskVerdict, judge_use, measure_capacity, measure_use
from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import CleaningConfig
from rocketlet.store.message_store import MessageStore

NOTHING: frozenset[str] = frozenset()
A, B, BOTH = frozenset("a"), frozenset("b"), frozenset("ab")


@pytest.mark.parametrize(
    ("a", "b", "queues", "expected"),
    [
        (0, 0, 0, DiskVerdict(False, False, False, NOTHING)),
        (75, 75, 75, DiskVerdict(False, False, False, NOTHING)),
        (76, 75, 75, DiskVerdict(False, False, False, NOTHING)),  # the least full log path counts
        (76, 76, 75, DiskVerdict(False, False, True, NOTHING)),
        (10, 10, 76, DiskVerdict(False, False, True, NOTHING)),
        (85, 85, 85, DiskVerdict(False, False, True, NOTHING)),
        (86, 85, 10, DiskVerdict(False, False, True, A)),
        (86, 86, 10, DiskVerdict(None, True, True, BOTH)),  # full stays full, and not full stays not full
        (90, 95, 10, DiskVerdict(None, True, True, BOTH)),
        (91, 91, 10, DiskVerdict(True, True, True, BOTH)),
        (91, 10, 10, DiskVerdict(False, False, False, A)),
        (10, 91, 10, DiskVerdict(False, False, False, B)),
        (10, 10, 86, DiskVerdict(False, True, True, NOTHING)),
        (10, 10, 90, DiskVerdict(False, True, True, NOTHING)),
        (10, 10, 91, DiskVerdict(True, True, True, NOTHING)),
        (86, 86, 91, DiskVerdict(None, True, True, BOTH)),  # the log's path is asked first
        (-1, 10, 10, DiskVerdict(False, False, True, NOTHING)),
        (10, 10, -1, DiskVerdict(False, False, True, NOTHING)),
    ],
)
def test_verdict_on_figures(a: int, b: int, queues: int, expected: DiskVerdict) -> None:
    """The rules of the module, with two paths of the log, at each level and one percent above it."""
    assert judge_use(DiskUse({"a": a, "b": b}, queues, 99), CleaningConfig()) == expected


def test_figures_are_told_as_java_tells_them() -> None:
    """As parts of 1, of the least full log path."""
    assert DiskUse({"a": 91, "b": 7}, 100, 0).remark() == "CL:  0.07 CQ:  1.00 INDEX:  0.00"


class OneDisk(Files):
    """A disk that has so many bytes in use, and so many that may be used; only ``/data`` is there."""

    def __init__(self, used: int, usable: int) -> None:
        self.figures = used, usable
        self.asked: list[str] = []

    def exists(self, path: str) -> bool:
        """Tell whether a path is there."""
        return path in ("/", "/data")

    def disk_usage(self, path: str) -> tuple[int, int]:
        """Answer, or fail."""
        self.asked.append(path)
        if self.figures[0] < 0:
            raise OSError(5, "Input/output error")
        return self.figures

    def disk_capacity(self, path: str) -> tuple[int, int]:
        """Answer, or fail."""
        return self.disk_usage(path)


@pytest.mark.parametrize(
    ("used", "usable", "percent"),
    [(0, 100, 0), (1, 99, 1), (1, 9_999, 1), (50, 50, 50), (501, 499, 51), (100, 0, 100), (0, 0, -1), (-1, 5, -1)],
)
def test_use_is_rounded_up(used: int, usable: int, percent: int) -> None:
    """Of what an ordinary user may fill; -1 when nobody can tell."""
    assert measure_use(OneDisk(used, usable), "/data") == percent


@pytest.mark.parametrize(
    ("path", "asked"), [("/data", "/data"), ("/data/store/index", "/data"), ("/other/store", "/"), ("a/b", "")]
)
def test_path_that_is_not_there_is_measured_where_it_will_be_made(path: str, asked: str) -> None:
    """In the nearest directory above it."""
    disk = OneDisk(1, 1)
    assert measure_use(disk, path) == 50
    assert disk.asked == [asked]


def test_capacity_is_told_when_it_is_known() -> None:
    """Nothing is 0 bytes."""
    assert measure_capacity(OneDisk(7, 8), "/data") == (7, 8)
    assert measure_capacity(OneDisk(-1, 8), "/data") == (0, 0)


def test_report_tells_all_paths(tmp_path: pathlib.Path) -> None:
    """Of a log in several directories each, and the bytes of the disk behind the store."""
    logs = tuple(str(tmp_path / name) for name in ("one", "two"))
    directory = cleaned_directory(tmp_path / "store", log_directories=logs)
    disk = MeasuredFiles(10)
    for name in ("consumequeue", "index"):
        (directory.root / name).mkdir(parents=True)
    disk.percents.update({logs[1]: 20, f"{directory.root}/consumequeue": 30, f"{directory.root}/index": 40})
    with directory.open(disk) as store:
        report = store.cleaner.report()
        assert report.use == DiskUse({logs[0]: 10, logs[1]: 20}, 30, 40)
        assert 0 < report.free < report.total
        assert store.cleaner.period_ms == 10_000


# --- files that stay


def test_file_goes_when_its_time_is_over(aged: StoreDirectory) -> None:
    """Not a millisecond before."""
    store = aged.open(MeasuredFiles())
    at_ns = (aged.now_ms - HOUR_MS + 1) * 1_000_000
    os.utime(aged.segment(0), ns=(at_ns, at_ns))
    store.clean_now()
    assert log_files(aged)[0] == 0
    aged.now_ms += 1
    store.clean_now()
    assert log_files(aged) == [6, 7]


class AgelessFiles(MeasuredFiles):
    """The times of files from the third on cannot be read."""

    def modified_at_ms(self, path: str) -> int:
        """Fail or answer."""
        if int(os.path.basename(path)) >= 2 * 4096:
            raise OSError(5, "Input/output error")
        return super().modified_at_ms(path)


def test_file_whose_age_cannot_be_read_stays(aged: StoreDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """Those before it go."""
    aged.open(AgelessFiles()).clean_now()
    assert log_files(aged)[0] == 2
    assert "deleting only the 2 before it: [Errno 5] Input/output error" in caplog.text


def test_disk_that_fills_up_is_told_once(aged: StoreDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """While no file has expired; again when that was so in between."""
    disk = MeasuredFiles(80)
    age(aged, range(8), hours=0.5)
    store = aged.open(disk)
    counts: list[int] = []
    for percent in (80, 80, 10, 80):
        disk.percents["/"] = percent
        store.clean_now()
        counts.append(caplog.text.count("is filling up, and no log file has expired yet"))
    assert counts == [1, 1, 1, 2]
    assert len(log_files(aged)) == 8


def test_pause_after_a_file_that_stays_ends_with_its_time_or_the_clock(aged: StoreDirectory) -> None:
    """120 s; a clock that was set back says nothing about them."""
    disk = MeasuredFiles()
    store = aged.open(disk)
    disk.unlinks_left = 0
    tries: list[int] = []
    for change_ms in (0, 0, 119_999, 1, -1, 0):
        aged.now_ms += change_ms
        tries.append(count_tries(store, disk))
    assert tries == [1, 0, 0, 1, 1, 0]
    disk.unlinks_left = None
    aged.now_ms += 120_000
    store.clean_now()
    assert log_files(aged) == [6, 7]


def count_tries(store: MessageStore, disk: MeasuredFiles) -> int:
    """Clean, and return how many files somebody tried to remove."""
    tries: list[str] = []
    unlink = disk.unlink

    def note(path: str) -> None:
        tries.append(path)
        unlink(path)

    disk.unlink = note
    try:
        store.clean_now()
    finally:
        disk.unlink = unlink
    return len(tries)


def test_what_goes_and_what_stays_is_said(aged: StoreDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """Each file of the log, and the first that could not be deleted."""
    disk = MeasuredFiles()
    disk.unlinks_left = 2
    refusal = f"[Errno 1] Operation not permitted: '{aged.segment(2)}'"
    with caplog.at_level(logging.INFO):
        aged.open(disk).clean_now()
    assert [record.getMessage() for record in caplog.records if "delete" in record.getMessage()] == [
        f"deleted {aged.segment(0)}, the log begins at 4096",
        f"deleted {aged.segment(1)}, the log begins at 8192",
        f"cannot delete {aged.segment(2)}, retrying with the next cleaning: {refusal}",
    ]
    assert log_files(aged) == [2, 3, 4, 5, 6, 7]


class NotedFiles(RecordedSyncs, MeasuredFiles):
    """Notes flushes and removals in their order."""

    def __init__(self) -> None:
        RecordedSyncs.__init__(self)
        MeasuredFiles.__init__(self)

    def unlink(self, path: str) -> None:
        """Note and remove."""
        self.synced.append(f"without {os.path.basename(path)}")
        super().unlink(path)


@pytest.mark.parametrize("fails", [False, True])
def test_queues_are_on_the_disk_before_a_log_file_goes(
    aged: StoreDirectory, caplog: pytest.LogCaptureFixture, *, fails: bool
) -> None:
    """After a power loss their numbering could not be counted anew; when that fails the log stays as it is."""
    disk = NotedFiles()
    store = aged.open(disk)
    store.append(new_record("New", 0))
    store.commit()
    store.flush()
    disk.synced.clear()
    disk.fails_sync = fails
    store.clean_now()
    disk.fails_sync = False
    if fails:
        assert log_files(aged)[0] == 0
        assert "deleting no log file: flushing the consume queues failed: a flush failed" in caplog.text
        return
    first = disk.synced.index(f"without {0:020d}")
    assert f"consumequeue/New/0/{0:020d}" in disk.synced[:first]
    assert "consumequeue/New/0/" in disk.synced[:first]
    assert disk.synced[first + 1] == "commitlog/"


def test_steps_say_how_long_to_wait_after_them(tmp_path: pathlib.Path) -> None:
    """After each file of the log, and after each queue that lost files."""
    directory = cleaned_directory(tmp_path / "store", {"log_pause_ms": 7, "queue_pause_ms": 9})
    directory.fill(120)
    age(directory, range(6), hours=2)
    with directory.open(MeasuredFiles()) as store:
        pauses: list[int] = []
        for step in store.cleaner.round():
            step.run()
            pauses.append(step.pause_ms)
        assert [pause for pause in pauses if pause] == [7] * 6 + [9] * 3


def test_queues_are_cleaned_when_the_log_has_lost_files(aged: StoreDirectory) -> None:
    """Once, and again after a start; a log that begins at 0 has lost none."""
    store = aged.open(MeasuredFiles())
    steps = [len(rounds) for rounds in (run(store), run(store))]
    aged.close_all()
    store = aged.open(MeasuredFiles())
    steps += [len(rounds) for rounds in (run(store), run(store))]
    assert steps[0] > steps[2] > steps[1] == steps[3]
    other = cleaned_directory(aged.root.with_name("other"))
    with other.open(MeasuredFiles()) as fresh:
        fresh.append(sample(0))
        fresh.commit()
        assert len(run(fresh)) == steps[1]


def run(store: MessageStore) -> list[int]:
    """Do one round; return the pauses of its steps."""
    pauses: list[int] = []
    for step in store.cleaner.round():
        step.run()
        pauses.append(step.pause_ms)
    return pauses


def test_queue_with_messages_on_their_way_is_not_removed(aged: StoreDirectory) -> None:
    """It stays until they are there; the others go."""
    store = aged.open(MeasuredFiles())
    store.append(new_record("T", 1))
    for step in store.cleaner.unused_topics(lambda _: False):
        step.run()
    store.commit()
    assert list(store.queues()) == [("T", 1)]
    assert store.max_offset("T", 1) == 41


def test_queue_that_waits_for_its_first_message_is_not_removed(aged: StoreDirectory) -> None:
    """It has no record that could have expired."""
    store = aged.open(MeasuredFiles())
    store.append(new_record("Fresh"))
    for step in store.cleaner.expired_queues(lambda _: False):
        step.run()
    store.commit()
    assert sorted(store.queues()) == [("Fresh", 0), ("T", 0), ("T", 1), ("T", 2)]


@pytest.mark.parametrize("comes_back", [False, True])
def test_topic_that_is_deleted_while_its_queues_are_cleaned(aged: StoreDirectory, *, comes_back: bool) -> None:
    """What was found of its files no longer counts, also when there are new ones."""
    store = aged.open(MeasuredFiles())
    steps = store.cleaner.round()
    for step in steps:
        step.run()
        if store.log_min_offset == 6 * 4096:
            break
    next(steps).run()  # looks for what the queues may lose
    store.delete_topic("T")
    if comes_back:
        store.append(new_record("T"))
        store.commit()
    for step in steps:
        step.run()
    assert read_all(store) == ({("T", 0): [(0, b"body")]} if comes_back else {})
