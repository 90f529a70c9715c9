"""Which slot is next, what is late, and what is known: timers without their delivery."""

import pathlib
import random
from collections.abc import Generator, Iterator

import pytest
from timers import SECOND_MS, TimerWorld, timer_directory

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.store.timer.timer_check import TimerCheck
from rocketlet.store.timer.timer_log import DELETES, NORMAL, ROLLS, TimerUnit, UnitReader
from rocketlet.store.timer.timer_recovery import FoundTopic, open_timers
from rocketlet.store.timer.timer_wheel import Slot
from rocketlet.store.timer.timers import DueSlot, TimedMessage, Timers

SLOTS = 400
WINDOW = 60


def opened(folder: pathlib.Path, **settings: int) -> TimerWorld:
    """Return a world whose timer files are open, though there is no message."""
    world = TimerWorld(timer_directory(folder / "store", **settings))
    open_timers(world.timers, FoundTopic(0, 0), world.now_ms, is_clean=True)
    return world


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[TimerWorld]:
    """Give open timers without messages, with a small wheel."""
    made = opened(tmp_path, wheel_slots=SLOTS, roll_window_setting=WINDOW)
    yield made
    made.timers.close()
    made.directory.close_all()


@pytest.fixture
def timers(world: TimerWorld) -> Timers:
    """Give the timers of that world."""
    return world.timers


def message(tick: int, number: int = 0, *, is_deleting: bool = False) -> TimedMessage:
    """Return a message that is due within a tick."""
    return TimedMessage(tick * SECOND_MS + 7, 100 * number, 90, 5, is_deleting)


def units(timers: Timers) -> list[TimerUnit]:
    """Return all units of the timer log."""
    with UnitReader(timers.files, timers.log) as reader:
        return [unit for _, unit in reader.scan(0)]


@pytest.mark.parametrize("seed", range(8))
def test_slots_are_taken_in_the_order_of_time(timers: Timers, seed: int) -> None:
    """From the one to be read first, round the end of the wheel, each once; also that at its very beginning."""
    draw = random.Random(seed)
    tick = 5 * SLOTS + draw.choice([0, 1, SLOTS - 1, draw.randrange(SLOTS)])
    ahead = sorted({0, SLOTS - 1, *(draw.randrange(SLOTS) for _ in range(9))} if seed % 2 else {draw.randrange(SLOTS)})
    marks = bytearray(SLOTS)
    for each in ahead:
        marks[(tick + each) % SLOTS] = 1
    timers.begin(TimerCheck(read_at_ms=tick * SECOND_MS), marks)
    found: list[int] = []
    while timers.next_tick is not None:
        found.append(timers.next_tick)
        timers.take(timers.next_tick)
        timers.finish(timers.next_tick)
    assert found == [tick + each for each in ahead]
    assert timers.read_tick == tick + ahead[-1] + 1


def test_slots_beyond_a_turn_wait(timers: Timers) -> None:
    """A slot that was never emptied keeps its place: what is due a turn later is put when it is done."""
    first = timers.write_tick + 1
    assert timers.put([message(first)]) == 1
    timers.move((first + SLOTS - 10) * SECOND_MS)
    late = [message(first + SLOTS - 1, 1), message(first + SLOTS, 2), message(first + SLOTS - 2, 3)]
    assert timers.put(late) == 1
    assert timers.put(late[1:]) == 0
    timers.take(first)
    timers.finish(first)
    assert timers.next_tick == first + SLOTS - 1
    assert timers.put(late[1:]) == 2
    assert timers.next_tick == first + SLOTS - 2


