"""The report of a reading before it begins: where logs end, what filters exclude, what is to be read."""

from collections.abc import Mapping, Sequence

from ..plan.plan import Plan
from ..report.report import Report
from .pushdown import Narrowed


def planned_report(
    plan: Plan, narrowed: Mapping[str, Narrowed], filters: Sequence[str] = (), *, checks_crc: bool = True
) -> Report:
    """Return the report that parts are added to; ``filters`` are told for stores of which anything was pushed down."""
    report = Report(checks_crc=checks_crc)
    for store in dict.fromkeys([*(split.store for split in plan.splits), *plan.ends, *plan.damages]):
        tally = report.of_store(store)
        tally.damage = plan.damages.get(store)
        tally.end = plan.ends.get(store) if tally.damage is None else None
        if store in narrowed:
            tally.pushed += [*filters, *narrowed[store].texts]
            for key, first, end in narrowed[store].expected:
                tally.expect(key, first, end)
        for key, (first, end) in plan.lost.get(store, {}).items():
            tally.expect(key, first, end)
    for store, path, position, size_bytes, reason in plan.missing:
        report.of_store(store).skip(path, position, size_bytes, reason)
    return report
