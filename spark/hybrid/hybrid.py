"""Reads the history of brokers from their stores, and what came later from their cluster, as one table.

Rules:

- When the table is loaded, it is fixed where the log of each store ends, and then where the queues of the cluster do
  (``snapshot``): what is sent in between is read from the cluster, what is sent later from neither.
- Where a queue goes on in the cluster is the rule of ``seam``. Messages that are in neither are loss.
- A broker may show a message a little after it is in the log. While a queue ends below its seam, it is asked again for
  some time before that is loss.
- A topic that the cluster has no more is read from the stores alone. Stores without a broker are history alone.
- Store and cluster are judged by the same selection, so a message that one leaves out the other does too.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ...common.errors import ConfigError
from ...common.message import MessageQueue
from ...common.nearest import nearest
from ...export.columns.schema import SCHEMA
from ...export.plan.read_plan import Plan
from ...export.write.pulled_reader import BROKER_COLUMN, pick_live_columns
from ...remoting.transport.clock import LoopClock
from ..cluster.choice import Choice, find_present
from ..cluster.cluster import Addresses, Cluster
from ..cluster.liveoffsets import make_ranges
from ..cluster.liveplan import narrow
from ..cluster.liverange import Extent, LiveRange, RangePack, pack_ranges, plan_ranges
from ..live.live import LiveReading, read_part
from ..live.livereport import LivePart, number_parts
from ..live.messagesizes import sample_bytes
from ..options.columns import check_types
from ..options.filters import PushFilters, push_filters
from ..options.losses import Losses
from .cold import Part, StoreReader
from .history import ends_of
from .hybridoptions import HybridOptions
from .seam import Seam, join_stores, match_stores
from .snapshot import Snapshot

_ASKED_AGAIN: Final = 20
_PAUSE_MS: Final = 250


class History(NamedTuple):
    """What is read of stores: their plan, the topics that are read, the broker of each store, and where they end.

    ``known`` are all topics that stores have.
    """

    plan: Plan
    topics: frozenset[str]
    brokers: Mapping[str, str | None]
    seam: Seam
    known: frozenset[str]


class HistoryPart(NamedTuple):
    """A split of a store, the topics that are read, and the broker that wrote it."""

    part: Part
    topics: frozenset[str]
    broker: str | None


class HybridReader(DataSourceReader):
    """Plans one reading of stores and cluster, and reads its partitions; travels to the tasks."""

    def __init__(self, options: HybridOptions, schema: pa.Schema, snapshot: Snapshot | None = None) -> None:
        check_types(schema, pick_live_columns(schema.names))
        self._options = options
        self._schema = schema
        self._extents = None if snapshot is None else snapshot.extents
        log_ends = None if snapshot is None else snapshot.log_ends
        self.stores = StoreReader(options.stores, _own_columns(schema), (), log_ends)
        self._reading = LiveReading(options.live, schema)

    @PushFilters
    def pushFilters(  # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride] # Spark's; called like a method
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Take what narrows both readings, and return the other filters."""
        live = self._reading.options
        if not live.pushes_filters:
            return filters
        selection, left, _ = push_filters(live.selection, filters)
        self._reading = replace(self._reading, options=replace(live, selection=selection))
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
        extents = look_behind_seam(cluster, queues, history.seam, live.losses)
        starts = {queue: history.seam.start(queue, extent) for queue, extent in extents.items()}
        fixed = extents if self._extents is None else self._extents
        stops = {queue: min(extent.end, fixed[queue].end) for queue, extent in extents.items() if queue in fixed}
        ranges = narrow(cluster, make_ranges(queues, starts, stops), live.selection)
        cut = plan_ranges(ranges, live.min_partitions, live.max_records)
        packs = pack_ranges(cut, live.min_partitions, live.max_records, sample_bytes(cut, live))
        known = self.parts(history)
        report = known[0].part.report if known else None
        return [InputPartition(part) for part in (*known, *number_parts(packs, live, report))]

    def parts(self, history: History) -> list[HistoryPart]:
        """Return the splits of stores that may hold what is wanted; raises ``StoreError``."""
        if not history.topics:
            return []
        stores = self.stores.among(history.topics)
        return [
            HistoryPart(part, history.topics, history.brokers.get(part.split.store))
            for part in stores.parts(history.plan)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what the readers of stores and clusters do."""
        planned: HistoryPart | LivePart | LiveRange | RangePack | None = partition.value
        if isinstance(planned, HistoryPart):
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
    seam = join_stores(ends, brokers)
    known = frozenset(topic for end in ends.values() for topic, _ in end.queue_ends)
    topics = frozenset(topic for topic in known if is_chosen(topic, options))
    return History(plan, topics, brokers, seam, known)


def is_chosen(topic: str, options: HybridOptions) -> bool:
    """Tell whether a topic of a store is read."""
    pattern = options.live.choice.pattern
    return options.stores.selection.wants_topic(topic) and (pattern is None or bool(re.fullmatch(pattern, topic)))


def check_topics(choice: Choice, history: History, queues: Addresses) -> None:
    """Raise ``ConfigError`` when a topic is named that is neither in a store nor in the cluster."""
    known = {*history.topics, *(queue.topic for queue in queues)}
    for topic in sorted(choice.topics - known):
        hint = nearest(topic, known | history.known)
        raise ConfigError(f"there is no topic {topic}, neither in the stores nor in the cluster{hint}", key=topic)


def look_behind_seam(cluster: Cluster, queues: Addresses, seam: Seam, losses: Losses) -> dict[MessageQueue, Extent]:
    """Return what each queue holds, once none of them ends below the seam.

    Raises:
        DataLossError: One does for long, or messages behind the seam are gone, and that matters.
        RemotingError, ResponseError: A broker cannot be asked.
    """
    extents = cluster.extents(queues)
    for _ in range(_ASKED_AGAIN):
        if not seam.is_behind(extents):
            break
        asyncio.run(LoopClock().sleep(_PAUSE_MS))
        extents = cluster.extents(queues)
    for loss in seam.losses(extents):
        losses.say(loss)
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
