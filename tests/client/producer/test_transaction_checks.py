"""The checks of open transactions, and closing while one runs, against scripted brokers."""

import asyncio
import threading

import pytest
from order_book import OrderBook, check_of, ends, running
from scripted_cluster import ScriptedCluster, ScriptedServer

from rocketlet.client import (
    ReceivedMessage,
    Session,
    TransactionFunctions,
    TransactionProducer,
    TransactionProducerSettings,
    TransactionState,
)
from rocketlet.common.errors import ClientStateError
from rocketlet.remoting.codec.codes import RequestCode
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.headers.message import EndTransactionHeader
from rocketlet.testing import ManualClock

END = RequestCode.END_TRANSACTION


@pytest.fixture
async def broker(cluster: ScriptedCluster) -> ScriptedServer:
    """Return the only broker of a cluster with topic T of one queue."""
    cluster.routes["T"] = {"broker-a": 1}
    return await cluster.add_broker("broker-a")


@pytest.mark.feature("K15")
@pytest.mark.parametrize(
    ("checked", "code"), [("commit", 8), ("rollback", 12), ("unknown", 0), ("null", 0), ("exception", 0)]
)
async def test_check_is_answered_with_what_it_names(
    cluster: ScriptedCluster, broker: ScriptedServer, checked: str, code: int
) -> None:
    """The answer names the copy that the broker asked about, and goes back on the connection of the question."""
    book = OrderBook()
    async with running(cluster, book):
        broker.connections[0].send_oneway(check_of(b"1", checked))
        [command] = await broker.wait_asked(END)
    end = decode_header(EndTransactionHeader, command)
    assert (end.outcome, end.half_offset, end.log_offset, end.is_from_check) == (code, 70, 7000, True)
    assert (end.message_id, end.transaction_id, end.producer_group) == ("key-1", "t-1", "pg")
    assert [(message.body, message.topic) for message in book.checked] == [(b"1", "T")]


async def test_check_of_another_group_is_left_to_others(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A question about another group is not answered, the next one is."""
    book = OrderBook()
    async with running(cluster, book):
        broker.connections[0].send_oneway(check_of(b"1", "commit", group="other"))
        broker.connections[0].send_oneway(check_of(b"2", "commit"))
        await broker.wait_asked(END)
    assert [message.body for message in book.checked] == [b"2"]
    assert len(ends(broker)) == 1


async def test_too_many_checks_are_dropped(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """One check runs and two wait; of the others the broker asks again."""
    going_on, begun = asyncio.Event(), asyncio.Event()
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        begun.set()
        await going_on.wait()
        return TransactionState.COMMIT

    async with running(cluster, TransactionFunctions(OrderBook().execute, check)):
        broker.connections[0].send_oneway(check_of(b"0", "commit"))
        await begun.wait()
        for number in range(1, 6):
            broker.connections[0].send_oneway(check_of(b"%d" % number, "commit"))
        await broker.connections[0].request(Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO), 1_000)
        going_on.set()
        await broker.wait_asked(END, 3)
    assert asked == [b"0", b"1", b"2"]


async def test_closing_waits_for_a_check_that_runs(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Its answer is sent before the producer leaves; a question that waits is dropped."""
    going_on, begun = asyncio.Event(), asyncio.Event()

    async def check(_message: ReceivedMessage) -> TransactionState:
        begun.set()
        await going_on.wait()
        return TransactionState.COMMIT

    async with asyncio.TaskGroup() as group:
        async with running(cluster, TransactionFunctions(OrderBook().execute, check)) as producer:
            for body in (b"1", b"2"):
                broker.connections[0].send_oneway(check_of(body, "commit"))
            await begun.wait()
            group.create_task(open_later(producer, going_on))
        codes = [command.code for command in broker.requests]
    assert codes[-2:] == [END, RequestCode.UNREGISTER_CLIENT]
    assert codes.count(END) == 1


async def open_later(producer: TransactionProducer, gate: asyncio.Event) -> None:
    """Open a gate once the producer takes no more transactions."""
    while True:
        try:
            await producer.fetch_queues("T")
        except ClientStateError:
            break
        await asyncio.sleep(0)
    gate.set()


async def test_closing_does_not_wait_for_ever(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """After ten seconds a check that hangs is cancelled; the broker will ask another producer."""
    clock, begun = ManualClock(), asyncio.Event()

    async def check(_message: ReceivedMessage) -> TransactionState:
        begun.set()
        await asyncio.Event().wait()
        return TransactionState.COMMIT

    producer = TransactionProducer(
        "pg",
        cluster.nameserver.address,
        listener=TransactionFunctions(OrderBook().execute, check),
        topics=["T"],
        clock=clock,
    )
    await producer.__aenter__()
    broker.connections[0].send_oneway(check_of(b"1", "commit"))
    await begun.wait()
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(producer.__aexit__(None, None, None))
        await clock.elapse(9_999)
        assert not closing.done()
        await clock.elapse(1)
    assert ends(broker) == []


async def test_closing_lets_a_blocked_thread_go(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A plain function that hangs holds up the closing for ten seconds, not for ever."""
    clock, begun, going_on, ended = ManualClock(), asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def check(_message: ReceivedMessage) -> TransactionState:
        loop.call_soon_threadsafe(begun.set)
        going_on.wait()
        ended.set()
        return TransactionState.COMMIT

    listener = TransactionFunctions(OrderBook().execute, check)
    async with asyncio.TaskGroup() as group, running(cluster, listener, clock):
        broker.connections[0].send_oneway(check_of(b"1", "commit"))
        await begun.wait()
        group.create_task(elapse_while_closing(clock, broker))
    going_on.set()
    await asyncio.to_thread(ended.wait)
    assert ends(broker) == []


async def elapse_while_closing(clock: ManualClock, broker: ScriptedServer) -> None:
    """Move time on until the producer has left."""
    while not broker.asked(RequestCode.UNREGISTER_CLIENT):
        await clock.elapse(1_000)


async def test_producers_that_share_a_session_answer_their_own_checks(
    cluster: ScriptedCluster, broker: ScriptedServer
) -> None:
    """Two groups on one connection: each listener is asked about the messages of its group."""
    one, other = OrderBook(), OrderBook()
    async with (
        Session(cluster.nameserver.address) as session,
        TransactionProducer("one", listener=one, topics=["T"], session=session),
        TransactionProducer("other", listener=other, topics=["T"], session=session),
    ):
        broker.connections[0].send_oneway(check_of(b"1", "commit", group="one"))
        broker.connections[0].send_oneway(check_of(b"2", "commit", group="other"))
        await broker.wait_asked(END, 2)
    assert [message.body for message in one.checked] == [b"1"]
    assert [message.body for message in other.checked] == [b"2"]
    assert {end.producer_group for end in ends(broker)} == {"one", "other"}


async def test_several_checks_run_at_once_if_set_so(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Two checks that wait for each other both end."""
    both = asyncio.Barrier(2)

    async def check(_message: ReceivedMessage) -> TransactionState:
        await both.wait()
        return TransactionState.COMMIT

    listener = TransactionFunctions(OrderBook().execute, check)
    settings, address = TransactionProducerSettings(checks_at_once=2), cluster.nameserver.address
    async with TransactionProducer("pg", address, listener=listener, topics=["T"], settings=settings):
        for body in (b"1", b"2"):
            broker.connections[0].send_oneway(check_of(body, "commit"))
        await broker.wait_asked(END, 2)
    assert [end.outcome for end in ends(broker)] == [8, 8]
