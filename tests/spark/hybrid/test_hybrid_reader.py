"""Stores and the running brokers that wrote them as one table, asked as Spark asks it."""

import json
import pathlib
import random
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from threaded_cluster import ThreadedCluster

from rocketlet.common.errors import ConfigError, DataLossError
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA, pick_live_columns
from rocketlet.spark.hybrid.hybrid_reader import HybridReader
from rocketlet.spark.hybrid.read_modes import parse_hybrid, reading_options

COLUMNS = ["topic", "queueId", "queueOffset", "body", "brokerName"]
Message = tuple[str, int, int, str, str]


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[ThreadedCluster]:
    """Yield a cluster with brokers a and b, and a topic T of two queues on each of them."""
    with ThreadedCluster(tmp_path) as running:
        for name in ("broker-a", "broker-b"):
            running.start_broker(name)
        running.create_topic("T", 2)
        yield running


class Table:
    """Sends messages, and reads all of them from copies of stores and from the cluster."""

    def __init__(self, cluster: ThreadedCluster, folder: pathlib.Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._sent = 0

    def send(self, count: int, queue: tuple[str, int] | None = None, topic: str = "T", more: str = "") -> None:
        """Send messages with new bodies."""
        self.cluster.send(topic, [f"{number:04d}{more}" for number in range(self._sent, self._sent + count)], queue)
        self._sent += count

    @property
    def bodies(self) -> list[str]:
        """All bodies that were sent."""
        return [f"{number:04d}" for number in range(self._sent)]

    def copy(self, broker: str, *, log_first: bool = True) -> str:
        """Copy the store of a running broker, its log before or behind the rest."""
        store, twin = self.cluster.store_of(broker), self._folder / f"copy of {broker} {self._sent}"
        if log_first:
            shutil.copytree(store / "commitlog", twin / "commitlog")
        shutil.copytree(store, twin, dirs_exist_ok=True, ignore=shutil.ignore_patterns("commitlog", "lock"))
        if not log_first:
            shutil.copytree(store / "commitlog", twin / "commitlog")
        return str(twin)

    def reader(self, *stores: str, **options: Any) -> HybridReader:
        """Return a reader of stores and cluster."""
        wanted = {"paths": json.dumps(stores), "nameserver": self.cluster.nameserver, "retries": 0} | options
        given = reading_options({name: str(value) for name, value in wanted.items()})
        return HybridReader(parse_hybrid(given), pick_live_columns(COLUMNS))

    def read(self, *stores: str, **options: Any) -> list[Message]:
        """Return the rows, sorted."""
        return rows_of(self.reader(*stores, **options))


def rows_of(reader: HybridReader) -> list[Message]:
    """Plan and read, and return the rows, sorted."""
    return sorted(
        (row["topic"], row["queueId"], row["queueOffset"], row["body"].decode()[:4], row["brokerName"])
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    )


def bodies_of(rows: list[Message]) -> list[str]:
    """Return the bodies of rows, sorted."""
    return sorted(row[3] for row in rows)


@pytest.fixture
def table(cluster: ThreadedCluster, tmp_path: pathlib.Path) -> Table:
    """Return what sends and reads."""
    return Table(cluster, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_seam_has_neither_gap_nor_double(table: Table, seed: int) -> None:
    """Wherever the copies of two stores end, each message comes once, with the broker that has it."""
    chance = random.Random(seed)
    stores: dict[str, str] = {}
    for _ in range(6):
        table.send(chance.randrange(1, 8), chance.choice([None, ("broker-a", 0), ("broker-b", 1)]))
        broker = chance.choice(["broker-a", "broker-b"])
        stores[broker] = table.copy(broker)
    table.send(chance.randrange(5))
    rows = table.read(*stores.values())
    assert bodies_of(rows) == table.bodies
    assert len({(row[4], *row[:3]) for row in rows}) == len(rows)
    assert {row[4] for row in rows} == {"broker-a", "broker-b"}
    assert rows == table.read(*map(str, map(table.cluster.store_of, ("broker-a", "broker-b"))))


@pytest.mark.parametrize("log_first", [True, False], ids=["log first", "queues first"])
def test_copy_may_be_made_while_messages_come(table: Table, *, log_first: bool) -> None:
    """A copy whose queues are ahead of its log, or behind it, has its seam where its log ends."""
    table.send(40)
    sender = threading.Thread(target=table.send, args=(200,))
    sender.start()
    stores = [table.copy(broker, log_first=log_first) for broker in ("broker-a", "broker-b")]
    sender.join()
    rows = table.read(*stores)
    assert bodies_of(rows) == table.bodies
    assert len({(row[4], *row[:3]) for row in rows}) == len(rows)


def test_messages_sent_after_planning_are_not_read(table: Table) -> None:
    """Planning fixes the end of stores and queues, also where a store is that of the running broker."""
    table.send(9)
    reader = table.reader(str(table.cluster.store_of("broker-a")))
    partitions = reader.partitions()
    before = table.bodies
    table.send(9)
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    assert sorted(row["body"].decode() for batch in batches for row in batch.to_pylist()) == before


def test_broker_that_comes_later_is_read_from_its_beginning(table: Table) -> None:
    """A broker, a topic and a queue that no store knows are read from the cluster alone."""
    table.send(5)
    store = table.copy("broker-a")
    table.cluster.start_broker("broker-c")
    table.cluster.create_topic("U", 1, ["broker-c"])
    table.send(3, ("broker-c", 0), "U")
    table.cluster.create_topic("T", 4, ["broker-a"])
    table.send(2, ("broker-a", 3))
    assert bodies_of(table.read(store)) == table.bodies


def test_choice_of_topics_holds_on_both_sides(table: Table) -> None:
    """Named topics and a pattern mean the same in stores and cluster; a topic may be on one side only."""
    table.cluster.create_topic("Old", 1, ["broker-a"])
    table.send(2, ("broker-a", 0), "Old")
    table.send(4)
    store = table.copy("broker-a")
    table.cluster.create_topic("New", 1, ["broker-a"])
    table.send(2, ("broker-a", 0), "New")
    table.send(4)
    assert {row[0] for row in table.read(store)} == {"Old", "New", "T"}
    assert {row[0] for row in table.read(store, subscribePattern="Old|New")} == {"Old", "New"}
    assert bodies_of(table.read(store, topics="New")) == ["0006", "0007"]
    assert len(table.read(store, subscribe="T")) == 8
    with pytest.raises(ConfigError, match="no topic Tt, neither in the stores nor in the cluster; did you mean T"):
        table.read(store, subscribe="Tt,Old")


def test_time_range_holds_on_both_sides(table: Table) -> None:
    """Messages of stores and cluster are judged by the same store times."""
    table.send(3)
    store = table.copy("broker-a")
    table.send(3)
    assert bodies_of(table.read(store, startingTimestamp=1)) == table.bodies
    assert table.read(store, endingTimestamp=1) == []


def test_messages_deleted_at_the_seam_are_loss(table: Table) -> None:
    """Messages that the broker has deleted and the store lacks fail the planning, or are left out if that is asked."""
    table.cluster.start_broker("broker-c", {"mappedFileSizeCommitLog": "8192"})
    table.cluster.create_topic("U", 1, ["broker-c"])
    table.send(4, ("broker-c", 0), "U", more="x" * 3000)  # two to a file
    store = table.copy("broker-c")
    table.send(4, ("broker-c", 0), "U", more="x" * 3000)
    table.cluster.stop_broker("broker-c")
    for path in sorted((table.cluster.store_of("broker-c") / "commitlog").iterdir())[:3]:
        path.unlink()
    table.cluster.start_broker("broker-c")
    with pytest.raises(DataLossError, match="queue 0 of U on broker-c begins at offset 6, but its store ends at 4"):
        table.read(store)
    assert bodies_of(table.read(store, failOnDataLoss="false")) == table.bodies[:4] + table.bodies[6:]


def test_store_of_another_broker_is_refused(table: Table) -> None:
    """A store is not read beside a cluster whose brokers did not write it, unless its broker is named."""
    table.send(6)
    stores = [table.copy("broker-a"), table.copy("broker-b")]
    table.cluster.stop_broker("broker-b")
    with pytest.raises(ConfigError, match=r"no broker of the cluster \(broker-a at 127.0.0.1:.*name its broker with"):
        table.read(*stores)
    rows = table.read(*stores, storeBrokers=json.dumps({stores[1]: None}))
    assert bodies_of(rows) == table.bodies
    assert {row[4] for row in rows} == {"broker-a", None}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "earliest"}, "startingOffsets does not fit: where the stores end, the cluster goes on"),
        ({"topics": "T", "subscribe": "T"}, "subscribe and topics contradict each other"),
        ({"storeBrokers": "[1]"}, "storeBrokers is not of the form"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], sentence: str) -> None:
    """A mistake is an error of one sentence before anything is read."""
    with pytest.raises(ConfigError, match=sentence):
        parse_hybrid(reading_options({"path": "/store", "nameserver": "127.0.0.1:1", **options}))


def test_table_of_spark_is_whole(spark: SparkSession, table: Table) -> None:
    """Through Spark, with filters: the rows of stores and cluster, and the columns of a cluster."""
    table.send(20)
    store = table.copy("broker-a")
    table.send(20)
    frame = spark.read.format("rocketmq").options(path=store, nameserver=table.cluster.nameserver).load()
    assert frame.columns == LIVE_SCHEMA.names
    assert sorted(row.body.decode() for row in frame.select("body").collect()) == table.bodies
    rows = frame.where("topic = 'T' and queueId = 1 and queueOffset >= 2").collect()
    assert {(row.brokerName, row.queueOffset) for row in rows} == {
        (broker, offset) for broker in ("broker-a", "broker-b") for offset in range(2, 10)
    }
