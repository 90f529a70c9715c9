"""A log in several directories: where each file goes, and that the whole is one log again."""

import os
import pathlib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from retention import MeasuredFiles, cleaned_directory
from stores import LimitedFiles, StoreDirectory, read_all, sample

from rocketlet.common.errors import ConfigError, StoreDamagedError, StoreFullError
from rocketlet.export.plan.filesystems import Storage, split_places
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore

FILE_BYTES = 4096


@pytest.fixture
def disks(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    """Give the directories of the log, in the order of their names."""
    return [tmp_path / name for name in ("a", "b", "c")]


@pytest.fixture
def spread(tmp_path: pathlib.Path, disks: list[pathlib.Path]) -> Iterator[StoreDirectory]:
    """Give a store, not yet made, whose log lies in three directories."""
    directory = make(tmp_path, disks)
    yield directory
    directory.close_all()


def make(tmp_path: pathlib.Path, disks: list[pathlib.Path], **settings: tuple[str, ...]) -> StoreDirectory:
    """Return a store whose log lies in these directories."""
    return cleaned_directory(
        tmp_path / "store", log_directories=tuple(map(str, reversed(disks))), cleaning=None, **settings
    )


def held(disk: pathlib.Path) -> list[int]:
    """Return the numbers of the files in a directory."""
    return sorted(int(path.name) // FILE_BYTES for path in disk.iterdir())


def fill(store: MessageStore, numbers: range) -> None:
    """Write messages."""
    for number in numbers:
        store.append(sample(number))
        store.commit()
        store.flush()


def test_files_take_turns(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """File k lies in directory k mod n, by the order of the names; nothing lies elsewhere."""
    spread.fill(120)
    assert [held(disk) for disk in disks] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert not (spread.root / "commitlog").exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_log_in_several_directories_is_opened_again(
    spread: StoreDirectory, disks: list[pathlib.Path], is_killed: bool
) -> None:
    """All is read after a restart, and writing goes on; a prepared file is removed where it lies."""
    store = spread.open()
    fill(store, range(110))
    before = read_all(store)
    spread.close_all()
    if is_killed:
        spread.abort.touch()
        spare = max(number for disk in disks for number in held(disk)) + 1
        (disks[spare % 3] / f"{spare * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    store = spread.open()
    assert read_all(store) == before
    fill(store, range(110, 160))
    assert sum(map(len, read_all(store).values())) == 160
    spread.close_all()
    assert sorted(number for disk in disks for number in held(disk)) == list(range(10))


def test_read_only_directory_gets_no_files(tmp_path: pathlib.Path, disks: list[pathlib.Path]) -> None:
    """Its files are part of the log."""
    first = make(tmp_path, disks[:1])
    first.fill(60)
    before = held(disks[0])
    second = make(tmp_path, disks, read_only_directories=(str(disks[0]),))
    second.now_ms = first.now_ms
    disks[1].mkdir()
    disks[2].mkdir()
    store = second.open()
    fill(store, range(60, 160))
    assert held(disks[0]) == before
    assert held(disks[1])
    assert held(disks[2])
    assert sum(map(len, read_all(store).values())) == 160
    second.close_all()


def test_directory_that_is_too_full_gets_no_files(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """Above the forced level it is passed over, until it has room again; the least full one counts for the store."""
    disk = MeasuredFiles(10)
    disk.percents[str(disks[1])] = 95
    store = spread.open(disk)
    store.clean_now()
    fill(store, range(120))
    assert store.refusal is None
    assert held(disks[1]) == []
    assert sorted(held(disks[0]) + held(disks[2])) == list(range(8))
    disk.percents[str(disks[1])] = 50
    store.clean_now()
    fill(store, range(120, 170))
    assert held(disks[1])
    disk.percents = {"/": 89}
    store.clean_now()
    fill(store, range(170, 220))
    assert sum(map(len, read_all(store).values())) > 0
    assert store.refusal is None


def test_cleaning_deletes_from_all_directories_in_order(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """The first file goes first, wherever it lies, and each directory is synced before the next file goes."""
    disk = MeasuredFiles(95)
    spread.fill(120)
    store = spread.open(disk)
    store.clean_now()
    assert [path for path in disk.removed if "consumequeue" not in path and "index" not in path] == [
        str(disks[number % 3] / f"{number * FILE_BYTES:020d}") for number in range(7)
    ]
    assert [held(one) for one in disks] == [[], [7], []]
    spread.close_all()
    assert spread.open().log_min_offset == 7 * FILE_BYTES


def test_write_that_fails_in_one_directory_is_taken_back(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """A new file that cannot be filled is removed from its directory, and made again when there is room."""
    disk = LimitedFiles()
    store = spread.open(disk)
    number = 0
    while FILE_BYTES - store.log_max_offset % FILE_BYTES > 250:
        fill(store, range(number, number + 1))
        number += 1
    following = store.log_max_offset // FILE_BYTES + 1
    disk.room = 100
    store.append(sample(number))
    with pytest.raises(StoreFullError):
        store.commit()
    assert following not in held(disks[following % 3])
    disk.room = None
    fill(store, range(number, 100))
    assert following in held(disks[following % 3])
    assert sum(map(len, read_all(store).values())) == 100


def test_missing_directory_stops_the_start(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """A disk that is not mounted is named, and nothing is made in its place."""
    spread.fill(120)
    disks[1].rename(disks[1].with_name("elsewhere"))
    with pytest.raises(ConfigError, match=r"/b, which does not exist, while other directories hold the log"):
        spread.open()
    assert not disks[1].exists()
    disks[1].mkdir()
    with pytest.raises(StoreDamagedError, match="is missing before"):
        spread.open()
    disks[1].rmdir()
    disks[1].with_name("elsewhere").rename(disks[1])
    assert sum(map(len, read_all(spread.open()).values())) == 120


def test_missing_read_only_directory_stops_the_start(tmp_path: pathlib.Path, disks: list[pathlib.Path]) -> None:
    """Also when there is no log yet: it is never made."""
    with pytest.raises(ConfigError, match=r"readOnlyCommitLogStorePaths names .*/a, which does not exist"):
        make(tmp_path, disks, read_only_directories=(str(disks[0]),)).open()


def test_same_file_in_two_directories_stops_the_start(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """Nobody can tell which one counts."""
    spread.fill(60)
    (disks[2] / f"{0:020d}").write_bytes(bytes(FILE_BYTES))
    with pytest.raises(StoreDamagedError, match="hold the same part of the log"):
        spread.open()


@pytest.mark.skipif(os.geteuid() == 0, reason="platform: root may read everything")
def test_unreadable_directory_stops_the_start(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """The directory is named."""
    spread.fill(60)
    disks[1].chmod(0)
    with pytest.raises(ConfigError, match="/b: Permission denied"):
        spread.open()
    disks[1].chmod(0o755)


def test_file_in_place_of_a_directory_stops_the_start(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """It is named."""
    disks[1].write_text("in the way")
    with pytest.raises(ConfigError, match="/b: "):
        spread.open()


def test_settings_are_javas(tmp_path: pathlib.Path) -> None:
    """Both keys list directories between commas; blanks around them do not count."""
    settings = {
        "storePathRootDir": "/data",
        "storePathCommitLog": "/b, /a",
        "readOnlyCommitLogStorePaths": "/c",
    }
    config = StoreConfig.from_java(settings)
    assert config.all_log_directories == ("/b", "/a", "/c")
    with pytest.raises(ConfigError, match="names no directory that is not in readOnly"):
        StoreConfig.from_java({**settings, "readOnlyCommitLogStorePaths": "/a,/b"})


def test_store_with_a_comma_in_its_path_is_one_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Java's keys list directories: nothing lies outside the store, and a second one like it loses nothing."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    one, other = (cleaned_directory(tmp_path / name / "a, b,c") for name in ("one", "other"))
    for directory in (one, other):
        directory.fill(60)
        directory.config = replace(directory.config)  # as whoever changes another setting does
    assert [sum(map(len, read_all(directory.open()).values())) for directory in (one, other)] == [60, 60]
    one.close_all()
    other.close_all()
    assert {path.name for path in tmp_path.iterdir()} == {"here", "one", "other"}
    assert [path.name for name in ("here", "one", "other") for path in (tmp_path / name).iterdir()] == ["a, b,c"] * 2
    assert StoreAudit(one.config).run().is_sound
    for given in (one.root, one.root / "commitlog", f"file://{one.root}", f"{tmp_path}/*/a, b,c"):
        assert split_places(str(given), Storage()) == [str(given)]
    assert {split.store for split in plan_stores([f"{tmp_path}/*/a, b,c"])} == {str(one.root), str(other.root)}


def test_settings_of_a_store_with_a_comma_can_be_printed_and_read_again(tmp_path: pathlib.Path) -> None:
    """The path of the log is printed where it was given; printed settings are the same store again."""
    config = StoreConfig(str(tmp_path / "a,b"))
    again = StoreConfig.from_java({"storePathRootDir": config.root, "storePathCommitLog": config.log_path_list})
    assert again.log_directories == config.log_directories == (str(tmp_path / "a,b" / "commitlog"),)


def test_log_in_several_directories_is_planned_as_one_store(spread: StoreDirectory, disks: list[pathlib.Path]) -> None:
    """A reader that is given the directories as Java's key lists them gets the whole log in order."""
    spread.fill(120)
    splits = plan_stores([",".join(map(str, disks))])
    assert [split.base_offset for split in splits] == [number * FILE_BYTES for number in range(8)]
    with pytest.raises(ConfigError, match="/d does not exist"):
        plan_stores([",".join(map(str, [*disks, disks[0].with_name("d")]))])
