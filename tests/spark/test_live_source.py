"""Reading a running cluster through Spark."""

from collections.abc import Iterator

import pytest
from live_clusters import Clients
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from threaded_cluster import ThreadedCluster

BODIES = [f"{number:03d}".encode() for number in range(120)]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Yield clients of a cluster of two brokers with a topic of 120 messages in four queues."""
    with ThreadedCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start_broker("broker-a")
        cluster.start_broker("broker-b")
        clients = Clients(cluster.nameserver)
        clients.create("Orders", 2)
        clients.send("Orders", BODIES[:100], tags="t")
        clients.send("Orders", BODIES[100:], tags="u")
        yield clients


def load(spark: SparkSession, clients: Clients, **options: str) -> DataFrame:
    """Return the table of a topic."""
    return spark.read.format("rocketmq").options(**clients.options, **{"subscribe": "Orders", **options}).load()


def test_cluster_is_a_table(spark: SparkSession, clients: Clients) -> None:
    """One task per queue; the last column names the broker."""
    table = load(spark, clients)
    assert table.columns[-1] == "brokerName"
    rows = table.selectExpr("spark_partition_id() as task", "brokerName", "queueId", "queueOffset", "body").collect()
    assert sorted(bytes(row.body) for row in rows) == BODIES
    assert len({(row.brokerName, row.queueId, row.queueOffset) for row in rows}) == 120
    assert len({(row.brokerName, row.queueId) for row in rows}) == len({row.task for row in rows}) == 4


def test_filters_leave_the_rows_that_they_name(spark: SparkSession, clients: Clients) -> None:
    """Those that the source takes, and the one on the broker's name, which is left to Spark."""
    table = load(spark, clients, columns="brokerName,queueId,queueOffset,tags")
    rows = table.where("queueId = 1 and queueOffset >= 20 and tags = 't' and brokerName = 'broker-b'").collect()
    assert sorted(row.queueOffset for row in rows) == list(range(20, 25))


def test_unknown_topic_fails_before_the_first_task(spark: SparkSession, clients: Clients) -> None:
    """With the sentence of the source."""
    with pytest.raises(PySparkException, match=r"there is no topic Order; did you mean Orders\?"):
        load(spark, clients, subscribe="Order").collect()
