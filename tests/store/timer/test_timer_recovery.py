"""Opening the timer files after whatever happened."""

import logging
import pathlib
import shutil
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from stores import GoldenStore, StoreDirectory
from syncs import RecordedSyncs
from timers import DAY_MS, HOUR_MS, SECOND_MS, UNITS_PER_FILE, TimerWorld, timer_directory

from rocketlet.common.errors import ConfigError
from rocketlet.common.record import Record
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.store_config import TimerConfig
from rocketlet.store.timer.timer_check import REBUILDING, TimerCheck, load_timer_check, save_timer_check
from rocketlet.store.timer.timer_wheel import Slot

SAVED_MS = 1_795_249_707_000  # how far the Java broker of the recorded directory had come
REVIVE = "rmq_sys_REVIVE_LOG_GoldenCluster"


@pytest.fixture
def world(tmp_path: pathlib.Path) -> TimerWorld:
    """Give a store without timer messages."""
    return TimerWorld(timer_directory(tmp_path / "store"))


def java_world(golden: Callable[[str], GoldenStore]) -> TimerWorld:
    """Open the directory that a Java broker wrote, a second after its end."""
    store = golden("delay-retry")
    store.directory.now_ms = SAVED_MS + SECOND_MS
    return TimerWorld(store.directory)


def told(records: list[Record]) -> list[tuple[bytes, int, str]]:
    """Return the records that have come out of the wheel here: body or key, store time, rolls."""
    return [
        (bytes(one.body), one.stored_at_ms, one.properties.get("TIMER_ROLL_TIMES", ""))
        for one in records
        if one.stored_at_ms > SAVED_MS
    ]


@pytest.mark.feature("L6", "S26")
def test_messages_that_java_left_waiting_come_in_time(golden: Callable[[str], GoldenStore]) -> None:
    """Each at the end of its second, once; the recalled one never, the rolled one on the third day."""
    world = java_world(golden)
    world.work()
    assert told(world.records("TimerTopic")) == []
    assert world.delivery.due_at_ms == 1_795_253_267_000
    world.pass_ms(4 * DAY_MS)
    came = told(world.records("TimerTopic"))
    hour, day, days = (1_795_249_667_000 + ahead for ahead in (HOUR_MS, DAY_MS, 250_560 * SECOND_MS))
    assert [(at_ms, rolls) for _, at_ms, rolls in came] == [(hour, "")] * 3 + [(day, ""), (days, "1")]
    revived = [told(world.records(REVIVE, queue_id)) for queue_id in range(8)]
    assert sum(map(len, revived)) == 3
    assert not any(one.properties.get("TAGS") == "_RECALL_TAG_" for one in world.records("TimerTopic"))
    world.stop()


@pytest.mark.feature("S26")
def test_files_of_java_stay_as_they_are(golden: Callable[[str], GoldenStore]) -> None:
    """A start and a stop with nothing to do change no byte of wheel and log."""
    world = java_world(golden)
    root = world.directory.root
    paths = [root / "timerwheel", root / "timerlog" / ("0" * 20)]
    before = [path.read_bytes() for path in paths]
    world.work()
    world.stop()
    assert [path.read_bytes() for path in paths] == before
    check = load_timer_check(OS_FILES, str(root / "config" / "timercheck"))
    assert check is not None
    assert check[1:4] == (728, 14, 14)
    assert check.read_at_ms >= SAVED_MS


def test_clean_restart_goes_on(world: TimerWorld) -> None:
    """What waits stays in the wheel, nothing is put again, and nothing was read of the topic."""
    for number in range(30):
        world.send(b"%d" % number, world.now_ms + (1 + number % 7) * SECOND_MS)
    world.pass_ms(3 * SECOND_MS)
    came, end = world.bodies(), world.timers.log.end
    world.restart()
    world.work()
    assert (world.bodies(), world.timers.log.end) == (came, end)
    world.pass_ms(10 * SECOND_MS)
    assert sorted(world.bodies()) == sorted(b"%d" % number for number in range(30))
    world.stop()


@pytest.mark.parametrize("days", [9, 13, 20, 400])
def test_long_stop_loses_nothing(days: int, world: TimerWorld) -> None:
    """After weeks, more than Java's wheel keeps of the past, everything overdue comes at once."""
    for hours in (1, 30, 60):
        world.send(b"%d" % hours, world.now_ms + hours * HOUR_MS)
    world.work()
    world.send(b"not put", world.now_ms + 2 * HOUR_MS)
    world.stop()
    world.directory.now_ms += days * DAY_MS
    world.start()
    world.work()
    assert sorted(world.bodies()) == [b"1", b"30", b"60", b"not put"]
    world.stop()


