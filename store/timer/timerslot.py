"""Reading one slot of the timer wheel: its messages in the order in which they were put in, some at a time.

    walk    from the last unit back to the first, noting every 512th position and the units that delete
    keys    of the messages that delete, from their records
    load    the units behind the last noted position, and some of their records

Rules (``TimerMessageStore.dequeue``; store.md §10.6):

- Units lead backwards, messages leave forwards. So that a slot of millions costs little memory, a part of its units is
  in memory at a time, and a smaller part of its records.
- A unit that is none, is not before the one that leads to it, or is due at another time is damage of the files.
- A chain ends where the timer log begins: the records of what lay before are gone.

``load`` may run in any thread, while nobody else uses the slot.
"""

from array import array
from typing import Final, NamedTuple

from ...common.errors import RecordError
from ...common.properties import TIMER_DEL_UNIQKEY
from ...common.record import decode_record
from ..consumequeue.coldrecords import ColdRecords
from .timer_log import TimerUnit, UnitReader
from .timers import Timers

MOST_RECORDS: Final = 32
MOST_BYTES: Final = 1 << 20
_PART: Final = 512


class DueMessage(NamedTuple):
    """A message whose time has come; ``record`` is ``None`` when it is gone."""

    unit: TimerUnit
    record: bytes | None


class DueSlot:
    """One slot; ``batch`` are the messages that have been loaded and wait to be taken, oldest first."""

    def __init__(self, timers: Timers, tick: int) -> None:
        slot = timers.wheel.slot(tick)
        self._timers = timers
        self._last = -1 if slot is None else slot.last
        self._parts: array[int] | None = None
        self._units: list[TimerUnit] = []
        self.tick = tick
        self.batch: list[DueMessage] = []
        self.deleted: set[str] = set()
        self.damage = ""

    def __repr__(self) -> str:
        return f"<DueSlot {self.tick}>"

    @property
    def is_finished(self) -> bool:
        """Whether everything has been loaded and taken."""
        return self._parts is not None and not (self._parts or self._units or self.batch)

    def load(self) -> None:
        """Fill the batch if it is empty, or set ``damage``; slow (raises ``OSError``)."""
        timers = self._timers
        with UnitReader(timers.files, timers.log) as units, timers.cold_records() as records:
            if self._parts is None:
                self._walk(units, records)
            if self._parts and not self._units and not self.damage:
                self._units = self._read_part(units, self._parts.pop())
            size = 0
            while self._units and len(self.batch) < MOST_RECORDS and size < MOST_BYTES:
                unit = self._units.pop()
                size += unit.size
                self.batch.append(DueMessage(unit, records.read(unit.log_offset, unit.size)))

    def _walk(self, units: UnitReader, records: ColdRecords) -> None:
        parts, deleting = array("q"), list[TimerUnit]()
        position, count = self._last, 0
        while position >= self._timers.log.first_base and not self.damage:
            if count % _PART == 0:
                parts.append(position)
            unit = self._check(units.unit(position), position)
            if unit is None:
                break
            position, count = unit.previous, count + 1
            if unit.is_deleting:
                deleting.append(unit)
        self.deleted = {key for unit in deleting if (key := _deleted_key(records, unit))}
        self._parts = parts

    def _check(self, unit: TimerUnit | None, position: int) -> TimerUnit | None:
        precision_ms = self._timers.config.precision_ms
        if unit is not None and unit.previous < position and unit.due_at_ms // precision_ms == self.tick:
            return unit
        if position >= self._timers.log.first_base:  # else its file has just been removed
            self.damage = f"the slot {self.tick} leads to {position} of the timer log, where no unit of it stands"
        return None

    def _read_part(self, units: UnitReader, position: int) -> list[TimerUnit]:
        """Return the units of a part, the newest first."""
        found: list[TimerUnit] = []
        while position >= self._timers.log.first_base and len(found) < _PART:
            unit = units.unit(position)
            if unit is None:
                break
            found.append(unit)
            position = unit.previous
        return found


def _deleted_key(records: ColdRecords, unit: TimerUnit) -> str | None:
    """Return which message another one deletes."""
    record = records.read(unit.log_offset, unit.size)
    try:
        return None if record is None else decode_record(record).properties.get(TIMER_DEL_UNIQKEY)
    except RecordError:
        return None
