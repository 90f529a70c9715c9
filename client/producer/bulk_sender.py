"""Sends a great many messages: so many requests under way at once, each repeated until a broker has stored it.

    letters -> parcels, one request each -> sent -> stored, else again -> the chunk of the letters is done

Rules
    1. Letters of one topic travel together, up to ``parcel_messages`` and ``parcel_bytes``. Alone travel late ones,
       large ones (they are worth compressing), those of retry topics and those with many properties.
    2. Letters with a sharding key go to the queue of its hash, one request after the other, so that they are stored in
       the order in which they were put. Others go round the queues.
    3. What may heal is tried again after 100 ms, then twice as long each time up to 5 s, for ``patience_ms`` in all;
       so is a message that was stored, but neither flushed nor copied as the broker is set to demand. It may then be
       stored more than once. A topic that no broker is known to have is waited for 10 s at most.
    4. When a broker or this client refuses a parcel for what is in it, its letters are sent one by one: only the one
       that is to blame is refused. The first failure ends the outflow, unless ``on_refused`` takes refused letters.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from ...common.clock import Clock
from ...common.errors import (
    ClientError,
    LetterRefusedError,
    NotSafeError,
    RemotingError,
    ResponseError,
    RocketletError,
    RouteNotFoundError,
)
from ...common.message import Message, MessageQueue
from ...common.names import RETRY_PREFIX
from ...remoting.codec.codes import ResponseCode
from ...remoting.transport.clock import LoopClock
from ...remoting.transport.tasks import TaskScope
from ..session.results import SendResult, SendStatus
from .producer import Producer
from .queue_selection import select_by_hash


class Pace:
    """Lets messages pass at a limited rate."""

    def __init__(self, messages_per_second: float, clock: Clock) -> None:
        self._share_ms = 1000 / messages_per_second
        self._clock = clock
        self._free_at_ms = 0.0

    def __repr__(self) -> str:
        return f"<Pace {1000 / self._share_ms:g} messages a second>"

    @property
    def most_at_once(self) -> int:
        """How many messages pass in a tenth of a second, at least one: larger steps would not be even."""
        return max(1, int(100 / self._share_ms))

    async def wait_turn(self, count: int) -> None:
        """Wait until so many messages may leave."""
        now_ms = self._clock.monotonic_ms()
        leaving_at_ms = max(self._free_at_ms, now_ms)
        self._free_at_ms = leaving_at_ms + count * self._share_ms
        if leaving_at_ms > now_ms:
            await self._clock.sleep(-int(-(leaving_at_ms - now_ms) // 1))


_LARGE_PROPERTIES: Final = 8_192


class Letter(NamedTuple):
    """A message on its way; ``number`` is what an error calls it."""

    message: Message
    number: int
    sharding_key: str | None = None


class Parcel(NamedTuple):
    """Letters that travel in one request, to a queue of their own or to the next of the round."""

    letters: Sequence[Letter]
    queue: MessageQueue | None

    @property
    def topic(self) -> str:
        """The topic of them all."""
        return self.letters[0].message.topic


class Packer:
    """Puts letters of one topic and queue together, up to these limits; what is large or late goes alone."""

    def __init__(self, most_messages: int, most_bytes: int, large_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._large_bytes = large_bytes

    def pack(self, letters: Iterable[Letter], queues: Mapping[str, Sequence[MessageQueue]]) -> Iterator[Parcel]:
        """Yield the parcels; ``queues`` holds those of topics for which there are sharding keys."""
        begun: dict[tuple[str, MessageQueue | None], tuple[list[Letter], int]] = {}
        for letter in letters:
            queue = _queue_of(letter, queues)
            gathered, gathered_bytes = begun.pop((letter.message.topic, queue), ([], 0))
            properties_bytes = sum(len(name) + len(value) for name, value in letter.message.properties.items())
            size = gathered_bytes + len(letter.message.body) + properties_bytes
            goes_alone = properties_bytes > _LARGE_PROPERTIES or self._goes_alone(letter.message)
            if gathered and (goes_alone or size > self._most_bytes):
                yield Parcel(gathered, queue)
                gathered, size = [], size - gathered_bytes
            gathered.append(letter)
            if goes_alone or len(gathered) >= self._most_messages:
                yield Parcel(gathered, queue)
            else:
                begun[letter.message.topic, queue] = gathered, size
        for (_, queue), (gathered, _) in begun.items():
            yield Parcel(gathered, queue)

    def _goes_alone(self, message: Message) -> bool:
        return message.is_late or len(message.body) >= self._large_bytes or message.topic.startswith(RETRY_PREFIX)


def _queue_of(letter: Letter, queues: Mapping[str, Sequence[MessageQueue]]) -> MessageQueue | None:
    if letter.sharding_key is None:
        return None
    choice = queues.get(letter.message.topic)
    return select_by_hash(choice, letter.message, letter.sharding_key) if choice else None


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
class OutflowLimits:
    """How much may be under way, and for how long a message is tried."""

    in_flight: int = 16
    parcel_messages: int = 128
    parcel_bytes: int = 256 * 1024
    patience_ms: int = 120_000


class Chunk:
    """Letters that were put together; ``is_done`` once all are stored, or refused."""

    __slots__ = ("waiting",)

    def __init__(self, parcels: int) -> None:
        self.waiting = parcels

    def __repr__(self) -> str:
        return f"<Chunk {self.waiting} parcels under way>"

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is under way."""
        return not self.waiting


