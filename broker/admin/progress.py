"""How far queues are, and how far groups are in them (``AdminBrokerProcessor``; spec behaviour.md D.2)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...common.metadata import TopicConfig
from ...store.message_store import MessageStore
from ..group.groups import OffsetTable
from ..topic.topics import TopicTable


class QueueEnds(NamedTuple):
    """The first offset of a queue, the next one, and when its last message was stored; 0 when it has none."""

    first: int
    end: int
    last_at_ms: int


class Position(NamedTuple):
    """Where a queue ends, what a group has committed and was handed out, and when the last committed was stored."""

    end: int
    committed: int
    handed_out: int
    last_at_ms: int


class Progress:
    """Looks at queues and offsets."""

    def __init__(self, store: MessageStore, topics: TopicTable, offsets: OffsetTable) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets

    def known(self, topics: Iterable[str]) -> Sequence[TopicConfig]:
        """Return those topics that the broker has."""
        return [topic for name in topics if (topic := self._topics.get(name)) is not None]

    def of_topic(self, topic: TopicConfig) -> Sequence[QueueEnds]:
        """Return the ends of all queues, those that are only read or only written as well."""
        return [
            self._ends(topic.topic_name, queue_id)
            for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums))
        ]

    def of_group(self, group: str, topic: TopicConfig) -> Sequence[Position]:
        """Return where a group is in the queues that may be read."""
        name = topic.topic_name
        committed = self._offsets.of_topic(group, name)
        return [
            self._position(group, name, queue_id, committed.get(queue_id, 0))
            for queue_id in range(topic.read_queue_nums)
        ]

    def _ends(self, topic: str, queue_id: int) -> QueueEnds:
        end = self._store.max_offset(topic, queue_id)
        first = self._store.min_offset(topic, queue_id)
        return QueueEnds(max(first, 0), max(end, 0), self._stored_before(topic, queue_id, end))

    def _position(self, group: str, topic: str, queue_id: int, committed: int) -> Position:
        return Position(
            max(self._store.max_offset(topic, queue_id), 0),
            committed,
            max(self._offsets.handed_out(group, topic, queue_id), committed),
            self._stored_before(topic, queue_id, committed),
        )

    def _stored_before(self, topic: str, queue_id: int, queue_offset: int) -> int:
        return max(self._store.stored_at(topic, queue_id, queue_offset - 1), 0) if queue_offset > 0 else 0
