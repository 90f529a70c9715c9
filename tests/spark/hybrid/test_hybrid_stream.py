"""A stream that begins with stores and goes on with their cluster, asked as Spark asks it."""

import pathlib
import shutil
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from stream_run import StreamRun
from threaded_cluster import ThreadedCluster

from rocketlet.common.errors import ConfigError, DataLossError
from rocketlet.export.write.pulled_reader import pick_live_columns
from rocketlet.spark.hybrid.hybrid_reader import read_as_stream
from rocketlet.spark.hybrid.read_modes import reading_options

COLUMNS = pick_live_columns(["topic", "queueOffset", "body", "brokerName"])


@pytest.fixture
def cluster(cluster: ThreadedCluster) -> ThreadedCluster:
    """Return the cluster with ten messages in T."""
    cluster.send("T", numbers(10))
    return cluster


@pytest.fixture
def store(cluster: ThreadedCluster, tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a copy of the store, made while the broker runs."""
    return shutil.copytree(cluster.store_of("broker-a"), tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))


def start(cluster: ThreadedCluster, store: pathlib.Path, **options: Any) -> StreamRun:
    """Return a stream over the copy and the cluster."""
    defaults = {"path": str(store), "nameserver": cluster.nameserver, "retries": 0, "discoveryIntervalMs": 0}
    return StreamRun(lambda given: read_as_stream(reading_options(given), COLUMNS), defaults | options)


def numbers(count: int, start: int = 0) -> list[str]:
    """Return bodies that sort as numbers."""
    return [f"{number:04d}" for number in range(start, start + count)]


def test_history_is_the_first_batch(cluster: ThreadedCluster, store: pathlib.Path) -> None:
    """The first batch holds what the store has, those behind it what the cluster has behind the seam, in limits."""
    cluster.send("T", numbers(5, 10))
    stream = start(cluster, store)
    batches = stream.drain(ReadMaxRows(3))
    assert [len(batch) for batch in batches] == [10, 3, 2]
    assert stream.joined(batches) == numbers(15)
    cluster.send("T", numbers(2, 15))
    assert stream.joined(stream.drain()) == numbers(2, 15)


def test_history_is_the_same_after_a_restart(cluster: ThreadedCluster, tmp_path: pathlib.Path) -> None:
    """A store that a broker goes on writing to gives the planned batch again, and the rest comes behind it."""
    stream = start(cluster, cluster.store_of("broker-a"))
    assert stream.plan()
    cluster.send("T", numbers(4, 10))
    stream.restart()
    assert sorted(stream.read()) == numbers(10)
    assert stream.joined(stream.drain()) == numbers(4, 10)


def test_available_now_holds_history_and_cluster(cluster: ThreadedCluster, store: pathlib.Path) -> None:
    """One run gives everything up to its start, the next one what came since."""
    cluster.send("T", numbers(5, 10))
    stream = start(cluster, store)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.joined(stream.drain()) == numbers(15)
    cluster.send("T", numbers(5, 15))
    assert stream.drain() == []
    stream.restart()
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.joined(stream.drain()) == numbers(5, 15)


def test_store_that_is_gone_is_loss(cluster: ThreadedCluster, store: pathlib.Path) -> None:
    """A planned history is not read from a store that has become shorter."""
    stream = start(cluster, store)
    assert stream.plan()
    (log,) = (store / "commitlog").iterdir()
    log.write_bytes(log.read_bytes()[:600].ljust(log.stat().st_size, b"\0"))
    stream.restart()
    with pytest.raises(DataLossError, match=r"ended at log offset \d+, and is shorter now or gone"):
        stream.read()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reportPath": "/r"}, "reportPath does not fit: a stream may read a batch twice"),
        ({"endingTimestamp": "1"}, "endingTimestamp does not fit: a stream has no end"),
        ({"startingOffsets": "latest"}, "startingOffsets does not fit: where the stores end, the cluster goes on"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], sentence: str) -> None:
    """A mistake is an error of one sentence before anything is read."""
    with pytest.raises(ConfigError, match=sentence):
        read_as_stream(reading_options({"path": "/store", "nameserver": "127.0.0.1:1", **options}), COLUMNS)


def test_query_of_spark_holds_history_and_cluster(
    spark: SparkSession, cluster: ThreadedCluster, store: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Through Spark, a query with availableNow writes the rows of store and cluster once."""
    cluster.send("T", numbers(5, 10))
    options = {"path": str(store), "nameserver": cluster.nameserver, "columns": "body"}
    writer = spark.readStream.format("rocketmq").options(**options).load().writeStream.format("parquet")
    paths = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(tmp_path / "out")}
    writer.options(**paths).trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(paths["path"]).collect()
    assert sorted(row.body.decode() for row in rows) == numbers(15)
