"""The log's files: fitting, blanks, rolling over, one write per commit."""

import struct

import pytest
from stores import LimitedFiles, StoreDirectory, new_part, new_record, read_all, read_queue, sample

from rocketlet.common.errors import MessageIllegalError
from rocketlet.common.record import encode_record
from rocketlet.store.message_store import MessageStore

FILE_BYTES = 4096


def size_of(body_bytes: int) -> int:
    """Return the size of a record of topic T without properties."""
    record = new_record(body=bytes(body_bytes))
    return len(encode_record(record, queue_offset=0, log_offset=0, stored_at_ms=1, store_host=record.born_host))


def append(store: MessageStore, size: int) -> int:
    """Append a record of that size on disk and return its log offset."""
    appended = store.append(new_record(body=bytes(size - size_of(0))))
    store.commit()
    return appended.log_offset


@pytest.mark.parametrize("blank", [8, 9, 100, 199])
def test_log_rolls_over_with_a_blank(directory: StoreDirectory, blank: int) -> None:
    """A record that leaves no room for itself and 8 bytes opens the next file; the rest is a blank of that size."""
    store = directory.open()
    assert append(store, FILE_BYTES - blank) == 0
    assert append(store, 192) == FILE_BYTES
    rest = directory.segment().read_bytes()[FILE_BYTES - blank :]
    assert rest == struct.pack(">iI", blank, 0xCBD43194) + bytes(blank - 8)
    directory.close_all()
    assert [record.log_offset for record in read_queue(directory.open(), "T", 0)] == [0, FILE_BYTES]


def test_record_that_leaves_eight_bytes_stays_in_the_file(directory: StoreDirectory) -> None:
    """The file is used up to the last 8 bytes, which the blank needs."""
    store = directory.open()
    append(store, FILE_BYTES - 200)
    assert append(store, 192) == FILE_BYTES - 200
    assert append(store, 120) == FILE_BYTES


@pytest.mark.feature("S12")
def test_record_longer_than_a_file_is_refused(directory: StoreDirectory) -> None:
    """Java would roll over twice and lose it (store.md §2.3); the error holds both numbers."""
    store = directory.open()
    assert append(store, FILE_BYTES - 8) == 0
    with pytest.raises(MessageIllegalError, match=r"record is 4089 bytes, limit is 4088"):
        append(store, FILE_BYTES - 7)
    assert append(store, FILE_BYTES - 8) == FILE_BYTES


@pytest.mark.feature("S12")
def test_body_above_the_configured_limit_is_refused(directory: StoreDirectory) -> None:
    """``maxMessageSize`` counts the body; the record may have 64 KiB more."""
    directory = StoreDirectory(directory.root, max_message_bytes=1000)
    with directory.open() as store:
        store.append(new_record(body=bytes(1000), KEYS="x" * 500))
        with pytest.raises(MessageIllegalError, match="body is 1001 bytes, limit is 1000"):
            store.append(new_record(body=bytes(1001)))


def test_refused_record_takes_no_place(directory: StoreDirectory) -> None:
    """After a refusal the next record has the offsets that the refused one would have had."""
    store = directory.open()
    with pytest.raises(MessageIllegalError):
        store.append(new_record(body=bytes(FILE_BYTES)))
    appended = store.append(new_record())
    assert (appended.log_offset, appended.queue_offset) == (0, 0)


def test_properties_beyond_their_field_are_refused(directory: StoreDirectory) -> None:
    """More than 32,767 bytes of properties do not fit a record."""
    store = StoreDirectory(directory.root, segment_bytes=1 << 20).open()
    with store, pytest.raises(MessageIllegalError, match="32767"):
        store.append(new_record(KEYS="k" * 40_000))


def test_one_commit_is_one_write_per_file(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """All records planned since the last commit go out together, with the blank where a file ends."""
    store = directory.open(disk)
    for number in range(30):
        store.append(sample(number))
    store.commit()
    records_and_blank, rest = disk.gathered
    assert records_and_blank + rest == 30 + 1
    assert directory.segment(1).exists()


def test_records_are_read_only_after_the_commit(directory: StoreDirectory) -> None:
    """A planned record has its place, and nobody sees it before it is written."""
    store = directory.open()
    appended = store.append(new_record())
    assert store.record_at(appended.log_offset) is None
    assert store.max_offset("T", 0) == 0
    store.commit()
    assert store.record_at(appended.log_offset) is not None
    assert store.max_offset("T", 0) == 1


@pytest.mark.feature("S17")
def test_batch_lies_in_one_file_with_one_store_time(directory: StoreDirectory) -> None:
    """A batch that does not fit the rest of a file goes to the next one as a whole, with consecutive offsets."""
    store = directory.open()
    append(store, FILE_BYTES - 400)
    bodies = [b"%d" % number * 60 for number in range(5)]
    placed = store.append_batch(new_record(), list(map(new_part, bodies))).records()
    store.commit()
    assert placed[0].log_offset == FILE_BYTES
    assert [one.queue_offset for one in placed] == [1, 2, 3, 4, 5]
    records = read_queue(store, "T", 0)[1:]
    assert [bytes(record.body) for record in records] == bodies
    assert len({record.stored_at_ms for record in records}) == 1


def test_batch_longer_than_a_file_is_refused(directory: StoreDirectory) -> None:
    """It could not lie in one file; nothing of it takes a place."""
    store = directory.open()
    with pytest.raises(MessageIllegalError, match="limit is 4088"):
        store.append_batch(new_record(), [new_part(bytes(1500))] * 3)
    assert store.append(new_record()).queue_offset == 0


def test_more_records_than_one_gathered_write_takes(directory: StoreDirectory) -> None:
    """A commit of thousands of records is written whole."""
    directory = StoreDirectory(directory.root, segment_bytes=1 << 20)
    with directory.open() as store:
        for number in range(2500):
            store.append(new_record(body=b"%d" % number))
        store.commit()
        assert [int(record.body) for record in read_queue(store, "T", 0)] == list(range(2500))


def test_store_times_never_go_back(directory: StoreDirectory) -> None:
    """When the clock is set back, records keep the last time: searches and recovery rely on the order."""
    store = directory.open()
    times: list[int] = []
    for step in (0, 50, -10_000, 20):
        directory.now_ms += step
        times.append(store.append(new_record()).stored_at_ms)
        store.commit()
    assert times == sorted(times)
    directory.close_all()
    assert directory.open().append(new_record()).stored_at_ms >= times[-1]


def test_prepared_next_file_is_used_and_a_spare_one_removed(directory: StoreDirectory) -> None:
    """The flusher prepares the next file in time; a clean stop leaves none behind."""
    store = directory.open()
    append(store, 3000)
    store.flush()
    assert directory.segment(1).stat().st_size == FILE_BYTES
    append(store, 2000)
    store.flush()
    assert not directory.segment(2).exists()
    append(store, 1000)
    store.flush()
    assert directory.segment(2).exists()
    before = read_all(store)
    directory.close_all()
    assert not directory.segment(2).exists()
    assert read_all(directory.open()) == before
