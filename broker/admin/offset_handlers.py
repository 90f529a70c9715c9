"""The adapter of the wire for offsets of groups and entries of queues, as administrators ask for them.

303  QUERY_CONSUME_TIME_SPAN  how late a group is              308  QUERY_CORRECTION_OFFSET  where the last of groups is
314  CLONE_GROUP_OFFSET       the offsets of another group     321  QUERY_CONSUME_QUEUE      what stands in a queue

Upstream: ``AdminBrokerProcessor`` (spec remoting.md §4.11, §4.14, behaviour.md D.2, D.3). Unlike it, 308 leaves the
offsets of the groups alone that do not count, where Java forgets them, and 303 tells how late a group is that has no
offset by the first message, where Java counts from 1970.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

from ...common.codes import ResponseCode
from ...common.java_json import write_json
from ...common.message import MessageQueue
from ...common.outcome import Outcome
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.client import SubscriptionData
from ...remoting.bodies.reports import ConsumeTimeSpan, ConsumeTimeSpans, CorrectedOffsets, QueueEntries, QueueEntry
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.admin import CloneOffsetsHeader, CorrectionHeader, QueueEntriesHeader, TimeSpanHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ...store.message_store import MessageStore
from ..group.filters import FilterTable
from ..group.groups import GroupTable, OffsetTable
from ..group.members import EveryMember, Members
from ..topic.topics import TopicTable
from .cleaning import CleaningJob
from .handlers import answer_when_done, answer_when_saved

MOST_ENTRIES = 10_000
"""Of a queue in one answer; Java's has none."""
_ALL = 2**63 - 1


class OffsetReports:
    """Compares groups with queues and with each other."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: OffsetTable,
        broker_name: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._broker_name = broker_name
        self._now_ms = now_ms

    @answers(Code.QUERY_CONSUME_TIME_SPAN)
    def tell_times(self, command: Command, _connection: Connection) -> Command:
        """Tell when the messages of each queue were stored, and how long the next one of a group has waited."""
        header = decode_header(TimeSpanHeader, command)
        topic = self._topics.get(header.topic)
        if topic is None:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = [self._span(header.group, header.topic, number) for number in range(topic.write_queue_nums)]
        return _success(encode_body(ConsumeTimeSpans(consume_time_span_set=spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> ConsumeTimeSpan:
        store = self._store
        first_ms = store.earliest_stored_at(topic, queue_id)
        last_ms = store.stored_at(topic, queue_id, store.max_offset(topic, queue_id) - 1)
        committed = self._offsets.committed(group, topic, queue_id) or 0
        consumed_ms = store.stored_at(topic, queue_id, committed - 1) if committed else first_ms
        next_ms = store.stored_at(topic, queue_id, max(committed, store.min_offset(topic, queue_id)))
        return ConsumeTimeSpan(
            message_queue=MessageQueue(topic, self._broker_name, queue_id),
            min_time_stamp=first_ms,
            min_time_stamp_str=_format_time(first_ms),
            max_time_stamp=last_ms,
            max_time_stamp_str=_format_time(last_ms),
            consume_time_stamp=consumed_ms,
            consume_time_stamp_str=_format_time(consumed_ms),
            delay_time=max(0, self._now_ms() - next_ms) if next_ms >= 0 else 0,
        )

    @answers(Code.QUERY_CORRECTION_OFFSET)
    def tell_last(self, command: Command, _connection: Connection) -> Command:
        """Tell where the last group of a topic is in each queue; nowhere if the compared one is behind it."""
        header = decode_header(CorrectionHeader, command)
        filtered = frozenset((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            for queue_id, queue_offset in self._kept(group, header.topic).items() if group not in filtered else ():
                least[queue_id] = min(queue_offset, least.get(queue_id, _ALL))
        for queue_id, queue_offset in self._offsets.of_topic(header.compare_group, header.topic).items():
            if least.get(queue_id, 0) > queue_offset:
                least[queue_id] = _ALL
        return _success(write_json(CorrectedOffsets(correction_offsets=least), quotes_integer_keys=False))

    def _kept(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offsets of a group whose messages are still there."""
        found = self._offsets.of_topic(group, topic)
        return {number: one for number, one in found.items() if one >= self._store.min_offset(topic, number)}


