"""Faults as values: each kind, with raw requests and with our own client, and what an unmet one says."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from raw_calls import open_caller

from rocketlet.client import Message, Producer, ProducerSettings
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConnectionClosedError, RequestTimeoutError, ResponseError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import Fault, ManualClock, RocketmqBroker


@pytest.fixture
def frozen() -> Iterator[RocketmqBroker]:
    """Run a broker whose time the test moves."""
    with RocketmqBroker() as broker:
        broker.clock.freeze()
        yield broker


def bodies(broker: RocketmqBroker, topic: str) -> list[bytes]:
    """Return what is stored in a topic."""
    return [message.body for message in broker.messages(topic)]


async def test_answer_is_given_so_often(rocketmq_broker: RocketmqBroker) -> None:
    """A send is answered SYSTEM_BUSY twice, with the remark, and not stored; the third is served."""
    topic = await rocketmq_broker.create_topic(queues=1)
    fault = rocketmq_broker.faults.add(
        on="send", topic=topic, times=2, answer=ResponseCode.SYSTEM_BUSY, remark="too busy for a test"
    )
    async with open_caller(rocketmq_broker.address) as caller:
        answers = [await caller.send(topic, b"%d" % number) for number in range(3)]
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_BUSY] * 2 + [ResponseCode.SUCCESS]
    assert answers[0].remark == "too busy for a test"
    assert bodies(rocketmq_broker, topic) == [b"2"]
    assert fault.hits == 2
    assert repr(fault) == f"<InjectedFault send of topic {topic}: answered SYSTEM_BUSY, met 2 of 2 times>"


async def test_own_client_retries_a_busy_broker(rocketmq_broker: RocketmqBroker) -> None:
    """Our producer goes on after two answers SYSTEM_BUSY, and the message is stored once."""
    topic = await rocketmq_broker.create_topic(queues=1)
    rocketmq_broker.faults.add(on="send", topic=topic, times=2, answer=ResponseCode.SYSTEM_BUSY)
    async with Producer("faults", nameserver=rocketmq_broker.nameserver) as producer:
        await producer.send(Message(topic, b"once"))
    assert bodies(rocketmq_broker, topic) == [b"once"]
    sends = rocketmq_broker.requests(on="send", topic=topic)
    assert [send.answer for send in sends] == [ResponseCode.SYSTEM_BUSY] * 2 + [ResponseCode.SUCCESS]


async def test_first_requests_are_spared(rocketmq_broker: RocketmqBroker) -> None:
    """`after` lets the first requests pass; without `times` of its own a fault happens once."""
    topic = await rocketmq_broker.create_topic(queues=1)
    rocketmq_broker.faults.add(on="send", topic=topic, after=2, answer=ResponseCode.NO_PERMISSION)
    async with open_caller(rocketmq_broker.address) as caller:
        codes = [(await caller.send(topic)).code for _ in range(4)]
    assert codes == [0, 0, ResponseCode.NO_PERMISSION, 0]


async def test_other_requests_do_not_meet_it(rocketmq_broker: RocketmqBroker) -> None:
    """Topic, group and operation are all asked for; a fault without an end goes on until the test ends."""
    topic, other = await rocketmq_broker.create_topic(queues=1), await rocketmq_broker.create_topic(queues=1)
    fault = rocketmq_broker.faults.add(
        on="send", topic=topic, group="theirs", times=None, answer=ResponseCode.SYSTEM_ERROR
    )
    async with open_caller(rocketmq_broker.address) as caller:
        assert (await caller.send(topic)).code == ResponseCode.SUCCESS
        assert (await caller.send(other, producer_group="theirs")).code == ResponseCode.SUCCESS
        assert (await caller.pull(topic, consumer_group="theirs")).code == ResponseCode.SUCCESS
        assert [(await caller.send(topic, producer_group="theirs")).code for _ in range(3)] == [1, 1, 1]
    assert fault.hits == 3


async def test_client_is_known_by_its_heartbeat(rocketmq_broker: RocketmqBroker) -> None:
    """A fault of one client meets what comes on the connection of its heartbeat, and nothing of others."""
    topic = await rocketmq_broker.create_topic(queues=1)
    rocketmq_broker.faults.add(client="10.0.0.9@7", on="pull", times=None, answer=ResponseCode.SYSTEM_BUSY)
    async with open_caller(rocketmq_broker.address) as caller, open_caller(rocketmq_broker.address) as other:
        await caller.heartbeat("10.0.0.9@7", "consumers", {topic: "*"})
        assert (await caller.pull(topic, 1)).code == ResponseCode.SYSTEM_BUSY
        assert (await other.pull(topic, 1)).code != ResponseCode.SYSTEM_BUSY


async def test_dropped_request_is_neither_served_nor_answered(rocketmq_broker: RocketmqBroker) -> None:
    """The client waits in vain while the connection serves others; nothing is stored."""
    topic = await rocketmq_broker.create_topic(queues=1)
    fault = rocketmq_broker.faults.add(on="send", topic=topic, answer=Fault.DROP)
    async with open_caller(rocketmq_broker.address) as caller, asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(caller.send(topic, b"dropped"))
        await fault.met()
        assert (await caller.send(topic, b"served")).code == ResponseCode.SUCCESS
        assert not sending.done()
        sending.cancel()
    assert bodies(rocketmq_broker, topic) == [b"served"]
    assert [send.state for send in rocketmq_broker.requests(on="send")] == ["dropped", "answered"]


async def test_connection_is_closed_instead(rocketmq_broker: RocketmqBroker) -> None:
    """What came before is answered; what came behind in the same read is not served."""
    topic = await rocketmq_broker.create_topic(queues=1)
    rocketmq_broker.faults.add(on="send", topic=topic, after=1, answer=Fault.CLOSE)
    async with open_caller(rocketmq_broker.address) as caller, asyncio.TaskGroup() as tasks:
        first, closed, behind = [tasks.create_task(_try(caller.send(topic, body))) for body in (b"1", b"2", b"3")]
    assert isinstance(first.result(), Command)
    assert isinstance(closed.result(), ConnectionClosedError)
    assert isinstance(behind.result(), ConnectionClosedError)
    assert bodies(rocketmq_broker, topic) == [b"1"]


async def _try(sending: Coroutine[Any, Any, Command]) -> Command | ConnectionClosedError:
    try:
        return await sending
    except ConnectionClosedError as error:
        return error


async def test_lost_answer_is_of_a_stored_message(rocketmq_broker: RocketmqBroker) -> None:
    """Our producer hears nothing, tries again after its time, and the message is there twice, under one unique key."""
    topic = await rocketmq_broker.create_topic(queues=1)
    clock, settings = ManualClock(), ProducerSettings(attempt_timeout_ms=500)
    fault = rocketmq_broker.faults.add(on="send", topic=topic, answer=Fault.LOSE_ANSWER)
    async with Producer("faults", nameserver=rocketmq_broker.nameserver, clock=clock, settings=settings) as producer:
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(producer.send(Message(topic, b"twice")))
            await fault.met()
            clock.advance(500)
        sent = sending.result()
    stored = rocketmq_broker.messages(topic)
    assert [message.body for message in stored] == [b"twice"] * 2
    assert {message.message_id for message in stored} == {sent.message_id}
    lost, answered = rocketmq_broker.requests(on="send", topic=topic)
    assert (lost.state, lost.answer) == ("answer lost", ResponseCode.SUCCESS)
    assert (answered.state, answered.answer) == ("answered", ResponseCode.SUCCESS)


async def test_late_request_is_served_when_its_time_has_come(frozen: RocketmqBroker) -> None:
    """It is not stored before; then it is stored, committed and answered, though no read brings it."""
    topic = await frozen.create_topic(queues=1)
    fault = frozen.faults.add(on="send", topic=topic, delay_ms=500)
    async with open_caller(frozen.address) as caller, asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(caller.send(topic, b"late"))
        await fault.met()
        frozen.clock.advance(milliseconds=499)
        assert bodies(frozen, topic) == []
        frozen.clock.advance(milliseconds=1)
        assert bodies(frozen, topic) == [b"late"]
        assert (await sending).code == ResponseCode.SUCCESS
    assert frozen.requests(on="send")[0].state == "answered"


@pytest.mark.parametrize("answer", [ResponseCode.SYSTEM_BUSY, Fault.LOSE_ANSWER, Fault.CLOSE])
async def test_other_faults_may_be_late(frozen: RocketmqBroker, answer: int | Fault) -> None:
    """An answer, its loss and the end of the connection come when the time has come, too."""
    topic = await frozen.create_topic(queues=1)
    fault = frozen.faults.add(on="send", topic=topic, delay_ms=500, answer=answer)
    async with open_caller(frozen.address) as caller, asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(_try(caller.send(topic, b"late")))
        await fault.met()
        assert (await caller.send(topic, b"in time")).code == ResponseCode.SUCCESS
        frozen.clock.advance(milliseconds=500)
        if answer is Fault.LOSE_ANSWER:
            assert bodies(frozen, topic) == [b"in time", b"late"]
            sending.cancel()
            return
        result = await sending
    assert bodies(frozen, topic) == [b"in time"]
    if answer is Fault.CLOSE:
        assert isinstance(result, ConnectionClosedError)
    else:
        assert isinstance(result, Command)
        assert result.code == ResponseCode.SYSTEM_BUSY


async def test_held_pull_that_was_late_gets_its_message(frozen: RocketmqBroker) -> None:
    """A pull that is served late waits for a message as any other, and brings it."""
    topic = await frozen.create_topic(queues=1)
    fault = frozen.faults.add(on="pull", topic=topic, delay_ms=500)
    async with open_caller(frozen.address) as caller, asyncio.TaskGroup() as tasks:
        pulling = tasks.create_task(caller.pull(topic, 0, sys_flag=6))
        await fault.met()
        frozen.clock.advance(milliseconds=500)
        assert not pulling.done()
        await caller.send(topic, b"arrived")
        answer = await pulling
    assert answer.code == ResponseCode.SUCCESS
    assert b"arrived" in answer.body


async def test_answers_of_all_kinds_may_be_lost(rocketmq_broker: RocketmqBroker) -> None:
    """Whether a handler answers at once, later or fails: nobody hears of it, and what it was is noted."""
    topic = await rocketmq_broker.create_topic(queues=1)
    for operation in ("pull", "max_offset", "get_broker_config"):
        rocketmq_broker.faults.add(on=operation, times=None, answer=Fault.LOSE_ANSWER)
    async with open_caller(rocketmq_broker.address) as caller, asyncio.TaskGroup() as tasks:
        await caller.send(topic, b"1")
        asking = [
            *(caller.pull(topic, queue_offset) for queue_offset in (0, 1)),
            *(caller.ask(RequestCode.GET_MAX_OFFSET, fields) for fields in ({"topic": topic, "queueId": "0"}, {})),
            caller.ask(RequestCode.GET_BROKER_CONFIG),
        ]
        lost = [tasks.create_task(each) for each in asking]
        await caller.heartbeat("10.0.0.9@7", "consumers", {topic: "*"})
        assert not any(each.done() for each in lost)
        for each in lost:
            each.cancel()
    requests = [each for each in rocketmq_broker.requests() if each.state == "answer lost"]
    assert [each.answer for each in requests] == [0, ResponseCode.PULL_NOT_FOUND, 0, ResponseCode.SYSTEM_ERROR, 0]
    assert requests[3].remark is not None
    assert "topic" in requests[3].remark


async def test_failures_may_be_late(frozen: RocketmqBroker) -> None:
    """What cannot be served is answered so when its time has come, and logged where nobody waits for an answer."""
    fault = frozen.faults.add(on="max_offset", times=2, delay_ms=500)
    async with open_caller(frozen.address) as caller, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(RequestCode.GET_MAX_OFFSET))
        caller.ask_oneway(RequestCode.GET_MAX_OFFSET)
        await fault.met(2)
        frozen.clock.advance(milliseconds=500)
        assert (await asking).code == ResponseCode.SYSTEM_ERROR
    asked = frozen.requests(on="max_offset")
    assert {(each.state, each.answer) for each in asked} == {
        ("answered", ResponseCode.SYSTEM_ERROR),
        ("one-way", ResponseCode.SYSTEM_ERROR),
    }


async def test_client_that_does_not_wait_gets_no_late_answer(frozen: RocketmqBroker) -> None:
    """Its message is stored all the same when the time has come, and the pull that it has left is given up."""
    topic = await frozen.create_topic(queues=1)
    sends = frozen.faults.add(on="send", topic=topic, delay_ms=500)
    pulls = frozen.faults.add(on="pull", topic=topic, delay_ms=500)
    async with open_caller(frozen.address) as caller, asyncio.TaskGroup() as tasks:
        left = [
            tasks.create_task(_try(each)) for each in (caller.send(topic, b"late"), caller.pull(topic, 9, sys_flag=6))
        ]
        await sends.met()
        await pulls.met()
        caller.connection.abort()
        assert all([isinstance(await each, ConnectionClosedError) for each in left])
    async with open_caller(frozen.address) as caller:
        await caller.ask(RequestCode.GET_BROKER_CONFIG)  # by now it has heard of the end
        frozen.clock.advance(milliseconds=500)
    assert bodies(frozen, topic) == [b"late"]


async def test_oneway_send_may_be_late(frozen: RocketmqBroker) -> None:
    """Nobody waits for it, and it is stored all the same."""
    topic = await frozen.create_topic(queues=1)
    fault = frozen.faults.add(on="send", topic=topic, delay_ms=500)
    async with Producer("faults", nameserver=frozen.nameserver) as producer:
        await producer.send_oneway(Message(topic, b"one-way"))
        await fault.met()
        frozen.clock.advance(milliseconds=500)
        assert bodies(frozen, topic) == [b"one-way"]


async def test_name_server_has_faults(rocketmq_broker: RocketmqBroker) -> None:
    """Routes are asked for at the name server; its answers can be chosen as those of the broker."""
    topic = await rocketmq_broker.create_topic(queues=1)
    rocketmq_broker.faults.add(on="route", topic=topic, answer=ResponseCode.TOPIC_NOT_EXIST, remark="no such thing")
    async with open_caller(rocketmq_broker.nameserver) as caller:
        refused = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        served = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    assert (refused.code, refused.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no such thing")
    assert served.code == ResponseCode.SUCCESS


async def test_fault_without_an_operation_leaves_the_brokers_own_requests_alone(
    rocketmq_broker: RocketmqBroker,
) -> None:
    """Whatever clients ask meets it; what the fixture and the broker ask does not."""
    with rocketmq_broker.faults.add(times=None, answer=ResponseCode.SYSTEM_ERROR):
        topic = await rocketmq_broker.create_topic(queues=1)
        async with open_caller(rocketmq_broker.address) as caller:
            assert (await caller.ask(RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.SYSTEM_ERROR
    async with open_caller(rocketmq_broker.address) as caller:
        assert (await caller.send(topic)).code == ResponseCode.SUCCESS


async def test_own_client_is_told_what_it_may_not_retry(rocketmq_broker: RocketmqBroker) -> None:
    """A code that no client retries reaches the application with its remark."""
    topic = await rocketmq_broker.create_topic(queues=1)
    rocketmq_broker.faults.add(on="send", topic=topic, answer=ResponseCode.MESSAGE_ILLEGAL, remark="not this one")
    async with Producer("faults", nameserver=rocketmq_broker.nameserver) as producer:
        with pytest.raises(ResponseError, match="not this one"):
            await producer.send(Message(topic, b"1"))


async def test_own_client_sends_again_over_a_new_connection(rocketmq_broker: RocketmqBroker) -> None:
    """A connection that is closed instead of an answer costs an attempt, and no message."""
    topic = await rocketmq_broker.create_topic(queues=1)
    rocketmq_broker.faults.add(on="send", topic=topic, answer=Fault.CLOSE)
    async with Producer("faults", nameserver=rocketmq_broker.nameserver) as producer:
        await producer.send(Message(topic, b"once"))
    assert bodies(rocketmq_broker, topic) == [b"once"]
    assert [send.state for send in rocketmq_broker.requests(on="send")] == ["connection closed", "answered"]


async def test_own_client_gives_up_a_silent_broker(rocketmq_broker: RocketmqBroker) -> None:
    """Dropped sends end in the producer's own time limit."""
    topic, clock = await rocketmq_broker.create_topic(queues=1), ManualClock()
    fault = rocketmq_broker.faults.add(on="send", topic=topic, times=None, answer=Fault.DROP)
    async with Producer("faults", nameserver=rocketmq_broker.nameserver, clock=clock) as producer:
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(_failure_of(producer, topic))
            await fault.met()
            clock.advance(3_000)
        assert isinstance(sending.result(), RequestTimeoutError)


