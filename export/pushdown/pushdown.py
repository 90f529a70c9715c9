"""Decides before a reading which parts of the logs need not be read for a selection.

    times            splits that lie outside of a range of store times are dropped
    keys of topics   index files name the records                     ``IndexCandidates``
    topics           consume queues name the records, with tag hash   ``QueueCandidates``

Rules:

- What cannot be known for certain is read: with and without pushing down, the rows are the same.
- Where a part of a split is known, the split is cut there. A part in which nothing is wanted is dropped, neighbours in
  which little is wanted become one split.
- Candidates are complete for their split. A record that they name may still be unwanted: the reader judges each.
- What a queue names must be what stands in the log: a record of that size, queue and queue offset. If it is not, or
  the queue's files are gone, the candidates give up, and the split is walked. It is walked too where they name the
  larger part of it, since that is faster.
- A tag is compared by its hash, where an entry has one (store.md §3.2, §3.7).
- Store times grow with the log, but for clocks that were set back: by as much as ``CLOCK_MS`` they may.
- Only local stores have queues and index files that are looked at.
"""

import bisect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import numpy as np

from ...common.errors import ConfigError, nearest
from ...common.names import is_system_topic
from ...common.properties import tags_code
from ...common.record import MAGIC_V1, MAGIC_V2
from ...store.commitlog.record_blocks import LEAST_RECORD_BYTES, Longs, Mask, Structs
from ...store.consumequeue.consume_queue import PRE_BLANK_SIZE
from ..plan.log_file import LogFile
from ..plan.read_plan import Plan
from ..plan.record_walk import find_first_record
from ..plan.selection import Selection
from ..plan.split import PlannedLog, Split, read_record
from ..plan.store_queues import QueueFiles, QueueView, StoreQueues, numbers
from ..report.counters import QueueKey
from ..report.report import Report
from .store_index import LogRange, StoreIndex

_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">u4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
     ("log_offset", ">i8")]
)  # fmt: skip
_DENSE: Final = 0.5
_LAST_EXT_ADDRESS: Final = -2_147_483_649


@dataclass(frozen=True)
class QueueSlice:
    """The entries of a queue whose records begin in a split."""

    files: QueueFiles
    first: int
    stop: int


class _Named(NamedTuple):
    """What entries of a queue say: where records are in the file, their sizes and queue offsets."""

    queue_id: int
    positions: Longs
    sizes: Longs
    offsets: Longs

    def is_in(self, file: LogFile, split: Split) -> bool:
        """Tell whether it is so."""
        heads = _heads(file, split, self.positions)
        if heads is None:
            return False
        good = (heads["size"] == self.sizes) & (heads["queue_offset"] == self.offsets)
        return bool((good & (heads["queue_id"] == self.queue_id)).all())


@dataclass(frozen=True)
class QueueCandidates:
    """What entries of queues name; with ``tags_codes``, only those of one of these tags."""

    slices: tuple[QueueSlice, ...]
    tags_codes: frozenset[int] = frozenset()

    @property
    def count(self) -> int:
        """How many entries there are."""
        return sum(one.stop - one.first for one in self.slices)

    def joined(self, other: "QueueCandidates") -> "QueueCandidates":
        """Return these candidates and those of a later split, between which nothing is wanted."""
        slices = {one.files: one for one in self.slices}
        for one in other.slices:
            before = slices.get(one.files, one)
            slices[one.files] = QueueSlice(one.files, before.first, one.stop)
        return QueueCandidates(tuple(slices.values()), self.tags_codes)

    def positions(self, split: Split) -> Longs | None:
        """Return where the records begin in the file (``split.Candidates``)."""
        named = [found for one in self.slices if (found := self._name(one, split)) is not None]
        size_bytes = sum(int(one.sizes.sum()) for one in named)
        if len(named) < len(self.slices) or size_bytes > len(split) * _DENSE:
            return None
        file = split.open()
        if not all(one.is_in(file, split) for one in named):
            return None
        return np.sort(np.concatenate([one.positions for one in named])) if named else np.empty(0, np.int64)

    def _name(self, one: QueueSlice, split: Split) -> "_Named | None":
        entries = one.files.read(one.first, one.stop)
        if entries is None:
            return None
        positions, sizes = numbers(entries, "log_offset") - split.base_offset, numbers(entries, "size")
        if not (sizes > 0).all() or (sizes == PRE_BLANK_SIZE).any() or not (np.diff(positions) > 0).all():
            return None
        is_batch = one.files.is_batch
        offsets = numbers(entries, "first_offset") if is_batch else np.arange(one.first, one.stop)
        chosen = self._has_tag(entries) if self.tags_codes and not is_batch else slice(None)
        return _Named(one.files.queue_id, positions[chosen], sizes[chosen], offsets[chosen])

    def _has_tag(self, entries: Structs) -> Mask:
        codes = numbers(entries, "tags_code")
        return np.isin(codes, sorted(self.tags_codes)) | (codes <= _LAST_EXT_ADDRESS)


