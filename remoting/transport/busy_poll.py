"""Looking for the next request at once, instead of sleeping, while one peer asks for one thing after another.

A loop that sleeps has to be woken up for each request of such a peer, which takes longer than to serve it.

Rules
    1. Looked for is the next read of a peer that has been served some times in short succession, and nobody else in
       between, by turns of the loop that do not sleep. All else is done in these turns as in any other.
    2. It is looked for on credit: a read that comes brings some time, looking uses it up, and little is saved. So the
       loop sleeps again if the peer asks more slowly, or has ended; another one that asks takes all credit.
    3. Without credit it rests, twice as long each time, until a peer has asked fast enough to fill it up.
    4. A turn that took much longer than it takes to look says that somebody else wants the core, or the loop. It rests
       longest then: the system makes those wait who always run.
    5. Each look first lets a thread run that waits for this core. A Java consumer has such threads when it has got many
       messages, and takes up to a tenth more of them for it.
    6. Who has one core only never looks: its peer needs the core to ask.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

_READS_IN_A_ROW = 8
_SAVED_READS = 4
_FIRST_REST_NS = 1_000_000
_LONGEST_REST_NS = 256_000_000
_STALLED_NS = 2_000_000
_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


def _give_way() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()


class BusyPoll:
    """Looks for reads that come each ``mean_us`` or faster; lives on the event loop."""

    def __init__(
        self,
        mean_us: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
        give_way: Callable[[], None] = _give_way,
    ) -> None:
        self._mean_ns = 1000 * mean_us
        self._most_ns = _SAVED_READS * self._mean_ns
        self._now_ns = now_ns
        self._give_way = give_way
        self._peer = 0  # its identity: a reference would keep a connection that has ended
        self._row = 0  # reads of that peer since another was served
        self._served_ns = 0
        self._looked_ns = 0
        self._credit_ns = 0
        self.is_looking = False
        """Whether the loop does not sleep."""
        self._rest_ns = _FIRST_REST_NS
        self._rests_until_ns = 0

    def __repr__(self) -> str:
        return f"<BusyPoll {'looking' if self.is_looking else 'sleeping'}, {self._credit_ns // 1000} us of credit>"

    def after_read(self, peer: object) -> None:
        """Take note that what a peer's read has brought is served."""
        now_ns = self._now_ns()
        took_ns, self._served_ns, self._looked_ns = now_ns - self._served_ns, now_ns, now_ns
        if self._peer != id(peer):
            self._peer, self._row, self._credit_ns = id(peer), 1, 0
            return
        self._row += 1
        if self.is_looking:
            self._credit_ns = min(self._credit_ns + self._mean_ns, self._most_ns)
            if self._credit_ns == self._most_ns:
                self._rest_ns = _FIRST_REST_NS
        elif self._row >= _READS_IN_A_ROW and took_ns <= self._most_ns and now_ns >= self._rests_until_ns:
            self._credit_ns = self._most_ns
            self.is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._give_way()
        now_ns = self._now_ns()
        took_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        self._credit_ns -= took_ns
        if self._credit_ns > 0 and took_ns < _STALLED_NS:
            asyncio.get_running_loop().call_soon(self._look)
            return
        self.is_looking = False
        if took_ns >= _STALLED_NS:
            self._rest_ns = _LONGEST_REST_NS
        self._rests_until_ns = now_ns + self._rest_ns
        self._rest_ns = min(2 * self._rest_ns, _LONGEST_REST_NS)


def make_busy_poll(mean_us: int) -> BusyPoll | None:
    """Return what looks for reads that come so fast; none for 0, or where one core is all there is."""
    return BusyPoll(mean_us) if mean_us and _usable_cores() > 1 else None


def _usable_cores() -> float:
    """Return how many cores this process may use, as the system and its control group say."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, period = _QUOTA_FILE.read_text().split()
        return cores if quota == "max" else min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        return cores
