"""Delivering what is due, on a store without a broker."""

import asyncio
import logging
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from stores import GoldenStore, LimitedFiles, StoreDirectory, new_record, records_of

from rocketlet.broker.delay.delay_delivery import DelayedDelivery, DelayJob
from rocketlet.broker.delay.delay_progress import DelayFile, DelayProgress
from rocketlet.broker.delay.delayed_messages import Delays
from rocketlet.broker.outcomes.scheduler import by_topic
from rocketlet.common.errors import StoreFullError
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.record import Record, iter_records
from rocketlet.store.consumequeue.queue_reader import ReadLimits
from rocketlet.store.message_store import MessageStore
from rocketlet.testing.manual_clock import ManualClock

MOST_MESSAGES = 32
MOST_BYTES = 1 << 20

LEVELS_MS = (1_000, 5_000, 10_000)
DELAYS = Delays(LEVELS_MS)
HOUR_MS = 3_600_000


class World:
    """A store, its clock, and the delivery of its delayed messages."""

    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory
        self.files = LimitedFiles()
        self.start()

    def start(self, offsets: dict[int, int] | None = None) -> None:
        """Open the store with what ``delayOffset.json`` held."""
        self.store = self.directory.open(self.files)
        self.progress = DelayProgress(lambda: self.directory.now_ms, version_step=200)
        self.progress.load(DelayFile(offset_table=offsets or {}))
        self.delivery = self.deliver()

    def deliver(self) -> DelayedDelivery:
        """Return a new delivery."""
        delivery = DelayedDelivery(self.store, self.commit, self.progress)
        self.store.subscribe(by_topic({SCHEDULE_TOPIC: delivery.take}))
        return delivery

    def restart(self, offsets: dict[int, int]) -> None:
        """Stop and start again."""
        self.directory.close_all()
        self.start(offsets)

    def commit(self) -> None:
        """Write what was appended."""
        self.store.commit()

    def send(self, level: int, *bodies: bytes, topic: str = "T", **properties: str) -> None:
        """Store delayed messages."""
        for body in bodies:
            self.store.append(DELAYS.park(new_record(topic, 0, body, **properties), level))
        self.store.commit()

    def pass_ms(self, milliseconds: int) -> None:
        """Move the clock and deliver all that is due."""
        self.directory.now_ms += milliseconds
        while self.delivery.deliver_due():
            pass

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """Return what a queue holds."""
        return records_of(self.store, topic, queue_id)

    def bodies(self, topic: str = "T") -> list[bytes]:
        """Return the bodies in queue 0 of a topic."""
        return [bytes(record.body) for record in records_of(self.store, topic)]


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[StoreDirectory]:
    """Return a directory of large files with three levels."""
    made = StoreDirectory(
        tmp_path / "store", delays_ms=LEVELS_MS, segment_bytes=1 << 24, queue_file_bytes=20_000, has_index=False
    )
    yield made
    made.close_all()


@pytest.fixture
def world(directory: StoreDirectory) -> World:
    """Return a world without messages."""
    return World(directory)


@pytest.mark.feature("L1")
@pytest.mark.parametrize("level", [1, 2, 3])
def test_message_comes_when_its_time_has_come(level: int, world: World) -> None:
    """A millisecond before its delay is over there is nothing; then the message is in its queue, once."""
    world.send(level, b"late", TAGS="a")
    world.pass_ms(LEVELS_MS[level - 1] - 1)
    assert world.bodies() == []
    world.pass_ms(1)
    world.pass_ms(HOUR_MS)
    (record,) = world.records()
    assert (bytes(record.body), record.properties["TAGS"]) == (b"late", "a")
    assert world.progress.latest() == {level: 1}


def test_tag_is_that_of_the_message(world: World) -> None:
    """The queue entry of a delivered message holds the code of its tag, not a time."""
    world.send(1, b"late", TAGS="a")
    world.pass_ms(1_000)
    assert world.store.entries("T", 0, 0, 9) == [(world.records()[0].log_offset, world.records()[0].total_size, 97)]


def test_levels_pass_what_another_broker_has_delivered(world: World) -> None:
    """What is behind that is delivered; a level is not set back, nor moved behind its end."""
    world.send(1, b"a", b"b", b"c")
    world.send(2, b"d")
    world.delivery.pass_until({1: 2, 2: 9, 3: 4})
    assert world.progress.latest() == {1: 2, 2: 1}
    world.delivery.pass_until({1: 1})
    world.pass_ms(HOUR_MS)
    assert world.bodies() == [b"c"]


