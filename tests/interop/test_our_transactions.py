"""Transactions of our client, on our broker and on the official one; open ones are checked once a second here."""

import asyncio
import pathlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from inbox import Inbox
from interop import clients
from interop.driver import Driver
from interop.servers import JavaServer, Server
from order_book import OrderBook, about
from subscribed import push_consumer

from rocketlet.client import (
    Message,
    TransactionProducer,
    TransactionProducerSettings,
    TransactionState,
)

StartServer = Callable[..., Server]
CHECKS = {"transactionCheckInterval": "1000", "transactionTimeOut": "500"}
SETTINGS = TransactionProducerSettings(new_topic_queues=1)
TEN = [b"%d" % number for number in range(10)]


def producer_of(topic: str, server: Server, book: OrderBook) -> TransactionProducer:
    """Return a producer of transactions in the topic's group."""
    return TransactionProducer(f"{topic}-producers", server.namesrv, listener=book, settings=SETTINGS, topics=[topic])


@asynccontextmanager
async def everything_of(topic: str, server: Server) -> AsyncGenerator[Inbox]:
    """Consume all that the topic has ever held."""
    inbox = Inbox()
    consumer = push_consumer(server.namesrv, inbox, group=f"{topic}-consumers", topic=topic)
    async with consumer, asyncio.timeout(40):
        yield inbox


@pytest.mark.feature("T1", "T2", "K15")
async def test_committed_messages_are_delivered(either: Server, new_name: Callable[[], str]) -> None:
    """Of ten that are committed and ten that are rolled back the ten are delivered, each once and unchanged."""
    topic, book = new_name(), OrderBook()
    async with producer_of(topic, either, book) as producer:
        for body in TEN:
            await producer.send_in_transaction(Message(topic, b"not " + body, properties=about("rollback", "rollback")))
        sent = [
            await producer.send_in_transaction(
                Message(topic, body, tags="tag", keys=["key"], delay_level=18, properties=about("commit")), number
            )
            for number, body in enumerate(TEN)
        ]
        async with everything_of(topic, either) as inbox:
            await inbox.wait_for(10)
            await producer.send_in_transaction(Message(topic, b"last", properties=about("commit")))
            await inbox.wait_for(11)
    assert inbox.bodies == Counter([*TEN, b"last"])
    assert {each.state for each in sent} == {TransactionState.COMMIT}
    assert {each.message_id for each in inbox.messages[:10]} == {each.message_id for each in sent}
    assert [arg for _, arg in book.executed[10:20]] == list(range(10))
    for message in inbox.messages[:10]:
        told = {name: message.properties.get(name) for name in ("TRAN_MSG", "PGROUP", "DELAY", "outcome")}
        assert told == {"TRAN_MSG": "true", "PGROUP": f"{topic}-producers", "DELAY": None, "outcome": "commit"}
        assert (message.sys_flag & 0xC, message.tags, message.keys) == (0x8, "tag", ("key",))


@pytest.mark.feature("T3", "T4", "K15")
async def test_checks_decide_what_is_unknown(either: Server, new_name: Callable[[], str]) -> None:
    """The listener is asked about each message whose outcome it did not tell; five of ten are delivered."""
    topic, book, committed = new_name(), OrderBook(), (b"1", b"3", b"5", b"7", b"9")
    async with producer_of(topic, either, book) as producer:
        for number, body in enumerate(TEN):
            outcome = ("unknown", "null", "exception")[number % 3]
            properties = about(outcome, "commit" if number % 2 else "rollback")
            result = await producer.send_in_transaction(Message(topic, body, properties=properties))
            assert (result.state, result.error is None) == (TransactionState.UNKNOWN, outcome != "exception")
        async with everything_of(topic, either) as inbox:
            assert await book.wait_checked(10) == set(TEN)
            for body in committed:
                await inbox.wait_body(body)
            await producer.send_in_transaction(Message(topic, b"last", properties=about("commit")))
            await inbox.wait_body(b"last")
    assert inbox.bodies.keys() == {*committed, b"last"}
    # Java asks again each second; where a commit has not come by then, it takes both and delivers the message twice.
    assert isinstance(either, JavaServer) or inbox.bodies.total() == 6
    assert {message.topic for message in book.checked} == {topic}
    assert {message.message_id for message in book.checked} == {half.message_id for half, _ in book.executed[:10]}


@pytest.mark.feature("T5", "K15")
async def test_our_producer_is_asked_about_what_java_left_open(
    either: Server, another_java: Callable[[], Driver], new_name: Callable[[], str]
) -> None:
    """A Java producer is killed with open transactions: ours, of the same group, is asked about them and commits."""
    topic, book = new_name(), OrderBook()
    group = f"{topic}-producers"

    def leave_open() -> None:
        doomed = another_java()
        with clients.Producer(doomed, namesrv=either.namesrv) as maker:
            maker.send_all(topic, clients.Outgoing(b"first"))
        theirs = clients.TransactionProducer(doomed, namesrv=either.namesrv, group=group, topic=topic)
        theirs.send(topic, *TEN, outcome="unknown", checked="commit")
        doomed.kill()

    await asyncio.to_thread(leave_open)
    async with producer_of(topic, either, book), everything_of(topic, either) as inbox:
        await inbox.wait_for(11)
    assert set(inbox.bodies) == {*TEN, b"first"}
    assert {message.body for message in book.checked} <= set(TEN)


@pytest.mark.feature("T5", "K15")
async def test_java_is_asked_about_what_our_producer_left_open(
    either: Server, java: Driver, new_name: Callable[[], str]
) -> None:
    """Our producer closes with open transactions: a Java one of the same group is asked about them and commits."""
    topic, book = new_name(), OrderBook()
    async with producer_of(topic, either, book) as producer:
        for body in TEN:
            await producer.send_in_transaction(Message(topic, body, properties=about("unknown", "commit")))
        known = {"namesrv": either.namesrv, "group": f"{topic}-producers", "topic": topic}
        theirs = await asyncio.to_thread(lambda: clients.TransactionProducer(java, **known))
    try:
        async with everything_of(topic, either) as inbox:
            await inbox.wait_for(10)
    finally:
        await asyncio.to_thread(theirs.stop)
    assert set(inbox.bodies) == set(TEN)


@pytest.mark.feature("T10")
async def test_new_producer_is_asked_about_what_is_open(
    rocketlet_up: StartServer, tmp_path: pathlib.Path, new_name: Callable[[], str]
) -> None:
    """After a restart of broker and producer the new producer is asked without having sent anything."""
    topic, book = new_name(), OrderBook()
    server = await asyncio.to_thread(lambda: rocketlet_up(tmp_path / "store", transactionCheckInterval="600000"))
    async with producer_of(topic, server, book) as producer:
        for body in TEN:
            await producer.send_in_transaction(Message(topic, body, properties=about("unknown", "commit")))
    await asyncio.to_thread(server.stop)
    server = await asyncio.to_thread(lambda: rocketlet_up(tmp_path / "store", server, **CHECKS))
    async with producer_of(topic, server, book), everything_of(topic, server) as inbox:
        await inbox.wait_for(10)
    assert set(inbox.bodies) == set(TEN)
    assert {message.body for message in book.checked} == set(TEN)
