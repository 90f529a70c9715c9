"""Time limits of many waits."""

from rocketlet.remoting.transport.pending_requests import Deadlines
from rocketlet.testing import ManualClock


def test_waits_end_at_their_own_time():
    """Each ends in its millisecond, neither earlier nor later, whatever the order in which they were added."""
    clock = ManualClock()
    ended: list[int] = []
    deadlines = Deadlines(clock, ended.append)
    for key, timeout_ms in ((3, 1001), (1, 1000), (2, 1000)):
        deadlines.add(key, timeout_ms)

    clock.advance(999)
    assert ended == []
    clock.advance(1)
    assert sorted(ended) == [1, 2]
    clock.advance(1)
    assert sorted(ended) == [1, 2, 3]
    assert clock.next_at_ms is None


def test_last_finished_wait_leaves_no_timer():
    """A wait that is over is forgotten, and the timer with the last of all."""
    clock = ManualClock()
    ended: list[int] = []
    deadlines = Deadlines(clock, ended.append)
    until_ms = [deadlines.add(key, timeout_ms) for key, timeout_ms in ((1, 1000), (2, 5000))]

    deadlines.discard(1, until_ms[0])
    deadlines.discard(1, until_ms[0])
    assert clock.next_at_ms is not None
    deadlines.discard(2, until_ms[1])
    assert clock.next_at_ms is None
    assert repr(deadlines) == "<Deadlines 0 waits>"
    clock.advance(10_000)
    assert ended == []


def test_timer_of_a_finished_wait_moves_on_to_the_next():
    """The timer was set for a wait that is over: it ends nobody, and the next wait ends in its time."""
    clock = ManualClock()
    ended: list[int] = []
    deadlines = Deadlines(clock, ended.append)
    until_ms = deadlines.add(1, 1000)
    deadlines.add(2, 3000)
    deadlines.discard(1, until_ms)

    clock.advance(2999)
    assert ended == []
    clock.advance(1)
    assert ended == [2]
    assert clock.next_at_ms is None


def test_wait_without_time_ends_at_once():
    """A limit of 0 ms is over when the clock is looked at next."""
    clock = ManualClock()
    ended: list[int] = []
    Deadlines(clock, ended.append).add(7, 0)
    clock.advance(1)
    assert ended == [7]
