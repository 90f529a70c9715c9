"""Parked pulls on a clock that the test moves."""

import pytest

from rocketlet.broker.outcomes.scheduler import HeldFetch, LongPolling
from rocketlet.store.consumequeue.appended import Appended, AppendedRun
from rocketlet.store.consumequeue.consume_queue import ConsumeQueue, QueueSpace
from rocketlet.store.files.files import OS_FILES, Descriptors
from rocketlet.testing.manual_clock import ManualClock

PEER = ("10.0.0.9", 4711)
RECHECK_MS = 5_000

KEY = ("T", 0)
LIMIT_MS = 15_000


def arrival(next_offset: int, tags_code: int) -> list[Appended]:
    """Return the notice that the queue can be read up to an offset."""
    queue = ConsumeQueue(QueueSpace(OS_FILES, "unused", 20_000, Descriptors(OS_FILES, 4)), *KEY)
    queue.next_offset = next_offset
    return [Appended(0, next_offset - 1, 100, *KEY, 0, 0, b"", queue, tags_code)]


class Hold:
    """A waiter that counts how often it was woken."""

    def __init__(
        self,
        waiters: LongPolling,
        *,
        wanted: int = 5,
        code: int | None = None,
        key: tuple[str, int] = KEY,
        takes_newest: bool = False,
    ) -> None:
        self.woken = 0
        self.arrived: Appended | None = None
        self.code = code
        self.asked = 0
        accepts = None if code is None else self.accepts
        self.waiter = HeldFetch({key: wanted}, accepts, self.wake, PEER, takes_newest)
        waiters.hold(self.waiter, LIMIT_MS)

    def accepts(self, record: Appended) -> bool:
        """Take one tags code only."""
        self.asked += 1
        return record.tags_code == self.code

    def wake(self, arrived: Appended | None) -> None:
        """Count, and keep what has woken it."""
        self.woken += 1
        self.arrived = arrived


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands."""
    return ManualClock()


@pytest.fixture
def waiters(clock: ManualClock) -> LongPolling:
    """Return an empty table."""
    return LongPolling(clock)


@pytest.mark.feature("P6")
def test_arrival_wakes_all_waiters_of_its_queue(waiters: LongPolling) -> None:
    """Whoever waits at the queue is woken at once, and nobody at another queue."""
    here, too, there = Hold(waiters), Hold(waiters), Hold(waiters, key=("T", 1))
    waiters.arrived(arrival(6, 0))
    assert (here.woken, too.woken, there.woken) == (1, 1, 0)
    assert len(waiters) == 1


def test_batch_wakes_whoever_wants_any_of_its_messages(waiters: LongPolling) -> None:
    """By the offset or by the tag of one that is not the first; each waiter once."""
    (first,) = arrival(5, 0)
    run = AppendedRun(0, 4, 300, *KEY, 0, 0, [b""] * 3, first.queue, [0, 100, 200], [100] * 3, [1, 2, 3])
    by_offset, by_tag, nothing = Hold(waiters, wanted=6), Hold(waiters, wanted=0, code=3), Hold(waiters, wanted=7)
    waiters.arrived([run])
    assert (by_offset.woken, by_tag.woken, nothing.woken) == (1, 1, 0)
    assert by_tag.asked == 3


def test_last_message_of_a_queue_wakes_before_it_is_readable(waiters: LongPolling) -> None:
    """Only who waits for just that one, wants it, and needs no entry of it; the others are woken behind the entry."""
    (last,) = arrival(6, 7)
    woken = [Hold(waiters, takes_newest=True), Hold(waiters, takes_newest=True, code=7)]
    others = [Hold(waiters), Hold(waiters, wanted=4, takes_newest=True), Hold(waiters, wanted=6, takes_newest=True)]
    unwanted = Hold(waiters, takes_newest=True, code=8)
    waiters.coming([last])
    assert [hold.arrived for hold in woken] == [last, last]
    assert sum(hold.woken for hold in (*others, unwanted)) == 0
    waiters.arrived([last])
    assert [hold.woken for hold in (*woken, *others, unwanted)] == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("next_offset", [7, None])
def test_message_that_more_follow_wakes_when_it_is_readable(waiters: LongPolling, next_offset: int | None) -> None:
    """So does one without a queue."""
    (record,) = arrival(6, 0)
    assert isinstance(record.queue, ConsumeQueue)
    if next_offset is None:
        record.queue = None
    else:
        record.queue.next_offset = next_offset
    hold = Hold(waiters, takes_newest=True)
    waiters.coming([record])
    assert hold.woken == 0


def test_arrival_before_the_wanted_offset_wakes_nobody(waiters: LongPolling) -> None:
    """A message in front of the wanted offset is not waited for."""
    hold = Hold(waiters)
    waiters.arrived(arrival(5, 0))
    assert hold.woken == 0


@pytest.mark.feature("P7")
def test_time_limit_wakes_once(waiters: LongPolling, clock: ManualClock) -> None:
    """A waiter is woken at its limit, and then neither by an arrival nor by the stop."""
    hold = Hold(waiters)
    clock.advance(LIMIT_MS - 1)
    assert hold.woken == 0
    clock.advance(1)
    waiters.arrived(arrival(6, 0))
    waiters.wake_all()
    assert hold.woken == 1


@pytest.mark.feature("P8")
def test_unwanted_arrival_wakes_within_five_seconds(waiters: LongPolling, clock: ManualClock) -> None:
    """A message that the filter refuses wakes its waiter 5 s later; more of them do not put that off."""
    hold = Hold(waiters, code=7)
    waiters.arrived(arrival(6, 8))
    clock.advance(RECHECK_MS - 1)
    waiters.arrived(arrival(7, 8))
    assert hold.woken == 0
    clock.advance(1)
    assert hold.woken == 1


@pytest.mark.feature("P8")
def test_wanted_arrival_after_unwanted_wakes_at_once(waiters: LongPolling, clock: ManualClock) -> None:
    """The filter decides for each message."""
    hold = Hold(waiters, code=7)
    waiters.arrived(arrival(6, 8))
    waiters.arrived(arrival(7, 7))
    assert hold.woken == 1
    clock.advance(LIMIT_MS)
    assert hold.woken == 1


def test_late_unwanted_arrival_does_not_extend_the_limit(waiters: LongPolling, clock: ManualClock) -> None:
    """The time limit stays the limit."""
    hold = Hold(waiters, code=7)
    clock.advance(LIMIT_MS - 1)
    waiters.arrived(arrival(6, 8))
    clock.advance(1)
    assert hold.woken == 1


def test_waiter_whose_filter_fails_is_woken(waiters: LongPolling, caplog: pytest.LogCaptureFixture) -> None:
    """Its pull runs again, and fails by itself or not; the log names its queue and its peer."""
    woken: list[bool] = []

    def fail(_record: Appended) -> bool:
        raise ValueError("no filter")

    waiter = HeldFetch({KEY: 0}, fail, lambda _: woken.append(True), ("10.0.0.9", 4711))
    waiters.hold(waiter, LIMIT_MS)
    waiters.arrived(arrival(6, 0))
    assert woken == [True]
    assert "the long poll from 10.0.0.9:4711 failed at topic T, queueId 0, offset 5" in caplog.text


def test_dropped_waiter_is_never_woken(waiters: LongPolling, clock: ManualClock) -> None:
    """A closed connection takes its waiters along, timers included."""
    hold = Hold(waiters)
    hold.waiter.outcome.drop()
    hold.waiter.outcome.drop()
    waiters.arrived(arrival(6, 0))
    clock.advance(LIMIT_MS)
    assert hold.woken == 0
    assert clock.next_at_ms is None


def test_stop_wakes_everybody(waiters: LongPolling, clock: ManualClock) -> None:
    """When the broker stops nobody is left waiting, and no timer either."""
    holds = [Hold(waiters), Hold(waiters, key=("T", 1))]
    waiters.wake_all()
    assert [hold.woken for hold in holds] == [1, 1]
    assert (len(waiters), clock.next_at_ms) == (0, None)


def test_fetch_of_several_queues_is_woken_by_any_once(waiters: LongPolling, clock: ManualClock) -> None:
    """A fetch may stand under several queues; whichever has something ends the waiting at all of them."""
    woken: list[bool] = []
    outcome = waiters.hold(HeldFetch({KEY: 5, ("T", 1): 9}, None, lambda _: woken.append(True), PEER), LIMIT_MS)
    waiters.arrived(arrival(5, 0))
    assert not outcome.is_settled
    waiters.arrived(arrival(6, 0))
    waiters.arrived(arrival(7, 0))
    assert (woken, outcome.is_settled, len(waiters), clock.next_at_ms) == ([True], True, 0, None)


def test_fetch_that_fails_when_it_is_run_again_fails_alone(waiters: LongPolling) -> None:
    """What running it again raises is its own outcome; the others are woken all the same."""

    def fail(_: object) -> None:
        raise OSError("no such file")

    failing, other = waiters.hold(HeldFetch({KEY: 0}, None, fail, PEER), LIMIT_MS), Hold(waiters)
    waiters.arrived(arrival(6, 0))
    assert isinstance(failing.failure, OSError)
    assert other.woken == 1
