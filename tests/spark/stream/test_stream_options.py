import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.spark.options.option_values import OptionValues
from rocketlet.spark.stream.stream_options import STREAM_OPTIONS, BatchLimits, parse_batch_limits


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