async def _failure_of(producer: Producer, topic: str) -> BaseException | None:
    try:
        await producer.send(Message(topic, b"1"))
    except RequestTimeoutError as error:
        return error
    return None


def test_removed_fault_is_over(rocketmq_broker: RocketmqBroker) -> None:
    """`remove` and the end of a block end it; once is enough."""
    fault = rocketmq_broker.faults.add(on="send", answer=Fault.DROP, optional=True)
    fault.remove()
    fault.remove()
    assert repr(rocketmq_broker.faults) == "<FaultBook of 0 faults>"


async def test_waiting_for_a_fault_has_an_end(rocketmq_broker: RocketmqBroker) -> None:
    """Who waits for a fault that nobody meets hears which one it was."""
    fault = rocketmq_broker.faults.add(on="send", answer=Fault.DROP, optional=True)
    with pytest.raises(TimeoutError, match="send: dropped, met 0 of 1 times, 2 were waited for"):
        await asyncio.to_thread(fault.wait, 2, 0.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on": "sned", "answer": Fault.DROP}, "no operation is called 'sned'; did you mean send"),
        ({"on": "send"}, "nothing is to go wrong"),
        ({"answer": Fault.DROP, "delay_ms": 5}, "dropped cannot be 5 ms late"),
        ({"answer": Fault.CLOSE, "remark": "why"}, "the remark 'why' goes with a response code"),
        ({"delay_ms": 5, "remark": "why"}, "the remark 'why' goes with a response code"),
        ({"answer": Fault.DROP, "times": 0}, "times is 0"),
        ({"answer": Fault.DROP, "after": -1}, "after is -1"),
        ({"delay_ms": -1}, "delay_ms is -1"),
    ],
)
def test_contradictions_are_refused(rocketmq_broker: RocketmqBroker, arguments: dict[str, Any], words: str) -> None:
    """What cannot be meant is an error where it is written."""
    with pytest.raises(ValueError, match=words):
        rocketmq_broker.faults.add(**arguments)


