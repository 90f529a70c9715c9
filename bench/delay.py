"""Measure a broker with a million delayed messages (`python bench/delay.py`).

- Pending: how long `rocketlet up` takes until it is ready, after a clean stop and after a kill that left no checkpoint,
  how much memory it holds then, and what it does while nothing is due; beside a broker without messages.
- Overdue: how fast they are delivered when their time passed while nothing ran, and how long a send takes meanwhile.

The messages lie in the five longest levels, bodies of 128 bytes. A child process parks them; it ends without closing
the store where a kill is measured. Memory is what the process has of its own, and all with the files that are mapped.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click
import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from interop.servers import RocketletServer
from processes import memory_mb

from rocketlet.broker.delay.delayed_messages import Delays
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore

_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
_LEVELS = range(14, 19)
_QUEUES = 8
_COMMIT = 256
_LONGEST_AGO_MS = 3 * 3_600_000
_LOOKS = 50
_TIMEOUT_MS = 60_000


class Activity(NamedTuple):
    """What a process has done so far: how often it went to sleep, and its CPU time."""

    switches: int
    cpu_ms: int


def _park(root: str, count: int, ago_ms: int, *, is_closed: bool) -> None:
    """Park messages as if it were that long ago."""

    def now_ms() -> int:
        return time.time_ns() // 1_000_000 - ago_ms

    store = MessageStore.open(StoreConfig(root), now_ms=now_ms, store_host=_HOST)
    delays = Delays(store.config.delays_ms)
    for number in range(count):
        level = _LEVELS[number % len(_LEVELS)]
        store.append(delays.park(_message(number, level, now_ms()), level))
        if number % _COMMIT == 0:
            store.commit()
            store.tick()
    store.commit()
    if is_closed:
        store.close()
    os._exit(0)  # without closing it is a kill: nothing is flushed, `abort` stays


def _message(number: int, level: int, now_ms: int) -> NewRecord:
    properties = {
        "UNIQ_KEY": f"7F0000010A2B3C4D5E6F{number:012X}",
        "WAIT": "true",
        "DELAY": str(level),
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    text = encode_properties(properties)
    return NewRecord("Delayed", number % _QUEUES, bytes(128), text, properties, 0, 0, now_ms, _HOST)


def _make(root: Path, count: int, ago_ms: int = 0, *, is_closed: bool = True) -> Path:
    arguments = [str(root), str(count), str(ago_ms), str(is_closed)]
    subprocess.run([sys.executable, __file__, "--park", *arguments], check=True)
    return root


def _measure_start(what: str, root: Path, idle_s: int) -> None:
    started = time.perf_counter()
    with RocketletServer(root, {}) as server:
        ready = time.perf_counter() - started
        cpu = _activity(server.pid).cpu_ms / 1000
        _wait(2)  # what follows a start is over
        before = _activity(server.pid)
        _wait(idle_s)
        after = _activity(server.pid)
        own, mapped = (memory_mb(server.pid, name) for name in ("RssAnon", "VmRSS"))
        server.stop()
    switches, idle_cpu = ((late - early) / idle_s for early, late in zip(before, after, strict=True))
    print(
        f"{what:<28}{ready:>9.2f} s{cpu:>10.2f} s{own:>9.0f} MB{mapped:>9.0f} MB{switches:>12.1f}{idle_cpu:>10.1f} ms",
        flush=True,
    )


def _wait(seconds: float) -> None:
    time.sleep(seconds)  # noqa: TID251 # another process is watched, which lives by the clock on the wall


def _activity(pid: int) -> Activity:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    threads = [path.joinpath("status").read_text() for path in Path(f"/proc/{pid}/task").iterdir()]
    switches = sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in threads)
    return Activity(switches, ticks * 1000 // os.sysconf("SC_CLK_TCK"))


def _measure_delivery(root: Path, count: int) -> None:
    with RocketletServer(root, {}) as server:
        seconds, sends = uvloop.run(_watch(server.broker, count))
        own = memory_mb(server.pid)
    ordered = sorted(sends)
    median, worst, late = statistics.median(sends), ordered[-1], ordered[len(ordered) * 99 // 100]
    rate = f"{count} overdue messages delivered in {seconds:.1f} s, {count / seconds:,.0f} a second"
    print(f"{rate}; {own:.0f} MB of its own")
    print(f"a send meanwhile: p50 {median:.1f} ms, p99 {late:.1f} ms, worst of {len(sends)} {worst:.1f} ms", flush=True)


async def _watch(address: str, count: int) -> tuple[float, list[float]]:
    """Send one message after the other until all are delivered; return how long that took, and each send in ms."""
    sends: list[float] = []
    started = time.perf_counter()
    async with ConnectionPool(LoopClock()) as pool:
        connection = await pool.connect(address)
        while len(sends) % _LOOKS or await _delivered(connection) < count:
            before = time.perf_counter()
            answer = await connection.request(_send(), _TIMEOUT_MS)
            sends.append(1000 * (time.perf_counter() - before))
            if answer.code != 0:
                raise SystemExit(f"the broker answered {answer.code}: {answer.remark}")
        return time.perf_counter() - started, sends


def _send() -> Command:
    fields = {"a": "bench", "b": "Meanwhile", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    return Command.request(RequestCode.SEND_MESSAGE_V2, fields, bytes(128))


async def _delivered(connection: Connection) -> int:
    total = 0
    for queue_id in range(_QUEUES):
        request = Command.request(RequestCode.GET_MAX_OFFSET, {"topic": "Delayed", "queueId": str(queue_id)})
        answer = await connection.request(request, _TIMEOUT_MS)
        total += int(answer.ext.get("offset", "0"))
    return total


@click.command()
@click.option("--count", default=1_000_000, show_default=True, help="How many messages are delayed.")
@click.option("--idle", default=10, show_default=True, help="Seconds without anything due.")
def main(count: int, idle: int) -> None:
    """Print what delayed messages cost."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        titles = ("ready", "CPU", "own", "resident", "wake-ups/s", "CPU/s")
        print(
            f"{count} pending".ljust(28)
            + "".join(f"{title:>{size}}" for title, size in zip(titles, (11, 12, 12, 12, 12, 13), strict=True))
        )
        _measure_start("no messages", folder / "empty", idle)
        pending = _make(folder / "pending", count)
        _measure_start("after a clean stop", pending, idle)
        _measure_start("after a kill", _make(folder / "killed", count, is_closed=False), idle)
        _measure_delivery(_make(folder / "overdue", count, _LONGEST_AGO_MS), count)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--park"]:
        _park(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), is_closed=sys.argv[5] == "True")
    main()
