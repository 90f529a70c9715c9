"""Arrival notices, and the order in which a commit becomes visible."""

from collections.abc import Sequence

import pytest
from stores import StoreDirectory, new_record, sample

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.common.record import iter_records
from rocketlet.store.consumequeue.appended import Placed
from rocketlet.store.consumequeue.queue_reader import ReadLimits


@pytest.mark.feature("P6")
def test_arrivals_come_when_the_whole_commit_can_be_read(directory: StoreDirectory) -> None:
    """A commit is told once, its messages in log order, when the last of them is readable."""
    store = directory.open()
    notices: list[tuple[list[Placed], int]] = []

    def note(arrived: Sequence[Placed]) -> None:
        result = store.read("T", 2, 0, ReadLimits())
        notices.append((list(arrived), sum(len(list(iter_records(part))) for part in result.records)))

    store.subscribe(note)
    for number in range(6):
        store.append(sample(number))
    assert notices == []
    store.commit()
    [(arrived, readable)] = notices
    assert readable == 2
    assert [(one.topic, one.queue_id, one.queue_offset) for one in arrived] == [
        ("T", number % 3, number // 3) for number in range(6)
    ]
    (first,) = arrived[0].records()
    assert (first.tags_code, first.properties["KEYS"], first.stored_at_ms) == (3644, "k0 all", directory.now_ms)


def test_subscription_ends_when_it_is_taken_back(directory: StoreDirectory) -> None:
    """A subscriber hears of what comes before the call that ends its subscription, and of nothing behind it."""
    store = directory.open()
    notices: list[Sequence[Placed]] = []
    unsubscribe = store.subscribe(notices.append)
    store.append(new_record())
    store.commit()
    unsubscribe()
    store.append(new_record())
    store.commit()
    assert [[one.queue_offset for one in records] for records in notices] == [[0]]


def test_append_out_of_order_makes_the_store_unwritable(directory: StoreDirectory) -> None:
    """A gap in a queue would shift all later offsets; it is a bug, and is not written."""
    store = directory.open()
    other, placed = store.append(new_record("Other")), store.append(new_record())
    assert placed.queue is not None
    assert other.queue is not None
    placed.queue_offset = 5
    store.commit()
    assert isinstance(store.refusal, StoreNotWritableError)
    assert (store.max_offset("T", 0), store.max_offset("Other", 0), other.queue.pending) == (0, 0, b"")
    with pytest.raises(StoreNotWritableError, match="ends at 0, the next record in the log has 5"):
        store.append(new_record())
