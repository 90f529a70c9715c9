"""What a pull asks for and what its answer says."""

import asyncio
import contextlib
import logging
import pathlib
import zlib
from collections.abc import AsyncGenerator

import pytest
from real_broker import running_broker
from scripted_cluster import QUEUE, RETRY_QUEUE, Answer, ScriptedCluster, offset_of, refused

from rocketlet.client import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullContext,
    PullStatus,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
    Session,
    Sql,
)
from rocketlet.client.group.queue_fetcher import FetchContext, PullPlan, QueueFetcher, pull_header, read_pull_answer
from rocketlet.client.group.subscriptions import SubscriptionTable
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import RecordError, ResponseError, RouteNotFoundError
from rocketlet.common.message import PULL_COMMIT_OFFSET
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import BatchPart, NewRecord, encode_batch, encode_record
from rocketlet.common.subscriptions.subscription import parse_tag_expression
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.bodies.body import encode_body
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullHeader, PullReply
from rocketlet.testing import ManualClock

ALL = parse_tag_expression("T", "*", version=123)
PUSH = PullPlan("g", 32, 262_144, 15_000)
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


def record(queue_offset: int, *, sys_flag: int = 0, body: bytes = b"x", **properties: str) -> bytes:
    """Return a stored record of queue 0 of T."""
    new = NewRecord("T", 0, body, encode_properties(properties), properties, 0, sys_flag, 0, HOST)
    return encode_record(new, queue_offset=queue_offset, log_offset=queue_offset, stored_at_ms=0, store_host=HOST)


def answer(*records: bytes, code: int = ResponseCode.SUCCESS) -> Command:
    """Return a pull answer of a queue with offsets 3 to 50."""
    reply = PullReply(suggest_which_broker_id=1, next_begin_offset=9, min_offset=3, max_offset=50)
    return Command.response(code, ext=reply, body=b"".join(records))


@pytest.mark.parametrize(
    ("plan", "commit_offset", "sys_flag", "subscription"),
    [
        (PUSH, 0, 2, None),
        (PUSH, 5, 3, None),
        (PUSH._replace(posts_subscription=True), 0, 6, "*"),
        (PUSH._replace(posts_subscription=True, is_lite=True), 0, 22, "*"),
    ],
    ids=["push", "with an offset", "with the subscription", "lite"],
)
def test_header_has_the_flags_of_java(
    plan: PullPlan, commit_offset: int, sys_flag: int, subscription: str | None
) -> None:
    """Bit 0 commits, bit 1 holds, bit 2 brings the subscription, bit 4 is a lite pull."""
    header = pull_header(plan, ALL, QUEUE, 8, commit_offset)

    assert (header.sys_flag, header.subscription) == (sys_flag, subscription)
    assert header.commit_offset == commit_offset
    assert (header.queue_offset, header.max_messages, header.suspend_ms) == (8, 32, 15_000)
    assert (header.sub_version, header.expression_type, header.max_bytes) == (123, "TAG", 262_144)


def test_messages_know_the_ends_of_their_queue() -> None:
    """Java's MIN_OFFSET and MAX_OFFSET tell a listener how far behind it is."""
    got = read_pull_answer(answer(record(4), record(5)), QUEUE, ALL)

    assert [message.queue_offset for message in got.messages] == [4, 5]
    assert got.messages[0].properties == {"MIN_OFFSET": "3", "MAX_OFFSET": "50"}
    assert (got.next_offset, got.next_broker_id, got.was_offset_refused) == (9, 1, False)


def test_tags_are_compared_exactly() -> None:
    """The broker lets tags with an equal hash pass; "Aa" and "BB" have one."""
    got = read_pull_answer(
        answer(record(4, TAGS="Aa"), record(5, TAGS="BB"), record(6)), QUEUE, parse_tag_expression("T", "Aa || x")
    )

    assert [message.tags for message in got.messages] == ["Aa"]


