"""The stream reader beside running brokers of ours, asked as Spark asks it; Spark itself runs in ``test_streaming``."""

import asyncio
import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows
from stream_run import EVERYTHING, StreamRun
from threaded_cluster import ThreadedCluster

from rocketlet.client import Admin
from rocketlet.common.errors import ConfigError, DataLossError
from rocketlet.common.message import MessageQueue
from rocketlet.export.columns.schema import pick_columns
from rocketlet.spark.cluster import cluster_options as liveoptions
from rocketlet.spark.cluster.cluster import Addresses, Cluster
from rocketlet.spark.cluster.queue_ranges import QueueExtent, QueueRange
from rocketlet.spark.live.cluster_reader import sample_bytes
from rocketlet.spark.options.option_values import OptionValues
from rocketlet.spark.stream import stream_options as streamoptions
from rocketlet.spark.stream.cluster_poller import pause_after
from rocketlet.spark.stream.stream_options import StreamOptions, parse_stream
from rocketlet.spark.stream.stream_reader import ClusterStreamReader

COLUMNS = pick_columns(["topic", "queueId", "queueOffset", "body"])


class Stream(StreamRun):
    """A stream of topic T from its beginning, unless other options say otherwise."""

    def __init__(self, cluster: ThreadedCluster, **options: Any) -> None:
        defaults = {"subscribe": "T", "startingOffsets": "earliest", "retries": 0, "discoveryIntervalMs": 0}
        wanted = {"nameserver": cluster.nameserver, **defaults, **options}
        super().__init__(lambda given: ClusterStreamReader(parse(given), COLUMNS), wanted)


