"""The rows of `bench/java.py`: what is done to a server, and what is measured.

A row returns values by name, or one without a name, and how many messages they stand for; with those the CPU time of
the broker is divided. All messages are made by the official Java client.
"""

import socket
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from threading import Thread
from typing import Any, Final, NamedTuple

import uvloop
from clientframes import held_pulls, pulls
from interop.driver import Driver
from javasides import Running, Side
from processes import cpu_us, memory_mb
from window import Run, drive

PLAIN: Final[Mapping[str, str]] = {}
SYNC_FLUSH: Final = {"flushDiskType": "SYNC_FLUSH"}
SQL: Final = {"enablePropertyFilter": "true"}
_WARM_UP: Final = 200
_HELD: Final = 2_000
_TOPICS: Final = 1_000
_RECORD_OVERHEAD: Final = 200
_MOST_REFUSED: Final = 0.001
"""Of the messages sent: a client refuses some by itself when too many are under way."""


class Sample(NamedTuple):
    """What one round has told; ``broker_us`` is the CPU time of a message in the broker, if that says anything."""

    values: Mapping[str, float]
    broker_us: float | None = None


class Round(NamedTuple):
    """One round of a row at one side; the one with number -1 is not counted."""

    side: Side
    client: Driver
    number: int
    scale: float


class Row(NamedTuple):
    """A row: ``units`` are those of its values; of what is told per second more is better, of all else less."""

    name: str
    units: Mapping[str, str]
    measure: Callable[[Round], Sample]


def _ask(server: Running, client: Driver, command: str, **arguments: Any) -> dict[str, Any]:
    """Have the client do something, which must succeed."""
    answer = client.call(command, namesrv=server.namesrv, **arguments) or {}
    if answer.get("failed", 0) > _MOST_REFUSED * answer.get("sent", 0) or not answer.get("complete", True):
        raise SystemExit(f"{command}: {answer}")
    return answer


def _rate(run: Round, server: Running, command: str, messages: int, **arguments: Any) -> Sample:
    before = cpu_us(server.pid)
    answer = _ask(server, run.client, command, **arguments)
    return Sample({"": float(answer["perSecond"])}, (cpu_us(server.pid) - before) / messages)


