"""Producers used as they must not be: each mistake has a typed error and one clear sentence."""

import asyncio
import pathlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from real_broker import running_broker
from scripted_cluster import ScriptedCluster, ScriptedServer

from rocketlet.client import (
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    PushConsumerSettings,
    Session,
    split_batch,
)
from rocketlet.common.errors import ClientStateError, ConfigError, ResponseError, RouteNotFoundError
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode

SEND = RequestCode.SEND_MESSAGE_V2
NOBODY = "127.0.0.1:1"
Use = Callable[[Producer], Awaitable[object]]


@pytest.fixture
async def broker(cluster: ScriptedCluster) -> ScriptedServer:
    """Return the only broker of a cluster with topic T of one queue."""
    cluster.routes["T"] = {"broker-a": 1}
    return await cluster.add_broker("broker-a")


def make(**arguments: Any) -> Producer:
    """Make a producer without a checker that looks at the arguments."""
    return Producer(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"group": None}, TypeError, "group is NoneType, it must be text"),
        ({"group": b"g"}, TypeError, "group is bytes, it must be text"),
        ({"group": ""}, ConfigError, "the specified group is blank"),
        ({"group": "a b"}, ConfigError, "the specified group.a b. contains illegal characters"),
        ({"group": "DEFAULT_PRODUCER"}, ConfigError, "reserved, choose a name of your own"),
        ({"nameserver": 9876}, TypeError, "nameserver is int, it must be text such as 'host:9876;other:9876'"),
        ({"nameserver": ["a:1"]}, TypeError, "nameserver is list, it must be text"),
        ({"nameserver": "localhost"}, ConfigError, "name server 'localhost' is not of the form host:port"),
        ({"nameserver": "localhost:http"}, ConfigError, "name server 'localhost:http' is not of the form host:port"),
        ({"nameserver": " "}, ConfigError, "no name server: pass nameserver= or set NAMESRV_ADDR"),
        ({"settings": PushConsumerSettings()}, TypeError, "settings are PushConsumerSettings, they must be ProducerS"),
        ({"session": "s"}, TypeError, "session is str, it must be a Session"),
        ({"settings": {"retries": 3}}, TypeError, "settings are dict, they must be ProducerSettings"),
    ],
    ids=repr,
)
def test_producer_that_cannot_be_made(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    """What is wrong with the arguments is known before anything starts."""
    with pytest.raises(error, match=text):
        make(**{"group": "g", "nameserver": NOBODY, **arguments})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"compression": "zlib"}, "compression is 'zlib', allowed are the members of CompressionKind"),
        ({"compression_level": 11}, "compression_level is 11, allowed are 0 to 9"),
        ({"retries_nowait": -1}, "retries_nowait is -1"),
        ({"batch_hold_ms": 0}, "batch_hold_ms is 0, allowed are 1 to 30000"),
        ({"batch_bytes": 3 << 20}, "batch_bytes is 3145728, allowed are 1 to 2097152"),
        ({"batch_total_bytes": 0}, "batch_total_bytes is 0"),
        ({"send_timeout_ms": "3000"}, "send_timeout_ms is '3000', it must be a whole number"),
    ],
)
def test_setting_that_cannot_be_used(settings: dict[str, Any], text: str) -> None:
    """The error names the setting, its value and what is allowed."""
    with pytest.raises(ConfigError, match=text) as raised:
        ProducerSettings(**settings)
    assert raised.value.key in settings


