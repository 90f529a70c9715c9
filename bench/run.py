"""Measure sends and consumption (`make bench`).

Every figure stands beside a reference from the same run: a bare asyncio echo of the same frames for our load generator,
the official Java client for ours. The load shares the cores with what it measures. The broker beside the official one
is measured by `bench/java.py`.
"""

import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from clientload import CLIENTS, find_rows, measure_rows
from frameload import measure_frames
from interop.servers import RocketletServer
from interop.toolchain import MissingToolError
from javasides import start_client


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Rounds of each row; the median is printed.")
@click.option("--scale", default=1.0, show_default=True, help="How much is sent, as a factor.")
@click.option("--frames/--no-frames", default=True, help="Measure with our own load generator.")
@click.option("--client/--no-client", default=True, help="Measure our asyncio client.")
@click.option("--java/--no-java", default=True, help="Measure the official Java client beside it.")
def main(rounds: int, scale: float, *, frames: bool, client: bool, java: bool) -> None:
    """Print messages per second for sends and consumption."""
    with tempfile.TemporaryDirectory() as directory, RocketletServer(Path(directory) / "store", {}) as server:
        if frames:
            measure_frames(server.broker, rounds, scale)
        if client:
            _print_client(server, rounds, scale, with_java=java)


def _print_client(server: RocketletServer, rounds: int, scale: float, *, with_java: bool) -> None:
    CLIENTS.print_title()
    try:
        with start_client() if with_java else nullcontext() as java:
            for line in measure_rows(find_rows(scale), server, java, rounds):
                CLIENTS.print_line(line)
    except MissingToolError as missing:
        raise SystemExit(f"no figures of the Java client: {missing}") from missing


if __name__ == "__main__":
    main()
