"""Which ranges a reading of a cluster has, and what is asked of brokers for it; without a cluster."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, InputPartition

from rocketlet.common.errors import ConfigError, DataLossError, RequestTimeoutError
from rocketlet.common.message import MessageQueue
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA, PulledRecords, pick_live_columns
from rocketlet.spark.cluster.cluster import Addresses, Cluster
from rocketlet.spark.cluster.cluster_options import CLUSTER_OPTIONS, ClusterOptions, parse_cluster_options
from rocketlet.spark.cluster.queue_ranges import QueueExtent, QueueRange
from rocketlet.spark.live import cluster_reader
from rocketlet.spark.live.cluster_reader import ClusterReader, RangeReading, narrow, plan_ranges_of, sample_bytes
from rocketlet.spark.options.cluster_access import Access
from rocketlet.spark.options.option_values import OptionValues

T0, T1, U0 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1), MessageQueue("U", "broker-b", 0)
MINUTE_MS = 60_000


def options_of(**options: Any) -> ClusterOptions:
    """Return options of a reading."""
    given = {"nameserver": "192.0.2.1:9876", "subscribe": "T,U", **options}
    texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in given.items()}
    return parse_cluster_options(OptionValues(texts, CLUSTER_OPTIONS, "the source"))


def range_of(queue: MessageQueue, start: int, stop: int) -> QueueRange:
    """Return a range of a queue."""
    return QueueRange(queue.broker_name, f"{queue.broker_name}:1", queue.topic, queue.queue_id, start, stop)


@dataclass(frozen=True)
class TimedCluster(Cluster):
    """Has a message a minute in each queue, and notes which instants it was asked for."""

    asked: list[dict[MessageQueue, int]] = field(default_factory=list[dict[MessageQueue, int]])

    def offsets_at(self, queues: Addresses, instants: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return an offset for each."""
        assert set(queues) == set(instants)
        self.asked.append(dict(instants))
        return {queue: -(-at_ms // MINUTE_MS) for queue, at_ms in instants.items()}


WHOLE = [range_of(T0, 0, 10), range_of(T1, 5, 20), range_of(U0, 3, 3)]


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (Selection(), [(0, 10), (5, 20), (3, 3)]),
        (Selection(frozenset({"T"})), [(0, 10), (5, 20)]),
        (Selection(queue_ids=frozenset({0})), [(0, 10), (3, 3)]),
        (Selection(frozenset({"T"}), queue_ids=frozenset({1, 7})), [(5, 20)]),
        (Selection(from_offset=7), [(7, 10), (7, 20), (7, 7)]),
        (Selection(until_offset=7), [(0, 7), (5, 7), (3, 3)]),
        (Selection(from_offset=8, until_offset=4), [(8, 8), (8, 8), (8, 8)]),
        (Selection(from_ms=8 * MINUTE_MS), [(7, 10), (7, 20), (3, 3)]),
        (Selection(until_ms=8 * MINUTE_MS), [(0, 9), (5, 9), (3, 3)]),
        (Selection(from_ms=8 * MINUTE_MS, until_ms=9 * MINUTE_MS), [(7, 10), (7, 10), (3, 3)]),
        (Selection(from_ms=0), [(0, 10), (5, 20), (3, 3)]),
        (Selection(until_ms=0), [(0, 1), (5, 5), (3, 3)]),
    ],
)
def test_ranges_keep_what_may_be_wanted(selection: Selection, left: list[tuple[int, int]]) -> None:
    """By topic, queue, offset, and time with a minute more at both ends; of a queue without messages none is asked."""
    cluster = TimedCluster(Access("192.0.2.1:9876"))
    assert [(each.start, each.stop) for each in narrow(cluster, WHOLE, selection)] == left
    assert all(set(asked) == {T0, T1} for asked in cluster.asked)
    bounds = ((selection.from_ms, -MINUTE_MS), (selection.until_ms, MINUTE_MS))
    instants = [at_ms + margin_ms for at_ms, margin_ms in bounds if at_ms is not None]
    assert [set(asked.values()) for asked in cluster.asked] == [{at_ms} for at_ms in instants]