@dataclass(frozen=True)
class IndexCandidates:
    """What index files name, by log offset."""

    log_offsets: tuple[int, ...]

    def positions(self, split: Split) -> Longs | None:
        """Return where the records begin in the file (``split.Candidates``)."""
        positions = np.array(self.log_offsets, np.int64) - split.base_offset
        return positions if _heads(split.open(), split, positions) is not None else None


AnyPicks = QueueCandidates | IndexCandidates


def _heads(file: LogFile, split: Split, positions: Longs) -> Structs | None:
    """Return the heads of the records at these positions, ``None`` when there is none at one of them."""
    if not len(positions):
        return np.empty(0, _HEAD)
    if positions[0] < split.start or positions[-1] >= split.stop or positions[-1] + LEAST_RECORD_BYTES > split.end:
        return None
    heads = file.window(0, split.end).gather(positions, _HEAD)
    is_record = (heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2)
    is_record &= heads["log_offset"] == positions + split.base_offset
    return heads if is_record.all() else None


CLOCK_MS: Final = 60_000
_MOST_QUEUES: Final = 256
_MOST_CANDIDATES: Final = 50_000
_MOST_NAMED: Final = 5
_UNREADABLE: Final = "\ufffd"


@dataclass
class PushedFilters:
    """What was pushed down of one store: in words, and the queue offsets that are to be read if they are known."""

    texts: list[str] = field(default_factory=list[str])
    expected: list[tuple[QueueKey, int, int]] = field(default_factory=list[tuple[QueueKey, int, int]])


class PushdownResult(NamedTuple):
    """The splits that are left, and by store what was pushed down, for stores of which anything was."""

    splits: list[Split]
    stores: dict[str, PushedFilters]


@dataclass(frozen=True)
class PushdownOptions:
    """What may be used: without ``uses_queues`` only times; ``index_sizes`` are slots and entries of index files."""

    uses_queues: bool = True
    index_sizes: tuple[int, int] | None = None


def push_down(splits: Iterable[Split], selection: Selection, options: PushdownOptions | None = None) -> PushdownResult:
    """Return what must be read of some splits (raises ``StoreError``)."""
    options = options or PushdownOptions()
    pushed = PushdownResult([], {})
    for store, group in groupby(splits, lambda split: split.store):
        planner = _StorePushdown(list(group), selection, options)
        pushed.splits.extend(planner.push())
        if planner.narrowed.texts:
            pushed.stores[store] = planner.narrowed
    return pushed


def check_topics(splits: Iterable[Split], topics: Iterable[str]) -> None:
    """Raise ``ConfigError`` for a topic that no store has, as far as stores tell which they have."""
    roots = {split.queues: [split] for split in splits}
    if None in roots or not roots:
        return
    stores = [StoreQueues(os.path.dirname(root), PlannedLog(group)) for root, group in roots.items() if root]
    for topic in sorted(topics):
        if not any(store.knows(topic) for store in stores):
            known = {name for store in stores for name in store.known_topics()}
            raise ConfigError(f"no store has a topic {topic}{nearest(topic, known)}", key="topics")


