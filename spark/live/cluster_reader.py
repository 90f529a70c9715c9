"""Reads a running cluster as a table: plans ranges in the driver, and pulls each of them in a task.

    plan_ranges_of(options)         which offsets of which queues a reading has, cut for the tasks
    sample_bytes(ranges, options)   the bytes of a message by topic, so that tasks get as much to do as they should
    read_range(ranges, reading)     what a task does, of a batch or of a stream

Rules:

- Queues are read up to where they ended when the table was loaded (``LoadSnapshot``). What is sent later belongs to the
  next ``load``.
- Topics that are not there, offsets that do not fit and lost messages fail in planning, as far as they are known then.
- What a selection excludes is not pulled where topic, queue, offset or store time tell. Clocks may have been set back,
  so offsets by time get a margin; the tasks judge each message anyway.
- Message sizes are asked for only where so many ranges are that some are packed together (``pack_ranges``), and of the
  topics with most messages only; of the others a usual size is assumed. It is an estimate: a broker that cannot be
  asked, and a message that is gone, only make it worse.
- Nothing is stored on the brokers: no offset, no consumer that they know of.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ...common.errors import ConfigError, RocketletError
from ...common.message import MessageQueue
from ...export.plan.selection import Selection
from ...export.report.counters import StoreCounters
from ...export.write.log_reader import ReadOptions
from ...export.write.pulled_reader import PulledReader, pick_live_columns
from ...remoting.transport.event_loop import find_loop_factory
from ...store.commitlog.record_blocks import ScanLimits
from ..cluster.cluster import Addresses, Cluster
from ..cluster.cluster_options import ClusterOptions, find_queues
from ..cluster.offset_bounds import DataLoss, make_ranges, resolve_offsets
from ..cluster.queue_ranges import (
    MESSAGE_BYTES,
    USUAL_TASKS,
    QueueExtent,
    QueueRange,
    RangePack,
    describe_queue,
    pack_ranges,
    plan_ranges,
    ranges_of,
)
from ..options.filter_pushdown import PushFilters, push_filters
from ..options.spark_schemas import check_types, fit_to_spark
from .cluster_report import ReportedRanges, number_parts
from .range_fetcher import RangeFetcher

_MARGIN_MS: Final = 60_000


def plan_ranges_of(
    options: ClusterOptions, extents: Mapping[MessageQueue, QueueExtent] | None = None
) -> list[QueueRange]:
    """Return the ranges of one reading; of queues as they were, if that is given.

    Raises:
        ConfigError: A topic, queue or offset that cannot be read.
        DataLossError: Offsets that are not there any more, and that matters.
        RemotingError, ResponseError: A server cannot be asked.
    """
    cluster = Cluster(options.access)
    queues = find_queues(cluster, options.choice)
    extents = cluster.extents(queues) if extents is None else extents
    _check_gone(extents, queues, options.data_loss)
    queues = {queue: address for queue, address in queues.items() if queue in extents}
    starts = resolve_offsets(cluster, queues, extents, options.starting, options.data_loss)
    stops = resolve_offsets(cluster, queues, extents, options.ending, options.data_loss)
    ranges = list(make_ranges(queues, starts, stops))
    if options.starting.offsets and options.ending.offsets:
        _check_order(ranges, options.ending.option)
    return plan_ranges(narrow(cluster, ranges, options.selection), options.min_partitions, options.max_records)


def _check_gone(extents: Mapping[MessageQueue, QueueExtent], queues: Addresses, data_loss: DataLoss) -> None:
    for queue in sorted(extents.keys() - queues.keys()):
        if extents[queue].end > extents[queue].first:
            data_loss.report(f"{describe_queue(queue)} was there when the table was loaded, and no broker has it now")


def _check_order(ranges: Iterable[QueueRange], option: str) -> None:
    for each in ranges:
        if each.start > each.stop:
            raise ConfigError(f"{option}: {each} begins at offset {each.start}, behind its end {each.stop}", key=option)


def narrow(cluster: Cluster, ranges: Iterable[QueueRange], selection: Selection) -> list[QueueRange]:
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
    cluster: Cluster, ranges: Iterable[QueueRange], at_ms: int | None, margin_ms: int
) -> dict[MessageQueue, int]:
    addresses = {each.queue: each.address for each in ranges if len(each)}
    if at_ms is None or not addresses:
        return {}
    return cluster.offsets_at(addresses, dict.fromkeys(addresses, at_ms + margin_ms))


def _clip(whole: QueueRange, first: int | None, end: int | None) -> QueueRange:
    start = whole.start if first is None else max(whole.start, first)
    stop = whole.stop if end is None else min(whole.stop, end)
    return replace(whole, start=start, stop=max(start, stop))


@dataclass(frozen=True)
class RangeReading:
    """What tasks are to do: how to pull, and which columns to make of it."""

    options: ClusterOptions
    schema: pa.Schema

    @property
    def read_options(self) -> ReadOptions:
        """Which messages and columns are read."""
        checks_crc = self.options.checks_crc and "body" in self.schema.names
        limits, delays_ms = ScanLimits(checks_crc=checks_crc), self.options.delays_ms
        columns = pick_live_columns(self.schema.names)
        return ReadOptions(self.options.selection, columns, limits, delays_ms=delays_ms)

    def narrowed(self, filters: list[Filter]) -> tuple["RangeReading", list[Filter]]:
        """Return what filters leave of it, if they are to be taken, and the filters that are left to Spark."""
        if not self.options.pushes_filters:
            return self, filters
        selection, left, _ = push_filters(self.options.selection, filters)
        return replace(self, options=replace(self.options, selection=selection)), left


class ClusterReader(DataSourceReader):
    """Plans one reading of a cluster, and reads its partitions; travels to the tasks."""

    def __init__(
        self, options: ClusterOptions, schema: pa.Schema, extents: Mapping[MessageQueue, QueueExtent] | None = None
    ) -> None:
        check_types(schema, pick_live_columns(schema.names))
        self._reading = RangeReading(options, schema)
        self._extents = extents

    @PushFilters
    def pushFilters(  # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride] # Spark's; called like a method
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Take what narrows the reading, and return the other filters."""
        self._reading, left = self._reading.narrowed(filters)
        return left

    def partitions(self) -> list[InputPartition]:
        """Return one partition per range, or for small ones; raises what ``plan_ranges_of`` does."""
        options = self._reading.options
        ranges = plan_ranges_of(options, self._extents)
        packs = pack_ranges(ranges, options.min_partitions, options.max_records, sample_bytes(ranges, options))
        return [InputPartition(part) for part in number_parts(packs, options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what ``read_range`` does."""
        planned: ReportedRanges | QueueRange | RangePack | None = partition.value
        if planned is not None:  # what Spark makes of a plan without partitions
            yield from read_part(planned, self._reading)


def read_part(planned: ReportedRanges | QueueRange | RangePack, reading: RangeReading) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task, and say what was met if a report is wanted; raises what ``read_range`` does."""
    if not isinstance(planned, ReportedRanges):
        yield from read_range(ranges_of(planned), reading)
    else:
        counters = planned.begin()
        yield from read_range(planned.ranges, reading, counters)
        planned.finish(counters, reading.options)


def read_range(
    ranges: Sequence[QueueRange], reading: RangeReading, counters: StoreCounters | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of some ranges, broker by broker, each queue in the order of its offsets.

    Raises:
        DataLossError: Messages are not there any more, and that matters.
        RemotingError, ResponseError: A broker cannot be asked.
        DecodeError: An answer cannot be read.
    """
    for broker in dict.fromkeys(each.broker for each in ranges):
        yield from _read_broker([each for each in ranges if each.broker == broker], reading, counters)


def _read_broker(
    ranges: Sequence[QueueRange], reading: RangeReading, counters: StoreCounters | None
) -> Iterator[pa.RecordBatch]:
    reader = PulledReader(ranges[0].broker, reading.read_options, counters)
    pulls = RangeFetcher(ranges, reading.options)
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        while (answers := runner.run(pulls.collect())) is not None:
            for batch in reader.read(answers) if answers else ():
                if batch.num_rows:
                    yield fit_to_spark(batch, reading.schema)


_MOST_TOPICS: Final = 64
_log = logging.getLogger(__name__)


def sample_bytes(ranges: Sequence[QueueRange], options: ClusterOptions) -> dict[str, float]:
    """Return the bytes of a message by topic, as far as they are worth asking for."""
    if len(ranges) <= max(options.min_partitions or 0, USUAL_TASKS):
        return {}
    messages: Counter[str] = Counter()
    largest: dict[str, QueueRange] = {}
    for each in ranges:
        messages[each.topic] += len(each)
        if each.topic not in largest or len(each) > len(largest[each.topic]):
            largest[each.topic] = each
    topics = [topic for topic, _ in messages.most_common(_MOST_TOPICS)]
    asked = [replace(largest[topic], start=largest[topic].stop - 1) for topic in topics]
    once = replace(options.access, retries=0)
    try:
        with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
            return runner.run(_ask(asked, replace(options, access=once, data_loss=DataLoss(fails=False))))
    except RocketletError as error:
        _log.info("sampling message sizes failed, assuming %d bytes a message: %s", MESSAGE_BYTES, error)
        return {}


async def _ask(ranges: Sequence[QueueRange], options: ClusterOptions) -> dict[str, float]:
    pulls = RangeFetcher(ranges, options)
    found: dict[str, float] = {}
    while (answers := await pulls.collect()) is not None:
        found |= {each.topic: float(len(each.body)) for each in answers if each.body}
    return found
