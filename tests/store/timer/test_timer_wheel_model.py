"""The timer wheel against a plain table: slots in memory and in a file of several parts, round after round."""

import pathlib
import random

import pytest
from census import count_descriptors

from rocketlet.store.files.files import OS_FILES
from rocketlet.store.timer.timer_wheel import SLOT_BYTES, Slot, TimerWheel

SLOTS = 9_000  # more than four parts that are read together


def known(table: dict[int, tuple[int, Slot]], tick: int) -> Slot | None:
    """Return the slot of a tick."""
    found = table.get(tick % SLOTS)
    return found[1] if found is not None and found[0] == tick else None


@pytest.mark.parametrize("seed", range(6))
def test_wheel_is_a_table_of_places(tmp_path: pathlib.Path, seed: int) -> None:
    """Whatever was put, written or is on its way: each place has its last tick, and a search finds what waits."""
    draw = random.Random(seed)
    wheel = TimerWheel(OS_FILES, str(tmp_path / "timerwheel"), SLOTS)
    wheel.open()
    table: dict[int, tuple[int, Slot]] = {}
    unit = 0
    around = [draw.randrange(3 * SLOTS, 4 * SLOTS) for _ in range(3)]
    for _ in range(40):
        for _ in range(draw.randrange(6)):
            tick = draw.choice(around) + draw.choice([0, 1, 2, 500, SLOTS, -SLOTS])
            if tick < table.get(tick % SLOTS, (0,))[0]:
                continue  # time does not go back
            unit += draw.randrange(1, 99)
            slot = Slot(draw.randrange(100), unit, draw.randrange(-3, 9))
            wheel.put(tick, slot)
            table[tick % SLOTS] = tick, slot
        changes = wheel.take_changes() if draw.random() < 0.6 else None
        if changes is not None and draw.random() < 0.6:
            wheel.write(changes)
            wheel.settle()
        for near in around:
            check_places(wheel, table, near + draw.choice([0, 1, 500, SLOTS, -SLOTS]))
    for from_tick in (0, 1, around[0], around[1] + 1, 10 * SLOTS):
        check_waiting(wheel, table, from_tick)
    wheel.write(wheel.take_changes())
    wheel.close()
    again = TimerWheel(OS_FILES, str(tmp_path / "timerwheel"), SLOTS)
    assert again.open()
    again.close()
    again.open_for_reading()
    for from_tick in (0, around[2]):
        check_waiting(again, table, from_tick)
    for place, (tick, slot) in table.items():
        assert (again.slot(tick), again.chain_at(place)) == (slot, (tick, slot.last))
    again.close()


def check_places(wheel: TimerWheel, table: dict[int, tuple[int, Slot]], tick: int) -> None:
    """Compare what the wheel says of a tick."""
    slot = known(table, tick)
    assert wheel.slot(tick) == slot
    held_tick, held = table.get(tick % SLOTS, (0, Slot(0, 0, 0)))
    assert wheel.chain_at(tick % SLOTS) == (held_tick, held.last)
    for position in (held.last - 1, held.last, held.last + 1):
        assert wheel.holds(tick, position) == (held_tick > tick or (held_tick == tick and held.last >= position))


def check_waiting(wheel: TimerWheel, table: dict[int, tuple[int, Slot]], from_tick: int) -> None:
    """Compare what waits from a tick on; what was never used belongs to tick 0."""
    found = wheel.find_waiting(from_tick)
    waiting = {place: (tick, slot) for place, (tick, slot) in table.items() if tick >= from_tick}
    marks = {place for place, mark in enumerate(found.marks) if mark}
    if from_tick:
        assert marks == set(waiting)
        assert found.last_unit == max((slot.last for _, slot in waiting.values()), default=-1)
    else:
        assert marks >= set(waiting)
    assert found.last_tick == max((tick for tick, _ in waiting.values()), default=-1)
    assert len(found.marks) == SLOTS


def test_slot_of_another_place_is_none(tmp_path: pathlib.Path) -> None:
    """A tick that stands where it does not belong is damage, and waits for nobody."""
    path = tmp_path / "timerwheel"
    wheel = TimerWheel(OS_FILES, str(path), SLOTS)
    wheel.open()
    wheel.put(SLOTS + 5, Slot(0, 52, 1))
    wheel.write(wheel.take_changes())
    wheel.close()
    content = path.read_bytes()
    moved = SLOT_BYTES * 6
    path.write_bytes(content[:moved] + content[moved - SLOT_BYTES : moved] + content[moved + SLOT_BYTES :])
    wheel.open()
    found = wheel.find_waiting(1)
    assert [place for place, mark in enumerate(found.marks) if mark] == [5]
    wheel.close()


def test_closed_wheel_is_closed_once(tmp_path: pathlib.Path) -> None:
    """Whoever opens it again does so without closing it before."""
    wheel = TimerWheel(OS_FILES, str(tmp_path / "timerwheel"), SLOTS)
    before = count_descriptors()
    for _ in range(3):
        wheel.open()
    wheel.close()
    wheel.close()
    assert count_descriptors() == before
    assert OS_FILES.size(str(tmp_path / "timerwheel")) == SLOTS * SLOT_BYTES
