"""Which entries of a queue a filter of tags codes marks."""

import random

import pytest

from rocketlet.common.properties import java_hash
from rocketlet.store.consumequeue.consume_queue import ENTRY, PRE_BLANK_SIZE
from rocketlet.store.consumequeue.entry_filters import SMALL_BYTES, TagCodeFilter, are_small


def entries_of(*codes: int, size: int = 200) -> bytes:
    """Return entries with these codes."""
    return b"".join(ENTRY.pack(number * size, size, code) for number, code in enumerate(codes))


def test_marks_hold_all_that_is_wanted() -> None:
    """And little else: entries whose codes end with the same byte."""
    draw = random.Random(0)
    known = [java_hash(f"tag{number}") for number in range(40)]
    found = TagCodeFilter(known[:3])
    drawn = [draw.choice(known) for _ in range(500)]
    marked = {code for code, mark in zip(drawn, found.marks(entries_of(*drawn)), strict=True) if mark}
    assert marked >= set(drawn) & found.codes
    assert {code & 0xFF for code in marked} == {code & 0xFF for code in found.codes}


@pytest.mark.parametrize("code", [java_hash("a"), java_hash("polygenelubricants"), -1])
def test_hash_counts_whatever_stands_above_it(code: int) -> None:
    """As where the broker compares codes one by one."""
    found = TagCodeFilter([code])
    assert found(code)
    assert not found(code + 1)
    assert found.marks(entries_of(code & 0xFFFFFFFF, code + 1)) == b"\1\0"


@pytest.mark.parametrize(
    ("size", "is_small"), [(91, True), (SMALL_BYTES - 1, True), (SMALL_BYTES, False), (PRE_BLANK_SIZE, False)]
)
def test_small_records_are_told_by_their_sizes(size: int, is_small: bool) -> None:
    """Of all entries; the blank in front of a queue that begins later is of no record."""
    assert are_small(entries_of(1, 2, 3)) is True
    assert are_small(entries_of(1, 2, 3) + ENTRY.pack(0, size, 4) + entries_of(5)) is is_small
