"""Options of a stream beside those of a live reading; names and meanings as in Spark's Kafka source.

    maxOffsetsPerTrigger   so many messages at most in one batch, over all queues
    minOffsetsPerTrigger   wait until so many are there …
    maxTriggerDelay        … but no longer than this: "90s", "15m", "1h" (default 15m)
    discoveryIntervalMs    how often to look for new topics, queues and brokers (default 10000)
    commitGroup            consumer group as whose progress brokers keep how far the stream has come, for tools

A trigger that takes everything there is now (``availableNow``, ``once``) does not wait.
"""

import re
from dataclasses import dataclass
from typing import Final

from ...common.errors import ConfigError
from ...common.names import client_group_remark
from ...export.plan.filesystems import OPTIONS_KEY
from ..cluster.cluster_options import CLUSTER_OPTIONS, END_NAMES, REPORT_PATH, ClusterOptions, parse_cluster_options
from ..cluster.offset_bounds import LATEST
from ..options.filter_pushdown import PUSH_OPTION
from ..options.option_values import OptionValues

MAX_OFFSETS: Final = "maxOffsetsPerTrigger"
MIN_OFFSETS: Final = "minOffsetsPerTrigger"
MAX_DELAY: Final = "maxTriggerDelay"
DISCOVERY: Final = "discoveryIntervalMs"
COMMIT_GROUP: Final = "commitGroup"
STREAM_OPTIONS: Final = (MAX_OFFSETS, MIN_OFFSETS, MAX_DELAY, DISCOVERY, COMMIT_GROUP)
_FITTING: Final = (
    frozenset(CLUSTER_OPTIONS).difference((*END_NAMES, REPORT_PATH, OPTIONS_KEY, PUSH_OPTION)).union(STREAM_OPTIONS)
)

_DISCOVERY_MS: Final = 10_000
_DEFAULT_DELAY_MS: Final = 15 * 60 * 1000
_UNITS_MS: Final = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)


@dataclass(frozen=True)
class BatchLimits:
    """How many messages one batch gets."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = _DEFAULT_DELAY_MS

    def waits(self, backlog: int, waited_ms: int) -> bool:
        """Tell whether to wait for more messages."""
        return self.min_offsets is not None and backlog < self.min_offsets and waited_ms < self.max_delay_ms


@dataclass(frozen=True)
class StreamOptions:
    """What a stream was asked for; travels to the tasks."""

    live: ClusterOptions
    batch_limits: BatchLimits
    discovery_ms: int
    commit_group: str | None = None


def parse_stream(given: OptionValues) -> StreamOptions:
    """Return the options.

    Raises:
        ConfigError: A value that cannot be used, options that contradict each other, or one that no stream has.
    """
    _refuse_ends(given)
    given.refuse_others(_FITTING, "it is no option of a stream")
    return add_limits(given, parse_cluster_options(given, default_start=LATEST))


def add_limits(given: OptionValues, live: ClusterOptions) -> StreamOptions:
    """Return the options of a stream that reads so.

    Raises:
        ConfigError: A value that cannot be used, or options that contradict each other.
    """
    _refuse_ends(given)
    if REPORT_PATH in given:
        raise ConfigError(f"{REPORT_PATH} does not fit: a stream may read a batch twice", key=REPORT_PATH)
    discovery_ms = given.count(DISCOVERY, _DISCOVERY_MS, least=0)
    assert discovery_ms is not None, "it has a default"
    return StreamOptions(live, parse_batch_limits(given), discovery_ms, _parse_group(given))


def _parse_group(given: OptionValues) -> str | None:
    group = given.text(COMMIT_GROUP)
    if group is None:
        return None
    remark = client_group_remark(group)
    if remark is not None:
        raise ConfigError(f"{COMMIT_GROUP} {group!r} cannot be used: {remark}", key=COMMIT_GROUP)
    return group


def _refuse_ends(given: OptionValues) -> None:
    for name in END_NAMES:
        if name in given:
            raise ConfigError(f"{name} does not fit: a stream has no end", key=name)


def parse_batch_limits(given: OptionValues) -> BatchLimits:
    """Return the limits of a batch.

    Raises:
        ConfigError: A value that cannot be used, or two that contradict each other.
    """
    most, least = given.count(MAX_OFFSETS), given.count(MIN_OFFSETS)
    if most is not None and least is not None and least > most:
        raise ConfigError(f"{MIN_OFFSETS} {least} is more than {MAX_OFFSETS} {most}", key=MIN_OFFSETS)
    if least is None and MAX_DELAY in given:
        raise ConfigError(f"{MAX_DELAY} needs {MIN_OFFSETS}: without it nothing waits", key=MAX_DELAY)
    return BatchLimits(most, least, _duration_ms(given))


def _duration_ms(given: OptionValues) -> int:
    text = given.text(MAX_DELAY)
    if text is None:
        return _DEFAULT_DELAY_MS
    found = _DURATION.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ConfigError(f"{MAX_DELAY} is {text!r}, not a duration as 90s, 15m or 1h", key=MAX_DELAY)
    return int(found[1]) * _UNITS_MS[found[2]]