class OffsetCopies:
    """Has groups go on where others are."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        members: Members[Connection],
        cleaning: CleaningJob,
        save: Callable[[], Awaitable[bool]],
        forget_leases: Callable[[str, str, int], object],
    ) -> None:
        self._forget_leases = forget_leases
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._members = members
        self._cleaning = cleaning
        self._save = save

    @answers(Code.CLONE_GROUP_OFFSET)
    def clone(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Copy the offsets of a group to another: of a topic, or of all that are there and that it subscribes to."""
        header = decode_header(CloneOffsetsHeader, command)
        if self._groups.find(header.target_group) is None:
            remark = f"Group {header.target_group} not exist!"
            return Command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        wanted = [header.topic] if header.topic and header.topic.strip() else self._topics_of(header.source_group)
        online = None if header.is_offline else self._members.consumer_group(header.source_group)
        for topic in wanted:
            is_given_up = online is not None and bool(online.subscriptions) and topic not in online.subscriptions
            if self._topics.get(topic) is not None and not is_given_up:
                self._offsets.clone(header.source_group, header.target_group, topic)
                for queue_id in list(self._offsets.of_topic(header.target_group, topic)):
                    self._forget_leases(header.target_group, topic, queue_id)
        name = f"clone the offsets of group {header.source_group} to {header.target_group}"
        return answer_when_done(self._cleaning, lambda: answer_when_saved(self._save), name)

    def _topics_of(self, group: str) -> list[str]:
        return self._offsets.topics_of(group)


class QueueEntryReports:
    """Shows what stands in queues."""

    def __init__(self, store: MessageStore, members: EveryMember, filters: FilterTable) -> None:
        self._store = store
        self._members = members
        self._filters = filters

    @answers(Code.QUERY_CONSUME_QUEUE)
    def tell_entries(self, command: Command, _connection: Connection) -> Command:
        """Tell some entries of a queue, and what a group wants of its topic."""
        header = decode_header(QueueEntriesHeader, command)
        first = max(self._store.min_offset(header.topic, header.queue_id), 0)
        end = self._store.max_offset(header.topic, header.queue_id)
        place = f"{header.queue_id}@{header.topic}"
        if not end:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"{place} is not exist!")
        if not first <= header.index < end:
            return Command.response(ResponseCode.SUCCESS, f"Index {header.index} of {place} is not exist!")
        told = QueueEntries(min_queue_index=first, max_queue_index=end, queue_data=self._entries(header, end))
        if header.consumer_group:
            self._add_filter(told, header.consumer_group, header.topic)
        return _success(encode_body(told))

    def _entries(self, header: QueueEntriesHeader, end: int) -> list[QueueEntry]:
        found: list[QueueEntry] = []
        next_offset, stop = header.index, min(end, header.index + min(max(header.count, 0), MOST_ENTRIES))
        while next_offset < stop:
            entries = self._store.entries(header.topic, header.queue_id, next_offset, stop - next_offset)
            if not entries:
                break
            next_offset += len(entries)
            found += [QueueEntry(physic_offset=at, physic_size=size, tags_code=code) for at, size, code in entries]
        return found

    def _add_filter(self, told: QueueEntries, group: str, topic: str) -> None:
        online = self._members.consumer_group(group)
        subscription = online.subscriptions.get(topic) if online is not None else None
        if subscription is None:
            told.filter_data = f"{group}@{topic} is not online!"
            return
        found = self._filters.find(topic, group)
        told.filter_data = "null" if found is None else encode_body(found).decode()
        told.subscription_data = SubscriptionData.from_subscription(subscription)


def _format_time(at_ms: int) -> str:
    """Return an instant as Java's ``UtilAll.timeMillisToHumanString2`` … ``yyyy-MM-dd#HH:mm:ss:SSS`` writes it."""
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(at_ms // 1000))}:{at_ms % 1000:03d}"


def _success(body: bytes) -> Command:
    return Command.response(ResponseCode.SUCCESS, body=body)
