"""Store time, by two clocks that are moved apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.commitlog.commit_log import StoreTime
from rocketlet.testing import ManualClock

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
STEPS_MS = [1_000, 60_000, HOUR_MS]


def time_of(clock: ManualClock, last_stamp_ms: int = 0) -> StoreTime:
    """Return store time by a clock."""
    return StoreTime(clock.now_ms, clock.monotonic_ms, last_stamp_ms)


def test_time_is_the_wall_clock() -> None:
    """While nobody sets the clock, stamps and elapsed time are what it shows."""
    clock = ManualClock(START_MS)
    time = time_of(clock)
    for passed_ms in (0, 1, 999, HOUR_MS):
        clock.advance(passed_ms)
        assert (time.stamp_ms(), time.elapsed_ms()) == (clock.now_ms(), clock.now_ms())
    assert time.elapsed_at(START_MS + 5) == START_MS + 5


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_wall_clock_set_back_is_caught_up_with(step_ms: int) -> None:
    """Stamps go on at half the pace until the wall clock has caught up, and are the wall clock's again."""
    clock = ManualClock(START_MS)
    time = time_of(clock)
    clock.set_wall_clock(-step_ms)
    assert (time.stamp_ms(), time.elapsed_ms()) == (START_MS, START_MS)
    clock.advance(step_ms)
    assert (time.stamp_ms(), time.elapsed_ms()) == (START_MS + step_ms // 2, START_MS + step_ms)
    clock.advance(step_ms)
    assert time.stamp_ms() == clock.now_ms() == START_MS + step_ms
    clock.advance(10)
    assert time.stamp_ms() == clock.now_ms()


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_wall_clock_set_forward_counts_as_time_that_passed(step_ms: int) -> None:
    """What is due by the wall clock is due: the step counts for records before it, not for those behind it."""
    clock = ManualClock(START_MS)
    time = time_of(clock)
    before_ms = time.stamp_ms()
    clock.set_wall_clock(step_ms)
    behind_ms = time.stamp_ms()
    clock.advance(7)
    elapsed_ms = time.elapsed_ms()
    assert [elapsed_ms - time.elapsed_at(stamp) for stamp in (before_ms, behind_ms)] == [step_ms + 7, 7]


def test_record_of_the_last_process_is_not_in_the_future() -> None:
    """A start with a wall clock behind the last record goes on from that record's time."""
    clock = ManualClock(START_MS)
    time = time_of(clock, START_MS + HOUR_MS)
    assert time.stamp_ms() == time.elapsed_ms() == START_MS + HOUR_MS
    clock.advance(1_000)
    assert time.elapsed_ms() - time.elapsed_at(START_MS + HOUR_MS) == 1_000


MOVES = st.lists(
    st.tuples(st.sampled_from(["pass", "back"]), st.integers(10, HOUR_MS), st.booleans()), min_size=1, max_size=200
)


@given(MOVES)
def test_time_that_passed_is_known_for_every_stamp(moves: list[tuple[str, int, bool]]) -> None:
    """Whatever the clock is set back: neither goes back, and for each record what has passed since is known."""
    clock = ManualClock(START_MS)
    time = time_of(clock)
    records: list[tuple[int, int]] = []
    stamp_ms = elapsed_ms = 0
    for kind, by_ms, is_stored in moves:
        if kind == "pass":
            clock.advance(by_ms)
        else:
            clock.set_wall_clock(-by_ms)
        if is_stored:
            assert time.stamp_ms() >= stamp_ms
            assert time.elapsed_ms() >= elapsed_ms
            stamp_ms, elapsed_ms = time.stamp_ms(), time.elapsed_ms()
            records.append((stamp_ms, clock.monotonic_ms()))
    now_ms = time.elapsed_ms()
    for stored_at_ms, at_ms in records[-20:]:
        assert abs(now_ms - time.elapsed_at(stored_at_ms) - (clock.monotonic_ms() - at_ms)) <= 3


@pytest.mark.parametrize("later_ms", [0, 5, 60_000])
def test_time_is_known_however_often_it_was_read(later_ms: int) -> None:
    """Thousands of readings while the clock is behind, and after it has caught up, forget no pace of before."""
    clock = ManualClock(START_MS)
    time = time_of(clock)
    clock.advance(10)
    clock.set_wall_clock(-1_000)
    records: list[tuple[int, int]] = []
    for _ in range(3_000):
        clock.advance(1)
        records.append((time.stamp_ms(), clock.monotonic_ms()))
    clock.advance(later_ms)
    now_ms = time.elapsed_ms()
    for stored_at_ms, at_ms in records:
        assert abs(now_ms - time.elapsed_at(stored_at_ms) - (clock.monotonic_ms() - at_ms)) <= 2


@pytest.mark.parametrize("turns", [1, 15, 16, 17, 20, 200])
def test_paces_of_long_ago_are_forgotten(turns: int) -> None:
    """Of the last 16 times that the clock was set back a second it is known what passed meanwhile, of no others."""
    clock = ManualClock(START_MS)
    time = time_of(clock)
    stamps: list[tuple[int, int]] = []
    for _ in range(turns):
        clock.advance(10)
        stamps.append((time.stamp_ms(), clock.monotonic_ms()))
        clock.set_wall_clock(-1_000)
        time.stamp_ms()
        clock.advance(2_000)
        time.stamp_ms()
    now_ms = time.elapsed_ms()
    passed = [now_ms - time.elapsed_at(stamp_ms) - (clock.monotonic_ms() - at_ms) for stamp_ms, at_ms in stamps]
    assert passed == [-1_000 * max(0, turns - 16 - turn) for turn in range(turns)]
