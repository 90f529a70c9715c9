"""Timer messages on their way into the wheel and out of it, on a store without a broker."""

import logging
import pathlib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from stores import LimitedFiles, StoreDirectory, new_record
from timers import DAY_MS, HOUR_MS, SECOND_MS, SMALL_TIMERS, UNITS_PER_FILE, TimerWorld, timer_directory

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.common.names import TIMER_TOPIC
from rocketlet.common.properties import MAX_PROPERTIES_BYTES, encode_properties
from rocketlet.store.files.store_config import TimerConfig

MOST_MESSAGES = 32
NEVER_PUT_MS = 2**63 - 1


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[TimerWorld]:
    """Give a store without timer messages, on a disk that can be full."""
    made = TimerWorld(timer_directory(tmp_path / "store"), LimitedFiles())
    yield made
    made.timers.close()
    made.directory.close_all()


def disk(world: TimerWorld) -> LimitedFiles:
    """Return the disk."""
    assert isinstance(world.disk, LimitedFiles)
    return world.disk


@pytest.mark.feature("L6")
@pytest.mark.parametrize("ahead_ms", [1, 999, 1_000, 1_001, 3_000, 3_500, 86_400_000, 259_200_000])
@pytest.mark.parametrize("start_ms", [0, 1, 500, 999])
def test_message_comes_when_its_second_is_over(ahead_ms: int, start_ms: int, world: TimerWorld) -> None:
    """Never before the time asked for, and at the next full second at the latest."""
    world.directory.now_ms += start_ms
    at_ms = world.now_ms + ahead_ms
    world.send(b"timed", at_ms)
    world.pass_to(at_ms - 1)
    assert world.bodies() == []
    world.pass_to(-(-at_ms // SECOND_MS) * SECOND_MS)
    assert world.bodies() == [b"timed"]


def test_no_work_while_nothing_is_due(world: TimerWorld) -> None:
    """There is one deadline, that of the next slot; reading the clock is all that happens before it."""
    assert world.delivery.due_at_ms is None
    start_ms = world.now_ms
    world.send(b"later", start_ms + HOUR_MS)
    world.work()
    assert (world.delivery.due_at_ms, world.delivery.is_idle) == (start_ms + HOUR_MS, True)
    world.delivery.has_arrivals.clear()
    world.send(b"sooner", start_ms + 60 * SECOND_MS)
    assert (world.delivery.has_arrivals.is_set(), world.delivery.is_idle) == (True, False)
    world.work()
    assert world.delivery.due_at_ms == start_ms + 60 * SECOND_MS
    world.directory.now_ms = start_ms + 59 * SECOND_MS
    assert world.delivery.is_idle
    world.pass_ms(HOUR_MS)
    assert (world.delivery.due_at_ms, world.bodies()) == (None, [b"sooner", b"later"])


def test_messages_of_a_second_come_in_their_order(world: TimerWorld) -> None:
    """Those of one slot in the order of sending, slots in the order of time."""
    at_ms = world.now_ms + 10 * SECOND_MS
    for number in range(100):
        world.send(b"%02d" % number, at_ms + number % 2 * SECOND_MS)
    world.pass_ms(20 * SECOND_MS)
    assert world.bodies() == [b"%02d" % number for number in (*range(0, 100, 2), *range(1, 100, 2))]


def test_turn_does_a_bounded_piece(world: TimerWorld) -> None:
    """However much waits, a turn of the loop takes a few messages, in and out."""
    count, at_ms = 5 * MOST_MESSAGES, world.now_ms + 5 * SECOND_MS
    for number in range(count):
        world.send(b"%d" % number, at_ms)
    steps = 0
    world.directory.now_ms = at_ms
    while not world.delivery.is_idle:
        before = world.timers.queue_offset, len(world.bodies())
        slow = world.delivery.advance()
        if slow is not None:
            slow()
        after = world.timers.queue_offset, len(world.bodies())
        assert sum(after) - sum(before) <= MOST_MESSAGES
        steps += 1
    assert len(world.bodies()) == count
    assert steps >= 10


def test_what_comes_and_what_is_due_take_turns(world: TimerWorld) -> None:
    """While a second is being delivered, what has arrived is put into the wheel in between, neither waits for all."""
    count, at_ms = 6 * MOST_MESSAGES, world.now_ms + 5 * SECOND_MS
    for number in range(count):
        world.send(b"%d" % number, at_ms)
    world.work()
    before = world.delivery.taken_out
    world.directory.now_ms = at_ms + SECOND_MS
    while not world.bodies():
        _advance(world)
    for number in range(count):
        world.send(b"later %d" % number, at_ms + HOUR_MS)
    turns = ""
    while not world.delivery.is_idle:
        put, delivered = world.timers.queue_offset, len(world.bodies())
        _advance(world)
        turns += "i" * (world.timers.queue_offset > put) + "o" * (len(world.bodies()) > delivered)
    assert turns[:6] in ("iioiio", "ioiioi", "oiioii")  # what comes out is loaded and stored in two turns
    assert world.delivery.taken_out - before == len(world.bodies()) == count


def _advance(world: TimerWorld) -> None:
    slow = world.delivery.advance()
    if slow is not None:
        slow()


def test_message_for_the_second_that_is_coming_out_is_not_lost(world: TimerWorld) -> None:
    """What arrives for a slot whose messages are being delivered is late, and comes at once."""
    count, at_ms = 3 * MOST_MESSAGES, world.now_ms + 5 * SECOND_MS
    for number in range(count):
        world.send(b"%d" % number, at_ms)
    world.work()
    world.directory.now_ms = at_ms + SECOND_MS
    while not world.bodies():
        slow = world.delivery.advance()
        if slow is not None:
            slow()
    assert len(world.bodies()) < count
    properties = {**world.records(TIMER_TOPIC)[0].properties, "UNIQ_KEY": "late"}
    world.store.append(new_record(TIMER_TOPIC, 0, b"late", **properties))
    world.store.commit()
    world.work()
    assert sorted(world.bodies()) == sorted([b"late", *(b"%d" % number for number in range(count))])


@pytest.mark.feature("L8")
def test_deletion_that_was_stored_in_time_is_obeyed(world: TimerWorld) -> None:
    """Though nobody looks at the topic until the time has passed, as after a stop: the backlog goes first."""
    at_ms = world.now_ms + 10 * SECOND_MS
    for number in range(3 * MOST_MESSAGES):
        world.send(b"%d" % number, at_ms)
    world.recall("U5", at_ms)
    world.recall("U90", at_ms)
    world.stop()
    world.directory.now_ms = at_ms + HOUR_MS
    world.start()
    world.work()
    came = set(world.bodies())
    assert came == {b"%d" % number for number in range(3 * MOST_MESSAGES) if number not in (5, 90)}


@pytest.mark.feature("L8")
def test_deletion_of_another_second_deletes_nothing(world: TimerWorld) -> None:
    """It counts in its own slot only, and is never delivered itself."""
    at_ms = world.now_ms + 10 * SECOND_MS
    world.send(b"1", at_ms)
    world.recall("U1", at_ms + SECOND_MS)
    world.recall("U1", at_ms - SECOND_MS)
    world.pass_ms(20 * SECOND_MS)
    assert world.bodies() == [b"1"]


@pytest.mark.feature("L8")
def test_deletion_beside_its_target_in_the_slot(world: TimerWorld) -> None:
    """It may stand before or behind it, has a key of its own, and deletes no neighbour; it is not delivered itself."""
    at_ms = world.now_ms + 10 * SECOND_MS
    world.send(b"early", at_ms, UNIQ_KEY="own1", TIMER_DEL_UNIQKEY="U2")
    for number in range(5):
        world.send(b"%d" % number, at_ms)
    world.send(b"late", at_ms, UNIQ_KEY="own2", TIMER_DEL_UNIQKEY="U4")
    world.pass_ms(20 * SECOND_MS)
    assert world.bodies() == [b"0", b"1", b"3"]


@pytest.mark.feature("L8")
def test_deletion_rolls_with_its_target(world: TimerWorld) -> None:
    """Both go round together, and meet in the slot of the time asked for."""
    at_ms = world.now_ms + 3 * DAY_MS
    world.send(b"kept", at_ms)
    world.send(b"gone", at_ms)
    world.pass_ms(HOUR_MS)
    world.recall("Ugone", at_ms)
    world.pass_ms(3 * DAY_MS)
    assert world.bodies() == [b"kept"]
    assert [one.properties.get("TIMER_ROLL_TIMES") for one in world.records(TIMER_TOPIC)] == [None] * 3 + ["1"] * 3


@pytest.mark.feature("L8")
def test_both_forms_of_a_deletion_count(world: TimerWorld) -> None:
    """Brokers before 5.4.0 name the topic as well; another topic's message of the same key stays then."""
    at_ms = world.now_ms + 10 * SECOND_MS
    world.send(b"here", at_ms, UNIQ_KEY="K")
    world.send(b"there", at_ms, "Other", UNIQ_KEY="K")
    world.send(b"0", at_ms, UNIQ_KEY="K", TIMER_DEL_UNIQKEY="T+K")
    world.pass_ms(20 * SECOND_MS)
    assert (world.bodies(), world.bodies("Other")) == ([], [b"there"])


def test_message_comes_late_but_at_once(world: TimerWorld) -> None:
    """One whose slot has been taken does not wait for another turn of the wheel; it says that it never was in it."""
    out_ms = world.now_ms - HOUR_MS
    properties = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": "K"}
    world.send(b"first", world.now_ms + SECOND_MS)
    world.pass_ms(SECOND_MS)
    world.store.append(new_record(TIMER_TOPIC, 0, b"late", **properties))
    world.store.append(new_record(TIMER_TOPIC, 0, b"0", **properties, TIMER_DEL_UNIQKEY="K"))
    world.store.commit()
    world.work()
    assert world.bodies() == [b"first", b"late"]
    assert world.records()[1].properties["TIMER_ENQUEUE_MS"] == str(NEVER_PUT_MS)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"TIMER_OUT_MS": "soon", "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": str(2**63 - 1), "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "-1", "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "1750000003000", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "1750000003000", "REAL_TOPIC": "T", "REAL_QID": "-1"},
    ],
)
def test_record_that_says_nothing_is_passed_over(
    properties: dict[str, str], world: TimerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever somebody has sent to the timer topic, those behind it come; Java's wheel stops there for good."""
    world.store.append(new_record(TIMER_TOPIC, 0, b"?", **properties))
    world.store.commit()
    world.send(b"behind", world.now_ms + 3 * SECOND_MS)
    world.pass_ms(10 * SECOND_MS)
    assert world.bodies() == [b"behind"]
    assert caplog.text.count("ing the timer message at ") == 1


def test_properties_without_room_stay_as_they_are(world: TimerWorld) -> None:
    """A message whose properties take all the room is delivered without what the wheel would add."""
    named = {"TIMER_OUT_MS": str(world.now_ms), "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": "K"}
    named["filler"] = "x" * (MAX_PROPERTIES_BYTES - len(encode_properties({**named, "filler": ""})))
    new = new_record(TIMER_TOPIC, 0, b"full", **named)
    assert len(new.property_text) == MAX_PROPERTIES_BYTES
    world.store.append(new)
    world.store.commit()
    world.pass_ms(10 * SECOND_MS)
    (record,) = world.records()
    assert (record.property_text, bytes(record.body)) == (new.property_text, b"full")


def test_full_store_is_tried_again(world: TimerWorld) -> None:
    """While the store takes no record nothing is lost and nothing repeated, however often it is tried."""
    for number in range(2 * MOST_MESSAGES):
        world.send(b"%d" % number, world.now_ms + 5 * SECOND_MS)
    world.work()
    world.directory.now_ms += 10 * SECOND_MS
    disk(world).room = 1_000
    for _ in range(10):
        try:
            world.work()
        except (StoreNotWritableError, OSError):
            disk(world).room = (disk(world).room or 0) + 700
    disk(world).room = None
    world.store.tick()
    world.work()
    assert world.bodies() == [b"%d" % number for number in range(2 * MOST_MESSAGES)]


def test_full_disk_keeps_messages_in_the_topic(world: TimerWorld) -> None:
    """While the timer log takes no unit messages wait in their topic; then they are put, each once."""
    world.send(b"first", world.now_ms + 5 * SECOND_MS)
    world.work()
    for number in range(40):
        world.send(b"%d" % number, world.now_ms + 5 * SECOND_MS)
    disk(world).room = 100
    with pytest.raises(OSError, match="No space"):
        world.work()
    disk(world).room = None
    world.pass_ms(10 * SECOND_MS)
    assert world.bodies() == [b"first", *(b"%d" % number for number in range(40))]


def test_records_that_are_not_in_memory_are_read_elsewhere(world: TimerWorld) -> None:
    """What lies far from the end of the log is read by another thread, both on the way in and out."""
    world.stop()
    world.directory.config = replace(world.directory.config, in_memory_percent=0)
    world.start()
    for number in range(3):
        world.send(b"%d" % number, world.now_ms + 2 * SECOND_MS)
    slow = world.delivery.advance()
    assert slow is not None  # opens the files
    slow()
    slow = world.delivery.advance()
    assert slow is not None
    assert world.timers.queue_offset == 0
    slow()
    assert world.delivery.advance() is None
    assert world.timers.queue_offset == 3
    world.pass_ms(2 * SECOND_MS)
    assert world.bodies() == [b"0", b"1", b"2"]


def test_wheel_that_is_full_waits_for_its_slots(tmp_path: pathlib.Path) -> None:
    """A message whose place in the wheel is still another one's waits until that one has been delivered."""
    directory = timer_directory(tmp_path / "store", wheel_slots=200, roll_window_setting=30)
    world = TimerWorld(directory)
    world.send(b"old", world.now_ms + 10 * SECOND_MS)
    world.work()
    world.stop()
    directory.now_ms += 500 * SECOND_MS
    world.start()
    world.send(b"new", world.now_ms + 20 * SECOND_MS)
    world.work()
    assert world.bodies() == [b"old"]
    world.pass_ms(20 * SECOND_MS)
    assert world.bodies() == [b"old", b"new"]
    world.stop()


def test_messages_whose_log_file_is_gone_are_passed_over(tmp_path: pathlib.Path) -> None:
    """What lies in the wheel and not in the log any more is skipped; those of later files come, each once."""
    small = StoreDirectory(tmp_path / "store", segment_bytes=4096, has_index=False, timers=TimerConfig(**SMALL_TIMERS))
    world = TimerWorld(small)
    bodies = [b"%d" % number * 1_000 for number in range(7)]
    for body in bodies:
        world.send(body, world.now_ms + 5 * SECOND_MS, UNIQ_KEY=body[:1].decode())
    world.work()
    world.stop()
    min(pathlib.Path(small.config.log_directories[0]).iterdir()).unlink()
    world.start()
    world.pass_ms(10 * SECOND_MS)
    assert world.bodies() == bodies[3:]
    world.stop()


@pytest.mark.parametrize("is_in_wheel", [True, False])
def test_record_that_is_damaged_costs_itself_only(is_in_wheel: bool, world: TimerWorld) -> None:
    """Its neighbours come, in their order; once more if the wheel, which leads to it, is made anew meanwhile."""
    at_ms = world.now_ms + 5 * SECOND_MS
    places = [world.send(b"%d" % number, at_ms) for number in range(5)]
    if is_in_wheel:
        world.work()
    world.store.flush()
    (log,) = pathlib.Path(world.directory.config.log_directories[0]).iterdir()
    with log.open("r+b") as file:
        file.seek(places[2].log_offset + 4)
        file.write(b"\xff\xff\xff\xff")
    world.pass_ms(10 * SECOND_MS)
    assert world.bodies() == [b"0", b"1"] * is_in_wheel + [b"0", b"1", b"3", b"4"]
    assert world.delivery.is_idle


def test_timer_log_without_its_first_file_is_made_anew(world: TimerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """It is noticed at the start, and what stood in that file comes with the rest."""
    for number in range(2 * UNITS_PER_FILE):
        world.send(b"%d" % number, world.now_ms + HOUR_MS)
    world.work()
    world.stop()
    min(world.directory.root.joinpath("timerlog").iterdir()).unlink()
    world.start()
    with caplog.at_level(logging.WARNING):
        world.work()
    assert f"files of the timer log are missing before {52 * UNITS_PER_FILE + 16}" in caplog.text
    world.pass_ms(HOUR_MS)
    assert world.bodies() == [b"%d" % number for number in range(2 * UNITS_PER_FILE)]


def test_record_that_is_gone_is_no_error(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """A message whose file of the log went before it was put into the wheel is passed over in silence."""
    small = StoreDirectory(tmp_path / "store", segment_bytes=4096, has_index=False, timers=TimerConfig(**SMALL_TIMERS))
    world = TimerWorld(small)
    for number in range(7):
        world.send(b"%d" % number * 1_000, world.now_ms + 5 * SECOND_MS, UNIQ_KEY=str(number))
    world.stop()
    small.segment().unlink()
    world.start()
    with caplog.at_level(logging.ERROR):
        world.pass_ms(10 * SECOND_MS)
    assert ([body[:1] for body in world.bodies()], caplog.text) == ([b"3", b"4", b"5", b"6"], "")
    world.stop()


def test_kill_repeats_nothing_though_the_topic_lost_its_beginning(tmp_path: pathlib.Path) -> None:
    """The log tells what was delivered, also when the first files of the timer topic have gone."""
    sizes = {"segment_bytes": 4096, "queue_file_bytes": 200}
    small = StoreDirectory(tmp_path / "store", **sizes, has_index=False, timers=TimerConfig(**SMALL_TIMERS))
    world = TimerWorld(small)
    bodies = [b"%02d" % number + bytes(300) for number in range(20)]
    for body in bodies:
        world.send(body, world.now_ms + 5 * SECOND_MS, UNIQ_KEY=body[:2].decode())
    world.work()
    world.save()
    world.pass_ms(10 * SECOND_MS)
    world.kill("killed")
    world.directory.segment().unlink()
    world.directory.queue_file(TIMER_TOPIC).unlink()
    world.start()
    world.pass_ms(10 * SECOND_MS)
    assert [body[:2] for body in world.bodies()] == [body[:2] for body in bodies]
    world.stop()
