"""RocketMQ's own tool shows how far a stream of Spark has come."""

import pathlib
from collections.abc import Iterator

import pytest
from interop.driver import Driver
from interop.parts import mqadmin
from interop.servers import JavaServer
from interop.versions import skipped_without
from pyspark.sql.streaming.datasource import ReadMaxRows
from stream_run import StreamRun
from threaded_cluster import send_texts

from rocketlet.export.write.pulled_reader import pick_live_columns
from rocketlet.spark.hybrid.read_modes import reading_options
from rocketlet.spark.stream.stream_options import parse_stream
from rocketlet.spark.stream.stream_reader import ClusterStreamReader

COLUMNS = pick_live_columns(["queueId", "queueOffset", "body", "brokerName"])


@pytest.fixture
def namesrv(tmp_path: pathlib.Path) -> Iterator[str]:
    """Run the official broker, which the tool asks for the statistics of groups, and return its name server."""
    with skipped_without("the official broker"):
        official = JavaServer(tmp_path / "official" / "store", {})
    with official:
        yield official.namesrv


def test_consumer_progress_shows_the_lag_of_a_stream(java: Driver, namesrv: str) -> None:
    """All that is not in a finished batch, under the name that the stream was given."""
    send_texts(namesrv, "Lagging", [f"{number}" for number in range(30)])
    options = {
        "nameserver": namesrv,
        "subscribe": "Lagging",
        "startingOffsets": "earliest",
        "commitGroup": "spark_lagging",
    }
    stream = StreamRun(lambda given: ClusterStreamReader(parse_stream(reading_options(given)), COLUMNS), options)
    assert stream.plan()
    assert stream.plan(ReadMaxRows(12))
    assert len(stream.read()) == 12
    assert stream.plan(ReadMaxRows(1))
    printed = mqadmin(java, "consumerProgress", "-n", namesrv, "-g", "spark_lagging")
    assert "Consume Diff Total: 18" in printed, printed
