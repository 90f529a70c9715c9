"""Config files: the old or the new text after a crash at any point, and Java's ``.bak`` rules."""

import errno
import json
import os
import pathlib
from collections.abc import Callable

import pytest
from census import count_descriptors
from stores import LimitedFiles

from rocketlet.common.errors import ConfigError
from rocketlet.store.files.config_files import (
    finish_config_texts,
    load_config,
    load_config_text,
    replace_file,
    save_config_text,
    save_config_texts,
)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    """Give a path in a directory that does not exist yet."""
    return str(tmp_path / "config" / "topics.json")


class CrashError(Exception):
    """The process ended here."""


class CrashingFiles(LimitedFiles):
    """Ends the process before the given rename."""

    def __init__(self, renames: int) -> None:
        super().__init__()
        self.renames = renames

    def rename(self, source: str, target: str) -> None:
        """Rename or crash."""
        if not self.renames:
            raise CrashError
        self.renames -= 1
        super().rename(source, target)


def test_text_is_saved_and_the_one_before_kept(path: str) -> None:
    """After two savings the file has the second text and ``.bak`` the first."""
    assert load_config_text(path) is None
    save_config_text(path, "eins")
    save_config_text(path, "zwei ü")
    assert load_config_text(path) == "zwei ü"
    assert pathlib.Path(f"{path}.bak").read_text() == "eins"
    assert sorted(one.name for one in pathlib.Path(path).parent.iterdir()) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("renames", [0, 1])
def test_crash_leaves_the_old_text(path: str, renames: int) -> None:
    """Before the first rename the file is there, between the two only ``.bak``; later savings work."""
    save_config_text(path, "old")
    with pytest.raises(CrashError):
        save_config_text(path, "new", CrashingFiles(renames))
    assert load_config_text(path) == "old"
    save_config_text(path, "newer")
    assert load_config_text(path) == "newer"


def test_full_disk_changes_nothing(path: str) -> None:
    """The error reaches the caller, the file keeps its text."""
    save_config_text(path, "old")
    disk = LimitedFiles()
    disk.room = 2
    with pytest.raises(OSError, match="No space left") as caught:
        save_config_text(path, "new text", disk)
    assert caught.value.errno == errno.ENOSPC
    assert load_config_text(path) == "old"


@pytest.mark.parametrize("broken", ["", "{", None])
def test_missing_empty_or_unusable_file_gives_way_to_its_backup(path: str, broken: str | None) -> None:
    """As ``ConfigManager.load`` does."""
    save_config_text(path, '{"a": 1}')
    save_config_text(path, '{"a": 2}')
    if broken is None:
        pathlib.Path(path).unlink()
    else:
        pathlib.Path(path).write_text(broken)
    assert load_config(path, json.loads) == {"a": 1}


def test_unusable_backup_stops_the_start(path: str) -> None:
    """Going on with defaults would forget what the file said."""
    save_config_text(path, "{")
    with pytest.raises(ConfigError, match=r"cannot be parsed: .*; there is no other copy beside it; restore a copy"):
        load_config(path, json.loads)
    save_config_text(path, "[")
    with pytest.raises(ConfigError, match=r"\.bak cannot be parsed"):
        load_config(path, json.loads)


@pytest.mark.parametrize("backup", [None, "", "{"])
def test_empty_file_is_a_damaged_one(path: str, backup: str | None) -> None:
    """No writer leaves one: without a good copy the start ends, instead of forgetting what stood there."""
    pathlib.Path(path).parent.mkdir()
    pathlib.Path(path).touch()
    if backup is not None:
        pathlib.Path(f"{path}.bak").write_text(backup)
    with pytest.raises(ConfigError, match=r"topics\.json cannot be parsed: it holds 0 characters.*restore a copy"):
        load_config(path, json.loads)


