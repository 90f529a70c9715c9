"""Senders and readers that go on whatever happens, and what they have seen.

Every call of theirs has a limit behind its own time limit; one that comes to it hangs, which ends the run. Errors of
the client's own types are what a caller has to expect, others end the run as well.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from subscribed import pull_consumer, push_consumer

from rocketlet.client import (
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from rocketlet.common.errors import RocketletError
from rocketlet.remoting.transport.event_loop import LoopClock, TaskScope

TOPIC = "Chaos"
WORKERS = 8
MESSAGES = 50
SEND_TIMEOUT_MS = 1_500
POLL_TIMEOUT_MS = 500
BEAT_MS = 1_000
HANG_MS = 10_000  # behind a call's own limit: for what else the machine does
RESUME_MS = 45_000
PAUSE_MS = 5
T = TypeVar("T")
_clock = LoopClock()


class HangError(Exception):
    """A call did not end at its time limit, or what was sent did not arrive."""


class Seen:
    """What was acknowledged and what each group has received; a wait for more of it."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.received: dict[str, set[bytes]] = {}
        self.failures: list[str] = []
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Seen {len(self.acknowledged)} acknowledged, {len(self.failures)} failed>"

    def add(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Note what a group has received."""
        self.received.setdefault(group, set()).update(message.body for message in messages)
        self._changed.set()

    def acknowledge(self, body: bytes) -> None:
        """Note that a message was stored."""
        self.acknowledged.add(body)
        self._changed.set()

    async def outlast(self, fault: Callable[[], Awaitable[None]]) -> None:
        """Wait until messages flow, let something happen, and wait until they flow again and nothing is missing."""
        await self.wait_acknowledged(MESSAGES)
        await fault()
        await self.wait_acknowledged(MESSAGES)
        await self.wait_received()

    async def wait_acknowledged(self, more: int) -> None:
        """Wait until so many more messages are stored."""
        count = len(self.acknowledged) + more
        await self._wait(lambda: len(self.acknowledged) >= count, f"{more} more acknowledgements")

    async def wait_received(self) -> None:
        """Wait until every group has received what is acknowledged now."""
        wanted = set(self.acknowledged)

        def missing() -> dict[str, str]:
            return {
                group: f"{len(wanted - got)} of {len(wanted)}, as {sorted(wanted - got, key=int)[:5]}"
                for group, got in self.received.items()
                if wanted - got
            }

        await self._wait(lambda: not missing(), "what was acknowledged", missing)

    async def _wait(
        self, condition: Callable[[], bool], what: str, missing: Callable[[], object] = lambda: "it"
    ) -> None:
        try:
            async with _clock.timeout(RESUME_MS):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise HangError(f"{what} did not come in {RESUME_MS} ms: {missing()}; {self.failures[-3:]}") from None


@asynccontextmanager
async def running_traffic(namesrv: str) -> AsyncGenerator[Seen]:
    """Send with many workers, read with a group of two push consumers and one of a pull consumer, until the end."""
    seen, tasks = Seen(), TaskScope()
    async with AsyncExitStack() as stack:
        settings = ProducerSettings(send_timeout_ms=SEND_TIMEOUT_MS, heartbeat_interval_ms=BEAT_MS)
        producer = await stack.enter_async_context(Producer("chaos", namesrv, settings=settings))
        await producer.send(Message(TOPIC, b"makes the topic"))
        for number in range(2):
            await stack.enter_async_context(_pushing(namesrv, seen, f"member-{number}"))
        puller = pull_consumer(namesrv, group="pulling", topic=TOPIC, heartbeat_interval_ms=BEAT_MS)
        await stack.enter_async_context(puller)
        await stack.enter_async_context(tasks)
        numbers = itertools.count()
        for _ in range(WORKERS):
            tasks.start(_send(producer, seen, numbers), name="sender")
        tasks.start(_poll(puller, seen), name="reader")
        yield seen


def _pushing(namesrv: str, seen: Seen, name: str) -> PushConsumer:
    async def receive(messages: list[ReceivedMessage]) -> None:
        seen.add("pushing", messages)

    return push_consumer(namesrv, receive, group="pushing", topic=TOPIC, heartbeat_interval_ms=BEAT_MS)


async def _send(producer: Producer, seen: Seen, numbers: "itertools.count[int]") -> None:
    for number in numbers:
        body = b"%d" % number
        try:
            result = await _limited(producer.send(Message(TOPIC, body)), SEND_TIMEOUT_MS)
        except RocketletError as error:
            seen.failures.append(f"send {number}: {error}")
        else:
            if result.status is SendStatus.SEND_OK:
                seen.acknowledge(body)
        await _clock.sleep(PAUSE_MS)


async def _poll(puller: PullConsumer, seen: Seen) -> None:
    while True:
        seen.add("pulling", await _limited(puller.poll(timeout_ms=POLL_TIMEOUT_MS), POLL_TIMEOUT_MS))


async def _limited(call: Awaitable[T], limit_ms: int) -> T:
    try:
        async with _clock.timeout(limit_ms + HANG_MS):
            return await call
    except TimeoutError:
        raise HangError(f"a call with a limit of {limit_ms} ms took {HANG_MS} ms more") from None
