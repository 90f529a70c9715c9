"""Timer messages under a clock that somebody sets while they wait: each comes once, neither at once nor never."""

import pathlib
from collections.abc import Callable, Iterator, Sequence

import pytest
from stores import StoreDirectory, new_record, records_of
from timers import HOUR_MS, SECOND_MS, deliver_due, save_timers, timer_directory

from rocketlet.broker.delay.timer_delivery import TimerDelivery
from rocketlet.broker.delay.timer_messages import TimerRequests
from rocketlet.store.consumequeue.appended import Placed
from rocketlet.testing.manual_clock import ManualClock

STEPS_MS = (-HOUR_MS, -SECOND_MS, SECOND_MS, HOUR_MS)
SOON_MS, LATE_MS = 10 * SECOND_MS, 2 * HOUR_MS
ROUNDING_MS = 2 * SECOND_MS  # up to a second of the wheel, and one since the last save before a kill


class SteppedTimers:
    """The timers of a store under a wall clock that is set and a monotonic one that is not."""

    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self._copies = 0
        self._open()

    def _open(self) -> None:
        self.store = self.directory.open_at(self.clock)
        self.timers = self.store.timers()
        self.delivery = TimerDelivery(self.store, self.timers, self.store.commit, self.timers.now_ms)
        self.requests = TimerRequests(self.directory.config.timers, self.timers.count_at, self.timers.ahead_ms)
        self.store.subscribe(self._arrived)
        self.work()

    def send(self, body: bytes, ahead_ms: int) -> None:
        """Store a message that names the instant of its delivery, so far ahead of the wall clock."""
        now_ms = self.clock.now_ms()
        new = new_record("T", 0, body, UNIQ_KEY=body.decode(), TIMER_DELIVER_MS=str(now_ms + ahead_ms))
        self.store.append(self.requests.rewrite(new, now_ms) or new)
        self.store.commit()
        self.work()

    def set_clock(self, by_ms: int) -> None:
        """Set the wall clock of running timers."""
        self.clock.set_wall_clock(by_ms)
        self.work()

    def stop_and_set_clock(self, by_ms: int) -> None:
        """Stop, set the clock, and start."""
        save_timers(self.store, self.timers)
        self._close()
        self.clock.set_wall_clock(by_ms)
        self._open()

    def kill_and_set_clock(self, by_ms: int) -> None:
        """Go on, at another time, with what a kill leaves."""
        save_timers(self.store, self.timers)
        self._copies += 1
        config = self.directory.config
        sizes = {"queue_file_bytes": config.queue_file_bytes, "segment_bytes": config.segment_bytes}
        twin = self.directory.copy(f"killed-{self._copies}", timers=config.timers, has_index=False, **sizes)
        self._close()
        self.directory = twin
        self.clock.set_wall_clock(by_ms)
        self._open()

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, working whenever a slot is over."""
        end_ms = self.clock.monotonic_ms() + milliseconds
        while (wait_ms := self.delivery.wait_ms) is not None and self.clock.monotonic_ms() + wait_ms <= end_ms:
            self.clock.advance(max(0, wait_ms))
            self.work()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        self.work()

    def work(self) -> None:
        """Do all that is to be done now."""
        deliver_due(self.delivery)

    def bodies(self) -> list[bytes]:
        """Return what has been delivered."""
        return [bytes(record.body) for record in records_of(self.store)]

    def close(self) -> None:
        """Close the store."""
        self._close()

    def _close(self) -> None:
        self.timers.close()
        self.directory.close_all()

    def _arrived(self, records: Sequence[Placed]) -> None:
        for placed in records:
            if placed.topic == "rmq_sys_wheel_timer":
                for record in placed.records():
                    self.delivery.arrived(record)


@pytest.fixture
def timers(tmp_path: pathlib.Path) -> Iterator[SteppedTimers]:
    """Give a store without timer messages."""
    made = SteppedTimers(timer_directory(tmp_path / "store"))
    yield made
    made.close()


Step = Callable[[SteppedTimers, int], None]
HOW = pytest.mark.parametrize(
    "step",
    [SteppedTimers.set_clock, SteppedTimers.stop_and_set_clock, SteppedTimers.kill_and_set_clock],
    ids=["running", "stopped", "killed"],
)


@HOW
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_timer_comes_once_after_a_step(timers: SteppedTimers, step: Step, step_ms: int) -> None:
    """Setting the clock back takes no time from what waits, setting it forward does; none comes at once or twice."""
    timers.send(b"soon", SOON_MS)
    timers.send(b"late", LATE_MS)
    timers.pass_ms(3 * SECOND_MS)
    step(timers, step_ms)
    passed_ms = 3 * SECOND_MS + max(0, step_ms)
    expected: list[bytes] = []
    for body, due_ms in ((b"soon", SOON_MS), (b"late", LATE_MS)):
        if due_ms > passed_ms:
            timers.pass_ms(due_ms - passed_ms - 1)
            assert timers.bodies() == expected
            timers.pass_ms(1 + ROUNDING_MS)
            passed_ms = due_ms + ROUNDING_MS
        else:
            timers.pass_ms(ROUNDING_MS)
            passed_ms += ROUNDING_MS
        expected.append(body)
        assert timers.bodies() == expected
    step(timers, 0)
    timers.pass_ms(LATE_MS)
    assert timers.bodies() == expected


@HOW
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_timer_of_after_a_step_comes_at_its_time(timers: SteppedTimers, step: Step, step_ms: int) -> None:
    """A message that is sent after the step comes once the wall clock, as it is then, has reached its time."""
    timers.send(b"waits", LATE_MS + HOUR_MS)
    timers.pass_ms(3 * SECOND_MS)
    step(timers, step_ms)
    for body, ahead_ms in ((b"soon", SOON_MS), (b"later", LATE_MS)):
        timers.send(body, ahead_ms)
        timers.pass_ms(ahead_ms - 1)
        assert body not in timers.bodies()
        timers.pass_ms(1 + ROUNDING_MS)
        assert timers.bodies().count(body) == 1
    step(timers, 0)
    timers.pass_ms(LATE_MS + HOUR_MS)
    assert sorted(timers.bodies()) == [b"later", b"soon", b"waits"]
