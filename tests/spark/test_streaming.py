"""Streams through Spark: checkpoints, restarts, availableNow, and what comes while they run."""

import pathlib
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from threaded_cluster import ThreadedCluster


class Stream:
    """A query that starts again and again with the same checkpoint, into one file per batch."""

    def __init__(self, spark: SparkSession, folder: pathlib.Path, nameserver: str, **options: Any) -> None:
        defaults: dict[str, Any] = {"nameserver": nameserver, "startingOffsets": "earliest", "discoveryIntervalMs": 0}
        self._frame = spark.readStream.format("rocketmq").options(**defaults | options).load()
        self._checkpoint = folder / "checkpoint"
        self._sink = folder / "sink"
        self._sink.mkdir()
        self.fails_in_batch: int | None = None

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query."""
        writer = self._frame.writeStream.foreachBatch(self._write)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run_through(self) -> None:
        """Run all that is there, and stop."""
        self.start(availableNow=True).awaitTermination()

    def batches(self) -> list[list[str]]:
        """Return the bodies in the sink by batch, without the batches that are empty."""
        files = sorted(self._sink.iterdir(), key=lambda path: int(path.name))
        return [batch for path in files if (batch := path.read_text().split())]

    def bodies(self) -> list[str]:
        """Return all bodies in the sink."""
        return sorted(body for batch in self.batches() for body in batch)

    def _write(self, frame: DataFrame, batch: int) -> None:
        bodies = [row.body.decode() for row in frame.select("body").collect()]
        (self._sink / str(batch)).write_text(" ".join(bodies))
        if batch == self.fails_in_batch:
            raise RuntimeError("the sink fails after it has written")


def numbers(count: int, start: int = 0) -> list[str]:
    """Return bodies that sort as numbers."""
    return [f"{number:04d}" for number in range(start, start + count)]


def test_restart_gives_each_message_once(spark: SparkSession, cluster: ThreadedCluster, tmp_path: pathlib.Path) -> None:
    """A query that dies after its sink has written, and is started again, writes the same batch again and goes on."""
    cluster.send("T", numbers(30))
    stream = Stream(spark, tmp_path, cluster.nameserver, subscribe="T", maxOffsetsPerTrigger=12)
    stream.fails_in_batch = 2
    with pytest.raises(StreamingQueryException, match="the sink fails after it has written"):
        stream.run_through()
    assert [len(batch) for batch in stream.batches()] == [12, 12]
    before = stream.batches()
    stream.fails_in_batch = None
    cluster.send("T", numbers(5, 30))
    stream.run_through()
    assert stream.bodies() == numbers(35)
    assert [len(batch) for batch in stream.batches()] == [12, 12, 11]
    assert stream.batches()[:2] == before


def test_running_query_meets_what_is_new(spark: SparkSession, cluster: ThreadedCluster, tmp_path: pathlib.Path) -> None:
    """A queue, a topic and a broker that come while a query runs are read; stopped in the middle, it goes on later."""
    stream = Stream(spark, tmp_path, cluster.nameserver, subscribePattern="T|New", startingOffsets="latest")
    query = stream.start()
    query.processAllAvailable()
    cluster.create_topic("T", 3)
    cluster.send("T", ["queue"], queue=("broker-a", 2))
    query.processAllAvailable()
    cluster.start_broker("broker-b")
    cluster.create_topic("New", 1, ["broker-b"])
    cluster.send("New", ["broker"])
    query.processAllAvailable()
    progress = query.lastProgress
    query.stop()
    cluster.send("T", ["stopped"])
    stream.run_through()
    assert stream.bodies() == ["broker", "queue", "stopped"]
    assert progress is not None
    assert '"broker-b"' in progress.sources[0].endOffset


def test_wrong_stream_fails_with_one_sentence(spark: SparkSession, cluster: ThreadedCluster) -> None:
    """A topic that is not there ends the query and is named with the nearest one."""
    frame = spark.readStream.format("rocketmq").options(nameserver=cluster.nameserver, subscribe="TT").load()
    query = frame.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="there is no topic TT; did you mean T"):
        query.awaitTermination()
