"""Timer messages of one store: put into the wheel, taken out of it, saved and cleaned (``TimerMessageStore``).

    open    timers that fit together, in a thread (``timer_recovery``)
    put     a unit of the timer log for each message, its slot in the wheel, the next message of the timer topic
    take    the next slot that holds messages; a ``DueSlot`` reads it, ``finish`` closes it
    save    log, wheel and ``timercheck``, in a thread and in this order

Rules (store.md §10.4 to §10.7):

- The messages are in the commit log. What is here says when each is due, and can be made anew from the timer topic:
  ``rebuild`` forgets everything but how far the slots have been read.
- A message that is due beyond the window is put nearer, and rolls: it is put in again when that slot comes.
- Of the slots only a byte each is in memory: whether it holds messages. Finding the next one is a search for a byte.
- While a rebuild is under way nothing is taken out and nothing is saved: a crash in between begins it anew.
- A save takes what there is at a moment; it counts when the log was flushed up to that moment before.

A ``DueSlot`` reads the messages of one slot in the order in which they were put in, some at a time:

    walk    from the last unit back to the first, noting every 512th position and the units that delete
    keys    of the messages that delete, from their records
    load    the units behind the last noted position, and some of their records

Rules of a slot (``TimerMessageStore.dequeue``; store.md §10.6):

- Units lead backwards, messages leave forwards. So that a slot of millions costs little memory, a part of its units is
  in memory at a time, and a smaller part of its records.
- A unit that is none, is not before the one that leads to it, or is due at another time is damage of the files.
- A chain ends where the timer log begins: the records of what lay before are gone.

``load`` may run in any thread, while nobody else uses the slot.
"""

import logging
import threading
from array import array
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from ...common.errors import RecordError, StoreNotWritableError
from ...common.properties import TIMER_DEL_UNIQKEY
from ...common.record import decode_record
from ..commitlog.cold_records import ColdRecords
from ..commitlog.commit_log import StoreTime
from ..files.file_sync import FileRemoval, sync_all
from ..files.files import Files
from ..files.store_config import BLANK_SLOTS, StoreConfig
from .timer_check import REBUILDING, TimerCheck, save_timer_check, timer_check_path
from .timer_log import (
    DELETES,
    NORMAL,
    ROLLS,
    UNIT_BYTES,
    TimerLog,
    TimerUnit,
    UnitReader,
    encode_unit,
    find_log_start,
    timer_log_directory,
)
from .timer_wheel import Slot, SlotChanges, TimerWheel

MOST_UNSAVED: Final = 1 << 18
"""Slots that are kept in memory while they cannot be saved; a broker that saves every second has a few thousand."""
_ROUNDING_MS = 2  # two clocks that are read one after the other
_log = logging.getLogger(__name__)
MOST_RECORDS: Final = 32
MOST_BYTES: Final = 1 << 20
_PART: Final = 512


class TimedMessage(NamedTuple):
    """A message of the timer topic: when it is due, where it lies, and whether it deletes others."""

    out_ms: int
    log_offset: int
    size: int
    topic_hash: int
    is_deleting: bool = False


class TimerSave(Struct):
    """What one save brings to the disk; ``generation`` is that of the files it was taken from."""

    check: TimerCheck
    changes: SlotChanges
    log_paths: list[str]
    directories: list[str]
    generation: int


