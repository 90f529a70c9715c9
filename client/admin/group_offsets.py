"""How far groups are, and where they begin again (requests 14, 15, 26, 29, 30, 31, 208, 222).

    progress       one topic, queue by queue, as it is at the moment of asking
    all_progress   every topic that a group has offsets of, as each broker tells it with one answer
    move           the brokers move the group (222), also while it consumes
    set            every queue to an offset of its own

A broker that does not know 222 is told the offsets as consumers do it (15). While members are online they would store
theirs over that, so it is refused then. Of single queues a broker moves a group that is online when its settings say
``useServerSideResetOffset`` (26), as by default since 5.3: others take 222 for all queues of the topic.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import ClientStateError
from ...common.message import MessageQueue
from ...common.settings import parse_java_properties
from ...remoting.bodies.admin import ConsumeStats
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.client import ResetOffsets
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import GroupProgressHeader
from ...remoting.headers.offset import ConsumerOffsetHeader, OffsetReply, ResetOffsetHeader
from ..group.broker_requests import BrokerRequests
from ..session.session import Session
from ..session.settings import check_queue_offset
from .admin_calls import AdminCalls, checked
from .admin_values import ConsumedQueue, GroupProgress, QueueProgress
from .group_connections import GroupConnections

AT_END_MS = -1
_BY_HAND_CODES = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.CONSUMER_NOT_ONLINE)
FindOffset = Callable[[MessageQueue], Awaitable[int]]


class Reset(NamedTuple):
    """Where a group begins again in a topic; ``find_offset`` is asked where the broker cannot do it."""

    group: str
    topic: str
    at_ms: int
    find_offset: FindOffset


class GroupOffsets:
    """Reads and moves the offsets of groups."""

    def __init__(self, session: Session, calls: AdminCalls, connections: GroupConnections) -> None:
        self._session = session
        self._calls = calls
        self._connections = connections
        self._brokers = BrokerRequests(session, timeout_ms=calls.timeout_ms)

    async def first(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue still has."""
        return await self._brokers.first_offset(queue)

    async def end(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will get."""
        return await self._brokers.end_offset(queue)

    async def at(self, queue: MessageQueue, at_ms: int) -> int:
        """Return the offset of the first message stored at an instant or later."""
        return await self._brokers.offset_at(queue, at_ms)

    async def progress(self, group: str, topic: str) -> GroupProgress:
        """Return how far a group is in a topic, queue by queue."""
        return GroupProgress(
            tuple([await self._progress_in(group, queue) for queue in await self._calls.queues(topic)])
        )

    async def all_progress(
        self, group: str, addresses: Iterable[str], topic: str | None = None
    ) -> tuple[ConsumedQueue, ...]:
        """Return how far a group is in every queue that brokers have offsets for; none of a group nobody knows."""
        header = GroupProgressHeader(consumer_group=group, topic=topic)
        answers = await self._calls.ask_each(
            addresses,
            lambda address: self._calls.ask_broker(address, Command.request(RequestCode.GET_CONSUME_STATS, header)),
        )
        return tuple(
            sorted(queue for one in answers for queue in self._consumed(decode_answer(ConsumeStats, one.body)))
        )

    async def move(self, reset: Reset) -> dict[MessageQueue, int]:
        """Have a group begin again in all queues of a topic; return the new offsets."""
        found: dict[MessageQueue, int] = {}
        for broker_name, address in (await self._calls.masters_of_topic(reset.topic)).items():
            header = ResetOffsetHeader(topic=reset.topic, group=reset.group, at_ms=reset.at_ms)
            command = Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            answer = await self._calls.ask_broker(address, command, _BY_HAND_CODES)
            if answer.code == ResponseCode.SUCCESS:
                table = decode_answer(ResetOffsets, answer.body).offset_table
                found |= {queue._replace(topic=reset.topic): queue_offset for queue, queue_offset in table.items()}
            else:
                found |= await self._move_by_hand(reset, broker_name)
        return dict(sorted(found.items()))

    async def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Have a group begin at these offsets.

        Raises:
            ValueError: an offset is negative.
            ClientStateError: members are online, and a broker leaves it to them to move.
        """
        for queue_offset in offsets.values():
            check_queue_offset(queue_offset)
        for topic in {queue.topic for queue in offsets}:
            await self._calls.route(topic)
        if await self._connections.members(group, None):
            for broker_name in sorted({queue.broker_name for queue in offsets}):
                if not await self._moves_members(broker_name):
                    await self._check_idle(group)
            for queue, queue_offset in offsets.items():
                await self._move_one(group, queue, queue_offset)
            return
        for queue, queue_offset in offsets.items():
            await self._brokers.store_offset(group, queue, queue_offset)
            if await self.committed(group, queue) != queue_offset:
                await self._move_one(group, queue, queue_offset)

    async def _moves_members(self, broker_name: str) -> bool:
        """Tell whether a broker moves groups itself, of single queues, too."""
        command = Command.request(RequestCode.GET_BROKER_CONFIG)
        expected = [ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION]
        answer = await self._calls.ask_broker(self._session.master_of(broker_name), command, expected)
        if answer.code != ResponseCode.SUCCESS:
            return False
        settings = parse_java_properties(answer.body.decode(errors="replace"))
        return settings.get("useServerSideResetOffset") == "true"

    async def _move_one(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Have a broker move a group in one queue.

        Members learn of it with their next pull. Until one has, brokers of 5.x leave out what is stored, and the last
        of several moves counts.
        """
        header = ResetOffsetHeader(topic=queue.topic, group=group, queue_id=queue.queue_id, queue_offset=queue_offset)
        command = Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        await self._calls.ask_broker(self._session.master_of(queue.broker_name), command)

    def _consumed(self, stats: ConsumeStats) -> list[ConsumedQueue]:
        strip = self._session.namespace.strip_queue
        return [
            ConsumedQueue(strip(queue), each.consumer_offset, each.pull_offset, each.broker_offset, each.last_timestamp)
            for queue, each in stats.offset_table.items()
        ]

    async def _progress_in(self, group: str, queue: MessageQueue) -> QueueProgress:
        return QueueProgress(queue, await self.committed(group, queue), await self.first(queue), await self.end(queue))

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the next offset of a group in a queue, None when it has none."""
        header = ConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            set_zero_if_not_found=False,  # else a broker answers 0 for a new group of a young topic
        )
        command = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = checked(
            await self._brokers.ask_broker(queue.broker_name, command, self._calls.timeout_ms),
            queue.broker_name,
            command.code,
            [ResponseCode.QUERY_NOT_FOUND],
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetReply, answer).queue_offset

    async def _move_by_hand(self, reset: Reset, broker_name: str) -> dict[MessageQueue, int]:
        await self._check_idle(reset.group)
        queues = [queue for queue in await self._calls.queues(reset.topic) if queue.broker_name == broker_name]
        found = {queue: await reset.find_offset(queue) for queue in queues}
        for queue, queue_offset in found.items():
            await self._brokers.store_offset(reset.group, queue, queue_offset)
        return found

    async def _check_idle(self, group: str) -> None:
        members = await self._connections.members(group, None)
        if members:
            raise ClientStateError(
                f"group {group} has {len(members)} members online, which would store their offsets over the new ones"
            )
