"""Reading running clusters, as Spark plans it and its tasks do it; Spark itself runs in ``test_live_source``."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from interop.secured import ASKS_WHO, USER
from interop.servers import JavaServer
from interop.versions import skipped_without
from live_clusters import Clients, bodies, numbered, options_of, read
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan
from threaded_cluster import ThreadedCluster

from rocketlet.client import ClientSettings, Message, Tls
from rocketlet.common.errors import ConfigError, DataLossError, ResponseError
from rocketlet.common.message import MessageQueue
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA
from rocketlet.spark.cluster.cluster import Cluster
from rocketlet.spark.cluster.cluster_options import find_queues
from rocketlet.spark.cluster.queue_ranges import QueueExtent
from rocketlet.spark.live.cluster_reader import ClusterReader, RangeReading, plan_ranges_of, read_range
from rocketlet.spark.source import RocketMQDataSource

SECRETS = {"accessKey": USER.access_key, "secretKey": USER.secret_key, "tls": "true", "tlsVerify": "false"}


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaServer]:
    """Return the official broker 5.4.0, which asks who its clients are and takes TLS."""
    with skipped_without("the official broker"):
        server = JavaServer(tmp_path_factory.mktemp("official") / "store", ASKS_WHO)
    with server:
        yield server


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    """Return a cluster of ours with two brokers."""
    with ThreadedCluster(tmp_path_factory.mktemp("own")) as cluster:
        cluster.start_broker("broker-a")
        cluster.start_broker("broker-b")
        yield cluster


@pytest.fixture
def clients(own: ThreadedCluster) -> Clients:
    """Return clients of our cluster."""
    return Clients(own.nameserver)


@pytest.fixture(params=["rocketlet", "java"])
def either(request: pytest.FixtureRequest) -> Clients:
    """Return clients of our cluster, then of the official one, with a user's keys and under TLS."""
    if request.param == "rocketlet":
        return request.getfixturevalue("clients")
    server: JavaServer = request.getfixturevalue("official")
    return Clients(server.namesrv, SECRETS, ClientSettings(credentials=USER, tls=Tls(verifies=False)))


def test_rows_are_what_was_sent(either: Clients) -> None:
    """With tags, keys, properties, and a body that travels compressed; offsets count from 0 in each queue."""
    either.create("Rows", queues=2, brokers=["broker-a"])
    sent = [Message("Rows", body, tags="t", keys=["k1", "k2"], properties={"x": "y"}) for body in numbered(9)]
    either.send_all([*sent, Message("Rows", b"large" * 4000)])
    rows = read(either, subscribe="Rows")
    assert bodies(rows) == [*numbered(9), b"large" * 4000]
    assert [row["queueOffset"] for row in rows] == [0, 1, 2, 3, 4] * 2
    assert {(row["topic"], row["brokerName"]) for row in rows} == {("Rows", "broker-a")}
    first = next(row for row in rows if row["body"] == b"0000")
    assert (first["tags"], first["keys"], dict(first["properties"])["x"]) == ("t", ["k1", "k2"], "y")
    assert [row["sysFlag"] & 1 for row in rows if row["body"].startswith(b"large")] == [1]


def test_answers_are_limited_by_count_and_bytes(either: Clients) -> None:
    """A broker gives 32 messages or 256 KiB at once; pulls of changing lengths miss none and give none twice."""
    either.create("Limits", queues=1, brokers=["broker-a"])
    expected = [*numbered(70), *numbered(5, 70, 100_000), *numbered(50, 75)]
    either.send("Limits", expected)
    rows = read(either, subscribe="Limits")
    assert [row["body"] for row in rows] == expected
    assert [row["queueOffset"] for row in rows] == list(range(len(expected)))


def test_ranges_and_batches_of_any_size_give_the_same_rows(either: Clients) -> None:
    """Cut for many tasks, with one pull at a time or many, in one batch or many."""
    either.create("Sizes", queues=3, brokers=["broker-a"])
    either.send("Sizes", numbered(100))
    whole = read(either, subscribe="Sizes")
    assert bodies(whole) == numbered(100)
    assert read(either, subscribe="Sizes", maxRecordsPerPartition=20, pullsAtOnce=1) == whole
    parsed = replace(options_of(either, subscribe="Sizes", minPartitions=5), batch_messages=10, pulls_at_once=1)
    ranges = plan_ranges_of(parsed)
    assert len(ranges) == 5
    batches = list(read_range(ranges, RangeReading(parsed, LIVE_SCHEMA)))
    assert len(batches) > 3
    assert [row for batch in batches for row in batch.to_pylist()] == whole


