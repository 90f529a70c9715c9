"""The part that ranges of a cluster have in the report of a reading (``export.reportparts``).

Rules:

- A broker stands where a store does, with the offsets of its queues that are to be read.
- Brokers filter by tags themselves and do not say what they left out: offsets that did not come are counted as such.
- Answers of a light queue are records of other topics, with offsets of their own; nothing is expected of it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..export.report import Report
from ..export.reportparts import ReportParts
from ..export.selection import Reason
from ..export.tally import StoreTally
from .liveoptions import LiveOptions
from .liverange import LiveRange

_LIGHT_PREFIX: Final = "%LMQ%"


class LivePart(NamedTuple):
    """A range with its number among the parts of a report, and where to say what was met."""

    range: LiveRange
    number: int
    report: ReportParts

    def begin(self) -> StoreTally:
        """Return what counts."""
        return StoreTally(self.range.broker)

    def finish(self, tally: StoreTally, options: LiveOptions) -> None:
        """Say what was met (raises ``ConfigError``)."""
        each = self.range
        if options.selection.tags and not each.topic.startswith(_LIGHT_PREFIX):
            queue = tally.queue(each.topic, each.queue_id)
            for first, end in list(queue.offsets.gaps(each.start, each.stop)):
                tally.pass_over((each.topic, each.queue_id), Reason.TAG, first, end)
        self.report.finish(self.number, tally)


def number_parts(
    ranges: Sequence[LiveRange], options: LiveOptions, report: ReportParts | None = None
) -> "list[LiveRange] | list[LivePart]":
    """Return the ranges with their numbers, if a report is wanted; they go on behind the parts of ``report``.

    Raises:
        ConfigError: The directory of the report cannot be written to.
    """
    if options.report is None:
        return list(ranges)
    planned = Report(checks_crc=options.checks_crc)
    for each in ranges:
        tally = planned.of_store(each.broker)
        if not each.topic.startswith(_LIGHT_PREFIX):
            tally.expect((each.topic, each.queue_id), each.start, each.stop)
    if report is None:
        first, report = 0, ReportParts.begin(options.report, planned, len(ranges))
    else:
        first = report.extend(planned, len(ranges))
    return [LivePart(each, first + number, report) for number, each in enumerate(ranges)]
