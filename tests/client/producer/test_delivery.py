"""How often and where a message is sent: without waiting, and with brokers that are slow."""

import asyncio
from collections.abc import Awaitable

import pytest
from scripted_cluster import Answer, ScriptedCluster, ScriptedServer, refused, silent, stored

from rocketlet.client import Message, Producer, ProducerSettings, Session, select_by_hash
from rocketlet.client.producer.delivery import RETRIED_CODES, QueueRoundRobin, SendAttempts, SlowBrokers
from rocketlet.client.session.results import SendResult, SendStatus
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import (
    ConnectFailedError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    RouteNotFoundError,
)
from rocketlet.common.message import MessageQueue
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.send import decode_send_header
from rocketlet.testing import ManualClock

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
async def brokers(cluster: ScriptedCluster) -> list[ScriptedServer]:
    """Return the two brokers of topic T, with one queue each."""
    cluster.routes["T"] = {"broker-a": 1, "broker-b": 1}
    return [await cluster.add_broker("broker-a"), await cluster.add_broker("broker-b")]


def hanging_up(server: ScriptedServer, times: int) -> Answer:
    """Return an answer that ends the connection so often, and then stores."""
    left = times

    def answer(command: Command) -> Command | Outcome[Command]:
        nonlocal left
        if left == 0:
            return stored(command)
        left -= 1
        server.connections[-1].close()
        return Outcome[Command]()

    return answer


def properties(server: ScriptedServer) -> list[str | None]:
    """Return the property texts of the sends that a broker got."""
    return [decode_send_header(command).properties for command in server.asked(SEND)]


@pytest.mark.feature("K7")
async def test_error_answer_ends_a_send_nowait_at_once(cluster: ScriptedCluster, brokers: list[ScriptedServer]) -> None:
    """What ``send`` would try at another broker is the result here: one request is made in all."""
    for broker in brokers:
        broker.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY, "later")
    async with Producer("pg", cluster.nameserver.address) as producer:
        with pytest.raises(ResponseError, match="later"):
            await producer.send_nowait(Message("T", b"x"))
    assert sum(len(broker.asked(SEND)) for broker in brokers) == 1


@pytest.mark.feature("K7")
@pytest.mark.parametrize("is_chosen", [False, True], ids=["round", "selector"])
async def test_lost_connection_is_retried_at_the_same_broker(
    cluster: ScriptedCluster, brokers: list[ScriptedServer], *, is_chosen: bool
) -> None:
    """Two attempts without an answer are followed by a third to the same queue, with the same unique key."""
    for broker in brokers:
        broker.answers[SEND] = hanging_up(broker, 2)
    async with Producer("pg", cluster.nameserver.address) as producer:
        sending = producer.send_nowait(
            Message("T", b"x"), selector=select_by_hash if is_chosen else None, arg=1 if is_chosen else None
        )
        result = await sending
    taker, other = brokers if result.queue.broker_name == "broker-a" else brokers[::-1]
    assert len(properties(taker)) == 3
    assert len(set(properties(taker))) == 1
    assert not other.asked(SEND)


@pytest.mark.feature("K7")
@pytest.mark.parametrize("retries", [0, 1])
async def test_send_nowait_ends_with_its_retries(
    cluster: ScriptedCluster, brokers: list[ScriptedServer], retries: int
) -> None:
    """The last failure is the result, and says how many attempts there were."""
    for broker in brokers:
        broker.answers[SEND] = hanging_up(broker, 5)
    settings = ProducerSettings(retries_nowait=retries)
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        with pytest.raises(RemotingError) as raised:
            await producer.send_nowait(Message("T", b"x"))
    assert sum(len(broker.asked(SEND)) for broker in brokers) == 1 + retries
    assert len(getattr(raised.value, "__notes__", [])) == retries


@pytest.mark.feature("K7")
async def test_send_nowait_has_one_time_budget(cluster: ScriptedCluster, brokers: list[ScriptedServer]) -> None:
    """A broker that does not answer uses up the time, and no attempt follows."""
    clock = ManualClock()
    for broker in brokers:
        broker.answers[SEND] = silent
    async with Producer("pg", cluster.nameserver.address, clock=clock) as producer:
        await producer.fetch_queues("T")
        sending = producer.send_nowait(Message("T", b"x"), queue=(await producer.fetch_queues("T"))[0], timeout_ms=500)
        await brokers[0].wait_asked(SEND)
        await clock.elapse(500)
        with pytest.raises(RequestTimeoutError):
            await sending
    assert len(brokers[0].asked(SEND)) == 1


