"""What administrators take away, and where they have groups go on.

207  DELETE_SUBSCRIPTIONGROUP       a group, with its offsets if that is asked for
215  DELETE_TOPIC_IN_BROKER         a topic: its settings, queues, statistics, and the offsets that groups have in it
222  INVOKE_BROKER_TO_RESET_OFFSET  another offset for a group, by time or by number

Upstream: ``AdminBrokerProcessor`` (spec remoting.md §4.9 and §4.11, behaviour.md D.1 and D.3). All are answered when
the tables are on the disk; the records of a topic stay in the log until they expire. Unlike in Java's broker, a pull
that waits for messages of the topic is answered at once, and what was handed out before a reset does not come again.
"""

from collections.abc import Callable, Container, Mapping

from ...common.codes import ResponseCode
from ...common.message import MessageQueue
from ...common.names import is_system_topic, pop_retry_topics
from ...common.outcome import Outcome
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.client import ResetOffsets
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.client import DeletedTopicHeader, DeleteGroupHeader
from ...remoting.headers.offset import ResetOffsetHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ...store.message_store import MessageStore
from ..group.groups import MAX_QUEUES, GroupTable, OffsetTable
from ..outcomes.scheduler import LongPolling
from ..settings.live import LiveSettings
from ..topic.topics import TopicTable
from .cleaning import CleaningJob
from .handlers import Save, answer_when_done, answer_when_saved
from .statistics import BrokerStatistics

_BY_TIME = -1


class TopicDeletion:
    """Deletes topics; one that is not there is gone, too, with what is left of it."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        statistics: BrokerStatistics,
        long_polling: LongPolling,
        cleaning: CleaningJob,
        save: Save,
        own_topics: Container[str],
        forget_leases: Callable[[], object],
    ) -> None:
        self._forget_leases = forget_leases
        self._topics = topics
        self._offsets = offsets
        self._statistics = statistics
        self._long_polling = long_polling
        self._cleaning = cleaning
        self._save = save
        self._own_topics = own_topics

    @answers(Code.DELETE_TOPIC_IN_BROKER)
    def delete(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Delete a topic, and those in which POP consumers retry its messages."""
        name = decode_header(DeletedTopicHeader, command).topic
        if not name.strip():
            return Command.response(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if name in self._own_topics or is_system_topic(name):
            remark = f"The topic[{name}] is conflict with system topic."
            return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        retries = [topic for group in self._offsets.groups_of(name) for topic in pop_retry_topics(name, group)]
        gone = frozenset([name, *(topic for topic in retries if self._topics.get(topic) is not None)])
        for topic in gone:
            self._forget(topic)
        self._forget_leases()

        async def remove() -> Command:
            answer = await answer_when_saved(self._save)
            await self._cleaning.remove_queues(gone, lambda topic: self._topics.get(topic) is not None)
            return answer

        return answer_when_done(self._cleaning, remove, f"delete topic {name}")

    def _forget(self, topic: str) -> None:
        self._topics.delete(topic)
        self._offsets.drop_topic(topic)
        self._statistics.drop_topic(topic)
        self._long_polling.wake_topic(topic)


class GroupDeletion:
    """Deletes consumer groups; one that is not there is gone, too."""

    def __init__(
        self,
        groups: GroupTable,
        offsets: OffsetTable,
        statistics: BrokerStatistics,
        cleaning: CleaningJob,
        save: Save,
        forget_leases: Callable[[], object],
    ) -> None:
        self._forget_leases = forget_leases
        self._groups = groups
        self._offsets = offsets
        self._statistics = statistics
        self._cleaning = cleaning
        self._save = save

    @answers(Code.DELETE_SUBSCRIPTIONGROUP)
    def delete(self, command: Command, _connection: Connection) -> Outcome[Command]:
        """Delete a group; its members make it anew with their next heartbeat, where groups may be made so."""
        header = decode_header(DeleteGroupHeader, command)
        self._groups.delete(header.group_name)
        if header.clean_offset or header.remove_offset:
            self._offsets.drop_group(header.group_name)
        self._statistics.drop_group(header.group_name)
        self._forget_leases()
        return answer_when_done(
            self._cleaning, lambda: answer_when_saved(self._save), f"delete group {header.group_name}"
        )


class OffsetResets:
    """Has groups go on elsewhere, whether they are online or not (``resetOffsetInner``).

    Where the settings say so, ``by_members`` has their members do it instead, who must be online.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        long_polling: LongPolling,
        cleaning: CleaningJob,
        save: Save,
        settings: LiveSettings,
        by_members: Callable[[ResetOffsetHeader], Command],
        forget_leases: Callable[[str, str, int], object],
    ) -> None:
        self._forget_leases = forget_leases
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._long_polling = long_polling
        self._cleaning = cleaning
        self._save = save
        self._settings = settings
        self._by_members = by_members

    @answers(Code.INVOKE_BROKER_TO_RESET_OFFSET)
    def reset(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Set a group to an offset of one queue, or to an instant in one or all: to the ends if that is negative."""
        header = decode_header(ResetOffsetHeader, command)
        if not self._settings.config.resets_on_server:
            return self._by_members(header)
        topic, group = self._topics.get(header.topic), self._groups.get(header.group)
        if topic is None:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if group is None:
            remark = f"Group {header.group} does not exist"
            return Command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._offsets.takes(header.group, header.topic, header.queue_id):
            remark = f"{header.group} has offsets of {MAX_QUEUES} queues of {header.topic}, which is the limit"
            return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        targets = self._targets(header, topic.read_queue_nums)
        if isinstance(targets, str):
            return Command.response(ResponseCode.SYSTEM_ERROR, targets)
        for queue_id, queue_offset in targets.items():
            self._offsets.reset(header.group, header.topic, queue_id, queue_offset)
            self._forget_leases(header.group, header.topic, queue_id)
        self._long_polling.wake_topic(header.topic)
        name = self._settings.config.broker_name
        table = {MessageQueue(header.topic, name, number): one for number, one in targets.items()}
        body = encode_body(ResetOffsets(offset_table=table))
        name = f"reset the offsets of group {header.group} in {header.topic}"
        return answer_when_done(self._cleaning, lambda: answer_when_saved(self._save, body), name)

    def _targets(self, header: ResetOffsetHeader, queues: int) -> Mapping[int, int] | str:
        """Return the offsets by queue, or why there are none."""
        if header.queue_id < 0:
            if queues <= 0:
                return "No queues to reset."
            return {queue_id: self._at(header, queue_id) for queue_id in range(queues)}
        if header.queue_offset is None or header.queue_offset == _BY_TIME:
            return {header.queue_id: self._at(header, header.queue_id)}
        first = self._store.min_offset(header.topic, header.queue_id)
        end = self._store.max_offset(header.topic, header.queue_id)
        if not max(first, 0) <= header.queue_offset <= end + 1:
            return f"Target offset {header.queue_offset} not in consume queue range [{first}-{end}]"
        return {header.queue_id: header.queue_offset}

    def _at(self, header: ResetOffsetHeader, queue_id: int) -> int:
        if header.at_ms < 0:
            return self._store.max_offset(header.topic, queue_id)
        return self._store.offset_by_time(header.topic, queue_id, header.at_ms)
