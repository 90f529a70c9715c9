"""Live readings of a broker in Spark, beside the official push consumer (`make bench-long`).

A `rocketlet up` with its default settings holds messages of the official Java client, one tag of four each. Java works
them off with a new group; Spark reads body, properties and all metadata into ``noop``. Rounds alternate; the first
warms up and is not counted. All share the cores of the machine, so CPU time says more than rates: that of the client
is of the Java process there, here of Spark's Java and of its Python workers and driver together. Java's time begins
with its first message, Spark's when the job starts; so it includes the planning.

One tag of four is read by the option ``tags``, and by a filter that is pushed down; a row is one that is delivered.

    python bench/sparklive.py                   all of it
    python bench/sparklive.py --only backlog    the rows that have this in their names
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import click
from pyspark.sql import SparkSession

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "support"))

from interop.driver import Driver
from interop.servers import RocketletServer
from javasides import start_client
from local_spark import cpu_ticks_of_family, start_spark
from processes import cpu_us
from rounds import take_turns
from samplelog import CONTENT
from tables import Comparison, Table

LIVE: Final = Table(
    "live",
    (
        *("on rocketlet", "Java push consumer", "Spark", "ratio", "least to greatest"),
        *("client CPU, Java", "Spark", "broker CPU, Java", "Spark"),
    ),
    (44, 20, 12, 8, 20, 18, 10, 18, 10),
)
_TICK_US: Final = 1e6 / os.sysconf("SC_CLK_TCK")
_BATCH: Final = 32
_MESSAGES: Final = 2_000_000
_TAGS: Final = 4
_CORES: Final = 2
_TOPIC: Final = "Live"


class Cost(NamedTuple):
    """What a reading took: rows a second, and CPU time of a row in the client and in the broker."""

    rate: float
    client_us: float
    broker_us: float


Read = Callable[[int], Cost]
"""Reads in the round of a number."""


class Bench:
    """A broker with so many messages, and who reads them."""

    def __init__(self, server: RocketletServer, java: Driver, spark: SparkSession, count: int) -> None:
        self._server = server
        self._java = java
        self._spark = spark
        self._count = count

    def fill(self) -> None:
        """Send the messages."""
        about = {"topic": _TOPIC, "threads": 4, "batch": _BATCH, "count": self._count, "tags": _TAGS}
        answer = self._java.call("load.send", namesrv=self._server.namesrv, **about)
        if answer["failed"]:
            raise SystemExit(f"load.send: {answer}")

    def consuming(self, name: str, tag: str | None = None) -> Read:
        """Return how Java consumes all messages, or those of a tag."""
        rows, tags = (self._count, {}) if tag is None else (self._count // _TAGS, {"tag": tag})

        def consume(number: int) -> Cost:
            about = {"topic": _TOPIC, "group": f"{name}{number}", "count": rows, "batch": _BATCH, **tags}
            client_us, broker_us = cpu_us(self._java.pid), cpu_us(self._server.pid)
            answer = self._java.call("load.consume", namesrv=self._server.namesrv, **about)
            if not answer["complete"]:
                raise SystemExit(f"load.consume: {answer}")
            client_us, broker_us = cpu_us(self._java.pid) - client_us, cpu_us(self._server.pid) - broker_us
            return Cost(float(answer["perSecond"]), client_us / rows, broker_us / rows)

        return consume

    def reading(self, part: int = 1, where: str = "true", **options: str) -> Read:
        """Return how Spark reads all messages, or the part of them that options and a condition leave over."""
        rows = self._count // part
        reader = self._spark.read.format("rocketmq").options(
            nameserver=self._server.namesrv, subscribe=_TOPIC, columns=",".join(CONTENT), **options
        )

        def read(_number: int) -> Cost:
            broker_us, used = cpu_us(self._server.pid), self._used()
            started = time.perf_counter()
            reader.load().where(where).write.format("noop").mode("overwrite").save()
            seconds = time.perf_counter() - started
            client_us, broker_us = self._used() - used, cpu_us(self._server.pid) - broker_us
            return Cost(rows / seconds, client_us / rows, broker_us / rows)

        return read

    def _used(self) -> float:
        """Return the CPU time of Spark: of its Java, of this process and of the workers."""
        used = 0.0
        for pid, ticks in cpu_ticks_of_family(os.getpid()).items():
            if pid not in (self._server.pid, self._java.pid):
                has_ended_ones = pid != os.getpid() and not _is_java(pid)
                used += sum(ticks if has_ended_ones else ticks[:2]) * _TICK_US
        return used


def _is_java(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    return False


def measure_live(
    is_wanted: Callable[[str], bool], rounds: int, scale: float, place: pathlib.Path
) -> Iterator[Comparison]:
    """Measure live readings."""
    rows: dict[str, Callable[[Bench], tuple[Read, Read]]] = {
        "backlog": lambda bench: (bench.consuming("all"), bench.reading()),
        "one tag of four, option tags": lambda bench: (
            bench.consuming("option", "tag0"),
            bench.reading(_TAGS, tags="tag0"),
        ),
        "one tag of four, filter on tags": lambda bench: (
            bench.consuming("filter", "tag0"),
            bench.reading(_TAGS, "tags = 'tag0'", pushFilters="true"),
        ),
    }
    wanted = {f"live reading, {name}": row for name, row in rows.items() if is_wanted(f"live reading, {name}")}
    if not wanted:
        return
    count = int(_MESSAGES * scale) // (_BATCH * _TAGS) * _BATCH * _TAGS
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with RocketletServer(place / "store", {}) as server, start_client() as java:
        spark = start_spark(place / "spark", _CORES, {"spark.sql.python.filterPushdown.enabled": "true"})
        bench = Bench(server, java, spark, count)
        bench.fill()
        for name, row in wanted.items():
            yield _compare(name, *take_turns(rounds, row(bench)))
        spark.stop()


def _compare(name: str, official: list[Cost], own: list[Cost]) -> Comparison:
    costs = {
        "client, Java": [cost.client_us for cost in official],
        "client, Spark": [cost.client_us for cost in own],
        "broker beside Java": [cost.broker_us for cost in official],
        "broker beside Spark": [cost.broker_us for cost in own],
    }
    return Comparison(name, "/s", [cost.rate for cost in official], [cost.rate for cost in own], costs)


@click.command()
@click.option("--only", default="", help="Only rows that have this in their names.")
@click.option("--rounds", default=3, show_default=True, help="Counted rounds of each row.")
@click.option("--scale", default=1.0, show_default=True, help="How much is stored, as a factor.")
def main(only: str, rounds: int, scale: float) -> None:
    """Print a line for each row."""
    LIVE.print_title()
    with tempfile.TemporaryDirectory() as directory:
        for line in measure_live(lambda name: only in name, rounds, scale, pathlib.Path(directory)):
            LIVE.print_line(line)


if __name__ == "__main__":
    main()
