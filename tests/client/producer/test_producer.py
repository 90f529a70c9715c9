"""The producer against scripted brokers: choice of queues, retries, time budget, refusals."""

import asyncio
import zlib
from collections.abc import Sequence
from itertools import pairwise

import pytest
from scripted_cluster import ScriptedCluster, ScriptedServer, refused, scripted_server, silent, stored

from rocketlet.client import Message, MessageQueue, Producer, ProducerSettings, SendStatus, select_by_hash
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import (
    ClientStateError,
    ConnectFailedError,
    RequestTimeoutError,
    ResponseError,
    RouteNotFoundError,
)
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.send import SendHeader, decode_send_header
from rocketlet.testing import ManualClock

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
async def broker(cluster: ScriptedCluster) -> ScriptedServer:
    """Return the only broker of a cluster with topic T of four queues."""
    cluster.routes["T"] = {"broker-a": 4}
    return await cluster.add_broker("broker-a")


def headers(server: ScriptedServer, code: int = SEND) -> list[SendHeader]:
    """Return the headers of the sends that a broker got."""
    return [decode_send_header(command) for command in server.asked(code)]


async def test_send_carries_the_message_as_java_does(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Letters spell the header, the properties hold tag, keys, wait flag and unique key, the body is the body."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        result = await producer.send(Message("T", b"hello", tags="TagA", keys=["k1"], flag=3))

    [header], [command] = headers(broker), broker.asked(SEND)
    assert command.body == b"hello"
    assert (header.producer_group, header.topic, header.broker_name) == ("pg", "T", "broker-a")
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.flag, header.sys_flag, header.reconsume_times, header.batch) == (3, 0, 0, False)
    properties = dict(part.split("\x01") for part in (header.properties or "").split("\x02") if part)
    assert properties == {"TAGS": "TagA", "KEYS": "k1", "WAIT": "true", "UNIQ_KEY": result.message_id}
    assert result.queue == MessageQueue("T", "broker-a", header.queue_id)
    assert (result.status, result.queue_offset, len(result.message_id)) == (SendStatus.SEND_OK, 7, 32)


@pytest.mark.feature("K11")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.SEND_OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_status_is_that_of_the_answer(
    cluster: ScriptedCluster, broker: ScriptedServer, code: int, status: SendStatus
) -> None:
    """Codes 0, 10, 11 and 12 are results; one attempt is made, by the first send and by later ones."""
    broker.answers[SEND] = lambda command: stored(command, code)
    async with Producer("pg", cluster.nameserver.address) as producer:
        for _ in range(2):
            assert (await producer.send(Message("T", b"x"))).status is status
    assert len(headers(broker)) == 2


async def error_of_a_send(cluster: ScriptedCluster) -> ResponseError:
    """Return the error that a producer raises for a message."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(ResponseError) as raised:
            await producer.send(Message("T", b"x"))
    return raised.value


@pytest.mark.feature("K11")
async def test_other_codes_are_errors_at_once(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """MESSAGE_ILLEGAL is no fault of the broker: no other is tried, code and remark are in the error."""
    broker.answers[SEND] = refused(ResponseCode.MESSAGE_ILLEGAL, "too long")
    error = await error_of_a_send(cluster)
    assert (error.code, "too long" in str(error)) == (13, True)
    assert len(headers(broker)) == 1


@pytest.mark.feature("K4")
async def test_sends_go_round_all_queues(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Eight messages put two into each of four queues."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        for _ in range(8):
            await producer.send(Message("T", b"x"))
    ids = [header.queue_id for header in headers(broker)]
    assert sorted(ids) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [(after - before) % 4 for before, after in pairwise(ids)] == [1] * 7


@pytest.mark.feature("K5", "K6")
async def test_busy_broker_is_retried_on_another(cluster: ScriptedCluster) -> None:
    """The copy that the other broker gets has the same unique key."""
    cluster.routes["T"] = {"broker-a": 4, "broker-b": 4}
    busy, free = await cluster.add_broker("broker-a"), await cluster.add_broker("broker-b")
    busy.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY)
    async with Producer("pg", cluster.nameserver.address) as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(8)]

    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert len(busy.asked(SEND)) >= 1
    keys_at_busy = {header.properties for header in headers(busy)}
    assert keys_at_busy <= {header.properties for header in headers(free)}


@pytest.mark.feature("K5", "K6")
async def test_broker_that_is_gone_is_passed_over(cluster: ScriptedCluster) -> None:
    """A dead broker in the route costs no message."""
    cluster.routes["T"] = {"broker-a": 4, "broker-b": 4}
    gone, _ = await cluster.add_broker("broker-a"), await cluster.add_broker("broker-b")
    await gone.close()
    async with Producer("pg", cluster.nameserver.address) as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(8)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}


@pytest.mark.feature("K6")
async def test_attempts_end_after_two_retries(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Three attempts are made, then the broker's own error is raised with all of them in its note."""
    broker.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY, "later")
    error = await error_of_a_send(cluster)
    assert "later" in str(error)
    assert len(headers(broker)) == 3
    assert error.__notes__[0].startswith("3 attempts: broker-a: answered 2")


