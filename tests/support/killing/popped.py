"""Consumers that pop from a broker that is killed: what has to come again, and by when.

    a cycle    sends, pops, acknowledgements and changes side by side -> SIGKILL -> start -> pop until all has come

A message whose acknowledgement was sent need not come again, though it may: the offset in the file may be older.
All others that were stored have to, at the latest ``SLACK_MS`` after its lease.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from pops import PoppedMessage, ack_fields, ask_pop, read_popped
from raw_calls import Caller, open_caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import RemotingError
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import LoopClock

TOPIC, GROUP, QUEUES = "Popped", "popping", 4
CONSUMERS = 6
SLACK_MS = 60_000
POLL_MS = 500
_clock = LoopClock()


@dataclass
class PopLedger:
    """What was stored, until when each message is invisible at most, and what is done with."""

    choose: random.Random
    stored: int = 0
    open: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """By body: the end of the lease that it may have, 0 without one."""
    done: set[bytes] = field(default_factory=set[bytes])
    """The bodies whose acknowledgement was sent."""
    late: list[bytes] = field(default_factory=list[bytes])

    async def run(self, address: str, answers: int, kill: Callable[[], None]) -> None:
        """Send, pop, acknowledge and change until so many answers have come; kill then."""
        left = [answers]
        async with open_caller(address) as caller:
            await self._send(caller)  # which makes the topic
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONSUMERS):
                tasks.create_task(self._work(address, left, kill))

    async def _work(self, address: str, left: list[int], kill: Callable[[], None]) -> None:
        try:
            async with open_caller(address) as caller:
                while left[0] > 0:
                    await (self._send(caller) if self.choose.random() < 0.4 else self._consume(caller))
                    left[0] -= 1
                    if left[0] == 0:
                        kill()
        except RemotingError:
            assert left[0] <= 0, "nobody has killed it"

    async def _send(self, caller: Caller) -> None:
        body = b"%d" % self.choose.randrange(1 << 62)
        queue_id = self.choose.randrange(QUEUES)
        answer = await caller.send(TOPIC, body, queue_id=queue_id, default_topic_queue_nums=QUEUES)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.stored += 1
        if body not in self.done:  # it may have been popped before the answer has come
            self.open.setdefault(body, 0)

    async def _consume(self, caller: Caller) -> None:
        lease_ms = self.choose.choice((1_000, 3_000, 6_000))
        for message in await self._pop(caller, self.choose.randrange(1, 9), lease_ms):
            fate = self.choose.random()
            if fate < 0.6:
                await self._acknowledge(caller, message)
            elif fate < 0.75:
                await self._change(caller, message)

    async def _pop(self, caller: Caller, most: int, lease_ms: int, poll_ms: int = 0) -> list[PoppedMessage]:
        until_ms = _clock.now_ms() + lease_ms
        fields = {"consumerGroup": GROUP, "maxMsgNums": most, "invisibleTime": lease_ms, "pollTime": poll_ms}
        answer = await ask_pop(caller, TOPIC, **fields, bornTime=_clock.now_ms())
        messages = read_popped(answer, "broker-a")
        for message in messages:
            self.open[message.body] = max(until_ms, message.handle.ends_at_ms, self.open.get(message.body, 0))
        return messages

    async def _acknowledge(self, caller: Caller, message: PoppedMessage) -> None:
        self.done.add(message.body)
        self.open.pop(message.body, None)  # it may be stored though the broker dies before it answers
        answer = await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(message, TOPIC, GROUP))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def _change(self, caller: Caller, message: PoppedMessage) -> None:
        lease_ms = self.choose.choice((0, 2_000, 5_000))
        self.open[message.body] = max(self.open.get(message.body, 0), _clock.now_ms() + lease_ms)
        fields = ack_fields(message, TOPIC, GROUP) | {"invisibleTime": str(lease_ms)}
        answer = await caller.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def drain(self, address: str) -> None:
        """Pop and acknowledge until everything that is not done has come, or is late."""
        wanted = {body: max(ends_at_ms, _clock.now_ms()) + SLACK_MS for body, ends_at_ms in self.open.items()}
        async with open_caller(address) as caller:
            while wanted and _clock.now_ms() < max(wanted.values()):
                for message in await self._pop(caller, 32, 60_000, POLL_MS):
                    await self._acknowledge(caller, message)
                    wanted.pop(message.body, None)
        self.late += wanted
        self.open.clear()
