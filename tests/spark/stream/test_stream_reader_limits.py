"""How long a stream waits for more, when it pauses, and what it tells brokers of its progress."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from stream_run import StreamRun
from threaded_cluster import ThreadedCluster

from rocketlet.client import Admin
from rocketlet.client.session.session import Session
from rocketlet.common.message import MessageQueue
from rocketlet.export.columns.schema import pick_columns
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.spark.cluster.cluster_options import CLUSTER_OPTIONS
from rocketlet.spark.options.cluster_access import Access
from rocketlet.spark.options.option_values import OptionValues
from rocketlet.spark.stream.stream_options import STREAM_OPTIONS, parse_stream
from rocketlet.spark.stream.stream_reader import ClusterStreamReader, StreamProgress

COLUMNS = pick_columns(["topic", "queueId", "queueOffset", "body"])
STORE, MAKE = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
A0, A1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def stream_of(cluster: ThreadedCluster, **options: Any) -> StreamRun:
    """Return a stream of topic T from its beginning."""
    wanted = {"nameserver": cluster.nameserver, "subscribe": "T", "startingOffsets": "earliest", **options}
    known = {*CLUSTER_OPTIONS, *STREAM_OPTIONS}
    return StreamRun(
        lambda given: ClusterStreamReader(parse_stream(OptionValues(given, known, "the source")), COLUMNS), wanted
    )


class Pauses:
    """A clock whose pauses are noted."""

    def __init__(self) -> None:
        self.count = 0

    async def sleep(self, _: int) -> None:
        """Note a pause."""
        self.count += 1


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """Return the pauses that streams make."""
    noted = Pauses()
    monkeypatch.setattr("rocketlet.spark.stream.cluster_poller.LoopClock", lambda: noted)
    return noted


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 7}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": 7}, ReadMinRows(7)),
        ({"minOffsetsPerTrigger": 7, "maxOffsetsPerTrigger": 9}, ReadMaxRows(9)),
    ],
)
def test_options_are_the_limit_of_a_batch(cluster: ThreadedCluster, options: dict[str, int], limit: object) -> None:
    """Spark hands it back with each batch."""
    assert stream_of(cluster, **options).reader.getDefaultReadLimit() == limit


def test_too_little_is_waited_for_no_longer_than_is_wished(
    cluster: ThreadedCluster, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from the first look that found too little; each batch begins anew."""
    now = [1_000.0]
    monkeypatch.setattr("rocketlet.spark.stream.stream_reader.time", SimpleNamespace(monotonic=lambda: now[0]))
    stream = stream_of(cluster, minOffsetsPerTrigger=4, maxTriggerDelay="60s")
    limit = stream.reader.getDefaultReadLimit()
    assert stream.plan(limit)
    for _ in range(2):
        cluster.send("T", ["0", "1", "2"])
        for seconds, is_planned in ((0, False), (30, False), (29.999, False), (0.001, True)):
            now[0] += seconds
            assert stream.plan(limit) == is_planned
        assert len(stream.read()) == 3
        now[0] += 100
    cluster.send("T", ["0", "1", "2", "3"])
    assert stream.plan(limit)
    assert pauses.count > 0


def test_pause_follows_a_look_that_found_nothing(cluster: ThreadedCluster, pauses: Pauses) -> None:
    """Not one that found something, nor one of a run that ends when there is nothing new."""
    cluster.send("T", ["0"])
    stream = stream_of(cluster)
    assert stream.plan()
    assert stream.plan()
    assert pauses.count == 0
    seen_at_ms = stream.start["@seenMs"]
    assert not stream.plan()
    assert pauses.count == 1
    assert stream.start["@seenMs"] == seen_at_ms
    stream.restart()
    stream.reader.prepareForTriggerAvailableNow()
    assert not stream.plan(ReadMinRows(5))
    assert pauses.count == 1


def test_run_that_ends_takes_what_little_there_is(cluster: ThreadedCluster, pauses: Pauses) -> None:
    """It waits for no more, however much is wished."""
    stream = stream_of(cluster, minOffsetsPerTrigger=100)
    cluster.send("T", ["0", "1"])
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.drain(ReadMinRows(100)) == [["0", "1"]]
    assert pauses.count == 0


def test_sizes_are_asked_for_once(cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more queues than usual tasks, and not for every batch."""
    asked: list[int] = []

    def sample(ranges: list[object], _: object) -> dict[str, float]:
        asked.append(len(ranges))
        return {"T": 100.0}

    monkeypatch.setattr("rocketlet.spark.stream.stream_reader.sample_bytes", sample)
    monkeypatch.setattr("rocketlet.spark.stream.stream_reader.USUAL_TASKS", 1)
    stream = stream_of(cluster)
    assert stream.plan()
    cluster.send("T", ["0"], queue=("broker-a", 0))
    assert stream.plan()
    assert stream.read() == ["0"]
    assert asked == []
    for _ in range(2):
        cluster.send("T", ["0", "1"])
        assert stream.plan()
        assert len(stream.read()) == 2
    assert asked == [2]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return which requests are made from here on to store an offset or to make a group."""
    codes: list[int] = []
    call = Session.call

    async def note(self: Session, address: str, command: Command, *arguments: Any, **options: Any) -> Command:
        if command.code in (STORE, MAKE):
            codes.append(command.code)
        return await call(self, address, command, *arguments, **options)

    monkeypatch.setattr(Session, "call", note)
    return codes


def committed(cluster: ThreadedCluster) -> dict[int, int | None]:
    """Return what is stored of each queue."""

    async def ask() -> dict[int, int | None]:
        async with Admin(cluster.nameserver) as admin:
            found = (await admin.progress("group", "T")).queues
            return {each.queue.queue_id: each.committed for each in found}

    return asyncio.run(ask())


def test_offsets_that_have_changed_are_told(cluster: ThreadedCluster, asked: list[int]) -> None:
    """Of queues whose broker is known; the group is made by the first of them, and each offset is told once."""
    cluster.send("T", ["0"] * 8)
    progress = StreamProgress(Access(cluster.nameserver), "group")
    addresses = {queue: cluster.broker().address for queue in (A0, A1)}
    progress.store({}, addresses)
    progress.store({A0: 1}, {})
    assert asked == []
    progress.store({A0: 1, A1: 2, MessageQueue("T", "gone", 0): 3}, addresses)
    assert asked == [STORE, MAKE, STORE, STORE]
    assert committed(cluster) == {0: 1, 1: 2}
    asked.clear()
    progress.store({A0: 1, A1: 2}, addresses)
    assert asked == []
    progress.store({A0: 1, A1: 3}, addresses)
    assert asked == [STORE]
    progress.store({A0: 4, A1: 4}, addresses)
    assert asked == [STORE] * 3
    assert committed(cluster) == {0: 4, 1: 4}


def test_failure_to_tell_ends_nothing(cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once until it passes, and what was not told is told then."""
    progress = StreamProgress(Access(cluster.nameserver, timeout_ms=2_000), "group")
    addresses = {queue: cluster.broker().address for queue in (A0, A1)}
    for number in (1, 2):
        cluster.stop_broker()
        for _ in range(3):
            progress.store({A0: number, A1: 0}, addresses)
        (warning,) = [text for text in caplog.messages if "committing" in text]
        assert warning.startswith(f"group group: committing {3 - number} offsets failed, retrying with each batch")
        cluster.start_broker()
        caplog.clear()
        progress.store({A0: number, A1: 0}, addresses)
        assert committed(cluster)[0] == number
