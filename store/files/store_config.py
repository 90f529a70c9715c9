"""Settings of the store, by Java's keys (``MessageStoreConfig``; store.md §14.2).

Both brokers must run with the same sizes on one directory; a commit log or queue file of another length stops the
start, since reading it with the wrong size would cut it in the wrong places.

Rules of retention (``CleaningConfig``; store.md §8):

- The disk ratios are percentages and are brought into Java's bounds: a warning level of 99 counts as 90.
- ``deleteWhen`` lists hours of the local day, separated by ``;``. Java would stop cleaning for good at a word that is
  no hour; here it stops the start.
- A file that somebody still reads leaves its directory at once and gives its room back with its last reader. So
  ``destroyMapedFileIntervalForcibly`` has nothing to force; ``redeleteHangedFileInterval`` is the pause after a file
  that the system would not delete.

Rules of timer messages (``TimerConfig``; store.md §10.3, §10.6):

- Both brokers must run with the same precision and file size on one directory. Another file size stops the start;
  another precision shows in the wheel, and all timer messages are read again.
- A message that is due beyond the window of the wheel is put nearer and rolls on from there. A window below 2 slots or
  beyond the wheel means the whole wheel; one that a unit of the timer log cannot hold means what it can.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from ...common.errors import ConfigError
from ...common.settings import Key, parse_settings

WHEEL_SLOTS: Final = 2 * 7 * 86_400
TIMER_LOG_KEY: Final = "mappedFileSizeTimerLog"
BLANK_SLOTS: Final = 60
_LEAST_FILE_BYTES: Final = 68  # one unit and the head of the blank behind it
_MOST: Final = 2**31 - 1
_HOURS_PER_DAY = 24
_MOST_DIGITS = 18
_HOUR_MS = 3_600_000
_MOST_HOURS = 2**31 - 1
ENTRY_BYTES: Final = 20
BATCH_UNIT_BYTES: Final = 46
_LIST_SEPARATOR: Final = ","
DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"([0-9]{1,9})([smhd])")
SEGMENT_KEY: Final = "mappedFileSizeCommitLog"
QUEUE_KEY: Final = "mappedFileSizeConsumeQueue"
BATCH_KEY: Final = "mapperFileSizeBatchConsumeQueue"
SLOTS_KEY: Final = "maxHashSlotNum"
LOG_KEY: Final = "storePathCommitLog"
FLUSH_KEY: Final = "flushDiskType"
READ_ONLY_KEY: Final = "readOnlyCommitLogStorePaths"
ENTRIES_KEY: Final = "maxIndexNum"
DELAY_KEY: Final = "messageDelayLevel"
_FIELDS: Final = {
    SEGMENT_KEY: "segment_bytes",
    QUEUE_KEY: "queue_file_bytes",
    BATCH_KEY: "batch_file_bytes",
    SLOTS_KEY: "index_slots",
    ENTRIES_KEY: "index_entries",
    "messageIndexEnable": "has_index",
    "maxMessageSize": "max_message_bytes",
    "syncFlushTimeout": "sync_flush_timeout_ms",
    "flushIntervalCommitLog": "flush_log_interval_ms",
    "flushCommitLogTimed": "is_log_flush_timed",
    "flushCommitLogLeastPages": "flush_log_least_pages",
    "flushCommitLogThoroughInterval": "flush_log_thorough_ms",
    "flushIntervalConsumeQueue": "flush_queue_interval_ms",
    "flushConsumeQueueLeastPages": "flush_queue_least_pages",
    "flushConsumeQueueThoroughInterval": "flush_queue_thorough_ms",
    "checkCRCOnRecover": "checks_crc",
    "enabledAppendPropCRC": "seals_records",
    "forceVerifyPropCRC": "demands_seals",
    "maxFilterMessageSize": "max_scan_bytes",
    "accessMessageInMemoryMaxRatio": "in_memory_percent",
    "maxTransferBytesOnMessageInMemory": "max_memory_bytes",
    "maxTransferCountOnMessageInMemory": "max_memory_messages",
    "maxTransferBytesOnMessageInDisk": "max_disk_bytes",
    "maxTransferCountOnMessageInDisk": "max_disk_messages",
    "maxMsgsNumBatch": "max_query_messages",
}
LIVE_STORE_KEYS: Final = frozenset(
    [
        *("maxMessageSize", "maxMsgsNumBatch", "maxFilterMessageSize", "accessMessageInMemoryMaxRatio"),
        *("maxTransferBytesOnMessageInMemory", "maxTransferCountOnMessageInMemory"),
        *("maxTransferBytesOnMessageInDisk", "maxTransferCountOnMessageInDisk"),
        *("syncFlushTimeout", "flushIntervalCommitLog", "flushCommitLogTimed", "flushCommitLogLeastPages"),
        *("flushCommitLogThoroughInterval", "flushIntervalConsumeQueue", "flushConsumeQueueLeastPages"),
        *("flushConsumeQueueThoroughInterval", "fileReservedTime", "deleteWhen", "diskMaxUsedSpaceRatio"),
        *("diskSpaceWarningLevelRatio", "diskSpaceCleanForciblyRatio", "cleanFileForciblyEnable"),
        *("deleteFileBatchMax", "cleanResourceInterval", "deleteCommitLogFilesInterval"),
        *("deleteConsumeQueueFilesInterval", "redeleteHangedFileInterval", "destroyMapedFileIntervalForcibly"),
    ]
)
"""What an open store can be told anew (``MessageStore.reconfigure``)."""


class TimerConfig(Struct, frozen=True, kw_only=True):
    """How timer messages wait; fields in the order of ``--print-config``."""

    file_bytes: Annotated[
        int, Key(TIMER_LOG_KEY, "length of a timer log file", least=_LEAST_FILE_BYTES, most=_MOST)
    ] = 104_857_600
    precision_ms: Annotated[
        int, Key("timerPrecisionMs", "how exact the times of timer messages are", least=1, most=_MOST)
    ] = 1_000
    most_delay_seconds: Annotated[
        int, Key("timerMaxDelaySec", "how far ahead the time of a timer message may lie", most=_MOST)
    ] = 259_200
    roll_window_setting: Annotated[
        int,
        Key(
            "timerRollWindowSlot",
            "slots of the wheel that are used; what is due later is put nearer and rolls on",
            most=_MOST,
        ),
    ] = 172_800
    flush_interval_ms: Annotated[
        int, Key("timerFlushIntervalMs", "how often wheel, timer log and progress are flushed", least=1, most=_MOST)
    ] = 1_000
    most_in_slot: Annotated[
        int, Key("timerCongestNumEachSlot", "messages of one slot above which some are refused", most=_MOST)
    ] = _MOST
    names_topic_in_delete_key: Annotated[
        bool, Key("appendTopicForTimerDeleteKey", "a recall names the topic besides the unique key, as before 5.4.0")
    ] = False

    # not a setting: the file has so many slots
    wheel_slots: int = WHEEL_SLOTS

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


class CleaningConfig(Struct, frozen=True, kw_only=True):
    """When which files may go; fields in the order of ``--print-config``."""

    reserved_hours: Annotated[
        int, Key("fileReservedTime", "hours that a full log file is kept after its last write", most=_MOST_HOURS)
    ] = 72
    delete_when: Annotated[
        str, Key("deleteWhen", "hours of the day, between ;, at which expired log files are deleted")
    ] = "04"
    max_used_setting: Annotated[
        int,
        Key(
            "diskMaxUsedSpaceRatio",
            "percent of the disk in use above which they are deleted at any hour; 10 to 95 count",
        ),
    ] = 75
    warning_setting: Annotated[
        int, Key("diskSpaceWarningLevelRatio", "percent in use above which no message is taken; 35 to 90 count")
    ] = 90
    forced_setting: Annotated[
        int, Key("diskSpaceCleanForciblyRatio", "percent in use above which files go before their time; 30 to 85 count")
    ] = 85
    cleans_forcibly: Annotated[bool, Key("cleanFileForciblyEnable", "whether files may go before their time")] = True
    most_files: Annotated[int, Key("deleteFileBatchMax", "log files that one round deletes at most", least=1)] = 10
    period_ms: Annotated[int, Key("cleanResourceInterval", "how often to look for files to delete", least=1)] = 10_000
    log_pause_ms: Annotated[int, Key("deleteCommitLogFilesInterval", "pause after each deleted log file")] = 100
    queue_pause_ms: Annotated[
        int, Key("deleteConsumeQueueFilesInterval", "pause after each queue of which files were deleted")
    ] = 100
    retry_ms: Annotated[
        int, Key("redeleteHangedFileInterval", "pause after a log file that the system would not delete")
    ] = 120_000
    forced_destroy_ms: Annotated[
        int,
        Key(
            "destroyMapedFileIntervalForcibly",
            "without effect: a deleted file leaves at once, its room comes back with its last reader",
        ),
    ] = 120_000

    def __post_init__(self) -> None:
        for word in self.delete_when.split(";"):
            hour = word.strip()
            if hour and not (_is_number(hour) and int(hour) < _HOURS_PER_DAY):
                raise ConfigError(
                    f"deleteWhen is {self.delete_when!r}, expected hours from 00 to 23 between ;", key="deleteWhen"
                )

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


class StoreConfig(Struct, frozen=True):
    """How one store directory is laid out, read and written.

    A path is one path whatever it contains; only Java's keys are texts that list several.
    """

    root: str
    log_directories: tuple[str, ...] = ()
    read_only_directories: tuple[str, ...] = ()
    segment_bytes: int = 1_073_741_824
    queue_file_bytes: int = 6_000_000
    batch_file_bytes: int = 13_800_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    has_index: bool = True
    max_message_bytes: int = 4_194_304
    is_sync_flush: bool = False
    sync_flush_timeout_ms: int = 5_000
    flush_log_interval_ms: int = 500
    is_log_flush_timed: bool = True
    flush_log_least_pages: int = 4
    flush_log_thorough_ms: int = 10_000
    flush_queue_interval_ms: int = 1_000
    flush_queue_least_pages: int = 2
    flush_queue_thorough_ms: int = 60_000
    checks_crc: bool = True
    seals_records: bool = False
    demands_seals: bool = False
    max_scan_bytes: int = 16_000
    in_memory_percent: int = 40
    max_memory_bytes: int = 262_144
    max_memory_messages: int = 32
    max_disk_bytes: int = 65_536
    max_disk_messages: int = 8
    max_query_messages: int = 64
    delays_ms: tuple[int, ...] = ()
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    timers: TimerConfig = field(default_factory=TimerConfig)
    sharers: int = 1
    """Stores of this process that share its descriptors."""

    def __post_init__(self) -> None:
        _check_sizes(self)
        set_field = force_setattr  # frozen for everybody else
        set_field(self, "root", _absolute(self.root))
        set_field(self, "log_directories", tuple(map(_absolute, self.log_directories)) or (self._own_log_directory,))
        set_field(self, "read_only_directories", tuple(map(_absolute, self.read_only_directories)))
        if not set(self.log_directories) - set(self.read_only_directories):
            raise ConfigError(f"{LOG_KEY} names no directory that is not in {READ_ONLY_KEY}", key=LOG_KEY)
        set_field(self, "queue_file_bytes", -(-self.queue_file_bytes // ENTRY_BYTES) * ENTRY_BYTES)
        set_field(self, "batch_file_bytes", -(-self.batch_file_bytes // BATCH_UNIT_BYTES) * BATCH_UNIT_BYTES)
        set_field(self, "delays_ms", self.delays_ms or parse_delay_levels(DEFAULT_DELAY_LEVELS))

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> "StoreConfig":
        """Build the configuration from broker settings; keys that are not the store's are left alone.

        Raises:
            ConfigError: A value that the store cannot work with; ``key`` names the setting.
        """
        fields: dict[str, Any] = {"root": settings.get("storePathRootDir", "~/store")}
        if not fields["root"].strip():
            raise ConfigError("storePathRootDir is empty, it must name a directory", key="storePathRootDir")
        fields["log_directories"] = _split_paths(settings.get(LOG_KEY, ""))
        fields["read_only_directories"] = _split_paths(settings.get(READ_ONLY_KEY, ""))
        fields["is_sync_flush"] = _parse_flush_type(settings.get(FLUSH_KEY, "ASYNC_FLUSH"))
        fields["cleaning"] = CleaningConfig(**parse_settings(CleaningConfig, settings))
        fields["timers"] = TimerConfig(**parse_settings(TimerConfig, settings))
        if DELAY_KEY in settings:
            fields["delays_ms"] = parse_delay_levels(settings[DELAY_KEY])
        return cls(**fields, **_parse_fields(settings))

    def changed(self, settings: Mapping[str, str]) -> "StoreConfig":
        """Return these settings with other values of ``LIVE_STORE_KEYS``; other keys are left alone.

        Raises:
            ConfigError: A value that the store cannot work with; ``key`` names the setting.
        """
        changes = {key: value for key, value in settings.items() if key in LIVE_STORE_KEYS}
        cleaning = replace(self.cleaning, **parse_settings(CleaningConfig, changes))
        return replace(self, cleaning=cleaning, **_parse_fields(changes))

    @property
    def flush_disk_type(self) -> str:
        """Java's word for whether sends wait for the disk."""
        return "SYNC_FLUSH" if self.is_sync_flush else "ASYNC_FLUSH"

    @property
    def delay_levels(self) -> str:
        """The delays of all levels as Java writes them."""
        return " ".join(map(_format_delay, self.delays_ms))

    @property
    def all_log_directories(self) -> tuple[str, ...]:
        """All directories that hold files of the log, the read-only ones as well."""
        return tuple(dict.fromkeys(self.log_directories + self.read_only_directories))

    @property
    def log_path_list(self) -> str:
        """What ``storePathCommitLog`` says; empty for the store's own directory, which no list could name."""
        own = (self._own_log_directory,)
        return "" if self.log_directories == own else _LIST_SEPARATOR.join(self.log_directories)

    @property
    def read_only_path_list(self) -> str:
        """What ``readOnlyCommitLogStorePaths`` says."""
        return _LIST_SEPARATOR.join(self.read_only_directories)

    @property
    def _own_log_directory(self) -> str:
        return os.path.join(self.root, "commitlog")

    @property
    def index_file_bytes(self) -> int:
        """Length of an index file."""
        return 40 + 4 * self.index_slots + 20 * self.index_entries


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the milliseconds of levels 1, 2, … of ``messageDelayLevel``.

    Raises:
        ConfigError: A word that is not a number of up to nine digits followed by s, m, h or d; or no word at all.
    """
    delays: list[int] = []
    for word in text.split():
        delay = _DELAY.fullmatch(word)
        if delay is None:
            reason = "which is no delay: up to nine digits and s, m, h or d"
            raise ConfigError(f"{DELAY_KEY} holds {word!r}, {reason}", key=DELAY_KEY)
        delays.append(int(delay[1]) * _UNIT_MS[delay[2]])
    if not delays:
        raise ConfigError(f"{DELAY_KEY} is empty, it must hold one delay at least", key=DELAY_KEY)
    return tuple(delays)


def _split_paths(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(_LIST_SEPARATOR))))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _format_delay(delay_ms: int) -> str:
    unit = max((unit for unit, length_ms in _UNIT_MS.items() if delay_ms % length_ms == 0), key=_UNIT_MS.__getitem__)
    return f"{delay_ms // _UNIT_MS[unit]}{unit if delay_ms else 's'}"


def _parse_fields(settings: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: _parse(key, settings[key], is_flag=StoreConfig.__annotations__[name] is bool)
        for key, name in _FIELDS.items()
        if key in settings
    }


def _parse_flush_type(text: str) -> bool:
    word = text.strip()
    if word not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ConfigError(f"{FLUSH_KEY} is {text!r}, it must be ASYNC_FLUSH or SYNC_FLUSH", key=FLUSH_KEY)
    return word == "SYNC_FLUSH"


def _parse(key: str, text: str, *, is_flag: bool) -> int | bool:
    word = text.strip()
    if is_flag and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if not is_flag and _is_number(word):
        return int(word)
    raise ConfigError(f"{key} is {text!r}, expected {'true or false' if is_flag else 'a number'}", key=key)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS


def _check_sizes(config: StoreConfig) -> None:
    limits = {
        SEGMENT_KEY: (config.segment_bytes, 1_024, 2**31 - 1),
        QUEUE_KEY: (config.queue_file_bytes, ENTRY_BYTES, 2**31 - 1),
        BATCH_KEY: (config.batch_file_bytes, BATCH_UNIT_BYTES, 2**31 - 1),
        SLOTS_KEY: (config.index_slots, 1, 2**29 - 1),
        ENTRIES_KEY: (config.index_entries, 2, 2**31 - 1),
    }
    for key, (value, least, most) in limits.items():
        if not least <= value <= most:
            raise ConfigError(f"{key} is {value}, it must lie between {least} and {most}", key=key)
