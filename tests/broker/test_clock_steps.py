"""Somebody sets the clock, or the machine sleeps: the wall clock steps, and time goes on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
from halfcalls import send_half
from raw_calls import Caller, lock_body, open_caller, until
from stores import StoreDirectory, new_record

from rocketlet.broker.delay.delay_delivery import DelayedDelivery
from rocketlet.broker.delay.delay_progress import DelayFile, DelayProgress
from rocketlet.broker.delay.delayed_messages import Delays
from rocketlet.broker.outcomes.scheduler import by_topic
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND, MessageQueue
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.record import decode_record
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.client import LockedQueues
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.message_store import MessageStore
from rocketlet.testing.manual_clock import ManualClock

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
LEVELS_MS = (SECOND_MS, MINUTE_MS, 2 * HOUR_MS)
STEPS_MS = [by_ms * sign for by_ms in (SECOND_MS, MINUTE_MS, HOUR_MS) for sign in (-1, 1)]
BACK_MS = [by_ms for by_ms in STEPS_MS if by_ms < 0]
DELAYS = Delays(LEVELS_MS)


class Levels:
    """A store with delay levels, under two clocks."""

    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.progress = DelayProgress(self.clock.now_ms, version_step=200)
        self.store, self.delivery = self._open()

    def _open(self) -> tuple[MessageStore, DelayedDelivery]:
        store = self.directory.open_at(self.clock)
        delivery = DelayedDelivery(store, store.commit, self.progress)
        store.subscribe(by_topic({SCHEDULE_TOPIC: delivery.take}))
        return store, delivery

    def restart(self) -> None:
        """Stop and start."""
        self.directory.close_all()
        self.progress.load(DelayFile(offset_table=self.progress.latest()))
        self.store, self.delivery = self._open()

    def send(self, level: int) -> None:
        """Store a message of a level; its body is the level."""
        self.store.append(DELAYS.park(new_record("T", level, b"%d" % level), level))
        self.store.commit()

    def count(self, level: int) -> int:
        """Deliver what is due, and return how many messages of a level have come."""
        while self.delivery.deliver_due():
            pass
        return self.store.max_offset("T", level)


@pytest.fixture
def levels(directory: StoreDirectory) -> Levels:
    """Return a store without messages."""
    return Levels(directory)


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> StoreDirectory:
    """Return a directory that is closed after the test."""
    return StoreDirectory(tmp_path_factory.mktemp("levels") / "store", delays_ms=LEVELS_MS, segment_bytes=1 << 20)


@pytest.mark.parametrize("step_ms", BACK_MS)
@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_delay_takes_its_time_when_the_clock_is_set_back(
    levels: Levels, step_ms: int, level: int, *, is_restarted: bool
) -> None:
    """A message that waits, and one that comes then, wait for their delay: no less, and not for the step either."""
    delay_ms, clock = LEVELS_MS[level - 1], levels.clock
    levels.send(level)
    clock.set_wall_clock(step_ms)
    if is_restarted:
        levels.restart()
    assert levels.count(level) == 0
    clock.advance(delay_ms // 2)
    assert levels.count(level) == 0
    levels.send(level)
    clock.advance(delay_ms - delay_ms // 2 - 1)
    assert levels.count(level) == 0
    clock.advance(1)
    assert levels.count(level) == 1
    clock.advance(delay_ms // 2 - 10)
    assert levels.count(level) == 1
    clock.advance(20)
    assert levels.count(level) == 2
    levels.directory.close_all()


@pytest.mark.parametrize("step_ms", [-step for step in BACK_MS])
def test_delay_is_over_when_the_clock_is_set_forward_beyond_it(levels: Levels, step_ms: int) -> None:
    """As in Java, what is due by the wall clock is delivered; a machine that slept has not stopped time."""
    levels.send(2)
    levels.clock.set_wall_clock(step_ms)
    assert levels.count(2) == (step_ms >= MINUTE_MS)
    levels.clock.advance(MINUTE_MS - min(step_ms, MINUTE_MS))
    assert levels.count(2) == 1
    levels.directory.close_all()


# --- a broker


@pytest.fixture
async def broker(settings: dict[str, str], clock: ManualClock) -> AsyncGenerator[Broker]:
    """Run a broker that has the topic T."""
    config = BrokerConfig.from_java({**settings, "messageDelayLevel": "1s 1m 2h"})
    async with Broker(config, clock) as started:
        async with open_caller(started.address) as caller:
            await caller.send(queue_id=3)
        yield started


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_held_pull_waits_for_its_limit(caller: Caller, clock: ManualClock, step_ms: int) -> None:
    """A pull is held for as long as it asked for, wherever the wall clock is set to."""
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND, suspend_ms=15_000))
        await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        clock.set_wall_clock(step_ms)
        clock.advance(14_999)
        await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        assert not pull.done()
        clock.advance(1)
    assert pull.result().code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_queue_lock_lasts_for_its_lease(caller: Caller, clock: ManualClock, step_ms: int) -> None:
    """A lock that is not renewed ends after a minute that has passed, not one that the wall clock shows."""
    queue = MessageQueue("T", "broker-a", 0)

    async def locks(client_id: str) -> bool:
        answer = await caller.ask(RequestCode.LOCK_BATCH_MQ, None, lock_body("g", client_id, [queue]))
        return decode_body(LockedQueues, answer.body).queues == [queue]

    assert await locks("one")
    clock.set_wall_clock(step_ms)
    clock.advance(MINUTE_MS)
    assert not await locks("two")
    clock.advance(1)
    assert await locks("two")


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_silent_client_is_kept_for_its_time(
    caller: Caller, broker: Broker, clock: ManualClock, step_ms: int
) -> None:
    """A client that sends no heartbeat is cut off after two minutes of its own, and not at a step of the clock."""
    await caller.heartbeat("c", "g", {"T": "*"})
    clock.set_wall_clock(step_ms)
    await clock.elapse(110_000)
    assert len(broker.clients) == 1
    await clock.elapse(30_000)
    await until(lambda: not broker.clients)


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_armed_level_comes_in_time(caller: Caller, broker: Broker, clock: ManualClock, step_ms: int) -> None:
    """The job that waits for a level looks at the clock often enough to see a step."""
    await caller.send(properties="DELAY\x012\x02")
    await clock.elapse(0)
    clock.set_wall_clock(step_ms)
    await clock.elapse(SECOND_MS)
    assert broker.store.max_offset("T", 0) == (step_ms >= MINUTE_MS)
    await clock.elapse(MINUTE_MS - SECOND_MS)
    assert broker.store.max_offset("T", 0) == 1


@pytest.mark.parametrize("step_ms", [*STEPS_MS, 10 * MINUTE_MS])
async def test_routes_stay_when_the_clock_is_set(
    broker: Broker, nameserver: NameServer, clock: ManualClock, step_ms: int
) -> None:
    """A name server keeps the routes of a broker that registers each 30 s, wherever the wall clock is set to."""
    async with open_caller(nameserver.address) as asking:
        for _ in range(4):
            clock.set_wall_clock(step_ms)
            await clock.elapse(5_000)
            answer = await asking.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            assert answer.code == ResponseCode.SUCCESS


async def knows(nameserver: NameServer) -> bool:
    """Tell whether a name server knows the broker."""
    async with open_caller(nameserver.address) as asking:
        answer = await asking.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    return answer.code == ResponseCode.SUCCESS


async def test_broker_that_was_unregistered_registers_at_once(settings: dict[str, str], clock: ManualClock) -> None:
    """A name server whose time went on while the broker's stood has dropped it; the broker comes back by itself."""
    ahead = ManualClock()
    async with NameServer(NameServerConfig(port=0), ahead) as nameserver:
        settings["namesrvAddr"] = nameserver.address
        async with Broker(BrokerConfig.from_java(settings), clock):
            clock.advance(SECOND_MS)
            assert await knows(nameserver)
            while await knows(nameserver):
                await ahead.elapse(5 * SECOND_MS)
            while not await knows(nameserver):
                pass


