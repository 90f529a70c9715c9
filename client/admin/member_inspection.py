"""Who is behind a group, and what members and messages are up to (requests 204, 328, 307, 309, 203).

    producers        who is connected to send, by group
    running_info     what a member says of itself; a broker passes the question on to it, for ten seconds
    consume_now      a listener of a member gets one stored message out of turn, and how it took it is the answer
    tracks           what each group of its topic has done with a message (Java's ``messageTrackDetail``)

A message out of turn moves no offset. What members of other languages leave out is empty, or 0.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import ResponseError
from ...common.message import MessageQueue, ReceivedMessage
from ...remoting.bodies.admin import ProducerConnections, ProducerTable
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.client import ConsumedDirectly, ConsumerConnections, ConsumeType, MessageModel, RunningInfo
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import (
    AskedConsumptionHeader,
    ConsumerGroupHeader,
    ProducerGroupHeader,
    RunningInfoHeader,
)
from ..session.session import Session
from .admin_calls import AdminCalls
from .admin_values import GroupConnection

MEMBER_TIMEOUT_MS = 12_000
"""A broker gives a member ten seconds."""


class MemberQueue(NamedTuple):
    """One queue that a member owns: what it has committed, and what it holds that is not finished."""

    committed: int
    buffered_messages: int
    buffered_mib: int
    is_locked: bool
    pulled_at_ms: int
    consumed_at_ms: int


class MemberInfo(NamedTuple):
    """What a member says of itself; ``stacks`` are those of its threads, and of tasks if it is one of ours."""

    properties: Mapping[str, str]
    subscriptions: Mapping[str, str]
    queues: Mapping[MessageQueue, MemberQueue]
    stacks: str


class DirectConsumption(NamedTuple):
    """How a listener took a message out of turn: ``CR_SUCCESS``, ``CR_LATER``, ``CR_THROW_EXCEPTION`` …."""

    result: str
    remark: str
    is_ordered: bool
    spent_ms: int

    @property
    def is_success(self) -> bool:
        """Whether the message counts as consumed."""
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


class Track(StrEnum):
    """What a group has done with a message (``TrackType``)."""

    CONSUMED = "CONSUMED"
    FILTERED = "CONSUMED_BUT_FILTERED"
    NOT_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    PULL = "PULL"
    BROADCAST = "CONSUME_BROADCASTING"


class MemberInspection:
    """Asks brokers about members, and members through brokers."""

    def __init__(self, session: Session, calls: AdminCalls) -> None:
        self._session = session
        self._calls = calls
        self._wrap = session.namespace.wrap

    async def producers(self, group: str, cluster: str | None) -> tuple[GroupConnection, ...]:
        """Return who is connected for a group of producers; nobody is no error."""
        found: set[GroupConnection] = set()
        header = ProducerGroupHeader(producer_group=self._wrap(group))
        for address in (await self._calls.masters(cluster)).values():
            command = Command.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            answer = await self._calls.ask_broker(address, command, [ResponseCode.SYSTEM_ERROR])
            if answer.code == ResponseCode.SUCCESS:
                told = decode_answer(ProducerConnections, answer.body).connection_set
                found |= {
                    GroupConnection(each.client_id, each.client_addr, each.language, each.version) for each in told
                }
        return tuple(sorted(found))

    async def all_producers(self, cluster: str | None) -> dict[str, tuple[GroupConnection, ...]]:
        """Return who is connected as a producer, by group; a broker that does not know the request tells none."""
        found: dict[str, set[GroupConnection]] = {}
        for address in (await self._calls.masters(cluster)).values():
            command = Command.request(RequestCode.GET_ALL_PRODUCER_INFO)
            answer = await self._calls.ask_broker(address, command, [ResponseCode.REQUEST_CODE_NOT_SUPPORTED])
            if answer.code == ResponseCode.SUCCESS:
                for group, members in decode_answer(ProducerTable, answer.body).data.items():
                    found.setdefault(group, set()).update(
                        GroupConnection(each.client_id, each.remote_address.lstrip("/"), each.language, each.version)
                        for each in members
                    )
        return {group: tuple(sorted(members)) for group, members in found.items()}

    async def running_info(self, group: str, client_id: str, *, with_stacks: bool) -> MemberInfo:
        """Return what a member says of itself."""
        header = RunningInfoHeader(consumer_group=self._wrap(group), client_id=client_id, with_stacks=with_stacks)
        refusal: ResponseError | None = None
        for address in (await self._calls.masters(None)).values():
            command = Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            try:
                answer = await self._calls.ask_broker(address, command, timeout_ms=MEMBER_TIMEOUT_MS)
            except ResponseError as error:  # a member need not be connected to each broker
                refusal = refusal or error
            else:
                return self._read_info(decode_answer(RunningInfo, answer.body))
        assert refusal is not None, "there is a master"
        raise refusal

    async def consume_now(self, group: str, client_id: str, message: ReceivedMessage) -> DirectConsumption:
        """Have a member consume a message out of turn."""
        header = AskedConsumptionHeader(
            consumer_group=self._wrap(group),
            client_id=client_id,
            message_id=message.offset_message_id,
            topic=self._wrap(message.topic),
        )
        masters = await self._calls.masters_of_topic(message.topic)
        command = Command.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        answer = await self._calls.ask_broker(masters[message.queue.broker_name], command, timeout_ms=MEMBER_TIMEOUT_MS)
        told = decode_answer(ConsumedDirectly, answer.body)
        return DirectConsumption(told.consume_result or "", told.remark or "", told.order, told.spent_ms)

    async def track(self, group: str, message: ReceivedMessage, committed: int | None) -> Track:
        """Return what a group has done with a message, which has committed an offset of its queue, or none."""
        masters = await self._calls.masters_of_topic(message.topic)
        header = ConsumerGroupHeader(consumer_group=self._wrap(group))
        command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        answer = await self._calls.ask_broker(
            masters[message.queue.broker_name], command, [ResponseCode.CONSUMER_NOT_ONLINE]
        )
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return Track.NOT_ONLINE
        told = decode_answer(ConsumerConnections, answer.body)
        if told.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return Track.PULL
        if told.message_model is MessageModel.BROADCASTING:
            return Track.BROADCAST
        if committed is None or committed <= message.queue_offset:
            return Track.NOT_YET
        subscription = told.subscription_table.get(self._wrap(message.topic))
        tags = subscription.tags_set if subscription is not None else []
        return Track.FILTERED if tags and "*" not in tags and message.tags not in tags else Track.CONSUMED

    def _read_info(self, info: RunningInfo) -> MemberInfo:
        namespace = self._session.namespace
        return MemberInfo(
            info.properties,
            {namespace.strip(each.topic): each.sub_string for each in info.subscription_set},
            {
                namespace.strip_queue(queue): MemberQueue(
                    committed=one.commit_offset,
                    buffered_messages=one.cached_msg_count,
                    buffered_mib=one.cached_msg_size,
                    is_locked=one.locked,
                    pulled_at_ms=one.last_pull_timestamp,
                    consumed_at_ms=one.last_consume_timestamp,
                )
                for queue, one in info.mq_table.items()
            },
            info.jstack or "",
        )
