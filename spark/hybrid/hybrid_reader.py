"""Reads the history of brokers from their stores, and what came later from their cluster, as one table or stream.

    offsets    {}    {"/stores": {"/data/a": 52428800}, "Orders": {"broker-a": {"0": 41}}}    {… "0": 58}
    batch         history, up to the end of the log in each store             what came after the handoff

Rules:

- When the table is loaded, it is fixed where the log of each store ends, and then where the queues of the cluster do
  (``LoadSnapshot``): what is sent in between is read from the cluster, what is sent later from neither.
- Where a queue goes on in the cluster is the rule of ``handoff``. Messages that are in neither are loss.
- A broker may show a message a little after it is in the log. While a queue ends below its handoff, it is asked again
  for some time before that is loss.
- A topic that the cluster has no more is read from the stores alone. Stores without a broker are history alone.
- Store and cluster are judged by the same selection, so a message that one leaves out the other does too.
- The first batch of a stream is the history, all of it, whatever the limit of a batch. Its end names where each log
  ended and where each queue goes on, so that it is the same when it is read again; from there on it is any other
  stream. Stores must stay as they are until that batch is done: a log that ends before its planned end is loss.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ...common.errors import ConfigError, nearest
from ...common.message import MessageQueue
from ...export.columns.schema import SCHEMA
from ...export.plan.read_plan import Plan
from ...export.write.pulled_reader import BROKER_COLUMN, pick_live_columns
from ...remoting.transport.event_loop import LoopClock
from ..cluster.cluster import Addresses, Cluster
from ..cluster.cluster_options import QueueChoice, find_present, find_queues
from ..cluster.offset_bounds import DataLoss, make_ranges
from ..cluster.queue_ranges import QueueExtent, QueueRange, RangePack, pack_ranges, plan_ranges
from ..live.cluster_reader import RangeReading, narrow, read_part, sample_bytes
from ..live.cluster_report import ReportedRanges, number_parts
from ..options.filter_pushdown import PushFilters
from ..options.option_values import OptionValues
from ..options.spark_schemas import check_types
from ..stream.cluster_poller import snapshot_now
from ..stream.stream_offsets import format_offsets
from ..stream.stream_options import StreamOptions, add_limits
from ..stream.stream_reader import ClusterStreamReader
from .handoff import Handoff, cut_at, ends_of, join_stores, log_ends, match_stores
from .read_modes import HybridOptions, LoadSnapshot, parse_hybrid
from .store_reader import SplitPart, StoreReader

_ASKED_AGAIN: Final = 20
_PAUSE_MS: Final = 250


class History(NamedTuple):
    """What is read of stores: their plan, the topics that are read, the broker of each store, and where they end.

    ``known`` are all topics that stores have.
    """

    plan: Plan
    topics: frozenset[str]
    brokers: Mapping[str, str | None]
    handoff: Handoff
    known: frozenset[str]


class HistorySplit(NamedTuple):
    """A split of a store, the topics that are read, and the broker that wrote it."""

    part: SplitPart
    topics: frozenset[str]
    broker: str | None


class HybridReader(DataSourceReader):
    """Plans one reading of stores and cluster, and reads its partitions; travels to the tasks."""

    def __init__(self, options: HybridOptions, schema: pa.Schema, snapshot: LoadSnapshot | None = None) -> None:
        check_types(schema, pick_live_columns(schema.names))
        self._options = options
        self._schema = schema
        self._extents = None if snapshot is None else snapshot.extents
        log_ends = None if snapshot is None else snapshot.log_ends
        self.stores = StoreReader(options.stores, _own_columns(schema), (), log_ends)
        self._reading = RangeReading(options.live, schema)

    @PushFilters
    def pushFilters(  # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride] # Spark's; called like a method
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Take what narrows both readings, and return the other filters."""
        self._reading, left = self._reading.narrowed(filters)
        self.stores.pushFilters(filters)
        return left

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each split and each range.

        Raises:
            ConfigError: A store, topic or broker that cannot be read.
            StoreError: A store cannot be read, or is damaged where its log ends.
            DataLossError: Messages are neither in a store nor in the cluster, and that matters.
            RemotingError, ResponseError: A server cannot be asked.
        """
        live = self._reading.options
        cluster = Cluster(live.access)
        history = plan_history(self._options, self.stores.plan(), cluster)
        queues = find_present(cluster, live.choice)
        check_topics(live.choice, history, queues)
        extents = wait_for_handoff(cluster, queues, history.handoff, live.data_loss)
        starts = {queue: history.handoff.start(queue, extent) for queue, extent in extents.items()}
        fixed = extents if self._extents is None else self._extents
        stops = {queue: min(extent.end, fixed[queue].end) for queue, extent in extents.items() if queue in fixed}
        ranges = narrow(cluster, make_ranges(queues, starts, stops), live.selection)
        cut = plan_ranges(ranges, live.min_partitions, live.max_records)
        packs = pack_ranges(cut, live.min_partitions, live.max_records, sample_bytes(cut, live))
        known = self.parts(history)
        report = known[0].part.report if known else None
        return [InputPartition(part) for part in (*known, *number_parts(packs, live, report))]

    def parts(self, history: History) -> list[HistorySplit]:
        """Return the splits of stores that may hold what is wanted; raises ``StoreError``."""
        if not history.topics:
            return []
        stores = self.stores.among(history.topics)
        return [
            HistorySplit(part, history.topics, history.brokers.get(part.split.store))
            for part in stores.parts(history.plan)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what the readers of stores and clusters do."""
        planned: HistorySplit | ReportedRanges | QueueRange | RangePack | None = partition.value
        if isinstance(planned, HistorySplit):
            stores = self.stores.among(planned.topics)
            for batch in stores.read(InputPartition(planned.part)):
                yield _with_broker(batch, planned.broker, self._schema)
        elif planned is not None:  # what Spark makes of a plan without partitions
            yield from read_part(planned, self._reading)


