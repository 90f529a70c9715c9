"""What groups are about: who produces in them, what they consume, what they may not, and members that move themselves.

328  GET_ALL_PRODUCER_INFO             the members of all producer groups
343  QUERY_TOPICS_BY_CONSUMER          the topics that a group has offsets of
345  QUERY_SUBSCRIPTION_BY_CONSUMER    what the members of a group subscribe to of a topic
353  UPDATE_AND_GET_GROUP_FORBIDDEN    whether a group may read a topic; told when the table is on the disk
220  RESET_CONSUMER_CLIENT_OFFSET      the broker's word to the members, where ``useServerSideResetOffset`` is off (222)

Upstream: ``AdminBrokerProcessor``, ``Broker2Client.resetOffset`` (spec remoting.md §4.9, §4.11, behaviour.md D.2, D.3).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...common.clock import Clock
from ...common.codes import Release, ResponseCode
from ...common.message import MessageQueue
from ...common.outcome import Outcome
from ...remoting.bodies.admin import GroupForbidden, GroupSubscription, ProducerInfo, ProducerTable
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.client import (
    MAX_NAME_CHARACTERS,
    OffsetForC,
    ResetOffsets,
    ResetOffsetsForC,
    SubscriptionData,
)
from ...remoting.bodies.route import TopicList
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.client import GroupForbiddenHeader, GroupHeader, GroupSubscriptionHeader, PushedResetHeader
from ...remoting.headers.offset import ResetOffsetHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ..group.groups import MAX_FORBIDDEN, GroupTable, OffsetTable
from ..group.members import EveryMember, Members
from ..settings.refusal import Refusal
from ..topic.topics import TopicTable
from .cleaning import CleaningJob
from .client_handlers import refuse_version
from .client_resets import ClientReset, ClientResets
from .handlers import Save, answer_when_done, answer_when_saved

_CPP = "CPP"


class GroupReports:
    """Answers who produces and what groups consume."""

    def __init__(
        self, members: EveryMember, offsets: OffsetTable, clock: Clock, own_address: Callable[[], str]
    ) -> None:
        self._members = members
        self._offsets = offsets
        self._clock = clock
        self._own_address = own_address

    @answers(Code.GET_ALL_PRODUCER_INFO)
    def tell_all_producers(self, _command: Command, _connection: Connection) -> Command:
        """Tell who is connected as a producer, by group, and when each was heard of last."""
        since_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        table = {
            group: [
                ProducerInfo(
                    client_id=member.client.client_id,
                    language=member.client.language,
                    last_update_timestamp=since_ms + member.heard_at_ms,
                    remote_address=f"/{connection.peer}",
                    version=member.client.version,
                )
                for connection, member in members.items()
            ]
            for group, members in self._members.producer_groups().items()
        }
        return _success(ProducerTable(data=table))

    @answers(Code.QUERY_TOPICS_BY_CONSUMER)
    def tell_topics(self, command: Command, _connection: Connection) -> Command:
        """Tell the topics that a group has offsets of."""
        topics = self._offsets.topics_of(decode_header(GroupHeader, command).group)
        return _success(TopicList(broker_addr=self._own_address(), topic_list=topics))

    @answers(Code.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def tell_subscription(self, command: Command, _connection: Connection) -> Command:
        """Tell what the members of a group subscribe to of a topic; nothing if they do not, or are not there."""
        header = decode_header(GroupSubscriptionHeader, command)
        group = self._members.consumer_group(header.group)
        found = group.subscriptions.get(header.topic) if group is not None else None
        told = None if found is None else SubscriptionData.from_subscription(found)
        return _success(GroupSubscription(group=header.group, subscription_data=told, topic=header.topic))


class GroupForbidding:
    """Forbids groups to read topics; whether they are there does not matter."""

    def __init__(self, groups: GroupTable, cleaning: CleaningJob, save: Save) -> None:
        self._groups = groups
        self._cleaning = cleaning
        self._save = save

    @answers(Code.UPDATE_AND_GET_GROUP_FORBIDDEN)
    def forbid(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Forbid or allow, if that is asked for, and tell what counts now."""
        header = decode_header(GroupForbiddenHeader, command)
        group, topic = header.group, header.topic
        longest = max(len(group), len(topic))
        if longest > MAX_NAME_CHARACTERS:
            remark = f"the name has {longest} characters, the limit is {MAX_NAME_CHARACTERS}"
            return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        is_changed = header.readable is not None
        if is_changed and not self._groups.forbid_reading(group, topic, is_forbidden=not header.readable):
            remark = f"there are {MAX_FORBIDDEN} pairs of group and topic, which is the limit"
            return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        readable = not self._groups.is_reading_forbidden(group, topic)
        body = encode_body(GroupForbidden(group=group, readable=readable, topic=topic))
        if not is_changed:
            return Command.response(ResponseCode.SUCCESS, body=body)
        name = f"let group {group} read topic {topic}, or not"
        return answer_when_done(self._cleaning, lambda: answer_when_saved(self._save, body), name)


class ClientResetPush:
    """Tells the members of a group to go on elsewhere (220); answered when they are told, not when they have moved."""

    def __init__(
        self, resets: ClientResets, topics: TopicTable, members: Members[Connection], broker_name: str
    ) -> None:
        self._resets = resets
        self._topics = topics
        self._members = members
        self._broker_name = broker_name

    def reset(self, header: ResetOffsetHeader) -> Command:
        """Tell all members where they go on."""
        reset = ClientReset(header.topic, header.group, header.at_ms, header.is_forced)
        found = self._resets.offsets_for(reset, self._topics.get(header.topic))
        if isinstance(found, Refusal):
            return Command.response(found.code, found.remark)
        group = self._members.consumer_group(header.group)
        if group is None:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {header.group} Topic: {header.topic} Timestamp: {header.at_ms}"
            )
            return Command.response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        bodies = self._encode(header.topic, found)
        told = PushedResetHeader(topic=header.topic, group=header.group, at_ms=header.at_ms, is_forced=False)
        for connection, member in group.members.items():
            if member.client.version < Release.V3_0_7_SNAPSHOT:
                return refuse_version(member.client.version)
            body = bodies.for_cpp if member.client.language == _CPP else bodies.usual
            connection.send_oneway(Command.request(Code.RESET_CONSUMER_CLIENT_OFFSET, told, body))
        return Command.response(ResponseCode.SUCCESS, body=bodies.usual)

    def _encode(self, topic: str, offsets: Mapping[int, int]) -> "_ResetBodies":
        name = self._broker_name
        table = {MessageQueue(topic, name, number): queue_offset for number, queue_offset in offsets.items()}
        entries = [
            OffsetForC(broker_name=name, queue_offset=queue_offset, queue_id=number, topic=topic)
            for number, queue_offset in offsets.items()
        ]
        usual = encode_body(ResetOffsets(offset_table=table))
        return _ResetBodies(usual, encode_body(ResetOffsetsForC(offset_table=entries)))


class _ResetBodies(NamedTuple):
    """The same offsets as most clients read them, and as the C++ client does."""

    usual: bytes
    for_cpp: bytes


def _success(body: object) -> Command:
    return Command.response(ResponseCode.SUCCESS, body=encode_body(body))
