"""Streams, and stores beside their cluster, of the official broker 5.4.0."""

import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from interop.servers import JavaServer
from interop.versions import skipped_without
from pyspark.sql.streaming.datasource import ReadMaxRows
from real_broker import SMALL_FILES
from stream_run import StreamRun
from threaded_cluster import send_texts

from rocketlet.export.write.pulled_reader import pick_live_columns
from rocketlet.spark.hybrid.hybrid_reader import HybridReader
from rocketlet.spark.hybrid.read_modes import parse_hybrid, reading_options
from rocketlet.spark.stream.stream_options import parse_stream
from rocketlet.spark.stream.stream_reader import ClusterStreamReader

COLUMNS = pick_live_columns(["queueId", "queueOffset", "body", "brokerName"])


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaServer]:
    """Return the official broker with its name server."""
    with skipped_without("the official broker"):
        server = JavaServer(tmp_path_factory.mktemp("official") / "store", SMALL_FILES)
    with server:
        yield server


def numbers(count: int, start: int = 0) -> list[str]:
    """Return bodies that sort as numbers."""
    return [f"{number:04d}" for number in range(start, start + count)]


def test_limited_batches_hold_each_message_once(official: JavaServer) -> None:
    """Over a restart, and with availableNow behind it."""
    options = {"nameserver": official.namesrv, "subscribe": "Stream", "startingOffsets": "earliest"}
    send_texts(official.namesrv, "Stream", numbers(60))
    stream = StreamRun(lambda given: ClusterStreamReader(parse_stream(reading_options(given)), COLUMNS), options)
    batches = stream.drain(ReadMaxRows(25))
    assert [len(batch) for batch in batches] == [25, 25, 10]
    send_texts(official.namesrv, "Stream", numbers(10, 60))
    stream.restart()
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.joined([*batches, *stream.drain(ReadMaxRows(25))]) == numbers(70)


def test_store_that_was_copied_goes_on_in_the_cluster(official: JavaServer, tmp_path: pathlib.Path) -> None:
    """A copy of the store, made while the broker runs, and the broker itself hold each message once."""
    send_texts(official.namesrv, "Hybrid", numbers(30))
    copy = shutil.copytree(official.store, tmp_path / "copy", ignore=shutil.ignore_patterns("lock", "lockfile"))
    send_texts(official.namesrv, "Hybrid", numbers(12, 30))
    options = {"path": str(copy), "nameserver": official.namesrv, "subscribe": "Hybrid"}
    reader = HybridReader(parse_hybrid(reading_options(options)), COLUMNS)
    rows: list[dict[str, Any]] = [
        row for planned in reader.partitions() for batch in reader.read(planned) for row in batch.to_pylist()
    ]
    assert sorted(row["body"].decode() for row in rows) == numbers(42)
    assert len({(row["queueId"], row["queueOffset"]) for row in rows}) == 42
    assert {row["brokerName"] for row in rows} == {"broker-a"}