@pytest.mark.feature("K6")
async def test_silent_broker_leaves_time_for_another(cluster: ScriptedCluster, brokers: list[ScriptedServer]) -> None:
    """With a limit for each attempt the second broker gets the message within the call; without it the time is over."""
    clock = ManualClock()
    silent_broker, other = brokers
    silent_broker.answers[SEND] = silent
    settings = ProducerSettings(attempt_timeout_ms=1_000)
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        await producer.fetch_queues("T")
        async with asyncio.TaskGroup() as group:
            sends = [group.create_task(producer.send(Message("T", b"x"))) for _ in range(2)]  # one begins at each
            await silent_broker.wait_asked(SEND)
            await clock.elapse(1_000)
    assert {send.result().queue.broker_name for send in sends} == {"broker-b"}
    assert (len(silent_broker.asked(SEND)), len(other.asked(SEND))) == (1, 2)


@pytest.mark.feature("K10")
async def test_slow_broker_gets_no_messages_for_its_time(
    cluster: ScriptedCluster, brokers: list[ScriptedServer]
) -> None:
    """One answer after 2 s sends all messages of the next 5 s to the other broker."""
    clock = ManualClock()
    slow, quick = brokers

    def take_two_seconds(command: Command) -> Command:
        slow.answers[SEND] = stored
        clock.advance(2_000)
        return stored(command)

    settings = ProducerSettings(avoids_slow_brokers=True)
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        for _ in range(2):  # connects to both
            await producer.send(Message("T", b"x"))
        slow.requests.clear()
        slow.answers[SEND] = take_two_seconds
        while not slow.asked(SEND):
            await producer.send(Message("T", b"x"))
        quick.requests.clear()
        for _ in range(4):
            await producer.send(Message("T", b"x"))
        await producer.send_nowait(Message("T", b"x"))
        assert (len(slow.asked(SEND)), len(quick.asked(SEND))) == (1, 5)
        clock.advance(5_000)
        for _ in range(4):
            await producer.send(Message("T", b"x"))
    assert len(slow.asked(SEND)) == 3


async def test_round_follows_the_route(cluster: ScriptedCluster, brokers: list[ScriptedServer]) -> None:
    """A new publish list is taken at once; when it is empty the next send looks the topic up again."""
    settings = ProducerSettings(retries=0)
    topic = Message("T", b"x")
    async with (
        Session(cluster.nameserver.address) as session,
        Producer("pg", session=session, settings=settings) as producer,
    ):
        await producer.send(topic)
        cluster.routes["T"] = {"broker-b": 2}
        await session.refresh("T")
        assert [(await producer.send(topic)).queue.broker_name for _ in range(2)] == ["broker-b", "broker-b"]
        cluster.routes["U"] = {"broker-a": 1}
        await session.refresh("U")  # a topic that nobody has sent to
        cluster.routes["U"] = {"broker-b": 1}
        await session.refresh("U")
        assert (await producer.send(Message("U", b"x"))).queue.broker_name == "broker-b"
        cluster.routes["T"] = {"broker-b": 0}
        await session.refresh("T")
        with pytest.raises(RouteNotFoundError, match="no broker takes messages of the topic T now"):
            await producer.send(topic)
        cluster.routes["T"] = {"broker-a": 1}
        assert (await producer.send(topic)).queue.broker_name == "broker-a"