@pytest.mark.parametrize(
    ("ahead", "put_ahead", "rolls"),
    [
        (-5, -5, 0),
        (0, 0, 0),
        (WINDOW - 1, WINDOW - 1, 0),
        (WINDOW, WINDOW // 2, ROLLS),
        (WINDOW + WINDOW // 3 - 1, WINDOW // 2, ROLLS),
        (WINDOW + WINDOW // 3, WINDOW, ROLLS),
        (9 * WINDOW, WINDOW, ROLLS),
    ],
)
@pytest.mark.parametrize("is_deleting", [False, True])
def test_unit_tells_when_and_why(timers: Timers, ahead: int, put_ahead: int, rolls: int, is_deleting: bool) -> None:
    """It was written at the tick that is over, or, if it is late, as if on time; beyond the window it rolls."""
    now = timers.write_tick
    out_ms = (now + ahead) * SECOND_MS
    assert timers.put([TimedMessage(out_ms, 700, 90, 5, is_deleting)]) == 1
    written = min(now, now + put_ahead) * SECOND_MS
    magic = NORMAL | rolls | (DELETES if is_deleting else 0)
    due_ms = (now + put_ahead) * SECOND_MS
    assert units(timers) == [TimerUnit(-1, magic, written, due_ms - written, 700, 90, 5)]
    assert timers.next_tick == now + put_ahead
    assert timers.wheel.slot(now + put_ahead) == Slot(0, 0, -1 if is_deleting else 1)


def test_messages_that_wait_are_counted(timers: Timers) -> None:
    """Those of a slot by its instant, those of all slots together; deletions count against them, but never below 0."""
    now = timers.write_tick
    assert timers.count_waiting() == 0
    timers.put([message(now + 3, 1), message(now + 3, 2), message(now + 50, 3)])
    assert [timers.count_at((now + ahead) * SECOND_MS) for ahead in (2, 3, 4, 50, SLOTS + 3)] == [0, 2, 0, 1, 0]
    assert timers.count_at((now + 3) * SECOND_MS + 999) == 2
    assert timers.count_waiting() == 3
    timers.put([message(now + 4, 4, is_deleting=True)])
    assert timers.count_waiting() == 2
    timers.finish(now + 3)
    assert (timers.count_waiting(), timers.count_at((now + 3) * SECOND_MS)) == (0, 0)
    timers.put([message(now + 5, 5, is_deleting=True)] * 5)
    assert timers.count_waiting() == 0
    timers.close()
    assert (timers.count_waiting(), timers.count_at((now + 50) * SECOND_MS)) == (0, 0)


def test_empty_slots_are_passed_over(timers: Timers) -> None:
    """Up to the tick that is over, or to the first slot that holds messages; never back."""
    now = timers.write_tick
    timers.catch_up()
    assert timers.read_tick == now
    timers.put([message(now + 3)])
    assert timers.read_tick == now
    timers.move((now + 2) * SECOND_MS)
    assert timers.read_tick == now
    timers.catch_up()
    assert (timers.read_tick, timers.write_tick) == (now + 2, now + 2)
    timers.move((now + 9) * SECOND_MS)
    timers.move((now + 1) * SECOND_MS)
    timers.catch_up()
    assert (timers.read_tick, timers.write_tick) == (now + 3, now + 9)
    timers.take(now + 3)
    assert timers.read_tick == now + 3
    timers.finish(now + 3)
    assert timers.read_tick == now + 4
    timers.take(now + 1)
    assert timers.read_tick == now + 4


def test_messages_of_before_the_start_are_known(timers: Timers) -> None:
    """They are asked for in the order of the queue; others lie between them, and none follows the last."""
    is_closed = list[bool]()

    def known() -> Generator[int]:
        try:
            yield from (0, 100, 300)
        finally:
            is_closed.append(True)

    timers.begin(TimerCheck(), bytearray(SLOTS), known())
    asked = [0, 0, 50, 100, 200, 300, 301, 400]
    assert [timers.is_known(at) for at in asked] == [at in (0, 100, 300) for at in asked]
    assert is_closed == [True]
    timers.begin(TimerCheck(), bytearray(SLOTS))
    assert not timers.is_known(0)
    timers.begin(TimerCheck(), bytearray(SLOTS), known())
    assert timers.is_known(0)
    timers.close()
    assert is_closed == [True, True]


def test_what_was_delivered_before_a_rebuild_is_done(timers: Timers) -> None:
    """Messages that are put again, of slots that had been read; what follows them is new."""
    done = timers.write_tick - 10
    timers.queue_offset = 8
    timers.begin_anew(TimerCheck(read_at_ms=done * SECOND_MS, queue_offset=8), "for a test")
    assert (timers.rebuilds_until, timers.queue_offset, timers.is_rebuilding) == (8, 0, True)
    asked = [(at, tick) for at in (7, 8) for tick in (done - 1, done, done + 1)]
    assert [timers.is_done(tick * SECOND_MS, at) for at, tick in asked] == [True, False, False, False, False, False]
    timers.queue_offset = 7
    assert timers.is_rebuilding
    timers.queue_offset = 8
    assert not timers.is_rebuilding


def test_rebuild_forgets_slots_and_units(timers: Timers) -> None:
    """Neither the wheel nor the log has them; slots of more than half a turn ago are not waited for."""
    now = timers.write_tick
    timers.put([message(now + 3)])
    timers.rebuild("for a test")
    assert (timers.next_tick, timers.wheel.slot(now + 3), units(timers), timers.log.end) == (None, None, [], 0)
    assert timers.is_open
    for behind, expected in ((SLOTS // 2 - 60, now - (SLOTS // 2 - 60)), (SLOTS, now - (SLOTS // 2 - 60))):
        timers.begin_anew(TimerCheck(read_at_ms=(now - behind) * SECOND_MS), "for a test")
        assert timers.read_tick == expected
    timers.begin_anew(TimerCheck(read_at_ms=(now - 5) * SECOND_MS), "for a test")
    assert timers.read_tick == now - 5


def test_wheel_is_ahead_of_a_clock_that_was_set_back(timers: Timers) -> None:
    """By more than two clocks differ that are read one after the other."""
    now_ms = timers.now_ms()
    assert [timers.ahead_ms(now_ms - by) for by in (-5, 0, 2, 3, 1_000)] == [0, 0, 0, 3, 1_000]


def test_slots_that_wait_to_be_saved_are_bounded(tmp_path: pathlib.Path) -> None:
    """When saving has failed for long, no more messages are put; the number is said."""
    world = opened(tmp_path)
    tick = world.timers.write_tick + 1
    for ahead in range(1, 262_145):
        world.timers.wheel.put(tick + ahead, Slot(0, 0, 1))
    assert world.timers.put([message(tick)]) == 1
    with pytest.raises(StoreNotWritableError, match=r"^262145 slots of the timer wheel wait to be saved$"):
        world.timers.put([message(tick)])
    world.timers.close()
    world.directory.close_all()


@pytest.mark.parametrize("file_units", [1, 3])
def test_put_goes_on_in_the_next_file(tmp_path: pathlib.Path, file_units: int) -> None:
    """As many messages as a file has room for are put; the next call begins the next file."""
    world = opened(tmp_path, file_bytes=52 * file_units + 16)
    tick = world.timers.write_tick + 5
    messages = [message(tick, number) for number in range(7)]
    put = 0
    while put < 7:
        count = world.timers.put(messages[put:])
        put += count
        assert count == min(file_units, 7 - put + count)
    assert [unit.log_offset for unit in units(world.timers)] == [100 * number for number in range(7)]
    assert world.timers.wheel.slot(tick) == Slot(0, 6 // file_units * (52 * file_units + 16) + 6 % file_units * 52, 7)
    world.timers.close()
    world.directory.close_all()


@pytest.mark.parametrize(("broken", "is_damage"), [(0, True), (1, True), (2, True), (None, False)])
def test_unit_that_is_none_is_damage(timers: Timers, broken: int | None, is_damage: bool) -> None:
    """Also the very first one of the log; the position is said."""
    tick = timers.write_tick + 5
    timers.put([message(tick, number) for number in range(3)])
    if broken is not None:
        with open(timers.log.path_of(0), "r+b") as file:
            file.seek(52 * broken)
            file.write(bytes(52))
    slot = DueSlot(timers, tick)
    slot.load()
    words = f"the slot {tick} leads to {52 * (broken or 0)} of the timer log, where no unit of it stands"
    assert slot.damage == (words if is_damage else "")