@pytest.mark.feature("K6")
async def test_later_sends_have_as_many_attempts(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Whether route and connection were there or not."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        await producer.send(Message("T", b"x"))
        broker.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY, "later")
        for _ in range(2):
            with pytest.raises(ResponseError, match="later"):
                await producer.send(Message("T", b"x"))
    assert len(headers(broker)) == 1 + 3 + 3


@pytest.mark.feature("K6")
async def test_all_attempts_share_one_time_budget(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """An attempt that fails after 2 s leaves 1 s for the next: the call ends after 3 s in all."""
    clock = ManualClock()
    busy = refused(ResponseCode.SYSTEM_BUSY)

    def answer_after_two_seconds(command: Command) -> Command:
        clock.advance(2000)
        broker.answers[SEND] = silent
        return busy_answer(command)

    def busy_answer(command: Command) -> Command:
        reply = busy(command)
        assert isinstance(reply, Command)
        return reply

    async with Producer("pg", cluster.nameserver.address, clock=clock) as producer:
        await producer.fetch_queues("T")
        broker.answers[SEND] = answer_after_two_seconds
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(outcome_of(producer, Message("T", b"x")))
            await broker.wait_asked(SEND, 2)
            await clock.elapse(999)
            assert not sending.done()
            await clock.elapse(1)
        assert isinstance(sending.result(), RequestTimeoutError)
    assert len(headers(broker)) == 2


async def outcome_of(producer: Producer, message: Message) -> object:
    """Return what a send returns or raises."""
    try:
        return await producer.send(message)
    except RequestTimeoutError as error:
        return error


@pytest.mark.feature("K9")
async def test_bad_status_is_retried_on_another_broker_when_asked(cluster: ScriptedCluster) -> None:
    """With the setting on, FLUSH_DISK_TIMEOUT at one broker leads to SEND_OK of another."""
    cluster.routes["T"] = {"broker-a": 1, "broker-b": 1}
    slow, _ = await cluster.add_broker("broker-a"), await cluster.add_broker("broker-b")
    slow.answers[SEND] = lambda command: stored(command, ResponseCode.FLUSH_DISK_TIMEOUT)
    settings = ProducerSettings(tries_another_broker_when_not_stored_ok=True)
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(2)]
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert slow.asked(SEND)


@pytest.mark.feature("K14")
async def test_selector_gets_the_publish_list_and_is_not_retried(
    cluster: ScriptedCluster, broker: ScriptedServer
) -> None:
    """One key goes to one queue; when its broker is busy the error is raised at once."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        chosen = [await producer.send(Message("T", b"x"), selector=select_by_hash, arg=14) for _ in range(3)]
        broker.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(ResponseError):
            await producer.send(Message("T", b"x"), selector=select_by_hash, arg=14)

    assert {result.queue.queue_id for result in chosen} == {14 % 4}
    assert len(headers(broker)) == 4


async def test_queue_that_is_given_is_used(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A queue of another topic, or a queue and a selector, are mistakes."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        queue = (await producer.fetch_queues("T"))[2]
        assert (await producer.send(Message("T", b"x"), queue=queue)).queue == queue
        with pytest.raises(ValueError, match="the queue of U"):
            await producer.send(Message("T", b"x"), queue=queue._replace(topic="U"))
        with pytest.raises(ValueError, match="not both"):
            await producer.send(Message("T", b"x"), queue=queue, selector=select_by_hash)
    assert len(headers(broker)) == 1


@pytest.mark.feature("K8")
async def test_oneway_is_sent_once_and_not_answered(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """The flag is set, an error of the broker is not heard of."""
    broker.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY)
    async with Producer("pg", cluster.nameserver.address) as producer:
        await producer.send_oneway(Message("T", b"x"))
        [command] = await broker.wait_asked(SEND)
        await producer.fetch_queues("T")
    assert command.is_oneway
    assert len(broker.asked(SEND)) == 1


@pytest.mark.feature("K12")
async def test_large_body_travels_compressed(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """The flag says zlib, the bytes inflate to the body."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        await producer.send(Message("T", b"a" * 10_000))
    assert headers(broker)[0].sys_flag == 0x301
    assert zlib.decompress(broker.asked(SEND)[0].body) == b"a" * 10_000


