"""Requests and replies against scripted brokers: what travels, what is matched, what goes wrong."""

import asyncio
import pathlib

import pytest
from real_broker import running_broker, running_nameserver
from received import received
from scripted_cluster import ScriptedCluster, ScriptedServer, refused, silent, stored
from subscribed import push_consumer

from rocketlet.client import (
    Admin,
    Message,
    Producer,
    ReceivedMessage,
    SendResult,
    Session,
    reply_to,
)
from rocketlet.client.producer.request_reply import AwaitedReplies
from rocketlet.common.codes import ResponseCode
from rocketlet.common.compression import CompressionKind, deflate
from rocketlet.common.errors import (
    ClientStateError,
    ReplyTimeoutError,
    RequestTimeoutError,
    ResponseError,
    RouteNotFoundError,
)
from rocketlet.common.properties import encode_properties, parse_properties
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import ReplyPushHeader
from rocketlet.remoting.headers.send import decode_send_header
from rocketlet.remoting.transport.connection import Reply
from rocketlet.testing import ManualClock

SEND, REPLY, BEAT = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.HEART_BEAT
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


@pytest.fixture
async def broker(cluster: ScriptedCluster) -> ScriptedServer:
    """Return the only broker of a cluster with topic T of one queue and the topic of replies."""
    cluster.routes |= {"T": {"broker-a": 1}, "C_REPLY_TOPIC": {"broker-a": 1}}
    return await cluster.add_broker("broker-a", {REPLY: stored})


def properties_of(command: Command) -> dict[str, str]:
    """Return the properties of a send."""
    return parse_properties(decode_send_header(command).properties or "")


def push_of(properties: dict[str, str], body: bytes, sys_flag: int = 0, host: str = "127.0.0.1:10911") -> Command:
    """Return the request that brings a reply."""
    header = ReplyPushHeader(
        producer_group="pg",
        topic="C_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_at_ms=1,
        flag=5,
        properties=encode_properties(properties).decode(),
        born_host=host,
        store_host=host,
        stored_at_ms=2,
    )
    return Command.request(PUSH, header, body)


class Responder:
    """Replies through the broker as soon as a request was stored, and keeps how the replies were taken."""

    def __init__(
        self, broker: ScriptedServer, body: bytes = b"re", sys_flag: int = 0, host: str = "127.0.0.1:10911"
    ) -> None:
        self.answers: list[int] = []
        self._broker = broker
        self._how = body, sys_flag, host
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> None:
        """Begin."""
        await self._tasks.__aenter__()
        self._broker.answers[SEND] = self._store

    async def __aexit__(self, *error: object) -> None:
        """Wait for the replies."""
        await self._tasks.__aexit__(None, None, None)

    def _store(self, command: Command) -> Reply:
        self._tasks.create_task(self._push(properties_of(command)))
        return stored(command)

    async def _push(self, properties: dict[str, str]) -> None:
        push = push_of(properties | {"MSG_TYPE": "reply"}, *self._how)
        answer = await self._broker.connections[-1].request(push, 1_000)
        self.answers.append(answer.code)


