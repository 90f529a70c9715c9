"""Which files of the timer log go."""

import pathlib
from collections.abc import Iterator

import pytest
from timers import DAY_MS, HOUR_MS, SECOND_MS, UNITS_PER_FILE, TimerWorld, timer_directory

from rocketlet.broker.delay.timer_delivery import TimerDelivery
from rocketlet.store.timer.timer_log import UnitReader, find_log_start
from rocketlet.store.timer.timers import TimedMessage


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[TimerWorld]:
    """Give a store without timer messages."""
    made = TimerWorld(timer_directory(tmp_path / "store"))
    yield made
    made.stop()


def files(world: TimerWorld) -> list[int]:
    """Return the numbers of the files of the timer log."""
    names = [path.name for path in pathlib.Path(world.timers.log.directory).iterdir()]
    return sorted(int(name) // world.timers.log.file_bytes for name in names)


def put(world: TimerWorld, *places: int) -> None:
    """Put units that lead to places of the log."""
    messages = [TimedMessage(world.now_ms + HOUR_MS, place, 90, 5) for place in places]
    while messages:
        messages = messages[world.timers.put(messages) :]


@pytest.mark.feature("S26")
def test_files_go_with_the_records_that_they_lead_to(world: TimerWorld) -> None:
    """A file whose units all lead before the beginning of the log goes; the first that does not ends it."""
    world.send(b"0", world.now_ms + SECOND_MS)
    world.work()
    put(world, *range(100, 100 * 5 * UNITS_PER_FILE, 100))
    assert files(world) == [0, 1, 2, 3, 4]
    log, last_of_first = world.timers.log, 100 * (UNITS_PER_FILE - 1)
    assert find_log_start(world.disk, log, last_of_first) == 0
    assert find_log_start(world.disk, log, last_of_first + 1) == log.file_bytes
    world.timers.clean(100 * 3 * UNITS_PER_FILE)
    assert (files(world), log.first_base) == ([3, 4], 3 * log.file_bytes)
    world.timers.clean(1 << 40)
    assert files(world) == [4]


def test_older_unit_that_is_needed_keeps_its_file(world: TimerWorld) -> None:
    """After messages were read again the last unit of a file need not be the newest; Java would remove the file."""
    world.send(b"0", world.now_ms + SECOND_MS)
    world.work()
    put(world, *([50_000] * 3), *([10] * UNITS_PER_FILE))
    assert find_log_start(world.disk, world.timers.log, 40_000) == 0
    assert find_log_start(world.disk, world.timers.log, 50_001) == world.timers.log.file_bytes


def test_messages_behind_the_cut_still_come(world: TimerWorld) -> None:
    """A slot whose first units are gone with their records delivers the others, also after a restart."""
    at_ms = world.now_ms + DAY_MS
    for number in range(3 * UNITS_PER_FILE):
        world.send(b"%d" % number, at_ms)
    world.work()
    world.save()
    with UnitReader(world.disk, world.timers.log) as reader:
        units = dict(reader.scan(0))
    first = units[2 * world.timers.log.file_bytes].log_offset
    log = world.store._log  # pyright: ignore[reportPrivateUsage] # as if its first files had been deleted
    log.min_offset = first
    world.timers.clean(first)
    assert files(world) == [2]
    world.timers.close()
    world.delivery = TimerDelivery(world.store, world.store.timers(), world.store.commit, lambda: world.now_ms)
    world.timers = world.delivery.timers
    world.pass_to(at_ms)
    wanted = [b"%d" % number for number in range(2 * UNITS_PER_FILE, 3 * UNITS_PER_FILE)]
    assert (world.bodies(), world.timers.log.first_base) == (wanted, 2 * world.timers.log.file_bytes)
    log.min_offset = 0
