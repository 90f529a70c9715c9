"""Measure rocketlet beside the Java broker, with the Java client as load (`make bench-java`, `make bench-long`).

The official broker 5.4.0 and `rocketlet up`, both with their default settings, in turn, A B A B …; the same client
program loads both and shares their cores. The Java virtual machines have both compilers and the collector of RocketMQ's
own scripts; the first round of a row warms them up and is not counted. A row is the median of its rounds, its ratio the
median of the ratios of neighbouring rounds, with the least and the greatest beside it. The last columns are the CPU
time of a message in the broker: they say what a faster client would see.

The long form has more rows, and four more tables: rocketlet's client beside the Java client (`clientload.py`), live
readings in Spark beside it (`sparklive.py`), a master with a slave beside an official pair (`pairs.py`), and what is to
stay flat when a broker has much of something (`sizes.py`).

    python bench/java.py                        the short form: eight rows and the start
    python bench/java.py --long                 all rows
    python bench/java.py --long --only queues   the rows of all tables that have this in their names
    python bench/java.py --only batch --rounds 9
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from chart import draw_chart
from clientload import CLIENTS, measure_clients
from interop.driver import Driver
from javarows import LONG, SHORT, Round, Row, Sample
from javasides import Side, official, own, start_client
from pairs import PAIRS, measure_pairs
from rounds import take_turns
from sizes import SIZES, measure_sizes
from sparklive import LIVE, measure_live
from tables import Comparison, Line, Table, write_page

BROKERS: Final = Table(
    "brokers",
    ("", "Java broker", "rocketlet", "ratio", "least to greatest", "broker CPU, Java", "rocketlet"),
    (42, 14, 14, 8, 20, 18, 12),
)
Measure = Callable[[Callable[[str], bool], int, float, Path], Iterator[Line]]
"""Yields the lines of a table: those whose names are wanted, of so many rounds, with a factor of how much is sent."""
_ROUNDS: Final = 5
_ROUNDS_OF_LONG: Final = 3


@click.command()
@click.option("--long", "is_long", is_flag=True, help="All rows of all tables.")
@click.option("--only", default="", help="Only rows that have this in their names.")
@click.option("--rounds", type=int, help="Counted rounds of each row; 5, in the long form 3, of clients 5.")
@click.option("--scale", default=1.0, show_default=True, help="How much is sent, as a factor.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write all rounds there.")
@click.option("--chart", type=click.Path(path_type=Path), help="Draw the ratios there, as a PNG.")
@click.option(
    "--page", type=click.Path(path_type=Path, exists=True), help="Write the lines there, beside others that it has."
)
def main(  # options
    *,
    is_long: bool,
    only: str,
    rounds: int | None,
    scale: float,
    target: Path | None,
    chart: Path | None,
    page: Path | None,
) -> None:
    """Print a line for each row."""
    parts: dict[Table, tuple[Measure, int]] = {BROKERS: (partial(measure_brokers, SHORT), _ROUNDS)}
    if is_long:
        parts = {
            BROKERS: (partial(measure_brokers, LONG), _ROUNDS_OF_LONG),
            CLIENTS: (measure_clients, _ROUNDS),
            LIVE: (measure_live, _ROUNDS_OF_LONG),
            PAIRS: (measure_pairs, _ROUNDS_OF_LONG),
            SIZES: (measure_sizes, _ROUNDS_OF_LONG),
        }
    found: dict[Table, list[Line]] = {table: [] for table in parts}
    try:
        for table, (measure, counted) in parts.items():
            with tempfile.TemporaryDirectory() as directory:
                lines = measure(lambda name: only in name, rounds or counted, scale, Path(directory))
                _collect(table, lines, found[table])
    finally:  # a row that fails ends the run, which is long: what came before is kept
        _write(found, target, chart, page)


def _collect(table: Table, lines: Iterator[Line], found: list[Line]) -> None:
    """Print each line as soon as it is there, and add it to those found."""
    for line in lines:
        if not found:
            table.print_title()
        table.print_line(line)
        found.append(line)


def _write(found: Mapping[Table, Sequence[Line]], target: Path | None, chart: Path | None, page: Path | None) -> None:
    if target is not None:
        told = {table.name: [line.as_json() for line in lines] for table, lines in found.items()}
        target.write_text(json.dumps(told, indent=1) + "\n")
    if chart is not None:
        draw_chart(_charted(found), chart)
    if page is not None:
        write_page(page, found)


def _charted(found: Mapping[Table, Sequence[Line]]) -> dict[str, list[Comparison]]:
    titles = {
        BROKERS: "rocketlet beside the Java broker (more is better)",
        CLIENTS: "rocketlet.client beside the Java client, on rocketlet",
        LIVE: "Spark beside the Java push consumer, on rocketlet",
    }
    drawn = {
        title: [line for line in found.get(table, ()) if isinstance(line, Comparison) and line.ratios]
        for table, title in titles.items()
    }
    return {title: lines for title, lines in drawn.items() if lines}


def measure_brokers(
    rows: Sequence[Row], is_wanted: Callable[[str], bool], rounds: int, scale: float, place: Path
) -> Iterator[Comparison]:
    """Measure both brokers: each row has a line for each of its values."""
    wanted = [row for row in rows if is_wanted(row.name)]
    if wanted:
        with start_client() as client, official(place / "java") as java, own(place / "own") as rocketlet:
            for row in wanted:
                yield from _measure(row, (java, rocketlet), rounds, scale, client)


def _measure(row: Row, sides: Sequence[Side], rounds: int, scale: float, client: Driver) -> Iterator[Comparison]:
    def run(side: Side, number: int) -> Sample:
        return row.measure(Round(side, client, number, scale))

    found = take_turns(rounds, [partial(run, side) for side in sides])
    costs = [[one.broker_us for one in samples if one.broker_us is not None] for samples in found]
    for value, unit in row.units.items():
        java, rocketlet = ([one.values[value] for one in samples] for samples in found)
        name = f"{row.name}, {value}" if value else row.name
        yield Comparison(
            name, unit, java, rocketlet, dict(zip(("broker, Java", "broker, rocketlet"), costs, strict=True))
        )


if __name__ == "__main__":
    main()
