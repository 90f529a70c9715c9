"""Reading a slot of the timer wheel."""

import pathlib
from collections.abc import Iterator
from itertools import count

import pytest
from timers import SECOND_MS, TimerWorld, timer_directory

from rocketlet.common.record import decode_record
from rocketlet.store.timer.timer_log import UNIT_BYTES, TimerUnit, UnitReader, encode_unit
from rocketlet.store.timer.timers import MOST_RECORDS, DueSlot, TimedMessage

MANY = 1_300  # more than two parts


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[TimerWorld]:
    """Give a store without timer messages, with longer files of the timer log."""
    made = TimerWorld(timer_directory(tmp_path / "store", file_bytes=1_000 * UNIT_BYTES))
    yield made
    made.timers.close()
    made.directory.close_all()


def fill(world: TimerWorld, count: int) -> int:
    """Put messages for one second into the wheel, with others between them; return its tick."""
    at_ms = world.now_ms + 5 * SECOND_MS
    for number in range(count):
        world.send(b"%d" % number, at_ms)
        if number % 10 == 0:
            world.send(b"other", at_ms + SECOND_MS)
    world.work()
    return at_ms // SECOND_MS - 1


def read(slot: DueSlot) -> list[bytes]:
    """Return the bodies of a slot, in the order in which they are loaded."""
    bodies: list[bytes] = []
    while not slot.is_finished:
        slot.load()
        assert len(slot.batch) <= MOST_RECORDS
        bodies += [bytes(decode_record(due.record).body) for due in slot.batch if due.record is not None]
        slot.batch.clear()
    return bodies


@pytest.mark.parametrize("count", [1, MOST_RECORDS, 512, 513, MANY])
def test_messages_are_read_in_their_order(count: int, world: TimerWorld) -> None:
    """Oldest first, however many there are and over the ends of files, with few records in memory at a time."""
    slot = DueSlot(world.timers, fill(world, count))
    assert read(slot) == [b"%d" % number for number in range(count)]
    assert not slot.damage


def test_deletions_are_known_before_the_first_message(world: TimerWorld) -> None:
    """Whoever deletes is read first, wherever it stands in the slot."""
    at_ms = world.now_ms + 5 * SECOND_MS
    for number in range(100):
        world.send(b"%d" % number, at_ms)
    world.recall("U7", at_ms)
    world.work()
    slot = DueSlot(world.timers, at_ms // SECOND_MS - 1)
    slot.load()
    assert slot.deleted == {"U7"}
    assert len(slot.batch) == MOST_RECORDS


def test_deletions_are_known_wherever_they_stand_in_a_long_slot(world: TimerWorld) -> None:
    """The oldest, one in the middle and the newest unit of a slot that is read in several parts."""
    at_ms = world.now_ms + 5 * SECOND_MS
    for number in range(MANY):
        if number in {0, MANY // 2}:
            world.recall(f"U{number}", at_ms)
        world.send(b"%d" % number, at_ms)
    world.recall("Ulast", at_ms)
    world.work()
    slot = DueSlot(world.timers, at_ms // SECOND_MS - 1)
    slot.load()
    assert slot.deleted == {"U0", f"U{MANY // 2}", "Ulast"}


def test_empty_slot_is_finished(world: TimerWorld) -> None:
    """A tick without messages has nothing to load."""
    tick = fill(world, 1)
    slot = DueSlot(world.timers, tick + 50)
    slot.load()
    assert slot.is_finished


def test_records_that_are_gone(world: TimerWorld) -> None:
    """A unit whose record has left the log, or that is another record's, is loaded without it."""
    tick = fill(world, 1)
    world.timers.put([TimedMessage(tick * SECOND_MS, place, 90, 5) for place in (1 << 40, 3)])
    slot = DueSlot(world.timers, tick)
    slot.load()
    assert [due.record is None for due in slot.batch] == [False, True, True]


@pytest.mark.parametrize("place", [0, 600, 1_199])
def test_damaged_chain_is_told(place: int, world: TimerWorld) -> None:
    """A unit that is none, anywhere in the slot, is damage: nothing is loaded."""
    tick = fill(world, MANY)
    log, units = world.timers.log, 999
    path = pathlib.Path(log.path_of(place // units * log.file_bytes))
    content, start = bytearray(path.read_bytes()), place % units * UNIT_BYTES
    content[start : start + 5 * UNIT_BYTES] = bytes(5 * UNIT_BYTES)
    path.write_bytes(content)
    slot = DueSlot(world.timers, tick)
    slot.load()
    assert "where no unit of it stands" in slot.damage
    assert slot.batch == []


MOST_READS = 200


@pytest.mark.parametrize("leads_to", ["itself", "a later unit", "another slot"])
def test_chain_that_leads_elsewhere_is_damage(
    leads_to: str, world: TimerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain that goes round is told instead of followed for ever; so is one that goes on in a neighbour's slot."""
    tick = fill(world, 30)
    with UnitReader(world.disk, world.timers.log) as reader:
        units = dict(reader.scan(0))
    own = [position for position, unit in units.items() if unit.due_at_ms // SECOND_MS == tick]
    at = own[15]
    neighbour = max(position for position in units if position < at and position not in own)
    previous = {"itself": at, "a later unit": own[25], "another slot": neighbour}[leads_to]
    path = pathlib.Path(world.timers.log.path_of(at))
    content = bytearray(path.read_bytes())
    content[at : at + UNIT_BYTES] = encode_unit(units[at]._replace(previous=previous))
    path.write_bytes(content)
    reads, read = count(), UnitReader.unit

    def read_or_give_up(self: UnitReader, position: int) -> TimerUnit | None:
        assert next(reads) < MOST_READS, "it goes round"
        return read(self, position)

    monkeypatch.setattr(UnitReader, "unit", read_or_give_up)
    slot = DueSlot(world.timers, tick)
    slot.load()
    bad = neighbour if leads_to == "another slot" else at
    assert f"leads to {bad} of the timer log, where no unit of it stands" in slot.damage
    assert slot.batch == []