async def test_unmet_fault_fails_the_test(frozen: RocketmqBroker) -> None:
    """It is named, with what came instead; a block tells it at its end."""
    topic = await frozen.create_topic("orders", queues=1)
    frozen.faults.add(on="send", topic="oders", answer=ResponseCode.SYSTEM_BUSY)
    async with open_caller(frozen.address) as caller:
        await caller.send(topic)
    with pytest.raises(AssertionError) as told:
        frozen.end_test()
    frozen.end_test()  # it has been told, and is over
    with (
        pytest.raises(AssertionError, match="no request has met the fault: pull: dropped"),
        frozen.faults.add(on="pull", answer=Fault.DROP),
    ):
        pass
    first, heading, came = str(told.value).splitlines()
    assert first == "no request has met the fault: send of topic oders: answered SYSTEM_BUSY"
    assert heading == "what came:"
    assert "send of orders by 127.0.0.1:" in came
    assert came.endswith("(group producers): SUCCESS")


def test_unmet_fault_fails_at_the_end_of_the_broker() -> None:
    """A broker of a test's own tells it when it stops, and is gone all the same."""
    with (
        pytest.raises(AssertionError, match="no request has met the fault: any request: dropped"),
        RocketmqBroker() as broker,
    ):
        broker.faults.add(answer=Fault.DROP)
    assert not broker.store.exists()
    with RocketmqBroker() as broker:
        broker.faults.add(answer=Fault.DROP, optional=True)
