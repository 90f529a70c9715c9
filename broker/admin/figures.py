"""What a broker tells of itself to whoever watches it from outside: its figures at an instant, as plain values.

Rules

    1. Everything is read from what the broker keeps anyway, when it is asked for; nothing is counted for it.
    2. A group's progress in a topic is told while a member subscribes to the topic, or without members, while the group
       has offsets of it. (``ConsumerLagCalculator`` leaves out groups without members, whose backlog grows.)
    3. A backlog counts from what a group has committed. Where it has committed nothing, ``lag`` is 0 as in a 5.x
       broker, and ``behind`` the whole queue as in GET_CONSUME_STATS(208). Filters are not taken into account.
    4. Of topics and groups the loop looks at some at a time. What is deleted meanwhile is left out.
    5. When a message was stored is read from the disk once, and kept as long as each look asks for it again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...common.metadata import TopicConfig
from ...store.cleaner import DiskReport
from ...store.message_store import MessageStore
from ..group.groups import GroupTable, OffsetTable
from ..group.members import Member, Members
from ..outcomes.queue_counts import total_of
from ..outcomes.scheduler import LongPolling, PutCounts
from ..pull.fetch import ReadCounts
from ..send.send_back import SendBackCounts
from ..settings.live import LiveSettings
from ..topic.topics import TopicTable
from .runtime_info import Lines, RuntimeInfo
from .statistics import BrokerStatistics
from .windows import MINUTE

_IN_STEP: Final = 10
_MESSAGE_TYPE: Final = "message.type"


class TopicFigures(NamedTuple):
    """One topic: the sum of its queues' ends, what was put since the start of the broker, and in a second of late."""

    name: str
    message_type: str
    end: int
    messages: int
    size: int
    per_second: float
    bytes_per_second: float


class GroupProgress(NamedTuple):
    """How far a group is in a topic: sums over its queues, and the greatest age of a message, in milliseconds."""

    committed: int = 0
    behind: int = 0
    lag: int = 0
    in_flight: int = 0
    ready: int = 0
    lag_ms: int = 0
    queueing_ms: int = 0


class ReadFigures(NamedTuple):
    """What one group has done in one topic since the start of the broker; rates and ``sent_back`` are of late."""

    group: str
    topic: str
    progress: GroupProgress | None
    messages: int
    size: int
    per_second: float
    bytes_per_second: float
    sent_back: int
    dead_letters: int


class ClientFigures(NamedTuple):
    """A connected member of a group."""

    address: str
    client_id: str
    language: str
    version: int


class MemberFigures(NamedTuple):
    """A group that has members; types and models are empty for producers."""

    group: str
    clients: tuple[ClientFigures, ...]
    consume_type: str = ""
    message_model: str = ""


class BrokerFigures(NamedTuple):
    """All of them; ``lines`` are those of GET_BROKER_RUNTIME_INFO(28)."""

    at_ms: int
    cluster: str
    broker: str
    address: str
    permission: int
    topics: tuple[TopicFigures, ...]
    reads: tuple[ReadFigures, ...]
    consumers: tuple[MemberFigures, ...]
    producers: tuple[MemberFigures, ...]
    group_count: int
    puts_per_second: float
    gets_per_second: float
    flush_behind_bytes: int
    held_pulls: int
    parked_sends: int
    disk: DiskReport
    lines: Lines


