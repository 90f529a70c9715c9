"""How many messages a pull asks for, and over how many offsets filtered pulls go."""

from rocketlet.spark.live.range_fetcher import MOST_FILTERED, MOST_MESSAGES, AdaptiveFetchSize, FilteredFetchSize


def ask(strides: AdaptiveFetchSize, limit: int, times: int) -> list[int]:
    """Return the lengths of so many chunks, of a broker that gives so many messages at most."""
    asked: list[int] = []
    for _ in range(times):
        asked.append(strides.next_length())
        strides.learn(asked[-1], min(asked[-1], limit))
    return asked


def test_length_is_what_answers_hold() -> None:
    """An answer with fewer messages makes the next pulls shorter at once."""
    assert ask(AdaptiveFetchSize(), 20, 3) == [32, 20, 20]


def test_broker_that_gives_more_is_found_out() -> None:
    """By doubling, up to the most that a broker is asked for."""
    asked = ask(AdaptiveFetchSize(), 10_000, 200)
    assert asked[:18] == [32] * 16 + [64] * 2
    assert asked[-1] == MOST_MESSAGES


def test_trials_become_rare() -> None:
    """A broker that sticks to 32 costs a second pull less and less often."""
    asked = ask(AdaptiveFetchSize(), 32, 2_000)
    assert set(asked) == {32, 64}
    assert asked.count(64) < 10


def test_answer_without_messages_does_not_stop_the_pulls() -> None:
    """The length stays above zero."""
    strides = AdaptiveFetchSize()
    strides.learn(32, 0)
    assert strides.next_length() == 1


def test_filtered_fetch_goes_over_what_some_answers_cover() -> None:
    """However many offsets that is, up to a limit; what is asked for less than a usual answer says nothing."""
    sizes = FilteredFetchSize()
    sizes.learn(256, 128)
    assert sizes.next_length() == 8 * 128
    sizes.learn(20, 80)
    assert sizes.next_length() == 8 * 128
    sizes.learn(1024, 800_000)
    assert sizes.next_length() == MOST_FILTERED
    sizes.learn(1024, 0)
    assert sizes.next_length() == 8
