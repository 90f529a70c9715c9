"""Arrival notices, and the order in which a commit becomes visible."""

from collections.abc import Sequence

import pytest
from stores import StoreDirectory, new_record, sample

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.common.record import iter_records
from rocketlet.store.consumequeue.dispatched import Appended
from rocketlet.store.consumequeue.reading import ReadLimits


@pytest.mark.feature("P6")
def test_arrivals_come_when_the_whole_commit_can_be_read(directory: StoreDirectory) -> None:
    """A commit is told once, its messages in log order, when the last of them is readable."""
    store = directory.open()
    notices: list[tuple[list[Appended], int]] = []

    def note(arrived: Sequence[Appended]) -> None:
        result = store.read("T", 2, 0, ReadLimits())
        notices.append((list(arrived), sum(len(list(iter_records(part))) for part in result.records)))

    store.on_arrivals = note
    for number in range(6):
        store.append(sample(number))
    assert notices == []
    store.commit()
    [(arrived, readable)] = notices
    assert readable == 2
    assert [(one.topic, one.queue_id, one.queue_offset) for one in arrived] == [
        ("T", number % 3, number // 3) for number in range(6)
    ]
    first = arrived[0]
    assert (first.tags_code, first.properties["KEYS"], first.stored_at_ms) == (3644, "k0 all", directory.now_ms)


def test_arrival_callback_can_be_taken_back(directory: StoreDirectory) -> None:
    """Without a callback nobody is told."""
    store = directory.open()
    notices: list[Sequence[Appended]] = []
    store.on_arrivals = notices.append
    assert store.on_arrivals is not None
    store.on_arrivals = None
    store.append(new_record())
    store.commit()
    assert notices == []


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
