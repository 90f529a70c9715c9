"""Measure rocketlet beside the Java broker, with the Java client as load (`make bench-java`, `make bench-long`).

The official broker 5.4.0 and `rocketlet up`, both with their default settings, in turn, A B A B …; the same client
program loads both and shares their cores. The Java virtual machines have both compilers and the collector of RocketMQ's
own scripts; the first round of a row warms them up and is not counted. A row is the median of its rounds, its ratio the
median of the ratios of neighbouring rounds, with the least and the greatest beside it. The last columns are the CPU
time of a message in the broker: they say what a faster client would see.

    python bench/java.py                        the short form: eight rows and the start
    python bench/java.py --long                 all rows
    python bench/java.py --only batch --rounds 9
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from interop.driver import Driver
from javareport import Line, draw_chart, print_line, print_title, write_page
from javarows import LONG, SHORT, Round, Row, Sample
from javasides import Side, official, own, start_client


@click.command()
@click.option("--long", "is_long", is_flag=True, help="All rows.")
@click.option("--only", help="Only rows that have this in their names.")
@click.option("--rounds", type=int, help="Counted rounds of each row; 5, of the long form 3.")
@click.option("--scale", default=1.0, show_default=True, help="How much is sent, as a factor.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write all rounds there.")
@click.option("--chart", type=click.Path(path_type=Path), help="Draw the ratios there, as a PNG.")
@click.option(
    "--page", type=click.Path(path_type=Path, exists=True), help="Write the lines there, beside others that it has."
)
def main(  # options
    *,
    is_long: bool,
    only: str | None,
    rounds: int | None,
    scale: float,
    target: Path | None,
    chart: Path | None,
    page: Path | None,
) -> None:
    """Print a line for each row."""
    rows = [row for row in (LONG if is_long else SHORT) if only is None or only in row.name]
    rounds = rounds or (3 if is_long else 5)
    lines: list[Line] = []
    print_title()
    with (
        tempfile.TemporaryDirectory() as directory,
        start_client() as client,
        official(Path(directory) / "java") as java,
        own(Path(directory) / "own") as rocketlet,
    ):
        for row in rows:
            for line in measure(row, (java, rocketlet), rounds, scale, client):
                print_line(line)
                lines.append(line)
    if target is not None:
        target.write_text(json.dumps([line.as_json() for line in lines], indent=1) + "\n")
    if chart is not None:
        draw_chart(lines, chart)
    if page is not None:
        write_page(lines, page)


def measure(row: Row, sides: Sequence[Side], rounds: int, scale: float, client: Driver) -> list[Line]:
    """Return what a row tells: one line for each of its values."""
    found: list[list[Sample]] = [[] for _ in sides]
    for number in range(-1, rounds):
        for side, samples in zip(sides, found, strict=True):
            sample = row.measure(Round(side, client, number, scale))
            if number >= 0:
                samples.append(sample)
    costs = [[one.broker_us for one in samples if one.broker_us is not None] for samples in found]
    return [
        Line(
            f"{row.name}, {value}" if value else row.name,
            unit,
            *([one.values[value] for one in samples] for samples in found),
            *costs,
        )
        for value, unit in row.units.items()
    ]


if __name__ == "__main__":
    main()
