"""The sink: rows of a table sent to a RocketMQ cluster, by ``df.write`` and ``df.writeStream``.

    driver   options, columns, cluster and topic are checked; nothing is sent before
    task     rows -> messages -> requests, many under way at once; ends when every message is stored
    driver   counts are logged

Rules:

- At least once. A request that fails is repeated, a task that fails is run again by Spark from its first row, and so
  may store messages twice. The idempotence key in the properties tells: a row has the same key each time.

      batch     runId/partition/row
      stream    query id/batch id/partition/row, over restarts from the checkpoint as well

  After a shuffle Spark may hand out rows in another order, so a row's number may be another one's. A key that is made
  of columns (``idempotenceColumns``) does not depend on it.
- A message counts when the broker has answered SEND_OK.
- Rows can only be added: overwriting is refused, and nothing can be taken back when a write fails.
- Rows are read in a thread, so that answers are heard and heartbeats sent while Spark computes the next ones.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...client.producer.bulk_sender import BulkSender, RateLimiter
from ...client.producer.producer import Producer
from ...common.clock import Clock
from ...common.errors import ClientError, ConfigError, RemotingError
from ...common.names import AUTO_CREATE_TOPIC
from ...remoting.transport.event_loop import LoopClock
from .sink_options import SinkOptions, parse_sink_options
from .sink_rows import RowConverter, SinkColumns

_log = logging.getLogger(__name__)
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class WriteResult(WriterCommitMessage):
    """What one task has done."""

    messages: int
    repeats: int


class SinkWriter:
    """Sends the rows of one task; travels to the tasks."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self.options = options
        self.columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """Send all rows of this task.

        Raises:
            ConfigError: A row makes no message.
            ClientError: A message cannot be sent, or the cluster did not take it in time.
        """
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        options = self.options
        prefix = f"{self._run(context)}/{partition}/"
        converter = RowConverter(self.columns, options.topic, options.idempotence_property, prefix)
        try:
            return asyncio.run(send_rows(iterator, converter, options, LoopClock()))
        except (ConfigError, ClientError, RemotingError) as error:
            kind = ConfigError if isinstance(error, ConfigError) else ClientError
            raise kind(f"task of partition {partition}: {error}") from error

    def _run(self, context: TaskContext | None) -> str:
        if context is None:
            return self.options.run_id
        query = context.getLocalProperty(_QUERY_ID)
        return self.options.run_id if query is None else f"{query}/{context.getLocalProperty(_BATCH_ID)}"


async def send_rows(
    batches: Iterator[pa.RecordBatch], converter: RowConverter, options: SinkOptions, clock: Clock
) -> WriteResult:
    """Send rows and return the counts once all are stored (raises as ``BulkSender.put`` and ``RowConverter.of``)."""
    settings = options.producer_settings
    rate_limiter = None if options.rate is None else RateLimiter(options.rate, clock)
    async with (
        Producer(options.group, options.access.nameserver, settings=settings, clock=clock) as producer,
        BulkSender(producer, options.limits, rate_limiter=rate_limiter, clock=clock) as sender,
    ):
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            await sender.put(converter.of(batch))
        await sender.drain()
        return WriteResult(sender.stored, sender.repeats)


class BatchSink(SinkWriter, DataSourceArrowWriter):
    """Writes a table."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts."""
        _log.info("%s", _counts("write", self.options.run_id, messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what stays, since a cluster takes nothing back."""
        _log.warning("write failed, its stored messages stay: %s", _counts("write", self.options.run_id, messages))


class StreamSink(SinkWriter, DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 # Spark's name
        """Log the counts."""
        _log.info("%s", _counts("batch", batchId, messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 # as above
        """Log what stays; the batch is written again when the query is started again."""
        _log.warning("write failed, its stored messages stay: %s", _counts("batch", batchId, messages))


def plan_batch(options: Mapping[str, str], schema: StructType, *, overwrites: bool) -> BatchSink:
    """Return the writer of a table.

    Raises:
        ConfigError: An option, a column, the mode or the topic cannot be used, or no name server answers.
    """
    parsed = parse_sink_options(options)
    columns = SinkColumns.find(schema, parsed.topic, parsed.idempotence_columns)
    if overwrites:
        raise ConfigError('the rocketmq sink cannot overwrite; use mode("append")', key="mode")
    asyncio.run(check_cluster(parsed))
    return BatchSink(parsed, columns)


def plan_stream(options: Mapping[str, str], schema: StructType, *, overwrites: bool) -> StreamSink:
    """Return the writer of a stream; whether its topic exists is for the tasks to see.

    Raises:
        ConfigError: An option, a column or the mode cannot be used.
    """
    parsed = parse_sink_options(options, is_stream=True)
    columns = SinkColumns.find(schema, parsed.topic, parsed.idempotence_columns)
    if overwrites:
        raise ConfigError('the rocketmq sink cannot overwrite; use outputMode("append") or "update"', key="outputMode")
    return StreamSink(parsed, columns)


async def check_cluster(options: SinkOptions) -> None:
    """Ask a name server for the topic, if all rows have the same, so that what is wrong shows before the first task.

    Raises:
        ConfigError: No name server answers, or no broker has the topic and none would create it.
    """
    settings, nameserver = options.producer_settings, options.access.nameserver
    async with Producer(options.group, nameserver, settings=settings) as producer:
        try:
            await producer.fetch_queues(options.topic or AUTO_CREATE_TOPIC)
        except RemotingError as error:
            raise ConfigError(f"no name server at {nameserver} answers: {error}", key="nameserver") from error
        except ClientError as error:
            if options.topic is not None:
                raise ConfigError(f"topic {options.topic} takes no messages: {error}", key="topic") from error


def _counts(what: str, name: object, messages: Sequence[WriterCommitMessage | None]) -> str:
    done = [each for each in messages if isinstance(each, WriteResult)]
    stored, repeats = sum(each.messages for each in done), sum(each.repeats for each in done)
    return f"{what} {name}: {stored} messages stored by {len(done)} tasks, {repeats} requests repeated"
