"""The transaction producer against scripted brokers: half messages, outcomes, checks, closing."""

import asyncio
import gzip
import json
import pathlib
import threading

import pytest
from order_book import OrderBook, about, check_of, ends, running
from scripted_cluster import OFFSET_ID, ScriptedCluster, ScriptedServer, refused, silent, stored

from rocketlet.client import (
    EndTransactionContext,
    Message,
    ReceivedMessage,
    SendStatus,
    TransactionFunctions,
    TransactionProducer,
    TransactionProducerSettings,
    TransactionState,
)
from rocketlet.common.errors import ClientStateError, ConfigError, ResponseError
from rocketlet.common.properties import parse_properties
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.client import HeartbeatData
from rocketlet.remoting.codec.codes import RequestCode, ResponseCode
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.frames import FrameParser
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