class _StorePushdown:
    def __init__(self, splits: list[Split], selection: Selection, options: PushdownOptions) -> None:
        self.narrowed = PushedFilters()
        self._splits = splits
        self._selection = selection
        self._options = options

    def push(self) -> list[Split]:
        """Return the splits that are left."""
        splits = self._in_time()
        topics = self._topics()
        queues = splits[0].queues if splits else None
        if topics is not None and not topics:
            self.narrowed.texts.append("no topic is wanted")
            return []
        if topics is None or queues is None or not self._options.uses_queues:
            return splits
        before = replace(self.narrowed, texts=[*self.narrowed.texts])
        try:
            store = StoreQueues(os.path.dirname(queues), PlannedLog(splits))
            return self._by_queues(self._by_keys(splits, store, topics), store, topics)
        except OSError:  # a broker has just deleted a file
            self.narrowed = before
            return splits

    def _topics(self) -> list[str] | None:
        """Return the topics that are wanted, ``None`` if they are not named."""
        selection = self._selection
        named = selection.topics if selection.among is None else selection.among
        if selection.among is None and not selection.topics:
            return None
        return [topic for topic in named if selection.wants_topic(topic)]

    def _in_time(self) -> list[Split]:
        from_ms, until_ms = self._selection.from_ms, self._selection.until_ms
        splits = self._splits
        first, stop = 0, len(splits)
        if until_ms is not None:
            stop = _bisect(splits, until_ms + CLOCK_MS)
        if from_ms is not None:
            first = max(0, _bisect(splits, from_ms - CLOCK_MS) - 1)
        if stop - first < len(splits):
            kept = splits[first:stop]
            size, whole = sum(map(len, kept)), sum(map(len, splits))
            self.narrowed.texts.append(f"{_describe_times(from_ms, until_ms)}: {size} of {whole} bytes of log")
            return kept
        return splits

    def _by_keys(self, splits: list[Split], store: StoreQueues, topics: list[str]) -> list[Split]:
        keys = self._selection.keys
        if not keys or any(_UNREADABLE in word for word in (*keys, *topics)) or not _have_plain_queues(store, topics):
            return splits
        sure_at_ms = None if store.is_closed else store.checkpoint.index_at_ms
        index = StoreIndex(store.home, store.log, sure_at_ms, self._options.index_sizes)
        found = index.find(f"{topic}#{key}" for topic in topics for key in keys) if index.ranges else None
        if found is None:
            return splits
        self.narrowed.texts.append(f"{_describe('key', keys)}: {len(found)} records by index files")
        return list(_pick(splits, index.ranges, lambda split: _pick_keys(split, found)))

    def _by_queues(self, splits: list[Split], store: StoreQueues, topics: list[str]) -> list[Split]:
        views: list[QueueView] = []
        for topic in topics:
            of_topic = store.views_of(topic, self._selection.queue_ids)
            if of_topic is None:
                return splits
            views += of_topic
        if len(views) > _MOST_QUEUES or any(view.sure_from is None for view in views):
            return splits
        first = max((view.sure_from or 0 for view in views), default=0)
        sure = LogRange(max(first, store.log.start), store.sure_until(views))
        if sure.first >= sure.stop:
            return splits
        picking = _QueueSearch(views, self._selection)
        picked = list(_pick(splits, [sure], picking.pick))
        if not picking.is_used:
            return splits
        self.narrowed.texts.append(f"{_describe('topic', topics)}: {picking.count} records by {len(views)} queues")
        if not (self._selection.keys or self._selection.tags or self._is_timed):
            self.narrowed.expected += picking.expected(sure)
        return picked

    @property
    def _is_timed(self) -> bool:
        return self._selection.from_ms is not None or self._selection.until_ms is not None


class _QueueSearch:
    """Finds the entries of queues for one split after the other."""

    def __init__(self, views: Sequence[QueueView], selection: Selection) -> None:
        self.count = 0
        self.is_used = False
        self._views = views
        self._selection = selection

    def pick(self, split: Split) -> Split | None:
        """Return the split with its candidates, ``None`` when nothing of it is wanted."""
        self.is_used = True
        slices = [one for view in self._views if (one := self._slice(view, split)) is not None]
        self.count += sum(one.stop - one.first for one in slices)
        return replace(split, candidates=QueueCandidates(tuple(slices), self._tags_codes())) if slices else None

    def expected(self, sure: LogRange) -> list[tuple[QueueKey, int, int]]:
        """Return the queue offsets that the queues have in a part of the log."""
        ranges: list[tuple[QueueKey, int, int]] = []
        for view in self._views:
            files = view.files
            if not files.is_batch:
                first, stop = self._limit(view.first_at(sure.first), view.first_at(sure.stop))
                ranges.append(((files.topic, files.queue_id), first, stop))
        return ranges

    def _slice(self, view: QueueView, split: Split) -> QueueSlice | None:
        first = view.first_at(split.base_offset + split.start)
        stop = view.first_at(split.base_offset + split.stop, first)
        if not view.files.is_batch:
            first, stop = self._limit(first, stop)
        return QueueSlice(view.files, first, stop) if first < stop else None

    def _limit(self, first: int, stop: int) -> tuple[int, int]:
        low, high = self._selection.from_offset, self._selection.until_offset
        return first if low is None else max(first, low), stop if high is None else min(stop, high)

    def _tags_codes(self) -> frozenset[int]:
        """Return the hashes of the wanted tags, none where entries hold something else."""
        tags = self._selection.tags
        has_others = any(is_system_topic(view.files.topic) for view in self._views)
        if has_others or any(_UNREADABLE in tag for tag in tags):
            return frozenset()
        return frozenset(map(tags_code, tags))


