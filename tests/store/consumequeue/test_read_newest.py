"""A read at a record that has just arrived: the same as any other read there, or none."""

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from stores import StoreDirectory, new_part, new_record

from rocketlet.common.properties import java_hash
from rocketlet.store.consumequeue.appended import Appended, Placed
from rocketlet.store.consumequeue.entry_filters import TagCodeFilter
from rocketlet.store.consumequeue.queue_reader import ReadLimits, ReadResult
from rocketlet.store.message_store import MessageStore

LIMITS = ReadLimits()


def in_bytes(result: ReadResult) -> ReadResult:
    """Return a result with copies of its slices."""
    return replace(result, records=[memoryview(b"".join(result.records))])


def commit_some(store: MessageStore, draw: random.Random) -> None:
    """Store a few messages together, alone or in batches, of two queues and one whose batches are kept whole."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        topic, queue_id, tag = draw.choice(["T", "T", "Whole"]), draw.randrange(2), draw.choice("ABC")
        head = new_record(topic, queue_id, bytes(draw.randrange(150)), TAGS=tag)
        if draw.random() < 0.2:
            store.append_batch(head, [new_part(TAGS=tag), new_part(TAGS="A")])
        else:
            store.append(head)
    store.commit()


@pytest.mark.feature("P6")
@pytest.mark.parametrize("seed", range(4))
def test_read_of_an_arrival_is_that_of_its_place(directory: StoreDirectory, seed: int) -> None:
    """Whatever arrives with it and is wanted; only the last of a queue is read without a look at files."""
    draw, found, left = random.Random(seed), 0, 0
    store = StoreDirectory(directory.root, in_memory_percent=draw.choice([0, 40])).open()
    store.set_batch_topics(["Whole"])
    arrived: list[Appended] = []

    def keep(records: Sequence[Placed]) -> None:
        arrived.extend(record for placed in records for record in placed.records())

    store.subscribe(keep)
    for _ in range(150):
        arrived.clear()
        commit_some(store, draw)
        wanted = draw.choice([None, None, TagCodeFilter({java_hash("A"), java_hash("B")}), TagCodeFilter(())])
        for record in arrived:
            place = record.topic, record.queue_id, record.queue_offset
            newest, result = store.read_newest(record, wanted), store.read(*place, LIMITS, wanted)
            is_last = record.queue_offset + 1 == result.max_offset
            is_wanted = wanted is None or record.tags_code in wanted.codes
            assert (newest is not None) == (is_last and is_wanted and record.topic == "T")
            if newest is None:
                left += 1
            else:
                found += 1
                assert in_bytes(newest) == in_bytes(result)
    assert found > 30
    assert left > 30
    store.close()


def test_record_that_comes_is_read_before_its_entry_is_there(directory: StoreDirectory) -> None:
    """The same as is read behind it; who has unsubscribed is not told."""
    store = directory.open()
    found: list[tuple[int, ReadResult | None]] = []

    def look(records: Sequence[Placed]) -> None:
        (record,) = records[-1].records()
        found.append((store.max_offset("T", 0), store.read_newest(record)))

    unsubscribe = store.subscribe(lambda _: None, look)
    for number in range(3):
        store.append(new_record())
        store.commit()
        readable, newest = found[-1]
        assert newest is not None
        assert (readable, in_bytes(newest)) == (number, in_bytes(store.read("T", 0, number, LIMITS)))
    unsubscribe()
    store.append(new_record())
    store.commit()
    assert len(found) == 3


def test_arrival_whose_topic_is_gone_is_not_read(directory: StoreDirectory) -> None:
    """It has no queue any more."""
    store = directory.open()
    arrived: list[Placed] = []
    store.subscribe(arrived.extend)
    store.append(new_record())
    store.commit()
    (record,) = arrived[0].records()
    assert store.read_newest(record) is not None
    record.queue = None
    assert store.read_newest(record) is None
