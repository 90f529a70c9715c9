"""Follows a topic: what is in its queues, then what comes, until a place or without end.

    position      a queue is read from it            and until it
    begin         the first message that it has      -
    end           what comes from now on             what is there now
    offset        the message with that offset       messages below it; those that are not there yet are waited for
    time          the first one stored then          messages stored before; the end of the queue once it is over

Each queue is read by a task of its own, by single pulls that the broker holds (``queue_fetcher.pull_once``), without a
consumer group and without committing anything. Messages of one queue come in their order; those of different queues as
they arrive. A broker that is away is tried again; an answer with an error code ends the following. Queues that the
topic gets meanwhile are followed from their beginning, unless queues were named. Who went as far as an offset in each
queue goes on with a mapping of them as the start; queues that it does not name are read from their beginning.
"""

import asyncio
import enum
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from ...common.codes import ResponseCode
from ...common.errors import RemotingError, ResponseError, RocketletError, RouteNotFoundError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.subscriptions.subscription import ALL
from ...remoting.transport.event_loop import TaskScope
from ..group.broker_requests import BrokerRequests
from ..group.queue_fetcher import PullResult, PullStatus, SinglePull, pull_once
from ..group.subscriptions import Sql
from ..session.session import Session
from ..session.settings import check_queue_offset
from .admin_calls import AdminCalls
from .stored_messages import READER_GROUP

_log = logging.getLogger(__name__)

PULL_MESSAGES = 32
MOST_WAITING = 1_024
HOLD_MS = 15_000
PAUSE_MS = 1_000
NEW_QUEUES_MS = 30_000
_BUSY_CODES = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL})


class PositionKind(enum.Enum):
    """What a position is counted by."""

    BEGIN = "begin"
    END = "end"
    OFFSET = "offset"
    TIME = "time"


