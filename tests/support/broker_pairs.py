"""A master and its slaves in one process, under a clock that the test moves, and what they answer."""

import asyncio
import json
import pathlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from raw_calls import TIMEOUT_MS, Caller, open_caller

from rocketlet.broker.replication.slave_link import GATHER_MS
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.clock import Clock
from rocketlet.common.java_json import read_json
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.tls.contexts import client_context
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.testing.manual_clock import ManualClock

SETTINGS = {
    "brokerName": "ha-broker",
    "brokerClusterName": "ha-cluster",
    "listenPort": "0",
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
TABLES = (Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_CONSUMER_OFFSET)
STEP_MS = 500
_TURNS = 5  # of the loop, in which a millisecond passes
_clock = LoopClock()


class Member(NamedTuple):
    """A broker that runs, and a connection to it."""

    broker: Broker
    caller: Caller

    async def table(self, code: Code) -> dict[str, Any]:
        """Return a table of the broker, without what belongs to it alone."""
        answer = await self.caller.ask(code)
        assert answer.code == 0, answer
        table: dict[str, Any] = read_json(answer.body)
        table.pop("mappingDataVersion", None)
        return table

    async def tables(self) -> list[dict[str, Any]]:
        """Return topics, groups and offsets."""
        return [await self.table(code) for code in TABLES]

    async def put_topic(self, topic: str, queues: int = 4) -> Command:
        """Have a topic made."""
        header = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        numbers = {"readQueueNums": str(queues), "writeQueueNums": str(queues), "order": "false"}
        return await self.caller.ask(Code.UPDATE_AND_CREATE_TOPIC, header | numbers)

    async def put_group(self, group: str) -> Command:
        """Have a group made."""
        body = json.dumps({"groupName": group}).encode()
        return await self.caller.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    async def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> Command:
        """Say how far a group has come."""
        header = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(queue_offset)}
        return await self.caller.ask(Code.UPDATE_CONSUMER_OFFSET, header)


@asynccontextmanager
async def run_member(
    root: pathlib.Path, clock: Clock, namesrv: str, broker_id: int = 0, **settings: str
) -> AsyncGenerator[Member]:
    """Run a master, or with another id a slave of it, over a store of its own; it is asked as it asks others itself."""
    role = {"brokerRole": "SLAVE", "brokerId": str(broker_id)} if broker_id else {}
    place = {"storePathRootDir": str(root), "namesrvAddr": namesrv}
    config = BrokerConfig.from_java({**SETTINGS, **role, **place, **settings})
    tls = client_context(config.tls)
    async with Broker(config, clock) as broker, open_caller(broker.address, tls) as caller:
        yield Member(broker, caller)


async def until_so(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes: brokers talk to each other meanwhile."""
    async with _clock.timeout(TIMEOUT_MS):
        while not await is_so():  # noqa: ASYNC110 # no event says what another broker has come to
            await asyncio.sleep(0)


async def pass_ms(clock: ManualClock, time_ms: int, *members: Member) -> None:
    """Let time pass in steps, so that what brokers ask each other is answered before it is late."""
    for _ in range(0, time_ms, STEP_MS):
        clock.advance(STEP_MS)
        for member in (*members, *members):
            await member.caller.ask(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})


@asynccontextmanager
async def passing_time(clock: ManualClock) -> AsyncGenerator[None]:
    """Let time pass as long as the block lasts: whoever waits in it has not to be helped."""

    async def pass_on() -> None:
        while True:
            clock.advance(1)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        passing = tasks.create_task(pass_on())
        try:
            yield
        finally:
            passing.cancel()


async def until_equal(master: Member, slave: Member) -> None:
    """Wait until a slave tells the topics, groups and offsets of its master."""

    async def are_equal() -> bool:
        return await master.tables() == await slave.tables()

    await until_so(are_equal)


async def until_copied(master: Member, slave: Member, clock: ManualClock) -> None:
    """Wait until a slave has the log of its master, which gathers what it sends."""
    clock.advance(GATHER_MS)

    async def is_copied() -> bool:
        return slave.broker.store.log_max_offset == master.broker.store.log_max_offset

    await until_so(is_copied)
