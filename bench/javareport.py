"""What `bench/java.py` has measured, as lines of a table, as JSON, as a chart and as a part of a page."""

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_PER_SECOND = "/s"
_BETTER, _WORSE = "#2a78b5", "#c0504d"


class Line(NamedTuple):
    """One value of a row: of each round the value of both, and the CPU time of a message if it says anything."""

    name: str
    unit: str
    java: Sequence[float]
    own: Sequence[float]
    java_us: Sequence[float]
    own_us: Sequence[float]

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit == _PER_SECOND

    @property
    def ratios(self) -> list[float]:
        """Rocketlet's part of the Java broker's value in each round, sorted."""
        return sorted(own / java for java, own in zip(self.java, self.own, strict=True))

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {**self._asdict(), "ratio": self.ratio}

    def cells(self) -> list[str]:
        """Return the line as the cells of a table."""
        unit = "" if self.is_rate else f" {self.unit}"
        java, own = (f"{_number(statistics.median(values))}{unit}" for values in (self.java, self.own))
        spread = f"{self.ratios[0]:.2f} to {self.ratios[-1]:.2f}"
        costs = [f"{statistics.median(each):.1f} us" if each else "" for each in (self.java_us, self.own_us)]
        return [self.name, java, own, f"{self.ratio:.2f}", spread, *costs]


TITLES = ("", "Java broker", "rocketlet", "ratio", "least to greatest", "broker CPU, Java", "rocketlet")
_WIDTHS = (42, 14, 14, 8, 20, 18, 12)


def print_title() -> None:
    """Print the head of the table."""
    print(_row(TITLES), flush=True)


def print_line(line: Line) -> None:
    """Print a line of the table."""
    print(_row(line.cells()), flush=True)


_BEGIN, _END = "<!-- rows -->\n", "<!-- end of rows -->\n"


def write_page(lines: Iterable[Line], page: Path) -> None:
    """Write the lines into the table of a page; other lines of it stay as they are."""
    before, _, rest = page.read_text().partition(_BEGIN)
    inside, found, after = rest.partition(_END)
    if not found:
        raise SystemExit(f"{page} has no {_BEGIN.strip()} and {_END.strip()}")
    rows = {row.split("|")[1].strip(): row for row in inside.splitlines()[4:]}
    rows |= {line.name: "| " + " | ".join(line.cells()) + " |" for line in lines}
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}:"
    table = [machine, "", "| " + " | ".join(TITLES) + " |", "|---" * len(TITLES) + "|", *rows.values()]
    page.write_text(f"{before}{_BEGIN}" + "\n".join(table) + f"\n{_END}{after}")


def draw_chart(lines: Sequence[Line], target: Path) -> None:
    """Draw how many times as fast rocketlet is, a bar for each line; of times and memory it is how often it goes in."""
    from matplotlib.figure import Figure  # only who wants a chart needs it

    names = [line.name for line in lines]
    factors = [line.ratio if line.is_rate else 1 / line.ratio for line in lines]
    figure: Any = Figure(figsize=(8, 0.36 * len(lines) + 0.9), layout="constrained")
    axes = figure.subplots()
    colors = [_BETTER if factor >= 1 else _WORSE for factor in factors]
    bars = axes.barh(names, factors, color=colors)
    axes.bar_label(bars, [f"{factor:.1f}x" for factor in factors], padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(0.8 * min(0.5, *factors), 1.6 * max(2, *factors))
    axes.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    axes.minorticks_off()
    axes.margins(y=0.01)
    axes.set_title("rocketlet beside the Java broker (more is better)")
    axes.invert_yaxis()
    figure.savefig(target, dpi=110)


def _row(cells: Iterable[str]) -> str:
    first, *rest = zip(cells, _WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
