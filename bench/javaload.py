"""Rows of the official Java client, against ``rocketlet up`` and the official broker 5.4.0 in turn.

Both servers run all the time and the client shares their cores; a row is the median of its rounds. The rows of
SYNC_FLUSH have servers of their own, on the same disk.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from interop.driver import Driver
from interop.servers import JavaServer, RocketletServer, Server
from interop.toolchain import java_command

_JVM = ("-XX:+UseSerialGC",)  # both compilers: the load is to be as fast as it gets
_BATCH = 32
_SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}


class Load(NamedTuple):
    """One row: a command of the Java driver and what it takes."""

    name: str
    command: str
    arguments: dict[str, Any]


def measure_java(rocketlet: Server, rounds: int, scale: float) -> None:
    """Print a row for each load."""
    print(f"{'Java client, messages/s':<28}{'Java broker':>14}{'rocketlet':>14}{'ratio':>8}")
    with (
        tempfile.TemporaryDirectory() as directory,
        JavaServer(Path(directory) / "store", {}) as official,
        start_client() as client,
    ):
        for load in _loads(int(40_000 * scale)):
            _measure(load, client, official, rocketlet, rounds)


def measure_sync_flush(rounds: int, scale: float) -> None:
    """Print the rows where a send is answered when it is on disk."""
    with (
        tempfile.TemporaryDirectory() as directory,
        JavaServer(Path(directory) / "java", _SYNC_FLUSH) as official,
        RocketletServer(Path(directory) / "own", _SYNC_FLUSH) as rocketlet,
        start_client() as client,
    ):
        for threads in (16, 64):
            count = int(20_000 * scale)
            arguments = {"threads": threads, "count": count, "warmup": count // 4}
            _measure(
                Load(f"SYNC_FLUSH, {threads} threads", "load.send", arguments), client, official, rocketlet, rounds
            )


def start_client() -> Driver:
    """Start the official client, a context manager."""
    return Driver("java-load", lambda home: java_command(home, options=_JVM))


def _loads(count: int) -> list[Load]:
    warmup = count // 4
    return [
        Load("send, 1 thread", "load.send", {"threads": 1, "count": count // 4, "warmup": warmup // 4}),
        Load("send, 64 threads", "load.send", {"threads": 64, "count": count, "warmup": warmup}),
        Load("send, 64 in flight", "load.send", {"threads": 1, "inFlight": 64, "count": count, "warmup": warmup}),
        Load(
            f"send, batches of {_BATCH}",
            "load.send",
            {"threads": 4, "batch": _BATCH, "count": count * 5, "warmup": warmup},
        ),
        Load("push consumer, backlog", "load.consume", {"count": count}),
    ]


def _measure(load: Load, client: Driver, official: Server, rocketlet: Server, rounds: int) -> None:
    rates: list[list[float]] = [[], []]
    for number in range(rounds):
        for server, into in zip((official, rocketlet), rates, strict=True):
            into.append(_rate(load, client, server, number))
    java, own = (statistics.median(each) for each in rates)
    print(f"{load.name:<28}{java:>14,.0f}{own:>14,.0f}{own / java:>8.2f}", flush=True)


def _rate(load: Load, client: Driver, server: Server, number: int) -> float:
    arguments = {"namesrv": server.namesrv, "topic": "BenchJava", "bodyBytes": 128, **load.arguments}
    if load.command == "load.consume":
        arguments["group"] = f"bench-{number}"
    answer = client.call(load.command, **arguments)
    if answer.get("failed") or not answer.get("complete", True):
        raise SystemExit(f"{load.name}: {answer}")
    return float(answer["perSecond"])
