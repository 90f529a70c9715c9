"""How far a consumer has come in each of its queues, in memory and at the brokers.

    update            moves on only, unless it is a seek; a frozen queue is not moved at all
    persist           UPDATE_CONSUMER_OFFSET, one-way, to the master; at closing with an answer
    start             what the broker has stored; else by the rule of the group:

    from        nothing stored (Java's ``RebalancePushImpl.computePullFromWhere``)
    LAST        the end of the queue; of a retry topic the beginning
    FIRST       0 (the broker corrects it when the queue begins later)
    TIMESTAMP   the first message stored at that time or later; of a retry topic the end

"Stored" includes the answer 0 that a broker gives to a new group of a young topic.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from ...common.clock import Clock
from ...common.errors import ClientError, RemotingError
from ...common.message import MessageQueue
from ...common.names import RETRY_PREFIX
from ..session.brokers import Brokers
from ..session.results import ConsumeFrom

log = logging.getLogger(__name__)

HALF_HOUR_MS = 30 * 60_000

Store = Callable[[str, MessageQueue, int], Awaitable[None]]


class OffsetTable:
    """The offsets of the queues that a consumer owns (the memory part of Java's ``RemoteBrokerOffsetStore``)."""

    __slots__ = ("_frozen", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def __repr__(self) -> str:
        return f"<OffsetTable {len(self._offsets)} queues, {len(self._frozen)} frozen>"

    def __contains__(self, queue: object) -> bool:
        return queue in self._offsets

    def get(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue, or None when none was set."""
        return self._offsets.get(queue)

    def items(self) -> list[tuple[MessageQueue, int]]:
        """Return all queues with their offsets."""
        return list(self._offsets.items())

    def advance(self, queue: MessageQueue, queue_offset: int) -> None:
        """Move a queue on; an older offset and a frozen queue change nothing."""
        if self._frozen and queue in self._frozen:
            return
        if queue_offset > self._offsets.get(queue, -1):
            self._offsets[queue] = queue_offset

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set a queue to any offset."""
        if queue not in self._frozen:
            self._offsets[queue] = queue_offset

    def freeze(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set a queue to an offset that results of messages pulled earlier cannot move."""
        self._offsets[queue] = queue_offset
        self._frozen.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue, and its frozen state."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)


class StartRule(NamedTuple):
    """Where a group begins in a queue that it has no offset for; ``at_ms`` counts for TIMESTAMP only."""

    consume_from: ConsumeFrom
    at_ms: int


def start_rule(consume_from: ConsumeFrom, at_ms: int | None, now_ms: int) -> StartRule:
    """Return the rule of a group; the instant is half an hour ago unless it is given, as in Java."""
    return StartRule(consume_from, now_ms - HALF_HOUR_MS if at_ms is None else at_ms)


class GroupOffsets:
    """The offsets of one group, kept here and stored at the brokers (Java's ``RemoteBrokerOffsetStore``)."""

    def __init__(self, group: str, brokers: Brokers, rule: StartRule) -> None:
        self.table = OffsetTable()
        self._group = group
        self._brokers = brokers
        self._rule = rule

    def __repr__(self) -> str:
        return f"<GroupOffsets {self._group} {self.table!r}>"

    async def find_start(self, queue: MessageQueue) -> int:
        """Return where to begin: what is stored, else by the rule.

        Raises:
            RemotingError: a broker did not answer in time.
            ClientError: a broker is not known, or answered with an error.
        """
        stored = await self._read(queue)
        if stored is not None and stored >= 0:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self._rule.consume_from is ConsumeFrom.FIRST:
            return 0
        if self._rule.consume_from is ConsumeFrom.LAST:
            return 0 if is_retry else await self._brokers.end_offset(queue)
        return await (self._brokers.end_offset(queue) if is_retry else self._brokers.offset_at(queue, self._rule.at_ms))

    async def _read(self, queue: MessageQueue) -> int | None:
        return await self._brokers.stored_offset(self._group, queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store offsets without waiting for answers; what does not arrive is stored the next time."""
        await self._store(self._brokers.store_offset_oneway, queues)

    async def persist_now(self, queues: Iterable[MessageQueue]) -> None:
        """Store offsets and wait until the brokers have them."""
        await self._store(self._brokers.store_offset, queues)

    async def persist_at_end(self, queues: Iterable[MessageQueue], clock: Clock, timeout_ms: int) -> None:
        """Store offsets and wait until the brokers have them, or until the time is over."""
        try:
            async with clock.timeout(timeout_ms):
                await self.persist_now(queues)
        except TimeoutError:
            log.warning(
                "group %s: closing before all offsets are committed, some messages will be consumed again", self._group
            )

    async def _store(self, store: Store, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            queue_offset = self.table.get(queue)
            if queue_offset is None:
                continue
            try:
                await store(self._group, queue, queue_offset)
            except (RemotingError, ClientError) as error:
                log.warning("group %s: committing offset %d of %s failed: %s", self._group, queue_offset, queue, error)
