"""Plans a reading of a running cluster: which offsets of which queues, cut for the tasks.

Rule: what a selection excludes is not pulled where topic, queue, offset or store time tell. Clocks may have been set
back, so offsets by time get a margin; the tasks judge each message anyway.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ...common.errors import ConfigError
from ...common.message import MessageQueue
from ...export.plan.selection import Selection
from ..options.losses import Losses
from .choice import find_queues
from .cluster import Addresses, Cluster
from .liveoffsets import make_ranges, resolve_offsets
from .liveoptions import LiveOptions
from .liverange import Extent, LiveRange, plan_ranges

_MARGIN_MS: Final = 60_000


def plan_live(options: LiveOptions, extents: Mapping[MessageQueue, Extent] | None = None) -> list[LiveRange]:
    """Return the ranges of one reading; of queues as they were, if that is given.

    Raises:
        ConfigError: A topic, queue or offset that cannot be read.
        DataLossError: Offsets that are not there any more, and that matters.
        RemotingError, ResponseError: A server cannot be asked.
    """
    cluster = Cluster(options.access)
    queues = find_queues(cluster, options.choice)
    extents = cluster.extents(queues) if extents is None else extents
    _check_gone(extents, queues, options.losses)
    queues = {queue: address for queue, address in queues.items() if queue in extents}
    starts = resolve_offsets(cluster, queues, extents, options.starting, options.losses)
    stops = resolve_offsets(cluster, queues, extents, options.ending, options.losses)
    ranges = list(make_ranges(queues, starts, stops))
    if options.starting.offsets and options.ending.offsets:
        _check_order(ranges, options.ending.option)
    return plan_ranges(narrow(cluster, ranges, options.selection), options.min_partitions, options.max_records)


def _check_gone(extents: Mapping[MessageQueue, Extent], queues: Addresses, losses: Losses) -> None:
    for queue in sorted(extents.keys() - queues.keys()):
        if extents[queue].end > extents[queue].first:
            name = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
            losses.say(f"{name} was there when the table was loaded, and no broker has it now")


def _check_order(ranges: Iterable[LiveRange], option: str) -> None:
    for each in ranges:
        if each.start > each.stop:
            raise ConfigError(f"{option}: {each} begins at offset {each.start}, behind its end {each.stop}", key=option)


def narrow(cluster: Cluster, ranges: Iterable[LiveRange], selection: Selection) -> list[LiveRange]:
    """Return the parts of ranges that may hold what is wanted; raises what ``Cluster.offsets_at`` does."""
    queue_ids = selection.queue_ids
    wanted = [
        _clip(each, selection.from_offset, selection.until_offset)
        for each in ranges
        if selection.wants_topic(each.topic) and (queue_ids is None or each.queue_id in queue_ids)
    ]
    firsts = _offsets_at(cluster, wanted, selection.from_ms, -_MARGIN_MS)
    ends = _offsets_at(cluster, wanted, selection.until_ms, _MARGIN_MS)
    return [_clip(each, firsts.get(each.queue), ends.get(each.queue)) for each in wanted]


def _offsets_at(
    cluster: Cluster, ranges: Iterable[LiveRange], at_ms: int | None, margin_ms: int
) -> dict[MessageQueue, int]:
    addresses = {each.queue: each.address for each in ranges if len(each)}
    if at_ms is None or not addresses:
        return {}
    return cluster.offsets_at(addresses, dict.fromkeys(addresses, at_ms + margin_ms))


def _clip(whole: LiveRange, first: int | None, end: int | None) -> LiveRange:
    start = whole.start if first is None else max(whole.start, first)
    stop = whole.stop if end is None else min(whole.stop, end)
    return replace(whole, start=start, stop=max(start, stop))