@pytest.mark.parametrize(("code", "is_refused"), [(19, False), (20, False), (21, True)])
def test_answers_without_messages_move_the_offset(code: int, is_refused: bool) -> None:
    """Nothing new, nothing that matched, and a refused offset all say where to go on."""
    assert read_pull_answer(answer(code=code), QUEUE, ALL) == ([], 9, 1, is_refused)


def test_other_codes_are_errors() -> None:
    """The loop backs off by the code."""
    with pytest.raises(ResponseError) as raised:
        read_pull_answer(Command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, "who?"), QUEUE, ALL)
    assert raised.value.code == 24


def test_retry_message_gets_its_topic_back() -> None:
    """A listener sees the topic it subscribed to; the queue is where the message is stored."""
    [message] = read_pull_answer(answer(record(4, RETRY_TOPIC="Orders")), RETRY_QUEUE, ALL).messages

    assert message.topic == "Orders"
    assert message.queue_offset == 4


def test_body_that_does_not_inflate_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One damaged body does not stop its queue; it is named in the log."""
    good = record(5, sys_flag=0x301, body=zlib.compress(b"hello"))
    with caplog.at_level(logging.ERROR):
        got = read_pull_answer(answer(record(4, sys_flag=0x301, body=b"garbage"), good), QUEUE, ALL)

    assert [message.body for message in got.messages] == [b"hello"]
    assert "skipping offset 4 of" in caplog.text


def test_answer_that_is_cut_inside_a_record_is_an_error() -> None:
    """What cannot be read is not taken for the end of the messages."""
    with pytest.raises(RecordError):
        read_pull_answer(answer(record(4), record(5)[:-1]), QUEUE, ALL)


def batch(queue_offset: int, *tags: str, body: bytes | None = None) -> bytes:
    """Return a record that holds a message for each tag."""
    parts = (BatchPart(7, tag.encode(), encode_properties({"TAGS": tag, "UNIQ_KEY": f"U{tag}"})) for tag in tags)
    return record(queue_offset, sys_flag=0xC0, body=encode_batch(parts) if body is None else body, UNIQ_KEY="B")


def test_batch_comes_as_its_messages() -> None:
    """Each has its own offset, body, tag, flag and id, and the place of the record."""
    messages = read_pull_answer(answer(record(4), batch(5, "a", "b"), record(7)), QUEUE, ALL).messages
    assert [message.queue_offset for message in messages] == [4, 5, 6, 7]
    first, second = messages[1:3]
    assert (first.body, first.tags, first.flag, first.message_id, first.log_offset) == (b"a", "a", 7, "Ua", 5)
    assert (second.body, second.tags, second.queue, second.properties["MIN_OFFSET"]) == (b"b", "b", QUEUE, "3")


def test_messages_of_a_batch_are_filtered_one_by_one() -> None:
    """The tags inside decide."""
    only_b = parse_tag_expression("T", "b", version=1)
    messages = read_pull_answer(answer(batch(5, "a", "b", "a")), QUEUE, only_b).messages
    assert [message.queue_offset for message in messages] == [6]


def test_pull_from_inside_a_batch_goes_on_there() -> None:
    """Messages before the asked offset were handed out earlier."""
    messages = read_pull_answer(answer(batch(5, "a", "b", "c"), record(8)), QUEUE, ALL, from_offset=7).messages
    assert [message.queue_offset for message in messages] == [7, 8]


def test_batch_that_is_none_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """It would stop its queue for ever; the log says so."""
    with caplog.at_level(logging.ERROR):
        messages = read_pull_answer(answer(batch(5, body=b"garbage"), record(8)), QUEUE, ALL).messages
    assert [message.queue_offset for message in messages] == [8]
    assert "skipping offset 5" in caplog.text


async def send_to_one_queue(producer: Producer, *messages: Message) -> MessageQueue:
    """Send to one queue, which is returned."""
    queue: MessageQueue | None = None
    for message in messages:
        queue = (await producer.send(message, queue=queue)).queue
    assert queue is not None
    return queue


@pytest.mark.feature("B24")
async def test_each_status_is_told(address: str) -> None:
    """Found, filtered out, nothing new, and an offset that the queue does not have; each names the next offset."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address) as consumer:
        queue = await send_to_one_queue(producer, *(Message("T", b"%d" % number, tags="A") for number in range(5)))
        found = await consumer.pull_once(queue, 1, max_messages=3)
        assert [message.body for message in found.messages] == [b"1", b"2", b"3"]
        assert found._replace(messages=[]) == (PullStatus.FOUND, [], 4, 0, 5)

        assert await consumer.pull_once(queue, 5) == (PullStatus.NO_NEW_MESSAGE, [], 5, 0, 5)
        assert await consumer.pull_once(queue, 0, "B") == (PullStatus.NO_MATCHED_MESSAGE, [], 5, 0, 5)
        assert (await consumer.pull_once(queue, 9))[:3] == (PullStatus.OFFSET_ILLEGAL, [], 5)
        assert not consumer.queues