def test_kill_puts_nothing_twice(world: TimerWorld) -> None:
    """Units that were written after the last save stay; their messages are passed over when the topic is read again."""
    world.send(b"saved", world.now_ms + HOUR_MS)
    world.work()
    world.save()
    for number in range(5):
        world.send(b"%d" % number, world.now_ms + HOUR_MS)
    world.work()
    end = world.timers.log.end
    world.kill("again")
    world.start()
    world.work()
    assert (world.timers.log.end, world.timers.count_at(world.now_ms + HOUR_MS - 1)) == (end, 6)
    world.pass_ms(HOUR_MS)
    assert sorted(world.bodies()) == [b"0", b"1", b"2", b"3", b"4", b"saved"]
    world.stop()


def test_units_of_a_killed_process_are_flushed_with_the_next_save(tmp_path: pathlib.Path) -> None:
    """All files since the last save: the wheel must not lead to units that a power loss takes."""
    disk = RecordedSyncs()
    world = TimerWorld(timer_directory(tmp_path / "store"), disk)
    world.send(b"saved", world.now_ms + HOUR_MS)
    world.work()
    world.save()
    for number in range(2 * UNITS_PER_FILE):
        world.send(b"%d" % number, world.now_ms + HOUR_MS)
    world.work()
    files = [f"timerlog/{base:020}" for base in range(0, world.timers.log.end, world.timers.log.file_bytes)]
    world.kill("copy0")
    world.start()
    world.work()
    disk.synced.clear()
    world.save()
    assert disk.synced[-4 - len(files) :] == [*files, "/", "timerlog/", "timerwheel", "config/timercheck"]
    assert len(files) == 3
    world.stop()


def test_units_without_record_are_cut_off(world: TimerWorld) -> None:
    """Units that lead behind the end of the log, as a power loss may leave them, go; the topic says what is due."""
    world.send(b"kept", world.now_ms + HOUR_MS)
    world.work()
    world.save()
    log_end, queue_end = world.store.log_max_offset, world.timers.log.end
    world.send(b"lost", world.now_ms + HOUR_MS)
    world.work()
    world.kill("again")
    _forget(world.directory, log_end)
    world.start()
    world.work()
    assert world.timers.log.end == queue_end
    world.send(b"other", world.now_ms + HOUR_MS)
    world.pass_ms(HOUR_MS)
    assert world.bodies() == [b"kept", b"other"]
    world.stop()


def _forget(directory: StoreDirectory, log_end: int) -> None:
    """Let the log end earlier, and the queues with it."""
    segment = directory.segment()
    segment.write_bytes(segment.read_bytes()[:log_end].ljust(directory.config.segment_bytes, b"\0"))
    shutil.rmtree(directory.root / "consumequeue")


