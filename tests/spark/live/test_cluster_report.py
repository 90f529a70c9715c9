"""Readings of clusters, and of stores and clusters, deliver a report that fits what they gave."""

import pathlib
import shutil
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from live_clusters import Clients
from threaded_cluster import ThreadedCluster

from rocketlet.client import Message
from rocketlet.common.errors import ConfigError
from rocketlet.export.plan.filesystems import Storage
from rocketlet.export.plan.selection import Reason
from rocketlet.export.report.report import Report, load_report
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA
from rocketlet.export.write.verify import compare, find_outputs, read_outputs
from rocketlet.spark.cluster.cluster_options import parse_cluster_options
from rocketlet.spark.hybrid.hybrid_reader import HybridReader
from rocketlet.spark.hybrid.read_modes import parse_hybrid, reading_options
from rocketlet.spark.live.cluster_reader import ClusterReader
from rocketlet.spark.stream.stream_options import parse_stream


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    """Return a cluster with two brokers."""
    with ThreadedCluster(tmp_path_factory.mktemp("cluster")) as running:
        for name in ("broker-a", "broker-b"):
            running.start_broker(name)
        yield running


@pytest.fixture
def clients(cluster: ThreadedCluster) -> Clients:
    """Return clients of it."""
    return Clients(cluster.nameserver)


class Read:
    """Reads all partitions, writes their rows to a file, and loads the report."""

    def __init__(self, reader: ClusterReader | HybridReader, folder: pathlib.Path, lost: int = 0) -> None:
        partitions = reader.partitions()
        batches = [batch for each in partitions[: len(partitions) - lost] for batch in reader.read(each)]
        rows = pa.Table.from_batches(batches, LIVE_SCHEMA)
        pq.write_table(rows, folder / "out.parquet")
        self.rows = rows.num_rows
        self.report = load_report(str(folder / "report"))

    def differences(self, folder: pathlib.Path) -> list[str]:
        """Compare the file with the report."""
        return list(compare(self.report, read_outputs(find_outputs([str(folder / "out.parquet")], Storage()))))


def counts(report: Report) -> dict[str, tuple[int, int]]:
    """Return messages and rows by store or broker."""
    return {counters.store: (counters.messages, counters.rows) for counters in report.stores}


def live(clients: Clients, folder: pathlib.Path, **options: str) -> ClusterReader:
    """Return a reader of the cluster with a report."""
    given = reading_options({**clients.options, "reportPath": str(folder / "report"), **options})
    return ClusterReader(parse_cluster_options(given), LIVE_SCHEMA)


def test_report_of_a_cluster_names_its_brokers(clients: Clients, tmp_path: pathlib.Path) -> None:
    """Each queue is proved from the offset to the offset that were planned, however it was cut for tasks."""
    clients.create("Report", queues=2, brokers=["broker-a", "broker-b"])
    clients.send("Report", [b"%04d" % number for number in range(40)])
    read = Read(live(clients, tmp_path, subscribe="Report", maxRecordsPerPartition="4"), tmp_path)
    assert counts(read.report) == {"broker-a": (20, 20), "broker-b": (20, 20)}
    assert read.report.to_json()["proved"] is True
    assert read.differences(tmp_path) == []
    lost = Read(live(clients, tmp_path, subscribe="Report", maxRecordsPerPartition="4"), tmp_path, lost=1)
    assert lost.report.faults()[0].endswith("parts were not read to their end: 11")
    assert any("were to be read and were not" in fault for fault in lost.report.faults())


def test_messages_that_brokers_filter_are_counted(clients: Clients, tmp_path: pathlib.Path) -> None:
    """With tags the others are left out for their tag, though they never came."""
    clients.create("Tagged", queues=1, brokers=["broker-a"])
    clients.send_all([Message("Tagged", b"%d" % number, tags="ab"[number % 2]) for number in range(10)])
    read = Read(live(clients, tmp_path, subscribe="Tagged", tags="a"), tmp_path)
    (counters,) = read.report.stores
    assert (read.rows, counters.left_out) == (5, {Reason.TAG: 5})
    assert read.differences(tmp_path) == []


def test_history_and_cluster_have_one_report(
    clients: Clients, cluster: ThreadedCluster, tmp_path: pathlib.Path
) -> None:
    """What came from a store and what came from its broker add up to whole queues."""
    clients.create("Both", queues=1, brokers=["broker-a"])
    clients.send("Both", [b"%04d" % number for number in range(10)])
    store = tmp_path / "copy"
    shutil.copytree(cluster.store_of("broker-a"), store, ignore=shutil.ignore_patterns("lock"))
    clients.send("Both", [b"%04d" % number for number in range(10, 15)])
    options = {"path": str(store), "subscribe": "Both", "reportPath": str(tmp_path / "report")}
    given = reading_options({**clients.options, **options})
    read = Read(HybridReader(parse_hybrid(given), LIVE_SCHEMA), tmp_path)
    assert {place: rows for place, (_, rows) in counts(read.report).items()} == {str(store): 10, "broker-a": 5}
    assert (read.rows, read.differences(tmp_path)) == (15, [])


def test_stream_has_no_report(clients: Clients, tmp_path: pathlib.Path) -> None:
    """A batch of a stream may be read twice, so a report of it would prove nothing."""
    given = reading_options({**clients.options, "subscribe": "T", "reportPath": str(tmp_path)})
    with pytest.raises(ConfigError, match="reportPath"):
        parse_stream(given)
