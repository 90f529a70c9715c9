"""Opening the timer files after whatever happened (``TimerMessageStore.recover``; store.md §10.7).

Rules:

- ``timercheck`` says how far wheel and log are on the disk for certain. What the log has behind that is put into the
  wheel again, as far as it leads to records, and flushed with the next save; the rest is cut off. After a kill the
  wheel is compared with the last file before that, too.
- From the message that ``timercheck`` names on, the timer topic is read again; who has a unit already is passed over.
  After a kill it is the message behind the last unit if that is less, as in Java: units may have been lost. Messages
  that were late have none, so some of these are looked at once more.
- Whatever does not fit together ends in a rebuild from the timer topic: the log does not reach as far as was saved, its
  last unit is not in the wheel, the wheel leads behind the end of the log, a file is missing or of another length. A
  message whose slot had been delivered is left out then; one that had rolled may come twice. Java loses some of these.

It may run in any thread; nobody else uses the files meanwhile.
"""

import struct
from collections.abc import Generator
from typing import Final, NamedTuple

from ...common.errors import StoreDamagedError
from ..commitlog.cold_records import ColdRecords
from ..files.segments import SegmentFile, complete_cut_off, empty_last_file
from .timer_check import REBUILDING, TimerCheck, load_timer_check
from .timer_log import UNIT_BYTES, TimerUnit, UnitReader, find_timer_log
from .timer_wheel import Slot
from .timers import Timers

_QUEUE_OFFSET: Final = struct.Struct(">20xq")


class FoundTopic(NamedTuple):
    """The timer topic at the start: the end of its queue, and where its first record lies."""

    queue_end: int
    first_log_offset: int


def open_timers(timers: Timers, topic: FoundTopic, now_ms: int, *, is_clean: bool) -> None:
    """Open the files of a store and find out what waits (raises ``OSError``, ``ConfigError``)."""
    _Opening(timers, topic, is_clean=is_clean).run(now_ms)


