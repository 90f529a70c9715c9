"""What is flushed when, in which order, and how files leave."""

import errno
import os
import pathlib

import pytest
from census import count_descriptors

from rocketlet.store.files.file_sync import (
    DUE_AT_ONCE,
    SIDE_BY_SIDE_FROM,
    FileRemoval,
    SlowStep,
    UnsyncedFiles,
    sync_all,
)
from rocketlet.store.files.files import OS_FILES, Descriptors, Files, make_lasting_directory, make_tree, write_label


class NotedFiles(Files):
    """Notes what is flushed and removed; fails where it is told to."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.failing: set[str] = set()
        self.names: dict[int, str] = {}

    def open(self, path: str, *, writable: bool = False) -> int:
        """Note who it is."""
        descriptor = super().open(path, writable=writable)
        self.names[descriptor] = os.path.basename(path)
        return descriptor

    def sync(self, descriptor: int) -> None:
        """Note the file."""
        name = self.names[descriptor]
        self.noted.append(name)
        if name in self.failing:
            raise OSError(errno.EIO, "broken", name)

    def sync_directory(self, path: str) -> None:
        """Note the directory."""
        if not os.path.isdir(path):
            raise FileNotFoundError(errno.ENOENT, "gone", path)
        self.noted.append(f"{os.path.basename(path)}/")

    def unlink(self, path: str) -> None:
        """Note the file; fail when told to."""
        if os.path.basename(path) in self.failing:
            raise OSError(errno.EIO, "broken", path)
        super().unlink(path)
        self.noted.append(f"-{os.path.basename(path)}")

    def remove_directory(self, path: str) -> None:
        """Note the directory."""
        super().remove_directory(path)
        self.noted.append(f"-{os.path.basename(path)}/")


def test_files_are_taken_when_enough_was_written() -> None:
    """At least so many bytes, in the order of the first write; the others wait, what was added does not."""
    files = UnsyncedFiles({"a": 10, "b": 9, "c": 11})
    files.add("d")
    assert files["d"] == DUE_AT_ONCE
    assert files.take(10) == ["a", "c", "d"]
    assert dict(files) == {"b": 9}
    files.add("a")
    files.discard("b")
    files.discard("nobody")
    assert files.take(10) == ["a"]
    assert files.take() == []
    files["e"] = 0
    assert files.take() == ["e"]
    assert not files


@pytest.mark.parametrize("count", [1, SIDE_BY_SIDE_FROM - 1, SIDE_BY_SIDE_FROM, SIDE_BY_SIDE_FROM + 13])
def test_directories_are_flushed_after_all_files(tmp_path: pathlib.Path, count: int) -> None:
    """However many there are; each once, and what has been removed is passed over."""
    paths = [tmp_path / f"{number}" for number in range(count)]
    for path in paths:
        path.touch()
    before = count_descriptors()
    files = NotedFiles()
    sync_all(files, [*map(str, paths), str(tmp_path / "gone")], [str(tmp_path), str(tmp_path / "none")])
    assert sorted(files.noted[:-1]) == sorted(path.name for path in paths)
    assert files.noted[-1] == f"{tmp_path.name}/"
    assert count_descriptors() == before


@pytest.mark.parametrize("count", [3, SIDE_BY_SIDE_FROM + 3])
def test_failed_flush_is_told(tmp_path: pathlib.Path, count: int) -> None:
    """No directory follows, and nothing stays open."""
    paths = [tmp_path / f"{number}" for number in range(count)]
    for path in paths:
        path.touch()
    before = count_descriptors()
    files = NotedFiles()
    files.failing = {"1"}
    with pytest.raises(OSError, match="broken"):
        sync_all(files, list(map(str, paths)), [str(tmp_path)])
    assert f"{tmp_path.name}/" not in files.noted
    assert count_descriptors() == before


def test_each_name_is_gone_for_certain_before_the_next_is_touched(tmp_path: pathlib.Path) -> None:
    """Then go the directories that are empty; one that is not stays, and one that is gone is no failure."""
    for name in ("one/a", "one/b", "two/c", "two/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = NotedFiles()
    names = ["one/a", "one/gone", "one/b", "two/c"]
    removal = FileRemoval(
        files, [str(tmp_path / name) for name in names], [str(tmp_path / each) for each in ("one", "two", "no")]
    )
    removal.run()
    assert files.noted == ["-a", "one/", "one/", "-b", "one/", "-c", "two/", "-one/", f"{tmp_path.name}/"]
    assert (removal.removed, removal.error) == (4, None)
    assert (tmp_path / "two" / "d").exists()


def test_removal_ends_at_what_cannot_be_removed(tmp_path: pathlib.Path) -> None:
    """The error is kept, and how many went before it."""
    for name in "abc":
        (tmp_path / name).touch()
    files = NotedFiles()
    files.failing = {"b"}
    removal = FileRemoval(files, [str(tmp_path / name) for name in "abc"], [str(tmp_path)])
    removal.run()
    assert removal.removed == 1
    assert removal.error is not None
    assert removal.error.filename == str(tmp_path / "b")
    assert files.noted == ["-a", f"{tmp_path.name}/"]


def test_tree_is_made_and_the_directories_with_new_names_are_told(tmp_path: pathlib.Path) -> None:
    """From below; none when it is there."""
    path = tmp_path / "a" / "b"
    assert make_tree(OS_FILES, str(path)) == [str(tmp_path / "a"), str(tmp_path)]
    assert path.is_dir()
    assert make_tree(OS_FILES, str(path)) == []


def test_lasting_directory_is_flushed_from_above(tmp_path: pathlib.Path) -> None:
    """Each directory that got a new name; a second time there is nothing to do."""
    files = NotedFiles()
    make_lasting_directory(files, str(tmp_path / "a" / "b"))
    assert files.noted == [f"{tmp_path.name}/", "a/"]
    assert (tmp_path / "a" / "b").is_dir()
    make_lasting_directory(files, str(tmp_path / "a" / "b"))
    assert files.noted == [f"{tmp_path.name}/", "a/"]


def test_paths_without_a_directory_are_of_the_current_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whoever gives a mere name means it."""
    monkeypatch.chdir(tmp_path)
    assert make_tree(OS_FILES, "x") == [os.curdir]
    make_lasting_directory(OS_FILES, "")
    make_lasting_directory(OS_FILES, "y")
    assert make_tree(OS_FILES, "") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