@pytest.mark.feature("K13")
async def test_batch_is_one_request(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Three messages travel with code 320 and come back with three keys."""
    broker.answers[BATCH] = stored
    async with Producer("pg", cluster.nameserver.address) as producer:
        result = await producer.send_batch(Message("T", b"x", tags=str(number)) for number in range(3))
    [header] = headers(broker, BATCH)
    assert header.batch
    assert len(result.message_id.split(",")) == 3


async def test_send_nowait_returns_a_future(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Results and errors come through the future; mistakes are raised at once; closing waits for what is under way."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(ValueError, match="empty"):
            producer.send_nowait(Message("T", b""))
        failing = producer.send_nowait(Message("missing", b"x"))
        futures = [producer.send_nowait(Message("T", b"x")) for _ in range(100)]
    assert {future.result().status for future in futures} == {SendStatus.SEND_OK}
    assert isinstance(failing.exception(), RouteNotFoundError)
    assert len(headers(broker)) == 100


async def test_unknown_topic_is_sent_after_the_template(cluster: ScriptedCluster) -> None:
    """Without a route the template's is used, cut to four queues; without a template there is a typed error."""
    broker = await cluster.add_broker("broker-a")
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(RouteNotFoundError, match="New"):
            await producer.send(Message("New", b"x"))
        cluster.routes["TBW102"] = {"broker-a": 8}
        assert len(await producer.fetch_queues("New")) == 4
        await producer.send(Message("New", b"x"))
    assert headers(broker)[0].topic == "New"


async def test_many_first_sends_ask_for_the_route_once(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Callers that come together wait for one question."""
    async with Producer("pg", cluster.nameserver.address) as producer:
        futures = [producer.send_nowait(Message("T", b"x")) for _ in range(20)]
        async with asyncio.timeout(30):
            await asyncio.wait(futures)
    assert len(cluster.nameserver.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
    assert len(broker.connections) == 1


async def test_use_outside_the_block_is_refused(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Too early, too late and twice are told apart."""
    producer = Producer("pg", cluster.nameserver.address)
    with pytest.raises(ClientStateError, match="not started"):
        await producer.send(Message("T", b"x"))
    async with producer:
        with pytest.raises(ClientStateError, match="started again"):
            await producer.__aenter__()
    for call in (producer.send, producer.send_oneway):
        with pytest.raises(ClientStateError, match="is closed"):
            await call(Message("T", b"x"))
    with pytest.raises(ClientStateError, match="is closed"):
        await producer.__aenter__()
    assert not broker.asked(SEND)


async def test_name_server_that_is_gone_is_a_typed_error() -> None:
    """Nothing to ask is not the same as an unknown topic."""
    async with scripted_server("gone") as server:
        address = server.address
    async with Producer("pg", address) as producer:
        with pytest.raises(ConnectFailedError):
            await producer.send(Message("T", b"x"))


async def test_leaving_the_block_leaves_nothing_behind(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """The broker is told, the connections are closed, no task is left; an error of the block passes as it is."""
    tasks = asyncio.all_tasks()

    async def fail_inside() -> None:
        async with Producer("pg", cluster.nameserver.address) as producer:
            await producer.send(Message("T", b"x"))
            raise KeyError

    with pytest.raises(KeyError):
        await fail_inside()
    assert len(broker.asked(RequestCode.UNREGISTER_CLIENT)) == 1
    assert asyncio.all_tasks() == tasks


async def test_cancelled_send_takes_nothing_from_others(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """A caller may give up at any time; the producer goes on."""
    broker.answers[SEND] = silent
    async with Producer("pg", cluster.nameserver.address) as producer:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(producer.send(Message("T", b"x")))
            await broker.wait_asked(SEND)
            waiting.cancel()
        broker.answers[SEND] = stored
        assert (await producer.send(Message("T", b"y"))).status is SendStatus.SEND_OK


async def test_broker_that_sends_us_away_is_connected_to_anew(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """GO_AWAY ends the connection, and the retry makes another."""

    def send_away_once(_: Command) -> Command:
        broker.answers[SEND] = stored
        return Command.response(ResponseCode.GO_AWAY, "please go away")

    broker.answers[SEND] = send_away_once
    async with Producer("pg", cluster.nameserver.address) as producer:
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
    assert len(broker.connections) == 2


async def test_error_of_a_selector_is_the_callers(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """It comes out of the call or its future, and the producer goes on."""

    def select_nothing(queues: Sequence[MessageQueue], _message: Message, _arg: object) -> MessageQueue:
        return queues[99]

    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(IndexError):
            await producer.send(Message("T", b"x"), selector=select_nothing)
        failing = producer.send_nowait(Message("T", b"x"), selector=select_nothing)
        await producer.send(Message("T", b"x"))
    assert isinstance(failing.exception(), IndexError)
    assert len(headers(broker)) == 1
