"""What stops the opening of a directory before anything is written to it, and how much of the process a store takes."""

import pathlib
import resource

import pytest
from stores import StoreDirectory, file_bytes, new_record, read_all
from syncs import NamedFiles, RecordedSyncs

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore


def test_log_directory_that_cannot_be_made_stops_the_start(tmp_path: pathlib.Path) -> None:
    """It is named at the opening and not by the first message; the directory stays free and clean."""
    (tmp_path / "file").touch()
    config = StoreConfig(str(tmp_path / "store"), log_directories=(str(tmp_path / "file" / "log"),))
    with pytest.raises(ConfigError, match="file/log"):
        MessageStore.open(config, now_ms=lambda: 0, store_host=bytes(8))
    assert not (tmp_path / "store" / "abort").exists()
    MessageStore.open(StoreConfig(config.root), now_ms=lambda: 0, store_host=bytes(8)).close()


def limit_descriptors(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Let the store believe that the process may have so many descriptors."""

    def tell(_kind: int) -> tuple[int, int]:
        return limit, limit

    monkeypatch.setattr(resource, "getrlimit", tell)


@pytest.mark.parametrize(("limit", "sharers", "most"), [(64, 1, 16), (64, 2, 8), (90, 2, 11), (1 << 20, 128, 32)])
def test_store_takes_its_share_of_the_descriptors(
    directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch, limit: int, sharers: int, most: int
) -> None:
    """A quarter of the limit, and no more than 4096, for the queue files of all stores of the process."""
    limit_descriptors(monkeypatch, limit)
    directory = StoreDirectory(directory.root, sharers=sharers, has_index=False)
    disk = NamedFiles()
    with directory.open(disk) as store:
        for queue_id in range(most + 3):
            assert sum("consumequeue" in path for path in disk.opened.values()) == min(queue_id, most)
            store.append(new_record(queue_id=queue_id))
            store.commit()
    assert list(disk.opened.values()) == []


@pytest.mark.parametrize("damage", ["a wrong size", "a damaged record"])
def test_store_that_is_not_opened_leaves_nothing_open(directory: StoreDirectory, damage: str) -> None:
    """Neither files nor the lock: when it is put right, the same process opens it."""
    directory.fill(40)
    sound = directory.segment(1).read_bytes()
    directory.segment(1).write_bytes(sound[:100] if damage == "a wrong size" else sound[:100] + b"\1" + sound[101:])
    disk = NamedFiles()
    with pytest.raises((ConfigError, StoreDamagedError)):
        directory.open(disk)
    assert list(disk.opened.values()) == []
    directory.segment(1).write_bytes(sound)
    with directory.open() as store:
        assert store.max_offset("T", 0) == 14


@pytest.mark.parametrize("sign", ["consumequeue/CURRENT", "dledger-broker/0", "compaction/compactionLog/T/0"])
def test_directory_of_another_format_is_left_alone(directory: StoreDirectory, sign: str) -> None:
    """It is named, nothing is written, and the lock is free again."""
    directory.fill(3)
    (directory.root / sign).parent.mkdir(parents=True, exist_ok=True)
    (directory.root / sign).write_bytes(b"")
    before = file_bytes(directory.root)
    with pytest.raises(ConfigError, match=f"{sign.rpartition('/')[0]}.*not built"):
        directory.open()
    assert file_bytes(directory.root) == before
    (directory.root / sign).unlink()
    if not sign.startswith("consume"):
        (directory.root / sign).parent.rmdir()
    directory.open()


class CountedMaps(Files):
    """Knows how many files were mapped."""

    mapped = 0

    def map(self, path: str, size: int) -> memoryview:
        """Count and map."""
        self.mapped += 1
        return super().map(path, size)


@pytest.mark.parametrize(("limit", "sharers", "most"), [(64, 1, 8), (64, 2, 4), (64, 9, 4), (1 << 20, 64, 8)])
def test_store_takes_its_share_of_the_maps(
    directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch, limit: int, sharers: int, most: int
) -> None:
    """An eighth of the limit, and no more than 512, for the log files of all stores, but at least 4 for each."""
    directory.fill(12, size=3_700)
    limit_descriptors(monkeypatch, limit)
    directory = StoreDirectory(directory.root, sharers=sharers)
    for files, expected in [(most, most), (most + 1, 2 * most + 2)]:
        disk = CountedMaps()
        with directory.open(disk) as store:
            disk.mapped = 0
            for _ in range(2):
                for number in range(files):
                    assert store.record_at(number * 4096) is not None
            assert disk.mapped == expected


@pytest.mark.parametrize("damage", ["nothing", "timerlog/notes", "timerlog/00000000000000000000"])
def test_store_knows_whether_it_had_timers(directory: StoreDirectory, damage: str) -> None:
    """Whatever became of their files: ``timercheck`` says it."""
    for has_timers in (False, True):
        if damage != "nothing":
            (directory.root / "timerlog").mkdir(parents=True, exist_ok=True)
            (directory.root / damage).write_bytes(b"")
        with directory.open() as store:
            assert store.has_timers is has_timers
        (directory.root / "config").mkdir(exist_ok=True)
        (directory.root / "config" / "timercheck").write_bytes(bytes(4096))


@pytest.mark.parametrize("is_killed", [False, True])
def test_log_files_are_used_where_they_lie(tmp_path: pathlib.Path, *, is_killed: bool) -> None:
    """Though new ones would be made in another of the directories, as after one was added."""
    folders = tuple(str(tmp_path / name) for name in ("a", "b", "c"))
    directory = StoreDirectory(tmp_path / "store", log_directories=folders[1:])
    directory.fill(60)
    places = {path.name: path for folder in folders[1:] for path in pathlib.Path(folder).iterdir()}
    assert len(places) == 4
    if is_killed:
        directory.abort.touch()
    (tmp_path / "a").mkdir()
    directory = StoreDirectory(directory.root, log_directories=folders)
    with directory.open() as store:
        assert sum(map(len, read_all(store).values())) == 60
    assert {path.name: path for folder in folders for path in pathlib.Path(folder).iterdir()} == places


@pytest.mark.parametrize("is_full", [False, True])
def test_clean_start_flushes_the_last_file_of_the_log(directory: StoreDirectory, *, is_full: bool) -> None:
    """Its end may have been cut; also when it ends with the file, as a copy of a master's log may."""
    directory.fill(20)
    twin = StoreDirectory(directory.root.with_name("twin"))
    with twin.open() as store:
        store.append_copy(0, directory.segment().read_bytes()[: 4096 if is_full else 3_857])
    disk = RecordedSyncs()
    with twin.open(disk) as store:
        assert store.log_max_offset == (4096 if is_full else 3_857)
        assert disk.synced[0].endswith(f"commitlog/{0:020d}")