class FullFiles(Files):
    """Fails each write."""

    def __init__(self, number: int) -> None:
        self._number = number

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Fail."""
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.EIO])
def test_label_may_miss_on_a_full_disk_only(tmp_path: pathlib.Path, number: int) -> None:
    """Another failure of the disk is one."""
    descriptor = OS_FILES.create(str(tmp_path / "x"), 0)
    try:
        if number == errno.EIO:
            with pytest.raises(OSError, match="Input/output"):
                write_label(FullFiles(number), descriptor, b"1")
        else:
            write_label(FullFiles(number), descriptor, b"1")
        write_label(OS_FILES, descriptor, b"1")
        assert (tmp_path / "x").read_bytes() == b"1"
    finally:
        OS_FILES.close(descriptor)


def test_file_used_longest_ago_is_closed_for_another(tmp_path: pathlib.Path) -> None:
    """So many stay open; one that was asked for again stays, one that was dropped leaves its place."""
    files = NotedFiles()
    paths = [str(tmp_path / f"{number}") for number in range(6)]
    before = count_descriptors()
    opened = Descriptors(files, 5)
    for path in paths[:5]:
        OS_FILES.pwrite(opened.create(path, 10), b"x", 9)
    kept = opened.get(paths[0])
    opened.create(paths[5], 10)
    assert count_descriptors() == before + 5
    assert opened.get(paths[0]) == kept
    assert files.names == {}
    assert OS_FILES.pread(opened.get(paths[1]), 10, 0) == bytes(9) + b"x"
    assert sorted(files.names.values()) == ["1"]
    opened.drop(paths[1])
    opened.drop(paths[1])
    assert count_descriptors() == before + 4
    opened.close()
    assert count_descriptors() == before


def test_at_least_four_files_stay_open(tmp_path: pathlib.Path) -> None:
    """However few there may be."""
    before = count_descriptors()
    opened = Descriptors(OS_FILES, 0)
    for number in range(6):
        opened.create(str(tmp_path / f"{number}"), 1)
    assert count_descriptors() == before + 4
    opened.close()


def test_step_is_followed_by_the_next_at_once() -> None:
    """Unless a pause is asked for."""
    assert [SlowStep(print).pause_ms, SlowStep(print, 7).pause_ms] == [0, 7]