class Position(NamedTuple):
    """A place in every queue of a topic; ``value`` is an offset, or milliseconds since 1970."""

    kind: PositionKind
    value: int = 0

    @classmethod
    def begin(cls) -> Self:
        """Return the first message that is there."""
        return cls(PositionKind.BEGIN)

    @classmethod
    def end(cls) -> Self:
        """Return the end of each queue as it is when the following begins."""
        return cls(PositionKind.END)

    @classmethod
    def offset(cls, queue_offset: int) -> Self:
        """Return an offset.

        Raises:
            ValueError: it is negative.
        """
        check_queue_offset(queue_offset)
        return cls(PositionKind.OFFSET, queue_offset)

    @classmethod
    def time(cls, at_ms: int) -> Self:
        """Return an instant.

        Raises:
            ValueError: it is negative.
        """
        check_queue_offset(at_ms)
        return cls(PositionKind.TIME, at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPlan:
    """What is followed of a topic: from where, how far, which messages, of which queues."""

    topic: str
    start: Position | Mapping[MessageQueue, int]
    until: Position | None = None
    expression: str | Sql = ALL
    queues: Collection[MessageQueue] | None = None

    def __post_init__(self) -> None:
        """Check what needs no server."""
        if self.until is not None and self.until.kind is PositionKind.BEGIN:
            raise ValueError("nothing comes until the beginning")


class TopicTail:
    """The messages of a topic as they come; use it with ``async with`` and ``async for``."""

    def __init__(self, session: Session, calls: AdminCalls, plan: TailPlan) -> None:
        self._session = session
        self._calls = calls
        self._plan = plan
        self._brokers = BrokerRequests(session, timeout_ms=calls.timeout_ms)
        self._tasks = TaskScope()
        self._ready: asyncio.Queue[ReceivedMessage | RocketletError | None]
        self._followed: set[MessageQueue] = set()
        self._reading = 0
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<TopicTail {self._plan.topic}, {self._reading} queues>"

    async def __aenter__(self) -> Self:
        """Find the queues and begin to read them.

        Raises:
            RouteNotFoundError: there is no such topic.
            ValueError: the topic has not the queues that were named.
        """
        starts = {queue: await self._start_of(queue) for queue in await self._find_queues()}
        ends = {queue: await self._end_of(queue) for queue in starts}
        self._ready = asyncio.Queue(min(MOST_WAITING, 2 * PULL_MESSAGES * len(starts)))
        await self._tasks.__aenter__()
        for queue, start in starts.items():
            self._follow(queue, start, ends[queue])
        if not starts:
            self._has_ended = True
        if self._plan.queues is None and self._plan.until is None:
            self._tasks.start(self._watch_queues(), name="new queues")
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop reading."""
        await self._tasks.__aexit__(*error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message.

        Raises:
            ResponseError: a broker answered with an error.
        """
        if self._has_ended:
            raise StopAsyncIteration
        found = await self._ready.get()
        if isinstance(found, ReceivedMessage):
            return found
        self._has_ended = True
        if found is None:
            raise StopAsyncIteration
        raise found

    async def _find_queues(self) -> tuple[MessageQueue, ...]:
        known = await self._calls.queues(self._plan.topic)
        if self._plan.queues is None:
            return known
        missing = sorted(set(self._plan.queues) - set(known))
        if missing:
            raise ValueError(f"there is no {missing[0]}")
        return tuple(sorted(self._plan.queues))

    async def _start_of(self, queue: MessageQueue) -> int:
        start = self._plan.start
        if isinstance(start, Position):
            return await self._offset_of(start, queue)
        position = Position.offset(start[queue]) if queue in start else Position.begin()
        return await self._offset_of(position, queue)

    async def _offset_of(self, position: Position, queue: MessageQueue) -> int:
        match position.kind:
            case PositionKind.BEGIN:
                return await self._brokers.first_offset(queue)
            case PositionKind.END:
                return await self._brokers.end_offset(queue)
            case PositionKind.OFFSET:
                return max(position.value, await self._brokers.first_offset(queue))
            case PositionKind.TIME:
                return await self._brokers.offset_at(queue, position.value)

    async def _end_of(self, queue: MessageQueue) -> int | None:
        until = self._plan.until
        if until is None or until.kind is PositionKind.TIME:
            return None
        return until.value if until.kind is PositionKind.OFFSET else await self._brokers.end_offset(queue)

    def _follow(self, queue: MessageQueue, start: int, end: int | None) -> None:
        self._followed.add(queue)
        self._reading += 1
        self._tasks.start(self._read(queue, start, end), name=f"follow {queue}")

    async def _read(self, queue: MessageQueue, next_offset: int, end: int | None) -> None:
        """Read a queue until its end; the last reader tells that all is over, the first that fails how."""
        try:
            while end is None or next_offset < end:
                pulled = await self._pull(queue, next_offset)
                if pulled is None:
                    continue
                for message in pulled.messages:
                    if self._is_over(message.stored_at_ms) or (end is not None and message.queue_offset >= end):
                        return
                    await self._ready.put(message)
                if pulled.status is PullStatus.NO_NEW_MESSAGE and self._ends_here():
                    return
                next_offset = pulled.next_offset
        except RocketletError as error:
            await self._ready.put(error)
        finally:
            self._reading -= 1
            if not self._reading:
                await self._ready.put(None)

    async def _pull(self, queue: MessageQueue, next_offset: int) -> PullResult | None:
        """Return what a pull brought; None when the broker was away, after a pause."""
        try:
            await self._session.route(queue.topic, self._calls.timeout_ms)  # it may have been forgotten meanwhile
            asked = SinglePull(queue, next_offset, self._plan.expression, PULL_MESSAGES, self._wait_ms())
            pulled = await pull_once(self._brokers, READER_GROUP, asked)
        except (RemotingError, RouteNotFoundError) as error:  # a broker that ends takes its topics off the route
            _log.warning("%s cannot be read at offset %d, trying again: %s", queue, next_offset, error)
        except ResponseError as error:
            if error.code not in _BUSY_CODES:
                raise
            _log.warning("%s is busy at offset %d, trying again: %s", queue, next_offset, error)
        else:
            if pulled.status is not PullStatus.NO_MATCHED_MESSAGE or pulled.next_offset > next_offset:
                strip = self._session.namespace.strip_message
                return pulled._replace(messages=[strip(message) for message in pulled.messages])
            _log.info("%s: a slave that is asked for offset %d has not got as far, trying again", queue, next_offset)
        await self._session.clock.sleep(PAUSE_MS)
        return None

    def _wait_ms(self) -> int:
        until = self._plan.until
        if until is None or until.kind is PositionKind.OFFSET:
            return HOLD_MS
        if until.kind is PositionKind.END:
            return 0
        return max(0, min(HOLD_MS, until.value - self._session.clock.now_ms()))

    def _is_over(self, at_ms: int) -> bool:
        until = self._plan.until
        return until is not None and until.kind is PositionKind.TIME and at_ms >= until.value

    def _ends_here(self) -> bool:
        """Tell whether a queue without more messages is read to its end."""
        until = self._plan.until
        is_to_end = until is not None and until.kind is PositionKind.END
        return is_to_end or self._is_over(self._session.clock.now_ms())

    async def _watch_queues(self) -> None:
        while True:
            await self._session.clock.sleep(NEW_QUEUES_MS)
            try:
                for queue in set(await self._calls.queues(self._plan.topic)) - self._followed:
                    self._follow(queue, await self._brokers.first_offset(queue), None)
            except RocketletError as error:
                _log.warning("the queues of %s cannot be asked for: %s", self._plan.topic, error)