USES: dict[str, Use] = {
    "send": lambda producer: producer.send(Message("T", b"x")),
    "send_oneway": lambda producer: producer.send_oneway(Message("T", b"x")),
    "send_batch": lambda producer: producer.send_batch([Message("T", b"x")]),
    "send_nowait": lambda producer: producer.send_nowait(Message("T", b"x")),
    "request": lambda producer: producer.request(Message("T", b"x")),
    "recall": lambda producer: producer.recall("T", "handle"),
    "fetch_queues": lambda producer: producer.fetch_queues("T"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_producer_is_used_before_and_after_its_block(
    cluster: ScriptedCluster, broker: ScriptedServer, use: Use
) -> None:
    """Before the start and after the end every call says so, and sends nothing."""
    producer = Producer("g", cluster.nameserver.address)
    with pytest.raises(ClientStateError, match="producer g is not started yet: enter it with async with"):
        await use(producer)
    async with producer:
        pass
    with pytest.raises(ClientStateError, match="producer g is closed"):
        await use(producer)
    assert not broker.requests


async def test_producer_is_started_twice(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A second start is refused while it is open and when it is closed; the first goes on."""
    producer = Producer("g", cluster.nameserver.address)
    async with producer:
        with pytest.raises(ClientStateError, match="producer g cannot be started again: it is open"):
            await producer.__aenter__()
        await producer.send(Message("T", b"x"))
    with pytest.raises(ClientStateError, match="producer g cannot be started again: it is closed"):
        await producer.__aenter__()
    assert len(broker.asked(SEND)) == 1


async def test_producer_that_could_not_start_is_closed(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """After a refused start it is not taken for open, and the session goes on without it."""
    async with Session(cluster.nameserver.address) as session, Producer("g", session=session) as first:
        second = Producer("g", session=session)
        with pytest.raises(ConfigError, match="has been created before"):
            await second.__aenter__()
        with pytest.raises(ClientStateError, match="producer g is closed"):
            await second.send(Message("T", b"x"))
        await first.send(Message("T", b"x"))
    assert len(broker.asked(SEND)) == 1


async def test_session_that_is_not_open_is_refused(cluster: ScriptedCluster) -> None:
    """A producer cannot borrow a session before it is entered, or when it has ended."""
    session = Session(cluster.nameserver.address)
    with pytest.raises(ClientStateError, match="session is not started yet: enter it with async with"):
        await Producer("g", session=session).__aenter__()
    async with session:
        with pytest.raises(ClientStateError, match="session cannot be started again: it is open"):
            await session.__aenter__()
    with pytest.raises(ClientStateError, match="session is closed"):
        await Producer("g", session=session).__aenter__()


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_producer_is_used_when_its_loop_is_closed(use: Use) -> None:
    """A producer that outlived its ``asyncio.run`` is refused in another one, and outside of any."""

    async def enter() -> Producer:
        return await Producer("g", NOBODY).__aenter__()

    async def use_it(producer: Producer) -> None:
        await use(producer)

    async def leave(producer: Producer) -> None:
        await producer.__aexit__(None, None, None)

    loop = asyncio.SelectorEventLoop()
    producer = loop.run_until_complete(enter())
    with pytest.raises(ClientStateError, match="producer g belongs to another event loop: use it where it was entered"):
        asyncio.run(use_it(producer))
    with pytest.raises(ClientStateError, match="belongs to another event loop"):
        use(producer).__await__().send(None)
    with pytest.raises(ClientStateError, match="belongs to another event loop"):
        asyncio.run(leave(producer))
    loop.run_until_complete(leave(producer))
    loop.close()


async def test_producer_is_used_from_another_thread(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A thread with a loop of its own is sent back to the loop of the producer."""
    errors: list[BaseException] = []

    async def send(producer: Producer) -> None:
        await producer.send(Message("T", b"x"))

    def run(producer: Producer) -> None:
        try:
            asyncio.run(send(producer))
        except ClientStateError as error:
            errors.append(error)

    async with Producer("g", cluster.nameserver.address) as producer:
        thread = threading.Thread(target=run, args=(producer,))
        thread.start()
        await asyncio.to_thread(thread.join)
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(send(producer), loop).result())
    assert [str(error) for error in errors] == ["producer g belongs to another event loop: use it where it was entered"]
    assert len(broker.asked(SEND)) == 1


def exchange_body(message: Message, body: Any) -> Message:
    """Give a message another body."""
    message.body = body
    return message


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (None, TypeError, "send takes a Message, not NoneType"),
        (b"x", TypeError, "send takes a Message, not bytes"),
        (("T", b"x"), TypeError, "send takes a Message, not tuple"),
        (exchange_body(Message("T", b"x"), "text"), TypeError, "body is str, it must be bytes"),
        (Message(None, b"x"), TypeError, "topic is NoneType, it must be text"),  # pyright: ignore[reportArgumentType] # the mistake
        (Message(["T"], b"x"), TypeError, "topic is list, it must be text"),  # pyright: ignore[reportArgumentType] # the mistake
        (Message("T", b""), ValueError, "body is empty"),
        (Message("T", b"x" * (1 << 22) + b"x"), ValueError, "body is 4194305 bytes, limit is 4194304"),
        (Message("T", b"x", flag="1"), TypeError, "flag is str, it must be a whole number"),  # pyright: ignore[reportArgumentType] # the mistake
        (Message("T", b"x", flag=1 << 31), ValueError, "flag is 2147483648, it must fit 32 bits"),
        (Message("T", b"x", delay_ms=1, delay_level=1), ValueError, "a message has one delay, not delay_level and de"),
        (Message("T", b"x", properties={"a": "x" * 32_767}), ValueError, "properties are .* bytes, limit is 32767"),
        (Message("OFFSET_MOVED_EVENT", b"x"), ValueError, "topic OFFSET_MOVED_EVENT takes no messages of clients"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_message_that_cannot_be_sent(
    cluster: ScriptedCluster, broker: ScriptedServer, message: Any, error: type[Exception], text: str
) -> None:
    """Every way to send refuses it with the same sentence, before anything is sent."""
    async with Producer("g", cluster.nameserver.address) as producer:
        for call in (producer.send, producer.send_nowait, producer.send_oneway):
            with pytest.raises(error, match=text):
                await call(message)
        with pytest.raises((error, ValueError), match=f"{text}|delayed"):
            await producer.send_batch([Message("T", b"x"), message])
    assert not broker.asked(SEND)


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        ([], ValueError, "batch is empty"),
        (Message("T", b"x"), TypeError, "send_batch takes several messages, not one Message; use send"),
        (None, TypeError, "send_batch takes several messages, not NoneType"),
        (b"x", TypeError, "send takes a Message, not int"),
    ],
    ids=repr,
)
async def test_batch_that_cannot_be_sent(
    cluster: ScriptedCluster, batch: Any, error: type[Exception], text: str
) -> None:
    """What is no list of messages is said to be none."""
    async with Producer("g", cluster.nameserver.address) as producer:
        with pytest.raises(error, match=text):
            await producer.send_batch(batch)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"timeout_ms": 0}, ValueError, "timeout_ms is 0, it must be above 0"),
        ({"timeout_ms": -5}, ValueError, "timeout_ms is -5, it must be above 0"),
        ({"timeout_ms": 1.5}, TypeError, "timeout_ms is float, it must be a whole number"),
        ({"queue": 3}, TypeError, "queue is int, it must be a MessageQueue"),
        ({"queue": MessageQueue("U", "broker-a", 0)}, ValueError, "the message is of topic T, the queue of U"),
        ({"queue": MessageQueue("T", "broker-x", 0)}, RouteNotFoundError, "no address of a master of broker broker-x"),
        ({"selector": 3}, TypeError, "selector is int, it must be a function of queues, message and arg"),
    ],
    ids=repr,
)
async def test_argument_that_cannot_be_followed(
    cluster: ScriptedCluster, broker: ScriptedServer, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """A time limit, a queue or a selector that is none is refused by name."""
    async with Producer("g", cluster.nameserver.address) as producer:
        with pytest.raises(error, match=text):
            await producer.send(Message("T", b"x"), **arguments)
        with pytest.raises(error, match=text):
            await producer.send_nowait(Message("T", b"x"), **arguments)
    assert not broker.asked(SEND)


@pytest.mark.parametrize(
    ("topic", "handle", "error", "text"),
    [
        ("T", None, TypeError, "recall handle is NoneType, it must be the text that the send returned"),
        ("T", "", ValueError, "'' is not a recall handle that a send returned"),
        ("T", "ä", ValueError, "'ä' is not a recall handle that a send returned"),
        ("%RETRY%g", "x", ValueError, "messages of %RETRY%g cannot be recalled"),
        ("", "x", ValueError, "The specified topic is blank"),
    ],
)
async def test_recall_that_cannot_be(
    cluster: ScriptedCluster, topic: Any, handle: Any, error: type[Exception], text: str
) -> None:
    """What no broker can take back is refused before anybody is asked."""
    async with Producer("g", cluster.nameserver.address) as producer:
        with pytest.raises(error, match=text):
            await producer.recall(topic, handle)
    assert not cluster.nameserver.requests


async def test_topic_that_nobody_creates(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """With creation off an unknown topic is an error at once; one that an operator made is not."""
    settings = {"autoCreateTopicEnable": "false"}
    async with (
        running_broker(nameserver, tmp_path / "store", settings=settings),
        Producer("g", nameserver.address) as producer,
    ):
        text = r"no broker has the topic Unknown, and none creates topics \(TBW102 is not there either\)"
        for call in (producer.send, producer.send_nowait, producer.send_oneway):
            with pytest.raises(RouteNotFoundError, match=text):
                await call(Message("Unknown", b"x"))
        assert (await producer.send(Message("BenchmarkTest", b"x"))).queue.topic == "BenchmarkTest"


async def test_body_that_the_broker_does_not_take(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """A broker with a smaller limit refuses with code 13; the splitter and a smaller body help."""
    settings = {"maxMessageSize": "65536"}
    async with (
        running_broker(nameserver, tmp_path / "store", settings=settings),
        Producer("g", nameserver.address, settings=ProducerSettings(compress_from_bytes=1 << 30)) as producer,
    ):
        with pytest.raises(ResponseError, match="answered 13") as raised:
            await producer.send(Message("T", b"x" * 70_000))
        assert raised.value.code == 13
        messages = [Message("T", b"x" * 30_000) for _ in range(4)]
        for piece in split_batch(messages, 65_536):
            await producer.send_batch(piece)