class Timers:
    """The timer messages of a store; everything that is not said to be slow belongs to the thread of the store.

    ``queue_offset`` is the next message of the timer topic to be put; slots before ``write_tick`` are over.
    ``time_from`` makes a time that begins at an instant, ``cold_records`` a reader of records for any thread.
    Messages before ``known_until`` were put before the start, as far as they were not late.
    """

    def __init__(
        self,
        store_config: StoreConfig,
        files: Files,
        time_from: Callable[[int], StoreTime],
        cold_records: Callable[[], ColdRecords],
    ) -> None:
        config, root = store_config.timers, store_config.root
        self.store_config = store_config
        self.config = config
        self.files = files
        self.cold_records = cold_records
        self.check_path = timer_check_path(root)
        self.wheel = TimerWheel(files, f"{root}/timerwheel", config.wheel_slots)
        self.log = TimerLog(files, timer_log_directory(store_config), config.file_bytes)
        self.queue_offset = 0
        self.write_tick = 0
        self.rebuilds_until = 0
        self.known_until = 0
        self.is_open = False
        self._time_from = time_from
        self._time = time_from(0)
        self._saved = TimerCheck()
        self._waiting = bytearray(config.wheel_slots)
        self._next_tick: int | None = None
        self._read_tick = self._done_tick = 0
        self._known: Generator[int] | None = None
        self._known_offset = -1
        self._generation = 0
        self._disk = threading.Lock()

    def __repr__(self) -> str:
        return f"<Timers at {self.queue_offset}, next slot {self._next_tick}>"

    # --- where they stand

    @property
    def is_rebuilding(self) -> bool:
        """Whether messages that had been put before are put again."""
        return self.queue_offset < self.rebuilds_until

    @property
    def read_tick(self) -> int:
        """All slots before it have been delivered, and none of them gets a message any more."""
        return self._read_tick if self._next_tick is None else min(self._next_tick, self._read_tick)

    @property
    def saved(self) -> TimerCheck:
        """What the disk says."""
        return self._saved

    @property
    def next_tick(self) -> int | None:
        """The first slot that holds messages."""
        return self._next_tick

    def now_ms(self) -> int:
        """Return the instant that the wheel goes by: time that passes, also while the wall clock is behind it."""
        return self._time.elapsed_ms()

    def ahead_ms(self, wall_ms: int) -> int:
        """Return how far the wheel is ahead of the wall clock, which somebody has set back."""
        ahead_ms = self.now_ms() - wall_ms
        return ahead_ms if ahead_ms > _ROUNDING_MS else 0

    def move(self, now_ms: int) -> None:
        """Let time pass; it does not go back."""
        self.write_tick = max(self.write_tick, now_ms // self.config.precision_ms)

    def catch_up(self) -> None:
        """Pass over empty slots: all messages that have arrived are in the wheel."""
        following = self.write_tick if self._next_tick is None else min(self._next_tick, self.write_tick)
        self._read_tick = max(self._read_tick, following)

    def count_at(self, at_ms: int) -> int:
        """Return how many messages wait in the slot of an instant."""
        tick = at_ms // self.config.precision_ms
        if not self.is_open or not self._waiting[tick % self.config.wheel_slots]:
            return 0
        slot = self.wheel.slot(tick)
        return 0 if slot is None else slot.messages

    def count_waiting(self) -> int:
        """Return how many messages wait in all slots; reads each of them, so better in another thread."""
        slots, first, waiting = self.config.wheel_slots, self._next_tick, self._waiting
        place, count = waiting.find(1) if self.is_open and first is not None else -1, 0
        while place >= 0 and first is not None:
            slot = self.wheel.slot(first + (place - first) % slots)
            count += 0 if slot is None else slot.messages
            place = waiting.find(1, place + 1)
        return max(0, count)

    # --- opening, which is slow

    def begin(self, check: TimerCheck, marks: bytearray, known: Generator[int] | None = None) -> None:
        """Go on from what was saved; ``known`` are messages from ``queue_offset`` on that are in the wheel already."""
        self._saved = check
        self._time = self._time_from(check.read_at_ms)
        self._waiting = marks
        self._read_tick = self._done_tick = check.read_at_ms // self.config.precision_ms
        self._next_tick = self._find(self._read_tick)
        self._known, self._known_offset = known, -1
        self.queue_offset, self.rebuilds_until, self.known_until = check.sure_queue_offset, 0, 0

    def begin_anew(self, check: TimerCheck, reason: str) -> None:
        """Forget wheel and log, and put all messages of the timer topic again that are not done for certain."""
        _log.warning("store %s: rebuilding the timer files from the timer topic: %s", self.store_config.root, reason)
        with self._disk:
            self._generation += 1
            save_timer_check(self.files, self.check_path, check._replace(log_end=REBUILDING, master_queue_offset=0))
            self.log.remove_all()
            self.wheel.clear()
        unsaved = check._replace(log_end=REBUILDING, queue_offset=0, master_queue_offset=0)
        self.begin(unsaved, bytearray(self.config.wheel_slots))
        self._done_tick = check.read_at_ms // self.config.precision_ms
        self._read_tick = max(self._done_tick, self.write_tick - self.config.wheel_slots // 2 + BLANK_SLOTS)
        self.rebuilds_until = check.queue_offset

    def rebuild(self, reason: str) -> None:
        """Begin anew with what has been done so far."""
        done_ms, done = self.read_tick * self.config.precision_ms, max(self.queue_offset, self.rebuilds_until)
        self.begin_anew(self._saved._replace(read_at_ms=done_ms, queue_offset=done), reason)
        self.is_open = True

    def close(self) -> None:
        """Close the files."""
        self.is_open = False
        if self._known is not None:
            self._known.close()
        self.wheel.close()
        self.log.close()

    # --- in

    def is_known(self, log_offset: int) -> bool:
        """Tell whether a message is in the wheel since before the start; to be asked in the order of the queue."""
        while self._known is not None and self._known_offset < log_offset:
            following = next(self._known, None)
            if following is None:
                self._known = None
            else:
                self._known_offset = following
        return self._known_offset == log_offset

    def is_late(self, out_ms: int) -> bool:
        """Tell whether the slot of a message has been taken: it is to be delivered at once."""
        return out_ms // self.config.precision_ms < self._read_tick

    def is_done(self, out_ms: int, queue_offset: int) -> bool:
        """Tell whether a message that is put again was delivered before."""
        return queue_offset < self.rebuilds_until and out_ms // self.config.precision_ms < self._done_tick

    def put(self, messages: Sequence[TimedMessage]) -> int:
        """Put messages that are not late into the wheel; return how many, 0 while the wheel has no place for the first.

        Raises:
            StoreNotWritableError: Too many slots wait to be saved, which has failed for long.
            OSError: The timer log takes no more; none of them is in.
        """
        if self.wheel.change_count > MOST_UNSAVED:
            raise StoreNotWritableError(f"{self.wheel.change_count} slots of the timer wheel wait to be saved")
        if not self.log.room:
            self.log.roll()
        slots: dict[int, Slot] = {}
        data = bytearray()
        position = self.log.end
        for message in messages[: self.log.room]:
            due_ms, magic = self._plan(message)
            tick = due_ms // self.config.precision_ms
            if not self._fits(tick):
                break
            slot = slots.get(tick) or self._slot(tick, position)
            data += self._encode(message, due_ms, magic, slot.last)
            slots[tick] = Slot(slot.first, position, slot.messages + (-1 if message.is_deleting else 1))
            position += UNIT_BYTES
        self.log.append(bytes(data))
        for tick, slot in slots.items():
            self.wheel.put(tick, slot)
            self._mark(tick)
        return len(data) // UNIT_BYTES

    def _plan(self, message: TimedMessage) -> tuple[int, int]:
        """Return when a message comes out of the wheel, and its magic (``doEnqueue``)."""
        config = self.config
        write_ms, window = self.write_tick * config.precision_ms, config.roll_window
        magic = NORMAL | (DELETES if message.is_deleting else 0)
        beyond_ms = message.out_ms - write_ms - window * config.precision_ms
        if beyond_ms < 0:
            return message.out_ms, magic
        ahead = window // 2 if beyond_ms < window // 3 * config.precision_ms else window  # time for the next roll
        return write_ms + ahead * config.precision_ms, magic | ROLLS

    def _fits(self, tick: int) -> bool:
        """Tell whether the place of a slot is not that of one which waits since long ago."""
        return self._next_tick is None or tick - self._next_tick < self.config.wheel_slots

    def _slot(self, tick: int, position: int) -> Slot:
        slot = self.wheel.slot(tick) if self._waiting[tick % self.config.wheel_slots] else None
        return slot or Slot(position, -1, 0)

    def _encode(self, message: TimedMessage, due_ms: int, magic: int, previous: int) -> bytes:
        write_ms = min(self.write_tick * self.config.precision_ms, due_ms)  # as if on time: delays are not negative
        _, log_offset, size, topic_hash, _ = message
        return encode_unit(TimerUnit(previous, magic, write_ms, due_ms - write_ms, log_offset, size, topic_hash))

    def _mark(self, tick: int) -> None:
        self._waiting[tick % self.config.wheel_slots] = 1
        if self._next_tick is None or tick < self._next_tick:
            self._next_tick = tick

    # --- out

    def take(self, tick: int) -> None:
        """Begin with a slot: whoever comes for it now is late."""
        self._read_tick = max(self._read_tick, tick + 1)

    def finish(self, tick: int) -> None:
        """Close a slot: all its messages are where they belong."""
        self._waiting[tick % self.config.wheel_slots] = 0
        self._next_tick = self._find(tick + 1)

    def _find(self, tick: int) -> int | None:
        place = tick % self.config.wheel_slots
        found = self._waiting.find(1, place)
        if found < 0:
            found = self._waiting.find(1, 0, place)
        return None if found < 0 else tick + (found - place) % self.config.wheel_slots

    # --- on the disk

    def take_save(self) -> TimerSave | None:
        """Return what is to be saved; it counts when the commit log as it is now is on disk. None when nothing is."""
        if not self.is_open or self.is_rebuilding or self.queue_offset < self.known_until:
            return None  # what says that the log has all units up to its end must not say that they are still to come
        saved = self._saved
        read_at_ms, end = self.read_tick * self.config.precision_ms, self.log.end
        progress = (read_at_ms, end, self.queue_offset, self.queue_offset)
        if progress == saved[:4] and not self.wheel.change_count and not self.log.dirty_paths:
            return None
        version = (saved.state_version, self.write_tick * self.config.precision_ms, saved.counter + 1)
        changes = self.wheel.take_changes()
        paths, directories = sorted(self.log.dirty_paths), sorted(self.log.new_directories)
        self.log.dirty_paths, self.log.new_directories = set(), set()
        return TimerSave(TimerCheck(*progress, *version), changes, paths, directories, self._generation)

    def write(self, save: TimerSave) -> None:
        """Bring a save to the disk; slow (raises ``OSError``)."""
        with self._disk:
            if save.generation == self._generation:
                sync_all(self.files, save.log_paths, save.directories)
                self.wheel.write(save.changes)
                save_timer_check(self.files, self.check_path, save.check)

    def settle(self, save: TimerSave) -> None:
        """Take a save for done."""
        if save.generation == self._generation:
            self.wheel.settle()
            self._saved = save.check

    def clean(self, log_min_offset: int) -> None:
        """Remove files of the timer log that lead to records before the beginning of the log; slow."""
        with self._disk:
            paths = self.log.drop_before(find_log_start(self.files, self.log, log_min_offset))
            removal = FileRemoval(self.files, paths)
            removal.run()
        if removal.error is not None:
            _log.warning("cannot delete %s, retrying after the next start: %s", paths[0], removal.error)

    def put_back(self, save: TimerSave) -> None:
        """Take back what could not be saved, for the next time."""
        if save.generation == self._generation:
            self.log.dirty_paths.update(save.log_paths)
            self.log.new_directories.update(save.directories)


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