class _Opening:
    def __init__(self, timers: Timers, topic: FoundTopic, *, is_clean: bool) -> None:
        self._timers = timers
        self._topic = topic
        self._is_clean = is_clean
        self._check = TimerCheck()
        self._end = 0

    def run(self, now_ms: int) -> None:
        timers = self._timers
        timers.move(now_ms)
        found = load_timer_check(timers.files, timers.check_path)
        self._check = found or TimerCheck()
        was_there = timers.wheel.open()
        timers.log.new_directories.add(timers.store_config.root)  # the name of the wheel
        try:
            self._fit(is_new=found is None and not was_there)
        except StoreDamagedError as damage:
            timers.begin_anew(self._check, str(damage))
        timers.queue_offset = min(timers.queue_offset, self._topic.queue_end)
        timers.is_open = True

    def _fit(self, *, is_new: bool) -> None:
        timers, start = self._timers, self._check.log_end
        segments = self._find_files()
        if is_new and not segments:
            timers.begin(self._check, bytearray(timers.config.wheel_slots))
            return
        if not self._check.read_at_ms:
            raise self._misfit("it is not known how far they had come")
        self._check_reach(segments, start)
        with UnitReader(timers.files, timers.log) as units, timers.cold_records() as records:
            self._check_first(units)
            self._check_last(units, start)
            if not self._is_clean:
                self._put_right(units, start)
            last = self._put_again(units, records, start)
            behind = 0 if last is None else self._find_behind(records, last)
            if behind and not (self._is_clean and self._end == start):
                self._check = self._check._replace(queue_offset=min(behind, self._check.queue_offset))
        timers.log.cut(self._end)
        timers.log.add_unsynced(start)
        waiting = timers.wheel.find_waiting(self._from_tick)
        if waiting.last_tick - self._from_tick >= timers.config.wheel_slots:
            raise self._misfit(f"the wheel has messages for {waiting.last_tick}, {self._from_tick} was to be read next")
        if waiting.last_unit >= self._end:
            raise self._misfit(f"the wheel leads to {waiting.last_unit}, the timer log ends at {self._end}")
        timers.begin(self._check, waiting.marks, self._known(start))
        timers.known_until = behind

    @property
    def _from_tick(self) -> int:
        """The first slot that may hold messages."""
        return self._check.read_at_ms // self._timers.config.precision_ms

    def _find_files(self) -> list[SegmentFile]:
        timers, config = self._timers, self._timers.store_config
        directory = timers.log.directory
        complete_cut_off(timers.files, [directory], config.timers.file_bytes)
        empty = empty_last_file(timers.files, [directory])
        if empty is not None:
            timers.files.unlink(empty)
        return find_timer_log(timers.files, config)

    def _misfit(self, reason: str) -> StoreDamagedError:
        return StoreDamagedError(reason, path=self._timers.log.directory, position=self._check.log_end)

    def _check_reach(self, segments: list[SegmentFile], start: int) -> None:
        """See to it that the log has all that was saved."""
        log = self._timers.log
        first, end = (segments[0].base_offset, segments[-1].base_offset + log.file_bytes) if segments else (0, 0)
        log.first_base = first
        if start == REBUILDING:
            raise self._misfit("making them anew was cut off")
        if not first <= start <= end or start % log.file_bytes % UNIT_BYTES:
            raise self._misfit(f"the timer log has files from {first} to {end}, {start} was saved")

    def _check_first(self, units: UnitReader) -> None:
        """See to it that no file is missing before the first one: none goes while a record has its unit there."""
        first = self._timers.log.first_base
        unit = units.unit(first) if first else None
        if unit is not None and self._topic.first_log_offset < unit.log_offset:
            raise self._misfit(f"files of the timer log are missing before {first}")

    def _check_last(self, units: UnitReader, start: int) -> None:
        """See to it that the last unit that was saved is in the wheel: so are those before it."""
        timers = self._timers
        position = timers.log.before(start)
        if position is None:
            return
        unit = units.unit(position)
        if unit is None:
            raise self._misfit(f"the timer log has no unit at {position}, {start} was saved")
        if not timers.wheel.holds(unit.due_at_ms // timers.config.precision_ms, position):
            raise self._misfit(f"the unit at {position} of the timer log is not in the wheel")

    def _put_right(self, units: UnitReader, start: int) -> None:
        """See to it that the wheel leads to the units of the last file before what was saved, and of what is there."""
        timers, wheel = self._timers, self._timers.wheel
        log, precision_ms = timers.log, timers.config.precision_ms
        begin = max(log.first_base, (start - 1) // log.file_bytes * log.file_bytes - log.file_bytes)
        for due_at_ms, position in units.last_by_time(begin, start).items():
            tick = due_at_ms // precision_ms
            if tick >= self._from_tick and not wheel.holds(tick, position):
                slot = wheel.slot(tick) or Slot(position, -1, 1)
                wheel.put(tick, Slot(slot.first, position, slot.messages))

    def _put_again(self, units: UnitReader, records: ColdRecords, start: int) -> TimerUnit | None:
        """Put the units behind what was saved into the wheel; return the last of the log that leads to a record."""
        before = self._timers.log.before(start)
        last = None if before is None else units.unit(before)
        self._end = start
        for position, unit in units.scan(start):
            if records.read(unit.log_offset, unit.size) is None:
                break
            self._put_unit(position, unit)
            self._end, last = position + UNIT_BYTES, unit
        else:
            self._end = units.scanned_to
        return last

    def _put_unit(self, position: int, unit: TimerUnit) -> None:
        wheel = self._timers.wheel
        tick = unit.due_at_ms // self._timers.config.precision_ms
        slot = wheel.slot(tick) or Slot(position, -1, 0)
        if slot.last < position:
            wheel.put(tick, Slot(slot.first, position, slot.messages + (-1 if unit.is_deleting else 1)))

    def _find_behind(self, records: ColdRecords, last: TimerUnit) -> int:
        """Return the offset behind the message of the last unit, 0 when its record is gone."""
        record = records.read(last.log_offset, last.size)
        return 0 if record is None else _QUEUE_OFFSET.unpack_from(record)[0] + 1

    def _known(self, start: int) -> Generator[int]:
        """Yield where the records of the units behind what was saved lie."""
        timers, end = self._timers, self._end
        with UnitReader(timers.files, timers.log) as units:
            for position, unit in units.scan(start):
                if position >= end:
                    return
                yield unit.log_offset