def test_nothing_is_asked_about_nothing() -> None:
    """Where no range is left, no broker is asked for an instant."""
    cluster = TimedCluster(Access("192.0.2.1:9876"))
    assert narrow(cluster, WHOLE[2:], Selection(from_ms=1, until_ms=2)) == WHOLE[2:]
    assert narrow(cluster, WHOLE, Selection(frozenset({"X"}), from_ms=1)) == []
    assert cluster.asked == []


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[MessageQueue, QueueExtent]:
    """Return what the queues of a cluster hold, which may be changed."""
    here = {T0: QueueExtent(0, 10), T1: QueueExtent(5, 20), U0: QueueExtent(3, 3)}

    def queues(_: Cluster, topics: Sequence[str], *, skips_missing: bool = False) -> dict[MessageQueue, str]:
        assert not skips_missing
        return {queue: f"{queue.broker_name}:1" for queue in here if queue.topic in topics}

    def extents(_: Cluster, asked: Addresses) -> dict[MessageQueue, QueueExtent]:
        return {queue: here[queue] for queue in asked}

    monkeypatch.setattr(Cluster, "queues", queues)
    monkeypatch.setattr(Cluster, "extents", extents)
    return here


def planned(options: ClusterOptions, extents: Mapping[MessageQueue, QueueExtent] | None = None) -> list[str]:
    """Return the ranges of a reading as texts."""
    return [f"{each.topic}{each.queue_id} {each.start}-{each.stop}" for each in plan_ranges_of(options, extents)]


def test_queues_are_read_as_they_were(held: dict[MessageQueue, QueueExtent]) -> None:
    """When the table was loaded: a queue that came later is not read, one without messages may be gone."""
    assert planned(options_of()) == ["T0 0-10", "T1 5-20"]
    before = {T0: QueueExtent(1, 4), MessageQueue("T", "gone", 0): QueueExtent(6, 6)}
    assert planned(options_of(), before) == ["T0 1-4"]
    before[MessageQueue("T", "gone", 1)] = QueueExtent(6, 7)
    with pytest.raises(DataLossError, match="queue 1 of T on gone was there when the table was loaded, and no broker"):
        planned(options_of(), before)
    assert planned(options_of(failOnDataLoss="false"), before) == ["T0 1-4"]
    assert planned(options_of(), {}) == []
    assert held


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [(7, 8, ["T0 7-8", "T1 7-8"]), (8, 8, []), (9, 8, None), (-2, 8, ["T0 0-8", "T1 5-8"])],
)
def test_offsets_must_be_in_order(
    held: dict[MessageQueue, QueueExtent], start: int, end: int, left: list[str] | None
) -> None:
    """Where both ends name them; an empty range is none."""
    held.pop(U0)
    options = options_of(subscribe="T", startingOffsets={"T": start}, endingOffsets={"T": end})
    if left is not None:
        assert planned(options) == left
        return
    with pytest.raises(
        ConfigError, match=r"^endingOffsets: queue 0 of T on broker-a begins at offset 9, behind its end 8"
    ) as caught:
        planned(options)
    assert caught.value.key == "endingOffsets"


class Fetcher:
    """Has a message of so many bytes for each range that it is given, or fails."""

    noted: list[tuple[list[QueueRange], ClusterOptions]]
    sizes: Mapping[str, int]
    fails = False

    def __init__(self, ranges: Sequence[QueueRange], options: ClusterOptions) -> None:
        self.noted.append((list(ranges), options))
        self._left = [ranges[:1], ranges[1:]]

    async def collect(self) -> list[PulledRecords] | None:
        """Return some answers, or nothing any more."""
        if self.fails:
            raise RequestTimeoutError("silent")
        if not self._left:
            return None
        return [PulledRecords(each.topic, 0, 0, 1, bytes(self.sizes[each.topic])) for each in self._left.pop(0)]


@pytest.fixture
def fetcher(monkeypatch: pytest.MonkeyPatch) -> type[Fetcher]:
    """Return who pulls."""
    monkeypatch.setattr(cluster_reader, "RangeFetcher", Fetcher)
    Fetcher.noted, Fetcher.fails = [], False
    return Fetcher


