"""What store directories tell of the brokers that wrote them: whose they are, and where their queues end.

Rules:

- It is told of the part of the log that was planned, so that history and cluster meet where the reading of files ends.
- A broker writes its address into every record; that of the newest records counts, since brokers move.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from ...export.columns.schema import pick_columns
from ...export.plan.log_end import LogStop
from ...export.plan.read_plan import Plan
from ...export.plan.selection import Selection
from ...export.plan.split import Split
from ...export.pushdown.queue_ends import queue_ends
from ...export.write.log_reader import ReadOptions, SplitReader
from .seam import StoreEnd

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
