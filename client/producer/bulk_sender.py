"""Sends a great many messages: so many requests under way at once, each repeated until a broker has stored it.

    messages -> batches, one request each -> sent -> stored, else again -> the handle of the messages is done

Rules
    1. Messages of one topic travel together, up to ``batch_messages`` and ``batch_bytes``. Alone travel late ones,
       large ones (they are worth compressing), those of retry topics and those with many properties.
    2. Messages with a sharding key go to the queue of its hash, one request after the other, so that they are stored
       in the order in which they were put; those with a queue of their own the same. Others go round the queues.
    3. What may heal is tried again after 100 ms, then twice as long each time up to 5 s, for ``patience_ms`` in all;
       so is a message that was stored, but neither flushed nor copied as the broker is set to demand. It may then be
       stored more than once. A topic that no broker is known to have is waited for 10 s at most.
    4. When a broker or this client refuses a batch for what is in it, its messages are sent one by one: only the one
       that is to blame is refused. The first failure ends the sending, unless ``on_refused`` takes refused messages.

Example of batches: 3 messages of topic A and a late one of topic A become two batches; 300 messages of topic B with 128
in a batch become three. Messages of one queue keep their order.

A rate limit lets messages leave at an even pace: each takes its share of the second after the one before it, and a
pause that was longer than needed is not made up for, so that no second sees more than the limit. With 10 a second, 20
at once at 0 ms leave at 0 ms, and whoever comes next waits until 2,000 ms.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import (
    ClientError,
    NotSafeError,
    RemotingError,
    ResponseError,
    RocketletError,
    RouteNotFoundError,
    SendRefusedError,
)
from ...common.message import Message, MessageQueue
from ...common.names import RETRY_PREFIX
from ...remoting.transport.event_loop import LoopClock, TaskScope
from ..session.results import SendResult, SendStatus
from .producer import Producer
from .queue_selection import select_by_hash


class RateLimiter:
    """Lets messages pass at a limited rate."""

    def __init__(self, messages_per_second: float, clock: Clock) -> None:
        self._share_ms = 1000 / messages_per_second
        self.most_at_once = max(1, int(100 / self._share_ms))
        """How many messages pass in a tenth of a second: larger steps would not be even."""
        self._clock = clock
        self._free_at_ms = 0.0

    def __repr__(self) -> str:
        return f"<RateLimiter {1000 / self._share_ms:g} messages a second>"

    async def wait_turn(self, count: int) -> None:
        """Wait until so many messages may leave."""
        now_ms = self._clock.monotonic_ms()
        leaving_at_ms = max(self._free_at_ms, now_ms)
        self._free_at_ms = leaving_at_ms + count * self._share_ms
        if leaving_at_ms > now_ms:
            await self._clock.sleep(-int(-(leaving_at_ms - now_ms) // 1))


_LARGE_PROPERTIES: Final = 8_192


class OutboundMessage(NamedTuple):
    """A message on its way, to a queue of its own or to that of its key; ``number`` is what an error calls it."""

    message: Message
    number: int
    sharding_key: str | None = None
    queue: MessageQueue | None = None


class OutboundBatch(NamedTuple):
    """Messages that travel in one request, to a queue of their own or to the next of the round."""

    outbound: Sequence[OutboundMessage]
    queue: MessageQueue | None

    @property
    def topic(self) -> str:
        """The topic of them all."""
        return self.outbound[0].message.topic


class Batcher:
    """Puts messages of one topic and queue together, up to these limits; what is large or late goes alone."""

    def __init__(self, most_messages: int, most_bytes: int, large_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._large_bytes = large_bytes

    def pack(
        self, outbound: Iterable[OutboundMessage], queues: Mapping[str, Sequence[MessageQueue]]
    ) -> Iterator[OutboundBatch]:
        """Yield the batches; ``queues`` holds those of topics for which there are sharding keys."""
        begun: dict[tuple[str, MessageQueue | None], tuple[list[OutboundMessage], int]] = {}
        for one in outbound:
            queue = _queue_of(one, queues)
            gathered, gathered_bytes = begun.pop((one.message.topic, queue), ([], 0))
            properties_bytes = sum(len(name) + len(value) for name, value in one.message.properties.items())
            size = gathered_bytes + len(one.message.body) + properties_bytes
            goes_alone = properties_bytes > _LARGE_PROPERTIES or self._goes_alone(one.message)
            if gathered and (goes_alone or size > self._most_bytes):
                yield OutboundBatch(gathered, queue)
                gathered, size = [], size - gathered_bytes
            gathered.append(one)
            if goes_alone or len(gathered) >= self._most_messages:
                yield OutboundBatch(gathered, queue)
            else:
                begun[one.message.topic, queue] = gathered, size
        for (_, queue), (gathered, _) in begun.items():
            yield OutboundBatch(gathered, queue)

    def _goes_alone(self, message: Message) -> bool:
        return message.is_late or len(message.body) >= self._large_bytes or message.topic.startswith(RETRY_PREFIX)


def _queue_of(one: OutboundMessage, queues: Mapping[str, Sequence[MessageQueue]]) -> MessageQueue | None:
    if one.queue is not None or one.sharding_key is None:
        return one.queue
    choice = queues.get(one.message.topic)
    return select_by_hash(choice, one.message, one.sharding_key) if choice else None


FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 5_000
UNKNOWN_TOPIC_PATIENCE_MS: Final = 10_000
HEALING_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkLimits:
    """How much may be under way, and for how long a message is tried."""

    in_flight: int = 16
    batch_messages: int = 128
    batch_bytes: int = 256 * 1024
    patience_ms: int = 120_000


class BulkHandle:
    """Messages that were put into a bulk sender together; ``is_done`` once all are stored, or refused."""

    __slots__ = ("waiting",)

    def __init__(self, batches: int) -> None:
        self.waiting = batches

    def __repr__(self) -> str:
        return f"<BulkHandle {self.waiting} batches under way>"

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is under way."""
        return not self.waiting


