"""The queues that a group may be handed something of, and where it would go on in each; looking moves nothing."""

from collections.abc import Iterator
from typing import Final

from ...store.consumequeue.queue_reader import ReadLimits, ReadResult
from ...store.message_store import MessageStore
from ..group.filters import PullFilter
from .leases import LeaseQueue, Leases
from .revival import PopTables

MOST_BYTES: Final = 128 << 20
"""Of what one request finds."""


class GroupQueues:
    """Finds and reads queues, for those who hand messages out, show them, or tell whether there are any."""

    def __init__(self, store: MessageStore, tables: PopTables, leases: Leases) -> None:
        self._store = store
        self._tables = tables
        self._leases = leases

    def __repr__(self) -> str:
        return f"<GroupQueues {self._leases!r}>"

    def count(self, topic_name: str) -> int:
        """Return how many queues of a topic can be read, 0 without it."""
        topic = self._tables.topics.get(topic_name)
        return 0 if topic is None else topic.read_queue_nums

    def every(self, group: str, topic_name: str, start: int = 0) -> Iterator[LeaseQueue]:
        """Yield all queues of a topic from one on, round about."""
        count = self.count(topic_name)
        return (LeaseQueue(group, topic_name, (start + number) % count) for number in range(count))

    def chosen(self, group: str, topic_name: str, queue_id: int, start: int = 0) -> Iterator[LeaseQueue]:
        """Yield the queue that is named, all if none is."""
        if queue_id < 0:
            return self.every(group, topic_name, start)
        return iter((LeaseQueue(group, topic_name, queue_id),))

    def next_offset(self, queue: LeaseQueue) -> int:
        """Return where reading would go on: behind what is handed out; a group without an offset is at the start."""
        committed = self._tables.offsets.committed(*queue)
        if committed is None:
            committed = max(0, self._store.min_offset(queue.topic, queue.queue_id))
        return self._leases.next_offset(queue, committed)

    def rest(self, queue: LeaseQueue, offset: int) -> int:
        """Return how much a queue has from an offset on."""
        return self._store.max_offset(queue.topic, queue.queue_id) - offset

    def read(self, queue: LeaseQueue, start_offset: int, most: int, wanted: PullFilter) -> ReadResult:
        """Read a queue."""
        limits, accepts = ReadLimits(most, MOST_BYTES), wanted[:2]
        return self._store.read(queue.topic, queue.queue_id, start_offset, limits, *accepts)