# --- timers, which go by an instant that their senders name


async def send_timed(caller: Caller, seconds: int, queue_id: int = 0) -> str:
    """Send a message that is to come in so many seconds; return its recall handle."""
    answer = await caller.send(properties=f"TIMER_DELAY_SEC\x01{seconds}\x02", queue_id=queue_id)
    assert answer.code == ResponseCode.SUCCESS
    return str(answer.ext["recallHandle"])


async def elapse_working(clock: ManualClock, broker: Broker, by_ms: int) -> None:
    """Let time pass, and the threads of the timers do their work on the way."""
    for _ in range(by_ms // SECOND_MS):
        await clock.elapse(SECOND_MS)
        for _ in range(20):
            await asyncio.to_thread(int)
    await clock.settle()
    assert broker.store.refusal is None


@pytest.mark.parametrize("step_ms", BACK_MS)
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_timer_takes_its_time_when_the_clock_is_set_back(
    settings: dict[str, str], clock: ManualClock, step_ms: int, *, is_restarted: bool
) -> None:
    """A message that waits for its time comes after it, and so does one that is sent then; a recall finds them."""
    settings["recallMessageEnable"] = "true"
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(BrokerConfig.from_java(settings), clock))
        caller = await stack.enter_async_context(open_caller(broker.address))
        await caller.send(queue_id=3)
        await send_timed(caller, 20)
        await elapse_working(clock, broker, 2 * SECOND_MS)
        clock.set_wall_clock(step_ms)
        if is_restarted:
            await stack.aclose()
            broker = await stack.enter_async_context(Broker(BrokerConfig.from_java(settings), clock))
            caller = await stack.enter_async_context(open_caller(broker.address))
            await elapse_working(clock, broker, 2 * SECOND_MS)
        await send_timed(caller, 20, queue_id=1)
        handle = await send_timed(caller, 20, queue_id=2)
        recall = {"producerGroup": "p", "topic": "T", "recallHandle": handle}
        assert (await caller.ask(RequestCode.RECALL_MESSAGE, recall)).code == ResponseCode.SUCCESS
        await elapse_working(clock, broker, 12 * SECOND_MS)
        ends = [broker.store.max_offset("T", queue_id) for queue_id in range(3)]
        assert ends == [0, 0, 0]
        await elapse_working(clock, broker, 14 * SECOND_MS)
        await until(lambda: broker.store.max_offset("T", 0) + broker.store.max_offset("T", 1) == 2)
        assert broker.store.max_offset("T", 2) == 0