@pytest.mark.parametrize("broken", ["", "{", "\0\0"])
def test_damaged_file_never_takes_the_place_of_a_good_copy(path: str, broken: str) -> None:
    """Whoever owns the file sets it aside; a reader leaves everything as it is."""
    save_config_text(path, '{"a": 1}')
    save_config_text(path, '{"a": 2}')
    pathlib.Path(path).write_text(broken)
    assert load_config(path, json.loads) == {"a": 1}
    assert pathlib.Path(path).read_text() == broken
    assert load_config(path, json.loads, sets_aside=True) == {"a": 1}
    save_config_text(path, '{"a": 3}')
    assert pathlib.Path(f"{path}.bak").read_text() == '{"a": 1}'
    assert pathlib.Path(f"{path}.damaged").read_text() == broken
    assert load_config(path, json.loads) == {"a": 3}


def test_error_of_a_file_that_cannot_be_made_is_told(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason reaches the caller, and not that there is nothing to clean up."""

    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    disk = LimitedFiles()
    monkeypatch.setattr(disk, "create", fail)
    with pytest.raises(OSError, match="Too many open files"):
        save_config_text(path, "new", disk)


def test_passed_over_file_is_logged(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever starts with the backup is told that the newer text could not be used."""
    save_config_text(path, "{}")
    save_config_text(path, "{")
    assert load_config(path, json.loads) == {}
    assert f"{path} cannot be parsed: " in caplog.text
    assert f"going on with {path}.bak" in caplog.text


def test_unreadable_file_stops_the_start(path: str) -> None:
    """A file, or its directory, that is there but cannot be read is not a missing one, and its backup is not used."""
    save_config_text(path, "{}")
    save_config_text(path, "{}")
    pathlib.Path(path).unlink()
    pathlib.Path(path).mkdir()
    with pytest.raises(ConfigError, match=r"topics\.json cannot be read: Is a directory"):
        load_config(path, json.loads)
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        load_config(f"{path}.bak/topics.json", json.loads)


def test_missing_files_mean_defaults(path: str) -> None:
    """Neither file is an error."""
    parse: Callable[[str], object] = json.loads
    assert load_config(path, parse) is None


class NotingFiles(LimitedFiles):
    """Notes what reaches the disk, and in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def sync(self, descriptor: int) -> None:
        """Note it."""
        self.calls.append("sync file")
        super().sync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Note the directory."""
        self.calls.append(f"sync {os.path.basename(path)}")
        super().sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Note both names."""
        self.calls.append(f"{os.path.basename(source)} to {os.path.basename(target)}")
        super().rename(source, target)


def test_each_step_of_a_saving_is_on_disk_before_the_next(path: str) -> None:
    """The new text before it gets the name, the copy of the old one before that; an empty file makes no copy."""
    files = NotingFiles()
    os.mkdir(os.path.dirname(path))
    new_name = ["topics.json.tmp to topics.json", "sync config"]
    for before, steps in ((None, []), ("", []), ("old", ["topics.json to topics.json.bak", "sync config"])):
        if before is not None:
            pathlib.Path(path).write_text(before)
        files.calls.clear()
        save_config_text(path, "new", files)
        assert files.calls == ["sync file", *steps, *new_name]
    assert pathlib.Path(f"{path}.bak").read_text() == "old"


def test_no_config_file_stays_open(path: str) -> None:
    """Whether it is read or written, and whether that succeeds."""
    before = count_descriptors()
    save_config_text(path, "old")
    assert load_config_text(path) == "old"
    disk = LimitedFiles()
    disk.room = 2
    with pytest.raises(OSError, match="No space left"):
        save_config_text(path, "new text", disk)
    os.unlink(path)
    os.mkdir(path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config_text(path)
    assert count_descriptors() == before
    assert os.listdir(os.path.dirname(path)) == ["topics.json"]


def test_replaced_file_is_the_old_or_the_new_one(path: str) -> None:
    """A crash before the rename leaves the old text, and what lies beside it does not disturb the next time."""
    replace_file(path, b"old")
    with pytest.raises(CrashError):
        replace_file(path, b"new and longer", CrashingFiles(0))
    assert pathlib.Path(path).read_bytes() == b"old"
    replace_file(path, b"new")
    assert [(one.name, one.read_bytes()) for one in pathlib.Path(path).parent.iterdir()] == [("topics.json", b"new")]


def test_replaced_file_keeps_its_permissions(path: str) -> None:
    """They may keep secrets from others."""
    replace_file(path, b"old")
    pathlib.Path(path).chmod(0o600)
    replace_file(path, b"new")
    assert pathlib.Path(path).stat().st_mode & 0o777 == 0o600


def test_file_that_cannot_be_replaced_is_left_alone(path: str) -> None:
    """A full disk is told, and nothing lies beside the file."""
    replace_file(path, b"old")
    disk = LimitedFiles()
    disk.room = 2
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new text", disk)
    assert [(one.name, one.read_bytes()) for one in pathlib.Path(path).parent.iterdir()] == [("topics.json", b"old")]


# --- several at once


@pytest.fixture
def together(path: str) -> tuple[dict[str, str], str]:
    """Return two files that hold old texts, with the new ones, and the path of their journal."""
    folder = os.path.dirname(path)
    texts = {path: "new topics", os.path.join(folder, "offsets.json"): "new offsets"}
    for each in texts:
        save_config_text(each, "old")
    return texts, os.path.join(folder, "tables.journal")


@pytest.mark.parametrize(
    ("renames", "expected"),
    [
        (0, {"old"}),  # of the journal: it is not there yet
        *((renames, {"new topics", "new offsets"}) for renames in range(1, 5)),
    ],
)
def test_crash_leaves_all_files_or_none(together: tuple[dict[str, str], str], renames: int, expected: set[str]) -> None:
    """The next start finishes what the journal names, and takes the journal away; once more changes nothing."""
    texts, journal = together
    with pytest.raises(CrashError):
        save_config_texts(texts, journal, CrashingFiles(renames))
    for _ in range(2):
        finish_config_texts(journal)
        assert {load_config_text(each) for each in texts} == expected
        assert not os.path.exists(journal)


def test_files_that_have_changed_since_are_left_alone(together: tuple[dict[str, str], str]) -> None:
    """What somebody has written behind a journal counts, as when the directory went to a Java broker meanwhile."""
    (texts, journal), (first, second) = together, together[0]
    with pytest.raises(CrashError):
        save_config_texts(texts, journal, CrashingFiles(1))
    save_config_text(first, "newer")
    finish_config_texts(journal)
    assert [load_config_text(each) for each in (first, second)] == ["newer", "new offsets"]


def test_file_that_cannot_be_written_costs_the_others_nothing(together: tuple[dict[str, str], str]) -> None:
    """It is told, and the journal stays until it could be written."""
    (texts, journal), (first, second) = together, together[0]
    os.mkdir(f"{first}.tmp")
    assert list(save_config_texts(texts, journal)) == [first]
    assert [load_config_text(each) for each in (first, second)] == ["old", "new offsets"]
    os.rmdir(f"{first}.tmp")
    finish_config_texts(journal)
    assert load_config_text(first) == "new topics"


def test_journal_that_cannot_be_written_is_left_out(together: tuple[dict[str, str], str]) -> None:
    """The files are written one after the other, as far as there is room for them."""
    texts, journal = together
    os.mkdir(f"{journal}.tmp")
    assert not save_config_texts(texts, journal)
    assert {load_config_text(each) for each in texts} == {"new topics", "new offsets"}
    assert not os.path.exists(journal)


def test_one_file_needs_no_journal(together: tuple[dict[str, str], str]) -> None:
    """It is the old or the new one by itself."""
    texts, journal = together
    files = NotingFiles()
    (path, text), *_ = texts.items()
    assert not save_config_texts({path: text}, journal, files)
    assert not any("journal" in call for call in files.calls)


def test_journal_that_cannot_be_read_stops_the_start(together: tuple[dict[str, str], str]) -> None:
    """Half of a change is not what anybody asked for; the message says how to go on."""
    _, journal = together
    pathlib.Path(journal).write_text("{")
    with pytest.raises(ConfigError, match=r"tables\.journal cannot be parsed: .*; remove it to go on without"):
        finish_config_texts(journal)