def plan_history(options: HybridOptions, plan: Plan, cluster: Cluster) -> History:
    """Find out what the stores of a plan hold of the chosen topics, and whose they are.

    Raises:
        ConfigError: A store is of no broker of the cluster.
        StoreError: A store cannot be read.
        RemotingError, ResponseError: No name server tells the brokers.
    """
    ends = ends_of(plan)
    brokers = match_stores(ends, cluster.brokers(), options.store_brokers)
    handoff = join_stores(ends, brokers)
    known = frozenset(topic for end in ends.values() for topic, _ in end.queue_ends)
    topics = frozenset(topic for topic in known if is_chosen(topic, options))
    return History(plan, topics, brokers, handoff, known)


def is_chosen(topic: str, options: HybridOptions) -> bool:
    """Tell whether a topic of a store is read."""
    pattern = options.live.choice.pattern
    return options.stores.selection.wants_topic(topic) and (pattern is None or bool(re.fullmatch(pattern, topic)))


def check_topics(choice: QueueChoice, history: History, queues: Addresses) -> None:
    """Raise ``ConfigError`` when a topic is named that is neither in a store nor in the cluster."""
    known = {*history.topics, *(queue.topic for queue in queues)}
    for topic in sorted(choice.topics - known):
        hint = nearest(topic, known | history.known)
        raise ConfigError(f"there is no topic {topic}, neither in the stores nor in the cluster{hint}", key=topic)


def wait_for_handoff(
    cluster: Cluster, queues: Addresses, handoff: Handoff, data_loss: DataLoss
) -> dict[MessageQueue, QueueExtent]:
    """Return what each queue holds, once none of them ends below the handoff.

    Raises:
        DataLossError: One does for long, or messages behind the handoff are gone, and that matters.
        RemotingError, ResponseError: A broker cannot be asked.
    """
    extents = cluster.extents(queues)
    for _ in range(_ASKED_AGAIN):
        if not handoff.is_behind(extents):
            break
        asyncio.run(LoopClock().sleep(_PAUSE_MS))
        extents = cluster.extents(queues)
    for loss in handoff.data_loss(extents):
        data_loss.report(loss)
    return extents


def _own_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns that a store has; one of them at least, for the number of rows."""
    fields = [field for field in schema if field.name != BROKER_COLUMN]
    return pa.schema(fields or [SCHEMA.field("queueId")])


def _with_broker(batch: pa.RecordBatch, broker: str | None, schema: pa.Schema) -> pa.RecordBatch:
    count = batch.num_rows
    names = pa.nulls(count, pa.string()) if broker is None else pa.repeat(broker, count)
    columns = [names if name == BROKER_COLUMN else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


STORES: Final = "/stores"


def read_as_stream(given: OptionValues, schema: pa.Schema) -> "HybridStreamReader":
    """Return the reader of a stream.

    Raises:
        ConfigError: A value that cannot be used, or options that contradict each other.
    """
    hybrid = parse_hybrid(given)
    return HybridStreamReader(hybrid, add_limits(given, hybrid.live), schema)


class HybridStreamReader(ClusterStreamReader):
    """Plans the history and then batch after batch, and reads their partitions; travels to the tasks."""

    def __init__(self, hybrid: HybridOptions, options: StreamOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._hybrid_options = hybrid
        self._hybrid = HybridReader(hybrid, schema)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """Return where the next batch ends.

        Raises:
            ConfigError: At the beginning: a store, topic or broker that cannot be read.
            StoreError: A store cannot be read.
            DataLossError: Messages are gone, and that matters.
            RemotingError, ResponseError: No name server answers; at the beginning, a broker does not.
        """
        if STORES in start:
            return {STORES: start[STORES], **super().latestOffset(_queues_in(start), limit)}
        return self._end_of_history()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions of a batch.

        Raises:
            StoreError: A store cannot be read.
            DataLossError: A queue of the batch, or a part of a store, is gone, and that matters.
            RemotingError, ResponseError: No name server answers.
        """
        if STORES in start:
            return super().partitions(_queues_in(start), _queues_in(end))
        return self._plan_history(end.get(STORES, {}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what ``HybridReader.read`` does."""
        yield from self._hybrid.read(partition)

    def _end_of_history(self) -> dict[str, Any]:
        plan = self._hybrid.stores.plan()
        handoff = plan_history(self._hybrid_options, plan, self._cluster).handoff
        live = self._options.live
        queues = find_queues(self._cluster, live.choice, needs_any=False)
        extents = wait_for_handoff(self._cluster, queues, handoff, live.data_loss)
        if self._target is not None:  # what stores held beyond the first poll belongs to this run as well
            self._target = snapshot_now(queues, extents)
        starts = {queue: handoff.start(queue, extent) for queue, extent in extents.items()}
        return {
            STORES: dict(sorted(log_ends(plan).items())),
            **format_offsets(starts, snapshot_now(queues, extents).at_ms),
        }

    def _plan_history(self, ends: Mapping[str, int]) -> list[InputPartition]:
        plan = self._hybrid.stores.plan()
        there = log_ends(plan)
        for store, end in ends.items():
            if there.get(store, 0) < end:
                self._options.live.data_loss.report(
                    f"store {store} ended at log offset {end}, and is shorter now or gone"
                )
        history = plan_history(self._hybrid_options, cut_at(plan, ends), self._cluster)
        return [InputPartition(part) for part in self._hybrid.parts(history)]


def _queues_in(offsets: Mapping[str, Any]) -> dict[str, Any]:
    return {topic: brokers for topic, brokers in offsets.items() if topic != STORES}
