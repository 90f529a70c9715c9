"""Rows of our own load generator: frames of the Java client, beside a bare echo of the same frames.

The echo only sends bytes back, so the ratio says what is left of the ceiling once frames are parsed and messages are
stored. Rounds alternate between the two; a row is the median of its rounds.
"""

import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import echo
import uvloop
from clientframes import batch_body, batches, pulls, sends
from window import Run, drive, refuse_errors

_BODY = bytes(128)
_QUEUES = 4
_BATCH = 32


class Load(NamedTuple):
    """One row: how many requests, how many at a time, and how many messages each stands for."""

    name: str
    topic: str
    frames: Callable[[str], Iterator[bytes]]
    requests: int
    in_flight: int
    messages_per_request: int


def measure_frames(broker: str, rounds: int, scale: float) -> None:
    """Print a row for each load."""
    backlog = int(40_000 * scale) // _QUEUES // _BATCH * _BATCH
    _fill(broker, backlog * _QUEUES)
    print(f"{'our generator, messages/s':<28}{'bare echo':>14}{'rocketlet':>14}{'ratio':>8}")
    with echo.running() as bare:
        for load in _loads(int(60_000 * scale), backlog):
            _measure(load, bare, broker, rounds)


def _loads(count: int, backlog: int) -> list[Load]:
    batch = batch_body(_BATCH, _BODY)

    def batched(topic: str) -> Iterator[bytes]:
        return batches(topic, _QUEUES, batch)

    def pulled(topic: str) -> Iterator[bytes]:
        return pulls(topic, _QUEUES, backlog, _BATCH)

    return [
        Load("send, 1 in flight", "Bench", _sends, count // 6, 1, 1),
        Load("send, 64 in flight", "Bench", _sends, count, 64, 1),
        Load(f"send, batches of {_BATCH}", "Bench", batched, count // 10, 4, _BATCH),
        Load(
            f"pull, {_BATCH} at a time",
            "BenchPull",
            pulled,
            backlog * _QUEUES // _BATCH,
            _QUEUES,
            _BATCH,
        ),
    ]


def _sends(topic: str) -> Iterator[bytes]:
    return sends(topic, _QUEUES, _BODY)


def _fill(broker: str, count: int) -> None:
    """Create the topics by a first send, as clients do, and a backlog for the pulls."""
    for topic in ("Bench", "BenchPull"):
        _drive(broker, Run(_sends(topic), 1, 1, refuse_errors))
    _drive(broker, Run(_sends("BenchPull"), count, 64))


def _measure(load: Load, bare: str, broker: str, rounds: int) -> None:
    ceilings: list[float] = []
    rates: list[float] = []
    for _ in range(rounds):
        ceilings.append(_rate(bare, load))
        _drive(broker, Run(load.frames(load.topic), 1, 1, refuse_errors))
        rates.append(_rate(broker, load))
    ceiling, rate = statistics.median(ceilings), statistics.median(rates)
    print(f"{load.name:<28}{ceiling:>14,.0f}{rate:>14,.0f}{rate / ceiling:>8.2f}", flush=True)


def _rate(address: str, load: Load) -> float:
    seconds = _drive(address, Run(load.frames(load.topic), load.requests, load.in_flight))
    return load.requests * load.messages_per_request / seconds


def _drive(address: str, run: Run) -> float:
    host, port = address.rsplit(":", 1)
    return uvloop.run(drive(host, int(port), run))
