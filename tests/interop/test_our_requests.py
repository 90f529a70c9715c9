"""Requests and replies between our client and the official one, on our broker and on the official one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from interop.clients import Admin, Requester, Responder
from interop.driver import Driver
from interop.servers import Server
from subscribed import push_consumer

from rocketlet.client import (
    Message,
    Producer,
    ProducerSettings,
    ReceivedMessage,
    SendResult,
    reply_to,
)
from rocketlet.common.errors import ReplyTimeoutError, ResponseError

WAIT_MS = 20_000
LONG = b"long " * 2_000
SETTINGS = ProducerSettings(send_timeout_ms=10_000)


class OurResponder:
    """Our consumer that replies "re: " and the body through a producer; keeps what the replies were answered."""

    def __init__(self, producer: Producer) -> None:
        self.sent: list[SendResult | ResponseError] = []
        self.may_reply = asyncio.Event()
        self.may_reply.set()
        self._producer = producer
        self._changed = asyncio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        """Reply to each message."""
        for message in messages:
            await self.may_reply.wait()
            try:
                self.sent.append(await self._producer.send(reply_to(message, b"re: " + message.body)))
            except ResponseError as error:
                self.sent.append(error)
            self._changed.set()

    async def wait_sent(self, count: int) -> list[SendResult | ResponseError]:
        """Return what the replies were answered, once there are so many."""
        while len(self.sent) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.sent


@asynccontextmanager
async def our_responder(topic: str, server: Server) -> AsyncGenerator[OurResponder]:
    """Run our consumer of the requests to a topic."""
    async with Producer(f"{topic}-answers", server.namesrv, settings=SETTINGS) as producer, asyncio.timeout(60):
        responder = OurResponder(producer)
        async with push_consumer(server.namesrv, responder, group=f"{topic}-group", topic=topic):
            yield responder


@asynccontextmanager
async def official(start: Callable[[], Responder]) -> AsyncGenerator[Responder]:
    """Run an official responder without blocking the loop."""
    responder = await asyncio.to_thread(start)
    try:
        yield responder
    finally:
        await asyncio.to_thread(responder.stop)


@pytest.fixture
async def topic(either: Server, java: Driver, new_name: Callable[[], str]) -> str:
    """Create a topic with one queue."""
    name = new_name()

    def create() -> None:
        with Admin(java, namesrv=either.namesrv) as admin:
            admin.create_topic(either.broker, name, 1)

    await asyncio.to_thread(create)
    return name


@pytest.mark.feature("Q1", "K16")
@pytest.mark.parametrize("client", ["java", "go"])
async def test_official_responder_replies_to_us(either: Server, driver: Driver, topic: str) -> None:
    """Each of our requests gets its reply, long ones too, ten at a time; the replies are answered SEND_OK."""
    about = {"namesrv": either.namesrv, "group": f"{topic}-group", "topic": topic}
    bodies = [*(b"%d" % number for number in range(9)), LONG]
    async with (
        Producer("requesters", either.namesrv, settings=SETTINGS) as producer,
        official(lambda: Responder(driver, **about)) as responder,
        asyncio.TaskGroup() as group,
    ):
        requests = [producer.request(Message(topic, body), timeout_ms=WAIT_MS) for body in bodies]
        replies = [group.create_task(request) for request in requests]
        got = [await reply for reply in replies]
        sent = await asyncio.to_thread(responder.answered, 10)
    assert [(reply.body, reply.properties["MSG_TYPE"]) for reply in got] == [
        (b"re: " + body, "reply") for body in bodies
    ]
    assert [each.status for each in sent] == ["SEND_OK"] * 10


@pytest.mark.feature("Q1", "K16")
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_we_reply_to_the_official_requester(mode: str, either: Server, java: Driver, topic: str) -> None:
    """Each request of a Java producer gets our reply, long ones too."""
    async with our_responder(topic, either) as responder:
        requester = await asyncio.to_thread(Requester, java, namesrv=either.namesrv)
        try:
            ask = partial(requester.ask, timeout_ms=WAIT_MS, mode=mode)
            replied = await asyncio.to_thread(ask, topic, b"1", b"2", LONG)
        finally:
            await asyncio.to_thread(requester.stop)
        sent = await responder.wait_sent(3)
    assert [each.reply and each.reply.body for each in replied] == [b"re: 1", b"re: 2", b"re: " + LONG]
    assert all(isinstance(each, SendResult) for each in sent)


@pytest.mark.feature("Q1", "K16")
async def test_we_reply_to_ourselves(either: Server, topic: str) -> None:
    """Two requesters of one group each get their own replies."""
    async with (
        our_responder(topic, either),
        Producer("requesters", either.namesrv, settings=SETTINGS) as one,
        Producer("requesters", either.namesrv, settings=SETTINGS) as other,
        asyncio.TaskGroup() as group,
    ):
        asked = [
            group.create_task(producer.request(Message(topic, body), timeout_ms=WAIT_MS))
            for producer, body in [(one, b"1"), (other, b"2"), (one, b"3"), (other, b"4")]
        ]
    assert [task.result().body for task in asked] == [b"re: 1", b"re: 2", b"re: 3", b"re: 4"]


@pytest.mark.feature("Q2", "Q3", "K16")
async def test_requester_that_is_gone(either: Server, topic: str) -> None:
    """A request that nobody replies to ends in time; the reply to the requester that is gone by then is answered 1."""
    async with our_responder(topic, either) as responder:
        responder.may_reply.clear()
        async with Producer("requesters", either.namesrv, settings=SETTINGS) as producer:
            with pytest.raises(ReplyTimeoutError):
                await producer.request(Message(topic, b"x"), timeout_ms=2_000)
        responder.may_reply.set()
        [refused] = await responder.wait_sent(1)
    assert isinstance(refused, ResponseError)
    assert refused.code == 1