@pytest.mark.parametrize("is_chosen", [False, True], ids=["round", "chosen"])
async def test_broker_that_sends_its_clients_away_is_connected_to_anew(
    cluster: ScriptedCluster, *, is_chosen: bool
) -> None:
    """GO_AWAY ends the connection: the only retry, or the next send to a queue that was chosen, makes another."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")

    def send_away(_: Command) -> Command:
        broker.answers[SEND] = stored
        return Command.response(ResponseCode.GO_AWAY, "please go away")

    settings = ProducerSettings(retries=1)
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        queue = (await producer.send(Message("T", b"x"))).queue
        broker.answers[SEND] = send_away
        if is_chosen:
            with pytest.raises(ResponseError, match="1500"):
                await producer.send(Message("T", b"x"), queue=queue)
        await producer.send(Message("T", b"x"), queue=queue if is_chosen else None)
    assert (len(broker.asked(SEND)), len(broker.connections)) == (3, 2)


@pytest.mark.feature("K6")
@pytest.mark.parametrize("attempt_timeout_ms", [None, 500, 600])
@pytest.mark.parametrize("kind", ["first", "later", "chosen"])
async def test_send_ends_when_its_time_is_over(
    cluster: ScriptedCluster, attempt_timeout_ms: int | None, kind: str
) -> None:
    """To the millisecond, whether route and connection are there or not; a longer limit of attempts does not matter."""
    cluster.routes["T"] = {"broker-a": 1}
    broker, clock = await cluster.add_broker("broker-a"), ManualClock()
    settings = ProducerSettings(retries=0, attempt_timeout_ms=attempt_timeout_ms)
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        if kind != "first":
            await producer.send(Message("T", b"x"))
            await clock.elapse(1_000)
            await broker.wait_asked(RequestCode.HEART_BEAT)
            await clock.settle()
        broker.requests.clear()
        broker.answers[SEND] = silent
        async with asyncio.TaskGroup() as group:
            queue = (await producer.fetch_queues("T"))[0] if kind == "chosen" else None
            sending = group.create_task(error_of(producer.send(Message("T", b"x"), timeout_ms=500, queue=queue)))
            await broker.wait_asked(SEND)
            await clock.elapse(499)
            assert not sending.done()
            await clock.elapse(1)
        assert isinstance(sending.result(), RequestTimeoutError)
        if kind != "first":  # a heartbeat shows whether the connection is half open
            await broker.wait_asked(RequestCode.HEART_BEAT)


@pytest.mark.feature("K6")
async def test_first_send_ends_when_no_name_server_answers_in_time(cluster: ScriptedCluster) -> None:
    """The time for the route is that of the call."""
    clock = ManualClock()
    cluster.nameserver.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silent
    async with (
        Producer("pg", cluster.nameserver.address, clock=clock) as producer,
        asyncio.TaskGroup() as group,
    ):
        sending = group.create_task(error_of(producer.send(Message("T", b"x"), timeout_ms=500)))
        await cluster.nameserver.wait_asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        await clock.elapse(499)
        assert not sending.done()
        await clock.elapse(1)
    assert isinstance(sending.result(), RequestTimeoutError)


@pytest.mark.feature("K6", "K7")
@pytest.mark.parametrize("is_nowait", [False, True], ids=["send", "send_nowait"])
async def test_attempts_follow_while_there_is_time(cluster: ScriptedCluster, *, is_nowait: bool) -> None:
    """With a millisecond left there is another, with none there is not."""
    cluster.routes["T"] = {"broker-a": 1}
    broker, clock = await cluster.add_broker("broker-a"), ManualClock()
    passes_ms = [1, 499]

    def hang_up(_: Command) -> Outcome[Command]:
        clock.advance(passes_ms.pop())
        broker.connections[-1].close()
        return Outcome[Command]()

    settings = ProducerSettings(retries=5, retries_nowait=5)
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        await producer.fetch_queues("T")
        broker.answers[SEND] = hang_up
        send = producer.send_nowait if is_nowait else producer.send
        assert isinstance(await error_of(send(Message("T", b"x"), timeout_ms=500)), RemotingError)
    assert len(broker.asked(SEND)) == 2


async def error_of(sending: Awaitable[SendResult]) -> RemotingError | None:
    """Return what a send raises."""
    try:
        await sending
    except RemotingError as error:
        return error
    return None


async def test_every_send_passes_what_changes_requests(cluster: ScriptedCluster) -> None:
    """Also the second, for which route and connection are there: its topic is in the namespace."""
    cluster.routes["ns%T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ProducerSettings(namespace="ns")
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        for _ in range(2):
            await producer.send(Message("T", b"x"))
    assert [decode_send_header(command).topic for command in broker.asked(SEND)] == ["ns%T", "ns%T"]


@pytest.mark.feature("K10")
async def test_failed_broker_is_avoided_by_later_sends(cluster: ScriptedCluster, brokers: list[ScriptedServer]) -> None:
    """With the setting on, a dead broker is tried once in ten seconds; without it, every second send begins there."""
    dead, quick = brokers
    await dead.close()
    clock = ManualClock()
    settings = ProducerSettings(avoids_slow_brokers=True, retries=0)
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        failures = 0
        for _ in range(10):
            try:
                await producer.send(Message("T", b"x"))
            except ConnectFailedError:
                failures += 1
    assert failures == 1
    assert len(quick.asked(SEND)) == 9


A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)


def result(status: SendStatus, queue: MessageQueue = A) -> SendResult:
    """Return the result of an attempt."""
    return SendResult(status, "ID", "OFFSET-ID", queue, 7)


@pytest.mark.feature("K9")
def test_bad_status_is_the_outcome_unless_asked_otherwise() -> None:
    """FLUSH_DISK_TIMEOUT and its like are returned; with the setting on another broker is tried."""
    bad = result(SendStatus.FLUSH_DISK_TIMEOUT)
    assert SendAttempts(retries_bad_status=False).is_last(A, bad)

    attempts = SendAttempts(retries_bad_status=True)
    assert not attempts.is_last(A, bad)
    assert attempts.failed_broker == "broker-a"
    assert attempts.outcome() is bad


@pytest.mark.feature("K9")
def test_bad_status_wins_over_a_later_error() -> None:
    """A message that was stored badly was stored: the later failure is not raised."""
    bad = result(SendStatus.SLAVE_NOT_AVAILABLE)
    attempts = SendAttempts(retries_bad_status=True)
    attempts.is_last(A, bad)

    assert attempts.is_last(B, ResponseError(ResponseCode.MESSAGE_ILLEGAL, "no"))
    assert attempts.outcome() is bad


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (ConnectFailedError("x"), True),
        (RequestTimeoutError("x"), True),
        (RouteNotFoundError("x"), True),
        *((ResponseError(code, None), True) for code in (1, 2, 14, 16, 17, 204, 205, 1500)),
        *((ResponseError(code, None), False) for code in (13, 26, 29, 604)),
    ],
    ids=str,
)
def test_errors_that_another_broker_may_not_have_are_retried(error: ConnectFailedError, is_retried: bool) -> None:
    """Transport failures and Java's eight codes lead to another attempt, other codes do not."""
    assert SendAttempts(retries_bad_status=False).is_last(A, error) != is_retried


