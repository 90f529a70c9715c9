"""The chart of `bench/java.py`: how many times as fast rocketlet is as what stands beside it, a bar for each line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tables import Comparison

_BETTER, _WORSE = "#2a78b5", "#c0504d"
_BAR, _TITLE = 0.36, 0.7


def draw_chart(parts: Mapping[str, Sequence[Comparison]], target: Path) -> None:
    """Draw the parts, by their titles, below each other; of times and memory a bar is how often it goes in."""
    from matplotlib.figure import Figure  # only who wants a chart needs it

    if not parts:
        return
    heights = [_BAR * len(lines) + _TITLE for lines in parts.values()]
    figure: Any = Figure(figsize=(8, sum(heights) + 0.2), layout="constrained")
    panels = figure.subplots(len(parts), 1, height_ratios=heights, sharex=True, squeeze=False)
    for axes, (title, lines) in zip(panels[:, 0], parts.items(), strict=True):
        _draw_bars(axes, title, lines)
    factors = [_factor(line) for lines in parts.values() for line in lines]
    lowest = panels[-1, 0]
    lowest.set_xscale("log")
    lowest.set_xlim(0.8 * min(0.5, *factors), 1.6 * max(2, *factors))
    lowest.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    for axes in panels[:, 0]:
        axes.minorticks_off()
    figure.savefig(target, dpi=110)


def _draw_bars(axes: Any, title: str, lines: Sequence[Comparison]) -> None:
    factors = [_factor(line) for line in lines]
    bars = axes.barh(
        [line.name for line in lines], factors, color=[_BETTER if factor >= 1 else _WORSE for factor in factors]
    )
    axes.bar_label(bars, [f"{factor:.1f}x" for factor in factors], padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.margins(y=0.01)
    axes.set_title(title)
    axes.invert_yaxis()


def _factor(line: Comparison) -> float:
    assert line.ratio is not None, "lines without another side are not drawn"
    return line.ratio if line.is_rate else 1 / line.ratio
