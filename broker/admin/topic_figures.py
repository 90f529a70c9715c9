"""Figures of topics, and of groups in them, kept from one look to the next.

Rules

    1. A figure is made of its sources alone, and each look reads all of them. What was made of them before is kept as
       long as every source tells the same; nobody has to say that something has changed.
    2. The sources of a topic: its settings (another value after each change), which queues there are, where they begin
       and end, and the samples of the last minute. What was put counts with the end that it moves; a record without an
       entry in a queue shows with the next sample.
    3. Those of a group in a topic: its queues as above, the group's members, what it has committed and was handed out,
       what it has read and sent back, and the samples.
    4. A topic and its groups are looked at together: no offset is held against an end of another moment.
    5. When a message was stored is read from the disk once, and kept as long as the looks ask for it again. A figure
       with one that is not there is made anew by the next look: it may come.
    6. Of what no look meets any more nothing is kept.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Final, NamedTuple

from msgspec import Struct

from ...common.metadata import TopicConfig
from ...store.consumequeue.queue_reader import QueueSpan
from ...store.message_store import MessageStore
from ..group.groups import GroupTable, OffsetTable
from ..group.members import EveryMember
from ..outcomes.queue_counts import total_of
from ..outcomes.scheduler import PutCounts
from ..pull.fetch import ReadCounts
from ..send.send import SendBackCounts
from ..topic.topics import TopicTable
from .statistics import BrokerStatistics
from .windows import MINUTE

ROWS_IN_RUN: Final = 200
_WORK_BEFORE_RUN: Final = 300
_WORK_IN_STEP: Final = 1_000
_MEASUREMENT: Final = 10
"""Work is counted in looks at a topic or group that is as it was, some microseconds; this is that of another one."""
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
    """How far a group is in a topic: sums over its queues, and when the first message was stored that it waits for.

    ``behind_since_ms`` is of those not committed, ``unread_since_ms`` of those not handed out; 0 when there is none.
    """

    committed: int = 0
    behind: int = 0
    lag: int = 0
    in_flight: int = 0
    ready: int = 0
    behind_since_ms: int = 0
    unread_since_ms: int = 0


class Membership(NamedTuple):
    """Who is connected of a group."""

    members: int = 0
    message_model: str = "CLUSTERING"


class ReadFigures(NamedTuple):
    """What one group has done in one topic since the start of the broker; rates and ``sent_back`` are of late.

    Without ``progress`` the group does not follow the topic any more.
    """

    group: str
    topic: str
    membership: Membership
    progress: GroupProgress | None
    messages: int
    size: int
    per_second: float
    bytes_per_second: float
    sent_back: int
    dead_letters: int


Followers = Mapping[str, Membership | None]
"""The groups of a topic; those with ``None`` do not follow it any more, but have read it."""


_NO_FOLLOWERS: Final[Followers] = {}
_NOBODY: Final = Membership()


class TopicRun(NamedTuple):
    """Topics that follow each other in their table, and the groups in them."""

    topics: tuple[TopicFigures, ...]
    reads: tuple[ReadFigures, ...]


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


class _Traffic(NamedTuple):
    """What a group has read and sent back, and the trends of both (``windows.Trend.of``)."""

    messages: int = 0
    size: int = 0
    dead_letters: int = 0
    trends: tuple[int, ...] = ()


class _Place(NamedTuple):
    """The queues of a topic that exist, and where they begin and end."""

    queues: tuple[QueueSpan, ...]
    begins: list[int]
    ends: list[int]


class _Group:
    """What was made of a group in a topic, and of which sources; ``is_sure`` says whether it may be kept."""

    __slots__ = ("committed", "figures", "handed_out", "is_sure", "joined", "place", "traffic")

    def __init__(self, place: _Place, joined: Membership | None, traffic: _Traffic | None) -> None:
        self.place, self.joined, self.traffic = place, joined, traffic
        self.committed: Mapping[int, int] = {}
        self.handed_out: Mapping[int, int] = {}


class _Topic:
    """The same of a topic, which is another one with other settings; and its groups."""

    __slots__ = ("figures", "groups", "place", "put_trend", "queues_at", "settings")

    def __init__(self, settings: TopicConfig) -> None:
        self.settings = settings
        self.queues_at = -1
        self.place = _Place((), [], [])
        self.put_trend: tuple[int, int] | None = None
        self.figures = TopicFigures(settings.topic_name, "", 0, 0, 0, 0.0, 0.0)
        self.groups: dict[str, _Group] = {}


class _Run:
    """What was made of topics that follow each other; without ``sources`` it is made anew."""

    __slots__ = ("figures", "followers", "pairs", "queues", "queues_at", "settings", "sources")

    def __init__(self, settings: list[TopicConfig]) -> None:
        self.settings = settings
        self.queues_at = -1
        self.queues: list[QueueSpan] = []
        self.followers: list[Followers] = []
        self.pairs: list[tuple[str, str]] = []
        self.sources: _Sources | None = None
        self.figures = TopicRun((), ())


class _Sources(NamedTuple):
    """What the sources of a run tell, all topics and groups in one."""

    queues: list[QueueSpan]
    begins: list[int]
    ends: list[int]
    put_trends: list[tuple[int, int]]
    progress: list[tuple[Mapping[int, int], Mapping[int, int]]]
    traffic: list[_Traffic]


class WatchedTables(Struct, frozen=True):
    """Where topics and groups stand."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    members: EveryMember