def test_retried_codes_are_javas() -> None:
    """The default of ``retryResponseCodes``."""
    assert set(RETRIED_CODES) == {1, 2, 14, 16, 17, 204, 205, 1500}


def test_last_error_names_all_attempts() -> None:
    """The error that is raised tells what was tried where."""
    attempts = SendAttempts(retries_bad_status=False)
    attempts.is_last(A, ConnectFailedError("cannot connect to a"))
    attempts.is_last(B, RequestTimeoutError("b was slow"))

    with pytest.raises(RequestTimeoutError, match="b was slow") as raised:
        attempts.outcome()
    assert raised.value.__notes__ == ["2 attempts: broker-a: cannot connect to a; broker-b: b was slow"]


def test_no_attempt_at_all_is_a_timeout() -> None:
    """A budget that is used up before the first attempt is the caller's time being over."""
    with pytest.raises(RequestTimeoutError):
        SendAttempts(retries_bad_status=False).outcome()


ROUND = [MessageQueue("T", f"Broker_{name}", queue_id) for name in "ABC" for queue_id in (0, 1)]


@pytest.mark.feature("K4")
def test_round_takes_every_queue_once() -> None:
    """From any start each queue comes once before one comes again."""
    queue_round = QueueRoundRobin(ROUND)

    assert sorted(queue_round.next_queue() for _ in ROUND) == ROUND
    assert sorted(queue_round.next_queue() for _ in ROUND) == ROUND


@pytest.mark.feature("K4")
def test_round_starts_anywhere() -> None:
    """Producers do not all begin with the same queue."""
    starts = {QueueRoundRobin(ROUND).next_queue() for _ in range(500)}

    assert len(starts) == len(ROUND)


@pytest.mark.feature("K5")
def test_round_passes_over_the_failed_broker() -> None:
    """After a failure of the first queue of broker A its second is skipped and broker B comes next."""
    queue_round = QueueRoundRobin(ROUND, start=0)
    failed = queue_round.next_queue()

    assert failed == ("T", "Broker_A", 0)
    assert queue_round.next_queue(failed.broker_name) == ("T", "Broker_B", 0)


@pytest.mark.feature("K5")
def test_round_stays_when_there_is_no_other_broker() -> None:
    """With a single broker the retry goes to its next queue."""
    queue_round = QueueRoundRobin(ROUND[:2], start=0)
    queue_round.next_queue()

    assert queue_round.next_queue("Broker_A").broker_name == "Broker_A"


SMALL_QUEUES = [MessageQueue("T", f"broker-{name}", queue_id) for name in "abc" for queue_id in (0, 1)]
RESULT = SendResult(SendStatus.SEND_OK, "ID", "OFFSET-ID", SMALL_QUEUES[0], 7)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock()


@pytest.fixture
def slow(clock: ManualClock) -> SlowBrokers:
    """Return a table in which nothing is noted."""
    return SlowBrokers(clock.now_ms)


def passed_over_ms(slow: SlowBrokers, clock: ManualClock) -> int:
    """Return for how long broker-a is passed over, counted in steps of half a second."""
    begun_at_ms = clock.now_ms()
    while not slow.is_available("broker-a"):
        clock.advance(500)
    return clock.now_ms() - begun_at_ms


