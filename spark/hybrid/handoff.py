"""Finds where the history of store directories ends and a running cluster goes on: no gap, no message twice.

    history of broker-a:  queue 0 of Orders … 41 |
    broker-a now:                        30 … 41 | 42 … 57
                                                 ^ handoff, at offset 42

Rules:

- What a store tells is told of the part of its log that was planned, so that history and cluster meet where the reading
  of files ends.
- Offsets of a queue mean something on one broker only, so each store belongs to a broker: to the one that the option
  ``storeBrokers`` names, or to the one with an address that the newest records of the store carry. A broker writes its
  address into every record, and the newest ones count, since brokers move.
- The handoff of a queue is the next offset that the log in the store would have given out. The cluster is read from
  there, a broker without a store from its first messages.
- A queue of which the store knows nothing begins at 0, if the log in the store is whole from its beginning. If not,
  the messages before the first one that the broker has were deleted long ago, or else nobody can tell.
- A broker whose first message is above the handoff has deleted messages that the store lacks; one whose queue ends
  below it is not the broker that the store is of, or its topic was made anew. Both are loss.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, NamedTuple

from ...common.errors import ConfigError, nearest
from ...common.message import MessageQueue
from ...export.columns.schema import pick_columns
from ...export.plan.log_end import LogStop
from ...export.plan.read_plan import Plan
from ...export.plan.selection import Selection
from ...export.plan.split import Split
from ...export.pushdown.queue_ends import queue_ends
from ...export.write.log_reader import ReadOptions, SplitReader
from ..cluster.queue_ranges import QueueExtent, describe_queue
from ..stream.stream_offsets import Offsets

STORE_BROKERS = "storeBrokers"


class StoreEnd(NamedTuple):
    """What a store tells of itself: its newest hosts, the next offset by topic and queue, whether its log is whole."""

    hosts: frozenset[str]
    queue_ends: Mapping[tuple[str, int], int]
    is_whole: bool


@dataclass(frozen=True)
class Handoff:
    """The next offset of each queue with history, and the brokers whose history is whole."""

    ends: Offsets = field(default_factory=Offsets)
    whole: frozenset[str] = frozenset()

    def start(self, queue: MessageQueue, extent: QueueExtent) -> int:
        """Return the offset at which the reading of a queue of the cluster begins."""
        if queue in self.ends:
            return self.ends[queue]
        return 0 if queue.broker_name in self.whole else extent.first

    def is_behind(self, extents: Mapping[MessageQueue, QueueExtent]) -> bool:
        """Tell whether a queue ends below its handoff; a broker that has just stored the messages shows them soon."""
        return any(queue in extents and extents[queue].end < end for queue, end in self.ends.items())

    def data_loss(self, extents: Mapping[MessageQueue, QueueExtent]) -> list[str]:
        """Return what lies in no store and on no broker any more, one sentence for each queue."""
        return [loss for queue in sorted(extents) if (loss := self._loss(queue, extents[queue]))]

    def _loss(self, queue: MessageQueue, extent: QueueExtent) -> str | None:
        start = self.start(queue, extent)
        name = describe_queue(queue)
        if extent.first > start:
            between = f"those from {start} on are deleted"
            return f"{name} begins at offset {extent.first}, but its store ends at {start}: {between}"
        if extent.end < start:
            return f"{name} ends at offset {extent.end}, but its store holds messages up to {start}: it was made anew"
        return None


def match_stores(
    stores: Mapping[str, StoreEnd], brokers: Mapping[str, Collection[str]], given: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the broker of each store that has messages; None where ``given`` says that it runs no more.

    Raises:
        ConfigError: A store is of no broker, or of several, or one is given that there is not.
    """
    _check_given(stores, brokers, given)
    return {
        store: given[store] if store in given else _find_broker(store, end, brokers)
        for store, end in stores.items()
        if store in given or end.hosts
    }


