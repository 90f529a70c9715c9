"""Options of a reading of a running cluster."""

import json
import pickle
from collections.abc import Iterable
from typing import Any, ClassVar, cast

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.common.message import MessageQueue
from rocketlet.export.plan.filesystems import Folder, Storage
from rocketlet.export.plan.selection import Selection
from rocketlet.spark.cluster.cluster import Cluster
from rocketlet.spark.cluster.cluster_options import (
    CLUSTER_OPTIONS,
    ClusterOptions,
    QueueChoice,
    find_present,
    find_queues,
    parse_cluster_options,
)
from rocketlet.spark.cluster.offset_bounds import EARLIEST, LATEST
from rocketlet.spark.options.option_values import OptionValues


def parse(**options: Any) -> ClusterOptions:
    """Parse options beside a name server and a topic."""
    chosen = {} if {"subscribe", "subscribePattern", "assign"} & options.keys() else {"subscribe": "T"}
    given = {"nameserver": "192.0.2.1:9876", **chosen, **options}
    texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in given.items()}
    return parse_cluster_options(OptionValues(texts, CLUSTER_OPTIONS, "the source"))


def test_defaults_read_everything_there_is() -> None:
    """From the first message to the last one at the time of planning, and loss fails."""
    options = parse()
    assert (options.starting.queue_offset, options.ending.queue_offset) == (EARLIEST, LATEST)
    assert options.data_loss.fails
    assert options.group == "TOOLS_CONSUMER"
    assert options.choice == QueueChoice("subscribe", frozenset({"T"}))


def test_options_travel_to_tasks() -> None:
    """With keys and certificates."""
    options = parse(accessKey="AK", secretKey="secret", tls="true", tlsVerify="false", tags="a,b")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 # our own
    assert "secret" not in repr(options)


def test_offsets_are_named_by_queue() -> None:
    """By topic, broker and queue; shorter where the topic is on one broker, or one value is for all its queues."""
    table = {"A": {"broker-a": {"0": 3, "1": -1}}, "B": {"0": 5}, "C": -2, "D": {"broker-a": 7}}
    assert parse(startingOffsets=table).starting.offsets == {
        ("A", "broker-a", 0): 3,
        ("A", "broker-a", 1): -1,
        ("B", None, 0): 5,
        ("C", None, None): -2,
        ("D", "broker-a", None): 7,
    }


def test_instants_are_milliseconds_or_iso_times() -> None:
    """Of all queues, or of each."""
    options = parse(
        startingTimestamp="1970-01-01T00:00:01", endingOffsetsByTimestamp={"T": {"0": 5, "1": "1970-01-02"}}
    )
    assert options.starting.at_ms == 1000
    assert options.ending.instants == {("T", None, 0): 5, ("T", None, 1): 86_400_000}


def test_queues_are_assigned_by_broker_or_of_all() -> None:
    """Both forms may stand beside each other."""
    choice = parse(assign={"A": [0, 2], "B": {"broker-b": [1]}}).choice
    assert choice.topics == {"A", "B"}
    assert choice.queues == {"A": {(None, 0), (None, 2)}, "B": {("broker-b", 1)}}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"nameserver": "here"}, "name server 'here' is not of the form host:port"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "T", "assign": {"T": [0]}}, "subscribe and assign contradict each other"),
        ({"subscribePattern": "("}, "subscribePattern '\\(' is no regular expression"),
        ({"assign": "[1]"}, "assign is not of the form"),
        ({"assign": {"T": ["0"]}}, "assign is not of the form"),
        ({"assign": {"T": []}}, "assign names no queue of T"),
        ({"startingOffsets": "begin"}, "startingOffsets is 'begin', neither earliest, latest nor JSON"),
        ({"startingOffsets": "latest"}, "startingOffsets latest leaves nothing to read"),
        ({"endingOffsets": "earliest"}, "endingOffsets earliest leaves nothing to read"),
        ({"startingOffsets": "{"}, "startingOffsets is not JSON"),
        ({"startingOffsets": "{}"}, "startingOffsets is not of the form"),
        ({"startingOffsets": {"T": {"b": {"0": "1"}}}}, "startingOffsets holds '1', which is no offset"),
        ({"startingOffsets": {"T": {"b": {"0": -3}}}}, "startingOffsets holds -3, which is no offset"),
        ({"startingOffsets": {"T": {"b": {"x": 1}}}}, "startingOffsets names queue 'x', which is not a number"),
        ({"startingOffsetsByTimestamp": {"T": 1.5}}, "startingOffsetsByTimestamp holds 1.5, neither epoch"),
        ({"startingTimestamp": 1, "startingOffsets": "earliest"}, "contradict each other"),
        ({"startingTimestamp": 2, "endingTimestamp": 2}, "startingTimestamp 2 is not before endingTimestamp 2"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "'first', none of error, latest"),
        ({"accessKey": "AK"}, "accessKey needs both accessKey and secretKey"),
        ({"tlsVerify": "false"}, "tlsVerify is given, but tls is not true"),
        ({"tls": "true", "tlsTrustFile": "/missing"}, "tls cannot be used"),
        ({"minPartitions": 0}, "minPartitions is 0, but must be at least 1"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no', neither true nor false"),
    ],
)
def test_what_cannot_be_read_is_refused(options: dict[str, Any], reason: str) -> None:
    """In one sentence that names the option."""
    with pytest.raises(ConfigError, match=reason):
        parse(**options)


