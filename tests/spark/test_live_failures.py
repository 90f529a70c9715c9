"""Reading running clusters while messages, brokers and name servers go."""

import pathlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from live_clusters import Clients, numbered, options_of, read
from threaded_cluster import ThreadedCluster

from rocketlet.common.errors import DataLossError, RemotingError, ResponseError
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA
from rocketlet.spark.cluster.cluster import Cluster
from rocketlet.spark.cluster.cluster_options import ClusterOptions
from rocketlet.spark.cluster.queue_ranges import QueueRange
from rocketlet.spark.live.cluster_reader import RangeReading, plan_ranges_of, read_range


@pytest.fixture
def alone(tmp_path: pathlib.Path) -> Iterator[ThreadedCluster]:
    """Yield a cluster of one broker with log files of 64 KiB, which a test may break."""
    with ThreadedCluster(tmp_path) as cluster:
        cluster.start_broker(settings={"mappedFileSizeCommitLog": "65536"})
        yield cluster


def test_deleted_messages_are_loss(alone: ThreadedCluster) -> None:
    """Between planning and reading, and before: an error, or a warning and the first message there is."""
    clients = Clients(alone.nameserver)
    clients.create("Old", 1)
    clients.send("Old", numbered(60, 0, 4_000))
    options = options_of(clients, subscribe="Old")
    ranges = plan_ranges_of(options)
    first = delete_old_files(alone)
    assert 0 < first < 60
    pattern = f"queue 0 of Old on broker-a begins at offset {first}: those from 0 on were deleted"
    with pytest.raises(DataLossError, match=pattern):
        list(read_range(ranges, RangeReading(options, LIVE_SCHEMA)))
    with pytest.raises(DataLossError, match=f"those from {first - 1} on were deleted"):  # a single one
        list(read_range([replace(ranges[-1], start=first - 1)], RangeReading(options, LIVE_SCHEMA)))
    with pytest.raises(DataLossError, match=pattern):
        read(clients, subscribe="Old", startingOffsets={"Old": 0})
    lenient = options_of(clients, subscribe="Old", failOnDataLoss="false")
    batches = list(read_range(ranges, RangeReading(lenient, LIVE_SCHEMA)))
    assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == list(range(first, 60))
    assert len(read(clients, subscribe="Old")) == 60 - first


def delete_old_files(cluster: ThreadedCluster) -> int:
    """Delete all files of the log but the last, as a broker does in time; return the first offset of Old."""
    cluster.stop_broker()
    for path in sorted((cluster.store_of("broker-a") / "commitlog").iterdir())[:-2]:
        path.unlink()
    cluster.start_broker(settings={"mappedFileSizeCommitLog": "65536"})
    source = Cluster(options_of(Clients(cluster.nameserver), subscribe="Old").access)
    (extent,) = source.extents(source.queues(["Old"])).values()
    return extent.first


def planned_topic(cluster: ThreadedCluster, topic: str, messages: int) -> tuple[Clients, ClusterOptions, QueueRange]:
    """Make a topic of one queue with messages, and plan to read it."""
    clients = Clients(cluster.nameserver)
    clients.create(topic, 1)
    clients.send(topic, numbered(messages))
    options = options_of(clients, subscribe=topic)
    (planned,) = plan_ranges_of(options)
    return clients, options, planned


def test_topic_made_anew_is_loss(alone: ThreadedCluster) -> None:
    """A queue that ends before what was planned."""
    clients, options, planned = planned_topic(alone, "Short", 5)
    beyond = replace(planned, start=5, stop=500)
    with pytest.raises(DataLossError, match="queue 0 of Short on broker-a ends at offset 5, before 500"):
        list(read_range([beyond], RangeReading(options, LIVE_SCHEMA)))
    lenient = options_of(clients, subscribe="Short", failOnDataLoss="false")
    batches = list(read_range([replace(planned, stop=500)], RangeReading(lenient, LIVE_SCHEMA)))
    assert sum(batch.num_rows for batch in batches) == 5


def test_broker_that_dies_is_asked_again_and_then_told(alone: ThreadedCluster) -> None:
    """While a task reads: one that comes back costs nothing, one that stays away is one clear error."""
    clients = Clients(alone.nameserver)
    clients.create("Dies", 1)
    clients.send("Dies", numbered(100))
    options = replace(options_of(clients, subscribe="Dies"), batch_messages=32, pulls_at_once=1)
    ranges = plan_ranges_of(options)
    batches = read_range(ranges, RangeReading(options, LIVE_SCHEMA))
    assert next(batches).num_rows == 32
    alone.stop_broker()
    alone.start_broker(settings={"mappedFileSizeCommitLog": "65536"})
    assert next(batches).num_rows == 32
    alone.stop_broker()
    place = f"queue 0 of Dies on broker-a at {ranges[0].address} cannot be read at offset 64 after 2 attempts"
    with pytest.raises(RemotingError, match=place):
        next(batches)


def test_broker_that_has_moved_is_found(alone: ThreadedCluster) -> None:
    """Nobody answers at the address of the plan; the name server tells the new one."""
    _, options, planned = planned_topic(alone, "Moved", 3)
    batches = list(read_range([replace(planned, address="127.0.0.1:1")], RangeReading(options, LIVE_SCHEMA)))
    assert sum(batch.num_rows for batch in batches) == 3


def test_error_of_the_broker_names_queue_and_offset(alone: ThreadedCluster) -> None:
    """A queue that the broker does not have, for one."""
    _, options, planned = planned_topic(alone, "Refused", 3)
    with pytest.raises(ResponseError, match=r"queue 7 of Refused on broker-a at .* cannot be read at offset 0"):
        list(read_range([replace(planned, queue_id=7)], RangeReading(options, LIVE_SCHEMA)))


def test_name_server_that_is_not_there_fails_in_planning() -> None:
    """After the attempts that the options allow."""
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:1"):
        plan_ranges_of(options_of(Clients("127.0.0.1:1"), subscribe="T"))


def test_reading_goes_on_at_the_slave(alone: ThreadedCluster) -> None:
    """When the master is gone after the planning; what the slave has not got is no loss, but an error."""
    clients, _, planned = planned_topic(alone, "Copied", 60)
    alone.start_slave()
    alone.stop_broker("slave")
    clients.send("Copied", numbered(10, 60))
    lenient = options_of(clients, subscribe="Copied", failOnDataLoss="false")
    options = replace(lenient, batch_messages=32, pulls_at_once=1)
    batches = read_range([planned], RangeReading(options, LIVE_SCHEMA))
    assert next(batches).num_rows == 32
    alone.stop_broker()
    alone.start_broker("slave")
    assert [batch.num_rows for batch in batches] == [28]
    with pytest.raises(RemotingError, match="a slave, ends at offset 60, and its master is gone"):
        list(read_range([replace(planned, start=50, stop=70)], RangeReading(options, LIVE_SCHEMA)))
    assert len(read(clients, subscribe="Copied")) == 60
