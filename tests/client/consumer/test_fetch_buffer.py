"""Messages that were pulled and not yet handed out."""

import asyncio

import pytest
from received import received

from rocketlet.client.consumer.fetch_buffer import BufferedMessages, FetchBuffer
from rocketlet.client.session.settings import DEFAULT_LIMITS, FlowLimits
from rocketlet.common.message import MessageQueue
from rocketlet.testing.manual_clock import ManualClock

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2)]


def make(
    max_messages: int = 100, limits: FlowLimits = DEFAULT_LIMITS
) -> tuple[BufferedMessages, FetchBuffer, FetchBuffer]:
    """Return what all queues have buffered, and the buffers of two of them."""
    buffered = BufferedMessages(max_messages)
    first, second = (FetchBuffer(queue, limits, buffered, ManualClock()) for queue in QUEUES)
    return buffered, first, second


def test_answers_are_handed_out_in_the_order_they_came() -> None:
    """One take brings one pull's messages, and moves the position of its queue only."""
    buffered, first, second = make()
    second.accept([received(7), received(9)], 10)
    first.accept([received(1)], 2)

    assert [message.queue_offset for message in buffered.take(None)] == [7, 9]
    assert (first.position, second.position) == (None, 10)
    assert [message.queue_offset for message in buffered.take(None)] == [1]
    assert buffered.take(None) == []


def test_take_of_a_part_leaves_the_rest_in_front() -> None:
    """Messages one by one come in order, the position follows each."""
    buffered, first, second = make()
    first.accept([received(1), received(2), received(5)], 6)
    second.accept([received(1)], 2)

    positions = [(buffered.take(1)[0].queue_offset, first.position) for _ in range(3)]
    assert positions == [(1, 2), (2, 3), (5, 6)]


def test_paused_queue_is_passed_over() -> None:
    """Its messages stay until it goes on."""
    buffered, first, second = make()
    first.accept([received(1)], 2)
    second.accept([received(8)], 9)
    first.pause()

    assert buffered.take(None)[0].queue_offset == 8
    assert buffered.take(None) == []
    first.resume()
    assert buffered.take(None)[0].queue_offset == 1


def test_dropped_queue_leaves_nothing() -> None:
    """Another member gets its messages; nothing is committed for it."""
    buffered, first, second = make()
    first.accept([received(1)], 2)
    second.accept([received(8)], 9)
    first.move_to(1)
    first.drop()

    assert buffered.take(None)[0].queue_offset == 8
    assert buffered.take(None) == []
    assert buffered.moved == {second}


def test_restart_throws_away_what_was_pulled() -> None:
    """After a seek old messages do not come any more."""
    buffered, first, _ = make()
    first.accept([received(1), received(2)], 3)
    first.restart(40)

    assert buffered.take(None) == []
    assert first.position == 40
    assert first.has_room


def test_answer_without_messages_moves_an_empty_queue_on() -> None:
    """What the filter left out is not read again, unless something before it is still to be handed out."""
    _, first, second = make()
    first.accept([], 50)
    second.accept([received(1)], 2)
    second.accept([], 50)

    assert (first.position, second.position) == (50, None)


@pytest.mark.feature("B15")
async def test_pulling_pauses_for_a_full_queue_and_for_a_full_shelf() -> None:
    """Each limit stops the pull until messages are handed out."""
    buffered, first, second = make(max_messages=3, limits=FlowLimits(max_messages=2))
    first.accept([received(1), received(2), received(3)], 4)
    assert not first.has_room
    assert second.has_room
    second.accept([received(1)], 2)
    assert not second.has_room

    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(each.wait_for_room()) for each in (first, second)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        assert buffered.waiting == {first, second}
        buffered.take(1)
    assert buffered.waiting == set()


@pytest.mark.parametrize("is_given_up", [False, True])
async def test_what_is_thrown_away_leaves_room_to_others(*, is_given_up: bool) -> None:
    """After a seek, or when a queue was given up, the next pulls need not wait until something is handed out."""
    buffered, first, second = make(max_messages=1)
    first.accept([received(1), received(2)], 3)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(second.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        if is_given_up:
            first.drop()
        else:
            first.restart(40)
    assert waiting.result() == 0
    assert repr(buffered) == "<BufferedMessages 0 messages of 0 pulls>"


async def test_paused_queue_pulls_when_it_goes_on() -> None:
    """Unless there is no room for another reason."""
    buffered, first, second = make(max_messages=1)
    first.pause()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(first.wait_for_room())
        await asyncio.sleep(0)
        second.accept([received(1), received(2)], 3)
        first.resume()
        await asyncio.sleep(0)
        assert not waiting.done()
        buffered.take(1)
    assert first.has_room


async def test_wait_ends_when_the_shelf_is_closed() -> None:
    """Who waits for messages does not wait for ever."""
    buffered, _, _ = make()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(buffered.wait_available())
        await asyncio.sleep(0)
        assert not waiting.done()
        buffered.close()
