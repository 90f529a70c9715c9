"""Cuts a plan at the first damage, so that tasks that do not know each other read one prefix of each store.

Rule: only a walk over all records finds the damage. ``plan_prefixes`` leaves that to the reading, which goes through
the files in order and may stop; tasks go through them side by side, and must be told before.
"""

from collections import deque
from dataclasses import replace

from ..common.errors import StoreDamagedError
from ..store.blockscan import Scan, ScanLimits
from .plan import Plan, Split
from .read import find_damage


def cut_at_damage(plan: Plan, limits: ScanLimits) -> Plan:
    """Read all records of a plan, and return the plan up to the first damage of each store (raises ``StoreError``)."""
    splits: list[Split] = []
    found: dict[str, StoreDamagedError] = {}
    for split in plan.splits:
        if split.store in found:
            continue
        stop, damage = _walk(split, limits)
        if damage is not None:
            found[split.store] = damage
            split = replace(split, stop=stop, ends_in_blank=False)
        if len(split):
            splits.append(split)
    ends = {store: end for store, end in plan.ends.items() if store not in found}
    return Plan(splits, {**plan.damages, **found}, ends)


def _walk(split: Split, limits: ScanLimits) -> tuple[int, StoreDamagedError | None]:
    scan = Scan(split.open(), split.start, split.stop, limits)
    deque(scan, maxlen=0)
    return scan.position, find_damage(split, scan)
