import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import ConfigError
from rocketlet.common.message import MessageQueue
from rocketlet.spark.cluster.queue_ranges import QueueExtent
from rocketlet.spark.stream.stream_offsets import (
    Offsets,
    divide_limit,
    format_offsets,
    parse_offsets,
    parse_seen,
    plan_batch_end,
    spans,
)

A, B, C = (MessageQueue("T", "broker-a", queue_id) for queue_id in range(3))
HELD = st.dictionaries(st.sampled_from([MessageQueue("T", "b", number) for number in range(9)]), st.integers(0, 10**12))


def test_offsets_survive_the_checkpoint() -> None:
    """Topic, broker and queue are levels of the JSON object, in an order that the order of finding does not change."""
    offsets = {MessageQueue("U", "b", 0): 3, MessageQueue("T", "b", 10): 2, MessageQueue("T", "b", 9): 1}
    table = format_offsets(offsets)
    assert table == {"T": {"b": {"9": 1, "10": 2}}, "U": {"b": {"0": 3}}}
    assert str(table) == str(format_offsets(dict(sorted(offsets.items()))))
    assert parse_offsets(table) == offsets
    seen = format_offsets(offsets, 17)
    assert (parse_offsets(seen), parse_seen(seen), parse_seen(table)) == (offsets, 17, None)


@pytest.mark.parametrize("table", [None, [], {"T": 1}, {"T": {"b": {"x": 1}}}, {"T": {"b": {"0": "1"}}}])
def test_foreign_checkpoint_is_refused(table: object) -> None:
    """Offsets of another source are an error that shows them."""
    with pytest.raises(ConfigError, match="the offsets of the checkpoint are not of the rocketmq source"):
        parse_offsets(table)


@given(HELD, st.integers(1, 10**12))
def test_limit_is_used_up_exactly(held: Offsets, limit: int) -> None:
    """The shares add up to the limit or to everything, none is too large, and none is empty without need."""
    shares = divide_limit(held, limit)
    assert sum(shares.values()) == min(limit, sum(held.values()))
    assert all(0 <= shares[queue] <= held[queue] for queue in held)
    if limit >= len(held):
        assert all(shares[queue] for queue in held if held[queue])


def test_limit_is_shared_in_proportion() -> None:
    """A queue that holds back ten times as much gets about ten times as much, and a small one is not starved."""
    assert divide_limit({A: 90, B: 9, C: 1}, 10) == {A: 7, B: 2, C: 1}
    assert divide_limit({A: 1000, B: 500, C: 0}, 300) == {A: 200, B: 100, C: 0}
    assert divide_limit({A: 5, B: 3, C: 2}, 2) == {A: 1, B: 1, C: 0}


def test_step_without_limit_goes_to_the_end() -> None:
    """Everything between the offsets and the ends is the batch."""
    step = plan_batch_end({A: 5, B: 7}, {A: QueueExtent(0, 9), B: QueueExtent(7, 7)})
    assert (step.end, step.taken, step.backlog, step.data_loss) == ({A: 9, B: 7}, 4, 0, [])


def test_new_queue_begins_with_its_first_message_in_the_next_batch() -> None:
    """The batch in which a queue is found names its first offset; the next one holds its messages."""
    extents = {A: QueueExtent(0, 9), B: QueueExtent(2, 6)}
    found = plan_batch_end({A: 5}, extents)
    assert found.end == {A: 9, B: 2}
    assert [queue for queue, _ in spans({A: 5}, found.end)] == [A]
    assert list(spans(found.end, plan_batch_end(found.end, extents).end)) == [(B, QueueExtent(2, 6))]


def test_queue_that_is_gone_keeps_its_offset() -> None:
    """A queue that no broker has is neither read nor forgotten."""
    assert plan_batch_end({A: 5, B: 7}, {A: QueueExtent(0, 9)}).end == {A: 9, B: 7}


def test_queue_made_anew_is_loss_and_starts_over() -> None:
    """A queue that ends before its offset is set back to its first message, which the next batch reads."""
    extents = {A: QueueExtent(0, 3)}
    step = plan_batch_end({A: 5}, extents)
    assert step.end == {A: 0}
    assert not list(spans({A: 5}, step.end))
    assert step.data_loss == ["queue 0 of T on broker-a was read up to offset 5, but ends at 3: it was made anew"]
    assert list(spans(step.end, plan_batch_end(step.end, extents).end)) == [(A, QueueExtent(0, 3))]