def test_inner_batches_are_cut_where_ranges_end(either: Clients) -> None:
    """Ranges that begin and end inside a batch give each of its messages once."""
    either.create("Inner", 1, ["broker-a"], **{"queue.type": "BatchCQ"})
    for start in (0, 5, 10):
        either.send_batch(
            [Message("Inner", body, tags="even" if body[3] % 2 == 0 else "odd") for body in numbered(5, start)]
        )
    rows = read(either, subscribe="Inner", maxRecordsPerPartition=4)
    assert [row["body"] for row in rows] == numbered(15)
    assert [row["queueOffset"] for row in rows] == list(range(15))
    assert bodies(read(either, subscribe="Inner", tags="odd")) == numbered(15)[1::2]
    table = {"Inner": {"broker-a": {"0": 3}}}, {"Inner": {"0": 11}}
    rows = read(either, subscribe="Inner", startingOffsets=table[0], endingOffsets=table[1])
    assert [row["body"] for row in rows] == numbered(8, 3)


def test_tags_are_filtered_by_the_broker_and_again(either: Clients) -> None:
    """Two tags with one hash are told apart; long stretches without a match are skipped."""
    either.create("Tags", queues=1, brokers=["broker-a"])
    either.send_all(
        [Message("Tags", body, tags=tag) for body, tag in zip(numbered(3), ("AaAa", "BBBB", "x"), strict=True)]
    )
    either.send("Tags", numbered(100, 3), tags="x")
    either.send("Tags", numbered(1, 103), tags="AaAa")
    assert bodies(read(either, subscribe="Tags", tags="AaAa")) == [b"0000", b"0103"]
    assert bodies(read(either, subscribe="Tags", tags="AaAa, BBBB, none")) == [b"0000", b"0001", b"0103"]
    assert read(either, subscribe="Tags", tags="none") == []


def test_offsets_are_named_by_queue(either: Clients) -> None:
    """Numbers, and -1 and -2 for latest and earliest, at both ends."""
    either.create("Offsets", queues=3, brokers=["broker-a"])
    for queue in range(3):
        either.send("Offsets", numbered(10, 10 * queue), ("broker-a", queue))
    start = {"Offsets": {"broker-a": {"0": 7, "1": -2, "2": -1}}}
    assert bodies(read(either, subscribe="Offsets", startingOffsets=start)) == [*numbered(3, 7), *numbered(10, 10)]
    end = {"Offsets": {"0": 8, "1": -1, "2": 2}}
    found = read(either, subscribe="Offsets", startingOffsets={"Offsets": 2}, endingOffsets=end)
    assert bodies(found) == [*numbered(6, 2), *numbered(8, 12)]
    with pytest.raises(
        ConfigError, match="endingOffsets: queue 2 of Offsets on broker-a begins at offset 3, behind its"
    ):
        read(either, subscribe="Offsets", startingOffsets={"Offsets": 3}, endingOffsets=end)


def test_instants_choose_offsets(either: Clients) -> None:
    """What was stored at the instant is in, and out where it ends; of all queues or of each."""
    either.create("Times", queues=2, brokers=["broker-a"])
    either.send("Times", numbered(30))
    rows = read(either, subscribe="Times")
    middle = sorted(row["storeTimestamp"] for row in rows)[15]
    at_ms = round(middle.timestamp() * 1000)
    late = [row for row in rows if row["storeTimestamp"] >= middle]
    assert read(either, subscribe="Times", startingTimestamp=at_ms) == late
    assert read(either, subscribe="Times", endingTimestamp=middle.isoformat()) == [
        row for row in rows if row not in late
    ]
    by_queue = {"Times": {"broker-a": {"0": at_ms, "1": 0}}}
    found = read(either, subscribe="Times", startingOffsetsByTimestamp=by_queue)
    assert found == [row for row in rows if row["queueId"] or row in late]
    found = read(either, subscribe="Times", endingOffsetsByTimestamp={"Times": 4_000_000_000_000})
    assert found == rows