@pytest.mark.feature("B24")
async def test_pull_with_a_wait_gets_what_comes_meanwhile(address: str) -> None:
    """The broker answers when the message is there, long before the time is over."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address) as consumer:
        queue = await send_to_one_queue(producer, Message("T", b"0"))
        async with asyncio.TaskGroup() as group:
            pulling = group.create_task(consumer.pull_once(queue, 1, wait_ms=20_000))
            await producer.send(Message("T", b"1"), queue=queue)
        assert [message.body for message in pulling.result().messages] == [b"1"]


@pytest.mark.feature("B24")
async def test_pull_with_a_wait_ends_without_a_message(address: str) -> None:
    """When the time is over the answer says that there is nothing new; a pull that waits longer still waits then."""
    async with (
        Producer("pg", address) as producer,
        PullConsumer("cg", address) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        queue = await send_to_one_queue(producer, Message("T", b"0"))
        longer = tasks.create_task(consumer.pull_once(queue, 1, wait_ms=100_000))
        assert await consumer.pull_once(queue, 1, wait_ms=10) == (PullStatus.NO_NEW_MESSAGE, [], 1, 0, 1)
        assert not longer.done()
        longer.cancel()


async def test_impossible_pulls_are_refused(address: str) -> None:
    """Numbers out of range, an expression without a tag, an unknown topic: each has its typed error."""
    async with Producer("pg", address) as producer, PullConsumer("cg", address) as consumer:
        queue = await send_to_one_queue(producer, Message("T", b"0"))
        with pytest.raises(ValueError, match="offset is -1"):
            await consumer.pull_once(queue, -1)
        with pytest.raises(ValueError, match="max_messages is 0"):
            await consumer.pull_once(queue, 0, max_messages=0)
        with pytest.raises(ValueError, match="wait_ms is -1"):
            await consumer.pull_once(queue, 0, wait_ms=-1)
        with pytest.raises(ValueError, match="holds no tag"):
            await consumer.pull_once(queue, 0, "||")
        with pytest.raises(RouteNotFoundError):
            await consumer.pull_once(queue._replace(topic="missing"), 0)


@pytest.mark.feature("P23")
async def test_pull_takes_a_condition(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """A broker that filters by properties gives only what the condition wants; so do assigned queues and an Admin."""
    settings = {"enablePropertyFilter": "true"}
    async with (
        running_broker(nameserver, tmp_path / "store", settings=settings),
        Producer("pg", nameserver.address) as producer,
        PullConsumer("cg", nameserver.address) as consumer,
        Admin(nameserver.address) as admin,
    ):
        messages = [Message("T", b"%d" % number, properties={"a": str(number)}) for number in range(5)]
        queue = await send_to_one_queue(producer, *messages)
        wanted = Sql("a > 2")
        assert [each.body for each in (await consumer.pull_once(queue, 0, wanted)).messages] == [b"3", b"4"]
        assert [each.body async for each in admin.messages("T", expression=wanted)] == [b"3", b"4"]
        await consumer.assign([queue], wanted)
        await consumer.seek_to_begin(queue)
        assert [each.body for each in await consumer.poll()] == [b"3", b"4"]


async def test_slave_is_not_asked_to_store_offsets(cluster: ScriptedCluster) -> None:
    """The master that says to go on at its slave stores the offset with the pull; the slave gets none."""
    cluster.routes[RETRY_QUEUE.topic] = {"broker-a": 1}
    master, slave = await cluster.add_broker("broker-a"), await cluster.add_slave("broker-a")
    master.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: offset_of(8)
    master.answers[RequestCode.PULL_MESSAGE] = lambda _: answer(code=ResponseCode.PULL_NOT_FOUND)
    async with PushConsumer("g", cluster.nameserver.address):
        at_master = decode_header(PullHeader, (await master.wait_asked(RequestCode.PULL_MESSAGE))[0])
        at_slave = decode_header(PullHeader, (await slave.wait_asked(RequestCode.PULL_MESSAGE))[0])
    assert (at_master.sys_flag & PULL_COMMIT_OFFSET, at_master.queue_offset, at_master.commit_offset) == (
        PULL_COMMIT_OFFSET,
        8,
        8,
    )
    assert (at_slave.sys_flag & PULL_COMMIT_OFFSET, at_slave.queue_offset, at_slave.commit_offset) == (0, 9, 0)


class Sink:
    """Takes what is pulled of the queue."""

    queue = QUEUE

    def __init__(self) -> None:
        self.accepted: list[tuple[list[int], int]] = []

    async def wait_for_room(self) -> int:
        """Have room, and nothing to store."""
        return 0

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Keep the offsets."""
        self.accepted.append(([message.queue_offset for message in messages], next_offset))

    def drop(self) -> None:
        """Do nothing."""


