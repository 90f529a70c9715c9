"""Writes the part that ranges of a cluster have in the report of a reading (``export.report``).

Rules:

- A broker stands where a store does, with the offsets of its queues that are to be read.
- Brokers filter by tags themselves and do not say what they left out: offsets that did not come are counted as such.
- Answers of a light queue are records of other topics, with offsets of their own; nothing is expected of it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...export.plan.selection import Reason
from ...export.report.counters import StoreCounters
from ...export.report.report import Report, ReportParts
from ..cluster.cluster_options import ClusterOptions
from ..cluster.queue_ranges import QueueRange, RangePack, ranges_of

_LIGHT_PREFIX: Final = "%LMQ%"


class ReportedRanges(NamedTuple):
    """Ranges of one broker with their number among the parts of a report, and where to say what was met."""

    ranges: tuple[QueueRange, ...]
    number: int
    report: ReportParts

    def begin(self) -> StoreCounters:
        """Return what counts."""
        return StoreCounters(self.ranges[0].broker)

    def finish(self, counters: StoreCounters, options: ClusterOptions) -> None:
        """Say what was met (raises ``ConfigError``)."""
        for each in self.ranges:
            if options.selection.tags and not each.topic.startswith(_LIGHT_PREFIX):
                queue = counters.queue(each.topic, each.queue_id)
                for first, end in list(queue.offsets.gaps(each.start, each.stop)):
                    counters.pass_over((each.topic, each.queue_id), Reason.TAG, first, end)
        self.report.finish(self.number, counters)


def number_parts(
    packs: Sequence[QueueRange | RangePack], options: ClusterOptions, report: ReportParts | None = None
) -> Sequence[QueueRange | RangePack] | list[ReportedRanges]:
    """Return what tasks read with their numbers, if a report is wanted; they go on behind the parts of ``report``.

    Raises:
        ConfigError: The directory of the report cannot be written to.
    """
    if options.report is None:
        return packs
    planned = Report(checks_crc=options.checks_crc)
    for each in (each for pack in packs for each in ranges_of(pack)):
        counters = planned.of_store(each.broker)
        if not each.topic.startswith(_LIGHT_PREFIX):
            counters.expect((each.topic, each.queue_id), each.start, each.stop)
    if report is None:
        first, report = 0, ReportParts.begin(options.report, planned, len(packs))
    else:
        first = report.extend(planned, len(packs))
    return [ReportedRanges(ranges_of(pack), first + number, report) for number, pack in enumerate(packs)]
