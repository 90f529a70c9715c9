"""CONSUMER_SEND_MSG_BACK(36): a consumer could not process a message (spec behaviour.md B.9, store.md §10.2).

Rules (``AbstractSendMessageProcessor.consumerSendMsgBack``), in this order

    1. No such group: 26. The broker may not be written to: 16. A group without retry queues: 0, and nothing is stored.
    2. ``%RETRY%<group>`` is made if need be; it may not be written to: 16.
    3. The message is found by its position in the log; none there: 1.
    4. Its attempts so far have reached the limit, or the level is below 0: a copy goes to ``%DLQ%<group>`` at once.
       Else a copy waits for its delay and goes to ``%RETRY%<group>`` then; level 0 means 3 + attempts so far.
    5. The copy has one attempt more. RETRY_TOPIC and ORIGIN_MESSAGE_ID keep where the message was first, WAIT is
       false: the answer does not wait for the disk.
    6. What the store does not take: 1, with the name of Java's status.
"""

from collections.abc import Callable

from ...common.errors import MessageIllegalError, MessageRefusedError, RecordError, StoreError
from ...common.ids import format_offset_id
from ...common.names import PERM_WRITE
from ...common.properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT, encode_properties
from ...common.record import NewRecord, Record, decode_record
from ...remoting.bodies.group import SubscriptionGroupConfig
from ...remoting.codec.codes import Release, RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.later import Encoded, Later
from ...remoting.headers.retry import SendBackHeader
from ...remoting.transport.connection import Connection
from ...store.message_store import MessageStore
from ..delay.parking import Parking
from ..group.groups import GroupTable
from ..topic.topics import TopicTable
from .deadletters import FailurePlace, dead_letters, retries
from .send import Paying
from .sendgate import FAQ, OwnBroker

SEND_BACK_CODES = frozenset({RequestCode.CONSUMER_SEND_MSG_BACK})
_FIRST_LEVEL = 3
_NO_WAIT = f"{WAIT}\x01false\x02"


class SendBackGate:
    """Which groups may send back, and where their messages go."""

    def __init__(self, own: OwnBroker, groups: GroupTable, topics: TopicTable) -> None:
        self._own = own
        self._is_writable = bool(own.config.permission & PERM_WRITE)
        self._groups = groups
        self._topics = topics
        self.created: list[str] = []
        """Topics that the name servers do not know yet; whoever makes them known takes them out."""

    def admit(self, header: SendBackHeader) -> tuple[SubscriptionGroupConfig, FailurePlace] | Command:
        """Return the group and a queue of its retry topic, or what its consumer is answered at once."""
        group = self._groups.find(header.group)
        if group is None:
            remark = f"subscription group not exist, {header.group} {FAQ}"
            return Command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._is_writable:
            return Command.response(ResponseCode.NO_PERMISSION, self._own.forbids("sending message"))
        if group.retry_queue_nums <= 0:
            return Command.response(ResponseCode.SUCCESS)
        place = self._note(retries(self._topics, group, is_unit=bool(header.unit_mode)))
        if not place.topic.perm & PERM_WRITE:
            remark = f"the topic[{place.topic.topic_name}] sending message is forbidden"
            return Command.response(ResponseCode.NO_PERMISSION, remark)
        return group, place

    def give_up(self, group: SubscriptionGroupConfig) -> FailurePlace:
        """Return a queue of the group's dead letters."""
        return self._note(dead_letters(self._topics, group.group_name))

    def _note(self, place: FailurePlace) -> FailurePlace:
        if place.is_new:
            self.created.append(place.topic.topic_name)
        return place


class SendBackHandler:
    """Takes failed messages back."""

    def __init__(
        self,
        store: MessageStore,
        gate: SendBackGate,
        parking: Parking,
        paying: Paying,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._gate = gate
        self._parking = parking
        self._now_ms = now_ms
        self._announce, self._group = paying

    def send_back(self, command: Command, _connection: Connection) -> Command | Encoded | Later:
        """Store the copy of a message that is to be consumed again, or of one that is given up."""
        header = decode_header(SendBackHeader, command)
        reply: Command | Encoded | Later = self._send_back(header, command.version)
        if self._group is not None:
            reply = self._group.hold(command, _NO_WAIT, reply)
        created, self._gate.created = self._gate.created, []
        if not created:
            return reply
        assert not isinstance(reply, Later), "a send-back does not wait for the disk"
        later = Later(command)
        self._announce(created, later, reply)
        return later

    def refuse_uncommitted(self, _command: Command, error: StoreError) -> Command:
        """Return the answer to a message whose copy could not be written."""
        return _refusal(error)

    def _send_back(self, header: SendBackHeader, version: int) -> Command:
        admitted = self._gate.admit(header)
        if isinstance(admitted, Command):
            return admitted
        group, retry = admitted
        failed = self._find(header.log_offset)
        if failed is None:
            remark = f"look message by offset failed, {header.log_offset}"
            return Command.response(ResponseCode.SYSTEM_ERROR, remark)
        level = header.delay_level
        if failed.reconsume_times >= _limit(header, version, group) or level < 0:
            copy = _copy(failed, self._gate.give_up(group), 0)
        else:
            level = level or _FIRST_LEVEL + failed.reconsume_times
            copy = _copy(failed, retry, level)
        try:
            self._store.append(self._parking.place(copy, self._now_ms()))
        except (StoreError, MessageRefusedError) as error:
            return _refusal(error)
        return Command.response(ResponseCode.SUCCESS)

    def _find(self, log_offset: int) -> Record | None:
        record = self._store.record_at(log_offset)
        try:
            return None if record is None else decode_record(record)
        except RecordError:
            return None


def _limit(header: SendBackHeader, version: int, group: SubscriptionGroupConfig) -> int:
    """Return after how many attempts a message is given up."""
    if version >= Release.V3_4_9 and header.max_reconsume_times is not None:
        return header.max_reconsume_times
    return group.retry_max_times


def _copy(failed: Record, place: FailurePlace, level: int) -> NewRecord:
    """Return the next attempt at a message, as it is stored where it goes."""
    properties = failed.properties
    properties.setdefault(RETRY_TOPIC, failed.topic)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = format_offset_id(failed.store_host, failed.log_offset)
    properties |= {WAIT: "false", DELAY: str(level)}
    return NewRecord(
        place.topic.topic_name,
        place.queue_id,
        bytes(failed.body),
        encode_properties(properties),
        properties,
        failed.flag,
        failed.sys_flag,
        failed.born_at_ms,
        failed.born_host,
        failed.reconsume_times + 1,
    )


def _refusal(error: StoreError | MessageRefusedError) -> Command:
    if isinstance(error, MessageRefusedError):
        status = error.status
    else:
        status = "MESSAGE_ILLEGAL" if isinstance(error, MessageIllegalError) else "SERVICE_NOT_AVAILABLE"
    return Command.response(ResponseCode.SYSTEM_ERROR, status)
