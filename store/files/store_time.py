"""The time of a store: what records are stamped with, and how much time has passed since.

    stamp     the store time of a record. It is the wall clock; while that is behind, because somebody has set it back,
              half as fast as time passes, until the wall clock has caught up
    elapsed   what delays are measured with: time that passes, and forward with the wall clock (a machine that slept)

Rules
    1. Neither ever goes back, and each begins at the wall clock, or at the last record of the store if that is later.
    2. To set the wall clock back takes no time: what was to wait for two hours waits for the rest of them, neither
       nothing nor the length of the step more.
    3. To set it forward does: as in Java, what is due by the wall clock is due.
    4. Since a stamp never stands still, it tells for each record of this process how much time has passed since. Of the
       records before only the stamp is known.
"""

from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter

_ROUNDING_MS = 2  # two clocks that are read one after the other, in whole milliseconds
_MOST_CORNERS = 64
_stamp_of = itemgetter(0)


class StoreTime:
    """Reads both clocks whenever it is asked."""

    def __init__(self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int], last_stamp_ms: int) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._seen_ms: int = monotonic_ms()
        self._wall_seen_ms: int = -1
        start_ms = max(wall_ms(), last_stamp_ms)
        self._elapsed_ms: int = start_ms
        self._half_stamps: int = 2 * start_ms  # in halves of a millisecond
        self._is_behind: bool = False
        self._corners = [(start_ms, start_ms)]  # stamp and elapsed where one began to go at another pace

    def __repr__(self) -> str:
        return f"<StoreTime {self._half_stamps // 2}, elapsed {self._elapsed_ms}>"

    def stamp_ms(self) -> int:
        """Return the store time of a record that is stored now."""
        wall_ms, seen_ms = self._wall_ms(), self._monotonic_ms()
        if seen_ms == self._seen_ms and wall_ms == self._wall_seen_ms:  # nearly always under load
            return self._half_stamps // 2
        self._wall_seen_ms = wall_ms
        passed_ms, self._seen_ms = max(0, seen_ms - self._seen_ms), seen_ms
        before = self._half_stamps // 2, self._elapsed_ms
        halves = self._half_stamps + passed_ms
        is_behind = wall_ms < halves // 2
        is_jump = not is_behind and abs(wall_ms - before[0] - passed_ms) > _ROUNDING_MS
        self._half_stamps = halves if is_behind else 2 * wall_ms
        self._elapsed_ms = max(self._elapsed_ms + passed_ms, wall_ms)
        if is_behind != self._is_behind or is_jump:
            self._is_behind = is_behind
            self._corners += before, (self._half_stamps // 2, self._elapsed_ms)
            del self._corners[:-_MOST_CORNERS]
        return self._half_stamps // 2

    def elapsed_ms(self) -> int:
        """Return the instant to compare with ``elapsed_at``."""
        self.stamp_ms()  # it looks at the clocks
        return self._elapsed_ms

    def elapsed_at(self, stamp_ms: int) -> int:
        """Return what ``elapsed_ms`` was when a record with that store time was stored."""
        corners = [*self._corners, (self._half_stamps // 2, self._elapsed_ms)]
        place = bisect_right(corners, stamp_ms, key=_stamp_of)
        stamp, elapsed = corners[max(0, place - 1)]
        if place in (0, len(corners)):
            return stamp_ms + elapsed - stamp
        following, elapsed_then = corners[place]
        return elapsed + (stamp_ms - stamp) * (elapsed_then - elapsed) // (following - stamp)
