"""Pulls ranges of queues from brokers, with many pulls under way, and gives the answers in order.

    range     [ fetch range )[ fetch range )[ …     one pull each, all at once; an answer that ends early is followed
                                                    by pulls for the rest of its fetch range

    asked 32, got 32, got 32, …        as long again; after some of these once twice as long, to find out
    asked 32, got 20                   20 from now on
    asked 64 on trial, got 32          32 as before, and the next trial comes later

Rules:

- How many messages a broker puts into an answer, it decides itself (32 or 256 KiB by default), so fetch ranges are as
  long as the last answers were (``AdaptiveFetchSize``): a broker that permits more is found out soon, and one that does
  not costs one more pull now and then.
- A pull that fails is sent again after a pause, to the address that a name server tells then. When that is of no use
  either, the reading ends with one error that names queue, offset, broker and reason.
- Offsets that a broker does not have any more are data loss (``DataLoss``); the reading goes on with those that it has.
- Each ``collect`` has connections of its own and ends with nothing under way: what comes between two of them may last.
- Where requests need nothing done to them (no keys of a user), their frames come ready from ``PullFrames``.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, Self

from ...client.session.interceptors import RequestPipeline
from ...client.session.routes import MASTER_ID, choose_address
from ...client.session.session import Session
from ...client.session.settings import ssl_context_of
from ...common.codes import ResponseCode
from ...common.errors import RemotingError, ResponseError, RocketletError
from ...common.message import PULL_SUBSCRIPTION, MessageQueue
from ...common.metadata import TopicConfig
from ...common.names import is_system_topic
from ...common.subscription import ALL, TAG_TYPE
from ...export.write.pulled_reader import PulledRecords
from ...remoting.bodies.body import decode_answer
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import TopicHeader
from ...remoting.headers.pull import PullFrames, PullHeader, PullReply
from ...remoting.transport.client import ConnectionPool
from ...remoting.transport.event_loop import LoopClock, TaskScope
from ..cluster.cluster import is_transient
from ..cluster.cluster_options import ClusterOptions
from ..cluster.queue_ranges import QueueRange

_CODE: Final = RequestCode.PULL_MESSAGE
_TOPIC_CODE: Final = RequestCode.GET_TOPIC_CONFIG


_log = logging.getLogger(__name__)


_SUCCESS: Final = int(ResponseCode.SUCCESS)


_NEXT: Final = frozenset(
    {ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED}
)


MOST_MESSAGES: Final = 1024


_FIRST_PATIENCE: Final = 16


_LONGEST_PATIENCE: Final = 1024


class FetchRange(NamedTuple):
    """Offsets that are pulled at once if the broker likes."""

    range: QueueRange
    first: int
    end: int


class FetchedAnswers(NamedTuple):
    """What a fetch range brought, and how many offsets the first answer covered."""

    pulled: list[PulledRecords]
    covered: int


class FetchAnswer(NamedTuple):
    """What one pull brought, and where the next one begins."""

    code: int
    next_offset: int
    body: bytes


@dataclass
class BrokerKnowledge:
    """What a reading has found out: where brokers are now, and which tags they shall filter by topic."""

    addresses: dict[str, str] = field(default_factory=dict[str, str])
    expressions: dict[str, str] = field(default_factory=dict[str, str])


class PullConnections:
    """Sends pulls to where the brokers are."""

    def __init__(self, options: ClusterOptions, learned: BrokerKnowledge) -> None:
        self.clock = LoopClock()
        self._options = options
        self._timeout_ms = options.access.timeout_ms
        self._learned = learned
        self._pool = ConnectionPool(self.clock, tls=ssl_context_of(options.access.tls))
        self._pipeline = RequestPipeline(options.access.client_settings, namespace="")
        self._frames: dict[MessageQueue, PullFrames] = {}

    async def __aenter__(self) -> Self:
        """Connections are made when they are needed."""
        await self._pool.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the connections."""
        await self._pool.__aexit__(*error)

    def address_of(self, pulled: QueueRange) -> str:
        """Return where the broker of a range is, as far as is known."""
        return self._learned.addresses.get(pulled.broker, pulled.address)

    def filters(self, pulled: QueueRange) -> bool:
        """Tell whether the broker filters by tags."""
        return self._learned.expressions.get(pulled.topic, ALL) != ALL

    async def prepare(self, pulled: QueueRange) -> None:
        """Find out whether the broker of a range can filter by tags, before it is pulled.

        Of an inner batch brokers know no tags, and of a system topic other ones: there, and in doubt, all is pulled.
        """
        topic, tags = pulled.topic, self._options.selection.tags
        if topic not in self._learned.expressions:
            is_filtered = bool(tags) and not is_system_topic(topic) and await self._has_single_messages(pulled)
            self._learned.expressions[topic] = "||".join(sorted(tags)) if is_filtered else ALL

    async def pull(self, pulled: QueueRange, queue_offset: int, max_messages: int) -> Command:
        """Return the answer to a pull, whatever its code.

        Raises:
            RemotingError: None came in time.
        """
        if not self._pipeline.is_empty:
            return await self._ask(pulled, Command.request(_CODE, self._header(pulled, queue_offset, max_messages)))
        address = self.address_of(pulled)
        connection = await self._pool.connect(address)
        opaque = connection.next_opaque()
        frame = self._frames_of(pulled).encode(queue_offset, max_messages, opaque)
        return self._close_if_told(address, await connection.ask_frame(frame, opaque, _CODE, self._timeout_ms))

    async def find_again(self, pulled: QueueRange) -> str | None:
        """Learn from a name server where a broker is now; return why that is not known."""
        access = self._options.access
        try:
            async with Session(access.nameserver, settings=access.client_settings) as session:
                route = await session.route(pulled.topic, access.timeout_ms)
        except RocketletError as error:
            return str(error)
        found = choose_address(route.brokers.get(pulled.broker, {}), MASTER_ID)
        if found is None:
            return f"no name server knows broker {pulled.broker}"
        self._learned.addresses[pulled.broker] = found.address
        return None

    async def _has_single_messages(self, pulled: QueueRange) -> bool:
        try:
            answer = await self._ask(pulled, Command.request(_TOPIC_CODE, TopicHeader(topic=pulled.topic)))
            config = decode_answer(TopicConfig, answer.body) if answer.code == ResponseCode.SUCCESS else None
        except RocketletError as error:
            _log.warning("topic %s: fetching its type failed, filtering on the client: %s", pulled.topic, error)
            return False
        return config is not None and config.attributes.get("queue.type") != "BatchCQ"

    async def _ask(self, pulled: QueueRange, command: Command) -> Command:
        address = self.address_of(pulled)
        connection = await self._pool.connect(address)
        if not self._pipeline.is_empty:
            self._pipeline.before_request(address, command)
        return self._close_if_told(address, await connection.request(command, self._timeout_ms))

    def _close_if_told(self, address: str, answer: Command) -> Command:
        if answer.code == ResponseCode.GO_AWAY:
            self._pool.close(address)
        return answer

    def _frames_of(self, pulled: QueueRange) -> PullFrames:
        queue = pulled.queue
        if queue not in self._frames:
            self._frames[queue] = PullFrames(self._header(pulled, 0, 0))
        return self._frames[queue]

    def _header(self, pulled: QueueRange, queue_offset: int, max_messages: int) -> PullHeader:
        return PullHeader(
            consumer_group=self._options.group,
            topic=pulled.topic,
            queue_id=pulled.queue_id,
            queue_offset=queue_offset,
            max_messages=max_messages,
            sys_flag=PULL_SUBSCRIPTION,
            subscription=self._learned.expressions.get(pulled.topic, ALL),
            expression_type=TAG_TYPE,
            broker_name=pulled.broker,
        )


