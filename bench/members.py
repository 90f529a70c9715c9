"""Members of a consumer group as frames on the wire, very many in one process.

As official clients do, a member announces itself by a heartbeat, has a pull wait at its queue, pulls on when messages
have come, and asks who is in the group each time it is told that the group has changed. It decides nothing from that:
member n has queue n.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from itertools import cycle, islice
from typing import Final, NamedTuple, cast

from clientframes import held_pull

from rocketlet.common.message import MessageQueue
from rocketlet.remoting.bodies.body import encode_body
from rocketlet.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.client import ConsumerGroupHeader

GROUP: Final = "bench-members"
_HEARTBEAT, _LIST, _PULL = range(1, 4)
"""Correlation ids: a member has at most one request of a kind on its way, or does not mind which is answered."""


class Tally:
    """How many answers of each kind have come to all members; somebody may wait for a number of them.

    ``is_complete`` says that the group has come together: before, nobody asks who is in it.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._counts = Counter[int]()
        self._changed = asyncio.Event()

    def note(self, kind: int) -> None:
        """Count an answer."""
        self._counts[kind] += 1
        self._changed.set()

    def now(self, kind: int) -> int:
        """Return how many have come."""
        return self._counts[kind]

    async def wait(self, kind: int, count: int) -> None:
        """Return when so many have come."""
        while self._counts[kind] < count:
            self._changed.clear()
            await self._changed.wait()


class Member(asyncio.Protocol):
    """One member; its connection is open from ``connect`` to ``leave``."""

    def __init__(self, number: int, topic: str, tally: Tally) -> None:
        self._queue = MessageQueue(topic, "broker-a", number)
        self._tally = tally
        self._parser = FrameParser()
        self._messages = 0
        self._is_leaving = False
        self._heartbeat = _frame(RequestCode.HEART_BEAT, _HEARTBEAT, body=_heartbeat_body(topic, number))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Do what a notice or an answer asks for."""
        for command in self._parser.feed(data):
            if command.is_response:
                self._take_answer(command)
            elif command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and self._tally.is_complete:
                self._transport.write(_LIST_FRAME)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the program if the broker hangs up."""
        if not self._is_leaving:
            raise SystemExit(f"the broker has closed a member: {exc}")

    def beat(self) -> None:
        """Send a heartbeat."""
        self._transport.write(self._heartbeat)

    def pull(self) -> None:
        """Ask for the next messages of the queue."""
        self._transport.write(_frame_of(held_pull(self._queue.topic, self._queue.queue_id, self._messages), _PULL))

    def leave(self) -> None:
        """Hang up, as a client does that ends."""
        self._is_leaving = True
        self._transport.close()

    def _take_answer(self, command: Command) -> None:
        if command.code != 0:
            raise SystemExit(f"the broker answered {command.code}: {command.remark}")
        if command.opaque == _PULL:
            self._messages = int(command.ext["nextBeginOffset"])
            self.pull()
        self._tally.note(command.opaque)


class Crowd(NamedTuple):
    """All members of the group, at one broker."""

    address: str
    topic: str
    members: Sequence[Member]
    tally: Tally

    async def beat(self, count: int) -> int:
        """Have the members send so many heartbeats, one after the other, in turn."""
        for member in islice(cycle(self.members), count):
            await _beat(member, self.tally)
        return count

    async def pass_on(self, sending: Awaitable[None]) -> None:
        """Return when a message has been sent and a member has it."""
        pulled = self.tally.now(_PULL)
        await sending
        await self.tally.wait(_PULL, pulled + 1)

    def leave(self) -> None:
        """Have all members hang up."""
        for member in self.members:
            member.leave()

    async def join_and_leave(self) -> int:
        """Have a member come and go; return how often somebody has asked who is in the group."""
        before = self.tally.now(_LIST)
        joining = await _connect(self.address, len(self.members), self.topic, self.tally)
        await _beat(joining, self.tally)
        await self.tally.wait(_LIST, before + len(self.members) + 1)
        joining.leave()
        count = 2 * len(self.members) + 1
        await self.tally.wait(_LIST, before + count)
        return count


async def gather(address: str, topic: str, count: int) -> Crowd:
    """Have so many members come, which pull then; the topic has a queue for each."""
    tally = Tally()
    crowd = Crowd(address, topic, [await _connect(address, number, topic, tally) for number in range(count)], tally)
    await crowd.beat(2 * count)  # an answer to a second heartbeat stands behind all that members are told of the first
    tally.is_complete = True
    for member in crowd.members:
        member.pull()
    return crowd


async def _connect(address: str, number: int, topic: str, tally: Tally) -> Member:
    host, port = address.rsplit(":", 1)
    connect = asyncio.get_running_loop().create_connection
    _, member = await connect(lambda: Member(number, topic, tally), host, int(port))
    return member


async def _beat(member: Member, tally: Tally) -> None:
    answers = tally.now(_HEARTBEAT)
    member.beat()
    await tally.wait(_HEARTBEAT, answers + 1)


def _heartbeat_body(topic: str, number: int) -> bytes:
    consumer = ConsumerData(
        group_name=GROUP,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        subscription_data_set=[SubscriptionData(topic=topic)],
    )
    return encode_body(HeartbeatData(client_id=f"127.0.0.1@{number}#1000000", consumer_data_set=[consumer]))


def _frame_of(command: Command, opaque: int) -> bytes:
    command.opaque = opaque
    return encode_command(command)


def _frame(code: int, opaque: int, header: ConsumerGroupHeader | None = None, body: bytes = b"") -> bytes:
    return _frame_of(Command.request(code, header, body), opaque)


_LIST_FRAME: Final = _frame(RequestCode.GET_CONSUMER_LIST_BY_GROUP, _LIST, ConsumerGroupHeader(consumer_group=GROUP))
