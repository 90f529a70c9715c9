"""Numbers that only grow, sampled: what they have grown by in the last minute, hour and day (``StatsItem``; D.5).

    window   sampled each   points kept   tells at most
    minute   10 s           7             60 s
    hour     10 min         7             60 min
    day      1 h            25            24 h

Rules

    1. The first sample of a row stands behind a zero, one period earlier; a window reaches from the oldest point that
       is kept to the latest. So a rate is that of the time that was really sampled, and what came after the latest
       sample is told with the next one.
    2. A row has its points in one array of 64-bit numbers, 1.3 KB for four columns. Of ``MOST_ROWS`` rows at most
       points are kept; further ones have none until others go.
    3. A row that has not grown for a day is given up: all its windows are zero.
    4. Sampling goes on in steps between which the loop does other work. A window moves on when all rows are sampled.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple

from ..outcomes.queue_counts import K, QueueCounts

MOST_ROWS: Final = 20_000
_ROWS_IN_STEP = 1_000


class Window(NamedTuple):
    """How often a window is sampled, and how many points it keeps."""

    period_ms: int
    points: int


MINUTE, HOUR, DAY = range(3)
WINDOWS: Final = (Window(10_000, 7), Window(600_000, 7), Window(3_600_000, 25))
_FIRST_SLOTS = (0, 8, 16)
_SLOTS = 42
"""Of all windows, one more each than it has points: the next sample is taken beside them."""


class Growth(NamedTuple):
    """What a number has grown by, per second, and each time (``StatsSnapshot``)."""

    total: int = 0
    per_second: float = 0.0
    each_time: float = 0.0


class Timeline:
    """When the samples of each window were taken."""

    def __init__(self, now_ms: int) -> None:
        self.taken = [0, 0, 0]
        self.due_at_ms = [now_ms + window.period_ms for window in WINDOWS]
        self._instants = [deque[int](maxlen=window.points) for window in WINDOWS]

    def due(self, now_ms: int) -> Iterator[int]:
        """Return the windows that are to be sampled now."""
        for number, window in enumerate(WINDOWS):
            if now_ms >= self.due_at_ms[number]:
                behind = now_ms - self.due_at_ms[number]
                self.due_at_ms[number] = now_ms + window.period_ms - behind % window.period_ms
                yield number

    def done(self, number: int, at_ms: int) -> None:
        """Note that a window has one more sample."""
        self._instants[number].append(at_ms)
        self.taken[number] += 1

    def span_ms(self, number: int, first: int) -> int:
        """Return how long the points of a row reach whose first sample in a window is known."""
        instants, taken = self._instants[number], self.taken[number]
        if first <= taken - WINDOWS[number].points:
            return instants[-1] - instants[0]
        return instants[-1] - instants[first - (taken - len(instants))] + WINDOWS[number].period_ms


class _Row:
    """The points of a row, and the number of its first sample in each window; -1 while there is none."""

    __slots__ = ("firsts", "points")

    def __init__(self, columns: int) -> None:
        self.firsts = [-1, -1, -1]
        self.points = array("q", bytes(8 * _SLOTS * columns))


class Trend(NamedTuple, Generic[K]):
    """How many samples were taken, how often rows were dropped, and what has grown in a window at all.

    While the first two are the same, so is all growth; that of the others is nothing as long as rows are not dropped.
    """

    taken: int
    dropped: int
    growing: frozenset[K]

    def of(self, key: K) -> tuple[int, int]:
        """Return a value that is another one whenever the growth of something, or what it counts from, may be."""
        return self.dropped, self.taken if key in self.growing else 0


class SampledCounts(Generic[K]):
    """A table of numbers by something and queue, and the points of its rows."""

    def __init__(self, counts: QueueCounts[K], columns: int, timeline: Timeline, most_rows: int = MOST_ROWS) -> None:
        self.counts = counts
        self._columns = columns
        self._timeline = timeline
        self._most_rows = most_rows
        self._rows: dict[K, dict[int, _Row]] = {}
        self._row_count = 0
        self._known: dict[tuple[K, int, int, int | None, int | None], Growth] = {}
        self._known_at: list[int] = []
        self._dropped = 0
        self._moved: list[dict[K, int]] = [{} for _ in WINDOWS]  # the last sample that was another one than before
        self._trends: dict[int, Trend[K]] = {}

    def __repr__(self) -> str:
        return f"<SampledCounts of {self._row_count} rows>"

    def sample(self, number: int) -> Iterator[None]:
        """Take the next sample of a window, a step at a time."""
        passed = 0
        for key in list(self.counts):
            queues = self.counts.get(key)
            for queue_id, counters in queues.items() if queues else ():
                self._note(key, queue_id, number, counters)
                passed += 1
            if passed >= _ROWS_IN_STEP:
                passed = 0
                yield

    def _note(self, key: K, queue_id: int, number: int, counters: list[int]) -> None:
        rows = self._rows.setdefault(key, {})
        row = rows.get(queue_id)
        if row is None:
            if self._row_count >= self._most_rows:
                return
            row = rows[queue_id] = _Row(self._columns)
            self._row_count += 1
        taken = self._timeline.taken[number]
        begin, before, points = self._place(number, taken), self._place(number, taken - 1), array("q", counters)
        if row.firsts[number] < 0:
            row.firsts[number] = taken
            self._moved[number][key] = taken
        elif row.points[before : before + self._columns] != points:
            self._moved[number][key] = taken
        row.points[begin : begin + self._columns] = points

    def _place(self, number: int, sample: int) -> int:
        return (_FIRST_SLOTS[number] + sample % (WINDOWS[number].points + 1)) * self._columns

    def trend(self, number: int) -> Trend[K]:
        """Return what decides about the growth in a window, without the growth."""
        taken = self._timeline.taken[number]
        trend = self._trends.get(number)
        if trend is None or (trend.taken, trend.dropped) != (taken, self._dropped):
            oldest = taken - WINDOWS[number].points
            growing = frozenset([key for key, moved in self._moved[number].items() if moved > oldest])
            trend = self._trends[number] = Trend(taken, self._dropped, growing)
        return trend

    def growth(self, key: K, number: int, column: int, times: int | None, queue_id: int | None = None) -> Growth:
        """Return what a column has grown by in a window, over all queues or in one; ``times`` counts how often."""
        if key not in self._rows:
            return Growth()
        if self._known_at != self._timeline.taken:  # nothing changes between two samples
            self._known, self._known_at = {}, [*self._timeline.taken]
        asked = key, number, column, times, queue_id
        known = self._known.get(asked)
        if known is None:
            known = self._known[asked] = self._find_growth(*asked)
        return known

    def _find_growth(self, key: K, number: int, column: int, times: int | None, queue_id: int | None) -> Growth:
        rows = self._rows[key]
        wanted = rows.values() if queue_id is None else [rows[queue_id]] if queue_id in rows else []
        known = [row for row in wanted if 0 <= row.firsts[number] < self._timeline.taken[number]]
        if not known:
            return Growth()
        total = self._grown(known, number, column)
        often = 0 if times is None else self._grown(known, number, times)
        span_ms = self._timeline.span_ms(number, min(row.firsts[number] for row in known))
        return Growth(total, total * 1000 / span_ms if span_ms > 0 else 0.0, total / often if often else 0.0)

    def _grown(self, rows: Iterable[_Row], number: int, column: int) -> int:
        taken = self._timeline.taken[number]
        last, oldest = self._place(number, taken - 1) + column, taken - WINDOWS[number].points
        total = 0
        for row in rows:
            total += row.points[last]
            if row.firsts[number] <= oldest:
                total -= row.points[self._place(number, oldest) + column]
        return total

    def drop(self, key: K) -> Mapping[int, list[int]]:
        """Forget something; return what its queues had come to."""
        self._known_at = []
        self._dropped += 1
        self._row_count -= len(self._rows.pop(key, {}))
        self._forget_moves(key)
        return self.counts.pop(key, None) or {}

    def _forget_moves(self, key: K) -> None:
        for moved in self._moved:
            moved.pop(key, None)

    def drop_idle(self) -> list[tuple[K, list[int]]]:
        """Give up the rows that have not grown for a day; return what they had come to."""
        idle: list[tuple[K, list[int]]] = []
        self._known_at = []
        self._dropped += 1
        for key, rows in list(self._rows.items()):
            queues = self.counts[key]
            for queue_id, row in list(rows.items()):
                if self._is_idle(row, queues[queue_id]):
                    idle.append((key, queues.pop(queue_id)))
                    del rows[queue_id]
                    self._row_count -= 1
            if not rows:
                del self._rows[key]
                self._forget_moves(key)
            if not queues:
                del self.counts[key]
        return idle

    def _is_idle(self, row: _Row, counters: list[int]) -> bool:
        oldest = self._timeline.taken[DAY] - WINDOWS[DAY].points
        if not 0 <= row.firsts[DAY] <= oldest:
            return False
        begin = self._place(DAY, oldest)
        return row.points[begin : begin + self._columns] == array("q", counters)
