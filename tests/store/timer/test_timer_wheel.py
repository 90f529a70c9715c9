"""The file of the timer wheel."""

import pathlib
from collections.abc import Iterator

import pytest
from stores import LimitedFiles

from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.store_config import WHEEL_SLOTS
from rocketlet.store.timer.timer_wheel import SLOT_BYTES, Slot, TimerWheel

SLOTS = 100
TICK = 1_750_000_000
JAVA = {  # of the recorded directory: time, first and last unit, messages
    1_795_249_668: Slot(0, 104, 2),
    1_795_249_669: Slot(52, 156, 2),
    1_795_253_266: Slot(260, 676, 5),
    1_795_253_267: Slot(624, 624, 1),
    1_795_256_866: Slot(468, 520, 0),
    1_795_336_066: Slot(208, 208, 1),
    1_795_422_466: Slot(416, 416, 1),
}


@pytest.fixture
def wheel(tmp_path: pathlib.Path) -> Iterator[TimerWheel]:
    """Give an empty wheel."""
    made = TimerWheel(OS_FILES, str(tmp_path / "timerwheel"), SLOTS)
    assert not made.open()
    yield made
    made.close()


@pytest.mark.feature("S26")
def test_slots_are_those_of_java(unpacked: pathlib.Path) -> None:
    """We find each slot that the Java broker wrote, and no other."""
    wheel = TimerWheel(OS_FILES, str(unpacked / "timerwheel"), WHEEL_SLOTS)
    assert wheel.open()
    assert {tick: wheel.slot(tick) for tick in JAVA} == JAVA
    waiting = wheel.find_waiting(1)
    assert [place for place, mark in enumerate(waiting.marks) if mark] == [tick % WHEEL_SLOTS for tick in JAVA]
    assert (waiting.last_unit, waiting.last_tick) == (676, 1_795_422_466)
    assert sum(wheel.find_waiting(1_795_249_669).marks) == 6
    assert wheel.slot(1_795_249_668 + WHEEL_SLOTS) is None
    wheel.close()


