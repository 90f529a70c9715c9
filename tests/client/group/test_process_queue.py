"""Unfinished messages of one queue."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from received import received

from rocketlet.client.group.process_queue import ProcessQueue, PushQueue, QueueOffsets
from rocketlet.client.session.settings import FlowLimits, PushConsumerSettings
from rocketlet.common.message import MessageQueue
from rocketlet.testing import ManualClock

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.mark.feature("B17")
def test_next_offset_is_the_smallest_unfinished() -> None:
    """A slow first message holds the offset back until it is finished, then the offset jumps behind the last."""
    queue = ProcessQueue()
    first, second, third = (received(offset) for offset in (5, 6, 7))
    queue.put([first, second, third])

    assert queue.next_offset == 5
    assert queue.remove([second, third]) == 5
    assert queue.remove([first]) == 8


def test_next_offset_before_the_first_put_is_unknown() -> None:
    """A queue that never had a message names no offset to commit."""
    queue = ProcessQueue()

    assert queue.next_offset is None
    assert queue.remove([]) is None


def test_put_of_a_known_offset_keeps_the_first() -> None:
    """A message that is pulled twice is counted once."""
    queue = ProcessQueue()
    queue.put([received(1, b"abc")])
    queue.put([received(1, b"abc"), received(2, b"de")])

    assert len(queue) == 2
    assert queue.buffered_bytes == 5


@pytest.mark.feature("B15")
@pytest.mark.parametrize(
    ("limits", "fits", "too_much"),
    [
        (FlowLimits(max_messages=3), [1, 2, 3], [4]),
        (FlowLimits(max_bytes=30), [1, 2, 3], [4]),
        (FlowLimits(max_span=10), [1, 11], [12]),
    ],
    ids=["messages", "bytes", "span"],
)
def test_limits_may_be_reached_but_not_exceeded(limits: FlowLimits, fits: list[int], too_much: list[int]) -> None:
    """Pulling pauses above a limit, not at it: Java compares with greater-than."""
    queue = ProcessQueue()
    queue.put([received(offset, b"x" * 10) for offset in fits])
    assert not queue.exceeds(limits)

    queue.put([received(offset, b"x" * 10) for offset in too_much])
    assert queue.exceeds(limits)


@given(st.lists(st.integers(0, 40), unique=True).flatmap(st.permutations))
def test_any_order_of_finishing_commits_no_unfinished_message(order: list[int]) -> None:
    """Whatever the order of finishing, everything below the offset is finished and the offset never goes back."""
    queue = ProcessQueue()
    queue.put([received(offset) for offset in sorted(order)])
    committed = -1
    for count, offset in enumerate(order, start=1):
        next_offset = queue.remove([received(offset)])
        assert next_offset is not None
        assert next_offset >= committed
        assert all(unfinished >= next_offset for unfinished in order[count:])
        committed = next_offset
    assert queue.buffered_bytes == 0


@pytest.mark.feature("B17")
def test_results_move_an_offset_on_only() -> None:
    """A batch that finishes late does not take back what later ones committed; a seek may."""
    table = QueueOffsets()
    table.advance(QUEUE, 5)
    table.advance(QUEUE, 3)
    assert table.get(QUEUE) == 5

    table.seek(QUEUE, 2)
    assert table.get(QUEUE) == 2


@pytest.mark.feature("B18")
def test_frozen_offset_moves_again_after_the_queue_was_forgotten() -> None:
    """After a refused offset old results change nothing until the queue is taken anew."""
    table = QueueOffsets()
    table.freeze(QUEUE, 100)
    table.advance(QUEUE, 200)
    table.seek(QUEUE, 300)
    assert table.get(QUEUE) == 100

    table.forget(QUEUE)
    table.advance(QUEUE, 101)
    assert table.get(QUEUE) == 101


async def test_higher_limits_let_a_fetcher_go_on() -> None:
    """Who waits for room looks again at once, and waits on where even the new limits are exceeded."""
    clock = ManualClock()
    sink = PushQueue(QUEUE, QueueOffsets(), PushConsumerSettings(), lambda _queue, _messages: None, clock)
    sink.unfinished.put([received(offset) for offset in range(5)])
    sink.limit(FlowLimits(max_messages=2))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(sink.wait_for_room())
        await clock.settle()
        for most in (3, 4):
            assert not waiting.done()
            sink.limit(FlowLimits(max_messages=most))
            await clock.settle()
        assert not waiting.done()
        sink.limit(FlowLimits(max_messages=5))
        await waiting


def push_queue(clock: ManualClock, *, is_broadcast: bool = False) -> tuple[PushQueue, QueueOffsets]:
    """Return a queue whose messages nobody takes, and the offsets that it moves."""
    offsets, settings = QueueOffsets(), PushConsumerSettings(is_broadcast=is_broadcast)
    return PushQueue(QUEUE, offsets, settings, lambda _queue, _messages: None, clock), offsets


@pytest.mark.parametrize(("is_broadcast", "with_pull"), [(False, [0, 7]), (True, [0, 0])])
async def test_pull_stores_the_offset_at_the_broker(*, is_broadcast: bool, with_pull: list[int]) -> None:
    """Once there is one; a broadcasting consumer keeps its own."""
    sink, offsets = push_queue(ManualClock(), is_broadcast=is_broadcast)
    before = await sink.wait_for_room()
    offsets.seek(QUEUE, 7)
    assert [before, await sink.wait_for_room()] == with_pull


def test_queue_that_was_given_up_moves_no_offset() -> None:
    """What ends late is not committed: the next owner may be further, or begin anew."""
    sink, offsets = push_queue(ManualClock())
    sink.accept([received(1), received(2)], 3)
    sink.finish([received(1)])
    assert (offsets.get(QUEUE), sink.is_dropped) == (2, False)
    sink.drop()
    sink.finish([received(2)])
    assert (offsets.get(QUEUE), sink.is_dropped) == (2, True)


def test_answer_without_messages_moves_the_offset_of_an_idle_queue() -> None:
    """What the filter left out need not be read again, unless something before it is unfinished."""
    sink, offsets = push_queue(ManualClock())
    sink.accept([], 50)
    assert offsets.get(QUEUE) == 50
    sink.accept([received(60)], 61)
    sink.accept([], 90)
    assert offsets.get(QUEUE) == 50
    sink.finish([received(60)])
    assert offsets.get(QUEUE) == 61


def test_queue_tells_when_it_moved_last() -> None:
    """Now while nothing waits or something was finished since the last pull, else the time of that pull."""
    clock = ManualClock()
    begun_at_ms = clock.now_ms()
    sink, _ = push_queue(clock)
    assert (sink.pulled_at_ms, sink.moved_at_ms) == (begun_at_ms, begun_at_ms)
    clock.advance(10)
    assert (sink.pulled_at_ms, sink.moved_at_ms) == (begun_at_ms, begun_at_ms + 10)
    sink.accept([received(1), received(2)], 3)
    sink.accept([received(3)], 4)
    clock.advance(5)
    assert (sink.pulled_at_ms, sink.moved_at_ms) == (begun_at_ms + 10, begun_at_ms + 10)
    sink.finish([received(1)])
    assert sink.moved_at_ms == begun_at_ms + 15
    sink.accept([], 4)
    clock.advance(5)
    assert (sink.pulled_at_ms, sink.moved_at_ms) == (begun_at_ms + 15, begun_at_ms + 15)
    sink.finish([received(2), received(3)])
    assert sink.moved_at_ms == begun_at_ms + 20