def test_instant_without_messages_is_an_error_or_the_end(either: Clients) -> None:
    """As the strategy says; the error names the queue."""
    either.create("Later", queues=1, brokers=["broker-a"])
    either.send("Later", numbered(3))
    wanted = {"subscribe": "Later", "startingTimestamp": 4_000_000_000_000}
    with pytest.raises(
        ConfigError, match="startingTimestamp: no message of queue 0 of Later on broker-a was stored at"
    ):
        read(either, **wanted)
    assert read(either, startingOffsetsByTimestampStrategy="latest", **wanted) == []


def test_wrong_names_fail_in_planning(either: Clients) -> None:
    """Topics, queues and brokers that are not there, with what there is."""
    either.create("Payments", queues=2, brokers=["broker-a"])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"subscribe": "Payment"}, "there is no topic Payment; did you mean Payments"),
        ({"subscribePattern": "Paym"}, "subscribePattern 'Paym' matches no topic"),
        ({"assign": {"Payments": [2]}}, "assign names queue 2 of Payments, but there are 0 on broker-a, 1 on broker-a"),
        ({"assign": {"Payments": {"broker-c": [0]}}}, "assign names queue 0 of Payments on broker-c"),
        ({"startingOffsets": {"Payments": {"0": 0}}}, "startingOffsets does not name queue 1 of Payments on broker-a"),
        ({"startingOffsets": {"Payments": -2, "Orders": -2}}, "startingOffsets names topic Orders, which is not read"),
        ({"startingOffsets": {"Payments": {"0": 0, "1": 0, "2": 0}}}, "names queue 2 of Payments, but there are 0, 1"),
    ]
    for options, reason in wrong:
        chosen = {} if {"subscribe", "subscribePattern", "assign"} & options.keys() else {"subscribe": "Payments"}
        with pytest.raises(ConfigError, match=reason):
            plan_ranges_of(options_of(either, **chosen, **options))


def test_offsets_that_are_not_there_are_loss(either: Clients) -> None:
    """Behind the end of a queue: an error, or a warning and the end."""
    either.create("Beyond", queues=1, brokers=["broker-a"])
    either.send("Beyond", numbered(3))
    wanted: dict[str, Any] = {"subscribe": "Beyond", "endingOffsets": {"Beyond": {"0": 9}}}
    with pytest.raises(DataLossError, match="queue 0 of Beyond on broker-a ends at offset 3, before 9"):
        read(either, **wanted)
    assert bodies(read(either, failOnDataLoss="false", **wanted)) == numbered(3)


def test_topics_of_all_brokers_are_read(clients: Clients) -> None:
    """By name, by pattern and by assigned queues; brokers are told apart."""
    clients.create("wide-1", queues=2)
    clients.create("wide-2", queues=1, brokers=["broker-b"])
    clients.send("wide-1", numbered(40))
    clients.send("wide-2", numbered(5, 40))
    rows = read(clients, subscribePattern="wide-.")
    assert bodies(rows) == numbered(45)
    assert [row["brokerName"] for row in rows if row["topic"] == "wide-1"] == ["broker-a"] * 20 + ["broker-b"] * 20
    assert read(clients, subscribe="wide-1,wide-2") == rows
    found = read(clients, assign={"wide-1": {"broker-b": [1]}, "wide-2": [0]})
    assert found == [
        row for row in rows if row["topic"] == "wide-2" or (row["brokerName"], row["queueId"]) == ("broker-b", 1)
    ]
    with pytest.raises(ConfigError, match="wide-1 is on brokers broker-a, broker-b; name one beside each queue"):
        read(clients, subscribe="wide-1", startingOffsets={"wide-1": {"0": 0, "1": 0}})
    gone = {"wide-2": {"broker-b": {"0": 0}, "broker-x": {"0": 4}}}
    with pytest.raises(DataLossError, match="startingOffsets names broker broker-x of wide-2, which is not there"):
        read(clients, subscribe="wide-2", startingOffsets=gone)
    assert len(read(clients, subscribe="wide-2", startingOffsets=gone, failOnDataLoss="false")) == 5


