"""Settings by Java's keys."""

import json
import pathlib

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.store.files.store_config import StoreConfig, TimerConfig, parse_delay_levels


@pytest.mark.feature("H9")
def test_defaults_are_javas() -> None:
    """The sizes of store.md §1, and 18 delay levels."""
    config = StoreConfig("/data")
    assert (config.segment_bytes, config.queue_file_bytes) == (1_073_741_824, 300_000 * 20)
    assert config.index_file_bytes == 420_000_040
    assert config.log_directories == ("/data/commitlog",)
    assert config.sharers == 1, "a store has the descriptors of its process for itself"
    seconds, minutes, hours = (1, 5, 10, 30), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30), (1, 2)
    lengths = *seconds, *(60 * each for each in minutes), *(3_600 * each for each in hours)
    assert config.delays_ms == tuple(1_000 * length for length in lengths)
    assert config.delay_levels == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def test_settings_come_by_javas_keys() -> None:
    """Keys of other parts are left alone; the queue size is rounded up to whole entries."""
    config = StoreConfig.from_java(
        {
            "storePathRootDir": "/data",
            "storePathCommitLog": "/fast/log",
            "mappedFileSizeCommitLog": " 65536 ",
            "mappedFileSizeConsumeQueue": "2001",
            "messageIndexEnable": "false",
            "messageDelayLevel": "1s 2m",
            "brokerName": "broker-a",
        }
    )
    assert (config.root, config.log_directories) == ("/data", ("/fast/log",))
    assert (config.segment_bytes, config.queue_file_bytes, config.has_index) == (65536, 2020, False)
    assert config.delays_ms == (1_000, 120_000)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mappedFileSizeCommitLog", "big"),
        ("mappedFileSizeCommitLog", "-1"),
        ("mappedFileSizeCommitLog", "1000"),
        ("mappedFileSizeConsumeQueue", "0"),
        ("maxHashSlotNum", "0"),
        ("maxIndexNum", "1"),
        ("messageIndexEnable", "yes"),
        ("deleteWhen", "04,16"),
        ("deleteWhen", "24"),
        ("messageDelayLevel", "1s soon"),
        ("messageDelayLevel", ""),
        ("messageDelayLevel", "  "),
        ("messageDelayLevel", "1s 5"),
        ("messageDelayLevel", "s"),
        ("messageDelayLevel", "1s,5s"),
        ("messageDelayLevel", "-1s"),
        ("messageDelayLevel", "+1s"),
        ("messageDelayLevel", "1.5s"),
        ("messageDelayLevel", "1S"),
        ("messageDelayLevel", "1w"),
        ("messageDelayLevel", "1s ²s"),
        ("messageDelayLevel", "٣s"),
        ("messageDelayLevel", "1000000000s"),
        ("messageDelayLevel", "9" * 5000 + "d"),
        ("storePathRootDir", " "),
    ],
)
def test_bad_value_names_its_key(key: str, value: str) -> None:
    """A value that the store cannot work with stops the start instead of being ignored as in Java."""
    with pytest.raises(ConfigError, match=key) as caught:
        StoreConfig.from_java({key: value})
    assert caught.value.key == key


def test_delay_levels_know_all_units() -> None:
    """Seconds, minutes, hours and days; more spaces than one do no harm, and 0s is no delay."""
    assert parse_delay_levels("1s 1m 1h 1d") == (1_000, 60_000, 3_600_000, 86_400_000)
    assert parse_delay_levels(" 0s  999999999d ") == (0, 999_999_999 * 86_400_000)


def test_delay_levels_are_told_as_they_were_given() -> None:
    """With the largest unit that needs no fraction."""
    settings = {"messageDelayLevel": "0s 1s 90s 2m 1h 36h 2d"}
    assert StoreConfig.from_java(settings).delay_levels == settings["messageDelayLevel"]


@pytest.mark.feature("H9")
def test_what_java_would_take_without_a_setting_is_the_default(vectors: pathlib.Path) -> None:
    """Its own list of keys and values, with its directories left out, changes nothing."""
    java = json.loads((vectors / "codec" / "config-defaults.json").read_text())["MessageStoreConfig"]
    settings = {key: value for key, value in java.items() if not key.startswith("storePath")}
    assert StoreConfig.from_java(settings) == StoreConfig.from_java({})


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("mappedFileSizeCommitLog", 1_024, 2**31 - 1),
        ("mappedFileSizeConsumeQueue", 20, 2**31 - 1),
        ("mapperFileSizeBatchConsumeQueue", 46, 2**31 - 1),
        ("maxHashSlotNum", 1, 2**29 - 1),
        ("maxIndexNum", 2, 2**31 - 1),
        ("mappedFileSizeTimerLog", 68, 2**31 - 1),
        ("timerPrecisionMs", 1, 2**31 - 1),
        ("timerMaxDelaySec", 0, 2**31 - 1),
        ("timerRollWindowSlot", 0, 2**31 - 1),
        ("timerFlushIntervalMs", 1, 2**31 - 1),
        ("timerCongestNumEachSlot", 0, 2**31 - 1),
        ("deleteFileBatchMax", 1, 2**63 - 1),
        ("cleanResourceInterval", 1, 2**63 - 1),
        ("fileReservedTime", 0, 2**31 - 1),
    ],
)
def test_numbers_have_bounds(key: str, least: int, most: int) -> None:
    """The least and the greatest number are taken; the one before or behind it stops the start and names the key."""
    for value in (least, most):
        StoreConfig.from_java({key: str(value)})
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=key):
            StoreConfig.from_java({key: str(value)})


@pytest.mark.parametrize(
    ("setting", "precision_ms", "slots"),
    [
        (172_800, 1_000, 172_800),
        (1, 1_000, 604_740),
        (2, 1_000, 2),
        (604_740, 1_000, 604_740),
        (604_741, 1_000, 604_740),
        (604_740, 10_000, 214_748),
        (604_740, 2**31 - 1, 2),
    ],
)
def test_window_of_the_timer_wheel(setting: int, precision_ms: int, slots: int) -> None:
    """Half of the wheel but a minute, and no more milliseconds than the delay of a unit holds."""
    assert TimerConfig(roll_window_setting=setting, precision_ms=precision_ms).roll_window == slots


@pytest.mark.parametrize(
    ("key", "name", "low", "high"),
    [
        ("diskMaxUsedSpaceRatio", "max_used_percent", 10, 95),
        ("diskSpaceWarningLevelRatio", "warning_percent", 35, 90),
        ("diskSpaceCleanForciblyRatio", "forced_percent", 30, 85),
    ],
)
def test_disk_ratios_are_brought_into_their_bounds(key: str, name: str, low: int, high: int) -> None:
    """As ``DefaultMessageStore`` does, instead of a refusal."""
    wishes = {0: low, low - 1: low, low: low, low + 1: low + 1, high - 1: high - 1, high: high, high + 1: high}
    found = {wish: getattr(StoreConfig.from_java({key: str(wish)}).cleaning, name) for wish in wishes}
    assert found == wishes
