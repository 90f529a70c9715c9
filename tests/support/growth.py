"""Counts what work costs, so that a test can compare it for n and for 2n: calls, and bytes held; never time."""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

GROWTH = 2.2
"""How many times as many calls twice the input may take."""


TraceFunction = Callable[[FrameType, str, Any], Any]


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


@contextmanager
def counting_steps() -> Generator[Callable[[], int]]:
    """Give a call that tells how many instructions of Python and calls of C functions the block has taken so far.

    The frames that begin in the block count, whoever calls them: also what the event loop runs while the block waits.
    """
    steps = 0

    def trace(frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event == "c_call"

    gc.disable()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        yield lambda: steps
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        gc.enable()


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
