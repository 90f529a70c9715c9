"""Reading a log without the lock: consistent prefix, where it stopped and why."""

import pathlib

import pytest
from stores import GoldenStore, StoreDirectory, new_record, sample

from rocketlet.common.errors import ConfigError
from rocketlet.common.walk import Verdict
from rocketlet.store.reader import SegmentReader, open_segments


def reader_of(directory: StoreDirectory) -> SegmentReader:
    """Open the log of a store for reading."""
    return open_segments(str(directory.root / "commitlog"))


@pytest.mark.parametrize(("name", "count"), [("plain", 413), ("delay-retry", 71), ("killed", 653)])
def test_log_of_a_java_broker_is_read_whole(
    vectors: pathlib.Path, tmp_path: pathlib.Path, name: str, count: int
) -> None:
    """Every record, also the one that a killed broker had not dispatched; the spare file counts as empty."""
    java = GoldenStore.unpack(vectors, name, tmp_path)
    reader = reader_of(java.directory)
    offsets = [log_offset for log_offset, record in reader if record.log_offset == log_offset]
    assert len(offsets) == count
    assert reader.stop is not None
    assert (reader.stop.log_offset, reader.stop.reason) == (java.truth["commitLogMaxOffset"], Verdict.ZEROS.reason)


def test_log_of_an_open_store_is_a_consistent_prefix(directory: StoreDirectory) -> None:
    """What is committed is read, what is planned is not; nothing is locked."""
    store = directory.open()
    for number in range(40):
        store.append(sample(number))
    store.commit()
    store.append(sample(40))
    reader = reader_of(directory)
    assert len(list(reader)) == 40
    assert reader.stop is not None
    assert reader.stop.log_offset == store.log_max_offset
    store.commit()
    assert len(list(reader)) == 41


def test_reader_stops_at_a_torn_record_and_says_why(directory: StoreDirectory) -> None:
    """File, position and reason; the records before it are read."""
    directory.fill(10)
    data = bytearray(directory.segment().read_bytes())
    start = data.rfind(b"\xda\xa3\x20\xa7") - 4
    data[start + 100] ^= 1
    directory.segment().write_bytes(data)
    reader = reader_of(directory)
    assert reader.stop is None
    assert len(list(reader)) == 9
    assert reader.stop is not None
    assert str(reader.stop) == f"{directory.segment()} at position {start}: {Verdict.BODY_CRC.reason}"
    assert reader.stop.is_torn
    assert str(reader.stop) in repr(reader)


def test_reader_starts_at_any_record_and_any_file(directory: StoreDirectory) -> None:
    """Each file can be read by itself: the list of files has path, first position and size."""
    directory.fill(60)
    reader = reader_of(directory)
    everything = [(log_offset, bytes(data)) for log_offset, data in reader.iter_slices()]
    for segment in reader.segments:
        rest = [(log_offset, bytes(data)) for log_offset, data in reader.iter_slices(segment.base_offset)]
        assert rest == [one for one in everything if one[0] >= segment.base_offset]
        assert segment.size == pathlib.Path(segment.path).stat().st_size == 4096
    assert [(log_offset, bytes(data)) for log_offset, data in reader.iter_slices(everything[7][0])] == everything[7:]


def test_empty_directory_has_no_records(tmp_path: pathlib.Path) -> None:
    """Neither has one that does not exist."""
    reader = open_segments([str(tmp_path), str(tmp_path / "none")])
    assert list(reader) == []
    assert reader.segments == []


def test_files_of_different_sizes_are_refused(directory: StoreDirectory) -> None:
    """The size is that of the first file unless it is given."""
    directory.fill(60)
    directory.segment(1).write_bytes(bytes(100))
    with pytest.raises(ConfigError, match="has 100 bytes, mappedFileSizeCommitLog is 4096"):
        reader_of(directory)
    with pytest.raises(ConfigError, match="has 4096 bytes, mappedFileSizeCommitLog is 512"):
        open_segments(str(directory.root / "commitlog"), 512)


def test_last_file_that_is_full_ends_the_log(directory: StoreDirectory) -> None:
    """A blank in the last file is the end, too: the next record would begin the next file."""
    with directory.open() as store:
        store.append(new_record(body=bytes(3900)))
        store.append(new_record(body=bytes(300)))
        store.commit()
    directory.segment(1).unlink()
    reader = reader_of(directory)
    assert len(list(reader)) == 1
    assert reader.stop is not None
    assert (reader.stop.log_offset, reader.stop.is_torn) == (4096, False)
