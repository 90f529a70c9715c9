"""The audit of the timer files: ``timerlog``, ``timerwheel`` and ``config/timercheck``.

    timercheck -> the units of the log, in order -> the slots that wait, each with its units

Rules (store.md §9.7, §10.4, §10.5):

- What has been delivered is not looked at: its slots stay as they are, its records may be gone.
- A unit that waits leads to a record of the log. The units of a slot are due at its time.
- Missing files are no damage when nothing was saved. While they are made anew from the timer topic, as ``timercheck``
  says then, there may be any of them.
- While a broker has the store open, or was killed, everything here is a note: the next start puts it right.
"""

from array import array
from typing import Final

from ...common.record import MAGIC_V1, MAGIC_V2
from ..consumequeue.queue_reader import RECORD_START
from ..files.segments import SegmentFile
from ..files.store_config import StoreConfig
from ..files.timerconfig import TIMER_LOG_KEY
from ..timer.timer_check import REBUILDING, TIMER_CHECK_BYTES, TimerCheck, load_timer_check, timer_check_path
from ..timer.timer_log import TimerLog, TimerUnit, UnitReader, timer_log_directory
from ..timer.timer_wheel import SLOT_BYTES, TimerWheel
from .audit_report import AuditReport, Finding
from .auditfiles import ReadFiles, check_sizes, find_files, usual_size

KIND: Final = "timer"


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
        kept = check_sizes(self._found, size, self._report, KIND) if self._found else []
        if not self._read_check() or not kept:
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
        if found.log_end and not self._found:
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
