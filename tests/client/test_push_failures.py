"""The push consumer against scripted brokers: what goes wrong, and what time brings."""

import asyncio

import pytest
from inbox import HeldListener, Inbox, give_up
from push_bench import BACK, BEAT, COMMIT, PULL, Bench, Failing, Feed, Stored, pulled, records
from scripted_cluster import offset_of, refused, silent

from rocketlet.client import ConsumeResult, FlowLimits, PushConsumer, ReceivedMessage
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import SendBackHeader
from rocketlet.testing import ManualClock


async def test_failed_message_goes_back_to_its_broker(bench: Bench) -> None:
    """The broker learns log offset and group and will bring it again; here the message is finished."""
    bench.broker.answers[PULL] = Feed(pulled(6, records(5, 1)))
    listener = Failing(1)
    async with bench.listening(listener, max_retries=3):
        [command] = await bench.broker.wait_asked(BACK)
    header = decode_header(SendBackHeader, command)
    assert (header.group, header.log_offset, header.delay_level) == ("cg", 500, 0)
    assert (header.origin_topic, header.max_reconsume_times, header.broker_name) == ("T", 3, "broker-a")
    assert bench.commits()[-1] == 6
    assert len(listener.seen) == 1


async def test_failed_message_that_is_not_taken_back_runs_again_after_5_s(bench: Bench) -> None:
    """It is kept, counted and not committed until it succeeds, however old the broker is."""
    bench.broker.answers[PULL] = Feed(pulled(6, records(5, 1)))
    bench.broker.answers[BACK] = refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    listener = Failing(2)
    async with bench.listening(listener):
        for calls in (1, 2):
            await listener.wait_calls(calls)
            await bench.broker.wait_asked(BACK, calls)
            assert 5000 <= await bench.elapse_until(lambda calls=calls: len(listener.seen) > calls) <= 5200
        assert 6 not in bench.commits()
    assert [message.reconsume_times for message in listener.seen] == [0, 1, 2]
    assert bench.commits()[-1] == 6


@pytest.mark.feature("B18")
async def test_refused_offset_is_replaced_by_that_of_the_broker(bench: Bench) -> None:
    """The offset that the broker names is stored, the queue is taken anew and pulled from there."""
    bench.broker.answers[PULL] = Feed(pulled(40, code=ResponseCode.PULL_OFFSET_MOVED), pulled(42, records(40, 2)))
    bench.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: offset_of((bench.commits() or [7])[-1])
    inbox = Inbox()
    async with bench.listening(inbox):
        await inbox.wait_for(2)
        assert [pull.queue_offset for pull in bench.pulls()][:2] == [7, 40]
    assert (bench.commits()[0], bench.commits()[-1]) == (40, 42)


@pytest.mark.feature("B15")
@pytest.mark.parametrize(
    ("limits", "count", "body"),
    [
        (FlowLimits(max_messages=10), 11, b"x"),
        (FlowLimits(max_bytes=100), 11, b"x" * 10),
        (FlowLimits(max_span=9), 11, b"x"),
    ],
    ids=["messages", "bytes", "span"],
)
async def test_pulling_pauses_above_a_limit(bench: Bench, limits: FlowLimits, count: int, body: bytes) -> None:
    """No pull is made while listeners are behind; the first that ends lets the next pull go."""
    bench.broker.answers[PULL] = Feed(pulled(count, records(0, count, body)))
    held = HeldListener()
    async with bench.listening(held, limits=limits):
        await held.begun.wait()
        await bench.clock.elapse(1000)
        assert [pull.queue_offset for pull in bench.pulls()] == [0]
        held.may_end.set()
        await bench.broker.wait_asked(PULL, 2)
        assert bench.pulls()[1].queue_offset == count


async def test_pull_after_an_error_waits_a_second(bench: Bench) -> None:
    """A broker in trouble is not hammered; the offset is kept."""
    bench.broker.answers[PULL] = Feed(Command.response(ResponseCode.SYSTEM_BUSY, "cold data"))
    async with bench.listening(Inbox()):
        await bench.broker.wait_asked(PULL)
        assert 1000 <= await bench.elapse_until(lambda: len(bench.pulls()) > 1) <= 1200
        assert [pull.queue_offset for pull in bench.pulls()] == [0, 0]