class Outflow:
    """Sends letters through an open producer; use it with ``async with``, and ``drain`` before leaving.

    Its counts: ``stored`` and ``refused`` letters, and ``repeats``, the requests that were made again.
    """

    def __init__(
        self,
        producer: Producer,
        limits: OutflowLimits | None = None,
        *,
        pace: Pace | None = None,
        on_refused: Callable[[LetterRefusedError], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.stored = self.refused = self.repeats = 0
        self._producer = producer
        self._limits = limits or OutflowLimits()
        self._pace = pace
        self._on_refused = on_refused
        self._clock = clock or LoopClock()
        most = self._limits.parcel_messages if pace is None else min(self._limits.parcel_messages, pace.most_at_once)
        self._packer = Packer(most, self._limits.parcel_bytes, producer.settings.compress_from_bytes)
        self._slots = asyncio.Semaphore(self._limits.in_flight)
        self._lanes: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._known_topics: set[str] = set()
        self._scope = TaskScope()
        self._failure: RocketletError | None = None

    def __repr__(self) -> str:
        return f"<Outflow {self.stored} stored, {self.refused} refused>"

    async def __aenter__(self) -> Self:
        """Allow letters to be put."""
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what is still under way."""
        await self._scope.__aexit__(kind, error, trace)

    async def put(self, letters: Sequence[Letter]) -> Chunk:
        """Start to send letters; waits while too much is under way.

        Raises:
            LetterRefusedError: an earlier letter was refused.
            RocketletError: an earlier letter could not be stored in time.
        """
        topics = {letter.message.topic for letter in letters if letter.sharding_key is not None}
        queues = {topic: await self._queues_of(topic) for topic in topics}
        parcels = list(self._packer.pack(letters, queues))
        chunk = Chunk(len(parcels))
        for parcel in parcels:
            await self._slots.acquire()
            self._check()
            if self._pace is not None:
                await self._pace.wait_turn(len(parcel.letters))
            self._scope.start(self._deliver(parcel, chunk), name="parcel")
        return chunk

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

    async def _deliver(self, parcel: Parcel, chunk: Chunk) -> None:
        try:
            async with nullcontext() if parcel.queue is None else self._lanes[parcel.queue]:
                await self._store(parcel)
            chunk.waiting -= 1
        except RocketletError as error:
            self._failure = self._failure or error
            for _ in range(self._limits.in_flight):  # whoever waits for a slot is to see the failure
                self._slots.release()
        finally:
            self._slots.release()

    async def _store(self, parcel: Parcel) -> None:
        """Store a parcel, or each of its letters where one of them is to blame."""
        try:
            await self._insist(parcel.topic, lambda: self._send(parcel))
            self.stored += len(parcel.letters)
        except (TypeError, ValueError, ResponseError) as error:
            if isinstance(error, ResponseError) and error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            if len(parcel.letters) == 1:
                self._refuse(LetterRefusedError(parcel.letters[0].number, str(error)))
                return
            for letter in parcel.letters:
                await self._store(Parcel((letter,), parcel.queue))

    def _refuse(self, refusal: LetterRefusedError) -> None:
        if self._on_refused is None:
            raise refusal
        self.refused += 1
        self._on_refused(refusal)

    async def _send(self, parcel: Parcel) -> None:
        messages = [letter.message for letter in parcel.letters]
        if len(messages) == 1:
            result = await self._producer.send(messages[0], queue=parcel.queue)
        else:
            result = await self._producer.send_batch(messages, queue=parcel.queue)
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
