"""The transaction producer against scripted brokers: half messages, outcomes, checks, closing."""

import asyncio
import gzip
import json
import pathlib
import threading
from typing import Any

import pytest
from order_book import OrderBook, about, check_of, ends, running
from scripted_cluster import OFFSET_ID, ScriptedCluster, ScriptedServer, refused, silent, stored

from rocketlet.client import (
    EndTransactionContext,
    Message,
    ReceivedMessage,
    SendStatus,
    Session,
    TransactionFunctions,
    TransactionProducer,
    TransactionProducerSettings,
    TransactionState,
)
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ClientStateError, ConfigError, ResponseError
from rocketlet.common.properties import parse_properties
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.client import HeartbeatData
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.frames import FrameParser
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import EndTransactionHeader
from rocketlet.remoting.headers.send import SendReply, decode_send_header
from rocketlet.testing import ManualClock

SEND, END, BEAT = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.HEART_BEAT


@pytest.fixture
async def broker(cluster: ScriptedCluster) -> ScriptedServer:
    """Return the only broker of a cluster with topic T of one queue."""
    cluster.routes["T"] = {"broker-a": 1}
    return await cluster.add_broker("broker-a")


@pytest.mark.feature("K15")
@pytest.mark.parametrize(
    ("outcome", "state", "code"),
    [
        ("commit", TransactionState.COMMIT, 8),
        ("rollback", TransactionState.ROLLBACK, 12),
        ("unknown", TransactionState.UNKNOWN, 0),
        ("null", TransactionState.UNKNOWN, 0),
        ("exception", TransactionState.UNKNOWN, 0),
    ],
)
async def test_outcome_is_told_one_way(
    cluster: ScriptedCluster, broker: ScriptedServer, outcome: str, state: TransactionState, code: int
) -> None:
    """The half message carries TRAN_MSG, the group and its flag; the end names it by log and half offset."""
    book = OrderBook()
    async with running(cluster, book) as producer:
        result = await producer.send_in_transaction(Message("T", b"x", properties=about(outcome)), "arg")
        [end] = await broker.wait_asked(END)

    [send] = map(decode_send_header, broker.asked(SEND))
    properties = parse_properties(send.properties or "")
    assert (properties["TRAN_MSG"], properties["PGROUP"], send.sys_flag) == ("true", "pg", 4)
    assert properties["UNIQ_KEY"] == result.message_id == book.executed[0][0].message_id
    header = decode_header(EndTransactionHeader, end)
    assert (header.outcome, header.half_offset, header.log_offset) == (code, 7, 0)
    assert (header.topic, header.producer_group, header.message_id) == ("T", "pg", result.message_id)
    assert (header.is_from_check, header.broker_name, end.flag & 2) == (False, "broker-a", 2)
    assert (result.state, result.status, result.queue_offset) == (state, SendStatus.SEND_OK, 7)
    assert isinstance(result.error, LookupError) == (outcome == "exception")
    assert (end.remark == "LookupError: no such order") == (outcome == "exception")
    assert book.executed[0][1] == "arg"


@pytest.mark.feature("K15")
@pytest.mark.parametrize("code", [10, 11, 12])
async def test_doubtful_half_message_is_rolled_back(
    cluster: ScriptedCluster, broker: ScriptedServer, code: int
) -> None:
    """A half message that is not SEND_OK is rolled back, and the listener is not called."""
    broker.answers[SEND] = lambda command: stored(command, code)
    book = OrderBook()
    async with running(cluster, book) as producer:
        result = await producer.send_in_transaction(Message("T", b"x", properties=about("commit")))
        await broker.wait_asked(END)
    assert result.state is TransactionState.ROLLBACK
    assert [end.outcome for end in ends(broker)] == [12]
    assert book.executed == []