@contextlib.asynccontextmanager
async def fetching(
    cluster: ScriptedCluster, plan: PullPlan = PUSH, *, goes_on: bool = True
) -> AsyncGenerator[tuple[QueueFetcher, Sink, SubscriptionTable]]:
    """Give a fetcher that begins at offset 4, its sink and its subscriptions."""

    async def refuse(_queue: MessageQueue, _next_offset: int) -> bool:
        return goes_on

    cluster.routes["T"] = {"broker-a": 1}
    async with Session(cluster.nameserver.address, ManualClock()) as session:
        await session.route("T")
        sink, subscriptions = Sink(), SubscriptionTable(session.clock)
        subscriptions.put("T", "*")
        context = FetchContext(session, subscriptions, plan, refuse, None, session.tasks)
        yield QueueFetcher(sink, 4, context), sink, subscriptions


@pytest.mark.parametrize(
    ("reply", "goes_on", "pause_ms", "next_offset"),
    [
        (answer(record(4)), True, 0, 9),
        (answer(code=ResponseCode.PULL_NOT_FOUND), True, 0, 9),
        (answer(code=ResponseCode.PULL_OFFSET_MOVED), True, 0, 9),
        (answer(code=ResponseCode.PULL_OFFSET_MOVED), False, None, 9),
        (Command.response(ResponseCode.FLOW_CONTROL), True, 20, 4),
        (Command.response(ResponseCode.SYSTEM_BUSY), True, 1_000, 4),
        (Command.response(ResponseCode.SUBSCRIPTION_NOT_LATEST), True, 1_000, 4),
        (Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), True, 1_000, 4),
    ],
    ids=["found", "nothing new", "moved", "moved away", "flow control", "busy", "not the latest", "not supported"],
)
async def test_pause_follows_from_the_answer(
    cluster: ScriptedCluster, reply: Command, pause_ms: int | None, next_offset: int, *, goes_on: bool
) -> None:
    """None while all goes well; 20 ms for flow control, a second for an error, after which the offset is the same."""
    await cluster.add_broker("broker-a", {RequestCode.PULL_MESSAGE: lambda _: reply})
    async with fetching(cluster, goes_on=goes_on) as (fetcher, sink, subscriptions):
        assert (await fetcher.step(), fetcher.next_offset) == (pause_ms, next_offset)
        is_taken = reply.code in {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND}
        assert sink.accepted == ([([4] if reply.body else [], 9)] if is_taken else [])
        subscriptions.remove("T")
        assert await fetcher.step() == 1_000


