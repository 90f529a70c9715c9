"""A bar on a terminal, elsewhere a line for each tenth: how far a command is with the bytes it reads."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import click

_STEP_PERCENT: Final = 10


@contextmanager
def show_progress(size_bytes: int, doing: str, done: str) -> Generator[Callable[[int], None]]:
    """Yield the call that takes how many bytes more were read; ``doing`` and ``done`` are verbs."""
    if not sys.stderr.isatty():
        yield _PercentLines(size_bytes, done).advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(doing, *columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(doing, total=size_bytes)
        yield lambda advance: progress.advance(task, advance)


class _PercentLines:
    """Prints how far it is, at whole steps."""

    def __init__(self, size_bytes: int, done: str) -> None:
        self._size = max(size_bytes, 1)
        self._verb = done
        self._done = 0
        self._printed = 0

    def advance(self, done: int) -> None:
        self._done += done
        percent = 100 * self._done // self._size // _STEP_PERCENT * _STEP_PERCENT
        if percent > self._printed:
            self._printed = percent
            click.echo(f"{self._verb} {percent} %", err=True)
