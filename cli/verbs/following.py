"""What commands that follow topics have in common: how they end, and where they tell what they go on after.

``until_stopped`` ends its block quietly with SIGINT and SIGTERM, and, where it ``watches_output``, when nobody reads
what is printed any more: a pipe whose reader has gone is noticed at once, not with the next message.
"""

import logging
import os
import signal
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def telling_troubles() -> Generator[None]:
    """Have what the following meets and goes on after printed to stderr."""
    from ...client.admin import topic_tail

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("rocketlet: %(message)s"))
    log = logging.getLogger(topic_tail.__name__)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def until_stopped(*, watches_output: bool) -> Generator[None]:
    """Let the block end quietly when the process shall stop."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None, "this runs in one"
    was_told: list[bool] = []

    def stop(*_: Any) -> None:
        if not was_told:
            was_told.append(True)
            task.cancel()

    with _listening(stop, _pipe_of_stdout() if watches_output else None):
        try:
            yield
        except asyncio.CancelledError:
            if not was_told or task.uncancel():
                raise


@contextmanager
def _listening(stop: Callable[[], None], output: int | None) -> Generator[None]:
    import asyncio

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    with suppress(RuntimeError, ValueError):  # not in the main thread of its program
        for number in numbers:
            loop.add_signal_handler(number, stop)
    if output is not None:
        loop.add_reader(output, stop)  # a pipe that is written to gets readable when its reader has gone
    try:
        yield
    finally:
        if output is not None:
            loop.remove_reader(output)
        for number in numbers:
            loop.remove_signal_handler(number)


def _pipe_of_stdout() -> int | None:
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(mode) else None
