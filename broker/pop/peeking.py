"""Showing a group messages that it is not handed (``PeekMessageProcessor``; pop.md §10).

Rules

    1. Messages are those that would be handed out next, whatever a filter says; those of the retry topic keep its name.
    2. The retry topic comes last, in a share of the requests first; only the one that is written is looked at.
    3. Nothing is stored, nothing moves, nobody waits.
"""

import random
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple, Protocol

from ...common.names import pop_retry_topics
from ...store.consumequeue.queue_reader import ReadResult, ReadStatus
from ..group.filters import TAKES_ALL
from ..settings.live import LiveSettings
from ..settings.refusal import Refusal
from .group_queues import GroupQueues
from .handing_out import PopValidator
from .leases import LeaseQueue

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
        queues: GroupQueues,
        settings: LiveSettings,
        validator: PopValidator,
        chance: Callable[[int], int] = random.randrange,
    ) -> None:
        self._queues = queues
        self._settings = settings
        self._validator = validator
        self._chance = chance

    def __repr__(self) -> str:
        return f"<PeekOperation {self._queues!r}>"

    def peek(self, request: PeekRequest, consumer: tuple[str, int]) -> Peeked | Refusal:
        """Return what would be handed out next."""
        refusal = self._validator.refuse_look(request, consumer)
        if refusal is not None:
            return refusal
        records: list[memoryview] = []
        rest, room = 0, min(request.max_messages, MOST_SHOWN)
        for queue in self._order(request):
            start_offset = self._queues.next_offset(queue)
            rest += self._queues.rest(queue, start_offset)
            if room > 0:
                result = self._read(queue, start_offset, room)
                records += result.records
                room -= result.message_count
        return Peeked(records, rest)

    def _order(self, request: PeekRequest) -> Iterator[LeaseQueue]:
        start, group = self._chance(_CHANCES), request.consumer_group
        since_v2, before = pop_retry_topics(request.topic, group)
        retries = self._queues.every(group, since_v2 if self._settings.config.pop.writes_retry_v2 else before, start)
        others = self._queues.chosen(group, request.topic, request.queue_id, start)
        return chain(others, retries) if start % _RETRY_FIRST_EVERY else chain(retries, others)

    def _read(self, queue: LeaseQueue, start_offset: int, most: int) -> ReadResult:
        result = self._queues.read(queue, start_offset, most, TAKES_ALL)
        if result.status in _OUTSIDE and result.next_offset != start_offset:
            result = self._queues.read(queue, result.next_offset, most, TAKES_ALL)
        return result