@dataclass
class AdaptiveFetchSize:
    """How many messages the next pull asks for; ``patience`` full answers come before each trial."""

    length: int = 32
    full: int = 0
    patience: int = _FIRST_PATIENCE

    def next_length(self) -> int:
        """Return how many messages to ask for."""
        if self.full < self.patience or self.length == MOST_MESSAGES:
            return self.length
        self.full = 0
        return min(2 * self.length, MOST_MESSAGES)

    def learn(self, asked: int, got: int) -> None:
        """Take note of what was asked for and how much of it the first answer covered."""
        if asked > self.length:
            if got >= asked:
                self.length, self.patience = asked, _FIRST_PATIENCE
            else:
                self.patience = min(2 * self.patience, _LONGEST_PATIENCE)
        elif got < asked:
            self.length, self.full = max(got, 1), 0
        else:
            self.full += 1


class RangeFetcher:
    """Pulls ranges one after the other, some answers with each ``collect``."""

    def __init__(self, ranges: Sequence[QueueRange], options: ClusterOptions) -> None:
        self._options = options
        self._fetch_size = AdaptiveFetchSize()
        self._fetches = self._cut(ranges)
        self._bounds: dict[MessageQueue, tuple[int, int]] = {}
        self._learned = BrokerKnowledge()

    async def collect(self) -> list[PulledRecords] | None:
        """Return the next answers in the order of the ranges, ``None`` at the end.

        Raises:
            DataLossError: Messages are not there any more, and that matters.
            RemotingError, ResponseError: A broker cannot be asked.
            DecodeError: An answer cannot be read.
        """
        found: list[PulledRecords] = []
        async with PullConnections(self._options, self._learned) as connections, TaskScope() as scope:
            puller = _Puller(connections, self._options, self._bounds)
            waiting: deque[tuple[FetchRange, asyncio.Task[FetchedAnswers | RocketletError]]] = deque()
            room = self._options.pulls_at_once
            size = count = 0
            while True:
                for fetch in islice(self._fetches, room):
                    await connections.prepare(fetch.range)
                    waiting.append((fetch, scope.start(puller.pull(fetch), name="pull")))
                if not waiting:
                    return found if count else None
                fetch, task = waiting.popleft()
                answers = await task
                if isinstance(answers, RocketletError):
                    raise answers
                self._fetch_size.learn(fetch.end - fetch.first, answers.covered)
                found += answers.pulled
                size += sum(len(each.body) for each in answers.pulled)
                count += fetch.end - fetch.first
                is_full = size >= self._options.batch_bytes or count >= self._options.batch_messages
                room = 0 if is_full else self._options.pulls_at_once - len(waiting)

    def _cut(self, ranges: Sequence[QueueRange]) -> Iterator[FetchRange]:
        for each in ranges:
            position = each.start
            while position < each.stop:
                end = min(position + self._fetch_size.next_length(), each.stop)
                yield FetchRange(each, position, end)
                position = end


