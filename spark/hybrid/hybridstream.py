"""Reads the history of brokers from their stores, and then their cluster, as a stream of batches.

    offsets    {}    {"/stores": {"/data/a": 52428800}, "Orders": {"broker-a": {"0": 41}}}    {… "0": 58}
    batch         history, up to the end of the log in each store             what came behind the seam

Rules:

- The first batch is the history, all of it, whatever the limit of a batch. Its end names where each log ended and where
  each queue goes on, so that it is the same when it is read again; from there on it is any other stream.
- Stores must stay as they are until that batch is done: a log that ends before its planned end is loss.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from ..cluster.choice import find_queues
from ..cluster.watch import see
from ..options.optionvalues import Given
from ..stream.stream import LiveStreamReader
from ..stream.streamoffsets import format_offsets
from ..stream.streamoptions import StreamOptions, add_limits
from .history import cut_at, log_ends
from .hybrid import HybridReader, look_behind_seam, plan_history
from .hybridoptions import HybridOptions, parse_hybrid

STORES: Final = "/stores"


def read_as_stream(given: Given, schema: pa.Schema) -> "HybridStreamReader":
    """Return the reader of a stream.

    Raises:
        ConfigError: A value that cannot be used, or options that contradict each other.
    """
    hybrid = parse_hybrid(given)
    return HybridStreamReader(hybrid, add_limits(given, hybrid.live), schema)


class HybridStreamReader(LiveStreamReader):
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
        seam = plan_history(self._hybrid_options, plan, self._cluster).seam
        live = self._options.live
        queues = find_queues(self._cluster, live.choice, needs_any=False)
        extents = look_behind_seam(self._cluster, queues, seam, live.losses)
        if self._target is not None:  # what stores held beyond the first look belongs to this run as well
            self._target = see(queues, extents)
        starts = {queue: seam.start(queue, extent) for queue, extent in extents.items()}
        return {STORES: dict(sorted(log_ends(plan).items())), **format_offsets(starts, see(queues, extents).at_ms)}

    def _plan_history(self, ends: Mapping[str, int]) -> list[InputPartition]:
        plan = self._hybrid.stores.plan()
        there = log_ends(plan)
        for store, end in ends.items():
            if there.get(store, 0) < end:
                self._options.live.losses.say(f"store {store} ended at log offset {end}, and is shorter now or gone")
        history = plan_history(self._hybrid_options, cut_at(plan, ends), self._cluster)
        return [InputPartition(part) for part in self._hybrid.parts(history)]


def _queues_in(offset: Mapping[str, Any]) -> dict[str, Any]:
    return {topic: brokers for topic, brokers in offset.items() if topic != STORES}
