"""Which half messages are settled, as bits."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.transaction.transactions import SettledOffsets


@pytest.mark.parametrize("first", [0, 5, 8, 1_000_003])
def test_next_open_is_the_first_that_is_missing(first: int) -> None:
    """With all but one of a hundred in the set, that one is found from any place before it, and the end behind it."""
    for missing in range(first, first + 100):
        settled = SettledOffsets(first)
        for number in range(first, first + 100):
            if number != missing:
                settled.add(number)
        assert settled.next_open(first, first + 100) == missing
        assert settled.next_open(missing, first + 100) == missing
        assert settled.next_open(missing + 1, first + 100) == first + 100


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)), st.integers(0, 300), st.integers(0, 300))
def test_it_is_a_set(added: set[int], removed: set[int], start: int, forgotten: int) -> None:
    """It holds what a set of numbers would hold, and finds the first one missing as a search would."""
    settled = SettledOffsets(0)
    for number in added:
        settled.add(number)
    for number in removed:
        settled.discard(number)
    expected = added - removed
    assert {number for number in range(320) if number in settled} == expected
    settled.forget_below(forgotten)
    kept = {number for number in expected if number >= forgotten}
    assert {number for number in range(forgotten, 320) if number in settled} == kept
    start = max(start, forgotten)
    assert settled.next_open(start, 310) == next(number for number in range(start, 320) if number not in kept)


def test_numbers_before_the_first_are_left_out() -> None:
    """What lies before the beginning is not taken in, nor after it was forgotten."""
    settled = SettledOffsets(64)
    settled.add(3)
    assert 3 not in settled
    settled.add(70)
    settled.forget_below(1_000)
    settled.add(70)
    assert 70 not in settled
    assert settled.next_open(1_000, 2_000) == 1_000


def test_size_is_a_bit_for_each() -> None:
    """A million numbers take an eighth of a megabyte, and nothing when they are forgotten."""
    settled = SettledOffsets(0)
    for number in random.Random(1).sample(range(1_000_000), 1_000):
        settled.add(number)
    settled.add(999_999)
    assert repr(settled) == "<SettledOffsets from 0, 125000 bytes>"
    settled.forget_below(1_000_000)
    assert repr(settled) == "<SettledOffsets from 1000000, 0 bytes>"