def _send(run: Round, server: Running, count: int, **arguments: Any) -> Sample:
    batch = arguments.get("batch", 1)
    messages = max(batch, int(count * run.scale) // batch * batch)
    about = {"topic": "Bench", "bodyBytes": 128, "count": messages, "warmup": _WARM_UP // batch * batch, **arguments}
    return _rate(run, server, "load.send", messages + about["warmup"], **about)


def sends(name: str, count: int, settings: Mapping[str, str] = PLAIN, **arguments: Any) -> Row:
    """Return a row of sends as fast as they are answered."""

    def measure(run: Round) -> Sample:
        return _send(run, run.side.server(settings), count, **arguments)

    return Row(name, {"": "/s"}, measure)


def consumption(name: str, count: int, settings: Mapping[str, str] = PLAIN, **filters: Any) -> Row:
    """Return a row of a push consumer that works off a backlog; with a filter it gets a quarter of the messages."""
    topic = "Backlog" if not filters else "Tagged"

    def measure(run: Round) -> Sample:
        server, messages = run.side.server(settings), int(count * run.scale) // 128 * 128
        if run.number < 0:
            tags = {"tags": 4} if filters else {}
            _ask(server, run.client, "load.send", topic=topic, threads=4, batch=32, count=messages, **tags)
        wanted = messages // 4 if filters else messages
        group = f"{name.replace(' ', '-').replace(',', '')}{run.number}"
        about = {"topic": topic, "group": group, "count": wanted, "batch": 32, **filters}
        return _rate(run, server, "load.consume", wanted, **about)

    return Row(name, {"": "/s"}, measure)


def pace(name: str, rate: int, seconds: int, units: Mapping[str, str], *, consumes: bool) -> Row:
    """Return a row of times at a steady rate."""

    def measure(run: Round) -> Sample:
        server, topic = run.side.server(PLAIN), f"Pace{rate}{consumes}"
        if run.number < 0:  # a cold Java broker refuses what comes at such a rate
            _send(run, server, 200_000, topic=topic, inFlight=64)
        about = {"topic": topic, "group": f"pace-{topic}", "rate": rate, "consumes": consumes}
        before = cpu_us(server.pid)
        told = _ask(server, run.client, "load.pace", seconds=max(1, int(seconds * run.scale)), **about)
        keys = {"p50": "p50Us", "p99": "p99Us", "p99.9": "p999Us", "longest": "maxUs"}
        return Sample(
            {value: told[keys[value]] / 1000 for value in units}, (cpu_us(server.pid) - before) / told["sent"]
        )

    return Row(name, units, measure)


@contextmanager
def _held_pulls(run: Round, server: Running) -> Generator[None]:
    """Have pulls wait at a topic that nobody sends to."""
    name = f"held-{server.pid}-{run.number}"  # the client of another round may still be closing down
    _ask(server, run.client, "admin.start", name=name)
    _ask(server, run.client, "admin.createTopic", name=name, topic="Held", queues=8, broker=server.broker)
    _ask(server, run.client, "admin.stop", name=name)
    host, port = server.broker.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"".join(islice(held_pulls("Held", 8), _HELD)))
        yield


@contextmanager
def _reading(run: Round, server: Running) -> Generator[None]:
    """Have somebody read old messages meanwhile, from the first one on, as fast as they come."""
    messages = int(400_000 * run.scale) // 128 * 128
    if run.number < 0:
        _ask(server, run.client, "load.send", topic="Old", threads=4, batch=32, bodyBytes=1024, count=messages)
    host, port = server.broker.rsplit(":", 1)
    frames = pulls("Old", 4, messages // 4 - 512, 32)
    reader = Thread(target=lambda: uvloop.run(drive(host, int(port), Run(frames, messages // 32 - 64, 4))))
    reader.start()
    try:
        yield
    finally:
        reader.join()


def beside(name: str, what: Callable[[Round, Running], AbstractContextManager[None]], count: int) -> Row:
    """Return a row of sends while something else goes on."""

    def measure(run: Round) -> Sample:
        server = run.side.server(PLAIN)
        with what(run, server):
            return _send(run, server, count, inFlight=64)

    return Row(name, {"": "/s"}, measure)


def many_topics(count: int) -> Row:
    """Return a row of sends over very many queues."""

    def measure(run: Round) -> Sample:
        server = run.side.server({"defaultTopicQueueNums": "8"})
        load = {"topic": "Many", "topics": _TOPICS, "inFlight": 64, "settings": {"defaultTopicQueueNums": 8}}
        return _send(run, server, count, warmup=2 * _TOPICS, **load)

    return Row(f"{_TOPICS:,} topics of 8 queues, 64 in flight", {"": "/s"}, measure)


def _start(run: Round) -> Sample:
    begun = time.perf_counter()
    with run.side.start(PLAIN) as server:
        return Sample({"": time.perf_counter() - begun, "idle": memory_mb(server.pid)})


def _grown(run: Round) -> Sample:
    with run.side.start(PLAIN) as server:
        messages = int(1_000_000 * run.scale)
        _ask(server, run.client, "load.send", topic="Bench", threads=4, batch=32, count=messages // 32 * 32)
        return Sample({"": memory_mb(server.pid)})


def _restart(run: Round) -> Sample:
    store = run.side.new_store()
    body = 16_384
    count = int((2 << 30) * run.scale / (body + _RECORD_OVERHEAD)) // 32 * 32
    with run.side.start(PLAIN, store) as server:
        _ask(server, run.client, "load.send", topic="Bench", threads=4, batch=32, bodyBytes=body, count=count)
        server.kill()
    begun = time.perf_counter()
    with run.side.start(PLAIN, store):
        return Sample({"": time.perf_counter() - begun})


_SYNC_1 = sends("sync, 1 thread", 10_000, threads=1)
_SYNC_64 = sends("sync, 64 threads", 60_000, threads=64)
_ASYNC_64 = sends("async, 64 in flight", 80_000, inFlight=64)
_ASYNC_256 = sends("async, 256 in flight, 1 KiB", 80_000, inFlight=256, bodyBytes=1024)
_BATCH_32 = sends("batches of 32", 400_000, threads=4, batch=32)
_FLUSH_64 = sends("SYNC_FLUSH, 64 threads", 40_000, SYNC_FLUSH, threads=64)
_BACKLOG = consumption("push consumer, backlog", 400_000)
_END_TO_END = pace("end to end, 500/s", 500, 6, {"p50": "ms", "p99": "ms", "p99.9": "ms"}, consumes=True)
_START = Row("start", {"": "s", "idle": "MB"}, _start)

SHORT: Final = (_SYNC_1, _SYNC_64, _ASYNC_64, _ASYNC_256, _BATCH_32, _FLUSH_64, _BACKLOG, _END_TO_END, _START)
LONG: Final = (
    _SYNC_1,
    sends("sync, 16 threads", 60_000, threads=16),
    *(_SYNC_64, _ASYNC_64),
    sends("async, 256 in flight", 80_000, inFlight=256),
    _ASYNC_256,
    sends("async, 64 in flight, 16 KiB", 20_000, inFlight=64, bodyBytes=16_384),
    _BATCH_32,
    sends("batches of 256", 400_000, threads=4, batch=256),
    sends("SYNC_FLUSH, 16 threads", 20_000, SYNC_FLUSH, threads=16),
    *(_FLUSH_64, _BACKLOG),
    consumption("push consumer, one tag of four", 1_600_000, tag="tag0"),
    consumption("push consumer, SQL, one of four", 1_600_000, SQL, sql="number < 1"),
    _END_TO_END,
    pace("end to end, 5,000/s", 5_000, 6, {"p50": "ms", "p99": "ms", "p99.9": "ms"}, consumes=True),
    beside(f"async, 64 in flight, {_HELD:,} pulls held", _held_pulls, 80_000),
    many_topics(80_000),
    beside("async, 64 in flight, beside a reader", _reading, 80_000),
    _START,
    Row("memory after 1,000,000 messages", {"": "MB"}, _grown),
    Row("start after a kill, 2 GiB of log", {"": "s"}, _restart),
    pace("sends at 20,000/s for a minute", 20_000, 60, {"p99.9": "ms", "longest": "ms"}, consumes=False),
)