def test_patterns_leave_out_the_topics_of_brokers(clients: Clients) -> None:
    """Unless they are asked for; naming one is asking."""
    clients.create("user-topic")
    clients.create("%DLQ%g", 1)
    found = plan_topics(clients, subscribePattern=".*")
    assert "user-topic" in found
    assert not found & {"%DLQ%g", "TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"}
    clients.send("%DLQ%g", numbered(2), ("broker-a", 0))
    assert bodies(read(clients, subscribe="%DLQ%g")) == numbered(2)
    assert bodies(read(clients, subscribePattern="%DLQ.*", includeSystemTopics="true")) == numbered(2)


def plan_topics(clients: Clients, **options: Any) -> set[str]:
    """Return the topics that are chosen."""
    parsed = options_of(clients, **options)
    return {queue.topic for queue in find_queues(Cluster(parsed.access), parsed.choice)}


def test_selection_narrows_what_is_pulled(clients: Clients) -> None:
    """Topic, queue, offsets, and store times with a margin at both ends: tasks leave out what is not wanted of that."""
    clients.create("Narrow", queues=2, brokers=["broker-a"])
    clients.send("Narrow", numbered(20))
    rows = read(clients, subscribe="Narrow")
    last_ms = round(max(row["storeTimestamp"] for row in rows).timestamp() * 1000)
    parsed = options_of(clients, subscribe="Narrow")

    def planned(**wishes: Any) -> list[tuple[int, int, int]]:
        narrowed = replace(parsed, selection=replace(parsed.selection, **wishes))
        return [(each.queue_id, each.start, each.stop) for each in plan_ranges_of(narrowed)]

    assert planned(queue_ids=frozenset({1})) == [(1, 0, 10)]
    assert planned(from_offset=4, until_offset=6) == [(0, 4, 6), (1, 4, 6)]
    assert planned(among=frozenset({"Other"})) == []
    assert planned(from_ms=last_ms + 120_000) == []
    assert planned(until_ms=last_ms - 120_000) == []
    assert planned(from_ms=last_ms) == [(0, 0, 10), (1, 0, 10)]
    assert planned(until_ms=last_ms) == [(0, 0, 10), (1, 0, 10)]


def test_filters_of_spark_are_taken(clients: Clients) -> None:
    """What they exclude is not planned; a filter that the source does not know is left to Spark."""
    clients.create("PushdownResult", queues=2, brokers=["broker-a"])
    clients.send("PushdownResult", numbered(10), tags="t")
    clients.send("PushdownResult", numbered(10, 10), tags="u")
    reader = ClusterReader(options_of(clients, subscribe="PushdownResult", pushFilters="true"), LIVE_SCHEMA)
    unknown = EqualTo(("brokerName",), "broker-a")
    taken: list[Filter] = [EqualTo(("queueId",), 1), GreaterThan(("queueOffset",), 3), EqualTo(("tags",), "t")]
    assert list(reader.pushFilters([*taken, unknown])) == [unknown]
    (partition,) = reader.partitions()
    assert (partition.value.queue_id, partition.value.start, partition.value.stop) == (1, 4, 10)
    assert [row["queueOffset"] for batch in reader.read(partition) for row in batch.to_pylist()] == [4]


def test_wrong_keys_fail_in_planning(official: JavaServer) -> None:
    """The official broker says so, and the error with it."""
    wrong = Clients(official.namesrv, SECRETS | {"secretKey": "wrong"})
    with pytest.raises(ResponseError, match=r"(?i)check signature|auth"):
        plan_ranges_of(options_of(wrong, subscribe="TBW102"))


def test_table_keeps_the_ends_that_queues_had_when_it_was_loaded(clients: Clients) -> None:
    """However often it is planned; a queue that is gone is loss."""
    clients.create("Kept", queues=2, brokers=["broker-a"])
    clients.send("Kept", numbered(6))
    source = RocketMQDataSource(dict(clients.options, subscribe="Kept"))
    schema = source.schema()
    clients.send("Kept", numbered(10))
    for _ in range(2):
        assert sum(len(part.value) for part in source.reader(schema).partitions()) == 6
    assert len(read(clients, subscribe="Kept")) == 16
    options = options_of(clients, subscribe="Kept")
    gone = {MessageQueue("Kept", "broker-a", 7): QueueExtent(3, 4)}
    with pytest.raises(DataLossError, match="queue 7 of Kept on broker-a was there when the table was loaded"):
        plan_ranges_of(options, gone)
