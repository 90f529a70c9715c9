"""Concurrent consumption against a scripted broker: parts of batches, ways back, time-outs, suspension, limits."""

import asyncio

import pytest
from inbox import HeldListener, Inbox
from push_bench import BACK, PULL, Bench, Failing, Feed, pulled, records
from scripted_cluster import ScriptedCluster, refused

from rocketlet.client import ConsumeResult, PushConsumer, PushConsumerSettings, ReceivedMessage, Retry, Session
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ClientStateError, ConfigError
from rocketlet.common.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    UNIQ_KEY,
    encode_properties,
    parse_properties,
)
from rocketlet.remoting.codec.command import decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import SendBackHeader
from rocketlet.remoting.headers.send import decode_send_header

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
async def bench(cluster: ScriptedCluster) -> Bench:
    """Return a bench with a retry topic."""
    cluster.routes["T"] = cluster.routes["%RETRY%cg"] = {"broker-a": 1}
    return Bench(cluster, await cluster.add_broker("broker-a"))


def sent_back(bench: Bench) -> list[tuple[int, int]]:
    """Return log offset and delay level of what was handed back."""
    headers = [decode_header(SendBackHeader, command) for command in bench.broker.asked(BACK)]
    return [(header.log_offset, header.delay_level) for header in headers]


@pytest.mark.feature("B16")
@pytest.mark.parametrize(("from_index", "returned"), [(0, [0, 100, 200]), (2, [200]), (3, []), (9, [])])
async def test_rest_of_a_batch_goes_back(bench: Bench, from_index: int, returned: list[int]) -> None:
    """The messages before the index are finished, those from it on go back; all of them let the offset move."""
    bench.broker.answers[PULL] = Feed(pulled(3, records(0, 3)))
    ended = asyncio.Event()

    async def finish_some(_: list[ReceivedMessage]) -> Retry:
        ended.set()
        return Retry(from_index=from_index)

    consumer = bench.consumer(batch_messages=3)
    consumer.subscribe("T", "*", finish_some)
    async with consumer:
        await ended.wait()
    assert sent_back(bench) == [(log_offset, 0) for log_offset in returned]
    assert bench.commits()[-1] == 3


@pytest.mark.parametrize("level", [-1, 5])
async def test_listener_chooses_the_delay(bench: Bench, level: int) -> None:
    """The broker is told the level of the next try; below 0 it is told to give up."""
    bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1)))

    async def choose(_: list[ReceivedMessage]) -> Retry:
        return Retry(delay_level=level)

    consumer = bench.consumer()
    consumer.subscribe("T", "*", choose)
    async with consumer:
        await bench.broker.wait_asked(BACK)
    assert sent_back(bench) == [(0, level)]


def test_index_below_zero_is_a_mistake() -> None:
    """The listener that makes it fails with a clear sentence."""
    with pytest.raises(ValueError, match="from_index is -1"):
        Retry(from_index=-1)


async def test_message_that_is_not_taken_back_is_sent_to_the_retry_topic(bench: Bench) -> None:
    """It says where it came from and when it is due; here it is finished."""
    bench.broker.answers[PULL] = Feed(pulled(6, records(5, 1)))
    bench.broker.answers[BACK] = refused(ResponseCode.SYSTEM_ERROR)
    consumer = bench.consumer(max_retries=3)
    consumer.subscribe("T", "*", Failing(1))
    async with consumer:
        await bench.broker.wait_asked(SEND)
    [sent] = bench.broker.asked(SEND)
    header = decode_send_header(sent)
    assert (header.topic, header.producer_group) == ("%RETRY%cg", "CLIENT_INNER_PRODUCER")
    assert (header.reconsume_times, header.max_reconsume_times, header.flag) == (1, 3, 0)
    properties = parse_properties(header.properties or "")
    assert (properties[RETRY_TOPIC], properties[DELAY]) == ("T", "3")
    assert properties[ORIGIN_MESSAGE_ID]
    assert bench.commits()[-1] == 6


@pytest.mark.parametrize(("origin", "is_kept"), [("7F00000100002A9F0000000000000001", True), ("", False), (" ", False)])
async def test_message_that_is_not_taken_back_again_keeps_its_first_id(
    bench: Bench, origin: str, is_kept: bool
) -> None:
    """However often it fails, it says which message it was at first; a blank says nothing (``UtilAll.isBlank``)."""
    text = encode_properties({UNIQ_KEY: "U", ORIGIN_MESSAGE_ID: origin, RETRY_TOPIC: "First"})
    bench.broker.answers[PULL] = Feed(pulled(6, records(5, 1, properties=text)))
    bench.broker.answers[BACK] = refused(ResponseCode.SYSTEM_ERROR)
    consumer = bench.consumer()
    consumer.subscribe("T", "*", Failing(1))
    async with consumer:
        [sent] = await bench.broker.wait_asked(SEND)
    properties = parse_properties(decode_send_header(sent).properties or "")
    assert properties[ORIGIN_MESSAGE_ID] == (origin if is_kept else "U")


