"""Reads a running cluster as a stream of batches.

Rules:

- Spark keeps this reader in a Python process of its own for the whole query. All that a restart needs is in the offsets
  (``stream_offsets``): a batch that was planned is planned again from its start and its end alone.
- The first batch is empty: it fixes in the checkpoint where each queue begins. So "latest" means the same instant after
  a restart, and a queue that is found later is no other case.
- A queue that is found while the stream runs is read from its first message.
- What is gone for a while (a broker, a topic, all name servers) is waited for: queues keep their offsets. A batch that
  was planned with its messages cannot be read without them.
- Where a batch begins, everything before was processed: brokers are told, if that is wanted (``StreamProgress``).
- ``Trigger.AvailableNow`` reads up to what the queues hold when it begins, in batches of the usual size. It begins with
  a strict snapshot (``cluster_poller``), since it ends when there is nothing new.

Rules of the progress (option ``commitGroup``):

- It is for RocketMQ's tools, which then show the lag of the stream. The stream itself goes by its checkpoint alone.
- What is stored was processed: the start of the next batch. Only offsets that have changed are sent.
- Brokers know no group that never had a member. Where one refuses it, the group is made there, with its retry topic,
  by whose route tools find the brokers of a group.
- A failure is logged once until it passes, and ends nothing.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ...client.admin.admin import Admin
from ...client.admin.admin_values import GroupSettings, TopicSettings, write_group
from ...client.session.session import Session
from ...common.codes import ResponseCode
from ...common.errors import ResponseError, RocketletError
from ...common.message import MessageQueue
from ...common.names import retry_topic
from ...export.write.pulled_reader import pick_live_columns
from ...remoting.bodies.body import encode_body
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.offset import CommitOffsetHeader
from ..cluster.cluster import Addresses, Cluster, ask_all
from ..cluster.offset_bounds import make_ranges, resolve_offsets
from ..cluster.queue_ranges import USUAL_TASKS, describe_queue, pack_ranges, plan_ranges, ranges_of
from ..live.cluster_reader import RangeReading, read_range, sample_bytes
from ..options.cluster_access import Access
from ..options.spark_schemas import check_types
from .cluster_poller import ClusterPoller, ClusterSnapshot
from .stream_offsets import Offsets, format_offsets, parse_offsets, parse_seen, plan_batch_end, spans
from .stream_options import StreamOptions


class ClusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batch after batch, and reads their partitions; travels to the tasks."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        check_types(schema, pick_live_columns(schema.names))
        self._reading = RangeReading(options.live, schema)
        self._cluster = Cluster(options.live.access)
        self._poller = ClusterPoller(self._cluster, options.live.choice, options.discovery_ms)
        self._last: ClusterSnapshot | None = None
        self._target: ClusterSnapshot | None = None
        self._waits_since: float | None = None
        self._sizes: dict[str, float] = {}
        group = options.commit_group
        self._progress = None if group is None else StreamProgress(options.live.access, group)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """Return the offset before the first batch, which is empty."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 # Spark's name
        """Return the limit that the options ask for."""
        batch_limits = self._options.batch_limits
        if batch_limits.max_offsets is not None:
            return ReadMaxRows(batch_limits.max_offsets)
        return ReadAllAvailable() if batch_limits.min_offsets is None else ReadMinRows(batch_limits.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 # Spark's name
        """Fix what this run reads; raises what ``ClusterPoller.snapshot_strictly`` does."""
        self._target = self._poller.snapshot_strictly()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 # Spark's name
        """Return where the next batch ends.

        Raises:
            ConfigError: At the beginning: a topic is not there, or a starting offset does not fit.
            DataLossError: Messages are gone, and that matters.
            RemotingError, ResponseError: At the beginning: no name server answers, or a broker does not.
        """
        begin, seen_at_ms = parse_offsets(start), parse_seen(start)
        seen = self._look(is_first=not begin and self._last is None)
        if self._progress is not None:
            self._progress.store(begin, seen.addresses)
        end = self._begin(seen) if not begin and self._last is None else self._go_on(begin, seen_at_ms, seen, limit)
        self._last = seen
        if end == begin:
            if self._target is None:
                self._poller.pause()
            return format_offsets(end, seen_at_ms)
        return format_offsets(end, seen.at_ms)

    def _look(self, *, is_first: bool) -> ClusterSnapshot:
        if self._target is not None:
            return self._target
        return self._poller.snapshot_strictly() if is_first else self._poller.snapshot()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 # Spark's name
        """Return what the queues held at the last poll."""
        if self._last is None:
            return None
        return format_offsets({queue: extent.end for queue, extent in self._last.extents.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions of a batch.

        Raises:
            DataLossError: A queue of the batch is gone, and that matters.
            RemotingError: No name server answers.
        """
        needed = dict(spans(parse_offsets(start), parse_offsets(end)))
        addresses = self._poller.find(needed)
        live = self._options.live
        for queue in sorted(needed.keys() - addresses.keys()):
            first, stop = needed[queue]
            live.data_loss.report(
                f"{describe_queue(queue)} is gone, and with it the messages from offset {first} to {stop - 1}"
            )
        starts = {queue: extent.first for queue, extent in needed.items()}
        stops = {queue: extent.end for queue, extent in needed.items()}
        ranges = plan_ranges(make_ranges(addresses, starts, stops), live.min_partitions, live.max_records)
        if len(ranges) > USUAL_TASKS and not self._sizes:
            self._sizes = sample_bytes(ranges, live)
        packs = pack_ranges(ranges, live.min_partitions, live.max_records, self._sizes)
        return [InputPartition(pack) for pack in packs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what ``read_range`` does."""
        yield from read_range(ranges_of(partition.value), self._reading)

    def _begin(self, seen: ClusterSnapshot) -> Offsets:
        """Return where each queue begins."""
        live = self._options.live
        return resolve_offsets(self._cluster, seen.addresses, seen.extents, live.starting, live.data_loss)

    def _go_on(self, begin: Offsets, seen_at_ms: int | None, seen: ClusterSnapshot, limit: ReadLimit) -> Offsets:
        seen = self._poller.leave_out_copies_behind(seen, begin)
        cut = self._poller.find_cut(seen, begin, seen_at_ms)
        step = plan_batch_end(begin, seen.extents, limit.max_rows if isinstance(limit, ReadMaxRows) else None, cut)
        if self._waits(step.taken + step.backlog, limit):
            return begin
        for loss in step.data_loss:
            self._options.live.data_loss.report(loss)
        return step.end

    def _waits(self, held: int, limit: ReadLimit) -> bool:
        """Tell whether to wait for more messages than are held back."""
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        now = time.monotonic()
        since = self._waits_since if self._waits_since is not None else now
        waits = self._options.batch_limits.waits(held, round((now - since) * 1000))
        self._waits_since = since if waits else None
        return waits


_RETRY: Final = TopicSettings(read_queues=1, write_queues=1)
_log = logging.getLogger(__name__)


class StreamProgress:
    """The progress of a stream under the name of a group; ``store`` blocks."""

    def __init__(self, access: Access, group: str) -> None:
        self._access = access
        self._group = group
        self._stored: dict[MessageQueue, int] = {}
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<StreamProgress {self._group} of {len(self._stored)} queues>"

    def store(self, offsets: Mapping[MessageQueue, int], addresses: Addresses) -> None:
        """Store the offsets that have changed, of queues whose broker is known."""
        changed = {
            queue: queue_offset
            for queue, queue_offset in offsets.items()
            if queue in addresses and self._stored.get(queue) != queue_offset
        }
        if not changed:
            return
        try:
            asyncio.run(self._store(changed, addresses))
            self._is_failing = False
        except RocketletError as error:
            if not self._is_failing:
                _log.warning(
                    "group %s: committing %d offsets failed, retrying with each batch: %s",
                    self._group,
                    len(changed),
                    error,
                )
            self._is_failing = True

    async def _store(self, offsets: Mapping[MessageQueue, int], addresses: Addresses) -> None:
        async with Session(self._access.nameserver, settings=self._access.client_settings) as session:
            for queue in {queue.broker_name: queue for queue in offsets}.values():  # alone: it may make the group
                await self._store_one(session, queue, offsets[queue], addresses[queue])

            async def store(session: Session, queue: MessageQueue) -> None:
                await self._store_one(session, queue, offsets[queue], addresses[queue])

            await ask_all(session, [queue for queue in offsets if self._stored.get(queue) != offsets[queue]], store)

    async def _store_one(self, session: Session, queue: MessageQueue, queue_offset: int, address: str) -> None:
        command = self._command(queue, queue_offset)
        code, remark = await self._ask(session, address, command)
        if code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            await self._make_group(session, queue.broker_name, address)
            code, remark = await self._ask(session, address, command)
        if code != ResponseCode.SUCCESS:
            raise ResponseError(code, remark)
        self._stored[queue] = queue_offset

    async def _ask(self, session: Session, address: str, command: Command) -> tuple[int, str | None]:
        answer = await session.call(address, command, self._access.timeout_ms)
        return answer.code, answer.remark

    async def _make_group(self, session: Session, broker: str, address: str) -> None:
        body = encode_body(write_group(self._group, GroupSettings()))
        command = Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        code, remark = await self._ask(session, address, command)
        if code != ResponseCode.SUCCESS:
            raise ResponseError(code, remark)
        async with Admin(self._access.nameserver, settings=self._access.client_settings) as admin:
            await admin.create_topic(retry_topic(self._group), _RETRY, brokers=[broker])
        _log.info("group %s: created on broker %s to commit the offsets of a stream", self._group, broker)

    def _command(self, queue: MessageQueue, queue_offset: int) -> Command:
        header = CommitOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=queue_offset,
            broker_name=queue.broker_name,
        )
        return Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
