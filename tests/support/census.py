"""What a process has besides memory: tasks, threads, sockets and other descriptors."""

import asyncio
import contextlib
import gc
import os
import threading
from typing import Any, NamedTuple

DESCRIPTORS = "/dev/fd"


class Census(NamedTuple):
    """What there is now."""

    tasks: frozenset[str]
    threads: frozenset[str]
    sockets: int


def take_census() -> Census:
    """Count, inside a running loop or outside; sockets that nobody needs any more do not count."""
    gc.collect()
    tasks: set[asyncio.Task[Any]] = set()
    with contextlib.suppress(RuntimeError):  # no loop runs
        tasks = asyncio.all_tasks()
    return Census(
        frozenset(task.get_name() for task in tasks),
        frozenset(thread.name for thread in threading.enumerate()),
        sum(map(_is_socket, os.listdir(DESCRIPTORS))),
    )


def count_descriptors() -> int:
    """Return how many descriptors this process has; those of maps that nobody needs any more do not count."""
    gc.collect()
    return len(os.listdir(DESCRIPTORS))


def _is_socket(descriptor: str) -> bool:
    try:
        return os.fstat(int(descriptor)).st_mode & 0o170000 == 0o140000
    except OSError:  # that of the listing itself
        return False
