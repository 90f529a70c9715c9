"""Showing a group messages that it is not handed (``PeekMessageProcessor``; pop.md §10).

Rules

    1. Messages are those that would be handed out next, whatever a filter says; those of the retry topic keep its name.
    2. The retry topic comes last, in a share of the requests first; only the one that is written is looked at.
    3. Nothing is stored, nothing moves, nobody waits.
"""

import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from ...common.names import pop_retry_topics
from ...store.consumequeue.queue_reader import ReadLimits, ReadResult, ReadStatus
from ...store.message_store import MessageStore
from ..group.filters import TAKES_ALL
from ..settings.live import LiveSettings
from ..settings.refusal import Refusal
from .handing_out import MOST_BYTES, PopValidator
from .leases import LeaseQueue, Leases
from .revival import PopTables

MOST_SHOWN: Final = 1_024
"""Of one request; Java's broker has no limit."""
_RETRY_FIRST_EVERY: Final = 5
_CHANCES: Final = 100
_OUTSIDE: Final = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY)


class PeekRequest(Protocol):
    """Of which queues messages are wanted."""

    consumer_group: str
    topic: str
    queue_id: int
    max_messages: int


class Peeked(NamedTuple):
    """What was found; ``rest`` is what the queues have in all."""

    records: list[memoryview]
    rest: int


class PeekOperation:
    """Shows messages; ``chance`` returns a number below the one that it is given."""

    def __init__(
        self,
        store: MessageStore,
        settings: LiveSettings,
        validator: PopValidator,
        tables: PopTables,
        leases: Leases,
        chance: Callable[[int], int] = random.randrange,
    ) -> None:
        self._store = store
        self._settings = settings
        self._validator = validator
        self._tables = tables
        self._leases = leases
        self._chance = chance

    def __repr__(self) -> str:
        return f"<PeekOperation {self._leases!r}>"

    def peek(self, request: PeekRequest, consumer: tuple[str, int]) -> Peeked | Refusal:
        """Return what would be handed out next."""
        refusal = self._validator.refuse_look(request, consumer)
        if refusal is not None:
            return refusal
        records: list[memoryview] = []
        rest, room = 0, min(request.max_messages, MOST_SHOWN)
        for queue in self._queues(request):
            start_offset = self._next_offset(queue)
            rest += self._store.max_offset(queue.topic, queue.queue_id) - start_offset
            if room > 0:
                result = self._read(queue, start_offset, room)
                records += result.records
                room -= result.message_count
        return Peeked(records, rest)

    def _queues(self, request: PeekRequest) -> Iterator[LeaseQueue]:
        start, group = self._chance(_CHANCES), request.consumer_group
        since_v2, before = pop_retry_topics(request.topic, group)
        retry = since_v2 if self._settings.config.pop.writes_retry_v2 else before
        if start % _RETRY_FIRST_EVERY == 0:
            yield from self._all_queues(group, retry, start)
        if request.queue_id >= 0:
            yield LeaseQueue(group, request.topic, request.queue_id)
        else:
            yield from self._all_queues(group, request.topic, start)
        if start % _RETRY_FIRST_EVERY:
            yield from self._all_queues(group, retry, start)

    def _all_queues(self, group: str, name: str, start: int) -> Iterator[LeaseQueue]:
        topic = self._tables.topics.get(name)
        count = 0 if topic is None else topic.read_queue_nums
        return (LeaseQueue(group, name, (start + number) % count) for number in range(count))

    def _next_offset(self, queue: LeaseQueue) -> int:
        committed = self._tables.offsets.committed(*queue)
        if committed is None:
            committed = max(0, self._store.min_offset(queue.topic, queue.queue_id))
        return self._leases.next_offset(queue, committed)

    def _read(self, queue: LeaseQueue, start_offset: int, most: int) -> ReadResult:
        limits, accepts = ReadLimits(most, MOST_BYTES), TAKES_ALL[:2]
        result = self._store.read(queue.topic, queue.queue_id, start_offset, limits, *accepts)
        if result.status in _OUTSIDE and result.next_offset != start_offset:
            result = self._store.read(queue.topic, queue.queue_id, result.next_offset, limits, *accepts)
        return result
