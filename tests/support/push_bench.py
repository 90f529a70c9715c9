"""A push consumer before one scripted broker, on a clock that a test moves."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scripted_cluster import ScriptedCluster, ScriptedServer
from subscribed import PUSH_FROM_FIRST

from rocketlet.client import ConsumeResult, Listener, PushConsumer, ReceivedMessage
from rocketlet.common.codes import ResponseCode
from rocketlet.common.outcome import Outcome
from rocketlet.common.record import NewRecord, encode_record
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.offset import CommitOffsetHeader
from rocketlet.remoting.headers.pull import PullHeader, PullReply
from rocketlet.remoting.transport.connection import Reply
from rocketlet.testing import ManualClock

PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
BEAT = RequestCode.HEART_BEAT
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


def records(first: int, count: int, body: bytes = b"x", properties: bytes = b"") -> bytes:
    """Return stored records of queue 0 of T."""
    new = NewRecord("T", 0, body, properties, {}, 0, 0, 0, HOST)
    return b"".join(
        encode_record(new, queue_offset=offset, log_offset=100 * offset, stored_at_ms=0, store_host=HOST)
        for offset in range(first, first + count)
    )


def pulled(next_offset: int, body: bytes = b"", code: int = ResponseCode.SUCCESS) -> Command:
    """Return a pull answer."""
    reply = PullReply(next_begin_offset=next_offset, min_offset=0, max_offset=next_offset)
    return Command.response(code, ext=reply, body=body)


class Feed:
    """Answers pulls of T: with each script entry once, then not at all."""

    def __init__(self, *answers: Command) -> None:
        self._answers = list(answers)

    def __call__(self, command: Command) -> Reply:
        """Answer the next pull."""
        is_of_topic = decode_header(PullHeader, command).topic == "T"
        return self._answers.pop(0) if self._answers and is_of_topic else Outcome[Command]()


class Stored:
    """Answers pulls of T with the messages of a queue, from the offset asked for on; never behind their end."""

    def __init__(self, first: int, end: int) -> None:
        self._first, self._end = first, end

    def __call__(self, command: Command) -> Reply:
        """Answer a pull."""
        header = decode_header(PullHeader, command)
        if header.topic != "T" or not self._first <= header.queue_offset < self._end:
            return Outcome[Command]()
        return pulled(self._end, records(header.queue_offset, self._end - header.queue_offset))


class Bench:
    """One scripted broker with one queue of T, and a consumer on a clock of its own."""

    def __init__(self, cluster: ScriptedCluster, broker: ScriptedServer) -> None:
        self.cluster = cluster
        self.broker = broker
        self.clock = ManualClock()

    def consumer(self, **settings: Any) -> PushConsumer:
        """Return a consumer that begins at the first message."""
        chosen = replace(PUSH_FROM_FIRST, **settings)
        return PushConsumer("cg", self.cluster.nameserver.address, settings=chosen, clock=self.clock)

    def listening(self, listener: Listener, **settings: Any) -> PushConsumer:
        """Return such a consumer with a listener of T."""
        consumer = self.consumer(**settings)
        consumer.subscribe("T", "*", listener)
        return consumer

    async def elapse_until(self, is_reached: Callable[[], bool]) -> int:
        """Move the clock on until something is so, and return by how much."""
        begun_at_ms = self.clock.now_ms()
        while not is_reached():
            await self.clock.elapse(100)
        return self.clock.now_ms() - begun_at_ms

    def pulls(self) -> list[PullHeader]:
        """Return the headers of all pulls of T so far."""
        headers = [decode_header(PullHeader, command) for command in self.broker.asked(PULL)]
        return [header for header in headers if header.topic == "T"]

    def commits(self) -> list[int]:
        """Return the offsets of T that were stored so far."""
        headers = [decode_header(CommitOffsetHeader, command) for command in self.broker.asked(COMMIT)]
        return [each.commit_offset for each in headers if each.topic == "T" and each.commit_offset is not None]


class Failing:
    """A listener that fails so often, then succeeds."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.seen: list[ReceivedMessage] = []
        self._called = asyncio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> ConsumeResult:
        """Fail or succeed."""
        self.seen += messages
        self._called.set()
        self.left -= 1
        return ConsumeResult.SUCCESS if self.left < 0 else ConsumeResult.RETRY

    async def wait_calls(self, count: int) -> None:
        """Return when it has been called so often."""
        while len(self.seen) < count:
            self._called.clear()
            await self._called.wait()
