"""Settings of timer messages, by Java's keys (``MessageStoreConfig``; store.md §10.3, §10.6, §14.2).

Rules:

- Both brokers must run with the same precision and file size on one directory. Another file size stops the start;
  another precision shows in the wheel, and all timer messages are read again.
- A message that is due beyond the window of the wheel is put nearer and rolls on from there. A window below 2 slots or
  beyond the wheel means the whole wheel; one that a unit of the timer log cannot hold means what it can.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from ...common.settings import parse_settings, setting

WHEEL_SLOTS: Final = 2 * 7 * 86_400
TIMER_LOG_KEY: Final = "mappedFileSizeTimerLog"
BLANK_SLOTS: Final = 60
_LEAST_FILE_BYTES: Final = 68  # one unit and the head of the blank behind it
_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerConfig:
    """How timer messages wait; fields in the order of ``--print-config``."""

    file_bytes: int = setting(
        TIMER_LOG_KEY, 104_857_600, "length of a timer log file", least=_LEAST_FILE_BYTES, most=_MOST
    )
    precision_ms: int = setting(
        "timerPrecisionMs", 1_000, "how exact the times of timer messages are", least=1, most=_MOST
    )
    most_delay_seconds: int = setting(
        "timerMaxDelaySec", 259_200, "how far ahead the time of a timer message may lie", most=_MOST
    )
    roll_window_setting: int = setting(
        "timerRollWindowSlot",
        172_800,
        "slots of the wheel that are used; what is due later is put nearer and rolls on",
        most=_MOST,
    )
    flush_interval_ms: int = setting(
        "timerFlushIntervalMs", 1_000, "how often wheel, timer log and progress are flushed", least=1, most=_MOST
    )
    most_in_slot: int = setting(
        "timerCongestNumEachSlot", _MOST, "messages of one slot above which some are refused", most=_MOST
    )
    names_topic_in_delete_key: bool = setting(
        "appendTopicForTimerDeleteKey", False, "a recall names the topic besides the unique key, as before 5.4.0"
    )

    # not a setting: the file has so many slots
    wheel_slots: int = WHEEL_SLOTS

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> Self:
        """Read settings with Java's keys.

        Raises:
            ConfigError: A value that cannot be used; ``key`` names it.
        """
        return cls(**parse_settings(cls, settings))

    @property
    def most_delay_ms(self) -> int:
        """How far ahead the time of a timer message may lie."""
        return self.most_delay_seconds * 1_000

    @property
    def roll_window(self) -> int:
        """How many slots ahead a message is put at most."""
        most = self.wheel_slots // 2 - BLANK_SLOTS
        window = self.roll_window_setting if 2 <= self.roll_window_setting <= most else most
        return max(2, min(window, _MOST // self.precision_ms))