def join_stores(stores: Mapping[str, StoreEnd], matched: Mapping[str, str | None]) -> Handoff:
    """Return the handoff of stores; several of one broker end where the last of them does."""
    ends: Offsets = {}
    whole: set[str] = set()
    for store, broker in matched.items():
        if broker is None:
            continue
        if stores[store].is_whole:
            whole.add(broker)
        for (topic, queue_id), end in stores[store].queue_ends.items():
            queue = MessageQueue(topic, broker, queue_id)
            ends[queue] = max(end, ends.get(queue, 0))
    return Handoff(ends, frozenset(whole))


def _check_given(stores: Iterable[str], brokers: Collection[str], given: Mapping[str, str | None]) -> None:
    for store, broker in given.items():
        if store not in stores:
            raise ConfigError(f"{STORE_BROKERS} names {store}, which is none of the stores", key=STORE_BROKERS)
        if broker is not None and broker not in brokers:
            raise ConfigError(f"the cluster has no broker {broker}{nearest(broker, brokers)}", key=STORE_BROKERS)


def _find_broker(store: str, end: StoreEnd, brokers: Mapping[str, Collection[str]]) -> str:
    found = sorted(name for name, addresses in brokers.items() if end.hosts & set(addresses))
    if len(found) == 1:
        return found[0]
    written_by = " and ".join(sorted(end.hosts))
    known = ", ".join(f"{name} at {' and '.join(sorted(addresses))}" for name, addresses in sorted(brokers.items()))
    problem = "several brokers of the cluster" if found else "no broker of the cluster"
    raise ConfigError(
        f"store {store} was written by {written_by}, {problem} ({known}); name its broker with {STORE_BROKERS}",
        key=STORE_BROKERS,
    )


_GREW: Final = "the log has grown since"
_EVERYTHING = ReadOptions(Selection(includes_system=True), pick_columns(["storeHost"]))


def ends_of(plan: Plan) -> dict[str, StoreEnd]:
    """Return what each store of a plan tells of itself; raises ``StoreError``."""
    by_store = groupby(plan.splits, key=lambda split: split.store)
    return {store: _end_of(list(splits)) for store, splits in by_store}


def log_ends(plan: Plan) -> dict[str, int]:
    """Return the log offset at which each store of a plan ends."""
    return {split.store: split.base_offset + split.stop for split in plan.splits}


def cut_at(plan: Plan, ends: Mapping[str, int]) -> Plan:
    """Return a plan as it was when stores ended at these log offsets; stores that are not named were not there."""
    splits = [
        _cut(split, ends[split.store])
        for split in plan.splits
        if split.base_offset + split.start < ends.get(split.store, 0)
    ]
    grown = {store for store, end in log_ends(plan).items() if end > ends.get(store, 0)}
    stops = {split.store: LogStop(split.path, split.stop, _GREW, _GREW) for split in splits if split.store in grown}

    def is_before(store: str, path: str, position: int) -> bool:
        return store not in grown or int(os.path.basename(path)) + position < ends.get(store, 0)

    return Plan(
        splits,
        {store: found for store, found in plan.damages.items() if is_before(store, found.path, found.position)},
        {**plan.ends, **stops},
        [missing for missing in plan.missing if is_before(missing.store, missing.path, missing.position)],
        {store: lost for store, lost in plan.lost.items() if store not in grown},
    )


def _end_of(splits: Sequence[Split]) -> StoreEnd:
    return StoreEnd(_newest_hosts(splits), queue_ends(splits), is_whole=splits[0].base_offset == 0)


def _newest_hosts(splits: Iterable[Split]) -> frozenset[str]:
    """Return the hosts in the first records of the last split with records."""
    for split in reversed(list(splits)):
        for batch in SplitReader(_EVERYTHING).read(split):
            if batch.num_rows:
                return frozenset(batch.column(0).to_pylist())
    return frozenset()


def _cut(split: Split, log_end: int) -> Split:
    stop = log_end - split.base_offset
    if split.stop <= stop:
        return split
    return replace(split, stop=stop, end=stop, ends_in_blank=False)
