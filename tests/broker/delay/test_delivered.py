"""A broker that is killed, by the directory that it leaves: what its log shows as delivered does not come again."""

import asyncio
import pathlib
import shutil
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from halfcalls import PATIENT
from raw_calls import TIMEOUT_MS, Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import iter_records
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.testing.manual_clock import ManualClock

SECOND_MS, HOUR_MS = 1_000, 3_600_000
NEVER = {"flushDelayOffsetInterval": "3600000", "timerFlushIntervalMs": "3600000"}
LEVELS = {**NEVER, **PATIENT, "messageDelayLevel": "1s 2s 3s 2h"}


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Let progress be saved at the start and the end only."""
    return settings | LEVELS


@asynccontextmanager
async def killed(settings: dict[str, str], clock: ManualClock, name: str) -> AsyncGenerator[Caller]:
    """Run a broker, and leave in the settings the directory that it would leave if it were killed at the end."""
    root = pathlib.Path(settings["storePathRootDir"])
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        yield caller
        unfinished = shutil.ignore_patterns("*.tmp")  # of a table that is being saved, which may be gone at once
        await asyncio.to_thread(shutil.copytree, root, root.with_name(name), ignore=unfinished)
    settings["storePathRootDir"] = str(root.with_name(name))


async def send_all(caller: Caller, prefix: str, wishes: dict[str, str], count: int) -> Counter[bytes]:
    """Send some messages with each wish; return their bodies."""
    bodies = [f"{prefix} {wish} {number}".encode() for number in range(count) for wish in wishes]
    for body in bodies:
        wish = wishes[body.decode().split()[1]]
        assert (await caller.send(body=body, properties=wish)).code == ResponseCode.SUCCESS
    return Counter(bodies)


async def delivered(caller: Caller) -> Counter[bytes]:
    """Return what queue 0 of T holds."""
    bodies: list[bytes] = []
    while (answer := await caller.pull(queue_offset=len(bodies))).code == ResponseCode.SUCCESS:
        bodies += [bytes(record.body) for record in iter_records(answer.body)]
    return Counter(bodies)


async def wait_delivered(caller: Caller, clock: ManualClock, count: int) -> Counter[bytes]:
    """Let time pass until so many have come; the threads of the timers work meanwhile."""
    async with LoopClock().timeout(TIMEOUT_MS):
        while (found := await delivered(caller)).total() < count:
            await clock.elapse(100)
            await asyncio.to_thread(int)
    return found


WISHES = {
    "levels": {str(level): f"DELAY\x01{level}\x02" for level in (1, 2, 3)},
    "timers": {str(level): f"TIMER_DELAY_MS\x01{level * 1000}\x02" for level in (1, 2, 3)},
}
LATE = {"levels": {"late": "DELAY\x014\x02"}, "timers": {"late": "TIMER_DELAY_SEC\x017200\x02"}}


@pytest.mark.parametrize("kind", WISHES)
async def test_nothing_that_was_delivered_comes_again(kind: str, settings: dict[str, str], clock: ManualClock) -> None:
    """Over three kills amid deliveries of several levels or times each message comes once, and all of them."""
    expected = Counter[bytes]()
    for number in range(3):
        async with killed(settings, clock, f"killed{number}") as caller:
            before = await delivered(caller)
            expected += await send_all(caller, str(number), WISHES[kind], 40)
            expected += await send_all(caller, str(number), LATE[kind], 1)
            found = await wait_delivered(caller, clock, before.total() + 70)
            assert max(found.values()) == 1
    async with killed(settings, clock, "last") as caller:
        await clock.elapse(10 * SECOND_MS)
        clock.advance(2 * HOUR_MS)
        found = await wait_delivered(caller, clock, expected.total())
        await clock.elapse(10 * SECOND_MS)
    assert found == expected


@pytest.mark.parametrize("kind", WISHES)
async def test_equal_messages_are_told_apart(kind: str, settings: dict[str, str], clock: ManualClock) -> None:
    """Messages that differ in nothing but their unique key all come, each once, over a kill between them."""
    wish = WISHES[kind]["1"]
    async with killed(settings, clock, "killed") as caller:
        for _ in range(10):
            await caller.send(body=b"same", properties=wish)
        await wait_delivered(caller, clock, 10)
        for _ in range(10):
            await caller.send(body=b"same", properties=wish)
    async with killed(settings, clock, "last") as caller:
        await wait_delivered(caller, clock, 20)
        await clock.elapse(10 * SECOND_MS)
        assert await delivered(caller) == {b"same": 20}


async def test_retry_of_a_message_that_was_retried_before_comes(settings: dict[str, str], clock: ManualClock) -> None:
    """A message that is given back again after its first retry was delivered is another one."""
    same = "UNIQ_KEY\x01one\x02DELAY\x011\x02"
    async with killed(settings, clock, "killed") as caller:
        await caller.send(body=b"1", properties=same, reconsume_times=1)
        await wait_delivered(caller, clock, 1)
        await caller.send(body=b"2", properties=same, reconsume_times=2)
    async with killed(settings, clock, "last") as caller:
        await wait_delivered(caller, clock, 2)
        assert await delivered(caller) == {b"1": 1, b"2": 1}
