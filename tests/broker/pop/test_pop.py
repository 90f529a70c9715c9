"""Messages that are handed out for a time, by raw requests to a broker whose clock the test moves."""

import asyncio
import pathlib
import shutil

import pytest
from pops import MINUTE_MS, acknowledge, ask_pop, change, pop
from raw_calls import Caller, open_caller, until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_cluster-a"
TIMER_TOPIC = "rmq_sys_wheel_timer"
RETRY_TOPIC = "%RETRY%g_T"


@pytest.fixture(autouse=True)
async def topic(caller: Caller) -> None:
    """Make the topic, with one queue."""
    answer = await caller.send("T", b"0", queue_id=0, default_topic_queue_nums=1)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def send(caller: Caller, *bodies: bytes) -> None:
    """Send messages to queue 0."""
    for body in bodies:
        answer = await caller.send("T", body, queue_id=0)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


def ends(broker: Broker) -> tuple[int, int]:
    """Return how many records the timer topic and the revive topic have got."""
    revive = sum(broker.store.max_offset(REVIVE_TOPIC, queue_id) for queue_id in range(8))
    return broker.store.max_offset(TIMER_TOPIC, 0), revive


def committed(broker: Broker, topic: str = "T") -> int | None:
    """Return how far the group has come."""
    return broker.parts.state.offsets.committed("g", topic, 0)


