"""Opening after a power loss that took names, lengths or entries which nothing had brought to the disk."""

import pathlib

import pytest
from stores import StoreDirectory, read_all, sample

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.store.files.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rocketlet.store.files.files import OS_FILES, Files, make_lasting_directory

FILE_BYTES = 4096


class _WatchedFiles(Files):
    """Notes which directories were flushed."""

    def __init__(self) -> None:
        self.flushed: list[str] = []

    def sync_directory(self, path: str) -> None:
        """Note the directory."""
        super().sync_directory(path)
        self.flushed.append(path)


def lose_after_first_file(directory: StoreDirectory, sure_at_ms: int) -> None:
    """Leave the store as killed, with a checkpoint that vouches for what was stored up to an instant."""
    directory.abort.write_text("1")
    path = str(directory.root / "checkpoint")
    checkpoint = load_checkpoint(OS_FILES, path)
    save_checkpoint(OS_FILES, path, checkpoint._replace(log_at_ms=sure_at_ms, queues_at_ms=sure_at_ms, index_at_ms=0))


def first_stored_at(directory: StoreDirectory) -> int:
    """Return the store time of the first message."""
    with directory.open() as store:
        return store.stored_at("T", 0, 0)


def test_empty_file_in_the_middle_ends_the_log(directory: StoreDirectory) -> None:
    """Files whose length never arrived hold nothing: the log ends before the first of them, and goes on there."""
    directory.fill(60)
    lose_after_first_file(directory, first_stored_at(directory))
    with directory.segment(1).open("r+b") as file:
        file.truncate(0)
    with directory.open() as store:
        assert store.log_max_offset == FILE_BYTES
        kept = sum(len(messages) for messages in read_all(store).values())
        assert 0 < kept < 60
        assert store.append(sample(1)).log_offset == FILE_BYTES
    assert not directory.segment(2).exists()


@pytest.mark.parametrize("is_clean", [True, False])
def test_empty_file_before_flushed_records_stops_the_start(directory: StoreDirectory, is_clean: bool) -> None:
    """An empty file is no cut-off creation when records behind it were surely on disk, and the error names it."""
    directory.fill(60)
    if not is_clean:
        lose_after_first_file(directory, directory.now_ms)
    with directory.segment(1).open("r+b") as file:
        file.truncate(0)
    with pytest.raises((ConfigError, StoreDamagedError), match=directory.segment(1).name):
        directory.open()


def test_missing_name_in_the_middle_ends_the_log(directory: StoreDirectory) -> None:
    """When the name of a file was lost, what follows was not flushed either and goes."""
    directory.fill(60)
    lose_after_first_file(directory, first_stored_at(directory))
    directory.segment(1).unlink()
    with directory.open() as store:
        assert store.log_max_offset == FILE_BYTES
    assert not directory.segment(2).exists()


def test_missing_file_before_flushed_records_stops_the_start(directory: StoreDirectory) -> None:
    """A file that is gone although records behind it were surely on disk stops the start, and nothing is removed."""
    directory.fill(60)
    lose_after_first_file(directory, directory.now_ms)
    directory.segment(1).unlink()
    with pytest.raises(StoreDamagedError, match=rf"{directory.segment(1).name} is missing before"):
        directory.open()
    assert directory.segment(2).exists()


def test_keys_that_were_meant_for_a_lost_index_file_are_found(directory: StoreDirectory) -> None:
    """A record whose keys went to two index files gets all of them again when only the first is left."""
    directory.fill(20)
    first, *others = sorted((directory.root / "index").iterdir())
    lose_after_first_file(directory, 0)
    end_at_ms = int.from_bytes(first.read_bytes()[8:16], "big")
    save_checkpoint(OS_FILES, str(directory.root / "checkpoint"), Checkpoint(0, 0, end_at_ms))
    for path in others:
        path.unlink()
    with directory.open() as store:
        tagged = [store.query("T", f"t{number}", 64, 0, 1 << 62, kind="T").log_offsets for number in range(3)]
    assert sorted(map(len, tagged)) == [6, 7, 7]


def test_index_files_that_never_got_their_headers_are_written_anew(directory: StoreDirectory) -> None:
    """Index files of zeros vouch for nothing, not even for the record at position 0."""
    directory.fill(20)
    lose_after_first_file(directory, 0)
    for path in (directory.root / "index").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    with directory.open() as store:
        assert store.query("T", "k0", 64, 0, 1 << 62).log_offsets == [0]


def test_lasting_directory_has_its_names_flushed(tmp_path: pathlib.Path) -> None:
    """Each directory that is made is flushed into the one above it, and one that exists costs nothing."""
    files = _WatchedFiles()
    make_lasting_directory(files, f"{tmp_path}/a/b")
    assert files.flushed == [str(tmp_path), f"{tmp_path}/a"]
    make_lasting_directory(files, f"{tmp_path}/a/b")
    assert len(files.flushed) == 2