@pytest.mark.feature("K16")
async def test_request_carries_who_asks_and_returns_the_reply(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Correlation id, client id and time limit travel with it; the broker knows the client before."""
    async with (
        Session(cluster.nameserver.address) as session,
        Producer("pg", session=session) as producer,
        Responder(broker),
    ):
        reply = await producer.request(Message("T", b"question", properties={"a": "b"}), timeout_ms=2_500)

    [send] = broker.asked(SEND)
    properties = properties_of(send)
    assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (session.client_id, "2500")
    assert reply.properties["CORRELATION_ID"] == properties["CORRELATION_ID"]
    assert (reply.body, reply.topic, reply.flag, reply.properties["a"]) == (b"re", "C_REPLY_TOPIC", 5, "b")
    assert (reply.born_host, reply.born_at_ms, reply.stored_at_ms) == (("127.0.0.1", 10911), 1, 2)
    assert (reply.queue_offset, reply.log_offset, reply.reconsume_times, reply.store_size) == (0, 0, 0, 0)
    assert (reply.prepared_transaction_offset, reply.body_crc, reply.offset_message_id) == (0, 0, "")
    codes = [command.code for command in broker.requests]
    assert codes.index(BEAT) < codes.index(SEND)


@pytest.mark.feature("K16")
@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("a.host/10.0.0.1:80", ("10.0.0.1", 80)),
        ("10.0.0.1:x", ("10.0.0.1", 0)),
        ("10.0.0.1:", ("10.0.0.1", 0)),
    ],
)
async def test_host_of_a_reply_is_read_as_java_writes_it(
    cluster: ScriptedCluster, broker: ScriptedServer, text: str, host: tuple[str, int]
) -> None:
    """With or without the name before it; a port that is none is 0."""
    async with Producer("pg", cluster.nameserver.address) as producer, Responder(broker, host=text):
        reply = await producer.request(Message("T", b"question"), timeout_ms=2_500)
    assert (reply.born_host, reply.store_host) == (host, host)


@pytest.mark.feature("K16")
async def test_all_brokers_of_the_topic_know_the_requester(cluster: ScriptedCluster) -> None:
    """The reply may come from a broker that the request was not sent to."""
    cluster.routes["T"] = {"broker-a": 1, "broker-b": 1}
    brokers = [await cluster.add_broker(name) for name in ("broker-a", "broker-b")]
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(ReplyTimeoutError):
            await producer.request(Message("T", b"x"), timeout_ms=100)
    assert all(broker.asked(BEAT) for broker in brokers)


@pytest.mark.feature("K16")
async def test_each_request_gets_its_own_reply(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Requests at the same time are told apart by their correlation ids."""
    waiting: list[Command] = []
    broker.answers[SEND] = lambda command: (waiting.append(command), stored(command))[1]
    async with Producer("pg", cluster.nameserver.address) as producer, asyncio.TaskGroup() as group:
        asked = [group.create_task(producer.request(Message("T", b"%d" % number))) for number in range(5)]
        await broker.wait_asked(SEND, 5)
        for command in reversed(waiting):
            broker.connections[0].send_oneway(push_of(properties_of(command), b"re: " + command.body))
    assert [task.result().body for task in asked] == [b"re: %d" % number for number in range(5)]


@pytest.mark.feature("K16")
async def test_nobody_replies(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """The time of send and reply together is over after the limit, and a late reply is taken and dropped."""
    clock = ManualClock()
    async with Producer("pg", cluster.nameserver.address, clock=clock) as producer:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(error_of(producer, Message("T", b"x"), 2_000))
            await broker.wait_asked(SEND)
            await clock.elapse(1_999)
            assert not asking.done()
            await clock.elapse(1)
        error = asking.result()
        late = push_of(properties_of(broker.asked(SEND)[0]), b"late")
        answer = await broker.connections[0].request(late, 1_000)
    assert isinstance(error, ReplyTimeoutError)
    assert str(error) == "no reply to a request to T in 2000 ms"
    assert answer.code == ResponseCode.SUCCESS


async def error_of(producer: Producer, message: Message, timeout_ms: int) -> object:
    """Return what a request returns or raises."""
    try:
        return await producer.request(message, timeout_ms=timeout_ms)
    except (RequestTimeoutError, ClientStateError) as error:
        return error


@pytest.mark.feature("K16")
async def test_send_that_fails_is_the_error_of_a_send(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A refusal, an unknown topic and a send without an answer are said as ``send`` says them."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(RouteNotFoundError):
            await producer.request(Message("unknown", b"x"))
        broker.answers[SEND] = refused(ResponseCode.MESSAGE_ILLEGAL, "too long")
        with pytest.raises(ResponseError, match="too long"):
            await producer.request(Message("T", b"x"))
        broker.answers[SEND] = silent
        with pytest.raises(RequestTimeoutError, match="did not answer") as raised:
            await producer.request(Message("T", b"x"), timeout_ms=50)
        assert not isinstance(raised.value, ReplyTimeoutError)


async def test_reply_counts_more_than_a_lost_answer(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """The broker never answers the send, but the reply comes: the request was stored, so the reply is returned."""
    broker.answers[SEND] = silent
    async with Producer("pg", cluster.nameserver.address) as producer, asyncio.TaskGroup() as group:
        asking = group.create_task(producer.request(Message("T", b"x"), timeout_ms=200))
        [send] = await broker.wait_asked(SEND)
        broker.connections[0].send_oneway(push_of(properties_of(send), b"re"))
    assert asking.result().body == b"re"


@pytest.mark.parametrize("kind", list(CompressionKind))
async def test_compressed_reply_is_inflated(
    cluster: ScriptedCluster, broker: ScriptedServer, kind: CompressionKind
) -> None:
    """A long reply comes compressed; hosts may have Java's form with a slash."""
    body = b"long " * 2_000
    responder = Responder(broker, deflate(body, kind), kind.sys_flag, "name/10.0.0.1:99")
    async with Producer("pg", cluster.nameserver.address) as producer, responder:
        reply = await producer.request(Message("T", b"x"))
    assert (reply.body, reply.store_host) == (body, ("10.0.0.1", 99))


async def test_reply_that_is_not_compressed_as_it_says(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """It is handed over as it came, as in Java: Go's client sends long replies so."""
    responder = Responder(broker, b"not zlib", CompressionKind.ZLIB.sys_flag)
    async with Producer("pg", cluster.nameserver.address) as producer, responder:
        reply = await producer.request(Message("T", b"x"))
    assert reply.body == b"not zlib"
    assert responder.answers == [ResponseCode.SUCCESS]


async def test_closing_ends_requests_that_wait(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """No reply can come any more: they end at once with an error that says so."""
    async with asyncio.TaskGroup() as group, Producer("pg", cluster.nameserver.address) as producer:
        asking = group.create_task(error_of(producer, Message("T", b"x"), 60_000))
        await broker.wait_asked(SEND)
    assert isinstance(asking.result(), ClientStateError)


@pytest.mark.feature("K16")
async def test_reply_goes_to_the_topic_of_the_cluster(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """It is sent by request 325 with the properties of the request, by any producer."""
    about = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "id", "TTL": "3000", "CLUSTER": "C", "other": "x"}
    request = with_properties(about)
    async with Producer("pg", cluster.nameserver.address) as producer:
        result = await producer.send(reply_to(request, b"re"))
    [send] = broker.asked(REPLY)
    properties = properties_of(send)
    assert (send.body, decode_send_header(send).topic) == (b"re", "C_REPLY_TOPIC")
    del about["CLUSTER"], about["other"]
    assert properties == about | {"MSG_TYPE": "reply", "WAIT": "true", "UNIQ_KEY": result.message_id}


async def test_other_types_of_messages_are_sent_as_usual(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Only ``reply`` as MSG_TYPE makes a reply."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        await producer.send(Message("T", b"x", properties={"MSG_TYPE": "invoice"}))
    assert (len(broker.asked(SEND)), len(broker.asked(REPLY))) == (1, 0)


@pytest.mark.feature("K16", "Q2")
async def test_reply_to_a_requester_that_is_gone(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """The broker's error is raised after the attempts of a normal send: another broker might have known it."""
    broker.answers[REPLY] = refused(ResponseCode.SYSTEM_ERROR, "channel of <id> not found")
    request = with_properties({"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "id", "TTL": "3000", "CLUSTER": "C"})
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(ResponseError, match="not found") as raised:
            await producer.send(reply_to(request, b"re"))
    assert raised.value.code == 1
    assert len(broker.asked(REPLY)) == 3


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({"CLUSTER": "C"}, "waits for no reply"),
        ({"CORRELATION_ID": "c", "CLUSTER": "C"}, "waits for no reply"),
        ({"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "id"}, "no broker has put CLUSTER"),
    ],
)
def test_message_that_is_no_request(properties: dict[str, str], what: str) -> None:
    """What cannot be replied to is refused before anything is sent."""
    with pytest.raises(ValueError, match=what):
        reply_to(with_properties(properties), b"re")


async def test_request_that_is_cancelled_leaves_nothing(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Its reply is not waited for any more, and the producer goes on."""
    async with Session(cluster.nameserver.address) as session, Producer("pg", session=session) as producer:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(producer.request(Message("T", b"x")))
            await broker.wait_asked(SEND)
            asking.cancel()
        assert repr(session.feature(AwaitedReplies)) == "<AwaitedReplies 0>"
        async with Responder(broker):
            assert (await producer.request(Message("T", b"x"))).body == b"re"


@pytest.mark.feature("K16")
async def test_reply_finds_its_way_around_a_broker_that_does_not_know_the_requester(tmp_path: pathlib.Path) -> None:
    """One of two brokers has the topic: the replies that begin at the other get there by another attempt."""
    async with (
        running_nameserver() as nameserver,
        running_broker(nameserver, tmp_path / "a", "broker-a"),
        running_broker(nameserver, tmp_path / "b", "broker-b"),
        Admin(nameserver.address) as admin,
    ):
        await admin.create_topic("T", brokers=["broker-a"])
        sent: list[SendResult] = []
        async with Producer("replies", nameserver.address) as answers, Producer("pg", nameserver.address) as producer:

            async def answer(messages: list[ReceivedMessage]) -> None:
                sent.append(await answers.send(reply_to(messages[0], b"re: " + messages[0].body)))

            async with push_consumer(nameserver.address, answer):
                bodies = [b"%d" % number for number in range(6)]
                replies = [await producer.request(Message("T", body), timeout_ms=10_000) for body in bodies]
    assert [reply.body for reply in replies] == [b"re: " + body for body in bodies]
    assert {result.queue.broker_name for result in sent} == {"broker-a"}


async def test_bad_use_is_said_at_once(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """What is no message, or no time limit, is refused, and nothing is sent; as is a request before the start."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(TypeError, match="takes a Message, not str"):
            await producer.request("text")  # pyright: ignore[reportArgumentType] # bad use
        with pytest.raises(ValueError, match="timeout_ms is 0"):
            await producer.request(Message("T", b"x"), timeout_ms=0)
    with pytest.raises(TypeError, match="takes a ReceivedMessage, not Message"):
        reply_to(Message("T", b"x"), b"re")  # pyright: ignore[reportArgumentType] # bad use
    with pytest.raises(ClientStateError, match="is closed"):
        await producer.request(Message("T", b"x"))
    assert broker.asked(SEND) == []


def with_properties(properties: dict[str, str]) -> ReceivedMessage:
    """Return a received message with properties."""
    message = received(0)
    message.properties.update(properties)
    return message
