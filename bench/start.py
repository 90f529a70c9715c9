"""Measure how long `rocketlet up` takes to its ready line, and what it then holds (`python bench/start.py`).

In turn, so that both see the same machine: `rocketlet up --ephemeral` from the start of the process to its ready line,
and `python -c 'import asyncio, uvloop, msgspec'`, which is the least that an event loop with JSON takes. Wall time, and
user and system time of the whole process (Linux), which other programs disturb less. The memory is what the process
has of its own in main memory when it has been idle for two seconds. The first run of each writes bytecode and does not
count.

Claim: the median of the ratios of neighbouring runs is 2.0 at most, and the idle memory 32 MB.
`python -X importtime -m rocketlet up --ephemeral` tells which import takes what.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
from processes import memory_mb

_UP = ("-m", "rocketlet", "up", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0")
_BARE = ("-c", "import asyncio, uvloop, msgspec")
_IDLE_SECONDS = 2
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Taken(NamedTuple):
    """What a run has taken."""

    wall_ms: float
    cpu_ms: float


@click.command()
@click.option("--runs", default=20, show_default=True, help="Runs of each, in turn.")
def main(runs: int) -> None:
    """Print the times of both, their ratio, and the idle memory."""
    pairs = [(import_bare(), _start()) for _ in range(runs + 1)][1:]
    bare, started = zip(*pairs, strict=True)
    _print_row("imports of asyncio, uvloop, msgspec", bare)
    _print_row("rocketlet up --ephemeral, until ready", started)
    for field in ("wall_ms", "cpu_ms"):
        ratios = sorted(getattr(full, field) / getattr(least, field) for least, full in pairs)
        name, spread = field.removesuffix("_ms"), f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"ratio of {name} time: {statistics.median(ratios):.2f} ({spread}); at most 2.0")
    print(f"idle memory: {_measure_memory():.1f} MB; at most 32 MB")


def _print_row(name: str, taken: Sequence[Taken]) -> None:
    wall, cpu = (sorted(column) for column in zip(*taken, strict=True))
    print(f"{name}: {_describe(wall)}, {_describe(cpu)} of CPU time")


def _describe(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.0f} ms ({times[0]:.0f} to {times[-1]:.0f})"


def import_bare() -> Taken:
    """Run the least that an event loop with JSON takes."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *_BARE], env=ENVIRONMENT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Taken((time.perf_counter() - begun) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3)


def _start() -> Taken:
    begun = time.perf_counter()
    with _run_up() as process:
        taken = Taken((time.perf_counter() - begun) * 1e3, _cpu_ms(process.pid))
        process.terminate()
    return taken


def _measure_memory() -> float:
    with _run_up() as process:
        time.sleep(_IDLE_SECONDS)  # noqa: TID251 # another process is watched, which lives by the clock on the wall
        memory = memory_mb(process.pid)
        process.terminate()
    return memory


def _run_up() -> subprocess.Popen[bytes]:
    """Start a broker; it is ready."""
    process = subprocess.Popen(
        [sys.executable, *_UP], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None, "it is a pipe"
    assert process.stdout.readline().startswith(b"ready "), "the first line says that it is ready"
    return process


def _cpu_ms(pid: int) -> float:
    """Return the CPU time of all threads until now."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


if __name__ == "__main__":
    main()
