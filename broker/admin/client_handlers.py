"""What the members of a group answer themselves: administrators ask the broker, which asks over their connections.

307  GET_CONSUMER_RUNNING_INFO             passed on as it came to the member named, whose answer comes back as it is
309  CONSUME_MESSAGE_DIRECTLY              the same, with the stored message as the body
223  INVOKE_BROKER_TO_GET_CONSUMER_STATUS  how far members are in their queues: each of them is asked (221)

Upstream: ``AdminBrokerProcessor.callConsumer``, ``Broker2Client.getConsumeStatus`` (spec remoting.md §4.11, §4.12).
Consumers of other protocols (``GuestLink``) are asked what they know, and the rest of the answer is what the broker
knows of them: a running info without stacks needs no question. (Upstream asks for stacks alone, and else is silent.)
Whoever asks is answered in any case: when the member answers, has left, or has had its time. Some clients never answer.
Unlike Java's broker, 223 asks all members at once; what they tell is bounded, alone and together.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ...common.codes import Release, ResponseCode, old_version_name
from ...common.errors import DecodeError, FrameError, HeaderError, RemotingError, RequestTimeoutError
from ...common.ids import parse_offset_id
from ...common.message import MessageQueue
from ...common.outcome import Outcome
from ...common.record import decode_record
from ...common.signing import OF_WHO_ASKS
from ...remoting.bodies.body import decode_body, encode_body
from ...remoting.bodies.client import ConsumedDirectly, ConsumerOffsets, DirectResult, RunningInfo, SubscriptionData
from ...remoting.codec.command import SLOW_BYTES, Command, decode_header
from ...remoting.codec.frames import NO_ANSWER
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.client import (
    AskedConsumptionHeader,
    AskedMemberHeader,
    ClientOffsetsHeader,
    GroupTopicHeader,
    RunningInfoHeader,
)
from ...remoting.transport.connection import Connection
from ...remoting.transport.event_loop import TaskScope
from ...remoting.transport.server import answers
from ...store.message_store import MessageStore
from ..group.groups import GroupTable
from ..group.members import Client, ConsumerGroup, Members
from ..topic.topics import TopicTable
from .guests import CALL_LIMIT_MS, Consumed, GuestLink

STATUS_LIMIT_MS = 5_000
MOST_ASKED = 1_024
"""Members of a group that one request asks for their offsets."""
MOST_OFFSET_BYTES = 1 << 20
"""Of the offsets that one member tells, and four times as much of those of all."""
_CONSUMED = {
    Consumed.SUCCEEDED: DirectResult.CR_SUCCESS,
    Consumed.FAILED: DirectResult.CR_LATER,
    Consumed.CORRUPTED: DirectResult.CR_RETURN_NULL,
}
_log = logging.getLogger(__name__)


class MemberCalls:
    """Asks members, and passes on what they answer."""

    def __init__(self, members: Members[Connection], tasks: TaskScope, guests: Members[GuestLink]) -> None:
        self._members = members
        self._tasks = tasks
        self._guests = guests

    def pass_on(self, command: Command, group: str, client_id: str) -> Command | Outcome[Command]:
        """Ask a member what the broker was asked; return the outcome of its answer, or why it is not asked."""
        found = self._members.consumer(group, client_id)
        if found is None:
            guest = self._guests.consumer(group, client_id)
            if guest is not None:
                return self._ask_guest(command, group, *guest)
            return Command.response(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        connection, client = found
        if client.version < Release.V3_1_8_SNAPSHOT:
            name = old_version_name(client.version)
            remark = (
                f"The Consumer <{client_id}> Version <{name}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
            )
            return Command.response(ResponseCode.SYSTEM_ERROR, remark)
        fields = {name: text for name, text in command.ext.items() if name not in OF_WHO_ASKS}
        question = Command.request(command.code, fields, command.body)  # who is asked must not ask as the administrator
        outcome: Outcome[Command] = Outcome()

        async def ask() -> None:
            reply = Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER)
            try:
                answer = await connection.request(question, CALL_LIMIT_MS)
                reply = Command.response(answer.code, answer.remark, answer.ext, answer.body)
            except RequestTimeoutError as error:
                remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
                reply = Command.response(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
            except (RemotingError, FrameError, DecodeError) as error:
                remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
                reply = Command.response(ResponseCode.SYSTEM_ERROR, remark)
            finally:
                outcome.answer_with(reply)

        outcome.on_drop = self._tasks.start(ask(), f"ask a member of {group}").cancel
        return outcome

    def _ask_guest(self, command: Command, group: str, link: GuestLink, client: Client) -> Command | Outcome[Command]:
        """Ask a client of another protocol what the broker was asked."""
        outcome: Outcome[Command] = Outcome()

        def settle(told: Outcome[Any]) -> None:
            failure = told.failure
            if failure is None:
                body = _encode_consumed(told.answer) if is_consumption else encode_body(describe(told.answer))
                outcome.answer_with(Command.response(ResponseCode.SUCCESS, body=body))
            elif isinstance(failure, RequestTimeoutError):
                remark = f"consumer <{group}> <{client.client_id}> Timeout: {failure}"
                outcome.answer_with(Command.response(ResponseCode.CONSUME_MSG_TIMEOUT, remark))
            else:
                remark = f"invoke consumer <{group}> <{client.client_id}> Exception: {failure}"
                outcome.answer_with(Command.response(ResponseCode.SYSTEM_ERROR, remark))

        def describe(stacks: str | None) -> RunningInfo:
            return _describe_guest(self._guests.consumer_group(group), link, client, stacks)

        is_consumption = command.code == Code.CONSUME_MESSAGE_DIRECTLY
        if is_consumption:
            asked: Outcome[Any] = link.ask_consumption(decode_record(command.body))
        elif decode_header(RunningInfoHeader, command).with_stacks:
            asked = link.ask_stacks()
        else:
            return Command.response(ResponseCode.SUCCESS, body=encode_body(describe(None)))
        if asked.is_settled:
            settle(asked)
        else:
            asked.on_settled, outcome.on_drop = settle, asked.drop
        return outcome

    def collect_offsets(self, topic: str, group: str, clients: Mapping[Connection, Client]) -> Outcome[Command]:
        """Ask members how far they are; return the outcome of the answer that holds what they told."""
        outcome: Outcome[Command] = Outcome()

        async def ask() -> None:
            told: list[tuple[str, bytes]] = []
            reply = Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER)
            try:
                async with asyncio.TaskGroup() as asking:
                    for connection, client in clients.items():
                        question = Command.request(
                            Code.GET_CONSUMER_STATUS_FROM_CLIENT, GroupTopicHeader(topic=topic, group=group)
                        )
                        asking.create_task(_ask_offsets(connection, client.client_id, question, told))
                body = encode_body(ConsumerOffsets(consumer_table=_read_offsets(group, told)))
                reply = Command.response(ResponseCode.SUCCESS, body=body)
            finally:
                outcome.answer_with(reply)

        outcome.on_drop = self._tasks.start(ask(), f"ask the members of {group}").cancel
        return outcome


def _encode_consumed(consumed: Consumed) -> bytes:
    """Return the body that tells how a client of another protocol took a message out of turn."""
    remark = None if consumed in _CONSUMED else "its client does not consume out of turn"
    return encode_body(ConsumedDirectly(consume_result=_CONSUMED.get(consumed), remark=remark))


def _describe_guest(
    group: ConsumerGroup[GuestLink] | None, link: GuestLink, client: Client, stacks: str | None
) -> RunningInfo:
    """Return what the broker knows of a consumer of another protocol, and the stacks that it has told."""
    if group is None:  # it has left as it answered
        return RunningInfo(jstack=stacks)
    properties = {
        "PROP_CONSUME_TYPE": group.consume_type,
        "PROP_CLIENT_VERSION": link.version,
        "PROP_CONSUMER_START_TIMESTAMP": str(link.came_at_ms),
        "consumerGroup": group.name,
        "messageModel": group.message_model,
        "consumeFromWhere": group.from_where,
        "language": client.language,
    }
    subscriptions = [SubscriptionData.from_subscription(each) for each in group.subscriptions.values()]
    return RunningInfo(properties=properties, subscription_set=subscriptions, jstack=stacks)


async def _ask_offsets(
    connection: Connection, client_id: str, question: Command, told: list[tuple[str, bytes]]
) -> None:
    """Note what a member tells; one that does not is passed over."""
    try:
        answer = await connection.request(question, STATUS_LIMIT_MS)
    except (RemotingError, FrameError) as error:
        _log.info("client %s does not tell its offsets: %s", client_id, error)
        return
    kept = sum(len(body) for _, body in told)
    if answer.code == ResponseCode.SUCCESS and answer.body:
        if len(answer.body) <= MOST_OFFSET_BYTES and kept + len(answer.body) <= 4 * MOST_OFFSET_BYTES:
            told.append((client_id, answer.body))
        else:
            _log.warning("client %s tells offsets of %d bytes: left out", client_id, len(answer.body))


def _read_offsets(group: str, told: Sequence[tuple[str, bytes]]) -> dict[str, dict[MessageQueue, int]]:
    found: dict[str, dict[MessageQueue, int]] = {}
    slow_bytes = SLOW_BYTES
    for client_id, body in told:
        try:
            offsets = decode_body(ConsumerOffsets, body, slow_bytes=slow_bytes)
        except DecodeError as error:
            _log.warning("client %s of group %s tells offsets that cannot be read: %s", client_id, group, error)
            continue
        finally:
            if len(body) <= slow_bytes:  # a longer one cannot have been read slowly
                slow_bytes -= len(body)
        found[client_id] = offsets.message_queue_table
    return found


class MemberQuestions:
    """Answers administrators with what members say of themselves."""

    def __init__(self, calls: MemberCalls, members: Members[Connection]) -> None:
        self._calls = calls
        self._members = members

    @answers(Code.GET_CONSUMER_RUNNING_INFO)
    def tell_running_info(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Have a member describe itself."""
        header = decode_header(AskedMemberHeader, command)
        return self._calls.pass_on(command, header.consumer_group, header.client_id)

    @answers(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    def tell_offsets(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Tell how far the members of a group, or the one that is named, are in the queues of a topic."""
        header = decode_header(ClientOffsetsHeader, command)
        group = self._members.consumer_group(header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return Command.response(ResponseCode.SYSTEM_ERROR, remark)
        wanted = (header.client_id or "").strip()
        clients = {
            connection: member.client
            for connection, member in group.members.items()
            if not wanted or member.client.client_id == header.client_id
        }
        oldest = min((client.version for client in clients.values()), default=int(Release.V3_0_7_SNAPSHOT))
        if oldest < Release.V3_0_7_SNAPSHOT:
            return refuse_version(oldest)
        asked = dict(list(clients.items())[:MOST_ASKED])
        return self._calls.collect_offsets(header.topic, header.group, asked)


def refuse_version(version: int) -> Command:
    """Return the answer for a client that is too old."""
    remark = f"the client does not support this feature. version={old_version_name(version)}"
    return Command.response(ResponseCode.SYSTEM_ERROR, remark)


class DirectConsumption:
    """Has a member consume a stored message out of turn."""

    def __init__(
        self, calls: MemberCalls, store: MessageStore, topics: TopicTable, groups: GroupTable, broker_name: str
    ) -> None:
        self._calls = calls
        self._store = store
        self._topics = topics
        self._groups = groups
        self._broker_name = broker_name

    @answers(Code.CONSUME_MESSAGE_DIRECTLY)
    def consume(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Hand a message to a member, with what the broker knows of its topic and group; its answer is the answer."""
        header = decode_header(AskedConsumptionHeader, command)
        fields = {**command.ext, "brokerName": self._broker_name}
        topic = self._topics.get(header.topic) if header.topic else None
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.find(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        try:
            _, log_offset = parse_offset_id(header.message_id)
        except DecodeError as error:
            raise HeaderError(f"the custom field <msgId> is {header.message_id}: {error}") from error
        record = self._store.record_at(log_offset)
        if record is None:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {log_offset}")
        question = Command.request(command.code, fields, bytes(record))
        return self._calls.pass_on(question, header.consumer_group, header.client_id)