@pytest.mark.feature("S26")
def test_file_is_that_of_java(unpacked: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Slots that we write give the bytes of Java's file."""
    ours = TimerWheel(OS_FILES, str(tmp_path / "timerwheel"), WHEEL_SLOTS)
    ours.open()
    for tick, slot in JAVA.items():
        ours.put(tick, slot)
    ours.write(ours.take_changes())
    ours.close()
    assert (tmp_path / "timerwheel").read_bytes() == (unpacked / "timerwheel").read_bytes()


def test_wheel_takes_no_room_where_it_is_empty(tmp_path: pathlib.Path) -> None:
    """A wheel of 38.7 MB with three slots has a few blocks on the disk."""
    wheel = TimerWheel(OS_FILES, str(tmp_path / "timerwheel"), WHEEL_SLOTS)
    wheel.open()
    for tick in (TICK, TICK + 1, TICK + 90_000):
        wheel.put(tick, Slot(0, 52, 1))
    wheel.write(wheel.take_changes())
    wheel.close()
    stat = (tmp_path / "timerwheel").stat()
    assert stat.st_size == 38_707_200
    assert stat.st_blocks * 512 < 100_000


def test_place_belongs_to_one_tick(wheel: TimerWheel) -> None:
    """A slot is empty for the tick one turn earlier or later, until that one takes its place."""
    wheel.put(TICK, Slot(0, 52, 2))
    assert wheel.slot(TICK) == Slot(0, 52, 2)
    assert wheel.slot(TICK + SLOTS) is None
    assert wheel.slot(TICK - SLOTS) is None
    wheel.put(TICK + SLOTS, Slot(104, 104, 1))
    assert wheel.slot(TICK) is None
    assert (wheel.holds(TICK, 52), wheel.holds(TICK + SLOTS, 104), wheel.holds(TICK + SLOTS, 156)) == (
        True,
        True,
        False,
    )


def test_changes_reach_the_file_when_they_are_written(wheel: TimerWheel, tmp_path: pathlib.Path) -> None:
    """Until then the file has what was there, and reading sees what is in memory; what failed is written again."""
    wheel.put(TICK, Slot(0, 0, 1))
    first = wheel.take_changes()
    wheel.put(TICK, Slot(0, 52, 2))
    wheel.put(TICK + 1, Slot(104, 104, 1))
    assert (wheel.slot(TICK), wheel.change_count) == (Slot(0, 52, 2), 3)
    assert not any((tmp_path / "timerwheel").read_bytes())
    assert len(first) == 1
    again = wheel.take_changes()
    assert len(again) == 2
    wheel.write(again)
    wheel.settle()
    assert wheel.change_count == 0
    other = TimerWheel(OS_FILES, wheel.path, SLOTS)
    assert other.open()
    assert (other.slot(TICK), other.slot(TICK + 1)) == (Slot(0, 52, 2), Slot(104, 104, 1))
    other.close()


@pytest.mark.parametrize("is_written", [False, True])
def test_slots_that_wait_begin_with_a_tick(is_written: bool, wheel: TimerWheel) -> None:
    """That one too, whether they are in memory or in the file; the last unit is that of none that is over."""
    for ahead, last in ((0, 520), (1, 208), (2, 312), (3, 104)):
        wheel.put(TICK + ahead, Slot(0, last, 1))
    if is_written:
        wheel.write(wheel.take_changes())
        wheel.settle()
    for ahead, last in ((0, 520), (1, 312), (2, 312), (3, 104)):
        found = wheel.find_waiting(TICK + ahead)
        places = {(TICK + later) % SLOTS for later in range(ahead, 4)}
        assert {place for place, mark in enumerate(found.marks) if mark} == places
        assert (found.last_unit, found.last_tick) == (last, TICK + 3)
    assert wheel.find_waiting(TICK + 4)[1:] == (-1, -1)


def test_slots_side_by_side_are_one_write(tmp_path: pathlib.Path) -> None:
    """Slots of consecutive seconds go out together."""

    class Counting(LimitedFiles):
        """Counts writes."""

        writes = 0

        def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
            """Count it."""
            self.writes += 1
            return super().pwrite(descriptor, data, position)

    files = Counting()
    wheel = TimerWheel(files, str(tmp_path / "timerwheel"), SLOTS)
    wheel.open()
    for tick in (TICK + 5, TICK + 3, TICK + 4, TICK + 9):
        wheel.put(tick, Slot(tick, tick, 1))
    wheel.write(wheel.take_changes())
    assert files.writes == 2
    assert wheel.slot(TICK + 4) == Slot(TICK + 4, TICK + 4, 1)
    files.room = SLOT_BYTES - 1
    wheel.put(TICK + 20, Slot(0, 0, 1))
    with pytest.raises(OSError, match="No space"):
        wheel.write(wheel.take_changes())
    wheel.close()


@pytest.mark.parametrize("size", [0, 31, SLOTS * SLOT_BYTES - 1, SLOTS * SLOT_BYTES + 1])
def test_wheel_of_another_length_is_cleared(size: int, tmp_path: pathlib.Path) -> None:
    """Java stops at such a file; here it says that nothing is known, and has its length."""
    path = tmp_path / "timerwheel"
    path.write_bytes(b"\1" * size)
    wheel = TimerWheel(OS_FILES, str(path), SLOTS)
    assert not wheel.open()
    wheel.close()
    assert path.read_bytes() == bytes(SLOTS * SLOT_BYTES)


def test_clear_forgets_everything(wheel: TimerWheel) -> None:
    """Neither memory nor file has a slot afterwards."""
    wheel.put(TICK, Slot(0, 0, 1))
    wheel.write(wheel.take_changes())
    wheel.put(TICK + 1, Slot(0, 0, 1))
    wheel.clear()
    assert (wheel.slot(TICK), wheel.slot(TICK + 1), wheel.change_count) == (None, None, 0)
    assert sum(wheel.find_waiting(1).marks) == 0