async def test_broker_that_does_not_know_us_gets_a_heartbeat(bench: Bench) -> None:
    """After SUBSCRIPTION_NOT_EXIST it is told at once, not with the next heartbeat of the timer."""
    bench.broker.answers[PULL] = Feed(Command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, "who?"))
    async with bench.listening(Inbox()):
        await bench.broker.wait_asked(PULL)
        beats = len(bench.broker.asked(BEAT))
        await bench.elapse_until(lambda: len(bench.broker.asked(BEAT)) > beats + 1)
        assert bench.clock.now_ms() - ManualClock().now_ms() < 10_000


async def test_offsets_are_stored_every_5_s_and_with_pulls(bench: Bench) -> None:
    """A pull carries the offset that is known then; the timer stores it without a pull."""
    bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1)), pulled(3, records(1, 2)))
    inbox = Inbox()
    async with bench.listening(inbox):
        await inbox.wait_for(3)
        await bench.elapse_until(lambda: 3 in bench.commits())
        assert bench.broker.asked(COMMIT)[0].is_oneway
    assert not bench.broker.asked(COMMIT)[-1].is_oneway
    flags = [(pull.sys_flag, pull.commit_offset) for pull in bench.pulls()]
    assert flags[0] == (2, 0)
    assert flags[-1] in {(3, 1), (3, 3)}


async def test_answer_without_messages_moves_the_offset(bench: Bench) -> None:
    """A group whose tags do not come does not read the same messages again after a restart."""
    bench.broker.answers[PULL] = Feed(pulled(77, code=ResponseCode.PULL_RETRY_IMMEDIATELY))
    async with bench.listening(Inbox()):
        await bench.broker.wait_asked(PULL, 2)
    assert bench.commits()[-1] == 77


async def test_failures_of_a_given_up_queue_are_left_to_its_new_owner(bench: Bench) -> None:
    """When another member has the queue, neither the offset moves nor does the message go back."""
    bench.broker.answers[PULL] = Feed(pulled(6, records(5, 1)))
    held = HeldListener(ConsumeResult.RETRY)
    consumer = bench.listening(held)
    async with consumer:
        await held.begun.wait()
        await give_up(consumer)
        held.may_end.set()
    assert bench.broker.asked(BACK) == []
    assert 6 not in bench.commits()


async def test_listener_of_a_queue_that_went_and_came_back_moves_no_offset(bench: Bench) -> None:
    """What it has finished comes again to the new listener, whose message alone counts from now on."""
    bench.broker.answers[PULL] = Stored(5, 6)
    bench.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: offset_of(5)
    begun, may_end = (asyncio.Event(), asyncio.Event()), (asyncio.Event(), asyncio.Event())
    ended = asyncio.Event()

    async def take(number: int) -> None:
        begun[number].set()
        await may_end[number].wait()

    async def first(_: list[ReceivedMessage]) -> None:
        await take(0)
        ended.set()

    async def second(_: list[ReceivedMessage]) -> None:
        await take(1)

    consumer = bench.listening(first)
    async with consumer:
        await begun[0].wait()
        await give_up(consumer)
        consumer.subscribe("T", "*", second)
        await bench.elapse_until(begun[1].is_set)
        may_end[0].set()
        await ended.wait()
        commits = len(bench.commits())
        await bench.elapse_until(lambda: len(bench.commits()) > commits)
        stored = bench.commits()
        may_end[1].set()
    assert set(stored) == {5}
    assert bench.commits()[-1] == 6


async def test_closing_is_bounded_when_a_broker_is_silent(bench: Bench) -> None:
    """Neither offsets nor the farewell can keep the block open: 3 s for each."""
    consumer = bench.listening(Inbox())
    async with asyncio.TaskGroup() as group:
        left = asyncio.Event()
        group.create_task(live_until(consumer, left, bench))
        await left.wait()
        await bench.broker.wait_asked(COMMIT)
        await bench.clock.elapse(3000)
        await bench.broker.wait_asked(RequestCode.UNREGISTER_CLIENT)
        await bench.clock.elapse(3000)


async def live_until(consumer: PushConsumer, left: asyncio.Event, bench: Bench) -> None:
    """Enter and leave a consumer whose broker falls silent inside the block."""
    async with consumer:
        await bench.broker.wait_asked(PULL)
        bench.broker.answers[COMMIT] = bench.broker.answers[RequestCode.UNREGISTER_CLIENT] = silent
        left.set()
