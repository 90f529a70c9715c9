"""The limits that settings ask for."""

import dataclasses
import pathlib

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.remoting.transport.limits import Limits, server_limits


def test_marks_count_if_both_are_given():
    """As in Java, one mark without the other changes nothing; both together do."""
    assert server_limits(120, 0, 0) == server_limits(120, 500_000, 0) == Limits()
    limits = server_limits(7, 500_000, 100_000)
    assert (limits.high_water_bytes, limits.low_water_bytes, limits.idle_ms) == (500_000, 100_000, 7000)


def test_low_mark_above_the_high_one_is_a_config_error():
    """Marks in the wrong order stop the start, and the key is named."""
    with pytest.raises(
        ConfigError, match=r"^writeBufferLowWaterMark is 2000, above writeBufferHighWaterMark=1000$"
    ) as told:
        server_limits(120, 1000, 2000)
    assert told.value.key == "writeBufferLowWaterMark"


def test_every_limit_is_on_the_page():
    """The page of limits names each of them, by its field or by the setting that changes it."""
    page = (pathlib.Path(__file__).parent.parent.parent.parent / "docs" / "reference" / "limits.md").read_text()
    settings = {
        "high_water_bytes": "writeBufferHighWaterMark",
        "low_water_bytes": "writeBufferLowWaterMark",
        "idle_ms": "serverChannelMaxIdleTimeSeconds",
    }
    for limit in dataclasses.fields(Limits):
        assert f"`{settings.get(limit.name, limit.name)}`" in page
