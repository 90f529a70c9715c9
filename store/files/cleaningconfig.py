"""Settings of retention, by Java's keys (``MessageStoreConfig``; store.md §8, §14.2).

Rules:

- The disk ratios are percentages and are brought into Java's bounds: a warning level of 99 counts as 90.
- ``deleteWhen`` lists hours of the local day, separated by ``;``. Java would stop cleaning for good at a word that is
  no hour; here it stops the start.
- A file that somebody still reads leaves its directory at once and gives its room back with its last reader. So
  ``destroyMapedFileIntervalForcibly`` has nothing to force; ``redeleteHangedFileInterval`` is the pause after a file
  that the system would not delete.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ...common.errors import ConfigError
from ...common.settings import parse_settings, setting

_HOURS_PER_DAY = 24
_HOUR_MS = 3_600_000
_MOST_HOURS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningConfig:
    """When which files may go; fields in the order of ``--print-config``."""

    reserved_hours: int = setting(
        "fileReservedTime", 72, "hours that a full log file is kept after its last write", most=_MOST_HOURS
    )
    delete_when: str = setting(
        "deleteWhen", "04", "hours of the day, between ;, at which expired log files are deleted"
    )
    max_used_setting: int = setting(
        "diskMaxUsedSpaceRatio",
        75,
        "percent of the disk in use above which they are deleted at any hour; 10 to 95 count",
    )
    warning_setting: int = setting(
        "diskSpaceWarningLevelRatio", 90, "percent in use above which no message is taken; 35 to 90 count"
    )
    forced_setting: int = setting(
        "diskSpaceCleanForciblyRatio", 85, "percent in use above which files go before their time; 30 to 85 count"
    )
    cleans_forcibly: bool = setting("cleanFileForciblyEnable", True, "whether files may go before their time")
    most_files: int = setting("deleteFileBatchMax", 10, "log files that one round deletes at most", least=1)
    period_ms: int = setting("cleanResourceInterval", 10_000, "how often to look for files to delete", least=1)
    log_pause_ms: int = setting("deleteCommitLogFilesInterval", 100, "pause after each deleted log file")
    queue_pause_ms: int = setting(
        "deleteConsumeQueueFilesInterval", 100, "pause after each queue of which files were deleted"
    )
    retry_ms: int = setting(
        "redeleteHangedFileInterval", 120_000, "pause after a log file that the system would not delete"
    )
    forced_destroy_ms: int = setting(
        "destroyMapedFileIntervalForcibly",
        120_000,
        "without effect: a deleted file leaves at once, its room comes back with its last reader",
    )

    def __post_init__(self) -> None:
        for word in self.delete_when.split(";"):
            hour = word.strip()
            if hour and not (hour.isascii() and hour.isdigit() and int(hour) < _HOURS_PER_DAY):
                raise ConfigError(
                    f"deleteWhen is {self.delete_when!r}, expected hours from 00 to 23 between ;", key="deleteWhen"
                )

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> Self:
        """Read settings with Java's keys.

        Raises:
            ConfigError: A value that cannot be used; ``key`` names it.
        """
        return cls(**parse_settings(cls, settings))

    @property
    def hours(self) -> frozenset[int]:
        """The hours of the local day at which expired files go."""
        return frozenset(int(word) for word in self.delete_when.split(";") if word.strip())

    @property
    def reserved_ms(self) -> int:
        """How long after its last write a file stays."""
        return self.reserved_hours * _HOUR_MS

    @property
    def max_used_percent(self) -> int:
        """Above this, expired files go at any hour."""
        return min(max(self.max_used_setting, 10), 95)

    @property
    def warning_percent(self) -> int:
        """Above this, no message is taken."""
        return min(max(self.warning_setting, 35), 90)

    @property
    def forced_percent(self) -> int:
        """Above this, files go before their time, and a path gets no new ones."""
        return min(max(self.forced_setting, 30), 85)
