"""Reads a running cluster as a table: plans ranges in the driver, and pulls each of them in a task.

    read_range(ranges, reading)     what a task does, of a batch or of a stream

Rules:

- Queues are read up to where they ended when the table was loaded (``snapshot``). What is sent later belongs to the
  next ``load``.
- Topics that are not there, offsets that do not fit and lost messages fail in planning, as far as they are known then.
- Nothing is stored on the brokers: no offset, no consumer that they know of.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ...common.message import MessageQueue
from ...export.report.tally import StoreTally
from ...export.write.blockread import ReadOptions
from ...export.write.pulled import PulledReader, pick_live_columns
from ...remoting.transport.loop import find_loop_factory
from ...store.commitlog.record_blocks import ScanLimits
from ..cluster.liveoptions import LiveOptions
from ..cluster.liveplan import plan_live
from ..cluster.liverange import Extent, LiveRange, RangePack, pack_ranges, ranges_of
from ..options.columns import check_types, fit
from ..options.filters import PushFilters, push_filters
from .livereport import LivePart, number_parts
from .messagesizes import sample_bytes
from .pulling import RangePulls


@dataclass(frozen=True)
class LiveReading:
    """What tasks are to do: how to pull, and which columns to make of it."""

    options: LiveOptions
    schema: pa.Schema

    @property
    def read_options(self) -> ReadOptions:
        """Which messages and columns are read."""
        checks_crc = self.options.checks_crc and "body" in self.schema.names
        limits, delays_ms = ScanLimits(checks_crc=checks_crc), self.options.delays_ms
        columns = pick_live_columns(self.schema.names)
        return ReadOptions(self.options.selection, columns, limits, delays_ms=delays_ms)


class LiveReader(DataSourceReader):
    """Plans one reading of a cluster, and reads its partitions; travels to the tasks."""

    def __init__(
        self, options: LiveOptions, schema: pa.Schema, extents: Mapping[MessageQueue, Extent] | None = None
    ) -> None:
        check_types(schema, pick_live_columns(schema.names))
        self._reading = LiveReading(options, schema)
        self._extents = extents

    @PushFilters
    def pushFilters(  # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride] # Spark's; called like a method
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Take what narrows the reading, and return the other filters."""
        options = self._reading.options
        if not options.pushes_filters:
            return filters
        selection, left, _ = push_filters(options.selection, filters)
        self._reading = replace(self._reading, options=replace(options, selection=selection))
        return left

    def partitions(self) -> list[InputPartition]:
        """Return one partition per range, or for small ones; raises what ``plan_live`` does."""
        options = self._reading.options
        ranges = plan_live(options, self._extents)
        packs = pack_ranges(ranges, options.min_partitions, options.max_records, sample_bytes(ranges, options))
        return [InputPartition(part) for part in number_parts(packs, options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what ``read_range`` does."""
        planned: LivePart | LiveRange | RangePack | None = partition.value
        if planned is not None:  # what Spark makes of a plan without partitions
            yield from read_part(planned, self._reading)


def read_part(planned: LivePart | LiveRange | RangePack, reading: LiveReading) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task, and say what was met if a report is wanted; raises what ``read_range`` does."""
    if not isinstance(planned, LivePart):
        yield from read_range(ranges_of(planned), reading)
    else:
        tally = planned.begin()
        yield from read_range(planned.ranges, reading, tally)
        planned.finish(tally, reading.options)


def read_range(
    ranges: Sequence[LiveRange], reading: LiveReading, tally: StoreTally | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of some ranges, broker by broker, each queue in the order of its offsets.

    Raises:
        DataLossError: Messages are not there any more, and that matters.
        RemotingError, ResponseError: A broker cannot be asked.
        DecodeError: An answer cannot be read.
    """
    for broker in dict.fromkeys(each.broker for each in ranges):
        yield from _read_broker([each for each in ranges if each.broker == broker], reading, tally)


def _read_broker(
    ranges: Sequence[LiveRange], reading: LiveReading, tally: StoreTally | None
) -> Iterator[pa.RecordBatch]:
    reader = PulledReader(ranges[0].broker, reading.read_options, tally)
    pulls = RangePulls(ranges, reading.options)
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        while (answers := runner.run(pulls.collect())) is not None:
            for batch in reader.read(answers) if answers else ():
                if batch.num_rows:
                    yield fit(batch, reading.schema)