def _pick(splits: Iterable[Split], known: Sequence[LogRange], pick: Callable[[Split], Split | None]) -> Iterator[Split]:
    """Yield the splits, cut where known parts of the log begin and end, and these with their candidates."""
    last: Split | None = None
    for part, is_known in _cut(splits, known):
        picked = pick(part) if is_known else part
        if picked is None:
            continue
        joined = _join(last, picked) if is_known else None
        if joined is None and last is not None:
            yield last
        last = joined or picked
    if last is not None:
        yield last


def _cut(splits: Iterable[Split], known: Sequence[LogRange]) -> Iterator[tuple[Split, bool]]:
    for split in splits:
        start, stop = split.base_offset + split.start, split.base_offset + split.stop
        inside = sorted({at for one in known for at in one if start < at < stop})
        for low, high in pairwise((start, *inside, stop)):
            is_known = split.candidates is None and any(one.first <= low and high <= one.stop for one in known)
            yield replace(split, start=low - split.base_offset, stop=high - split.base_offset), is_known


def _join(last: Split | None, split: Split) -> Split | None:
    """Return two splits with candidates as one, ``None`` where they should stay two."""
    if last is None or last.path != split.path:
        return None
    one, other = last.candidates, split.candidates
    if (
        isinstance(one, QueueCandidates)
        and isinstance(other, QueueCandidates)
        and one.count + other.count <= _MOST_CANDIDATES
    ):
        return replace(last, stop=split.stop, candidates=one.joined(other))
    if isinstance(one, IndexCandidates) and isinstance(other, IndexCandidates):
        return replace(last, stop=split.stop, candidates=IndexCandidates(one.log_offsets + other.log_offsets))
    return None


def _pick_keys(split: Split, log_offsets: Sequence[int]) -> Split | None:
    first = bisect.bisect_left(log_offsets, split.base_offset + split.start)
    stop = bisect.bisect_left(log_offsets, split.base_offset + split.stop)
    return replace(split, candidates=IndexCandidates(tuple(log_offsets[first:stop]))) if first < stop else None


def _have_plain_queues(store: StoreQueues, topics: Iterable[str]) -> bool:
    """Tell whether the index has the keys of all messages of some topics: not of those in inner batches."""
    for topic in topics:
        views = (store.view(topic, queue_id) for queue_id in store.queue_ids(topic))
        view = next((view for view in views if view is not None), None)
        if view is None or view.files.is_batch:
            return False
    return True


def _bisect(splits: Sequence[Split], at_ms: int) -> int:
    """Return how many of the first splits begin with a record that was stored before a time."""
    low, high = 0, len(splits)
    while low < high:
        middle = (low + high) // 2
        if _begins_before(splits[middle:high], at_ms):
            low = middle + 1
        else:
            high = middle
    return low


def _begins_before(splits: Sequence[Split], at_ms: int) -> bool:
    """Tell whether the first record of some splits was stored before a time."""
    for split in splits:
        file = split.open()
        record = read_record(file, find_first_record(file, split.start, split.end, split.queues))
        if record is not None:
            return record.stored_at_ms < at_ms
    return False


def _describe(name: str, words: Iterable[str]) -> str:
    listed = sorted(words)
    more = ", …" if len(listed) > _MOST_NAMED else ""
    return f"{name} in ({', '.join(listed[:_MOST_NAMED])}{more})"


def _describe_times(from_ms: int | None, until_ms: int | None) -> str:
    from_text = "" if from_ms is None else f" from {from_ms}"
    return f"store time{from_text}" + ("" if until_ms is None else f" until {until_ms}")


def planned_report(
    plan: Plan, narrowed: Mapping[str, PushedFilters], filters: Sequence[str] = (), *, checks_crc: bool = True
) -> Report:
    """Return the report that parts are added to; ``filters`` are told for stores of which anything was pushed down."""
    report = Report(checks_crc=checks_crc)
    for store in dict.fromkeys([*(split.store for split in plan.splits), *plan.ends, *plan.damages]):
        counters = report.of_store(store)
        counters.damage = plan.damages.get(store)
        counters.end = plan.ends.get(store) if counters.damage is None else None
        if store in narrowed:
            counters.pushed += [*filters, *narrowed[store].texts]
            for key, first, end in narrowed[store].expected:
                counters.expect(key, first, end)
        for key, (first, end) in plan.lost.get(store, {}).items():
            counters.expect(key, first, end)
    for store, path, position, size_bytes, reason in plan.missing:
        report.of_store(store).skip(path, position, size_bytes, reason)
    return report
