"""Measure how fast stores are read without Spark (`python bench/export.py`).

- Bytes of log per second of CPU time of one core, to Arrow: metadata only, bodies without properties, everything; with
  and without the checksums of bodies. The best of some rounds; what else runs on the machine counts little.
- What a row costs in a log of 10 MB and in a larger one of equal records.
- Planning of a sparse log of 20 GB: seconds and the memory that a process of its own has at most.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from samplelog import write_log, write_sparse_log

METADATA = ("topic", "queueId", "queueOffset", "logOffset", "storeTimestamp")
COLUMNS = {"metadata": METADATA, "bodies": (*METADATA, "body"), "bodies and properties": None}


def read_rate(store: Path, names: Sequence[str] | None, *, checks_crc: bool, rounds: int) -> tuple[float, float]:
    """Return gigabytes of log per second of CPU time, and microseconds per row."""
    from rocketlet.export.columns.schema import SCHEMA, pick_columns
    from rocketlet.export.plan.read_plan import plan_stores
    from rocketlet.export.write.log_reader import LogReader, ReadOptions
    from rocketlet.store.commitlog.record_blocks import ScanLimits

    schema = SCHEMA if names is None else pick_columns(names)
    options, best, rows = ReadOptions(schema=schema, limits=ScanLimits(checks_crc=checks_crc)), float("inf"), 0
    splits = plan_stores([str(store)])
    for _ in range(rounds):
        reading = LogReader(splits, options)
        started = time.process_time()
        rows = sum(batch.num_rows for batch in reading)
        best = min(best, time.process_time() - started)
    return sum(map(len, splits)) / best / 1e9, best / rows * 1e6


def plan_alone(store: str) -> None:
    """Plan a store, and print the seconds and the megabytes that this process took."""
    from rocketlet.export.plan.read_plan import plan_stores

    before = _peak_megabytes()
    started = time.perf_counter()
    splits = plan_stores([store])
    seconds = time.perf_counter() - started
    most = _peak_megabytes()
    gigabytes = sum(map(len, splits)) / 1e9
    click.echo(
        f"planned {gigabytes:.1f} GB in {len(splits)} splits: {seconds:.3f} s, {most:.0f} MB (before: {before:.0f} MB)"
    )


def _peak_megabytes() -> float:
    """Return the most memory that this process has had; that of ``getrusage`` counts the parent's, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@click.command()
@click.option("--megabytes", default=256, show_default=True, help="Size of the log that is read.")
@click.option("--body-bytes", default=1_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the logs are written for the time of the run.")
@click.option("--plan-only", metavar="STORE", help="Only plan this store, in this process.")
def main(megabytes: int, body_bytes: int, rounds: int, folder: Path | None, plan_only: str | None) -> None:
    """Print the rates."""
    if plan_only is not None:
        plan_alone(plan_only)
        return
    with tempfile.TemporaryDirectory(dir=folder) as place:
        small, large, sparse = (Path(place) / name for name in ("small", "large", "sparse"))
        write_log(small, 10_000_000, body_bytes)
        write_log(large, megabytes * 1_000_000, body_bytes)
        for text, names in COLUMNS.items():
            for checks_crc in (False, True):
                rate, cost = read_rate(large, names, checks_crc=checks_crc, rounds=rounds)
                _, small_cost = read_rate(small, names, checks_crc=checks_crc, rounds=rounds)
                checked = "checked" if checks_crc else "not checked"
                click.echo(
                    f"{text}, {checked}: {rate:.2f} GB/s of a core, {cost:.2f} us/row (10 MB: {small_cost:.2f} us/row)"
                )
        write_sparse_log(sparse, 20, 600_000_000 if megabytes > 256 else 64_000_000)
        subprocess.run([sys.executable, __file__, "--plan-only", str(sparse)], check=True)


if __name__ == "__main__":
    main()
