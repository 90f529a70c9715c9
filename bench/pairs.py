"""Rows of a master with a slave, beside an official pair (`make bench-long`): sends that wait for the copy, and copies.

    SYNC_MASTER, 64 threads      sends that are answered when the slave has them (``inSyncReplicas=2``)
    SYNC_MASTER, answered, p50   how long one of 500 a second takes until its answer, alone on its way
    SYNC_MASTER, consumed, p50   until a consumer has it
    copied, CPU of the master    of a send with 64 in flight, as a multiple of that without a slave: ASYNC_MASTER
    copied, behind               milliseconds of such sends that the slave lacks when the last one is answered
    copied, level                seconds after that until it lacks nothing
    catch-up                     seconds until an empty slave has a log of 2 GiB

Master and slave are processes of their own, the official ones too; the Java client is the load, as in `javarows.py`.

    python bench/pairs.py                    all of it
    python bench/pairs.py --only catch-up    the rows that have this in their names
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from interop.driver import Driver
from interop.servers import BROKER_NAME, RocketletServer
from interop.toolchain import java_command
from javasides import BROKER_DEFAULTS, BROKER_OPTIONS, Running, start_client, start_official
from polling import ask_until
from processes import cpu_us
from rounds import take_turns
from tables import Comparison, Table

from rocketlet.client import Admin

PAIRS: Final = Table(
    "pairs",
    ("with a slave", "Java", "rocketlet", "ratio", "least to greatest", "CPU of the master, Java", "rocketlet"),
    (42, 14, 14, 8, 20, 24, 12),
)
_SYNC: Final = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
_PATIENT: Final = {"sendMsgTimeout": 30_000}
"""Of the client: the first sends of a cold virtual machine take seconds, of which each slave adds some."""
_SENDS: Final = 80_000
_LOG_BYTES: Final = 2 << 30
_BODY_BYTES: Final = 16_384


class Kind(NamedTuple):
    """How masters and slaves of one kind are started."""

    master: Callable[[Path, Mapping[str, str]], Running]
    slave: Callable[[str, Path], AbstractContextManager[object]]


class Sample(NamedTuple):
    """What a round has told, by the names of the values, and the CPU time of a message in the master."""

    values: Mapping[str, float]
    cost_us: float | None = None


class Row(NamedTuple):
    """A row: its values with their units; ``measure`` is told of a kind, the client, an empty directory, a factor."""

    name: str
    units: Mapping[str, str]
    measure: Callable[[Kind, Driver, Path, float], Sample]


@contextmanager
def _java_slave(namesrv: str, store: Path) -> Generator[None]:
    with Driver("java-server", partial(java_command, options=BROKER_OPTIONS)) as driver:
        settings = {**BROKER_DEFAULTS, "brokerRole": "SLAVE", "brokerId": "1"}
        driver.call("broker.start", name="slave", namesrv=namesrv, store=str(store), settings=settings)
        yield


@contextmanager
def _own_slave(namesrv: str, store: Path) -> Generator[None]:
    options = ["--namesrv", namesrv, "--store", str(store), "--role", "slave", "--set", f"brokerName={BROKER_NAME}"]
    command = [sys.executable, "-m", "rocketlet", "broker", "--broker-port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it is a pipe"
        if not process.stdout.readline().startswith("ready "):
            raise SystemExit("the slave has not started")
        try:
            yield
        finally:
            process.kill()


JAVA: Final = Kind(start_official, _java_slave)
OWN: Final = Kind(RocketletServer, _own_slave)


def _ask(server: Running, client: Driver, command: str, **arguments: Any) -> dict[str, Any]:
    answer = client.call(command, namesrv=server.namesrv, **arguments) or {}
    if answer.get("failed") or not answer.get("complete", True):
        raise SystemExit(f"{command}: {answer}")
    return answer


def _behind(namesrv: str) -> int | None:
    """Return how many bytes the slave lacks, ``None`` while there is none."""

    async def ask() -> int | None:
        async with Admin(namesrv) as admin:
            states = await admin.replicas(BROKER_NAME)
        return next((state.behind_bytes for state in states if state.broker_id), None)

    return asyncio.run(ask())


def _wait_level(namesrv: str) -> float:
    """Return after how many seconds the slave lacks nothing."""
    began = time.perf_counter()
    ask_until(lambda: _behind(namesrv), lambda behind: behind is not None and behind <= 0)
    return time.perf_counter() - began


def _sync_sends(kind: Kind, client: Driver, place: Path, scale: float) -> Sample:
    with kind.master(place / "master", _SYNC) as server, kind.slave(server.namesrv, place / "slave"):
        _wait_level(server.namesrv)
        count = int(_SENDS * scale)
        load = {"topic": "Pair", "threads": 64, "bodyBytes": 128, "settings": _PATIENT}
        _ask(server, client, "load.send", **load, count=count // 4)
        before = cpu_us(server.pid)
        sent = _ask(server, client, "load.send", **load, count=count)
        cost = (cpu_us(server.pid) - before) / count
        pace = {"rate": 500, "seconds": max(1, int(6 * scale))}
        answered = _ask(server, client, "load.pace", **pace, topic="Answered")
        consumed = _ask(server, client, "load.pace", **pace, topic="Consumed", consumes=True, group="Pacers")
        times = {"answered, p50": answered["p50Us"] / 1000, "consumed, p50": consumed["p50Us"] / 1000}
        return Sample({"64 threads": float(sent["perSecond"])} | times, cost)


def _send_cost_us(server: Running, load: Callable[..., object], count: int) -> float:
    before = cpu_us(server.pid)
    load(server, count=count)
    return (cpu_us(server.pid) - before) / count


def _copied_sends(kind: Kind, client: Driver, place: Path, scale: float) -> Sample:
    count = int(_SENDS * 4 * scale)
    about = {"topic": "Pair", "bodyBytes": 128, "inFlight": 64, "settings": _PATIENT}
    load = partial(_ask, client=client, command="load.send", **about)
    with kind.master(place / "master", {}) as server:
        load(server, count=count // 4)
        alone_us = [_send_cost_us(server, load, count // 2)]
        with kind.slave(server.namesrv, place / "slave"):
            _wait_level(server.namesrv)
            before = cpu_us(server.pid)
            sent = load(server, count=count)
            behind = _behind(server.namesrv) or 0
            level = _wait_level(server.namesrv)
            cost_us = (cpu_us(server.pid) - before) / count
        alone_us.append(_send_cost_us(server, load, count // 2))
    record_bytes = 128 + 150
    behind_ms = 1000 * max(behind, 0) / (record_bytes * float(sent["perSecond"]))
    factor = cost_us / statistics.mean(alone_us)
    return Sample({"CPU of the master": factor, "behind": behind_ms, "level": level}, cost_us)


def _catch_up(kind: Kind, client: Driver, place: Path, scale: float) -> Sample:
    with kind.master(place / "master", {}) as server:
        count = int(_LOG_BYTES * scale / (_BODY_BYTES + 200)) // 32 * 32
        _ask(server, client, "load.send", topic="Pair", threads=4, batch=32, bodyBytes=_BODY_BYTES, count=count)
        with kind.slave(server.namesrv, place / "slave"):
            return Sample({"": _wait_level(server.namesrv)})


ROWS: Final = (
    Row("SYNC_MASTER", {"64 threads": "/s", "answered, p50": "ms", "consumed, p50": "ms"}, _sync_sends),
    Row("copied", {"CPU of the master": "x", "behind": "ms", "level": "s"}, _copied_sends),
    Row("catch-up of 2 GiB", {"": "s"}, _catch_up),
)


def measure_pairs(is_wanted: Callable[[str], bool], rounds: int, scale: float, place: Path) -> Iterator[Comparison]:
    """Measure both kinds: each row has a line for each of its values."""
    wanted = [row for row in ROWS if is_wanted(row.name)]
    if not wanted:
        return
    with start_client() as client:
        for row in wanted:

            def run(kind: Kind, number: int, row: Row = row) -> Sample:
                with tempfile.TemporaryDirectory(dir=place) as empty:
                    return row.measure(kind, client, Path(empty), scale)

            found = take_turns(rounds, [partial(run, kind) for kind in (JAVA, OWN)])
            costs = [[one.cost_us for one in samples if one.cost_us is not None] for samples in found]
            for value, unit in row.units.items():
                java, own = ([one.values[value] for one in samples] for samples in found)
                name = f"{row.name}, {value}" if value else row.name
                yield Comparison(name, unit, java, own, dict(zip(("Java", "rocketlet"), costs, strict=True)))


@click.command()
@click.option("--only", default="", help="Only rows that have this in their names.")
@click.option("--rounds", default=3, show_default=True, help="Counted rounds of each row.")
@click.option("--scale", default=1.0, show_default=True, help="How much is sent, as a factor.")
def main(only: str, rounds: int, scale: float) -> None:
    """Print a line for each value."""
    PAIRS.print_title()
    with tempfile.TemporaryDirectory() as directory:
        for line in measure_pairs(lambda name: only in name, rounds, scale, Path(directory)):
            PAIRS.print_line(line)


if __name__ == "__main__":
    main()
