"""What store directories tell of the brokers that wrote them: whose they are, and where their queues end.

Rules:

- It is told of the part of the log that was planned, so that history and cluster meet where the reading of files ends.
- A broker writes its address into every record; that of the newest records counts, since brokers move.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from ..export.plan import Plan
from ..export.queueends import queue_ends
from ..export.read import ReadOptions, SplitReader
from ..export.schema import pick_columns
from ..export.selection import Selection
from ..export.split import Split
from .seam import StoreEnd

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
    splits = (
        _cut(split, ends[split.store])
        for split in plan.splits
        if split.base_offset + split.start < ends.get(split.store, 0)
    )
    return plan._replace(splits=list(splits))


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