class TopicLooks:
    """Looks at topics and at the groups in them."""

    def __init__(self, tables: WatchedTables, store: MessageStore, statistics: BrokerStatistics) -> None:
        self._tables = tables
        self._store = store
        self._puts, self._reads = statistics.topic_puts, statistics.group_reads
        self._send_backs = statistics.send_backs
        self._stored_times = StoredTimes(store)
        self._topics: dict[str, _Topic] = {}
        self._runs: dict[int, _Run] = {}
        self._followers: Mapping[str, Followers] = {}
        self._groups_at = self._queues_at = -1
        self._put_trend, self._read_trend = self._puts.trend(MINUTE), self._reads.trend(MINUTE)
        self._send_back_trend = self._send_backs.trend(MINUTE)
        self._work = 0

    def __repr__(self) -> str:
        return f"<TopicLooks at {len(self._topics)} topics>"

    async def look(self) -> AsyncIterator[TopicRun]:
        """Yield the figures of all topics in the order of their table, and of the groups in them, in runs of topics."""
        self._stored_times.begin_look()
        self._groups_at = -1
        self._go_on()
        names = list(self._tables.topics.names())
        runs = list(self._cut(names))
        for number, run in enumerate(runs):
            if await self._pause_at(_WORK_BEFORE_RUN):
                self._go_on()
            yield await self._look_at_run(number, run)
            self._go_on()
        for number in [number for number in self._runs if number >= len(runs)]:
            del self._runs[number]
        if len(self._topics) > len(names):
            for name in self._topics.keys() - {*names}:
                del self._topics[name]

    def _cut(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        """Cut the topics in runs that have so many rows, or one topic."""
        first = rows = 0
        for place, name in enumerate(names):
            added = 1 + len(self._followers.get(name, _NO_FOLLOWERS))
            if rows and rows + added > ROWS_IN_RUN:
                yield names[first:place]
                first, rows = place, 0
            rows += added
        if rows:
            yield names[first:]

    async def _pause_at(self, work: int) -> bool:
        """Let others have their turn after so much work; tell whether they had it."""
        if self._work < work:
            return False
        self._work = 0
        await asyncio.sleep(0)
        return True

    def _go_on(self) -> None:
        """Take note of what others may have changed."""
        self._queues_at = self._store.queue_change_count
        self._put_trend, self._read_trend = self._puts.trend(MINUTE), self._reads.trend(MINUTE)
        self._send_back_trend = self._send_backs.trend(MINUTE)
        if self._groups_at != self._tables.groups.change_count:
            self._groups_at, self._followers = self._tables.groups.change_count, self._find_followers()

    def _find_followers(self) -> Mapping[str, Followers]:
        """Return by topic who follows it, as 208 chooses the topics of a group, and who has left traffic there."""
        tables = self._tables
        found: defaultdict[str, dict[str, Membership | None]] = defaultdict(dict)
        for topic, group in chain(self._reads.counts, self._send_backs.counts):
            found[topic][group] = None
        for group in tables.groups.names():
            online = tables.members.consumer_group(group)
            joined = _NOBODY if online is None else Membership(len(online.members), online.message_model)
            is_sharing = online is not None and not online.is_broadcasting
            subscribed = online.subscriptions if online is not None and is_sharing else ()
            for topic in subscribed or tables.offsets.topics_of(group):
                found[topic][group] = joined
        return found

    async def _look_at_run(self, number: int, names: Sequence[str]) -> TopicRun:
        settings = [one for name in names if (one := self._tables.topics.get(name)) is not None]
        run = self._runs.get(number)
        if run is None or len(run.settings) != len(settings) or not all(map(is_, run.settings, settings)):
            run = self._runs[number] = _Run(settings)
        sources = self._read_sources(run)
        self._work += len(settings) + len(run.pairs)
        if sources == run.sources:
            return run.figures
        kept = sources._replace(
            progress=[({**committed}, {**handed_out}) for committed, handed_out in sources.progress]
        )
        run.sources, is_kept = None, True
        topics: list[TopicFigures] = []
        reads: list[ReadFigures] = []
        for name in names:
            if await self._pause_at(_WORK_IN_STEP):
                self._go_on()
                is_kept = False  # what is made now and what was read before are of two moments
            if (topic := self._tables.topics.get(name)) is not None:
                figures, groups = self._look_at_topic(topic)
                topics.append(figures)
                reads += [group.figures for group in groups]
                is_kept = is_kept and all(group.is_sure for group in groups)
        figures = TopicRun(tuple(topics), tuple(reads))
        if is_kept:
            run.sources, run.figures = kept, figures
        return figures

    def _read_sources(self, run: _Run) -> _Sources:
        names = [one.topic_name for one in run.settings]
        if run.queues_at != self._queues_at:
            run.queues_at = self._queues_at
            run.queues = [
                one for each in run.settings for one in self._store.spans(each.topic_name, _queue_count(each))
            ]
        followers = [self._followers.get(name, _NO_FOLLOWERS) for name in names]
        if followers != run.followers:
            run.followers, run.sources = followers, None
            run.pairs = [(group, name) for name, groups in zip(names, followers, strict=True) for group in groups]
        progress, trend_of = self._tables.offsets.progress, self._put_trend.of
        return _Sources(
            run.queues,
            [queue.min_offset for queue in run.queues],
            [queue.max_offset for queue in run.queues],
            [trend_of(name) for name in names],
            [progress(group, name) for group, name in run.pairs],
            [one for group, name in run.pairs if (one := self._count_traffic(name, group)) is not None],
        )

    def _look_at_topic(self, settings: TopicConfig) -> tuple[TopicFigures, Collection[_Group]]:
        name = settings.topic_name
        topic = self._topics.get(name)
        if topic is None or topic.settings is not settings:
            topic = self._topics[name] = _Topic(settings)
        place = self._look_at_queues(topic)
        trend = self._put_trend.of(name)
        if place is not topic.place or trend != topic.put_trend:
            topic.figures = self._make_topic(settings, place)
            topic.place, topic.put_trend = place, trend
        followers = self._followers.get(name, _NO_FOLLOWERS)
        groups = topic.groups = {one: self._look_at_group(topic, one, joined) for one, joined in followers.items()}
        self._work += 1 + len(groups)
        return topic.figures, groups.values()

    def _look_at_queues(self, topic: _Topic) -> _Place:
        """Return where the queues are now, the place of before unless some have come, gone or moved."""
        queues = topic.place.queues
        if topic.queues_at != self._queues_at:
            topic.queues_at = self._queues_at
            queues = self._store.spans(topic.settings.topic_name, _queue_count(topic.settings))
        place = _Place(queues, [one.min_offset for one in queues], [one.max_offset for one in queues])
        return topic.place if place == topic.place else place

    def _make_topic(self, settings: TopicConfig, place: _Place) -> TopicFigures:
        self._work += _MEASUREMENT
        name, table = settings.topic_name, self._puts
        return TopicFigures(
            name,
            settings.attributes.get(_MESSAGE_TYPE, "NORMAL"),
            sum(place.ends),
            total_of(table.counts, name, PutCounts.MESSAGES),
            total_of(table.counts, name, PutCounts.BYTES),
            table.growth(name, MINUTE, PutCounts.MESSAGES, None).per_second,
            table.growth(name, MINUTE, PutCounts.BYTES, None).per_second,
        )

    def _look_at_group(self, topic: _Topic, group: str, joined: Membership | None) -> _Group:
        name = topic.settings.topic_name
        committed, handed_out = self._tables.offsets.progress(group, name)
        traffic = self._count_traffic(name, group)
        known = topic.groups.get(group)
        if (
            known is not None
            and known.place is topic.place
            and known.committed == committed
            and known.handed_out == handed_out
            and known.joined == joined
            and known.traffic == traffic
            and known.is_sure
        ):
            return known
        self._work += _MEASUREMENT + len(topic.place.queues)
        made = _Group(topic.place, joined, traffic)
        made.committed, made.handed_out = {**committed}, {**handed_out}
        progress, made.is_sure = (None, True) if joined is None else self._measure_progress(topic, made)
        made.figures = self._make_reads((name, group), made, progress)
        return made

    def _count_traffic(self, topic: str, group: str) -> _Traffic | None:
        key, reads, send_backs = (topic, group), self._reads.counts, self._send_backs.counts
        if key not in reads and key not in send_backs:
            return None
        return _Traffic(
            total_of(reads, key, ReadCounts.MESSAGES),
            total_of(reads, key, ReadCounts.BYTES),
            total_of(send_backs, key, SendBackCounts.DEAD_LETTERS) + total_of(send_backs, key, SendBackCounts.ORDERED),
            (*self._read_trend.of(key), *self._send_back_trend.of(key)),
        )

    def _make_reads(self, key: tuple[str, str], made: _Group, progress: GroupProgress | None) -> ReadFigures:
        reads, send_backs = self._reads, self._send_backs
        traffic = made.traffic or _Traffic()
        return ReadFigures(
            key[1],
            key[0],
            made.joined or Membership(),
            progress,
            traffic.messages,
            traffic.size,
            reads.growth(key, MINUTE, ReadCounts.MESSAGES, None).per_second,
            reads.growth(key, MINUTE, ReadCounts.BYTES, None).per_second,
            send_backs.growth(key, MINUTE, SendBackCounts.MESSAGES, None).total,
            traffic.dead_letters,
        )

    def _measure_progress(self, topic: _Topic, made: _Group) -> tuple[GroupProgress, bool]:
        """Return how far a group is, and whether all messages that it waits for are there."""
        spans = {queue.queue_id: (begin, end) for queue, begin, end in zip(*topic.place, strict=True)}
        committed = behind = lag = in_flight = ready = 0
        behind_since_ms: list[int] = []
        unread_since_ms: list[int] = []
        for queue_id in range(_queue_count(topic.settings)):
            first, end = spans.get(queue_id, (0, 0))
            begin = made.committed.get(queue_id, end)
            read_to = max(made.handed_out.get(queue_id, 0), begin)
            committed += begin if queue_id in made.committed else 0
            behind += end - begin if queue_id in made.committed else end
            lag += end - begin
            in_flight += read_to - begin
            ready += end - read_to
            if begin < end:
                behind_since_ms.append(self._stored_times.of(topic.settings, queue_id, max(begin, first)))
            if read_to < end:
                unread_since_ms.append(self._stored_times.of(topic.settings, queue_id, max(read_to, first)))
        since = _first(behind_since_ms), _first(unread_since_ms)
        is_sure = all(at_ms > 0 for at_ms in (*behind_since_ms, *unread_since_ms))
        return GroupProgress(committed, behind, lag, in_flight, ready, *since), is_sure


def _queue_count(settings: TopicConfig) -> int:
    return max(settings.read_queue_nums, settings.write_queue_nums)


def _first(stored_at_ms: list[int]) -> int:
    return min((at_ms for at_ms in stored_at_ms if at_ms > 0), default=0)