class StoredTimes:
    """When messages were stored that are not consumed yet, of this look and the one before."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._before: dict[str, tuple[TopicConfig, dict[tuple[int, int], int]]] = {}
        self._now: dict[str, tuple[TopicConfig, dict[tuple[int, int], int]]] = {}

    def __repr__(self) -> str:
        return f"<StoredTimes of {len(self._now)} topics>"

    def begin_look(self) -> None:
        """Forget what the last look did not ask for."""
        self._before, self._now = self._now, {}

    def of(self, topic: TopicConfig, queue_id: int, queue_offset: int) -> int:
        """Return when a message was stored, 0 or less when it is not there; a topic that is made anew is another."""
        name, key = topic.topic_name, (queue_id, queue_offset)
        _, times = self._now.get(name) or self._now.setdefault(name, (topic, {}))
        at_ms = times.get(key, 0)
        if at_ms <= 0:
            before = self._before.get(name)
            at_ms = before[1].get(key, 0) if before is not None and before[0] is topic else 0
            times[key] = at_ms = at_ms if at_ms > 0 else self._store.stored_at(name, queue_id, queue_offset)
        return at_ms


@dataclass(frozen=True, slots=True)
class Figures:
    """Measures a running broker."""

    info: RuntimeInfo
    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    members: Members[Any]
    long_polling: LongPolling
    own_address: Callable[[], str]
    stored_times: StoredTimes

    async def measure(self) -> BrokerFigures:
        """Return the figures of about now; what waits for the disk is measured in a thread (raises ``OSError``)."""
        self.stored_times.begin_look()
        disk = await self.info.measure_disks()
        lines = await self.info.measure_with(disk)
        topics = [one async for one in self.measure_topics()]
        reads = [one async for one in self._reads()]
        config, scheduler, whole = self.settings.config, self.info.scheduler, self._statistics.whole_broker
        return BrokerFigures(
            at_ms=self._statistics.totals().at_ms,
            cluster=config.cluster_name,
            broker=config.broker_name,
            address=self.own_address(),
            permission=config.permission,
            topics=tuple(topics),
            reads=tuple(reads),
            consumers=tuple(self._consumers()),
            producers=tuple(
                MemberFigures(group, _clients(members)) for group, members in self.members.producer_groups().items()
            ),
            group_count=len(self.groups.names()),
            puts_per_second=whole.growth("", MINUTE, 0, None).per_second,
            gets_per_second=whole.growth("", MINUTE, 2, None).per_second,
            flush_behind_bytes=scheduler.store.log_max_offset - scheduler.store.flushed_offset,
            held_pulls=len(self.long_polling),
            parked_sends=len(scheduler.stall) if scheduler.stall is not None else 0,
            disk=disk,
            lines=lines,
        )

    @property
    def _statistics(self) -> BrokerStatistics:
        return self.info.statistics

    def _consumers(self) -> Iterable[MemberFigures]:
        for name in self.members.consumer_group_names():
            group = self.members.consumer_group(name)
            if group is not None:
                yield MemberFigures(name, _clients(group.members), group.consume_type, group.message_model)

    async def measure_topics(self) -> AsyncIterator[TopicFigures]:
        """Yield the figures of each topic, by name."""
        async for name in _in_steps(sorted(self.topics.names())):
            if (topic := self.topics.get(name)) is not None:
                yield self._measure_topic(topic)

    def _measure_topic(self, topic: TopicConfig) -> TopicFigures:
        name, puts, store = topic.topic_name, self._statistics.topic_puts, self.info.scheduler.store
        return TopicFigures(
            name,
            topic.attributes.get(_MESSAGE_TYPE, "NORMAL"),
            sum(max(store.max_offset(name, queue_id), 0) for queue_id in _queues(topic)),
            total_of(puts.counts, name, PutCounts.MESSAGES),
            total_of(puts.counts, name, PutCounts.BYTES),
            puts.growth(name, MINUTE, PutCounts.MESSAGES, None).per_second,
            puts.growth(name, MINUTE, PutCounts.BYTES, None).per_second,
        )

    async def _reads(self) -> AsyncIterator[ReadFigures]:
        statistics = self._statistics
        followed = set(self._followed())
        counted = {(group, topic) for topic, group in [*statistics.group_reads.counts, *statistics.send_backs.counts]}
        async for group, name in _in_steps(sorted(followed | counted)):
            topic = self.topics.get(name)
            if topic is not None:
                is_followed = (group, name) in followed and self.groups.get(group) is not None
                yield self._measure_reads(group, topic, self._measure_progress(group, topic) if is_followed else None)

    def _followed(self) -> Iterable[tuple[str, str]]:
        """Yield the pairs of group and topic whose progress is told, as 208 chooses the topics of a group."""
        for group in self.groups.names():
            online = self.members.consumer_group(group)
            is_sharing = online is not None and not online.is_broadcasting
            subscribed = online.subscriptions if online is not None and is_sharing else ()
            for topic in subscribed or self.offsets.topics_of(group):
                yield group, topic

    def _measure_reads(self, group: str, topic: TopicConfig, progress: GroupProgress | None) -> ReadFigures:
        reads, send_backs = self._statistics.group_reads, self._statistics.send_backs
        key = (topic.topic_name, group)
        return ReadFigures(
            group,
            topic.topic_name,
            progress,
            total_of(reads.counts, key, ReadCounts.MESSAGES),
            total_of(reads.counts, key, ReadCounts.BYTES),
            reads.growth(key, MINUTE, ReadCounts.MESSAGES, None).per_second,
            reads.growth(key, MINUTE, ReadCounts.BYTES, None).per_second,
            send_backs.growth(key, MINUTE, SendBackCounts.MESSAGES, None).total,
            total_of(send_backs.counts, key, SendBackCounts.DEAD_LETTERS),
        )

    def _measure_progress(self, group: str, topic: TopicConfig) -> GroupProgress:
        store, offsets, name = self.info.scheduler.store, self.offsets, topic.topic_name
        now_ms, committed_by_queue = self._statistics.totals().at_ms, offsets.of_topic(group, name)
        committed = behind = lag = in_flight = ready = 0
        first_at_ms = first_ready_at_ms = now_ms
        for queue_id in _queues(topic):
            end = max(store.max_offset(name, queue_id), 0)
            begin = committed_by_queue.get(queue_id, end)
            handed_out = max(offsets.handed_out(group, name, queue_id), begin)
            if queue_id in committed_by_queue:
                committed += begin
                behind += end - begin
            else:
                behind += end
            lag += end - begin
            in_flight += handed_out - begin
            ready += end - handed_out
            begin_at_ms = self._stored_at(topic, queue_id, begin, now_ms) if begin < end else now_ms
            first_at_ms = min(first_at_ms, begin_at_ms)
            if begin < handed_out < end:
                begin_at_ms = self._stored_at(topic, queue_id, handed_out, now_ms)
            if handed_out < end:
                first_ready_at_ms = min(first_ready_at_ms, begin_at_ms)
        return GroupProgress(committed, behind, lag, in_flight, ready, now_ms - first_at_ms, now_ms - first_ready_at_ms)

    def _stored_at(self, topic: TopicConfig, queue_id: int, queue_offset: int, default_ms: int) -> int:
        """Return when the first message at an offset or behind it was stored, if it is there."""
        first = self.info.scheduler.store.min_offset(topic.topic_name, queue_id)
        at_ms = self.stored_times.of(topic, queue_id, max(queue_offset, first))
        return at_ms if at_ms > 0 else default_ms


async def _in_steps(names: Iterable[Any]) -> AsyncIterator[Any]:
    for number, name in enumerate(names, 1):
        yield name
        if number % _IN_STEP == 0:
            await asyncio.sleep(0)


def _queues(topic: TopicConfig) -> Iterable[int]:
    return range(max(topic.read_queue_nums, topic.write_queue_nums))


def _clients(members: Mapping[Any, Member]) -> tuple[ClientFigures, ...]:
    return tuple(
        ClientFigures(link.peer, member.client.client_id, member.client.language, member.client.version)
        for link, member in members.items()
    )