def test_deleted_messages_are_loss_and_count_nothing() -> None:
    """Of a queue whose next messages are deleted, the limit counts those that are there."""
    step = plan_batch_end({A: 5}, {A: QueueExtent(8, 20)}, limit=4)
    assert (step.end, step.taken, step.backlog) == ({A: 12}, 4, 8)
    assert "was read up to offset 5, but begins at 8: what was between is deleted" in step.data_loss[0]


@pytest.mark.parametrize(
    ("extent", "end", "loss"),
    [
        (QueueExtent(5, 9), 9, []),
        (QueueExtent(6, 9), 9, ["read up to offset 5, but begins at 6: what was between is deleted"]),
        (QueueExtent(6, 6), 6, ["read up to offset 5, but begins at 6: what was between is deleted"]),
        (QueueExtent(0, 5), 5, []),
        (QueueExtent(0, 4), 0, ["read up to offset 5, but ends at 4: it was made anew"]),
    ],
)
def test_single_message_is_loss(extent: QueueExtent, end: int, loss: list[str]) -> None:
    """One message that was deleted before it was read, or that a queue has lost at its end, is told like many."""
    step = plan_batch_end({A: 5}, {A: extent})
    assert step.end == {A: end}
    assert step.data_loss == [f"queue 0 of T on broker-a was {text}" for text in loss]


@given(HELD, HELD, st.integers(1, 100))
def test_limited_steps_read_everything_once(first: Offsets, held: Offsets, limit: int) -> None:
    """Batch after batch, all messages of all queues come once, and then the offsets stand still."""
    extents = {queue: QueueExtent(first.get(queue, 0), first.get(queue, 0) + held[queue] % 50) for queue in held}
    at: Offsets = {}
    got: set[tuple[MessageQueue, int]] = set()
    while (step := plan_batch_end(at, extents, limit)).end != at:
        batch = [(queue, queue_offset) for queue, span in spans(at, step.end) for queue_offset in range(*span)]
        assert step.taken == len(batch) <= limit
        assert got.isdisjoint(batch)
        got.update(batch)
        at = step.end
    assert got == {(queue, queue_offset) for queue, extent in extents.items() for queue_offset in range(*extent)}


def test_queue_that_lost_its_last_messages_goes_on_from_its_end() -> None:
    """That is told; others that end before their offset begin anew."""
    extents = {A: QueueExtent(0, 3), B: QueueExtent(2, 4), C: QueueExtent(0, 9)}
    step = plan_batch_end({A: 5, B: 6, C: 7}, extents, cut=[A, C])
    assert step.end == {A: 3, B: 2, C: 9}
    assert (step.taken, step.backlog) == (2, 0)
    assert step.data_loss == [
        (
            "queue 0 of T on broker-a was read up to offset 5, but ends at 3: "
            "it has lost its last messages, and goes on from its end"
        ),
        "queue 1 of T on broker-a was read up to offset 6, but ends at 4: it was made anew",
    ]


@pytest.mark.parametrize(
    ("held", "limit", "shares"),
    [
        ({A: 3, B: 2}, 5, {A: 3, B: 2}),
        ({A: 3, B: 2}, 4, {A: 2, B: 2}),
        ({A: 3, B: 3}, 5, {A: 3, B: 2}),
        ({A: 3, B: 0, C: 3}, 2, {A: 1, B: 0, C: 1}),
        ({A: 3, B: 0, C: 3}, 1, {A: 1, B: 0, C: 0}),
        ({A: 1, B: 9}, 1, {A: 0, B: 1}),
        ({A: 1, B: 1, C: 98}, 3, {A: 1, B: 1, C: 1}),
        ({A: 1, B: 1, C: 98}, 4, {A: 1, B: 1, C: 2}),
        ({A: 10, B: 20, C: 30}, 30, {A: 5, B: 10, C: 15}),
        ({}, 5, {}),
    ],
)
def test_shares_of_a_limit(held: Offsets, limit: int, shares: Offsets) -> None:
    """First one for each, the longest first, then in proportion to the rest."""
    assert divide_limit(held, limit) == shares


def test_limit_leaves_a_backlog() -> None:
    """What is not taken is told."""
    step = plan_batch_end({A: 0, B: 4}, {A: QueueExtent(0, 6), B: QueueExtent(0, 8)}, limit=5)
    assert (step.taken, step.backlog, step.end) == (5, 5, {A: 3, B: 6})