def test_levels_do_not_wait_for_each_other(world: World) -> None:
    """Messages of several levels come in order of their times, those of one level in the order of sending."""
    world.send(3, b"3")
    world.send(2, b"2a", b"2b")
    world.send(1, b"1")
    for passed, count in ((1_000, 1), (4_000, 3), (5_000, 4)):
        world.pass_ms(passed)
        assert world.bodies() == [b"1", b"2a", b"2b", b"3"][:count]


def test_deadline_is_that_of_the_earliest_message(world: World) -> None:
    """Without messages there is no deadline; later messages of a level do not move it, another level may."""
    start_ms = world.directory.now_ms
    assert world.delivery.due_at_ms is None
    world.send(2, b"first")
    assert world.delivery.due_at_ms == start_ms + 5_000
    world.directory.now_ms += 10
    world.send(2, b"second")
    assert world.delivery.due_at_ms == start_ms + 5_000
    world.send(1, b"sooner")
    assert world.delivery.due_at_ms == start_ms + 1_010
    world.pass_ms(5_000)
    assert world.delivery.due_at_ms is None


def test_only_an_empty_level_wakes_the_job(world: World) -> None:
    """An arrival behind a waiting message is not looked at: a million of them cost no more than one."""
    armed = world.delivery.armed
    world.send(1, b"first")
    assert armed.is_set()
    armed.clear()
    world.send(1, *[b"%d" % number for number in range(50)])
    assert not armed.is_set()
    world.pass_ms(1_000)
    world.pass_ms(1_000)
    armed.clear()
    world.send(1, b"next")
    assert armed.is_set()


def test_turn_takes_few_messages(world: World) -> None:
    """Of 100 due messages a turn takes 32; the rest is due at once."""
    bodies = [b"%d" % number for number in range(100)]
    world.send(1, *bodies)
    world.directory.now_ms += 1_000
    assert [world.delivery.deliver_due() for _ in range(5)] == [MOST_MESSAGES, MOST_MESSAGES, MOST_MESSAGES, 4, 0]
    assert world.bodies() == bodies