@pytest.mark.feature("K15")
async def test_refused_half_message_is_an_error(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """The listener is not called, nothing is ended, and the error is that of a send."""
    broker.answers[SEND] = refused(ResponseCode.MESSAGE_ILLEGAL, "too long")
    book = OrderBook()
    async with running(cluster, book) as producer:
        with pytest.raises(ResponseError, match="too long"):
            await producer.send_in_transaction(Message("T", b"x", properties=about("commit")))
    assert (book.executed, ends(broker)) == ([], [])


async def test_end_has_the_fields_of_javas(
    cluster: ScriptedCluster, broker: ScriptedServer, vectors: pathlib.Path
) -> None:
    """The names are those that a Java producer 5.4.0 was recorded with."""
    broker.answers[SEND] = stored_with_id
    async with running(cluster, OrderBook()) as producer:
        await producer.send_in_transaction(Message("T", b"x", properties=about("commit")))
        [end] = await broker.wait_asked(END)
    with gzip.open(vectors / "frames" / "transaction-5.4.0.jsonl.gz", "rt") as lines:
        recorded = next(frame for frame in map(json.loads, lines) if frame["code"] == END and frame["flag"] == 2)
    [javas] = FrameParser().feed(bytes.fromhex(recorded["hex"]))
    assert set(end.ext) == set(javas.ext)


def stored_with_id(command: Command) -> Command:
    """Answer a send as a broker answers that of a half message: with a transaction id."""
    properties = parse_properties(decode_send_header(command).properties or "")
    reply = SendReply(msg_id=OFFSET_ID, queue_id=0, queue_offset=7, transaction_id=properties["UNIQ_KEY"])
    return Command.response(ResponseCode.SUCCESS, ext=reply)


@pytest.mark.parametrize("delay", [{}, {"delay_level": 3}, {"delay_ms": 5_000}, {"deliver_at_ms": 5_000}], ids=str)
async def test_half_message_has_no_delay(
    cluster: ScriptedCluster, broker: ScriptedServer, delay: dict[str, Any]
) -> None:
    """As in Java: a delayed half message would never be found by the outcome."""
    book = OrderBook()
    async with running(cluster, book) as producer:
        await producer.send_in_transaction(Message("T", b"x", properties=about("commit"), **delay), "arg")
    [half] = [message for message, _ in book.executed]
    assert not half.is_late
    [send] = map(decode_send_header, broker.asked(SEND))
    assert not {name for name in parse_properties(send.properties or "") if "DELAY" in name or "TIMER" in name}


async def test_message_of_the_caller_stays_as_it_is(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A message can be sent twice: each half message has its own key, and a delay is dropped."""
    message = Message("T", b"x", delay_level=3, properties=about("commit"))
    async with running(cluster, OrderBook()) as producer:
        first, second = [await producer.send_in_transaction(message) for _ in range(2)]
    assert first.message_id != second.message_id
    assert message == Message("T", b"x", delay_level=3, properties=about("commit"))
    for command in broker.asked(SEND):
        assert "DELAY" not in parse_properties(decode_send_header(command).properties or "")


async def test_plain_functions_run_in_threads(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Functions that block do not block the loop: neither the local transaction nor the check."""
    threads: list[int] = []

    def execute(_message: Message, _arg: object) -> TransactionState:
        threads.append(threading.get_ident())
        return TransactionState.COMMIT

    def check(_message: ReceivedMessage) -> TransactionState:
        threads.append(threading.get_ident())
        return TransactionState.ROLLBACK

    async with running(cluster, TransactionFunctions(execute, check)) as producer:
        await producer.send_in_transaction(Message("T", b"x"))
        broker.connections[0].send_oneway(check_of(b"1", "commit"))
        await broker.wait_asked(END, 2)
    assert [end.outcome for end in ends(broker)] == [8, 12]
    assert threading.get_ident() not in threads


async def test_listener_that_is_cancelled_from_within_leaves_the_message_open(
    cluster: ScriptedCluster, broker: ScriptedServer
) -> None:
    """As when a task that it waits for was cancelled: nobody has cancelled the send."""

    async def execute(_message: Message, _arg: object) -> TransactionState:
        raise asyncio.CancelledError

    async with running(cluster, TransactionFunctions(execute, lambda _: TransactionState.UNKNOWN)) as producer:
        result = await producer.send_in_transaction(Message("T", b"x"))
        await broker.wait_asked(END)
    assert (result.state, result.error) == (TransactionState.UNKNOWN, None)
    assert [end.outcome for end in ends(broker)] == [0]


async def test_transaction_that_is_cancelled_is_left_to_a_check(
    cluster: ScriptedCluster, broker: ScriptedServer
) -> None:
    """Who gives up while the listener runs tells the broker nothing; the producer goes on."""
    begun = asyncio.Event()

    async def execute(_message: Message, _arg: object) -> TransactionState:
        begun.set()
        await asyncio.Event().wait()
        return TransactionState.COMMIT

    async with running(cluster, TransactionFunctions(execute, OrderBook().check)) as producer:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(producer.send_in_transaction(Message("T", b"x")))
            await begun.wait()
            sending.cancel()
        broker.connections[0].send_oneway(check_of(b"1", "rollback"))
        await broker.wait_asked(END)
    assert [(end.outcome, end.is_from_check) for end in ends(broker)] == [(12, True)]


async def test_producer_is_known_to_brokers_from_its_start_on(cluster: ScriptedCluster) -> None:
    """Brokers of the template topic and of the given topics get a heartbeat; an unknown topic is no error."""
    cluster.routes |= {"T": {"broker-a": 1}, "TBW102": {"broker-b": 1}}
    brokers = [await cluster.add_broker(name) for name in ("broker-a", "broker-b")]
    async with TransactionProducer("pg", cluster.nameserver.address, listener=OrderBook(), topics=["unknown", "T"]):
        beats = [decode_body(HeartbeatData, broker.asked(BEAT)[0].body) for broker in brokers]
    assert [[data.group_name for data in beat.producer_data_set] for beat in beats] == [["pg"], ["pg"]]


async def test_name_server_that_is_silent_delays_the_start_by_three_seconds(cluster: ScriptedCluster) -> None:
    """The start goes on without it; what is to be sent finds out."""
    clock = ManualClock()
    nameserver = cluster.nameserver
    nameserver.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silent
    producer = TransactionProducer("pg", nameserver.address, listener=OrderBook(), clock=clock)
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(producer.__aenter__())
        await nameserver.wait_asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        await clock.elapse(3_000)
        await starting
    await producer.__aexit__(None, None, None)


async def test_hooks_see_how_transactions_end(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """One call for what a send decided and one for what a check did, with Java's names of the states."""
    seen: list[EndTransactionContext] = []

    class Hook:
        def end_transaction(self, context: EndTransactionContext) -> None:
            seen.append(context)

    settings, address = TransactionProducerSettings(hooks=[Hook()]), cluster.nameserver.address
    async with TransactionProducer("pg", address, listener=OrderBook(), settings=settings) as producer:
        result = await producer.send_in_transaction(Message("T", b"x", properties=about("rollback")))
        broker.connections[0].send_oneway(check_of(b"1", "unknown"))
        await broker.wait_asked(END, 2)
    assert [(each.state, each.is_from_check, each.message_id) for each in seen] == [
        ("ROLLBACK_MESSAGE", False, result.message_id),
        ("UNKNOW", True, "key-1"),
    ]
    assert {each.address for each in seen} == {broker.address}
    assert [each.message.body for each in seen] == [b"x", b"1"]


async def test_bad_use_is_said_at_once() -> None:
    """No listener, a listener without a function, a setting out of range, a send before the start."""
    with pytest.raises(TypeError, match="must have the function check"):
        TransactionProducer("pg", "127.0.0.1:1", listener=TransactionFunctions(OrderBook().execute, None))  # pyright: ignore[reportArgumentType] # bad use
    with pytest.raises(ConfigError, match="checks_at_once is 0"):
        TransactionProducerSettings(checks_at_once=0)
    producer = TransactionProducer("pg", "127.0.0.1:1", listener=OrderBook())
    with pytest.raises(ClientStateError, match="not started yet"):
        await producer.send_in_transaction(Message("T", b"x"))


async def test_what_is_no_message_is_refused(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Nothing is sent."""
    async with running(cluster, OrderBook()) as producer:
        with pytest.raises(TypeError, match="takes a Message, not str"):
            await producer.send_in_transaction("text")  # pyright: ignore[reportArgumentType] # bad use
        with pytest.raises(ValueError, match="body is empty"):
            await producer.send_in_transaction(Message("T", b""))
        with pytest.raises(ValueError, match="timeout_ms is 0"):
            await producer.send_in_transaction(Message("T", b"x"), timeout_ms=0)
    assert broker.asked(SEND) == []


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
