"""Putting messages into the wheel, taking slots, and saving."""

import pathlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from stores import LimitedFiles
from syncs import NamedFiles
from timers import DAY_MS, SECOND_MS, UNITS_PER_FILE, TimerWorld, timer_directory

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.store.files.files import Files
from rocketlet.store.timer.timer_log import NORMAL, ROLLS, TimerUnit, UnitReader
from rocketlet.store.timer.timer_wheel import Slot
from rocketlet.store.timer.timers import TimedMessage

WINDOW_S = 172_800


class Call(NamedTuple):
    """What was asked of the disk: the operation and the file."""

    name: str
    path: str


class WatchedFiles(NamedFiles):
    """Notes which files are written and synced, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Note it."""
        self.calls.append(Call("write", self.opened[descriptor]))
        return super().pwrite(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        """Note it."""
        self.calls.append(Call("sync", self.opened[descriptor]))
        super().sync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Note it."""
        self.calls.append(Call("sync directory", path))
        super().sync_directory(path)


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[TimerWorld]:
    """Give open timers without messages."""
    made = opened(tmp_path, LimitedFiles())
    yield made
    made.stop()


def opened(folder: pathlib.Path, files: Files) -> TimerWorld:
    """Return a world whose timer files are open."""
    world = TimerWorld(timer_directory(folder / "store"), files)
    world.send(b"first", world.now_ms + SECOND_MS)
    world.pass_ms(SECOND_MS)
    return world


def units(world: TimerWorld) -> list[TimerUnit]:
    """Return all units of the timer log but the first."""
    with UnitReader(world.disk, world.timers.log) as reader:
        return [unit for _, unit in reader.scan(0)][1:]


def put(world: TimerWorld, *messages: TimedMessage) -> int:
    """Put messages into the wheel."""
    return world.timers.put(messages)


@pytest.mark.feature("L6")
@pytest.mark.parametrize(
    ("ahead_s", "put_ahead_s", "magic"),
    [
        (1, 1, NORMAL),
        (WINDOW_S - 1, WINDOW_S - 1, NORMAL),
        (WINDOW_S, WINDOW_S // 2, NORMAL | ROLLS),
        (WINDOW_S + WINDOW_S // 3 - 1, WINDOW_S // 2, NORMAL | ROLLS),
        (WINDOW_S + WINDOW_S // 3, WINDOW_S, NORMAL | ROLLS),
        (3 * 86_400, WINDOW_S, NORMAL | ROLLS),
    ],
)
def test_message_beyond_the_window_rolls(ahead_s: int, put_ahead_s: int, magic: int, world: TimerWorld) -> None:
    """Up to two days ahead it has its own slot; a little more, half the window; else the end of the window."""
    now_ms = world.now_ms
    assert put(world, TimedMessage(now_ms + ahead_s * SECOND_MS, 700, 90, 5)) == 1
    assert units(world) == [TimerUnit(-1, magic, now_ms, put_ahead_s * SECOND_MS, 700, 90, 5)]
    assert world.timers.next_tick == now_ms // SECOND_MS + put_ahead_s


def test_units_of_a_slot_lead_back(world: TimerWorld) -> None:
    """Each unit names the one before it; the slot the first, the last and how many; a deletion counts as -1."""
    at_ms = world.now_ms + 5 * SECOND_MS
    messages = [TimedMessage(at_ms, 100 * n, 90, 5) for n in range(3)]
    assert put(world, *messages, TimedMessage(at_ms, 300, 90, 5, is_deleting=True)) == 4
    assert [(unit.previous, unit.magic) for unit in units(world)] == [(-1, 1), (52, 1), (104, 1), (156, 5)]
    assert world.timers.wheel.slot(at_ms // SECOND_MS) == Slot(52, 208, 2)
    assert world.timers.count_at(at_ms) == 2
    assert world.timers.count_at(at_ms + SECOND_MS) == 0


def test_file_end_is_a_place_to_stop(world: TimerWorld) -> None:
    """What does not fit into the file is put with the next call, which begins another file."""
    at_ms = world.now_ms + 5 * SECOND_MS
    messages = [TimedMessage(at_ms, 100 * n, 90, 5) for n in range(UNITS_PER_FILE + 3)]
    first = put(world, *messages)
    assert first == UNITS_PER_FILE - 1
    assert put(world, *messages[first:]) == 4
    assert len(units(world)) == UNITS_PER_FILE + 3


def test_failed_write_changes_nothing(world: TimerWorld) -> None:
    """When the timer log takes no unit, wheel and next message are as before, and a later try succeeds."""
    assert isinstance(world.disk, LimitedFiles)
    message = TimedMessage(world.now_ms + 5 * SECOND_MS, 700, 90, 5)
    world.disk.room = 0
    with pytest.raises(OSError, match="No space"):
        put(world, message)
    assert (world.timers.next_tick, world.timers.wheel.slot(message.out_ms // SECOND_MS)) == (None, None)
    world.disk.room = None
    assert put(world, message) == 1


def test_next_slot_is_found_round_the_wheel(world: TimerWorld) -> None:
    """Slots are taken in the order of time, also where the file of the wheel begins anew."""
    timers = world.timers
    to_turn_s = -(world.now_ms // SECOND_MS) % timers.config.wheel_slots
    world.directory.now_ms += to_turn_s * SECOND_MS - 2 * SECOND_MS
    world.work()
    wanted = [world.now_ms // SECOND_MS + ahead for ahead in (1, 5, 90, 100_000)]
    for tick in (wanted[2], wanted[0], wanted[3], wanted[1]):
        put(world, TimedMessage(tick * SECOND_MS, 700, 90, 5))
    found: list[int] = []
    while (tick := timers.next_tick) is not None:
        found.append(tick)
        timers.take(tick)
        timers.finish(tick)
    assert found == wanted


def test_only_a_slot_that_was_taken_is_late(world: TimerWorld) -> None:
    """What comes for a slot that is being read would be lost in it; the slot of the next tick still takes messages."""
    timers, tick = world.timers, world.timers.write_tick + 5
    put(world, TimedMessage(tick * SECOND_MS, 700, 90, 5))
    ends_ms = [(tick + ahead) * SECOND_MS + within for ahead in (-1, 0, 1) for within in (0, SECOND_MS - 1)]
    assert [timers.is_late(at_ms) for at_ms in ends_ms] == [False] * 6
    timers.take(tick)
    assert [timers.is_late(at_ms) for at_ms in ends_ms] == [True] * 4 + [False] * 2
    timers.finish(tick)
    assert [timers.is_late(at_ms) for at_ms in ends_ms] == [True] * 4 + [False] * 2


def test_clock_that_is_set_back(world: TimerWorld) -> None:
    """The wheel waits for it: slots that are over stay over, and messages of that time are late."""
    write_tick = world.timers.write_tick
    world.directory.now_ms -= DAY_MS
    world.work()
    assert world.timers.write_tick == write_tick
    world.send(b"again", world.now_ms + 5 * SECOND_MS)
    world.work()
    assert world.bodies() == [b"first", b"again"]
    world.directory.now_ms += DAY_MS


@pytest.mark.feature("S26")
def test_save_keeps_its_order(tmp_path: pathlib.Path) -> None:
    """Units are on the disk before the wheel leads to them, and both before timercheck says so."""
    disk = WatchedFiles()
    world = opened(tmp_path, disk)
    put(world, TimedMessage(world.now_ms + 5 * SECOND_MS, 700, 90, 5))
    disk.calls.clear()
    save = world.timers.take_save()
    assert save is not None
    assert disk.calls == []
    world.timers.write(save)
    world.timers.settle(save)
    names = {"timerwheel": "wheel", "timercheck": "check", "0" * 20: "log"}
    done = [(call.name, names.get(pathlib.Path(call.path).name, "")) for call in disk.calls]
    first = {step: done.index(step) for step in dict.fromkeys(done)}
    order = [("sync", "log"), ("sync directory", ""), ("write", "wheel"), ("sync", "wheel"), ("write", "check")]
    assert [first[step] for step in order] == sorted(first[step] for step in order)
    assert ("sync", "check") in done
    world.stop()


def test_nothing_is_saved_without_a_change(world: TimerWorld) -> None:
    """A save that was done is not done again, until something happens."""
    world.save()
    assert world.timers.take_save() is None
    world.send(b"more", world.now_ms + DAY_MS)
    assert world.timers.take_save() is None
    world.work()
    assert world.timers.take_save() is not None


def test_failed_save_is_done_again(tmp_path: pathlib.Path) -> None:
    """What could not be saved is part of the next save."""
    disk = WatchedFiles()
    world = opened(tmp_path, disk)
    disk.fails_sync = True
    save = world.timers.take_save()
    assert save is not None
    with pytest.raises(OSError, match="Input/output"):
        world.timers.write(save)
    world.timers.put_back(save)
    disk.fails_sync = False
    again = world.timers.take_save()
    assert again is not None
    assert (again.check[:4], again.log_paths) == (save.check[:4], save.log_paths)
    assert again.changes == save.changes
    world.timers.write(again)
    world.timers.settle(again)
    assert world.timers.take_save() is None
    world.stop()


def test_slots_that_cannot_be_saved_are_bounded(world: TimerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can be saved messages wait in their topic instead of filling the memory."""
    monkeypatch.setattr("rocketlet.store.timer.timers.MOST_UNSAVED", 3)
    world.save()
    for number in range(60):
        world.send(b"%d" % number, world.now_ms + (5 + number) * SECOND_MS)
    with pytest.raises(StoreNotWritableError, match="wait to be saved"):
        world.work()
    assert 0 < world.timers.queue_offset < 60
    while not world.delivery.is_idle:
        world.save()
        with suppress(StoreNotWritableError):
            world.work()
    world.pass_ms(70 * SECOND_MS)
    assert len(world.bodies()) == 61
