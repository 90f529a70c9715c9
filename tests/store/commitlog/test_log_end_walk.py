"""The walk over records, file by file: whether the last record of a file arrived whole."""

import os
import pathlib

import pytest
from logbuilder import LogBuilder

from rocketlet.common.errors import StoreDamagedError
from rocketlet.store.commitlog.log_end import LogWalk, Stop, find_record
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.segments import SegmentFile

FILE_BYTES = 2_048


def walk(log: LogBuilder, content: list[bytearray]) -> tuple[list[int], Stop | None]:
    """Return where records are found, and where and why the walk ends."""
    paths = log.files()[: len(content)]
    segments = [SegmentFile(str(path), int(path.name), FILE_BYTES) for path in paths]
    views = {segment.path: memoryview(data) for segment, data in zip(segments, content, strict=True)}
    done = LogWalk(segments, lambda segment: views[segment.path])
    return [log_offset for log_offset, _ in done], done.stop


def test_walk_that_begins_where_the_log_ends() -> None:
    """There is nothing to walk over: the last file is full, or there is none."""
    done = LogWalk([], lambda _: memoryview(b""))
    assert (list(done), done.stop) == ([], Stop("", 0, 0, "the last file is full", is_torn=False))
    segments = [SegmentFile(f"{number}", number * FILE_BYTES, FILE_BYTES) for number in (1, 2)]
    done = LogWalk(segments, lambda _: memoryview(bytes(FILE_BYTES)))
    assert list(done.walk_from(3 * FILE_BYTES)) == []
    assert done.stop == Stop("2", FILE_BYTES, 3 * FILE_BYTES, "the last file is full", is_torn=False)


@pytest.mark.parametrize(
    ("checks_crc", "demands_seals", "reason"),
    [
        (True, False, "the body does not have its checksum"),
        (False, False, "nothing was written"),
        (True, True, "the record does not end in its checksum"),
        (False, True, "the record does not end in its checksum"),
    ],
)
def test_body_that_is_damaged(tmp_path: pathlib.Path, checks_crc: bool, demands_seals: bool, reason: str) -> None:
    """Its checksum counts where it is to be checked, and where no other is demanded."""
    log = LogBuilder(tmp_path / "log", FILE_BYTES)
    log.add(b"body")
    log.save()
    data = log.files()[0].read_bytes().replace(b"body", b"BODY")
    segments = [SegmentFile("0", 0, FILE_BYTES)]
    done = LogWalk(segments, lambda _: memoryview(data), checks_crc=checks_crc, demands_seals=demands_seals)
    assert len(list(done)) == (reason == "nothing was written")
    assert done.stop is not None
    assert done.stop.reason == reason


def test_search_in_a_file_that_was_cut(tmp_path: pathlib.Path) -> None:
    """Is an error that names it; the process would end where it reads what no file holds any more."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8_192))
    view = OS_FILES.map(str(path), 8_192)
    assert find_record(view, 0, 0) is None
    os.truncate(path, 0)
    with pytest.raises(StoreDamagedError, match=f"{path} cannot be read: it has 0 bytes and had 8192"):
        find_record(view, 0, 0)


def test_where_a_walk_ends_is_known_at_its_end(tmp_path: pathlib.Path) -> None:
    """And not before, also when it begins again."""
    log = LogBuilder(tmp_path / "log", FILE_BYTES)
    for _ in range(2):
        log.add()
    log.save()
    view = memoryview(log.files()[0].read_bytes())
    done = LogWalk([SegmentFile("0", 0, FILE_BYTES)], lambda _: view)
    for _ in range(2):
        steps = iter(done)
        assert next(steps)[0] == 0
        assert done.stop is None
        assert [log_offset for log_offset, _ in steps] == log.offsets[1:]
        assert done.stop == Stop("0", log.end, log.end, "nothing was written", is_torn=False)


@pytest.mark.parametrize("file", [0, 1, 2])
@pytest.mark.parametrize("follows", ["records", "nothing", "no file"])
def test_last_record_of_a_file_that_ends_in_a_zero(tmp_path: pathlib.Path, file: int, follows: str) -> None:
    """It is whole where the next file goes on with a record; else its end may never have arrived."""
    log = LogBuilder(tmp_path / "log", FILE_BYTES)
    while len(log.offsets) < 80:
        log.add(properties=b"K\x01%d" % len(log.offsets))
    log.save()
    content = [bytearray(path.read_bytes()) for path in log.files()]
    assert len(content) == 5, "there is a file behind each of the first three"
    last = max(at for at in log.offsets if at < (file + 1) * FILE_BYTES)
    size = int.from_bytes(content[file][last % FILE_BYTES :][:4], "big")
    content[file][last % FILE_BYTES + size - 1] = 0
    if follows == "nothing":
        content[file + 1][:] = bytes(FILE_BYTES)
    elif follows == "no file":
        del content[file + 1 :]
    found, stop = walk(log, content)
    if follows == "records":
        assert found == log.offsets
        assert stop is not None
        assert stop.log_offset == log.end
        return
    assert found == [at for at in log.offsets if at < last]
    words = "the properties of the record did not arrive whole"
    assert stop == Stop(str(log.files()[file]), last % FILE_BYTES, last, words, is_torn=True)
    assert str(stop) == f"{log.files()[file]} at position {last % FILE_BYTES}: {words}"