async def test_slave_that_fails_is_left(cluster: ScriptedCluster) -> None:
    """The master is asked again, which names a broker anew; while it is gone, the slave is asked all the same."""
    nothing_new: dict[int, Answer] = {RequestCode.PULL_MESSAGE: lambda _: answer(code=ResponseCode.PULL_NOT_FOUND)}
    master = await cluster.add_broker("broker-a", nothing_new)
    slave = await cluster.add_slave("broker-a", {RequestCode.PULL_MESSAGE: refused(ResponseCode.SYSTEM_BUSY)})
    async with fetching(cluster) as (fetcher, _, _):
        assert [await fetcher.step() for _ in range(4)] == [0, 1_000, 0, 1_000]
    assert [len(each.asked(RequestCode.PULL_MESSAGE)) for each in (master, slave)] == [2, 2]
    cluster.gone.add("broker-a")
    async with fetching(cluster) as (fetcher, _, _):
        assert [await fetcher.step() for _ in range(2)] == [1_000, 1_000]
    assert [len(each.asked(RequestCode.PULL_MESSAGE)) for each in (master, slave)] == [2, 4]


async def test_slave_that_is_behind_us_is_given_time(cluster: ScriptedCluster) -> None:
    """It answers 20 with the offset that it was asked for, and is asked again later; another broker, at once."""
    not_yet: dict[int, Answer] = {RequestCode.PULL_MESSAGE: lambda _: answer(code=ResponseCode.PULL_RETRY_IMMEDIATELY)}
    master = await cluster.add_broker("broker-a", not_yet)
    slave = await cluster.add_slave("broker-a", not_yet)
    async with fetching(cluster) as (fetcher, _, _):
        fetcher.next_offset = 9
        assert [await fetcher.step() for _ in range(3)] == [0, 1_000, 1_000]
    assert [len(each.asked(RequestCode.PULL_MESSAGE)) for each in (master, slave)] == [1, 2]


async def test_old_broker_gets_plain_pulls(cluster: ScriptedCluster) -> None:
    """One before 5.0 does not know LITE_PULL_MESSAGE: it is asked so once, and at once anew."""
    lite, plain = RequestCode.LITE_PULL_MESSAGE, RequestCode.PULL_MESSAGE
    old = Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    broker = await cluster.add_broker("broker-a", {lite: lambda _: old, plain: lambda _: answer(record(4))})
    async with fetching(cluster, PUSH._replace(is_lite=True)) as (fetcher, sink, _):
        assert [await fetcher.step() for _ in range(3)] == [0, 0, 0]
    assert (len(broker.asked(lite)), len(broker.asked(plain))) == (1, 2)
    assert [next_offset for _, next_offset in sink.accepted] == [9, 9]


async def test_broker_without_an_address_is_asked_later(cluster: ScriptedCluster) -> None:
    """Its route may come back."""
    await cluster.add_broker("broker-a")
    route = cluster.route_of
    cluster.nameserver.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _: without_addresses(route("T"))
    async with fetching(cluster) as (fetcher, _, _):
        assert (await fetcher.step(), fetcher.next_offset) == (1_000, 4)


def without_addresses(route: TopicRouteData) -> Command:
    """Answer with a route whose broker has no address."""
    route.broker_datas[0].broker_addrs.clear()
    return Command.response(ResponseCode.SUCCESS, body=encode_body(route))


async def test_hook_sees_an_answer_that_refuses_the_offset(cluster: ScriptedCluster) -> None:
    """Each answer to a pull is told, also one without messages that leads elsewhere."""
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker(
        "broker-a", {RequestCode.PULL_MESSAGE: lambda _: answer(code=ResponseCode.PULL_OFFSET_MOVED)}
    )
    seen: asyncio.Queue[PullContext] = asyncio.Queue()

    class Seeing:
        def after_pull(self, context: PullContext) -> None:
            seen.put_nowait(context)

    consumer = PushConsumer("g", cluster.nameserver.address, settings=PushConsumerSettings(hooks=(Seeing(),)))
    consumer.subscribe("T", "*", print)
    async with consumer:
        context = await seen.get()
    assert (context.group, context.queue, list(context.messages)) == ("g", QUEUE, [])