def many(count: int, topic: str = "T", size: int = 3) -> list[QueueRange]:
    """Return ranges of a topic, of which the last is the largest."""
    return [
        range_of(MessageQueue(topic, "broker-a", number), 4, 4 + size + (number == count - 1))
        for number in range(count)
    ]


def test_last_message_of_the_largest_range_is_the_sample(fetcher: type[Fetcher]) -> None:
    """Of each topic; one that is gone has no size. It is asked for once, and its loss does not matter."""
    fetcher.sizes = {"T": 70, "U": 0, "V": 5}
    ranges = [*many(40), *many(20, "U"), *many(5, "V", 9)]
    assert sample_bytes(ranges, options_of(retries=7)) == {"T": 70.0, "V": 5.0}
    ((asked, options),) = fetcher.noted
    assert [(each.topic, each.queue_id, each.start, each.stop) for each in asked] == [
        ("T", 39, 7, 8),
        ("U", 19, 7, 8),
        ("V", 4, 13, 14),
    ]
    assert (options.access.retries, options.data_loss.fails) == (0, False)


@pytest.mark.parametrize(
    ("count", "min_partitions", "is_asked"),
    [(64, None, False), (65, None, True), (65, 64, True), (65, 65, False), (65, 3, True), (100, 99, True)],
)
def test_sizes_are_asked_for_where_ranges_are_packed(
    fetcher: type[Fetcher], count: int, min_partitions: int | None, is_asked: bool
) -> None:
    """Where there are more than the usual or wished tasks."""
    fetcher.sizes = {"T": 70}
    options = replace(options_of(), min_partitions=min_partitions)
    assert sample_bytes(many(count), options) == ({"T": 70.0} if is_asked else {})
    assert len(fetcher.noted) == is_asked


def test_topics_with_most_messages_are_asked_for(fetcher: type[Fetcher]) -> None:
    """Of very many, 64."""
    names = [f"T{number:03d}" for number in range(70)]
    fetcher.sizes = dict.fromkeys(names, 9)
    ranges = [one for number, name in enumerate(names) for one in many(2, name, number + 1)]
    assert sorted(sample_bytes(ranges, options_of())) == names[6:]


def test_sizes_are_assumed_where_nobody_tells(fetcher: type[Fetcher], caplog: pytest.LogCaptureFixture) -> None:
    """Which costs nothing but time."""
    fetcher.fails = True
    with caplog.at_level(logging.INFO):
        assert sample_bytes(many(65), options_of()) == {}
    assert caplog.messages == ["sampling message sizes failed, assuming 1024 bytes a message: silent"]


def test_bodies_are_checked_where_they_are_read() -> None:
    """Unless that is not wished."""
    without = pick_live_columns(["topic", "brokerName"])
    for schema, wish, checks in ((LIVE_SCHEMA, "true", True), (LIVE_SCHEMA, "false", False), (without, "true", False)):
        reading = RangeReading(options_of(verifyBodyCrc=wish), schema)
        assert reading.read_options.limits.checks_crc is checks
        assert reading.read_options.schema == schema


def test_filters_are_taken_where_that_is_wished() -> None:
    """Else Spark has all of them back."""
    filters: list[Filter] = [EqualTo(("queueId",), 1), EqualTo(("body",), b"x")]
    for wish, queue_ids in (("true", frozenset({1})), ("false", None)):
        reading, left = RangeReading(options_of(pushFilters=wish), LIVE_SCHEMA).narrowed(filters)
        assert reading.options.selection.queue_ids == queue_ids
        assert left == (filters[1:] if wish == "true" else filters)


def test_plan_without_partitions_has_no_rows(held: dict[MessageQueue, QueueExtent]) -> None:
    """Spark makes one partition of it all the same."""
    reader = ClusterReader(options_of(), LIVE_SCHEMA, {})
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []
    assert len(ClusterReader(options_of(), LIVE_SCHEMA).partitions()) == 2
    assert held