def parse(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a stream."""
    return parse_stream(
        OptionValues(options, {*liveoptions.CLUSTER_OPTIONS, *streamoptions.STREAM_OPTIONS}, "the rocketmq source")
    )


def numbers(count: int, start: int = 0) -> list[str]:
    """Return bodies that sort as numbers."""
    return [f"{number:04d}" for number in range(start, start + count)]


def test_batches_hold_what_was_sent_in_between(cluster: ThreadedCluster) -> None:
    """What is there comes first, then what is sent, and nothing when nothing is."""
    cluster.send("T", numbers(5))
    stream = Stream(cluster)
    assert stream.drain() == [numbers(5)]
    assert stream.drain() == []
    cluster.send("T", numbers(3, 5))
    assert stream.drain() == [numbers(3, 5)]


def test_latest_is_the_default_start_and_is_fixed_by_the_first_batch(cluster: ThreadedCluster) -> None:
    """Messages sent before the first batch are left out; a restart before the second one does not move the start."""
    cluster.send("T", numbers(5))
    stream = Stream(cluster, startingOffsets=None)
    assert stream.plan()
    assert stream.read() == []
    cluster.send("T", numbers(3, 5))
    stream.restart()
    assert stream.read() == []
    assert stream.drain() == [numbers(3, 5)]


def test_batch_that_was_planned_is_the_same_after_a_restart(cluster: ThreadedCluster) -> None:
    """A new reader reads a batch of the checkpoint as the old one did, whatever was sent since."""
    cluster.send("T", numbers(9))
    stream = Stream(cluster)
    assert stream.plan()
    assert stream.plan(ReadMaxRows(5))
    before = stream.read()
    cluster.send("T", numbers(4, 9))
    stream.restart()
    assert (len(before), stream.read()) == (5, before)
    assert Stream.joined([before, *stream.drain()]) == numbers(13)


def test_limit_holds_in_every_batch(cluster: ThreadedCluster) -> None:
    """No batch holds more than maxOffsetsPerTrigger, and all of them together hold everything once."""
    cluster.send("T", numbers(20), queue=("broker-a", 0))
    cluster.send("T", numbers(5, 20), queue=("broker-a", 1))
    stream = Stream(cluster, maxOffsetsPerTrigger=8)
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(8)
    batches = stream.drain(stream.reader.getDefaultReadLimit())
    assert [len(batch) for batch in batches] == [8, 8, 8, 1]
    assert Stream.joined(batches) == numbers(25)


def test_too_little_is_waited_for(cluster: ThreadedCluster) -> None:
    """With minOffsetsPerTrigger there is no batch before enough is there; a trigger for everything does not wait."""
    stream = Stream(cluster, minOffsetsPerTrigger=4)
    limit = stream.reader.getDefaultReadLimit()
    assert limit == ReadMinRows(4)
    assert stream.plan(limit)
    cluster.send("T", numbers(3))
    assert stream.drain(limit) == []
    cluster.send("T", numbers(1, 3))
    assert stream.drain(limit) == [numbers(4)]
    cluster.send("T", numbers(1, 4))
    assert stream.drain(EVERYTHING) == [numbers(1, 4)]


def test_available_now_ends_where_it_began(cluster: ThreadedCluster) -> None:
    """What is sent while the batches of availableNow run belongs to the next run."""
    cluster.send("T", numbers(9))
    stream = Stream(cluster, maxOffsetsPerTrigger=4)
    stream.reader.prepareForTriggerAvailableNow()
    cluster.send("T", numbers(5, 9))
    assert Stream.joined(stream.drain(ReadMaxRows(4))) == numbers(9)
    stream.restart()
    stream.reader.prepareForTriggerAvailableNow()
    assert Stream.joined(stream.drain(ReadMaxRows(4))) == numbers(5, 9)


def test_new_queues_topics_and_brokers_are_found(cluster: ThreadedCluster) -> None:
    """What begins while the stream runs is read from its first message."""
    stream = Stream(cluster, subscribe=None, subscribePattern="T|New.*", startingOffsets="latest")
    assert stream.drain() == []
    cluster.create_topic("T", 4)
    cluster.send("T", ["queue"], queue=("broker-a", 3))
    assert stream.drain() == [["queue"]]
    cluster.create_topic("New1", 1)
    cluster.send("New1", ["topic"])
    assert stream.drain() == [["topic"]]
    cluster.start_broker("broker-b")
    cluster.create_topic("New1", 1, ["broker-b"])
    cluster.send("New1", ["broker"], queue=("broker-b", 0))
    assert stream.drain() == [["broker"]]


def test_assigned_queues_are_read_and_no_others(cluster: ThreadedCluster) -> None:
    """With assign, neither another queue nor one that comes later is read."""
    stream = Stream(cluster, subscribe=None, assign=json.dumps({"T": {"broker-a": [1]}}))
    cluster.send("T", ["other"], queue=("broker-a", 0))
    cluster.send("T", ["0"], queue=("broker-a", 1))
    assert stream.drain() == [["0"]]
    cluster.create_topic("T", 3)
    cluster.send("T", ["new"], queue=("broker-a", 2))
    cluster.send("T", ["1"], queue=("broker-a", 1))
    assert stream.drain() == [["1"]]


@pytest.mark.parametrize("discovery_ms", [0, 600_000], ids=["left the route", "does not answer"])
def test_broker_that_is_away_is_waited_for(cluster: ThreadedCluster, discovery_ms: int) -> None:
    """While a broker is away the others are read on; when it is back it goes on where it was."""
    cluster.start_broker("broker-b")
    cluster.create_topic("T", 1, ["broker-b"])
    stream = Stream(cluster, discoveryIntervalMs=discovery_ms)
    cluster.send("T", ["a0", "a1"], queue=("broker-a", 0))
    cluster.send("T", ["b0"], queue=("broker-b", 0))
    assert stream.drain() == [["a0", "a1", "b0"]]
    cluster.stop_broker("broker-b")
    cluster.send("T", ["a2"], queue=("broker-a", 0))
    assert stream.drain() == [["a2"]]
    cluster.start_broker("broker-b")
    cluster.send("T", ["b1"], queue=("broker-b", 0))
    assert stream.drain() == [["b1"]]


def test_planned_batch_of_a_broker_that_is_away_fails(cluster: ThreadedCluster) -> None:
    """A batch that a checkpoint holds is not read without those of a broker that is away, unless that is asked."""
    cluster.start_broker("broker-b")
    cluster.create_topic("T", 1, ["broker-b"])
    cluster.send("T", ["b0"], queue=("broker-b", 0))
    cluster.send("T", ["a0"], queue=("broker-a", 0))
    stream = Stream(cluster)
    assert stream.plan()
    assert stream.plan()
    cluster.stop_broker("broker-b")
    stream.restart()
    with pytest.raises(DataLossError, match="queue 0 of T on broker-b"):
        stream.read()
    stream.options["failOnDataLoss"] = "false"
    stream.restart()
    assert stream.read() == ["a0"]


def test_topic_made_anew_is_loss(cluster: ThreadedCluster) -> None:
    """A queue that has become shorter fails the stream; with failOnDataLoss false it is read from its beginning."""
    cluster.send("T", numbers(6))
    stream = Stream(cluster)
    assert stream.drain() == [numbers(6)]
    cluster.stop_broker()
    assert stream.drain() == []
    shutil.rmtree(cluster.store_of("broker-a"))
    cluster.start_broker()
    cluster.create_topic("T", 2)
    cluster.send("T", ["anew"])
    with pytest.raises(DataLossError, match="was read up to offset 3, but ends at"):
        stream.plan()
    stream.options["failOnDataLoss"] = "false"
    stream.restart()
    assert stream.drain() == [["anew"]]


def test_queue_that_lost_its_last_messages_goes_on_from_its_end(
    cluster: ThreadedCluster, tmp_path: pathlib.Path
) -> None:
    """That is loss as well, but what was read is not read again, and what comes in its place is read."""
    cluster.send("T", numbers(4))
    cluster.stop_broker()
    shutil.copytree(cluster.store_of("broker-a"), tmp_path / "before")
    cluster.start_broker()
    cluster.send("T", numbers(4, 4))
    stream = Stream(cluster)
    assert stream.drain() == [numbers(8)]
    cluster.stop_broker()
    shutil.rmtree(cluster.store_of("broker-a"))
    shutil.copytree(tmp_path / "before", cluster.store_of("broker-a"))
    cluster.start_broker()
    with pytest.raises(DataLossError, match="was read up to offset 4, but ends at 2: it has lost its last messages"):
        stream.plan()
    stream.options["failOnDataLoss"] = "false"
    stream.restart()
    assert stream.drain() == []
    cluster.send("T", ["in its place"])
    assert stream.drain() == [["in its place"]]


def test_stream_goes_on_without_name_servers(cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """What brokers hold is read from them, and one warning says why no new queues are found."""
    cluster.send("T", numbers(9))
    stream = Stream(cluster)
    assert stream.plan()
    assert stream.plan(ReadMaxRows(4))
    before = stream.read()
    cluster.stop_nameserver()
    assert Stream.joined([before, *stream.drain()]) == numbers(9)
    assert stream.drain() == []
    warnings = [text for text in caplog.messages if "going on with the 2 known queues" in text]
    assert len(warnings) == 1


def test_many_queues_are_few_tasks(cluster: ThreadedCluster) -> None:
    """Small queues are packed, and each message is read once; the size of messages is asked for."""
    cluster.create_topic("Many", 100)
    cluster.send("Many", numbers(250))
    stream = Stream(cluster, subscribe="Many", minPartitions=3)
    assert stream.plan()
    assert stream.plan()
    assert 3 <= len(stream.reader.partitions(*stream.batches[-1])) <= 7
    assert sorted(stream.read()) == numbers(250)
    options = parse({"nameserver": cluster.nameserver, "subscribe": "Many"}).live
    ranges = [QueueRange("broker-a", cluster.broker().address, "Many", number, 0, 2) for number in range(100)]
    assert 90 < sample_bytes(ranges, options)["Many"] < 400
    assert sample_bytes(ranges[:64], options) == {}


def test_idle_stream_asks_for_the_ends_only(cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first offsets are known from the first look on; a queue that is found later is asked for its own."""
    asked: list[int] = []
    extents = Cluster.extents

    def count(self: Cluster, queues: Addresses) -> dict[MessageQueue, QueueExtent]:
        asked.append(len(queues))
        return extents(self, queues)

    monkeypatch.setattr(Cluster, "extents", count)
    cluster.send("T", numbers(4))
    stream = Stream(cluster)
    assert stream.drain() == [numbers(4)]
    assert not stream.plan()
    cluster.create_topic("T", 3)
    cluster.send("T", ["new"], queue=("broker-a", 2))
    assert stream.drain() == [["new"]]
    assert asked == [2, 1]


def test_idle_stream_takes_a_small_part_of_the_time() -> None:
    """Looks that take long come seldom, but not for ever later."""
    assert [pause_after(look_ms) for look_ms in (0, 5, 40, 900, 60_000)] == [100, 100, 400, 9_000, 10_000]


def test_group_shows_the_lag_of_a_stream(cluster: ThreadedCluster) -> None:
    """Where a batch begins, all before is done; the group is made where there is none, and tools see its route."""
    cluster.send("T", numbers(9))
    stream = Stream(cluster, commitGroup="stream_t")
    assert stream.plan()
    assert stream.plan(ReadMaxRows(4))

    async def ask() -> tuple[int, int]:
        async with Admin(cluster.nameserver) as admin:
            progress = await admin.progress("stream_t", "T")
            assert "%RETRY%stream_t" in await admin.topics()
            return progress.lag, sum(each.committed or 0 for each in progress.queues)

    assert asyncio.run(ask()) == (9, 0)
    assert len(Stream.joined(stream.drain())) == 5
    assert asyncio.run(ask()) == (0, 9)
    cluster.send("T", numbers(2, 9))
    assert asyncio.run(ask()) == (2, 9)


def test_offsets_that_the_cluster_reports_are_its_ends(cluster: ThreadedCluster) -> None:
    """What a progress shows as latest is what the queues hold, also when a batch is limited."""
    cluster.send("T", numbers(9), queue=("broker-a", 0))
    stream = Stream(cluster)
    assert stream.reader.reportLatestOffset() is None
    stream.plan()
    assert stream.plan(ReadMaxRows(4))
    assert stream.reader.reportLatestOffset() == {"T": {"broker-a": {"0": 9, "1": 0}}}
    assert stream.start.pop("@seenMs") > 0
    assert stream.start == {"T": {"broker-a": {"0": 4, "1": 0}}}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets does not fit: a stream has no end"),
        ({"maxOffsetPerTrigger": "3"}, "has no option maxOffsetPerTrigger; did you mean maxOffsetsPerTrigger?"),
        ({"subscribePattern": "T"}, "subscribe and subscribePattern contradict each other"),
    ],
)
def test_wrong_stream_options_are_refused(options: dict[str, str], sentence: str) -> None:
    """A mistake is an error of one sentence before anything is asked of the cluster."""
    with pytest.raises(ConfigError, match=sentence):
        parse({"nameserver": "127.0.0.1:1", "subscribe": "T", **options})


def test_topic_that_is_not_there_is_refused_at_the_start(cluster: ThreadedCluster) -> None:
    """A stream over a misspelt topic does not wait for it for ever."""
    with pytest.raises(ConfigError, match="there is no topic TT; did you mean T"):
        Stream(cluster, subscribe="TT").plan()


def test_stream_goes_on_at_the_slave(cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Without the master; queues that the slave has not all of are waited for, and nothing is lost or comes twice."""
    cluster.send("T", numbers(9))
    cluster.start_slave()
    stream = Stream(cluster)
    assert stream.plan()
    cluster.stop_broker()
    assert stream.drain() == [numbers(9)]
    cluster.stop_broker("slave")
    cluster.start_broker()
    cluster.send("T", numbers(3, 9))
    assert stream.drain() == [numbers(3, 9)]
    cluster.stop_broker()
    cluster.start_broker("slave")
    assert stream.drain() == []
    assert [text for text in caplog.messages if "at a slave, before" in text]
    cluster.start_broker()
    cluster.send("T", numbers(3, 12))
    assert stream.drain() == [numbers(3, 12)]
