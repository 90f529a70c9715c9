"""Which files are the log of a store, and what the store says of itself."""

import pathlib
from collections.abc import Callable

import pytest
from logbuilder import LogBuilder

from rocketlet.common.errors import ConfigError
from rocketlet.export.plan import store_files
from rocketlet.export.plan.filesystems import FolderEntry, Storage
from rocketlet.export.plan.store_files import StoreMarks, find_files, find_gap, queues_of, read_store_marks
from rocketlet.store.files.checkpoint import Checkpoint, save_checkpoint
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.segments import SegmentFile

HERE = Storage()


def fill(log: LogBuilder, count: int = 90) -> pathlib.Path:
    """Write a log of several files."""
    for _ in range(count):
        log.add(bytes(50))
    return log.save()


@pytest.mark.parametrize(
    ("checkpoint", "closed", "killed"),
    [
        (None, StoreMarks(True, None, 0), StoreMarks(False, None, 0)),
        (Checkpoint(70, 90), StoreMarks(True, None, 90), StoreMarks(False, 70, 0)),
        (Checkpoint(90, 70), StoreMarks(True, None, 90), StoreMarks(False, 90, 0)),
        (Checkpoint(0, 70), StoreMarks(True, None, 70), StoreMarks(False, None, 0)),
        (Checkpoint(1, 0), StoreMarks(True, None, 1), StoreMarks(False, 1, 0)),
    ],
)
def test_marks_of_a_store(
    log: LogBuilder, checkpoint: Checkpoint | None, closed: StoreMarks, killed: StoreMarks
) -> None:
    """A closed store tells the later of both times as that of its newest record, a killed one what was flushed."""
    root = fill(log)
    if checkpoint is not None:
        save_checkpoint(OS_FILES, str(root / "checkpoint"), checkpoint)
    assert read_store_marks(str(root), HERE) == closed
    (root / "abort").touch()
    assert read_store_marks(str(root), HERE) == killed
    assert read_store_marks(f"{root}/commitlog", HERE) == killed


def test_queues_are_those_beside_the_log(log: LogBuilder) -> None:
    """However the log is named, and only where they are a directory."""
    root = fill(log)
    assert queues_of(str(root), HERE) is None
    (root / "consumequeue").touch()
    assert queues_of(str(root), HERE) is None
    (root / "consumequeue").unlink()
    (root / "consumequeue").mkdir()
    for place in (root, root / "commitlog"):
        assert queues_of(str(place), HERE) == str(root / "consumequeue")


@pytest.mark.parametrize(
    ("bases", "gap"),
    [([0], None), ([0, 10, 20], None), ([30, 40], None), ([0, 20], 1), ([0, 10, 30, 50], 2), ([0, 9], 1)],
)
def test_first_file_that_does_not_follow_is_found(bases: list[int], gap: int | None) -> None:
    """Each begins where the one before it ends."""
    assert find_gap([SegmentFile("", base, 10) for base in bases]) == gap


def spread(log: LogBuilder) -> str:
    """Move every second file into another directory, and return how the log is named then."""
    files = log.files()
    other = log.root / "more" / "commitlog"
    other.mkdir(parents=True)
    for path in files[1::2]:
        path.rename(other / path.name)
    return f"{log.root}/commitlog, {log.root}/more"


def test_log_in_several_directories_is_one(log: LogBuilder) -> None:
    """Its files are in the order of the log; each place is the directory of files or what holds it."""
    fill(log)
    names = [path.name for path in log.files()]
    ((store, files),) = find_files([place := spread(log)], HERE)
    assert store == place
    assert [pathlib.Path(file.path).name for file in files] == names
    assert [file.base_offset for file in files] == [int(name) for name in names]
    assert {file.size for file in files} == {4096}


def test_directories_of_a_log_may_be_file_urls(log: LogBuilder) -> None:
    """All of them, or some."""
    fill(log)
    names = [path.name for path in log.files()]
    first, second = spread(log).split(", ")
    for place in (f"file://{first},file://{second}", f"{first},file:{second}", f"file:{first},{second}"):
        ((_, files),) = find_files([place], HERE)
        assert [pathlib.Path(file.path).name for file in files] == names
        assert read_store_marks(place, HERE) == StoreMarks(True, None)


def test_missing_directory_of_several_is_named(log: LogBuilder) -> None:
    """The error says which of them is not there."""
    fill(log)
    with pytest.raises(ConfigError, match=f"is not a store: {log.root}/gone does not exist"):
        find_files([f"{log.root}/commitlog,{log.root}/gone"], HERE)


def test_directory_of_files_is_a_store_if_its_name_says_so(log: LogBuilder) -> None:
    """Another name is taken for a store without a log."""
    root = fill(log)
    ((_, files),) = find_files([f"{root}/commitlog/"], HERE)
    assert len(files) == len(log.files())
    (root / "commitlog").rename(root / "other")
    with pytest.raises(ConfigError, match="it has no directory commitlog"):
        find_files([f"{root}/other"], HERE)


@pytest.mark.parametrize("name", ["1" * 19, "1" * 21, "x" * 20, "٣" * 20, f"{0:019d}x"])
def test_names_of_other_files_are_passed_over(log: LogBuilder, name: str) -> None:
    """Only twenty digits name a file of the log."""
    root = fill(log)
    before = find_files([str(root)], HERE)
    (root / "commitlog" / name).write_bytes(b"x")
    assert find_files([str(root)], HERE) == before


@pytest.mark.parametrize(("late", "is_found"), [(1, True), (3, True), (4, False)])
def test_files_are_listed_again_while_one_is_missing(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch, late: int, is_found: bool
) -> None:
    """A file that a listing missed, since a broker made it meanwhile, is found by one of the next three."""
    root = fill(log)
    monkeypatch.setattr(store_files, "list_place", missing_at_first(store_files.list_place, late))
    ((_, files),) = find_files([str(root)], HERE)
    assert (find_gap(files) is None) == is_found


def missing_at_first(
    listed: Callable[[str, Storage], list[FolderEntry]], late: int
) -> Callable[[str, Storage], list[FolderEntry]]:
    """Return a listing that lacks the second file so many times."""
    calls: list[str] = []

    def list_late(place: str, storage: Storage) -> list[FolderEntry]:
        calls.append(place)
        found = listed(place, storage)
        return [entry for entry in found if len(calls) > late or int(entry.name) != 4096]

    return list_late


def test_complete_list_is_not_read_again(log: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing is enough where no file is missing."""
    root = fill(log)
    calls: list[str] = []
    listed = store_files.list_place

    def count(place: str, storage: Storage) -> list[FolderEntry]:
        calls.append(place)
        return listed(place, storage)

    monkeypatch.setattr(store_files, "list_place", count)
    find_files([str(root)], HERE)
    assert calls == [str(root / "commitlog")]
