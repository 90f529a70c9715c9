"""What our producer sends, as the official Java client reads it: on our broker and on the official one."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from interop import clients
from interop.driver import Driver
from interop.servers import Server

from rocketlet.client import CompressionKind, Message, Producer, ProducerSettings, SendResult
from rocketlet.common.errors import ResponseError, RouteNotFoundError

StartServer = Callable[..., Server]
SETTINGS = {"recallMessageEnable": "true", "autoCreateTopicEnable": "false"}
_numbers = itertools.count(1)
PATIENT = ProducerSettings(send_timeout_ms=10_000)  # a JVM that is still warming up may take long


@pytest.fixture(scope="module", params=["rocketlet", "java"])
def strict(
    request: pytest.FixtureRequest,
    rocketlet_up: StartServer,
    java_broker: StartServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Server:
    """Start our servers, then the official ones: they let producers recall, and create no topics by themselves."""
    start = rocketlet_up if request.param == "rocketlet" else java_broker
    return start(tmp_path_factory.mktemp("strict") / "store", **SETTINGS)


@pytest.fixture
def topic(java: Driver, strict: Server) -> str:
    """Return a new topic of the test, with two queues."""
    name = f"OurProducer-{next(_numbers)}"
    with clients.Admin(java, namesrv=strict.namesrv) as admin:
        admin.create_topic(strict.broker, name, 2)
        admin.await_route(name)
    return name


@asynccontextmanager
async def official_reader(java: Driver, topic: str, server: Server) -> AsyncGenerator[clients.PushConsumer]:
    """Run an official consumer, without blocking the loop on which our producer runs."""
    about = {"namesrv": server.namesrv, "group": f"{topic}-readers", "subscriptions": {topic: "*"}}
    consumer = await asyncio.to_thread(lambda: clients.PushConsumer(java, **about))
    try:
        yield consumer
    finally:
        await asyncio.to_thread(consumer.stop)


async def read(consumer: clients.PushConsumer, bodies: set[bytes]) -> dict[bytes, clients.Received]:
    """Return all messages so far by their bodies, once the wanted ones are among them."""
    assert bodies <= await asyncio.to_thread(consumer.wait_bodies, bodies)
    return {message.body: message for message in await asyncio.to_thread(consumer.received)}


@pytest.mark.feature("L1", "L6", "L8")
async def test_delayed_messages_come_when_they_are_due(java: Driver, strict: Server, topic: str) -> None:
    """A level, a time and an instant are kept; what was recalled does not come, though later messages do."""
    async with (
        official_reader(java, topic, strict) as consumer,
        Producer("senders", strict.namesrv, settings=PATIENT) as producer,
    ):
        recalled = await producer.send(Message(topic, b"recalled", delay_ms=3_000))
        assert recalled.recall_handle is not None
        assert await producer.recall(topic, recalled.recall_handle) == recalled.message_id
        await producer.send(Message(topic, b"level", delay_level=1, tags="t"))
        await producer.send(Message(topic, b"time", delay_ms=1_500, keys="k"))
        at_ms = time.time_ns() // 1_000_000 + 4_500
        await producer.send(Message(topic, b"instant", deliver_at_ms=at_ms))
        got = await read(consumer, {b"level", b"time", b"instant"})
    assert set(got) == {b"level", b"time", b"instant"}
    assert got[b"level"].store_timestamp >= got[b"level"].born_timestamp + 1_000
    assert got[b"time"].store_timestamp >= got[b"time"].born_timestamp + 1_500 - 1_000
    assert got[b"instant"].store_timestamp >= at_ms - 1_000
    assert (got[b"level"].tags, got[b"time"].keys) == ("t", "k")


@pytest.mark.feature("L8")
async def test_message_that_is_not_there_is_not_recalled(strict: Server, topic: str) -> None:
    """A handle of another topic is refused by the broker; what is no handle is refused before anything is sent."""
    async with Producer("senders", strict.namesrv, settings=PATIENT) as producer:
        sent = await producer.send(Message(topic, b"x", delay_ms=60_000))
        assert sent.recall_handle is not None
        with pytest.raises(ValueError, match="is not a recall handle that a send returned"):
            await producer.recall(topic, sent.message_id)
        with pytest.raises(RouteNotFoundError):
            await producer.recall("Elsewhere", sent.recall_handle)
        assert await producer.recall(topic, sent.recall_handle) == sent.message_id


@pytest.mark.feature("K12")
@pytest.mark.parametrize("kind", CompressionKind)
async def test_compressed_bodies_are_read(java: Driver, strict: Server, topic: str, kind: CompressionKind) -> None:
    """Bodies that our producer packs with zlib, LZ4 or zstd reach the Java client as they were."""
    body = f"packed with {kind.name} ".encode() * 1_000
    settings = ProducerSettings(compression=kind, send_timeout_ms=10_000)
    async with Producer("senders", strict.namesrv, settings=settings) as producer:
        sent = await producer.send(Message(topic, body))
    async with official_reader(java, topic, strict) as consumer:
        got = (await read(consumer, {body}))[body]
    assert got.msg_id == sent.message_id
    assert got.sys_flag >> 8 & 7 == kind  # the flag of a packed body itself is taken away when Java unpacks it


@pytest.mark.feature("K20")
async def test_batches_that_made_themselves_are_read(java: Driver, strict: Server, topic: str) -> None:
    """Each message of automatic batches is one of its own to Java: its key, its tag, its place."""
    settings = ProducerSettings(auto_batch=True, send_timeout_ms=10_000)
    results: dict[bytes, SendResult] = {}
    async with Producer("senders", strict.namesrv, settings=settings) as producer:
        bodies = [b"%d" % number for number in range(300)]
        waiting = {body: producer.send_nowait(Message(topic, body, tags="t", keys=body.decode())) for body in bodies}
        for body, each in waiting.items():
            results[body] = await each
    async with official_reader(java, topic, strict) as consumer:
        got = await read(consumer, set(results))
    for body, result in results.items():
        message = got[body]
        assert (message.msg_id, message.queue_offset) == (result.message_id, result.queue_offset)
        assert (message.tags, message.keys) == ("t", body.decode())


async def test_unknown_topic_is_a_clear_error(strict: Server) -> None:
    """Where no broker creates topics, the error names the topic, and nothing else is tried."""
    async with Producer("senders", strict.namesrv, settings=PATIENT) as producer:
        with pytest.raises(RouteNotFoundError, match="no broker has the topic Nowhere") as raised:
            await producer.send(Message("Nowhere", b"x"))
        assert not isinstance(raised.value, ResponseError)
