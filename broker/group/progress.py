"""Offsets of queues and of groups: requests 14, 15 and 29 to 32 (``ConsumerManageProcessor``; behaviour.md B.7)."""

from typing import Literal

from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.offset import (
    CommitOffsetHeader,
    ConsumerOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from ...remoting.transport.connection import Connection
from ...store.message_store import MessageStore
from ..topic.topics import TopicTable
from .groups import GroupTable
from .members import Members
from .offsets import MAX_QUEUES, OffsetTable

NOT_FOUND_REMARK = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"  # Java's words
NOT_ZERO_REMARK = "Not found, do not set to zero, maybe this group boot first"


class ProgressHandlers:
    """Answers from the offset table and the store's queues."""

    def __init__(
        self,
        store: MessageStore,
        offsets: OffsetTable,
        topics: TopicTable,
        groups: GroupTable,
        members: Members[Connection],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._members = members

    def find_committed(self, command: Command, _connection: Connection) -> Command:
        """Tell how far a group has come.

        A new group begins at 0 while the first message of the queue is still in memory (behaviour.md B.7, rule 2), and
        where that came, or is yet to come, after a member of the group. Java's broker answers 22 for a queue without
        messages: its consumers then ask where the queue ends, and skip a message that has come in between.
        """
        header = decode_header(ConsumerOffsetHeader, command)
        committed = self._offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if committed is None:
            if header.set_zero_if_not_found is False:
                return Command.response(ResponseCode.QUERY_NOT_FOUND, NOT_ZERO_REMARK)
            if not (self._is_young(header) or self._came_before_messages(header)):
                return Command.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND_REMARK)
        return _offset_answer(committed or 0)

    def commit(self, command: Command, _connection: Connection) -> Command:
        """Store how far a group has come; a negative offset, which some clients send, is passed over."""
        header = decode_header(CommitOffsetHeader, command)
        if self._groups.get(header.consumer_group) is None:
            remark = f"Group {header.consumer_group} not exist!"
            return Command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if self._topics.get(header.topic) is None:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if header.queue_id is None:
            return Command.response(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {header.topic}")
        if header.commit_offset is None:
            return Command.response(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {header.topic}")
        if not self._offsets.takes(header.consumer_group, header.topic, header.queue_id):
            remark = f"{header.consumer_group} has offsets of {MAX_QUEUES} queues of {header.topic}, which is the limit"
            return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        if header.commit_offset >= 0:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return Command.response(ResponseCode.SUCCESS)

    def find_by_time(self, command: Command, _connection: Connection) -> Command:
        """Tell which offset of a queue belongs to a time."""
        header = decode_header(SearchOffsetHeader, command)
        is_upper = (header.boundary_type or "").upper() == "UPPER"
        boundary: Literal["LOWER", "UPPER"] = "UPPER" if is_upper else "LOWER"
        return _offset_answer(self._store.offset_by_time(header.topic, header.queue_id, header.at_ms, boundary))

    def find_max(self, command: Command, _connection: Connection) -> Command:
        """Tell the offset that the next message of a queue will have."""
        header = decode_header(MaxOffsetHeader, command)
        return _offset_answer(self._store.max_offset(header.topic, header.queue_id))

    def find_min(self, command: Command, _connection: Connection) -> Command:
        """Tell the first offset of a queue."""
        header = decode_header(QueueHeader, command)
        return _offset_answer(self._store.min_offset(header.topic, header.queue_id))

    def find_first_time(self, command: Command, _connection: Connection) -> Command:
        """Tell when the first message of a queue was stored."""
        header = decode_header(QueueHeader, command)
        stored_at_ms = self._store.earliest_stored_at(header.topic, header.queue_id)
        return Command.response(ResponseCode.SUCCESS, None, StoreTimeReply(stored_at_ms=stored_at_ms))

    def _is_young(self, header: ConsumerOffsetHeader) -> bool:
        topic, queue_id = header.topic, header.queue_id
        return self._store.min_offset(topic, queue_id) <= 0 and self._store.is_in_memory(topic, queue_id, 0)

    def _came_before_messages(self, header: ConsumerOffsetHeader) -> bool:
        queue_id, group = header.queue_id, self._members.consumer_group(header.consumer_group)
        topic = self._topics.get(header.topic)
        if group is None or topic is None or not 0 <= queue_id < topic.read_queue_nums:
            return False
        return self._store.min_offset(header.topic, queue_id) <= 0 and self._is_younger(header, group.came_at)

    def _is_younger(self, header: ConsumerOffsetHeader, log_offset: int) -> bool:
        """Tell whether a queue has no message that was stored before a position of the log."""
        topic, queue_id = header.topic, header.queue_id
        if not self._store.max_offset(topic, queue_id):
            return True
        first = self._store.entries(topic, queue_id, 0, 1)
        return bool(first) and first[0][0] >= log_offset


def _offset_answer(queue_offset: int) -> Command:
    return Command.response(ResponseCode.SUCCESS, None, OffsetReply(queue_offset=queue_offset))
