"""Rounds in turn, A B A B …: a machine that becomes slower meanwhile does so for all of them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def take_turns(rounds: int, sides: Sequence[Callable[[int], T]]) -> list[list[T]]:
    """Measure each side in each round; return what was measured by side.

    A first round, with the number -1, warms up and is not counted.
    """
    found = [[side(number) for side in sides] for number in range(-1, rounds)]
    return [list(column) for column in zip(*found[1:], strict=True)]
