"""Trace, namespaces, signatures and TLS between our client and the official one and its servers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from interop import clients
from interop.clients import Outgoing
from interop.driver import Driver
from interop.secured import USER
from interop.servers import Server

from rocketlet.client import (
    ConsumeFrom,
    Credentials,
    Message,
    MessageTrace,
    Producer,
    ProducerSettings,
    PubRecord,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
    SubAfterRecord,
    SubBeforeRecord,
    Tls,
    TraceRecord,
    TransactionFunctions,
    TransactionProducer,
    TransactionProducerSettings,
    TransactionState,
    parse_records,
)
from rocketlet.client.session.settings import ssl_context_of
from rocketlet.client.tracing.message_trace import encode_record
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError
from rocketlet.common.names import TRACE_TOPIC

LIMIT_S = 30


@pytest.fixture
def received() -> asyncio.Queue[ReceivedMessage]:
    """Return where ``listen_to`` puts messages."""
    return asyncio.Queue()


def listen_to(queue: asyncio.Queue[ReceivedMessage]):
    """Return a listener that puts messages into a queue."""

    async def on_messages(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            queue.put_nowait(message)

    return on_messages


def commit(*_: object) -> TransactionState:
    """Be the local part of every transaction."""
    return TransactionState.COMMIT


def decode(java: Driver, body: bytes) -> list[dict[str, Any]]:
    """Return what the official reader finds in a message of a trace."""
    return java.call("trace.decode", text=body.decode())["records"]


def query(java: Driver, namesrv: str, key: str) -> list[clients.Received]:
    """Return the messages of the trace that the official client finds by a key."""
    with clients.PullConsumer(java, namesrv=namesrv) as consumer:
        return consumer.query(TRACE_TOPIC, key)


async def read_trace(namesrv: str, message_id: str, count: int, topic: str = TRACE_TOPIC) -> list[TraceRecord]:
    """Return the records of a message once there are as many."""
    found: list[TraceRecord] = []
    settings = PullConsumerSettings(credentials=USER)  # for those who ask
    async with asyncio.timeout(LIMIT_S), PullConsumer("reader", namesrv, settings=settings) as reader:
        queues = await reader.fetch_queues(topic)
        await reader.assign(queues)
        for queue in queues:
            await reader.seek_to_begin(queue)
        while len(found) < count:
            for message in await reader.poll():
                records = parse_records(message.body.decode())
                found += [record for record in records if record.message_id == message_id]
    return found


@pytest.mark.feature("K18")
async def test_signed_requests_reach_a_broker_that_asks_for_them(
    secured: Server, received: asyncio.Queue[ReceivedMessage]
) -> None:
    """Producer and consumer work with their keys; without keys, or with a wrong one, a send is refused."""
    signed = ProducerSettings(credentials=USER, retries=0)
    settings = PushConsumerSettings(credentials=USER, consume_from=ConsumeFrom.FIRST)
    async with asyncio.timeout(LIMIT_S), Producer("pg", secured.namesrv, settings=signed) as producer:
        sent = await producer.send(Message("signed", b"x"))
        consumer = PushConsumer("cg", secured.namesrv, settings=settings)
        consumer.subscribe("signed", "*", listen_to(received))
        async with consumer:
            assert (await received.get()).message_id == sent.message_id
    for credentials in (None, Credentials(USER.access_key, "wrong")):
        unknown = ProducerSettings(credentials=credentials, retries=0)
        async with Producer("unknown", secured.namesrv, settings=unknown) as producer:
            with pytest.raises(ResponseError) as refusal:
                await producer.send(Message("signed", b"x"))
            assert refusal.value.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("body_bytes", [1, 1_000_000])
async def test_official_servers_are_spoken_to_under_tls(
    secured: Server, received: asyncio.Queue[ReceivedMessage], body_bytes: int
) -> None:
    """Name server and broker, on the ports that take plain connections too; also long bodies, in both directions."""
    topic, body = f"tls-{body_bytes}", b"x" * body_bytes
    context = ssl_context_of(Tls(verifies=False))  # their certificate is made up at each start
    assert context is not None
    settings = ProducerSettings(tls=context, credentials=USER, compress_from_bytes=1 << 30)
    async with asyncio.timeout(LIMIT_S), Producer("pg", secured.namesrv, settings=settings) as producer:
        sent = await producer.send(Message(topic, body), timeout_ms=10_000)
        assert context.session_stats()["connect_good"] == 2
        own = PushConsumerSettings(tls=context, credentials=USER, consume_from=ConsumeFrom.FIRST)
        consumer = PushConsumer("tls", secured.namesrv, settings=own)
        consumer.subscribe(topic, "*", listen_to(received))
        async with consumer:
            got = await received.get()
    assert (got.message_id, got.body) == (sent.message_id, body)
    assert context.session_stats()["connect_good"] == 4


@pytest.mark.feature("K19")
@pytest.mark.parametrize("kind", ["rocketlet", "java"])
async def test_official_reader_understands_our_trace(
    kind: str, java: Driver, server: Server, secured: Server, received: asyncio.Queue[ReceivedMessage]
) -> None:
    """Send, transaction and consumption; the trace is found by the id of its message, as ``mqadmin`` looks for it."""
    namesrv = (server if kind == "rocketlet" else secured).namesrv
    topic, trace = f"traced-{kind}", MessageTrace(flush_ms=100)
    functions = TransactionFunctions(commit, lambda _: None)
    settings = TransactionProducerSettings(hooks=(trace,), credentials=USER)
    own = PushConsumerSettings(hooks=(trace,), credentials=USER, consume_from=ConsumeFrom.FIRST)
    consumer = PushConsumer("traced", namesrv, settings=own)
    consumer.subscribe(topic, "*", listen_to(received))
    async with asyncio.timeout(LIMIT_S):
        async with TransactionProducer("pg", namesrv, listener=functions, settings=settings) as producer:
            sent = await producer.send_in_transaction(Message(topic, b"x", tags="a", keys=["k1"]))
            async with consumer:
                assert (await received.get()).message_id == sent.message_id
        records = await read_trace(namesrv, sent.message_id, 4)
    assert len(records) == 4

    text = "".join(encode_record(record) for record in records)
    read = {record["type"]: record for record in decode(java, text.encode())}
    assert set(read) == {"Pub", "EndTransaction", "SubBefore", "SubAfter"}
    assert {record["msgId"] for record in read.values()} == {sent.message_id}
    assert (read["Pub"]["topic"], read["Pub"]["tags"], read["Pub"]["keys"]) == (topic, "a", "k1")
    assert (read["Pub"]["kind"], read["Pub"]["succeeded"]) == ("Trans_Msg_Half", True)
    assert read["EndTransaction"]["state"] == "COMMIT_MESSAGE"
    assert read["SubBefore"]["requestId"] == read["SubAfter"]["requestId"]
    assert (read["SubAfter"]["succeeded"], read["SubAfter"]["end"]) == (True, 0)
    if kind == "rocketlet":
        found = await asyncio.to_thread(query, java, namesrv, sent.message_id)
        assert {record["type"] for message in found for record in decode(java, message.body)} == set(read)


@pytest.mark.feature("K19")
async def test_trace_of_the_official_client_is_read(
    java: Driver, server: Server, new_topic: Callable[..., str]
) -> None:
    """What Java writes, our parser reads. Records that find no topic make one, and may be lost: they have their own."""
    topic, traces = new_topic(), new_topic(1)
    about: dict[str, Any] = {"namesrv": server.namesrv, "settings": {"enableTrace": True, "traceTopic": traces}}

    def use_java() -> str:
        with clients.Producer(java, **about) as producer:
            [sent] = producer.send_all(topic, Outgoing(b"x", tags="a", keys=["k1"]))
            with clients.PushConsumer(java, group="java-traced", subscriptions={topic: "*"}, **about) as consumer:
                consumer.wait_bodies([b"x"])
        return sent.msg_id

    message_id = await asyncio.to_thread(use_java)
    records = {type(record): record for record in await read_trace(server.namesrv, message_id, 3, traces)}
    pub, before, after = records[PubRecord], records[SubBeforeRecord], records[SubAfterRecord]
    assert isinstance(pub, PubRecord)
    assert (pub.topic, pub.tags, pub.keys, pub.has_succeeded) == (topic, "a", "k1", True)
    assert isinstance(before, SubBeforeRecord)
    assert isinstance(after, SubAfterRecord)
    assert (before.request_id, after.has_succeeded, after.group) == (after.request_id, True, "java-traced")


@pytest.mark.feature("K18")
async def test_namespace_is_that_of_the_official_client(
    java: Driver, server: Server, received: asyncio.Queue[ReceivedMessage]
) -> None:
    """What one sends in a namespace the other gets in it, in both directions, and both see the bare topic."""
    about: dict[str, Any] = {"namesrv": server.namesrv, "settings": {"namespace": "blue"}}
    own = PushConsumerSettings(namespace="blue", consume_from=ConsumeFrom.FIRST)

    def send() -> None:
        with clients.Producer(java, group="java-pg", **about) as producer:
            producer.send_all("spaced", Outgoing(b"from java"))

    def receive() -> list[clients.Received]:
        with clients.PushConsumer(java, group="java-cg", subscriptions={"spaced": "*"}, **about) as consumer:
            consumer.wait_bodies([b"from java", b"from rocketlet"])
            return consumer.received()

    await asyncio.to_thread(send)
    async with asyncio.timeout(LIMIT_S):
        async with Producer("pg", server.namesrv, settings=ProducerSettings(namespace="blue")) as producer:
            await producer.send(Message("spaced", b"from rocketlet"))
        consumer = PushConsumer("cg", server.namesrv, settings=own)
        consumer.subscribe("spaced", "*", listen_to(received))
        async with consumer:
            ours = [await received.get() for _ in range(2)]
    theirs = await asyncio.to_thread(receive)
    assert {message.body for message in ours} == {b"from java", b"from rocketlet"}
    assert {message.topic for message in (*ours, *theirs)} == {"spaced"}
