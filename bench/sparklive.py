"""Measure what a live reading in Spark costs, beside a Java consumer (`python bench/sparklive.py`).

A `rocketlet up` with its default settings holds messages of the official Java client, one tag of four each. Rounds
alternate; the first warms up and is not counted. All share the cores of the machine, so CPU time says more than rates.

- Backlog: the official push consumer works it off with a new group, then Spark reads body, properties and all
  metadata into `noop`. Client CPU is that of the Java process there, here of Spark's Java and its Python workers and
  driver together. Java's time begins with its first message, Spark's when the job starts; so it includes the planning.
- Tags: Spark reads one tag of so many, by the option `tags` and by a filter that is pushed down. Broker CPU of a
  row that is delivered, beside that of a reading of all rows in the same round.

Medians of the rounds, with the least and the greatest ratio of neighbours.
"""

import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import click
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "support"))

from interop.driver import Driver
from interop.servers import RocketletServer
from javasides import start_client
from local_spark import cpu_ticks_of_family, start_spark
from processes import cpu_us
from samplelog import CONTENT

_TICK_US: Final = 1e6 / os.sysconf("SC_CLK_TCK")
_BATCH: Final = 32


class Cost(NamedTuple):
    """What a reading took: rows a second, and CPU time of a row in the client, its Python workers, and the broker."""

    rate: float
    client_us: float
    python_us: float
    broker_us: float


class Bench:
    """A broker with messages, and who reads them."""

    def __init__(self, server: RocketletServer, java: Driver, spark: SparkSession, topic: str, count: int) -> None:
        self._server = server
        self._java = java
        self._spark = spark
        self._topic = topic
        self._count = count
        self._groups = 0

    def fill(self, tags: int, body_bytes: int) -> None:
        """Send the messages."""
        about = {"topic": self._topic, "threads": 4, "batch": _BATCH, "count": self._count, "tags": tags}
        answer = self._java.call("load.send", namesrv=self._server.namesrv, bodyBytes=body_bytes, **about)
        if answer["failed"]:
            raise SystemExit(f"load.send: {answer}")

    def consume(self) -> Cost:
        """Have Java consume all messages."""
        self._groups += 1
        about = {"topic": self._topic, "group": f"{self._topic}-{self._groups}", "count": self._count, "batch": _BATCH}
        client_us, broker_us = cpu_us(self._java.pid), cpu_us(self._server.pid)
        answer = self._java.call("load.consume", namesrv=self._server.namesrv, **about)
        if not answer["complete"]:
            raise SystemExit(f"load.consume: {answer}")
        client_us, broker_us = cpu_us(self._java.pid) - client_us, cpu_us(self._server.pid) - broker_us
        return Cost(float(answer["perSecond"]), client_us / self._count, 0.0, broker_us / self._count)

    def read(self, rows: int, narrow: Callable[[DataFrame], DataFrame] | None = None, **options: str) -> Cost:
        """Have Spark read so many rows; options and a filter leave them over."""
        reader = self._spark.read.format("rocketmq").options(
            nameserver=self._server.namesrv, subscribe=self._topic, columns=",".join(CONTENT), **options
        )
        broker_us, used = cpu_us(self._server.pid), self._used()
        started = time.perf_counter()
        frame = reader.load()
        frame = frame if narrow is None else narrow(frame)
        frame.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started
        jvm_us, python_us = (after - before for after, before in zip(self._used(), used, strict=True))
        broker_us = cpu_us(self._server.pid) - broker_us
        return Cost(rows / seconds, (jvm_us + python_us) / rows, python_us / rows, broker_us / rows)

    def _used(self) -> tuple[float, float]:
        """Return the CPU time of Spark's Java, and of Python: of this process and of the workers."""
        apart = {self._server.pid, self._java.pid}
        of_java = of_python = 0.0
        for pid, ticks in cpu_ticks_of_family(os.getpid()).items():
            if pid not in apart:
                own, ended = sum(ticks[:2]) * _TICK_US, sum(ticks[2:]) * _TICK_US
                is_java = _is_java(pid)
                of_java += own if is_java else 0.0
                of_python += (0.0 if is_java else own) + (ended if pid != os.getpid() else 0.0)
        return of_java, of_python


def _is_java(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    return False


def compare_clients(bench: Bench, count: int, rounds: int) -> None:
    """Print the line of the backlog."""
    pairs = [(bench.consume(), bench.read(count)) for _ in range(rounds + 1)][1:]
    _print_costs("Java push consumer", [java for java, _ in pairs])
    _print_costs("live reading in Spark", [spark for _, spark in pairs])
    _print_ratios("rate, of Java's", [spark.rate / java.rate for java, spark in pairs])
    _print_ratios(
        "rows per CPU second of the client, of Java's", [java.client_us / spark.client_us for java, spark in pairs]
    )


def compare_tags(bench: Bench, count: int, tags: int, rounds: int) -> None:
    """Print the lines of one tag."""
    share = count // tags

    def filtered(frame: DataFrame) -> DataFrame:
        return frame.where("tags = 'tag0'")

    runs = [
        (bench.read(count), bench.read(share, tags="tag0"), bench.read(share, filtered, pushFilters="true"))
        for _ in range(rounds + 1)
    ][1:]
    _print_costs("all rows", [run[0] for run in runs])
    for place, name in ((1, "option tags"), (2, "filter on tags")):
        _print_costs(f"one of {tags}, {name}", [run[place] for run in runs])
        _print_ratios("broker CPU of a row, of all rows'", [run[place].broker_us / run[0].broker_us for run in runs])


def _print_costs(name: str, costs: list[Cost]) -> None:
    rate, client, python, broker = (statistics.median(column) for column in zip(*costs, strict=True))
    of_python = f" ({python:.2f} in Python)" if python else ""
    click.echo(f"{name:<32}{rate:>10,.0f} rows/s, client CPU {client:.2f} us{of_python}, broker CPU {broker:.2f} us")


def _print_ratios(name: str, ratios: list[float]) -> None:
    click.echo(f"    {name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


@click.command()
@click.option("--messages", default=1_000_000, show_default=True)
@click.option("--body-bytes", default=128, show_default=True)
@click.option("--tags", default=4, show_default=True, help="Of how many tags one is read.")
@click.option("--cores", default=2, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", type=click.Choice(["backlog", "tags"]))
def main(messages: int, body_bytes: int, tags: int, cores: int, rounds: int, only: str | None) -> None:
    """Print rates, CPU times and ratios."""
    count = messages // (_BATCH * tags) * _BATCH * tags
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder, start_client() as java:
        place = pathlib.Path(folder)
        with RocketletServer(place / "store", {}) as server:
            settings = {"spark.sql.python.filterPushdown.enabled": "true"}
            spark = start_spark(place / "spark", cores, settings)
            bench = Bench(server, java, spark, "Live", count)
            bench.fill(tags, body_bytes)
            click.echo(f"{count:,} messages with bodies of {body_bytes} bytes, {tags} tags, {cores} cores")
            if only != "tags":
                compare_clients(bench, count, rounds)
            if only != "backlog":
                compare_tags(bench, count, tags, rounds)
            spark.stop()


if __name__ == "__main__":
    main()