async def test_another_broker_takes_what_the_first_refuses(bench: Bench) -> None:
    """The retry topic may have queues on several brokers; each is tried before the message is kept here."""
    bench.cluster.routes["%RETRY%cg"] = {"broker-a": 1, "broker-b": 1}
    other = await bench.cluster.add_broker("broker-b")
    bench.broker.answers[PULL] = Feed(pulled(6, records(5, 1)))
    bench.broker.answers[BACK] = bench.broker.answers[SEND] = refused(ResponseCode.SYSTEM_ERROR)
    consumer = bench.consumer()
    consumer.subscribe("T", "*", Failing(1))
    async with consumer:
        await other.wait_asked(SEND)
    assert bench.commits()[-1] == 6


async def test_large_body_goes_to_the_retry_topic_compressed(bench: Bench) -> None:
    """A body that came compressed would be above the broker's limit otherwise."""
    bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1, b"z" * 10_000)))
    bench.broker.answers[BACK] = refused(ResponseCode.SYSTEM_ERROR)
    consumer = bench.consumer()
    consumer.subscribe("T", "*", Failing(1))
    async with consumer:
        [sent] = await bench.broker.wait_asked(SEND)
    assert decode_send_header(sent).sys_flag & 1
    assert len(sent.body) < 1000


class Stuck:
    """A listener that does not end at the first message until it is told how."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.result = ConsumeResult.SUCCESS

    async def __call__(self, messages: list[ReceivedMessage]) -> ConsumeResult:
        """Wait at the first message."""
        if messages[0].queue_offset > 0:
            return ConsumeResult.SUCCESS
        self.begun.set()
        await self.may_end.wait()
        return self.result


@pytest.mark.parametrize("result", [ConsumeResult.SUCCESS, ConsumeResult.RETRY])
async def test_listener_that_does_not_end_no_longer_holds_the_offset(bench: Bench, result: ConsumeResult) -> None:
    """After the consume time-out its message goes back at level 3, once; what the listener says later is not asked."""
    bench.broker.answers[PULL] = Feed(pulled(3, records(0, 3)))
    stuck = Stuck()
    stuck.result = result
    consumer = bench.consumer(consume_timeout_ms=60_000)
    consumer.subscribe("T", "*", stuck)
    async with consumer:
        await stuck.begun.wait()
        waited_ms = await bench.elapse_until(lambda: len(bench.broker.asked(BACK)) > 0)
        assert 60_000 <= waited_ms <= 121_000
        await bench.elapse_until(lambda: 3 in bench.commits())
        for _ in range(1200):
            await bench.clock.elapse(100)
        stuck.may_end.set()
    assert sent_back(bench) == [(0, 3)]


@pytest.mark.feature("B26")
async def test_suspended_consumer_pulls_nothing(bench: Bench) -> None:
    """It keeps its queues; after resume it goes on behind what it had."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    inbox = Inbox()
    consumer = bench.consumer()
    consumer.subscribe("T", "*", inbox)
    async with consumer:
        await inbox.wait_for(2)
        await bench.broker.wait_asked(PULL, 3)
        consumer.suspend()
        assert consumer.is_suspended
        pulls = len(bench.pulls())
        for _ in range(1000):
            await bench.clock.elapse(100)
        assert len(bench.pulls()) == pulls
        assert len(consumer.queues) == 1
        bench.broker.answers[PULL] = Feed(pulled(3, records(2, 1)))
        consumer.resume()
        await inbox.wait_for(3)
    assert [message.queue_offset for message in inbox.messages] == [0, 1, 2]


async def test_queue_taken_while_suspended_waits_for_resume(bench: Bench) -> None:
    """A rebalance during the suspension begins no pulls."""
    inbox = Inbox()
    async with bench.consumer() as consumer:
        consumer.suspend()
        bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1)))
        consumer.subscribe("T", "*", inbox)
        await bench.elapse_until(lambda: len(consumer.queues) == 1)
        await bench.clock.elapse(1000)
        assert bench.pulls() == []
        consumer.resume()
        await inbox.wait_for(1)


