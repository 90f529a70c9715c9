import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.spark.cluster.cluster_options import CLUSTER_OPTIONS
from rocketlet.spark.cluster.offset_bounds import EARLIEST, LATEST
from rocketlet.spark.options.option_values import OptionValues
from rocketlet.spark.stream.stream_options import (
    STREAM_OPTIONS,
    BatchLimits,
    StreamOptions,
    add_limits,
    parse_batch_limits,
    parse_stream,
)


def parse(**options: str) -> BatchLimits:
    """Return the admission of options."""
    return parse_batch_limits(OptionValues(options, STREAM_OPTIONS, "the rocketmq source"))


def test_admission_is_unlimited_unless_asked() -> None:
    """Without options a batch takes everything and waits for nothing."""
    assert parse() == BatchLimits(None, None, 900_000)
    assert not parse().waits(0, 0)


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90_000), ("15m", 900_000), ("1 h", 3_600_000), ("20", 20_000), ("500ms", 500)]
)
def test_delay_is_a_duration(text: str, expected: int) -> None:
    """Durations carry their unit; a bare number is seconds."""
    assert parse(minOffsetsPerTrigger="10", maxTriggerDelay=text).max_delay_ms == expected


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is 0, but must be at least 1"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger 6 is more than"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay needs minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon', not a duration as"),
    ],
)
def test_wrong_admission_is_refused(options: dict[str, str], sentence: str) -> None:
    """Values that cannot be used and options that contradict each other are errors of one sentence."""
    with pytest.raises(ConfigError, match=sentence):
        parse(**options)


def test_batch_waits_for_enough_but_not_for_ever() -> None:
    """It waits while there is too little, until the delay is over."""
    batch_limits = parse(minOffsetsPerTrigger="10", maxTriggerDelay="1s")
    assert batch_limits.waits(9, 999)
    assert not batch_limits.waits(10, 0)
    assert not batch_limits.waits(9, 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2d", 172_800_000), ("3min", 180_000), ("5 M", 300_000), ("0s", 0), ("7ms", 7), ("1h", 3_600_000)],
)
def test_delays_have_all_units(text: str, expected: int) -> None:
    """In any case."""
    assert parse(minOffsetsPerTrigger="10", maxTriggerDelay=text).max_delay_ms == expected


def test_limits_may_be_equal() -> None:
    """A batch then has just so many messages; a limit alone does not wait."""
    assert parse(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5") == BatchLimits(5, 5, 900_000)
    assert not BatchLimits(max_offsets=5).waits(0, 0)
    assert BatchLimits(min_offsets=1).waits(0, 899_999)
    assert not BatchLimits(min_offsets=1).waits(0, 900_000)


def stream(**options: str) -> StreamOptions:
    """Return the options of a stream of a topic."""
    given = {"nameserver": "192.0.2.1:9876", "subscribe": "T", **options}
    return parse_stream(OptionValues(given, (*CLUSTER_OPTIONS, *STREAM_OPTIONS), "the rocketmq source"))


def test_stream_begins_at_the_end_and_looks_for_queues() -> None:
    """Every ten seconds, and tells nobody how far it has come."""
    found = stream()
    assert found.live.starting.queue_offset == LATEST
    assert (found.discovery_ms, found.commit_group, found.batch_limits) == (10_000, None, BatchLimits())
    asked = stream(discoveryIntervalMs="0", commitGroup="g", startingOffsets="earliest", maxOffsetsPerTrigger="3")
    assert (asked.discovery_ms, asked.commit_group, asked.batch_limits.max_offsets) == (0, "g", 3)
    assert asked.live.starting.queue_offset == EARLIEST


@pytest.mark.parametrize(
    ("options", "reason", "key"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets does not fit: a stream has no end", "endingOffsets"),
        ({"endingTimestamp": "5"}, "endingTimestamp does not fit: a stream has no end", "endingTimestamp"),
        ({"pushFilters": "true"}, "pushFilters does not fit: it is no option of a stream", "pushFilters"),
        ({"reportPath": "/a"}, "reportPath does not fit", "reportPath"),
        ({"commitGroup": "a b"}, "commitGroup 'a b' cannot be used", "commitGroup"),
        ({"discoveryIntervalMs": "-1"}, "discoveryIntervalMs is -1, but must be at least 0", "discoveryIntervalMs"),
    ],
)
def test_options_that_no_stream_has(options: dict[str, str], reason: str, key: str) -> None:
    """Are named."""
    with pytest.raises(ConfigError, match=reason) as caught:
        stream(**options)
    assert caught.value.key == key


def test_stream_that_begins_with_stores_has_no_report() -> None:
    """It may read a batch twice, nor has it an end."""
    live = stream().live
    for name in ("reportPath", "endingOffsets"):
        with pytest.raises(ConfigError, match=f"{name} does not fit"):
            add_limits(OptionValues({name: "x"}, (*CLUSTER_OPTIONS, *STREAM_OPTIONS), "the source"), live)
