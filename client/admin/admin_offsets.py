"""How far groups are, and where they begin again (requests 14, 15, 29, 30, 31, 222).

    progress        what is committed, and where each queue begins and ends, at the moment of asking
    reset_to_…      the brokers move the group (222), also while it consumes: it gets the messages from there on
    reset           every queue to an offset of its own, while nobody consumes

A broker that does not know 222 is told the offsets as consumers do it (15). While members are online they would store
theirs over that, so it is refused then. A group that a broker does not know is an error (26): make it first.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from ...common.errors import ClientStateError
from ...common.message import MessageQueue
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.group import ResetOffsets
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.admin import ResetOffsetHeader
from ...remoting.headers.offset import ConsumerOffsetHeader, OffsetReply
from ..consumer.pull_checks import check_offset
from .admin_groups import GroupAdmin
from .admin_values import GroupProgress, QueueProgress

AT_END_MS = -1
_BY_HAND_CODES = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.CONSUMER_NOT_ONLINE)

FindOffset = Callable[[MessageQueue], Awaitable[int]]


class _Reset(NamedTuple):
    """Where a group begins again in a topic; ``find_offset`` is asked where the broker cannot do it."""

    group: str
    topic: str
    at_ms: int
    find_offset: FindOffset


class OffsetAdmin(GroupAdmin):
    """Offsets."""

    async def progress(self, group: str, topic: str) -> GroupProgress:
        """Return how far a group is in a topic, queue by queue.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return GroupProgress(tuple([await self._progress_in(group, queue) for queue in await self._queues(topic)]))

    async def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return for each queue of a topic the first offset that it still has, and the next one that it will have."""
        queues = await self._queues(topic)
        return {queue: (await self._first(queue), await self._end(queue)) for queue in queues}

    async def offsets_at(self, topic: str, at_ms: int) -> dict[MessageQueue, int]:
        """Return for each queue of a topic the offset of the first message stored at an instant or later."""
        return {queue: await self._brokers.offset_at(queue, at_ms) for queue in await self._queues(topic)}

    async def reset_to_begin(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group get all messages that a topic still has; return the new offsets."""
        return await self._reset(_Reset(group, topic, 0, self._first))

    async def reset_to_end(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group leave out all that is there now; return the new offsets."""
        return await self._reset(_Reset(group, topic, AT_END_MS, self._end))

    async def reset_to_time(self, group: str, topic: str, at_ms: int) -> dict[MessageQueue, int]:
        """Have a group get the messages stored at an instant or later; return the new offsets.

        Raises:
            ValueError: the instant is negative.
            ClientStateError: a broker cannot do it while members are online.
        """
        check_offset(at_ms)

        async def find(queue: MessageQueue) -> int:
            return await self._brokers.offset_at(queue, at_ms)

        return await self._reset(_Reset(group, topic, at_ms, find))

    async def reset(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Have a group begin at these offsets; nobody may consume in it.

        Raises:
            ValueError: an offset is negative.
            ClientStateError: members are online.
        """
        for queue_offset in offsets.values():
            check_offset(queue_offset)
        for topic in {queue.topic for queue in offsets}:
            await self._route(topic)
        await self._check_idle(group)
        for queue, queue_offset in offsets.items():
            await self._brokers.store_offset(group, queue, queue_offset)

    async def copy_offsets(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Have one group begin where another one is; return the offsets. Nobody may consume in the first.

        Raises:
            ClientStateError: members of the target are online.
        """
        progress = await self.progress(source, topic)
        found = {each.queue: each.committed for each in progress.queues if each.committed is not None}
        await self.reset(target, found)
        return found

    async def _progress_in(self, group: str, queue: MessageQueue) -> QueueProgress:
        return QueueProgress(
            queue, await self._committed(group, queue), await self._first(queue), await self._end(queue)
        )

    async def _committed(self, group: str, queue: MessageQueue) -> int | None:
        header = ConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            set_zero_if_not_found=False,  # else a broker answers 0 for a new group of a young topic
        )
        command = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self._ask_broker(
            self._session.master_of(queue.broker_name), command, [ResponseCode.QUERY_NOT_FOUND]
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetReply, answer).queue_offset

    async def _reset(self, reset: _Reset) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}
        for broker_name, address in (await self._masters_of_topic(reset.topic)).items():
            header = ResetOffsetHeader(topic=reset.topic, group=reset.group, at_ms=reset.at_ms)
            command = Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            answer = await self._ask_broker(address, command, _BY_HAND_CODES)
            if answer.code == ResponseCode.SUCCESS:
                table = decode_answer(ResetOffsets, answer.body).offset_table
                found |= {queue._replace(topic=reset.topic): queue_offset for queue, queue_offset in table.items()}
            else:
                found |= await self._reset_by_hand(reset, broker_name)
        return dict(sorted(found.items()))

    async def _reset_by_hand(self, reset: _Reset, broker_name: str) -> dict[MessageQueue, int]:
        await self._check_idle(reset.group)
        queues = [queue for queue in await self._queues(reset.topic) if queue.broker_name == broker_name]
        found = {queue: await reset.find_offset(queue) for queue in queues}
        for queue, queue_offset in found.items():
            await self._brokers.store_offset(reset.group, queue, queue_offset)
        return found

    async def _check_idle(self, group: str) -> None:
        members = await self.members(group)
        if members:
            raise ClientStateError(
                f"group {group} has {len(members)} members online, which would store their offsets over the new ones"
            )

    async def _first(self, queue: MessageQueue) -> int:
        return await self._brokers.first_offset(queue)

    async def _end(self, queue: MessageQueue) -> int:
        return await self._brokers.end_offset(queue)
