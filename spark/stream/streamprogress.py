"""Stores on brokers how far a stream has come, as the progress of a consumer group (option ``commitGroup``).

Rules:

- It is for RocketMQ's tools, which then show the lag of the stream. The stream itself goes by its checkpoint alone.
- What is stored was processed: the start of the next batch. Only offsets that have changed are sent.
- Brokers know no group that never had a member. Where one refuses it, the group is made there, with its retry topic,
  by whose route tools find the brokers of a group.
- A failure is told once until it passes, and ends nothing.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from ...client.admin.admin import Admin
from ...client.admin.admin_values import GroupSettings, TopicSettings, write_group
from ...client.session.session import Session
from ...common.errors import ResponseError, RocketletError
from ...common.message import MessageQueue
from ...common.names import retry_topic
from ...remoting.bodies.body import encode_body
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.offset import CommitOffsetHeader
from ..cluster.cluster import Addresses, ask_all
from ..options.access import Access

_RETRY: Final = TopicSettings(read_queues=1, write_queues=1)
_log = logging.getLogger(__name__)


class StreamProgress:
    """The progress of a stream under the name of a group; ``store`` blocks."""

    def __init__(self, access: Access, group: str) -> None:
        self._access = access
        self._group = group
        self._stored: dict[MessageQueue, int] = {}
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<StreamProgress {self._group} of {len(self._stored)} queues>"

    def store(self, offsets: Mapping[MessageQueue, int], addresses: Addresses) -> None:
        """Store the offsets that have changed, of queues whose broker is known."""
        changed = {
            queue: offset
            for queue, offset in offsets.items()
            if queue in addresses and self._stored.get(queue) != offset
        }
        if not changed:
            return
        try:
            asyncio.run(self._store(changed, addresses))
            self._is_failing = False
        except RocketletError as error:
            if not self._is_failing:
                _log.warning(
                    "group %s: committing %d offsets failed, retrying with each batch: %s",
                    self._group,
                    len(changed),
                    error,
                )
            self._is_failing = True

    async def _store(self, offsets: Mapping[MessageQueue, int], addresses: Addresses) -> None:
        async with Session(self._access.nameserver, settings=self._access.client_settings) as session:
            for queue in {queue.broker_name: queue for queue in offsets}.values():  # alone: it may make the group
                await self._store_one(session, queue, offsets[queue], addresses[queue])

            async def store(session: Session, queue: MessageQueue) -> None:
                await self._store_one(session, queue, offsets[queue], addresses[queue])

            await ask_all(session, [queue for queue in offsets if self._stored.get(queue) != offsets[queue]], store)

    async def _store_one(self, session: Session, queue: MessageQueue, offset: int, address: str) -> None:
        command = self._command(queue, offset)
        code, remark = await self._ask(session, address, command)
        if code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            await self._make_group(session, queue.broker_name, address)
            code, remark = await self._ask(session, address, command)
        if code != ResponseCode.SUCCESS:
            raise ResponseError(code, remark)
        self._stored[queue] = offset

    async def _ask(self, session: Session, address: str, command: Command) -> tuple[int, str | None]:
        answer = await session.call(address, command, self._access.timeout_ms)
        return answer.code, answer.remark

    async def _make_group(self, session: Session, broker: str, address: str) -> None:
        body = encode_body(write_group(self._group, GroupSettings()))
        command = Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        code, remark = await self._ask(session, address, command)
        if code != ResponseCode.SUCCESS:
            raise ResponseError(code, remark)
        async with Admin(self._access.nameserver, settings=self._access.client_settings) as admin:
            await admin.create_topic(retry_topic(self._group), _RETRY, brokers=[broker])
        _log.info("group %s: created on broker %s to commit the offsets of a stream", self._group, broker)

    def _command(self, queue: MessageQueue, offset: int) -> Command:
        header = CommitOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        return Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
