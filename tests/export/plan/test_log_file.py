"""Log files are looked at through windows, of which a remote one holds no more than it has to."""

import os
import pathlib

import fsspec
import pytest
from logbuilder import LogBuilder

from rocketlet.common.errors import StoreDamagedError, StoreError
from rocketlet.common.record import Verdict
from rocketlet.export.plan import log_file
from rocketlet.export.plan.filesystems import Storage
from rocketlet.export.plan.log_file import RemoteLogFile, check_at, map_log_file, record_at, size_at

BASE = 4096
PLACE = "memory://windows/00000000000000004096"


@pytest.fixture
def content(log: LogBuilder) -> bytes:
    """Return a log file of 4096 bytes with three records, the second of which is large."""
    for size in (40, 1500, 40):
        log.add(bytes([size % 251]) * size)
    return log.save().joinpath("commitlog", f"{0:020d}").read_bytes()


@pytest.fixture
def remote(content: bytes, monkeypatch: pytest.MonkeyPatch) -> RemoteLogFile:
    """Return that file behind a URL, read through windows of 500 bytes."""
    monkeypatch.setattr(log_file, "WINDOW_BYTES", 500)
    fsspec.filesystem("memory").pipe_file("/windows/00000000000000004096", content)
    return RemoteLogFile(PLACE, BASE, len(content), Storage())


@pytest.mark.parametrize(
    ("position", "least", "size"),
    [(0, 0, 500), (700, 1, 500), (700, 500, 500), (700, 501, 501), (100, 3000, 3000), (3_900, 8, 196), (4_000, 99, 96)],
)
def test_window_is_as_long_as_it_has_to_be(
    position: int, least: int, size: int, remote: RemoteLogFile, content: bytes
) -> None:
    """It begins where it is asked for, and is no longer than is wanted, than a window is, or than the file."""
    window = remote.window(position, least)
    assert (window.base_offset, window.size) == (BASE + position, size)
    assert window.view == content[position : position + size]


@pytest.mark.parametrize(
    ("position", "least", "is_kept"),
    [
        (1000, 0, True),
        (1000, 500, True),
        (1499, 1, True),
        (1200, 300, True),
        (1200, 301, False),
        (1500, 0, False),
        (999, 1, False),
        (999, 0, False),
    ],
)
def test_window_is_kept_while_it_holds_what_is_wanted(
    position: int, least: int, is_kept: bool, remote: RemoteLogFile
) -> None:
    """The last one is given again if all of the wanted bytes are in it, and one byte at least always is wanted."""
    window = remote.window(1_000)
    assert (remote.window(position, least) is window) == is_kept


def test_last_window_is_kept_though_more_is_wanted_than_the_file_has(remote: RemoteLogFile) -> None:
    """Nothing is fetched again for bytes behind the end."""
    window = remote.window(3_800, 10_000)
    assert window.size == 296
    assert remote.window(4_000, 500) is window


def test_file_that_has_become_shorter_is_an_error(remote: RemoteLogFile, content: bytes) -> None:
    """Of what is left whole windows are given; one that is not whole is none."""
    short = RemoteLogFile(PLACE, BASE, len(content) + 1, Storage())
    assert short.window(3_500).size == 500
    with pytest.raises(StoreError, match=r"memory://windows/0+4096 has become shorter than 4097 bytes"):
        short.window(4_000)


def test_remote_file_knows_no_holes(remote: RemoteLogFile) -> None:
    """Each position of it may hold data."""
    assert [remote.next_data(at) for at in (0, 7, 4_000)] == [0, 7, 4_000]


def test_remote_file_that_is_gone_is_one_sentence() -> None:
    """Its URL is named."""
    with pytest.raises(StoreError, match="memory://windows/gone cannot be read"):
        RemoteLogFile("memory://windows/gone", 0, 7, Storage())


def test_record_is_checked_and_read_through_small_windows(
    log: LogBuilder, content: bytes, remote: RemoteLogFile
) -> None:
    """A record that is longer than a window is fetched whole, and one that the limit cuts is torn."""
    first, second, third = log.offsets
    local = RemoteLogFile(PLACE, 0, len(content), Storage())
    assert [check_at(local, at) for at in log.offsets] == [second, third - second, log.end - third]
    assert [len(record_at(local, at).body) for at in log.offsets] == [40, 1500, 40]
    assert check_at(local, second, limit=third) == third - second
    assert check_at(local, second, limit=third - 1) == Verdict.TORN
    assert check_at(local, first, limit=50) < 0
    assert check_at(local, log.end) == Verdict.ZEROS
    assert check_at(remote, second) == Verdict.PLACE


@pytest.mark.parametrize(("limit", "size"), [(None, 4096), (20_000, 4096), (300, 500), (100, 500)])
def test_check_fetches_the_head_of_a_record(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch, limit: int | None, size: int
) -> None:
    """A few bytes are fetched to look at a small record, however large the file is, and fewer before a limit."""
    monkeypatch.setattr(log_file, "WINDOW_BYTES", 500)
    log.add(bytes(40))
    content = log.save().joinpath("commitlog", f"{0:020d}").read_bytes().ljust(20_000, b"\0")
    fsspec.filesystem("memory").pipe_file("/windows/long", content)
    file = RemoteLogFile("memory://windows/long", 0, len(content), Storage())
    assert (check_at(file, 0, limit=limit) > 0) == (limit != 100)
    assert file.window(0).size == size


def test_checksum_is_looked_at_when_it_is_asked_for(log: LogBuilder, content: bytes) -> None:
    """A body that changed is found by default, and not without the checksum; large bodies, too."""
    spoilt = content.replace(bytes([1500 % 251]) * 1500, b"?" * 1500)
    fsspec.filesystem("memory").pipe_file("/windows/spoilt", spoilt)
    file = RemoteLogFile("memory://windows/spoilt", 0, len(spoilt), Storage())
    second, third = log.offsets[1:]
    assert check_at(file, second) == Verdict.BODY_CRC
    assert check_at(file, second, checks_crc=False) == third - second


def test_size_is_zero_where_the_window_ends_before_it(remote: RemoteLogFile, log: LogBuilder) -> None:
    """Where all four bytes of it are in the window, it is what stands there."""
    first, second, third = log.offsets
    window = remote.window(first)
    assert size_at(window, remote, first) == second
    assert [size_at(window, remote, at) for at in (497, 500)] == [0, 0]
    assert size_at(remote.window(second), remote, second) == third - second
    window = remote.window(third - 496)
    assert size_at(window, remote, third) == log.end - third


def test_mapped_file_knows_its_holes(tmp_path: pathlib.Path) -> None:
    """The first position with data is told, the position itself where the file is gone, nothing behind the last."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"x")
    mapped = map_log_file(str(path), 0, 1 << 20)
    found = mapped.next_data(5)
    assert found is None or 5 <= found <= 1 << 19
    assert mapped.next_data(1 << 19) == 1 << 19
    path.unlink()
    assert mapped.next_data(5) == 5


def test_file_is_mapped_up_to_a_size(tmp_path: pathlib.Path) -> None:
    """It may be longer, or just as long; one that is shorter was cut."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert map_log_file(str(path), 0, 7).view == b"0123456"
    mapped = map_log_file(str(path), 0, 10)
    assert mapped.window(5, 3).view == b"0123456789"
    with pytest.raises(StoreDamagedError, match="it has 10 bytes and had 11"):
        map_log_file(str(path), 0, 11)
    os.truncate(path, 0)
    with pytest.raises(StoreDamagedError):
        mapped.window(0)
