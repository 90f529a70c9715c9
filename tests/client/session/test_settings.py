"""Settings and names that are checked before anything starts."""

from typing import Any

import pytest

from rocketlet.client import FlowLimits, Producer, ProducerSettings, PullConsumerSettings, PushConsumerSettings
from rocketlet.client.session.settings import check_group, choose_nameserver
from rocketlet.common.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        (ProducerSettings, {"retries": -1}, "retries"),
        (ProducerSettings, {"send_timeout_ms": 0}, "send_timeout_ms"),
        (ProducerSettings, {"compression_level": 10}, "compression_level"),
        (PushConsumerSettings, {"batch_messages": 1025}, "batch_messages"),
        (PushConsumerSettings, {"concurrency": 0}, "concurrency"),
        (PushConsumerSettings, {"limits": FlowLimits(max_span=65_536)}, "limits.max_span"),
        (PullConsumerSettings, {"commit_interval_ms": 999}, "commit_interval_ms"),
        (PullConsumerSettings, {"pull_messages": 0}, "pull_messages"),
    ],
)
def test_setting_out_of_range_is_refused_by_name(kind: type[Any], settings: dict[str, Any], key: str) -> None:
    """Java's ranges hold, and the error names the setting."""
    with pytest.raises(ConfigError) as raised:
        kind(**settings)
    assert raised.value.key == key


def test_defaults_are_javas() -> None:
    """A send has 3 s and two retries; a pull brings 32 messages or 256 KiB; a buffer holds 1000 or 100 MiB."""
    assert (ProducerSettings().send_timeout_ms, ProducerSettings().retries) == (3000, 2)
    assert (ProducerSettings().retries_nowait, ProducerSettings().avoids_slow_brokers) == (2, False)
    batches = ProducerSettings()
    assert not batches.auto_batch
    assert (batches.batch_hold_ms, batches.batch_bytes, batches.batch_total_bytes) == (10, 32_768, 33_554_432)
    push = PushConsumerSettings()
    assert (push.concurrency, push.batch_messages, push.pull_messages, push.pull_bytes) == (20, 1, 32, 262_144)
    assert push.limits == (1000, 104_857_600, 2000)
    assert push.strategy.name == "AVG"


@pytest.mark.parametrize("group", ["", "  ", "a b", "g" * 121, "DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_group_that_cannot_be_used_is_refused(group: str) -> None:
    """Blank, illegal, too long and reserved names are told apart from good ones before the start."""
    with pytest.raises(ConfigError) as raised:
        check_group(group)
    assert raised.value.key == "group"


def test_name_server_comes_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """NAMESRV_ADDR stands in for a missing argument, as with Java's client."""
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    assert choose_nameserver(None) == "ns:9876"
    assert choose_nameserver("other:1") == "other:1"

    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        Producer("group")