@pytest.mark.feature("K10")
@pytest.mark.parametrize(
    ("took_ms", "passed_over"),
    [
        *((0, 0), (49, 0), (50, 0), (100, 0), (549, 0)),
        *((550, 2_000), (1_799, 2_000), (1_800, 5_000), (2_999, 5_000), (3_000, 6_000), (4_999, 6_000)),
        *((5_000, 10_000), (14_999, 10_000), (15_000, 30_000), (1_000_000, 30_000)),
    ],
)
def test_broker_is_passed_over_for_the_tables_time(
    slow: SlowBrokers, clock: ManualClock, took_ms: int, passed_over: int
) -> None:
    """Java's table: from 550 ms on, the slower the longer."""
    slow.note("broker-a", took_ms)
    assert passed_over_ms(slow, clock) == passed_over


@pytest.mark.feature("K10")
def test_quick_answer_does_not_shorten_the_time(slow: SlowBrokers, clock: ManualClock) -> None:
    """The later of two instants holds, whichever was noted first."""
    slow.note("broker-a", 3_000)
    slow.note("broker-a", 5)
    slow.note("broker-a", 600)
    assert passed_over_ms(slow, clock) == 6_000


@pytest.mark.feature("K10")
@pytest.mark.parametrize(
    ("error", "is_reachable"),
    [
        (ConnectFailedError("no connection"), True),
        (RequestTimeoutError("no answer"), True),
        (ResponseError(2, "busy"), False),
    ],
    ids=repr,
)
async def test_failed_attempt_counts_as_ten_seconds(
    slow: SlowBrokers, clock: ManualClock, error: Exception, *, is_reachable: bool
) -> None:
    """No answer and an error as answer pass the broker over for 10 s; only the latter makes it unreachable."""

    async def fail() -> SendResult:
        raise error

    with pytest.raises(type(error)):
        await slow.watch("broker-a", fail())
    assert slow.is_reachable("broker-a") is is_reachable
    assert passed_over_ms(slow, clock) == 10_000


@pytest.mark.feature("K10")
async def test_attempt_is_timed(slow: SlowBrokers, clock: ManualClock) -> None:
    """The time until the answer counts; a stored message makes its broker reachable again."""
    slow.note("broker-a", 0, is_reachable=False)

    async def take_two_seconds() -> SendResult:
        clock.advance(2_000)
        return RESULT

    assert await slow.watch("broker-a", take_two_seconds()) is RESULT
    assert slow.is_reachable("broker-a")
    assert passed_over_ms(slow, clock) == 5_000


@pytest.mark.feature("K10")
def test_round_passes_over_slow_brokers(slow: SlowBrokers, clock: ManualClock) -> None:
    """While A is slow the round goes over B and C, and comes back to A when its time is over."""
    wary = QueueRoundRobin(SMALL_QUEUES, slow, start=0)
    slow.note("broker-a", 700)

    assert [wary.next_queue().broker_name for _ in range(4)] == ["broker-b", "broker-b", "broker-c", "broker-c"]
    clock.advance(2_000)
    assert wary.next_queue() == SMALL_QUEUES[0]


@pytest.mark.feature("K10")
def test_retry_avoids_the_failed_broker_besides(slow: SlowBrokers) -> None:
    """With A slow and B just failed, C is left."""
    slow.note("broker-a", 700)
    wary = QueueRoundRobin(SMALL_QUEUES, slow, start=0)
    assert {wary.next_queue("broker-b").broker_name for _ in range(4)} == {"broker-c"}


@pytest.mark.feature("K10")
def test_round_prefers_the_reachable_when_all_are_slow(slow: SlowBrokers) -> None:
    """When all are passed over, one that answered with an error comes after one that was slow."""
    for name in ("broker-a", "broker-b", "broker-c"):
        slow.note(name, 700, is_reachable=name == "broker-b")
    wary = QueueRoundRobin(SMALL_QUEUES, slow, start=0)
    assert {wary.next_queue().broker_name for _ in range(4)} == {"broker-b"}


@pytest.mark.feature("K10")
def test_round_takes_any_when_none_will_do(slow: SlowBrokers) -> None:
    """When none is reachable messages still go somewhere, in order."""
    for name in ("broker-a", "broker-b", "broker-c"):
        slow.note(name, 10_000, is_reachable=False)
    wary = QueueRoundRobin(SMALL_QUEUES, slow, start=0)
    assert [wary.next_queue() for _ in range(6)] == SMALL_QUEUES