async def test_queue_given_up_while_suspended_is_not_read_again(bench: Bench) -> None:
    """After resume only the queues that are owned are pulled."""
    consumer = bench.listening(Inbox())
    async with consumer:
        await bench.broker.wait_asked(PULL, 2)
        consumer.suspend()
        consumer.unsubscribe("T")
        await bench.elapse_until(lambda: all(queue.topic != "T" for queue in consumer.queues))
        pulls = len(bench.pulls())
        consumer.resume()
        await bench.clock.elapse(1000)
        await bench.broker.wait_asked(PULL, 3)
        assert len(bench.pulls()) == pulls


async def test_consumer_that_closes_takes_no_part_in_the_sharing(bench: Bench) -> None:
    """While it waits for its listeners it asks no more who the members are, and takes no queue."""
    bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1)))
    held, entered, done = HeldListener(), asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with bench.listening(held, close_timeout_ms=60_000):
            entered.set()
            await done.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(live())
        await held.begun.wait()
        await entered.wait()
        done.set()
        await bench.clock.settle()
        asked = len(bench.broker.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
        for _ in range(500):
            await bench.clock.elapse(100)
        assert len(bench.broker.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) == asked
        held.may_end.set()


async def test_suspending_needs_an_open_consumer(bench: Bench) -> None:
    """Before and after the block it is a mistake, as is subscribing after it."""
    consumer = bench.consumer()
    with pytest.raises(ClientStateError, match="not started yet"):
        consumer.suspend()
    async with consumer:
        pass
    with pytest.raises(ClientStateError, match="is closed"):
        consumer.resume()
    with pytest.raises(ClientStateError, match="is closed"):
        consumer.subscribe("T", "*", Inbox())


@pytest.mark.feature("B15")
@pytest.mark.parametrize(
    ("settings", "body"), [({"max_topic_messages": 20}, b"x"), ({"max_topic_bytes": 200}, b"x" * 10)]
)
async def test_limits_of_a_topic_are_divided_among_its_queues(
    bench: Bench, settings: dict[str, int], body: bytes
) -> None:
    """With two queues each may hold half of what is allowed to all."""
    bench.broker.answers[PULL] = Feed(pulled(11, records(0, 11, body)))
    stuck = Stuck()
    consumer = bench.consumer(concurrency=1, **settings)
    consumer.subscribe("T", "*", stuck)
    async with consumer:
        await stuck.begun.wait()
        await bench.clock.elapse(1000)
        assert [pull.queue_offset for pull in bench.pulls()] == [0]
        stuck.may_end.set()
        await bench.elapse_until(lambda: len(bench.pulls()) == 2)


@pytest.mark.feature("B15")
@pytest.mark.parametrize(
    ("settings", "held", "pulls"),
    [
        ({"max_topic_messages": 1}, records(0, 1), 2),
        ({"max_topic_messages": 1}, records(0, 2), 1),
        ({"max_topic_bytes": 1}, records(0, 1), 2),
        ({"max_topic_bytes": 1}, records(0, 1, b"xx"), 1),
    ],
    ids=["one message", "two messages", "one byte", "two bytes"],
)
async def test_each_queue_may_hold_something(bench: Bench, settings: dict[str, int], held: bytes, pulls: int) -> None:
    """However little is allowed to all, and however many they are: one message or byte, and then no pull above it."""
    bench.broker.answers[PULL] = Feed(pulled(2, held))
    stuck = Stuck()
    async with bench.listening(stuck, concurrency=1, **settings):
        await stuck.begun.wait()
        await bench.elapse_until(lambda: len(bench.pulls()) >= pulls)
        await bench.clock.elapse(1000)
        assert len(bench.pulls()) == pulls
        stuck.may_end.set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_topic_messages", 0),
        ("max_topic_bytes", 0),
        ("consume_timeout_ms", 0),
        ("pause_ms", 9),
        ("pause_ms", 30_001),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: int) -> None:
    """The error names the setting and its range."""
    with pytest.raises(ConfigError, match=f"{name} is {value}, allowed are"):
        PushConsumerSettings(**{name: value})  # pyright: ignore[reportArgumentType] # by name


async def test_group_that_a_session_has_already_is_refused(bench: Bench) -> None:
    """The second consumer does not start, and the first goes on."""
    async with Session(bench.cluster.nameserver.address, bench.clock) as session, PushConsumer("cg", session=session):
        second = PushConsumer("cg", session=session)
        with pytest.raises(ConfigError, match="created before"):
            await second.__aenter__()
        assert bench.broker.asked(RequestCode.UNREGISTER_CLIENT) == []