def test_something_must_be_named() -> None:
    """A name server alone is no reading."""
    with pytest.raises(ConfigError, match="give one of subscribe, subscribePattern, assign"):
        parse_cluster_options(OptionValues({"nameserver": "192.0.2.1:9876"}, CLUSTER_OPTIONS, "the source"))


class Topics:
    """A cluster of two brokers, as its routes say."""

    QUEUES: ClassVar[dict[MessageQueue, str]] = {
        MessageQueue(topic, broker, number): f"{broker}:1"
        for topic, broker, count in (
            ("A", "broker-a", 2),
            ("A", "broker-b", 1),
            ("AB", "broker-a", 1),
            ("%RETRY%A", "b", 1),
        )
        for number in range(count)
    }

    def queues(self, topics: Iterable[str], *, skips_missing: bool = False) -> dict[MessageQueue, str]:
        """Return the queues of topics."""
        wanted = set(topics)
        missing = wanted - {queue.topic for queue in self.QUEUES}
        if missing and not skips_missing:
            raise ConfigError(f"no topic {missing}")
        return {queue: address for queue, address in self.QUEUES.items() if queue.topic in wanted}

    def topics(self, *, includes_system: bool) -> list[str]:
        """Return the names of topics, and one whose brokers are gone."""
        names = {queue.topic for queue in self.QUEUES} | {"AGone"}
        return sorted(name for name in names if includes_system or not name.startswith("%"))


TOPICS = cast("Cluster", Topics())


def found(queues: Iterable[MessageQueue]) -> list[str]:
    """Return queues in short."""
    return [f"{topic} {broker[-1]}{number}" for topic, broker, number in queues]


@pytest.mark.parametrize(
    ("options", "queues"),
    [
        ({"subscribe": "AB"}, ["AB a0"]),
        ({"subscribe": "A, AB"}, ["A a0", "A a1", "A b0", "AB a0"]),
        ({"subscribePattern": "A.*"}, ["A a0", "A a1", "A b0", "AB a0"]),
        ({"subscribePattern": "A"}, ["A a0", "A a1", "A b0"]),
        ({"subscribePattern": ".*", "includeSystemTopics": "true"}, ["A a0", "A a1", "A b0", "AB a0", "%RETRY%A b0"]),
        ({"assign": {"A": [0]}}, ["A a0", "A b0"]),
        ({"assign": {"A": [1], "AB": [0]}}, ["A a1", "AB a0"]),
        ({"assign": {"A": {"broker-a": [1, 0]}}}, ["A a0", "A a1"]),
        ({"assign": {"A": {"broker-b": [0]}}}, ["A b0"]),
    ],
)
def test_queues_of_a_choice(options: dict[str, Any], queues: list[str]) -> None:
    """All of a topic, or those that are assigned; they are also what is present of them."""
    choice = parse(**options).choice
    assert found(find_queues(TOPICS, choice)) == queues
    assert found(find_present(TOPICS, choice)) == queues
    assert find_queues(TOPICS, choice).items() <= Topics.QUEUES.items()


@pytest.mark.parametrize(
    ("options", "reason", "present"),
    [
        ({"subscribe": "A,C"}, "no topic", ["A a0", "A a1", "A b0"]),
        ({"subscribePattern": "C"}, "subscribePattern 'C' matches no topic that can be read", []),
        ({"subscribePattern": "AGone"}, "subscribePattern 'AGone' matches no topic that can be read", []),
        (
            {"assign": {"A": [1, 2]}},
            "assign names queue 2 of A, but there are 0 on broker-a, 0 on broker-b, 1 on broker-a",
            ["A a1"],
        ),
        ({"assign": {"A": {"broker-b": [0, 1]}}}, "assign names queue 1 of A on broker-b, but there are", ["A b0"]),
    ],
)
def test_queues_that_are_not_there(options: dict[str, Any], reason: str, present: list[str]) -> None:
    """Are an error, or left out where a stream goes on without them."""
    choice = parse(**options).choice
    with pytest.raises(ConfigError, match=reason):
        find_queues(TOPICS, choice)
    assert found(find_present(TOPICS, choice)) == present
    if "subscribePattern" in options:
        assert find_queues(TOPICS, choice, needs_any=False) == {}


