"""The units of a batch queue by themselves: bounds, searches, cuts, and how many messages a record holds."""

import pathlib
from collections.abc import Mapping

import pytest
from stores import LimitedFiles, new_record

from rocketlet.common.errors import MessageIllegalError
from rocketlet.common.message import COMPRESSED, INNER_BATCH
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import BatchPart, NewRecord, encode_batch
from rocketlet.store.consumequeue.batch_queue import (
    INNER_BATCH_FLAGS,
    UNIT,
    BatchQueue,
    Unit,
    count_of,
    encode_unit,
    number_inner_batch,
)
from rocketlet.store.consumequeue.consume_queue import QueueSpace
from rocketlet.store.files.files import OS_FILES, Descriptors, Files
from rocketlet.store.files.store_config import BATCH_UNIT_BYTES

PER_FILE = 10


def make_queue(folder: pathlib.Path, descriptors: Descriptors, files: Files = OS_FILES) -> BatchQueue:
    """Return a queue of ten units a file, without any yet."""
    space = QueueSpace(files, str(folder), PER_FILE * BATCH_UNIT_BYTES, descriptors, BATCH_UNIT_BYTES)
    return BatchQueue(space, "B", 0)


def unit_of(slot: int, begin: int = 0) -> Unit:
    """Return the unit of a slot: one to three messages, as the slot's number says."""
    first = begin + sum(1 + number % 3 for number in range(slot))
    return Unit(100 * slot, 90, slot, 5_000 + slot, first, 1 + slot % 3)


def fill(queue: BatchQueue, first: int, stop: int, begin: int = 0) -> None:
    """Write the units of slots."""
    for slot in range(first, stop):
        unit = unit_of(slot, begin)
        queue.pending.extend(encode_unit(unit.entry, unit.stored_at_ms, unit.first_offset, unit.message_count))
    queue.write_pending()


def bounds(queue: BatchQueue) -> tuple[int, int]:
    """Return the first offset and the one behind the last."""
    return queue.min_offset, queue.max_offset


def test_unit_ends_as_java_writes_it() -> None:
    """Behind the count stand -1 and 0."""
    assert UNIT.unpack(encode_unit((1, 2, 3), 4, 5, 6)) == (1, 2, 3, 4, 5, 6, -1, 0)