def test_turn_takes_few_bytes(world: World) -> None:
    """A turn ends with the message that brings it to a megabyte; one that is longer is taken alone."""
    for size in (MOST_BYTES + 1, MOST_BYTES // 2, MOST_BYTES // 2, 1):
        world.send(1, bytes(size))
    world.directory.now_ms += 1_000
    assert [world.delivery.deliver_due() for _ in range(4)] == [1, 2, 1, 0]


def test_turn_that_has_reached_its_bytes_ends(world: World) -> None:
    """A record that makes a megabyte to the byte is the last of its turn."""
    world.send(1, b"")
    world.pass_ms(1_000)
    overhead = world.records()[0].total_size
    for body in (bytes(MOST_BYTES - overhead), b"next"):
        world.send(1, body)
    world.directory.now_ms += 1_000
    assert [world.delivery.deliver_due() for _ in range(3)] == [1, 1, 0]
    assert world.records()[1].total_size == MOST_BYTES


def test_level_that_is_due_for_longest_goes_first(world: World) -> None:
    """A level with many due messages does not keep the others waiting."""
    world.send(2, *[b"many"] * 40)
    world.directory.now_ms += 4_500
    world.send(1, b"one")
    world.directory.now_ms += HOUR_MS
    world.delivery.deliver_due()
    world.send(2, b"new")
    world.delivery.deliver_due()
    assert world.bodies().count(b"many") == 40
    world.delivery.deliver_due()
    assert world.bodies()[-1] == b"one"


def test_level_whose_delay_has_become_shorter(world: World, directory: StoreDirectory) -> None:
    """A message that is due later than one that would be stored now is due now, as in Java."""
    world.send(3, b"before")
    world.send(2, b"two")
    directory.config = replace(directory.config, delays_ms=(1_000, 5_000, 9_000))
    world.restart({})
    world.pass_ms(0)
    assert world.bodies() == [b"before"]


@pytest.mark.feature("L3")
def test_restart_goes_on_behind_what_is_saved(world: World) -> None:
    """What was delivered before the saved offset does not come again, the rest does; overdue messages come at once."""
    world.send(1, b"a", b"b", b"c")
    world.pass_ms(1_000)
    world.send(2, b"late")
    world.restart({1: 2})
    world.pass_ms(0)
    assert world.bodies() == [b"a", b"b", b"c", b"c"]
    world.restart({1: 3})
    world.pass_ms(HOUR_MS)
    assert world.bodies() == [b"a", b"b", b"c", b"c", b"late"]


@pytest.mark.feature("L3")
def test_restart_in_the_middle_loses_none(world: World) -> None:
    """When two of four turns were done and nothing was saved, what they delivered comes again, and the rest once."""
    bodies = [b"%d" % number for number in range(100)]
    world.send(1, *bodies)
    world.directory.now_ms += 1_000
    assert (world.delivery.deliver_due(), world.delivery.deliver_due()) == (MOST_MESSAGES, MOST_MESSAGES)
    world.restart({})
    world.pass_ms(0)
    assert world.bodies() == bodies[: 2 * MOST_MESSAGES] + bodies


@pytest.mark.parametrize("saved", [7, 10**12])
def test_saved_offset_beyond_the_queue_is_moved_into_it(saved: int, world: World) -> None:
    """An offset that is ahead of its queue would skip the next messages: it becomes the queue's end."""
    world.send(1, b"a")
    world.pass_ms(1_000)
    world.restart({1: saved, 3: saved})
    assert world.progress.latest() == {1: 1, 3: 0}
    world.send(1, b"b")
    world.send(3, b"c")
    world.pass_ms(HOUR_MS)
    assert sorted(world.bodies()) == [b"a", b"b", b"c"]


def test_queues_beyond_the_last_level_are_delivered(directory: StoreDirectory) -> None:
    """Messages of a level that the settings do not have any more come when their time has come."""
    world = World(directory)
    many = Delays(tuple(range(1000, 30_000, 1000)))
    world.store.append(many.park(new_record("T", 0, b"x"), 20))
    world.commit()
    due_at_ms = world.delivery.due_at_ms
    assert due_at_ms is not None
    world.restart({})
    world.pass_ms(due_at_ms - directory.now_ms)
    assert world.bodies() == [b"x"]


def test_message_that_is_gone_or_has_no_place_is_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A half message is dropped and said; the messages behind it come."""
    world.send(1, b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    world.send(1, b"whole")
    with caplog.at_level(logging.ERROR):
        world.pass_ms(1_000)
    assert (world.bodies("RMQ_SYS_TRANS_HALF_TOPIC"), world.bodies()) == ([], [b"whole"])
    assert "cannot be delivered" in caplog.text
    assert world.progress.latest() == {1: 2}


def test_expired_messages_are_passed_over(tmp_path: pathlib.Path) -> None:
    """Messages whose log file is gone are skipped, those after them come."""
    directory = StoreDirectory(tmp_path / "store", delays_ms=LEVELS_MS, segment_bytes=4096, has_index=False)
    world = World(directory)
    world.send(3, *[bytes(1000)] * 5, b"last")
    directory.close_all()
    min(pathlib.Path(directory.config.log_directories[0]).iterdir()).unlink()
    world.start()
    world.pass_ms(10_000)
    assert world.bodies()[-1] == b"last"
    assert len(world.bodies()) == 6 - 3
    directory.close_all()


def test_full_disk_keeps_the_messages(world: World) -> None:
    """What the disk does not take stays where it is and comes, once, when there is room."""
    world.send(1, *[b"%d" % number for number in range(3)])
    world.directory.now_ms += 1_000
    world.files.room = 0
    for _ in range(2):
        with pytest.raises(StoreFullError):
            world.delivery.deliver_due()
    assert world.progress.latest() == {1: 0}
    world.files.room = None
    world.store.tick()
    world.pass_ms(0)
    assert world.bodies() == [b"0", b"1", b"2"]


def test_unreadable_log_file_does_not_double_what_was_delivered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was delivered in the turn that fails is done with; the rest comes once the file can be read again."""
    world.send(1, b"one", b"two", b"three")
    seen: list[int] = []
    record_at = world.store.record_at

    def read(log_offset: int, size: int | None = None) -> memoryview | None:
        seen.append(log_offset)
        if len(seen) > 1 and len(seen) < 4:
            raise OSError(24, "Too many open files", "commitlog")
        return record_at(log_offset, size)

    monkeypatch.setattr(world.store, "record_at", read)
    world.directory.now_ms += LEVELS_MS[0]
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files"):
            world.delivery.deliver_due()
    world.pass_ms(0)
    assert [bytes(record.body) for record in world.records()] == [b"one", b"two", b"three"]


def test_delivery_waits_until_a_message_is_on_disk(tmp_path: pathlib.Path) -> None:
    """Under SYNC_FLUSH a delayed message is not delivered before it is readable, however long its time is over."""
    directory = StoreDirectory(tmp_path / "store", delays_ms=LEVELS_MS, is_sync_flush=True)
    world = World(directory)
    world.send(1, b"late")
    world.pass_ms(HOUR_MS)
    assert world.delivery.due_at_ms is None
    world.store.flush()
    world.pass_ms(0)
    world.store.flush()
    assert world.bodies() == [b"late"]
    directory.close_all()


@pytest.mark.feature("L3")
def test_pending_messages_of_a_java_broker_are_delivered(vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """From Java's directory and its delayOffset.json, the three pending messages come, and none of the delivered."""
    golden = GoldenStore.unpack(vectors, "delay-retry", tmp_path)
    clock = ManualClock(1_795_250_000_000)
    with MessageStore.open(golden.directory.config, now_ms=clock.now_ms, store_host=b"\x7f\0\0\x01\0\0\0\x01") as store:
        progress = DelayProgress(clock.now_ms, version_step=200)
        progress.load(DelayFile(offset_table={1: 4, 2: 1, 3: 1, 18: 0}))
        delivery = DelayedDelivery(store, store.commit, progress)
        before = store.max_offset("DelayTopic", 0), store.max_offset("DelayTopic", 1)
        assert (delivery.deliver_due(), delivery.due_at_ms) == (0, 1_795_256_866_867)
        clock.advance(2 * HOUR_MS)
        assert delivery.deliver_due() == 3
        after = store.max_offset("DelayTopic", 0), store.max_offset("DelayTopic", 1)
        assert (after[0] - before[0], after[1] - before[1]) == (1, 2)
        assert progress.latest() == {1: 4, 2: 1, 3: 1, 18: 3}


@pytest.fixture
def timed(world: World, directory: StoreDirectory) -> tuple[World, ManualClock]:
    """Return a world without messages whose store goes by a clock, and that clock."""
    clock = ManualClock(directory.now_ms)
    directory.close_all()
    world.store = directory.open_at(clock)
    return world, clock


async def test_job_sleeps_until_the_deadline(timed: tuple[World, ManualClock], directory: StoreDirectory) -> None:
    """While nothing waits the job has planned nothing; else it looks at the clock each second, and at the deadline."""
    world, clock = timed
    delivery = DelayedDelivery(world.store, world.commit, world.progress)
    world.store.subscribe(by_topic({SCHEDULE_TOPIC: delivery.take}))
    job = DelayJob(delivery, clock)
    counted: list[int] = []

    async def run() -> None:
        pause: int | None = 0
        while pause is not None:
            counted.append(clock.now_ms())
            pause = await job.run()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run())
        await clock.settle()
        assert (clock.next_at_ms, len(counted)) == (None, 1)
        world.send(2, b"a")
        await clock.elapse(4_999)
        assert (clock.next_at_ms, len(counted), world.bodies()) == (directory.now_ms + 5_000, 2, [])
        await clock.elapse(1)
        assert world.bodies() == [b"a"]
        assert clock.next_at_ms is None
        turns = len(counted)
        await clock.elapse(HOUR_MS)
        assert len(counted) == turns
        job.stop()
        await running


def messages_of(result: Any) -> int:
    """Return how many records a read brought."""
    return sum(1 for data in result.records for _ in iter_records(data))


def test_level_queue_keeps_the_parked_messages(world: World) -> None:
    """A delivered message stays in its delay queue too, until retention takes it."""
    world.send(1, b"a", b"b")
    world.pass_ms(1_000)
    assert messages_of(world.store.read(SCHEDULE_TOPIC, 0, 0, ReadLimits())) == 2


def test_what_was_delivered_before_a_kill_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """How many of a level are skipped; one of which none are is not mentioned."""
    for body in (b"a", b"b", b"c"):
        world.send(1, body, UNIQ_KEY=body.decode())
    world.send(2, b"late", UNIQ_KEY="late")
    world.pass_ms(1_000)
    world.restart({1: 1})
    with caplog.at_level(logging.INFO, "rocketlet.broker.delay.delay_delivery"):
        world.delivery.pass_delivered(world.delivery.find_delivered())
    told = [record.getMessage() for record in caplog.records if "delay level" in record.getMessage()]
    assert told == ["delay level 1: skipping 2 messages that were delivered before the restart"]
    assert world.delivery.progress == {1: 3, 2: 0}


async def test_full_disk_is_tried_again_after_a_second(world: World) -> None:
    """The job asks for that pause, and for none when there is room again."""
    world.send(1, b"a")
    world.directory.now_ms += 1_000
    job = DelayJob(world.delivery, ManualClock(world.directory.now_ms))
    pauses: list[int | None] = []
    for room in (0, 0, None):
        world.files.room = room
        world.store.tick()
        pauses.append(await job.run())
    assert pauses == [1_000, 1_000, 0]
    assert world.bodies() == [b"a"]
