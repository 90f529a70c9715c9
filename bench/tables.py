"""What benchmarks have measured, as lines of a table: printed, as JSON, and as a part of a page.

A ``Comparison`` has two things side by side, a ``Growth`` one thing at growing sizes. Of both each round is kept. A
table on a page stands between two comments that have its name, and a line that is measured again takes the place of
the one before.
"""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

_PER_SECOND = "/s"


class Line(Protocol):
    """A line of a table."""

    @property
    def name(self) -> str:
        """What stands in its first cell; no other line of the table has it."""
        ...

    def cells(self) -> list[str]:
        """Return the line as the cells of its table."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        ...


class Table(NamedTuple):
    """The head of a table; ``name`` is what its place on a page is found by."""

    name: str
    titles: tuple[str, ...]
    widths: tuple[int, ...]

    def print_title(self) -> None:
        """Print the head."""
        self._print(self.titles)

    def print_line(self, line: Line) -> None:
        """Print a line."""
        self._print(line.cells())

    def _print(self, cells: Iterable[str]) -> None:
        first, *rest = zip(cells, self.widths, strict=True)
        print(f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest), flush=True)


class Comparison(NamedTuple):
    """One value of a row: of each round the value of both, and CPU times of a message, by whose they are.

    ``java`` is empty where the Java side has nothing like it, a CPU time where it says nothing.
    """

    name: str
    unit: str
    java: Sequence[float]
    own: Sequence[float]
    costs_us: Mapping[str, Sequence[float]]

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit == _PER_SECOND

    @property
    def ratios(self) -> list[float]:
        """Rocketlet's part of the Java side's value in each round in which that is not 0, sorted."""
        return sorted(own / java for java, own in zip(self.java, self.own, strict=False) if java)

    @property
    def ratio(self) -> float | None:
        """The median of the ratios."""
        return statistics.median(self.ratios) if self.ratios else None

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {**self._asdict(), "ratio": self.ratio}

    def cells(self) -> list[str]:
        """Return names, values, ratio, its spread, and the CPU times."""
        unit = "" if self.is_rate else f" {self.unit}"
        values = [f"{_number(statistics.median(each))}{unit}" if each else "" for each in (self.java, self.own)]
        ratio, spread = "", ""
        if self.ratios:
            ratio, spread = f"{self.ratio:.2f}", f"{self.ratios[0]:.2f} to {self.ratios[-1]:.2f}"
        return [self.name, *values, ratio, spread, *(_microseconds(each) for each in self.costs_us.values())]


class Growth(NamedTuple):
    """What an operation costs at each size: of each round the CPU time of one, and how many were done in a second."""

    name: str
    sizes: Sequence[int]
    costs_us: Sequence[Sequence[float]]
    rates: Sequence[Sequence[float]]

    @property
    def ratios(self) -> list[float]:
        """The CPU time at each size as a multiple of that at the size before: medians of those of the rounds."""
        return [
            statistics.median(after / before for before, after in zip(*pair, strict=True))
            for pair in zip(self.costs_us, self.costs_us[1:], strict=False)
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {**self._asdict(), "ratios": self.ratios}

    def cells(self) -> list[str]:
        """Return name, sizes, CPU time at the first and the last size, the ratios, and both rates."""
        sizes = " to ".join(f"{size:,}" for size in self.sizes[:: len(self.sizes) - 1 or 1])
        costs = [_microseconds(each) for each in (self.costs_us[0], self.costs_us[-1])]
        rates = [_number(statistics.median(each)) for each in (self.rates[0], self.rates[-1])]
        return [self.name, sizes, *costs, ", ".join(f"{ratio:.2f}" for ratio in self.ratios), *rates]


def replace_lines(page: str, table: Table, lines: Iterable[Line]) -> str:
    """Return the text of a page with the lines in the place of the table; other lines there stay as they are.

    Raises:
        ValueError: The page has no such place.
    """
    begin, end = f"<!-- {table.name} -->\n", f"<!-- end of {table.name} -->\n"
    before, _, rest = page.partition(begin)
    inside, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page has no {begin.strip()} and {end.strip()}")
    rows = {row.split("|")[1].strip(): row for row in inside.splitlines()[4:]}
    rows |= {line.name: _markdown_row(line.cells()) for line in lines}
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}:"
    text = [machine, "", _markdown_row(table.titles), "|---" * len(table.titles) + "|", *rows.values()]
    return f"{before}{begin}" + "\n".join(text) + f"\n{end}{after}"


def write_page(page: Path, found: Mapping[Table, Sequence[Line]]) -> None:
    """Write tables into a page; one of which nothing was measured stays as it is."""
    text = page.read_text()
    for table, lines in found.items():
        if lines:
            text = replace_lines(text, table, lines)
    page.write_text(text)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _microseconds(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} us" if values else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