def test_options_are_what_was_given() -> None:
    """Each to its place."""
    options = parse(
        minPartitions=3,
        maxRecordsPerPartition=7,
        failOnDataLoss="false",
        group="g",
        tags="a, b",
        keys="k",
        verifyBodyCrc="false",
        pullsAtOnce=5,
        messageDelayLevel="1s 2s",
        reportPath="/reports",
        storageOptions='{"region": "r"}',
    )
    assert (options.min_partitions, options.max_records, options.pulls_at_once) == (3, 7, 5)
    assert (options.data_loss.fails, options.group, options.checks_crc) == (False, "g", False)
    assert options.selection == Selection(tags=frozenset("ab"), keys=frozenset("k"), includes_system=True)
    assert options.delays_ms == (1_000, 2_000)
    assert options.report == Folder("/reports", Storage('{"region": "r"}'))


def test_options_that_were_not_given() -> None:
    """Sixteen pulls at once, whole batches, no limits, and no report."""
    options = parse()
    assert (options.min_partitions, options.max_records, options.pulls_at_once) == (None, None, 16)
    assert (options.batch_messages, options.batch_bytes) == (65_536, 16 << 20)
    assert (options.checks_crc, options.pushes_filters, options.report) == (True, False, None)
    assert options.selection == Selection(includes_system=True)
    assert options.choice.includes_system is False
    assert options == ClusterOptions(options.access, options.choice, options.starting, options.ending)
    assert (options.starting.is_end, options.ending.is_end) == (False, True)


@pytest.mark.parametrize(
    ("options", "starting", "ending"),
    [
        ({"startingOffsets": "EARLIEST", "endingOffsets": "Latest"}, EARLIEST, LATEST),
        ({"endingOffsets": {"T": 7}}, EARLIEST, EARLIEST),
    ],
)
def test_words_of_bounds_in_any_case(options: dict[str, Any], starting: int, ending: int) -> None:
    """With offsets by queue, no word counts."""
    found_options = parse(**options)
    assert (found_options.starting.queue_offset, found_options.ending.queue_offset) == (starting, ending)
    assert found_options.ending.is_end


def test_stream_begins_at_the_end() -> None:
    """Unless it is told to begin elsewhere."""
    given = {"nameserver": "192.0.2.1:9876", "subscribe": "T"}
    options = parse_cluster_options(OptionValues(given, CLUSTER_OPTIONS, "the source"), default_start=LATEST)
    assert options.starting.queue_offset == LATEST


@pytest.mark.parametrize(
    ("options", "takes_latest"), [({}, False), ({"startingOffsetsByTimestampStrategy": "latest"}, True)]
)
@pytest.mark.parametrize("start", [{"startingTimestamp": 0}, {"startingOffsetsByTimestamp": {"T": 0}}])
def test_strategy_is_of_beginnings(options: dict[str, Any], takes_latest: bool, start: dict[str, Any]) -> None:
    """An ending takes the latest in any case."""
    found_options = parse(**options, **start, endingTimestamp=5)
    assert found_options.starting.takes_latest == takes_latest
    assert found_options.ending.takes_latest
    assert (found_options.starting.is_end, found_options.ending.is_end) == (False, True)
    by_queue = parse(**options, **start, endingOffsetsByTimestamp={"T": 5}).ending
    assert (by_queue.is_end, by_queue.takes_latest, by_queue.instants) == (True, True, {("T", None, None): 5})


@pytest.mark.parametrize(("start", "end"), [(0, 1), (5, 6)])
def test_beginning_is_before_the_end(start: int, end: int) -> None:
    """By a millisecond at least."""
    options = parse(startingTimestamp=start, endingTimestamp=end)
    assert (options.starting.at_ms, options.ending.at_ms) == (start, end)
    with pytest.raises(ConfigError, match="is not before endingTimestamp"):
        parse(startingTimestamp=end, endingTimestamp=start)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"subscribe": "T", "subscribePattern": "T"}, None),
        ({"subscribePattern": "T", "assign": {"T": [0]}}, None),
        ({"startingTimestamp": 1, "startingOffsetsByTimestamp": {"T": 1}}, None),
        ({"startingOffsetsByTimestamp": {"T": 1}, "startingOffsets": "earliest"}, None),
        ({"assign": {"T": [-1]}}, "assign"),
        ({"assign": {"T": [True]}}, "assign"),
        ({"assign": {"T": 0}}, "assign"),
        ({"assign": {}}, "assign"),
        ({"assign": {"T": {"b": []}}}, "assign"),
        ({"startingOffsets": {"T": True}}, "startingOffsets"),
        ({"startingOffsetsByTimestamp": {"T": True}}, "startingOffsetsByTimestamp"),
        ({"pullsAtOnce": 0}, "pullsAtOnce"),
        ({"maxRecordsPerPartition": 0}, "maxRecordsPerPartition"),
    ],
)
def test_other_values_are_refused(options: dict[str, Any], key: str | None) -> None:
    """With the option's name."""
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    if key is not None:
        assert caught.value.key == key


def test_least_offsets_of_a_bound() -> None:
    """Latest and earliest stand below the first one; queue 0 may be assigned."""
    assert parse(startingOffsets={"T": -2}).starting.offsets == {("T", None, None): EARLIEST}
    assert parse(startingOffsets={"T": 0}).starting.offsets == {("T", None, None): 0}
    assert parse(assign={"T": [0]}).choice.queues == {"T": {(None, 0)}}