@pytest.mark.parametrize("step_ms", [MINUTE_MS, HOUR_MS])
async def test_timer_is_over_when_the_clock_is_set_forward(
    caller: Caller, broker: Broker, clock: ManualClock, step_ms: int
) -> None:
    """What is due by the wall clock comes within two seconds, as after a machine has slept."""
    await send_timed(caller, 50)
    await elapse_working(clock, broker, 2 * SECOND_MS)
    clock.set_wall_clock(step_ms)
    await elapse_working(clock, broker, 2 * SECOND_MS)
    await until(lambda: broker.store.max_offset("T", 0) == 1)


# --- transactions


@pytest.mark.parametrize("step_ms", STEPS_MS)
async def test_open_transaction_is_asked_about(caller: Caller, clock: ManualClock, step_ms: int) -> None:
    """A half message of before the step, and one of after it, are asked about in the round after their timeout."""
    await caller.ask(RequestCode.HEART_BEAT, body=b'{"clientID":"c","producerDataSet":[{"groupName":"producers"}]}')
    asked: set[str] = set()
    clock.set_wall_clock(10)
    await send_half(caller, b"before", born_at_ms=clock.now_ms())
    clock.set_wall_clock(step_ms)
    await send_half(caller, b"after", born_at_ms=clock.now_ms())
    await clock.elapse(2 * 30_000 + SECOND_MS)
    while len(asked) < 2:
        asked.add(bytes(decode_record((await caller.next_request()).body).body).decode())
    assert asked == {"before", "after"}
