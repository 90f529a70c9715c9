"""How far some jobs are: bars on a terminal, a line for each fifth elsewhere."""

import sys
import time
from contextlib import ExitStack
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

STEPS = 5
BAR_STEP = 500


class Progress:
    """Shows how much of one total each of some jobs has done."""

    def __init__(self, total: int, *jobs: str) -> None:
        self._total = total
        self._done = dict.fromkeys(jobs, 0)
        self._started = time.monotonic()
        self._stack = ExitStack()
        self._bars: Bars | None = None

    def __enter__(self) -> Self:
        """Show the bars."""
        if sys.stdout.isatty():
            columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bars = self._stack.enter_context(Bars(*columns))
            for job in self._done:
                self._bars.add_task(job, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bars as they are."""
        self._stack.close()

    def done(self, job: str) -> int:
        """Return how much a job has done."""
        return self._done[job]

    def count(self, job: str, messages: int = 1) -> None:
        """Count what a job has done."""
        before = self._done[job]
        done = self._done[job] = before + messages
        if self._bars is not None:
            if done // BAR_STEP > before // BAR_STEP or done == self._total:
                self._bars.update(self._bars.task_ids[list(self._done).index(job)], completed=done)
        elif done * STEPS // self._total > before * STEPS // self._total:
            print(f"{job:>10} {done:>8,} of {self._total:,} after {time.monotonic() - self._started:.1f} s")