@pytest.mark.parametrize("changed", [{"precision_ms": 500}, {"precision_ms": 2_000}, {"wheel_slots": 2_000}])
def test_other_wheel_is_made_anew(changed: dict[str, int], world: TimerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """With another precision, or a wheel of another length, the messages are read again, and come once."""
    for number in range(5):
        world.send(b"%d" % number, world.now_ms + number * 60_000)
    world.pass_ms(61_000)
    world.stop()
    timers = replace(world.directory.config.timers, roll_window_setting=900, **changed)
    world.directory.config = replace(world.directory.config, timers=timers)
    with caplog.at_level(logging.WARNING):
        world.start()
        world.work()
    assert "rebuilding the timer files from the timer topic" in caplog.text
    world.pass_ms(300_000)
    assert world.bodies() == [b"0", b"1", b"2", b"3", b"4"]
    world.stop()


def test_rebuild_that_was_cut_off_begins_anew(world: TimerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """While the files are made anew timercheck says so; a crash in between loses nothing and repeats nothing."""
    for number in range(60):
        world.send(b"%02d" % number, world.now_ms + (1 + number) * SECOND_MS)
    world.pass_ms(20 * SECOND_MS)
    world.stop()
    shutil.rmtree(world.directory.root / "timerlog")
    world.start()
    for _ in range(2):
        slow = world.delivery.advance()
        if slow is not None:
            slow()
    assert world.timers.is_rebuilding
    assert world.timers.take_save() is None
    check = load_timer_check(OS_FILES, world.timers.check_path)
    assert check is not None
    assert (check.log_end, check.queue_offset, check.sure_queue_offset) == (REBUILDING, 60, 0)
    world.kill("again")
    world.start()
    world.pass_ms(60 * SECOND_MS)
    assert caplog.messages[-1].endswith("from the timer topic: making them anew was cut off")
    assert world.bodies() == [b"%02d" % number for number in range(60)]
    world.stop()


def test_rolled_messages_may_come_twice_after_a_rebuild(world: TimerWorld) -> None:
    """Their first record and that of the roll both are in the topic; neither is taken for done."""
    world.send(b"far", world.now_ms + 3 * DAY_MS)
    world.pass_ms(2 * DAY_MS + SECOND_MS)
    world.stop()
    (world.directory.root / "timerwheel").unlink()
    world.start()
    world.pass_ms(2 * DAY_MS)
    assert 1 <= len(world.bodies()) <= 2
    world.stop()


def test_lost_progress_repeats_what_was_delivered(world: TimerWorld) -> None:
    """Without timercheck nothing is known: as with Java, all comes again, but what waits comes once."""
    for seconds in (1, 60):
        world.send(b"%d" % seconds, world.now_ms + seconds * SECOND_MS)
    world.pass_ms(5 * SECOND_MS)
    world.stop()
    (world.directory.root / "config" / "timercheck").unlink()
    world.start()
    world.pass_ms(60 * SECOND_MS)
    assert sorted(world.bodies()) == [b"1", b"1", b"60"]
    world.stop()


def test_late_message_comes_once(world: TimerWorld) -> None:
    """It never was in the wheel: after a clean stop the file says how far the topic was read, not the last unit."""
    world.send(b"first", world.now_ms + SECOND_MS)
    world.pass_ms(SECOND_MS)
    world.directory.now_ms -= DAY_MS
    world.send(b"late", world.now_ms + 5 * SECOND_MS)
    world.work()
    world.directory.now_ms += DAY_MS
    end = world.timers.log.end
    world.restart()
    world.pass_ms(10 * SECOND_MS)
    assert (world.bodies(), world.timers.log.end) == ([b"first", b"late"], end)
    world.stop()


def test_progress_behind_the_end_of_the_queue(world: TimerWorld) -> None:
    """A timercheck that is ahead of the topic, whose end was lost, is taken back to its end."""
    world.send(b"a", world.now_ms + SECOND_MS)
    world.pass_ms(SECOND_MS)
    world.stop()
    path = str(world.directory.root / "config" / "timercheck")
    check = load_timer_check(OS_FILES, path) or TimerCheck()
    save_timer_check(OS_FILES, path, check._replace(queue_offset=50, master_queue_offset=50))
    world.start()
    world.work()
    world.send(b"b", world.now_ms + SECOND_MS)
    world.pass_ms(SECOND_MS)
    assert world.bodies() == [b"a", b"b"]
    world.stop()


def test_file_of_another_size_stops_the_start(world: TimerWorld) -> None:
    """As with the log, a size that is not the setting's names the setting, before anything is served."""
    world.send(b"a", world.now_ms + SECOND_MS)
    world.work()
    world.stop()
    world.directory.config = replace(world.directory.config, timers=TimerConfig())
    with pytest.raises(ConfigError, match="mappedFileSizeTimerLog is 104857600") as caught:
        world.directory.open()
    assert caught.value.key == "mappedFileSizeTimerLog"


def test_foreign_file_stops_the_start(world: TimerWorld) -> None:
    """The Java broker would not start either."""
    world.send(b"a", world.now_ms + SECOND_MS)
    world.work()
    world.stop()
    (world.directory.root / "timerlog" / "copy").write_bytes(b"x" * 1_056)
    with pytest.raises(ConfigError, match="does not belong into a store"):
        world.directory.open()


def test_wheel_that_leads_beyond_the_log_is_made_anew(world: TimerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """The position and the end of the log are said; messages come as before."""
    at_ms = world.now_ms + 30 * SECOND_MS
    world.send(b"message", at_ms)
    world.work()
    world.stop()
    wheel, tick = world.timers.wheel, at_ms // SECOND_MS
    assert wheel.open()
    wheel.put(tick + 5, Slot(0, 5_200, 1))
    wheel.write(wheel.take_changes())
    wheel.close()
    world.start()
    world.pass_ms(60 * SECOND_MS)
    words = "from the timer topic: the wheel leads to 5200, the timer log ends at 52"
    assert [one for one in caplog.messages if one.endswith(words)]
    assert world.bodies() == [b"message"]
    world.stop()
