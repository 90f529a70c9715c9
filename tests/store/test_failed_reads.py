"""Reads that fail while records are written: no record is refused for them."""

import json

import pytest
from faulty_reads import FAULTS, FaultyReads
from stores import StoreDirectory, new_record

from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS
from rocketlet.store.message_store import MessageStore


def batch(count: int) -> bytes:
    """Return the body of a batch."""
    return encode_batch(BatchPart(number, b"part", b"") for number in range(count))


def put_batch(store: MessageStore) -> int:
    """Store a batch of two messages; return its queue offset."""
    record = new_record("B", 0, batch(2))
    record.sys_flag |= INNER_BATCH_FLAGS
    placed = store.append(record)
    store.commit()
    return placed.queue_offset


def open_with_batches(directory: StoreDirectory, disk: FaultyReads) -> MessageStore:
    """Open a store whose topic B keeps batches."""
    (directory.root / "config").mkdir(parents=True)
    topics = {"B": {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}}
    (directory.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    return directory.open(disk)


@pytest.mark.parametrize("fault", FAULTS)
def test_batch_queue_is_written_without_reading_it(directory: StoreDirectory, fault: str) -> None:
    """The entries of a batch queue are written, and its ends known, while nothing can be read."""
    disk = FaultyReads()
    store = open_with_batches(directory, disk)
    disk.fault = fault
    assert [put_batch(store), put_batch(store)] == [0, 2]
    assert (store.refusal, store.min_offset("B", 0), store.max_offset("B", 0)) == (None, 0, 4)


def test_batch_queue_on_a_full_disk_is_not_read_either(directory: StoreDirectory) -> None:
    """A unit that had no room waits, and is written when there is room, whatever reading does meanwhile."""
    disk = FaultyReads()
    store = open_with_batches(directory, disk)
    put_batch(store)
    disk.fault, disk.has_queue_room = "EIO", False
    put_batch(store)
    assert (store.refusal is not None, store.max_offset("B", 0)) == (True, 2)
    disk.has_queue_room = True
    store.tick()
    assert (store.refusal, store.max_offset("B", 0), put_batch(store)) == (None, 4, 4)


@pytest.mark.parametrize("fault", ["EIO", "ENOMEM", "EMFILE", "short read"])
def test_index_that_cannot_be_read_refuses_no_record(directory: StoreDirectory, fault: str) -> None:
    """After a start the index is gone on with once its slots can be read; until then its entries wait."""
    with directory.open() as store:
        store.append(new_record(KEYS="before"))
        store.commit()
    disk = FaultyReads()
    store = directory.open(disk)
    store.append(new_record(KEYS="after"))
    store.commit()
    disk.fault = fault
    store.tick()
    assert disk.failed_reads > 0
    (path,) = (directory.root / "index").iterdir()
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        store.query("T", "after", 32, 0, 1 << 60)
    assert caught.value.filename == str(path)
    assert store.refusal is None
    disk.fault = ""
    store.tick()
    assert len(store.query("T", "after", 32, 0, 1 << 60).records) == 1
    assert len(store.query("T", "before", 32, 0, 1 << 60).records) == 1
