"""What a process has besides memory: tasks, threads, sockets and other descriptors."""

import asyncio
import contextlib
import gc
import os
import re
import stat
import threading
from typing import Any, NamedTuple

DESCRIPTORS = "/dev/fd"
_BROKERS_STORE = re.compile(r"/rocketlet-[a-z0-9_]{8}(/|$)")  # of ``rocketlet.testing``, by ``tempfile``
_BROKERS_THREAD = re.compile("rocketlet-(flusher|sync|files|timers|timer-files)(_|$)")


class Census(NamedTuple):
    """What there is now; sockets by their inodes."""

    tasks: frozenset[str]
    threads: frozenset[str]
    sockets: frozenset[int]

    def since(self, before: "Census") -> "Census":
        """Return what was not there before; what servers of other tests have given up meanwhile plays no part."""
        return Census(self.tasks - before.tasks, self.threads - before.threads, self.sockets - before.sockets)


NOTHING = Census(frozenset(), frozenset(), frozenset())


def take_census(*, with_brokers: bool = False) -> Census:
    """Look, inside a running loop or outside; sockets that nobody needs any more do not count.

    Nor do threads of brokers, unless asked for: that of the session lives in this process, and starts some at will.
    """
    gc.collect()
    tasks: set[asyncio.Task[Any]] = set()
    with contextlib.suppress(RuntimeError):  # no loop runs
        tasks = asyncio.all_tasks()
    return Census(
        frozenset(task.get_name() for task in tasks),
        frozenset(
            thread.name for thread in threading.enumerate() if with_brokers or not _BROKERS_THREAD.match(thread.name)
        ),
        frozenset(map(_socket_inode, os.listdir(DESCRIPTORS))) - {0},
    )


def count_descriptors(*, with_brokers: bool = False) -> int:
    """Return how many files and directories this process has open; those of maps that nobody needs do not count.

    Nor do those of the session's broker, unless asked for: it opens some when it likes, in a thread of its own.
    """
    gc.collect()
    return sum(_is_file(descriptor, with_brokers=with_brokers) for descriptor in os.listdir(DESCRIPTORS))


def _is_file(descriptor: str, *, with_brokers: bool) -> bool:
    try:
        mode = os.fstat(int(descriptor)).st_mode
        path = os.readlink(f"{DESCRIPTORS}/{descriptor}")
    except OSError:  # that of the listing itself
        return False
    return (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and (with_brokers or _BROKERS_STORE.search(path) is None)


def _socket_inode(descriptor: str) -> int:
    """Return 0 for what is no socket."""
    try:
        about = os.fstat(int(descriptor))
    except OSError:  # that of the listing itself
        return 0
    return about.st_ino if stat.S_ISSOCK(about.st_mode) else 0
