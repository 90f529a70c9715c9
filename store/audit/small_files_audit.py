"""The audit of what lies beside log, queues and index: timer files, ``checkpoint``, the JSON of ``config/``.

    timercheck -> the units of the log, in order -> the slots that wait, each with its units

Rules of the timer files (store.md §9.7, §10.4, §10.5):

- What has been delivered is not looked at: its slots stay as they are, its records may be gone.
- A unit that waits leads to a record of the log. The units of a slot are due at its time.
- Missing and empty files are no damage when nothing was saved. While they are made anew from the timer topic, as
  ``timercheck`` says then, there may be any of them.
- While a broker has the store open, or was killed, everything here is a note: the next start puts it right.

Rules of the small files, extended queues among them (store.md §3.7, §6.2, §9.1):

- A checkpoint that is missing, short or all zeros means "nothing is sure", which is no damage. Times that lie behind
  the last record's, or in front of the first second of 1970, are.
- Of ``X`` and ``X.bak`` the first counts. When it does not parse, the second takes its place, which is older; a
  missing ``X`` beside its ``X.bak`` is what a crash between the two renames of a save leaves, and no damage.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Any, Final, cast

from ...common.errors import JsonError
from ...common.java_json import read_json
from ...common.record import MAGIC_V1, MAGIC_V2
from ..commitlog.cold_records import RECORD_START
from ..consumequeue.queue_table import BATCH_TYPE, QUEUE_TYPE
from ..files.checkpoint import CHECKPOINT_BYTES
from ..files.segments import SegmentFile
from ..files.store_config import TIMER_LOG_KEY, StoreConfig
from ..timer.timer_check import REBUILDING, TIMER_CHECK_BYTES, TimerCheck, load_timer_check, timer_check_path
from ..timer.timer_log import TimerLog, TimerUnit, UnitReader, timer_log_directory
from ..timer.timer_wheel import SLOT_BYTES, TimerWheel
from .audit_report import AuditReport, Finding, ReadFiles, check_sizes, find_files, usual_size

KIND: Final = "timer"
_CHECKPOINT_TIMES: Final = struct.Struct(">qqqqq")
_TIME_NAMES: Final = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
_EXT_HEAD: Final = struct.Struct(">hqqh")
_JSON: Final = ".json"


class TimerAudit:
    """Reads the timer files of one store; ``log_files`` are those of the commit log, ``file_bytes`` what one has."""

    def __init__(
        self, reader: ReadFiles, config: StoreConfig, report: AuditReport, log_files: list[SegmentFile]
    ) -> None:
        self._reader = reader
        self._config = config
        self._report = report
        self._log_files = log_files
        self._check = TimerCheck()
        self._end = 0
        directory = timer_log_directory(config)
        self._found = find_files(reader.files, [directory], report, KIND)
        self.file_bytes = usual_size(self._found)
        self._log = TimerLog(reader.files, directory, self.file_bytes or config.timers.file_bytes)

    def run(self, sizes: frozenset[str] = frozenset()) -> None:
        """Read everything; ``sizes`` are the keys of the sizes that the settings name."""
        size = self.file_bytes if self.file_bytes and TIMER_LOG_KEY not in sizes else self._config.timers.file_bytes
        if not self._read_check():
            for one in self._found:  # some may be missing or empty, but a broker takes none of another size
                check_sizes([one] if one.size else [], size, self._report, KIND)
            return
        kept = check_sizes(self._found, size, self._report, KIND)
        if not kept:
            return
        self._log.first_base = kept[0].base_offset
        with UnitReader(self._reader.files, self._log) as units:
            for _ in units.scan(self._log.first_base):
                self._report.counts["timer units"] += 1
            self._end = units.scanned_to
            if self._end < self._check.log_end:
                reason = f"the units end at {self._end}, {self._check.log_end} was saved"
                self._add(self._log.path_of(self._end), reason, self._end % self._log.file_bytes)
            self._read_wheel(units)

    def _read_check(self) -> bool:
        """Read how far the timers have come; tell whether the other files say something."""
        path = timer_check_path(self._config.root)
        found = load_timer_check(self._reader.files, path)
        if found is None and (not self._reader.files.exists(path) or not self._reader.files.size(path)):
            if self._found:
                self._report.notes.append(f"{path} is missing or empty: all timer messages will come again")
            return False
        if found is None:
            self._add(path, "the file is short or senseless: all timer messages will come again")
            return False
        if (size := self._reader.files.size(path)) != TIMER_CHECK_BYTES:
            self._add(path, f"the file has {size} bytes, not {TIMER_CHECK_BYTES}")
        if found.log_end == REBUILDING:
            self._report.notes.append(f"{path}: the timer files are to be made anew from the timer topic")
            return False
        if found.log_end and not self.file_bytes:
            self._add(self._log.directory, f"the timer log is missing, {found.log_end} was saved")
        self._check = found
        return True

    def _read_wheel(self, units: UnitReader) -> None:
        slots, precision_ms = self._config.timers.wheel_slots, self._config.timers.precision_ms
        wheel = TimerWheel(self._reader.files, f"{self._config.root}/timerwheel", slots)
        if not self._reader.files.exists(wheel.path):
            self._add(wheel.path, "the file is missing")
            return
        if (size := self._reader.files.size(wheel.path)) != slots * SLOT_BYTES:
            self._add(wheel.path, f"the file has {size} bytes, not {slots * SLOT_BYTES}")
            return
        wheel.open_for_reading()
        try:
            waiting = wheel.find_waiting(max(1, self._check.read_at_ms // precision_ms))
            for place in array("q", [place for place, mark in enumerate(waiting.marks) if mark]):
                self._walk(wheel, place, units)
        finally:
            wheel.close()

    def _walk(self, wheel: TimerWheel, place: int, units: UnitReader) -> None:
        """Go through the units of a slot, from the last one back."""
        tick, position = wheel.chain_at(place)
        while position >= self._log.first_base:
            unit = units.unit(position) if position < self._end else None
            reason = self._misfit(unit, position, tick)
            if unit is None or reason:
                where = f"the slot of {tick} leads to {position} of the timer log"
                self._add(wheel.path, f"{where}: {reason}", place * SLOT_BYTES)
                return
            self._report.counts["timer messages waiting"] += not unit.is_deleting
            position = unit.previous

    def _misfit(self, unit: TimerUnit | None, position: int, tick: int) -> str:
        """Return what is wrong with a unit of a slot."""
        if unit is None:
            return "no unit stands there"
        if unit.due_at_ms // self._config.timers.precision_ms != tick or unit.previous >= position:
            return "the unit is another slot's"
        if unit.log_offset >= self._log_start and not self._is_record(unit):
            return f"its record does not stand at {unit.log_offset} of the log"
        return ""

    @property
    def _log_start(self) -> int:
        return self._log_files[0].base_offset if self._log_files else 0

    def _is_record(self, unit: TimerUnit) -> bool:
        for one in self._log_files:
            if one.holds(unit.log_offset):
                data = self._reader.read(one.path, RECORD_START.size, unit.log_offset - one.base_offset)
                if len(data) == RECORD_START.size:
                    size, magic, log_offset, _ = RECORD_START.unpack(data)
                    return (size, log_offset) == (unit.size, unit.log_offset) and magic in (MAGIC_V1, MAGIC_V2)
        return False

    def _add(self, path: str, reason: str, position: int | None = None) -> None:
        self._report.add_or_note(Finding(KIND, path, reason, position))


def audit_checkpoint(reader: ReadFiles, root: str, last_at_ms: int, report: AuditReport) -> None:
    """Judge the file ``checkpoint`` by the store time of the last record."""
    path = f"{root}/checkpoint"
    if not reader.files.exists(path):
        report.notes.append(f"{path} is missing: a start after a kill reads the whole log")
        return
    data = reader.read(path, CHECKPOINT_BYTES, 0)
    if len(data) < CHECKPOINT_BYTES:
        report.add(Finding("checkpoint", path, f"the file has {len(data)} bytes, not {CHECKPOINT_BYTES}"))
    values = _CHECKPOINT_TIMES.unpack(data[: _CHECKPOINT_TIMES.size].ljust(_CHECKPOINT_TIMES.size, b"\0"))
    for number, (name, at_ms) in enumerate(zip(_TIME_NAMES, values, strict=False)):
        if at_ms < 0 or (at_ms > last_at_ms > 0 and not report.is_open):
            reason = f"{name} is {at_ms}, the last record was stored at {last_at_ms}"
            report.add(Finding("checkpoint", path, reason, 8 * number))
    if (rest := data[_CHECKPOINT_TIMES.size :]).strip(b"\0"):
        position = len(data) - len(rest.lstrip(b"\0"))
        report.add(Finding("checkpoint", path, "bytes stand where zeros belong", position))


def audit_config(reader: ReadFiles, root: str, report: AuditReport) -> dict[str, bool] | None:
    """Parse the JSON files; return the topics, each with whether it counts by batches, ``None`` when not known."""
    topics: dict[str, bool] | None = None
    for path in sorted(_json_paths(reader, f"{root}/config")):
        value = _parse(reader, path)
        backup = _parse(reader, f"{path}.bak") if value is None else None
        if backup is not None and not reader.files.exists(path):
            report.notes.append(f"{path} is missing: a crash while it was saved left its .bak, which takes its place")
            value = backup
        elif backup is not None:
            report.add(Finding("config", path, "the file cannot be parsed; its .bak, which is older, takes its place"))
            report.backups.append(path)
            value = backup
        elif value is None:
            reason = "the file cannot be parsed, and there is no sound .bak: restore a copy, or remove it"
            report.add(Finding("config", path, reason))
        report.counts["config files"] += 1
        if path.endswith("/topics.json") and value is not None:
            topics = _topics_of(value)
    return topics


def audit_ext(reader: ReadFiles, root: str, report: AuditReport) -> None:
    """Walk the units of the extended queues."""
    for topic in reader.files.list(f"{root}/consumequeue_ext"):
        for queue in reader.files.list(f"{root}/consumequeue_ext/{topic.name}") if topic.is_directory else ():
            directory = f"{root}/consumequeue_ext/{topic.name}/{queue.name}"
            found = find_files(reader.files, [directory], report, "extended queue")
            for file in check_sizes(found, usual_size(found), report, "extended queue"):
                _walk_ext(reader, file.path, report)


def _walk_ext(reader: ReadFiles, path: str, report: AuditReport) -> None:
    position = 0
    while len(data := reader.read(path, _EXT_HEAD.size, position)) == _EXT_HEAD.size:
        unit, _, _, bitmap = _EXT_HEAD.unpack(data)
        if unit in (0, -1):
            break
        if bitmap < 0 or unit != _EXT_HEAD.size + bitmap:
            report.add(Finding("extended queue", path, f"the unit has {unit} bytes and a bitmap of {bitmap}", position))
            break
        report.counts["extended units"] += 1
        position += unit


def _json_paths(reader: ReadFiles, directory: str) -> Iterator[str]:
    names = {entry.name.removesuffix(".bak") for entry in reader.files.list(directory) if not entry.is_directory}
    return (f"{directory}/{name}" for name in names if name.endswith(_JSON))


def _parse(reader: ReadFiles, path: str) -> Any:
    """Return the value of a file, ``None`` when there is none; an empty file holds nothing."""
    if not reader.files.exists(path):
        return None
    text = reader.read(path, reader.files.size(path), 0)
    try:
        return read_json(text) if text else None
    except JsonError:
        return None


def _topics_of(value: Any) -> dict[str, bool] | None:
    table = cast("dict[str, Any]", value).get("topicConfigTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        return None
    found: dict[str, bool] = {}
    for name, topic in cast("dict[str, Any]", table).items():
        attributes = cast("dict[str, Any]", topic).get("attributes") if isinstance(topic, dict) else None
        kind = cast("dict[str, Any]", attributes).get(QUEUE_TYPE) if isinstance(attributes, dict) else None
        found[str(name)] = kind == BATCH_TYPE
    return found
