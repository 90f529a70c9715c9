"""Counts what work costs, so that a test can compare it for n and for 2n: calls, and bytes held; never time."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

GROWTH = 2.2
"""How many times as many calls twice the input may take."""


class Spent(NamedTuple):
    """PendingRequests of Python and C functions, the most bytes held at once, and those that are held afterwards."""

    calls: int
    peak_bytes: int
    kept_bytes: int


def count_calls(work: Callable[[], object]) -> int:
    """Return how many calls of Python and C functions the work takes."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def measure(work: Callable[[], object], *, counts_calls: bool = True) -> Spent:
    """Return what the work costs; where calls are counted it is done twice, since counting both would count itself."""
    calls = count_calls(work) if counts_calls else 0
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result = work()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del result
    return Spent(calls, peak - before, after - before)
