"""Cuts a plan at the first damage, so that tasks that do not know each other read one prefix of each store.

Rule: only a walk over all records finds the damage. ``plan_prefixes`` leaves that to the reading, which goes through
the files in order and may stop; tasks go through them side by side, and must be told before.
"""

from collections import deque
from dataclasses import replace

from ...common.errors import StoreDamagedError
from ...store.commitlog.record_blocks import ScanLimits
from .plan import Plan
from .split import Split, SplitScan


def cut_at_damage(plan: Plan, limits: ScanLimits) -> Plan:
    """Read all records of a plan, and return the plan up to the first damage of each store (raises ``StoreError``)."""
    splits: list[Split] = []
    found: dict[str, StoreDamagedError] = {}
    for split in plan.splits:
        if split.store in found:
            continue
        damage = _find_damage(split, limits)
        if damage is not None:
            found[split.store] = damage
            stop = max(split.start, damage.position)  # a file may be cut before its split
            split = replace(split, stop=stop, end=stop, ends_in_blank=False)
        if len(split):
            splits.append(split)
    ends = {store: end for store, end in plan.ends.items() if store not in found}
    return plan._replace(splits=splits, damages={**plan.damages, **found}, ends=ends)


def _find_damage(split: Split, limits: ScanLimits) -> StoreDamagedError | None:
    try:
        deque(SplitScan(split, limits), maxlen=0)
    except StoreDamagedError as damage:
        return damage
    return None
