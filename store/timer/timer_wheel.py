"""The file ``timerwheel``: for each instant, which units of the timer log are due then.

    slot    time 8 (ms / precision; 0: never used) | first unit 8 | last unit 8 | count 4 | zeros 4     32 bytes
    file    1,209,600 slots, twice seven days of seconds; an instant has slot (ms / precision) mod 1,209,600

Rules (``TimerWheel``, ``Slot``; store.md §10.4):

- Units are given by their positions in the timer log, where each names the one before it. A unit that deletes counts
  as -1.
- A slot belongs to the tick (ms / precision) that it names; for other ticks it is empty. What was delivered stays.
- Slots change in memory. A save writes them when the units that they lead to are on disk; so a slot in the file never
  leads to what is not there.
- The file is a hole where it was never used. It is read as a whole once, by ``find_waiting``, holes left out.
"""

import errno
import os
import struct
import sys
from array import array
from itertools import groupby
from typing import Final, NamedTuple

from ..files.files import Files

SLOT_BYTES: Final = 32
_SLOT: Final = struct.Struct(">qqqi4x")
_CHUNK_BYTES: Final = 2_048 * SLOT_BYTES
SlotChanges = dict[int, bytes]
"""Slots by their place in the file."""


class Slot(NamedTuple):
    """The units of one tick."""

    first: int
    last: int
    messages: int


class Waiting(NamedTuple):
    """Which places hold messages, a byte 1 for each; the last unit that one leads to, and the last tick of them."""

    marks: bytearray
    last_unit: int
    last_tick: int


class TimerWheel:
    """The wheel of one store; ``tick`` is an instant divided by the precision."""

    def __init__(self, files: Files, path: str, slots: int) -> None:
        self._files = files
        self._descriptor: int | None = None
        self._changed: SlotChanges = {}
        self._saving: SlotChanges = {}
        self.path = path
        self.slots = slots

    def __repr__(self) -> str:
        return f"<TimerWheel {self.path}>"

    def open(self) -> bool:
        """Open the file, made if need be; tell whether it was there at its full size."""
        self.close()
        size = self.slots * SLOT_BYTES
        was_whole = self._files.exists(self.path) and self._files.size(self.path) == size
        self._descriptor = self._files.create(self.path, size)
        if not was_whole:
            self.clear()
        return was_whole

    def open_for_reading(self) -> None:
        """Open a file that is there at its full size."""
        self._descriptor = self._files.open(self.path)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None

    def clear(self) -> None:
        """Forget all slots; the file is one hole."""
        self._changed, self._saving = {}, {}
        self._files.truncate(self._open(), 0)
        self._files.truncate(self._open(), self.slots * SLOT_BYTES)

    def slot(self, tick: int) -> Slot | None:
        """Return the units of a tick, ``None`` when there are none."""
        time, first, last, count = self._raw(tick % self.slots)
        return Slot(first, last, count) if time == tick else None

    def chain_at(self, place: int) -> tuple[int, int]:
        """Return the tick of a place in the file, and the last of its units."""
        tick, _, last, _ = self._raw(place)
        return tick, last

    def holds(self, tick: int, position: int) -> bool:
        """Tell whether the slot of a tick may lead to a unit, or is a later tick's by now."""
        time, _, last, _ = self._raw(tick % self.slots)
        return time > tick or (time == tick and last >= position)

    def put(self, tick: int, slot: Slot) -> None:
        """Change the slot of a tick; its units are in the timer log."""
        self._changed[tick % self.slots] = _SLOT.pack(tick, *slot)

    def take_changes(self) -> SlotChanges:
        """Return what is to be written; until ``settle``, a later call returns it again."""
        self._saving |= self._changed
        self._changed = {}
        return dict(self._saving)

    def settle(self) -> None:
        """Take the changes that were returned last for written."""
        self._saving = {}

    @property
    def change_count(self) -> int:
        """How many slots are to be written."""
        return len(self._changed) + len(self._saving)

    def write(self, changes: SlotChanges) -> None:
        """Bring changes to the disk; in any thread (raises ``OSError``)."""
        for _, run in groupby(enumerate(sorted(changes)), lambda pair: pair[1] - pair[0]):  # slots side by side
            places = [place for _, place in run]
            data = b"".join([changes[place] for place in places])
            if self._files.pwrite(self._open(), data, places[0] * SLOT_BYTES) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._files.sync(self._open())

    def find_waiting(self, from_tick: int) -> Waiting:
        """Return which slots belong to the tick or to later ones; reads the whole file, takes its time."""
        marks, last_unit, last_tick = bytearray(self.slots), -1, -1
        position = self._files.next_data(self._open(), 0)
        while position is not None and position < self.slots * SLOT_BYTES:
            start = position - position % _CHUNK_BYTES
            times, lasts = self._columns(start)
            for number in [number for number, time in enumerate(times) if time >= from_tick]:
                time, place = times[number], number + start // SLOT_BYTES
                if time % self.slots == place:
                    marks[place] = 1
                    last_unit, last_tick = max(last_unit, lasts[number]), max(last_tick, time)
            position = self._files.next_data(self._open(), start + _CHUNK_BYTES)
        for place, data in {**self._saving, **self._changed}.items():
            time, _, last, _ = _SLOT.unpack(data)
            marks[place] = time >= from_tick
            if time >= from_tick:
                last_unit, last_tick = max(last_unit, last), max(last_tick, time)
        return Waiting(marks, last_unit, last_tick)

    def _columns(self, start: int) -> tuple["array[int]", "array[int]"]:
        """Return the times and last units of the slots from a position of the file on."""
        numbers = array("q", self._files.pread(self._open(), _CHUNK_BYTES, start))
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers[::4], numbers[2::4]

    def _raw(self, place: int) -> tuple[int, int, int, int]:
        data = self._changed.get(place) or self._saving.get(place)
        if data is None:
            data = self._files.read_whole(self._open(), SLOT_BYTES, place * SLOT_BYTES, self.path)
        return _SLOT.unpack(data)

    def _open(self) -> int:
        assert self._descriptor is not None, "the wheel is used between open and close"
        return self._descriptor