def test_new_queue_holds_nothing(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """It begins at -1, as Java tells it, and writes nothing."""
    queue = make_queue(tmp_path, descriptors)
    queue.write_pending()
    queue.find_end()
    assert (bounds(queue), queue.next_offset) == ((-1, 0), 0)
    assert (queue.unit(0), queue.unit(-1), queue.slot_of(0), queue.entry(0)) == (None, None, None, None)
    assert (list(queue.first_slots()), list(queue.units_of_file(0))) == ([], [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [1, 9, 10, 11, 25])
@pytest.mark.parametrize("begin", [0, 1_000])
def test_message_is_found_in_its_unit(count: int, begin: int, tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Each offset from the first to the last; the queue that is opened again knows the same."""
    written = make_queue(tmp_path, descriptors)
    written.begin_at(begin)
    assert (written.max_offset, written.next_offset) == (begin, begin)
    fill(written, 0, count, begin)
    again = make_queue(tmp_path, descriptors)
    again.slots.set_files(written.slots.first_base, written.slots.last_base)
    again.find_end()
    units = [unit_of(slot, begin) for slot in range(count)]
    for queue in (written, again):
        assert bounds(queue) == (begin, units[-1].next_offset)
        for offset in range(begin - 2, units[-1].next_offset + 2):
            slots = [slot for slot, one in enumerate(units) if one.first_offset <= offset < one.next_offset]
            assert queue.slot_of(offset) == next(iter(slots), None)
            assert queue.entry(offset) == next((units[slot].entry for slot in slots), None)
        assert [queue.unit(slot) for slot in range(-1, count + 1)] == [None, *units, None]
        assert list(queue.first_slots()) == list(range(0, count, PER_FILE))
    assert again.next_offset == units[-1].next_offset
    again.begin_at(5_000)
    assert again.next_offset == units[-1].next_offset


def test_units_are_given_to_the_end_of_their_file(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """From any slot on, and not behind the last one."""
    queue = make_queue(tmp_path, descriptors)
    fill(queue, 0, 25)
    for slot in range(26):
        stop = min(slot - slot % PER_FILE + PER_FILE, 25)
        assert list(queue.units_of_file(slot)) == [unit_of(number) for number in range(slot, stop)]


def test_units_of_a_large_file_are_all_given(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """However many are read together."""
    space = QueueSpace(OS_FILES, str(tmp_path), 1_000 * BATCH_UNIT_BYTES, descriptors, BATCH_UNIT_BYTES)
    queue = BatchQueue(space, "B", 0)
    fill(queue, 0, 600)
    for slot in (0, 1, 87, 88, 89, 343, 344, 345, 599):
        assert [unit.log_offset // 100 for unit in queue.units_of_file(slot)] == list(range(slot, 600))


@pytest.mark.parametrize("log_min", [0, 1, 100, 950, 1_000, 1_001, 2_400, 2_401])
def test_queue_begins_with_the_log(log_min: int, tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """At the first unit whose record is there; at its end when there is none, and nothing before is found."""
    queue = make_queue(tmp_path, descriptors)
    fill(queue, 0, 25)
    end = queue.max_offset
    queue.correct_min_offset(log_min)
    first = -(-log_min // 100)
    assert bounds(queue) == (unit_of(first).first_offset, end)
    assert queue.slot_of(unit_of(first).first_offset) == (first if first < 25 else None)
    if first:
        assert queue.slot_of(unit_of(first).first_offset - 1) is None
    queue.slots.drop_head(first // PER_FILE * PER_FILE * BATCH_UNIT_BYTES, first)
    assert list(queue.first_slots()) == list(range(first // PER_FILE * PER_FILE, 25, PER_FILE))


@pytest.mark.parametrize("slot", [0, 1, 9, 10, 11, 24, 25])
def test_cut_queue_ends_before_a_slot(slot: int, tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Its numbering goes on with what is left, and with nothing at 0."""
    queue = make_queue(tmp_path, descriptors)
    fill(queue, 0, 25)
    queue.cut_slots(slot)
    end = unit_of(slot).first_offset
    assert (bounds(queue), queue.next_offset) == ((0, end) if slot else (-1, 0), end)
    fill(queue, slot, 30)
    assert bounds(queue) == (0, unit_of(30).first_offset)
    assert queue.unit(slot) == unit_of(slot)


def test_removed_queue_begins_anew(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Nothing of it is left, neither on disk nor on its way."""
    queue = make_queue(tmp_path, descriptors)
    fill(queue, 0, 25)
    queue.next_offset += 7
    queue.pending.extend(bytes(46))
    queue.remove()
    assert (bounds(queue), queue.next_offset, len(queue.pending)) == ((-1, 0), 0, 0)
    assert not list((tmp_path / "B" / "0").iterdir())
    fill(queue, 0, 3)
    assert bounds(queue) == (0, 6)


@pytest.mark.parametrize("room", [0, 1, 3 * 46 - 1, 3 * 46, 9 * 46])
def test_units_that_find_no_room_are_written_later(room: int, tmp_path: pathlib.Path) -> None:
    """Messages are readable as far as their units were written; the rest follows when there is room."""
    disk = LimitedFiles()
    descriptors = Descriptors(disk, 8)
    queue = make_queue(tmp_path, descriptors, disk)
    fill(queue, 0, 7)
    disk.room = room
    with pytest.raises(OSError, match="No space"):
        fill(queue, 7, 21)
    written = 10 if room >= 3 * 46 else 7
    assert bounds(queue) == (0, unit_of(written).first_offset)
    disk.room = None
    queue.write_pending()
    assert bounds(queue) == (0, unit_of(21).first_offset)
    assert [queue.unit(slot) for slot in range(21)] == [unit_of(slot) for slot in range(21)]
    descriptors.close()


# --- how many messages a record holds


@pytest.mark.parametrize(
    ("sys_flag", "properties", "count"),
    [
        (0, {"INNER_NUM": "5"}, 1),
        (INNER_BATCH, {"INNER_NUM": "5"}, 5),
        (INNER_BATCH, {"INNER_NUM": "1"}, 1),
        (INNER_BATCH, {"INNER_NUM": "32767"}, 32_767),
        (INNER_BATCH, {"INNER_NUM": "32768"}, 1),
        (INNER_BATCH, {"INNER_NUM": "0"}, 1),
        (INNER_BATCH, {"INNER_NUM": "-5"}, 1),
        (INNER_BATCH, {"INNER_NUM": "²"}, 1),
        (INNER_BATCH, {"INNER_NUM": "٣"}, 1),
        (INNER_BATCH, {}, 1),
    ],
)
def test_record_says_how_many_messages_it_holds(sys_flag: int, properties: Mapping[str, str], count: int) -> None:
    """Only an inner batch holds several; a number that none can have counts as one."""
    assert count_of(sys_flag, properties) == count


def batch(count: int, said: str | None, flags: int) -> NewRecord:
    """Return an inner batch as a sender hands it over, with the number that it says."""
    body = encode_batch(BatchPart(0, b"%d" % number, b"") for number in range(count))
    record = new_record("B", 0, body, KEYS="k", **({} if said is None else {"INNER_NUM": said}))
    record.sys_flag |= INNER_BATCH_FLAGS | flags
    return record


@pytest.mark.parametrize(
    ("count", "said", "flags", "expected"),
    [
        (1, None, 0, 1),
        (3, None, 0, 3),
        (3, "3", 0, 3),
        (3, "7", COMPRESSED, 7),
        (3, "1", COMPRESSED, 1),
        (3, "32767", COMPRESSED, 32_767),
    ],
)
def test_batch_gets_count_and_first_offset(count: int, said: str | None, flags: int, expected: int) -> None:
    """The sender is believed where the body is compressed; its other properties stay, and its own record."""
    record = batch(count, said, flags)
    numbered, found = number_inner_batch(record, 42)
    assert found == expected
    properties = {"KEYS": "k", "INNER_NUM": str(expected), "INNER_BASE": "42"}
    assert numbered.properties == properties
    assert numbered.property_text == encode_properties(properties)
    assert "INNER_BASE" not in record.properties


@pytest.mark.parametrize(
    ("count", "said", "flags", "told"),
    [
        (0, None, 0, 0),
        (3, "2", 0, 3),
        (3, "x", 0, 3),
        (3, None, COMPRESSED, 0),
        (3, "0", COMPRESSED, 0),
        (3, "²", COMPRESSED, 0),
        (3, "-1", COMPRESSED, 0),
        (3, "32768", COMPRESSED, 32_768),
        (3, "03", COMPRESSED, 3),
    ],
)
def test_batch_of_a_wrong_count_is_refused(count: int, said: str | None, flags: int, told: int) -> None:
    """The error holds what was found, what was said and the limit."""
    words = f"^inner batch of {told} messages, INNER_NUM is {said}, limit is 32767$"
    with pytest.raises(MessageIllegalError, match=words):
        number_inner_batch(batch(count, said, flags), 42)
