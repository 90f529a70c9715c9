"""What the test fixture costs, beside `python -c 'import asyncio, uvloop, msgspec'` (`python bench/fixture.py`).

    first broker ready       a process from its start until a client could connect to `RocketmqBroker()`
    broker of one test       one more in the same process: from nothing until it is stopped again
    broker from a snapshot   the same, with a store of a thousand messages that was saved before
    topic of one test        `topic()` of a broker that runs, and a message that is sent and looked at; ten in a row
    reset                    `reset()` of a broker that has had a topic and a message
    advance, 10,000 delayed  `clock.advance` over as many delayed messages, of all levels
    Java broker              the official name server and broker, from the start of the process until they answer

Each row is measured in turn with the imports, so that both see the same machine; the median of the ratios counts. The
first run of each writes bytecode and does not count.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from javasides import BROKER_DEFAULTS, start_official
from start import ENVIRONMENT, import_bare

from rocketlet.client import Message
from rocketlet.testing import RocketmqBroker

_FIRST: Final = "from rocketlet.testing import RocketmqBroker\nwith RocketmqBroker(): print('ready', flush=True)"
_DELAYED: Final = 10_000
_LEVELS: Final = 18
_TESTS: Final = 10
_SAVED: Final = 1_000


class FixtureRow(NamedTuple):
    """What is measured, as ms of a run, and the multiple of the imports that it may take at most."""

    name: str
    measure: Callable[[], float]
    most: float | None


def _took_ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def _first_ready_ms() -> float:
    begun = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", _FIRST], env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None, "it is a pipe"
        assert process.stdout.readline() == b"ready\n", "it starts"
        return (time.perf_counter() - begun) * 1e3


def _one_broker_ms() -> float:
    def run() -> None:
        with RocketmqBroker():
            pass

    return _took_ms(run)


def _from_snapshot_ms(path: Path) -> float:
    def run() -> None:
        with RocketmqBroker(snapshot=path):
            pass

    return _took_ms(run)


def _save_snapshot(path: Path) -> None:
    with RocketmqBroker() as broker:
        topic = broker.topic()
        broker.send_all(Message(topic, b"%d" % at, keys=[f"order-{at}"]) for at in range(_SAVED))
        broker.snapshot(path)


def _one_topic_ms(broker: RocketmqBroker) -> float:
    def use() -> None:
        for _ in range(_TESTS):
            topic = broker.topic()
            broker.send(topic, "1")
            broker.assert_sent(topic, times=1)

    return _took_ms(use) / _TESTS


def _reset_ms(broker: RocketmqBroker) -> float:
    broker.send(broker.topic(), "1")
    return _took_ms(broker.reset)


def _advance_ms() -> float:
    with RocketmqBroker() as broker:
        topic = broker.topic()
        broker.send_all(Message(topic, b"%d" % at, delay_level=at % _LEVELS + 1) for at in range(_DELAYED))
        taken = _took_ms(lambda: broker.clock.advance(hours=2))
        assert len(broker.messages(topic)) == _DELAYED, "all have come"
        return taken


def _java_ms() -> float:
    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        with start_official(Path(directory), BROKER_DEFAULTS):
            return (time.perf_counter() - begun) * 1e3


def _rows(broker: RocketmqBroker, snapshot: Path) -> Iterator[FixtureRow]:
    yield FixtureRow("first broker ready", _first_ready_ms, 2)
    yield FixtureRow("broker of one test", _one_broker_ms, 0.15)
    yield FixtureRow("broker from a snapshot", lambda: _from_snapshot_ms(snapshot), None)
    yield FixtureRow("topic of one test", lambda: _one_topic_ms(broker), 0.05)
    yield FixtureRow("reset", lambda: _reset_ms(broker), None)
    yield FixtureRow("advance, 10,000 delayed", _advance_ms, 5)
    yield FixtureRow("Java broker", _java_ms, None)


@click.command()
@click.option("--runs", default=7, show_default=True, help="Counted runs of each.")
def main(runs: int) -> None:
    """Print the time of each row, and its ratio to the imports."""
    with tempfile.TemporaryDirectory() as directory, RocketmqBroker() as broker:
        snapshot = Path(directory) / "thousand.tar"
        _save_snapshot(snapshot)
        for row in _rows(broker, snapshot):
            pairs = [(import_bare().wall_ms, row.measure()) for _ in range(runs + 1)][1:]
            ratios = sorted(taken / bare for bare, taken in pairs)
            taken = statistics.median(taken for _, taken in pairs)
            most = "" if row.most is None else f", at most {row.most}"
            spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
            print(f"{row.name:26} {taken:8.1f} ms   {statistics.median(ratios):7.3f} x ({spread}{most})", flush=True)


if __name__ == "__main__":
    main()
