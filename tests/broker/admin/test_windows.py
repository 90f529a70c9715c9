"""Tables of numbers, their samples and windows, without a broker."""

import random
from itertools import accumulate

import pytest

from rocketlet.broker.admin.windows import DAY, HOUR, MINUTE, WINDOWS, Growth, SampledCounts, Timeline
from rocketlet.broker.outcomes.queue_counts import QueueCounts, count_by_queue


def test_rows_are_bounded() -> None:
    """Of more rows than there is room for no points are kept, until others go."""
    counts: QueueCounts[str] = count_by_queue(1)
    timeline = Timeline(0)
    table = SampledCounts[str](counts, 1, timeline, most_rows=2)
    for name in "abc":
        counts[name][0][0] = 5

    def sample() -> None:
        list(table.sample(MINUTE))
        timeline.done(MINUTE, 10_000 * (1 + timeline.taken[MINUTE]))

    sample()
    assert [table.growth(name, MINUTE, 0, None).total for name in "abc"] == [5, 5, 0]
    assert table.drop("a") == {0: [5]}
    sample()
    assert [table.growth(name, MINUTE, 0, None).total for name in "abc"] == [0, 5, 5]


def test_points_of_twenty_thousand_rows_are_kept() -> None:
    """A table that nobody has given another limit has room for so many."""
    counts: QueueCounts[int] = count_by_queue(1)
    timeline = Timeline(0)
    table = SampledCounts[int](counts, 1, timeline)
    for key in range(20_001):
        counts[key][0][0] = 5
    list(table.sample(MINUTE))
    timeline.done(MINUTE, 10_000)
    assert [table.growth(key, MINUTE, 0, None).total for key in (19_999, 20_000)] == [5, 0]


@pytest.mark.parametrize("order", [(MINUTE, HOUR, DAY), (DAY, HOUR, MINUTE)])
def test_windows_of_a_row_have_points_of_their_own(order: tuple[int, ...]) -> None:
    """In whichever order they are sampled, none takes a point of another."""
    counts: QueueCounts[str] = count_by_queue(2)
    timeline = Timeline(0)
    table = SampledCounts[str](counts, 2, timeline)
    for step in range(1, 60):
        counts["T"][0][:] = [step, 10 * step]
        for number in order:
            list(table.sample(number))
            timeline.done(number, step * 3_600_000)
        grown = [[table.growth("T", number, column, None).total for column in (0, 1)] for number in (MINUTE, HOUR, DAY)]
        steps = [min(step, window.points - 1) for window in WINDOWS]
        assert grown == [[count, 10 * count] for count in steps]


def test_row_that_is_given_up_makes_room_for_one() -> None:
    """When one of two rows has been idle for a day, a third has its place, and a fourth has none."""
    counts: QueueCounts[str] = count_by_queue(1)
    timeline = Timeline(0)
    table = SampledCounts[str](counts, 1, timeline, most_rows=2)
    counts["idle"][0][0] = 5
    for hour in range(WINDOWS[DAY].points + 1):
        counts["busy"][0][0] += 1
        list(table.sample(DAY))
        timeline.done(DAY, hour * 3_600_000)
    assert table.drop_idle() == [("idle", [5])]
    for name in ("third", "fourth"):
        counts[name][0][0] = 7
    list(table.sample(DAY))
    timeline.done(DAY, 26 * 3_600_000)
    assert [table.growth(name, DAY, 0, None).total for name in ("third", "fourth")] == [7, 0]


def test_sampling_lets_others_have_their_turn() -> None:
    """A table is sampled in steps; what is asked meanwhile is answered from the samples before."""
    counts: QueueCounts[int] = count_by_queue(1)
    timeline = Timeline(0)
    table = SampledCounts[int](counts, 1, timeline)
    for step in accumulate([1] * 9):
        for key in range(2_500):
            counts[key][0][0] = step
        steps = table.sample(MINUTE)
        next(steps)
        told = table.growth(0, MINUTE, 0, None).total
        assert told == (min(step - 1, 6) if step > 7 else step - 1)
        assert len(list(steps)) == 1
        timeline.done(MINUTE, step * 10_000)


def test_windows_are_those_of_java() -> None:
    """Sixty seconds, sixty minutes and a day, with a point at either end."""
    assert [window.period_ms * (window.points - 1) for window in WINDOWS] == [60_000, 3_600_000, 86_400_000]
    assert (MINUTE, HOUR, DAY) == (0, 1, 2)


def test_trend_is_another_one_whenever_growth_may_be() -> None:
    """What a window does not call growing has not grown in it; what is dropped is another one from then on."""
    chance = random.Random(1)
    counts: QueueCounts[str] = count_by_queue(1)
    timeline = Timeline(0)
    table = SampledCounts[str](counts, 1, timeline, most_rows=6)
    told: dict[tuple[int, str], tuple[object, Growth]] = {}
    kept = 0
    for step in range(1, 400):
        for _ in range(chance.randrange(3)):
            counts[chance.choice("abcd")][chance.randrange(2)][0] += chance.randrange(3)
        if chance.random() < 0.05:
            table.drop(chance.choice("abcd"))
        if chance.random() < 0.05:
            table.drop_idle()
        for number in (MINUTE, HOUR, DAY):
            if chance.random() < 0.5:
                list(table.sample(number))
                timeline.done(number, step * 3_600_000)
            for key in "abcd":
                trend, growth = table.trend(number).of(key), table.growth(key, number, 0, None)
                before = told.get((number, key))
                if before is not None and before[0] == trend:
                    assert before[1] == growth
                    kept += 1
                if key not in table.trend(number).growing:
                    assert growth == Growth()
                told[number, key] = trend, growth
    assert kept > 400