@pytest.mark.feature("O1")
async def test_what_is_acknowledged_in_time_costs_no_record(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """The group moves on when the first is done, and nothing comes again."""
    await send(caller, b"1", b"2")
    messages = await pop(caller)
    assert [message.body for message in messages] == [b"0", b"1", b"2"]
    assert await pop(caller) == []
    assert committed(broker) == 0
    await acknowledge(caller, *messages)
    assert committed(broker) == 3
    await clock.elapse(MINUTE_MS + 30_000)
    assert await pop(caller) == []
    assert ends(broker) == (0, 0)


@pytest.mark.feature("O1")
async def test_each_lease_is_written_at_once_if_so_wanted(
    settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path
) -> None:
    """As Java's broker does by default: a check point, and a record for each acknowledgement."""
    own = {**settings, "enablePopBufferMerge": "false", "storePathRootDir": str(tmp_path / "own")}
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        for body in (b"0", b"1", b"2"):
            await caller.send("T", body, queue_id=0, default_topic_queue_nums=1)
        messages = await pop(caller)
        assert (ends(broker), committed(broker)) == ((1, 0), 3)
        await acknowledge(caller, *messages)
        assert ends(broker) == (4, 0)
        await clock.elapse(MINUTE_MS + 30_000)
        assert await pop(caller) == []
        while ends(broker) != (4, 4):  # the timer reads what is due on a thread
            await clock.elapse(1_000)


@pytest.mark.feature("O2")
async def test_what_is_not_acknowledged_comes_again(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """When its lease ends, not before, by the retry topic, with one attempt more."""
    await send(caller, b"1")
    first, second = await pop(caller, invisibleTime=20_000)
    await acknowledge(caller, first)
    await clock.elapse(19_999)
    assert await pop(caller) == []
    await clock.elapse(1)
    [again] = await pop(caller)
    assert (again.body, again.record.reconsume_times, again.handle.retry) == (b"1", 1, "1")
    assert again.record.topic == "T"
    properties = again.record.properties
    assert (properties["1ST_POP_TIME"], properties["ORIGIN_GROUP"]) == (str(second.handle.popped_at_ms), "g")
    await acknowledge(caller, again)
    await clock.elapse(MINUTE_MS + 30_000)
    assert await pop(caller) == []
    assert (committed(broker), committed(broker, RETRY_TOPIC)) == (2, 1)


@pytest.mark.feature("O2")
@pytest.mark.parametrize("merges", ["true", "false"])
async def test_attempts_are_counted(
    settings: dict[str, str], clock: ManualClock, merges: str, tmp_path: pathlib.Path
) -> None:
    """A message that is never acknowledged comes again and again, whether leases are kept or written at once."""
    own = {**settings, "enablePopBufferMerge": merges, "storePathRootDir": str(tmp_path / "own")}
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        await caller.send("T", b"stubborn", queue_id=0, default_topic_queue_nums=1)
        for attempt in range(5):
            [message] = await pop(caller, invisibleTime=10_000)
            assert message.record.reconsume_times == attempt
            assert await pop(caller) == []
            await clock.elapse(10_000)
        assert ends(broker)[0] == 5


@pytest.mark.feature("O3")
async def test_lease_that_is_changed(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """It ends later, or at once; an acknowledgement goes to the new one."""
    await send(caller, b"1", b"2")
    messages = await pop(caller, invisibleTime=20_000)
    longer = await change(caller, messages[0], 60_000)
    sooner = await change(caller, messages[1], 5_000)
    await acknowledge(caller, messages[2])
    await clock.elapse(5_000)
    [again] = await pop(caller)
    assert (again.body, again.record.reconsume_times) == (b"1", 1)
    await acknowledge(caller, again)
    await acknowledge(caller, sooner)
    await clock.elapse(20_000)
    assert await pop(caller) == []
    await acknowledge(caller, longer)
    await clock.elapse(MINUTE_MS + 30_000)
    assert await pop(caller) == []
    assert committed(broker) == 3


@pytest.mark.feature("O6")
async def test_waiting_for_a_message(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """It is handed out when it comes; without one the answer comes just before the client gives up."""
    await acknowledge(caller, *await pop(caller))
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(ask_pop(other, pollTime=15_000, bornTime=clock.now_ms()))
        await until(lambda: len(broker.parts.pop.pop.waiting) == 1)
        assert await _count_waiting(caller) == 1
        await send(caller, b"new")
        answer = await waiting
        assert answer.code == ResponseCode.SUCCESS
        waiting = tasks.create_task(ask_pop(other, pollTime=15_000, bornTime=clock.now_ms()))
        await until(lambda: len(broker.parts.pop.pop.waiting) == 1)
        assert await _count_waiting(caller) == 1
        await clock.elapse(14_949)
        assert not waiting.done()
        await clock.elapse(1)
        answer = await waiting
        assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000], ids=["behind", "ahead"])
async def test_client_with_another_clock(caller: Caller, broker: Broker, clock: ManualClock, skew_ms: int) -> None:
    """It is served all the same, and waits as long as it wants to."""
    await acknowledge(caller, *await pop(caller, bornTime=clock.now_ms() + skew_ms))
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(ask_pop(other, pollTime=15_000, bornTime=clock.now_ms() + skew_ms))
        await until(lambda: len(broker.parts.pop.pop.waiting) == 1)
        await clock.elapse(14_949)
        assert not waiting.done()
        await clock.elapse(1)
        assert (await waiting).code == ResponseCode.POLLING_TIMEOUT


async def _count_waiting(caller: Caller) -> int:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "-1"}
    return int((await caller.ask(RequestCode.POLLING_INFO, fields)).ext["pollingNum"])


@pytest.mark.feature("O10")
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_leases_outlive_the_broker(
    settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path, is_killed: bool
) -> None:
    """What was not acknowledged comes again, once, when its lease ends; what was does not."""
    own = {**settings, "storePathRootDir": str(tmp_path / "own")}
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        for body in (b"0", b"1", b"2"):
            await caller.send("T", body, queue_id=0, default_topic_queue_nums=1)
        messages = await pop(caller, invisibleTime=60_000)
        await acknowledge(caller, messages[0])
        await clock.elapse(12_000)
        await acknowledge(caller, messages[1])
        if is_killed:
            await broker.parts.state.saving.run_once()
            shutil.copytree(tmp_path / "own", tmp_path / "copy")
    if is_killed:
        own["storePathRootDir"] = str(tmp_path / "copy")
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        assert await pop(caller) == []
        delivery = broker.parts.timer_delivery
        assert delivery is not None
        await until(lambda: delivery.is_idle)  # the wheel may be made anew, in a thread
        await clock.elapse(47_000)
        assert await pop(caller) == []
        for _ in range(6):
            await clock.elapse(1_000)
            await until(lambda: delivery.is_idle)
        assert [message.body for message in await pop(caller)] == [b"2"]
        await clock.elapse(10_000)
        assert await pop(caller) == []