class BulkSender:
    """Sends messages through an open producer; use it with ``async with``, and ``drain`` before leaving.

    Its counts: ``stored`` and ``refused`` messages, and ``repeats``, the requests that were made again.
    """

    def __init__(
        self,
        producer: Producer,
        limits: BulkLimits | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
        on_refused: Callable[[SendRefusedError], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.stored = self.refused = self.repeats = 0
        self._producer = producer
        self._limits = limits or BulkLimits()
        self._rate_limiter = rate_limiter
        self._on_refused = on_refused
        self._clock = clock or LoopClock()
        most = (
            self._limits.batch_messages
            if rate_limiter is None
            else min(self._limits.batch_messages, rate_limiter.most_at_once)
        )
        self._batcher = Batcher(most, self._limits.batch_bytes, producer.settings.compress_from_bytes)
        self._slots = asyncio.Semaphore(self._limits.in_flight)
        self._lanes: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._known_topics: set[str] = set()
        self._scope = TaskScope()
        self._failure: RocketletError | None = None

    def __repr__(self) -> str:
        return f"<BulkSender {self.stored} stored, {self.refused} refused>"

    async def __aenter__(self) -> Self:
        """Allow messages to be put."""
        await self._scope.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Give up what is still under way."""
        await self._scope.__aexit__(*error)

    async def put(self, outbound: Sequence[OutboundMessage]) -> BulkHandle:
        """Start to send messages; waits while too much is under way.

        Raises:
            SendRefusedError: an earlier one was refused.
            RocketletError: an earlier one could not be stored in time.
        """
        topics = {one.message.topic for one in outbound if one.sharding_key is not None}
        queues = {topic: await self._queues_of(topic) for topic in topics}
        batches = list(self._batcher.pack(outbound, queues))
        handle = BulkHandle(len(batches))
        for batch in batches:
            await self._slots.acquire()
            self._check()
            if self._rate_limiter is not None:
                await self._rate_limiter.wait_turn(len(batch.outbound))
            self._scope.start(self._deliver(batch, handle), name="batch")
        return handle

    async def drain(self) -> None:
        """Wait until everything that was put is stored.

        Raises:
            RocketletError: as ``put``.
        """
        for _ in range(self._limits.in_flight):
            await self._slots.acquire()
        for _ in range(self._limits.in_flight):
            self._slots.release()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _deliver(self, batch: OutboundBatch, handle: BulkHandle) -> None:
        try:
            async with nullcontext() if batch.queue is None else self._lanes[batch.queue]:
                await self._store(batch)
            handle.waiting -= 1
        except RocketletError as error:
            self._failure = self._failure or error
            for _ in range(self._limits.in_flight):  # whoever waits for a slot is to see the failure
                self._slots.release()
        finally:
            self._slots.release()

    async def _store(self, batch: OutboundBatch) -> None:
        """Store a batch, or each of its messages where one of them is to blame."""
        try:
            await self._insist(batch.topic, lambda: self._send(batch))
            self.stored += len(batch.outbound)
        except (TypeError, ValueError, ResponseError) as error:
            if isinstance(error, ResponseError) and error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            if len(batch.outbound) == 1:
                self._refuse(SendRefusedError(batch.outbound[0].number, str(error)))
                return
            for one in batch.outbound:
                await self._store(OutboundBatch((one,), batch.queue))

    def _refuse(self, refusal: SendRefusedError) -> None:
        if self._on_refused is None:
            raise refusal
        self.refused += 1
        self._on_refused(refusal)

    async def _send(self, batch: OutboundBatch) -> None:
        messages = [one.message for one in batch.outbound]
        if len(messages) == 1:
            result = await self._producer.send(messages[0], queue=batch.queue)
        else:
            result = await self._producer.send_batch(messages, queue=batch.queue)
        _check_stored(result)

    async def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        found: list[MessageQueue] = []

        async def fetch() -> None:
            found[:] = await self._producer.fetch_queues(topic)

        try:
            await self._insist(topic, fetch)
        except (TypeError, ValueError):
            return ()  # no topic at all; sending says so
        return found

    async def _insist(self, topic: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try until it succeeds or its time is over, and raise what the last attempt did."""
        begun_ms, pause_ms = self._clock.monotonic_ms(), FIRST_PAUSE_MS
        while True:
            try:
                await attempt()
            except (RemotingError, ClientError) as error:
                left_ms = begun_ms + self._patience_ms(topic, error) - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise
            else:
                self._known_topics.add(topic)
                return
            self.repeats += 1
            await self._clock.sleep(min(pause_ms, left_ms))
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)

    def _patience_ms(self, topic: str, error: RocketletError) -> int:
        """Return how long to go on after an error, counted from the first attempt."""
        if isinstance(error, RouteNotFoundError) and topic not in self._known_topics:
            return min(self._limits.patience_ms, UNKNOWN_TOPIC_PATIENCE_MS)
        heals = isinstance(error, RemotingError | RouteNotFoundError | NotSafeError)
        heals = heals or (isinstance(error, ResponseError) and error.code in HEALING_CODES)
        return self._limits.patience_ms if heals else 0


def _check_stored(result: SendResult) -> None:
    if result.status is not SendStatus.SEND_OK:
        raise NotSafeError(f"{result.queue.broker_name} answered {result.status.value}")