class _Puller:
    """Pulls fetch ranges; ``known`` holds what was found out about first and end of queues."""

    def __init__(
        self, connections: PullConnections, options: ClusterOptions, known: dict[MessageQueue, tuple[int, int]]
    ) -> None:
        self._connections = connections
        self._options = options
        self._bounds = known

    async def pull(self, fetch: FetchRange) -> FetchedAnswers | RocketletError:
        """Return what a fetch brings, or why it brings nothing."""
        try:
            return await self._pull(fetch)
        except RocketletError as error:
            return error

    async def _pull(self, fetch: FetchRange) -> FetchedAnswers:
        pulled: list[PulledRecords] = []
        covered, position, queue = 0, fetch.first, fetch.range.queue
        while True:
            first, end = self._bounds.get(queue, (position, fetch.end))
            position, end = max(position, first), min(end, fetch.end)
            if position >= end:
                return FetchedAnswers(pulled, covered or fetch.end - fetch.first)
            answer = await self._ask_with_retries(fetch, position)
            covered = covered or answer.next_offset - fetch.first
            if answer.code == _SUCCESS:
                end = min(answer.next_offset, fetch.end)
                pulled.append(PulledRecords(queue.topic, queue.queue_id, position, end, answer.body))
            else:
                self._note_end_or_gap(fetch.range, position, answer.next_offset)
            position = answer.next_offset

    def _note_end_or_gap(self, pulled: QueueRange, position: int, found: int) -> None:
        """Learn from an answer without messages that they go on elsewhere, or not at all.

        Raises:
            DataLossError: Messages are lost, and that matters.
        """
        queue = pulled.queue
        first, end = self._bounds.get(queue, (0, pulled.stop))
        if found <= position:
            if position < end:
                self._options.data_loss.beyond(queue, pulled.stop, found)
            self._bounds[queue] = (first, found)
        elif not self._connections.filters(pulled) and found > first:
            self._options.data_loss.below(queue, position, found)
            self._bounds[queue] = (found, end)

    async def _ask_with_retries(self, fetch: FetchRange, position: int) -> FetchAnswer:
        """Return an answer that brings messages, or says where to go on.

        Raises:
            RemotingError, ResponseError: None came after so many attempts as the options allow.
        """
        access = self._options.access
        for left in range(access.retries, -1, -1):
            try:
                answer = await self._ask(fetch, position)
                if answer.next_offset > position or answer.code == ResponseCode.PULL_OFFSET_MOVED or not left:
                    return answer
            except (RemotingError, ResponseError) as error:
                if not left or not is_transient(error):
                    raise self._final(fetch.range, position, error) from error
                _log.warning(
                    "%s: pull at offset %d failed, retrying in %d ms, %d retries left: %s",
                    fetch.range,
                    position,
                    access.retry_interval_ms,
                    left,
                    error,
                )
            await self._connections.clock.sleep(access.retry_interval_ms)
            if reason := await self._connections.find_again(fetch.range):
                address = self._connections.address_of(fetch.range)
                _log.warning("%s: looking up its broker failed, retrying at %s: %s", fetch.range, address, reason)
        raise AssertionError("the last attempt returns or raises")

    async def _ask(self, fetch: FetchRange, position: int) -> FetchAnswer:
        answer = await self._connections.pull(fetch.range, position, fetch.end - position)
        if answer.code != _SUCCESS and answer.code not in _NEXT:
            raise ResponseError(answer.code, answer.remark)
        return FetchAnswer(answer.code, decode_header(PullReply, answer).next_begin_offset, answer.body)

    def _final(self, pulled: QueueRange, position: int, error: RemotingError | ResponseError) -> RocketletError:
        place = f"{pulled} at {self._connections.address_of(pulled)} cannot be read at offset {position}"
        if isinstance(error, ResponseError):
            return ResponseError(error.code, f"{error.remark} ({place})")
        return RemotingError(f"{place} after {self._options.access.retries + 1} attempts: {error}")
