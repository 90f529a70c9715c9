"""Options of a reading of a running cluster."""

import json
import pickle
from typing import Any

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.spark.cluster.cluster_options import CLUSTER_OPTIONS, ClusterOptions, QueueChoice, parse_cluster_options
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
