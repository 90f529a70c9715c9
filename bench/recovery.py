"""Measure how long a store takes to open (`python bench/recovery.py`).

- After a kill, the whole log beside a bare loop that walks the same records and checks their bodies, in the same run:
  the median of the ratios is printed for bodies of 128 bytes and of 1 KiB, with and without the index. These rows are
  in CPU time, so that what else runs on the machine counts little; both sides use one thread.
- After a clean stop, seconds per 10,000 queues, and what a round of appends to all of them costs.

A child process writes each store and ends without closing it.
"""

import mmap
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from itertools import count
from pathlib import Path

import click

from rocketlet.common.properties import encode_properties
from rocketlet.common.record import MAGIC_V1, NewRecord
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
_SKETCH = struct.Struct(">iIi72xi")  # size, magic, checksum and length of the body
_COMMIT = 256
_QUEUE_FILE_BYTES = 20_000  # each queue has a file of its own: 50,000 of the default size are 300 GB of holes


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _open(root: str, *, has_index: bool = True, queue_file_bytes: int = 6_000_000) -> MessageStore:
    config = StoreConfig(root, has_index=has_index, queue_file_bytes=queue_file_bytes)
    return MessageStore.open(config, now_ms=_now_ms, store_host=HOST)


def _message(number: int, topic: str, queue_id: int, body_bytes: int) -> NewRecord:
    properties = {
        "UNIQ_KEY": f"7F0000010A2B3C4D5E6F{number:012X}",
        "KEYS": f"key{number}",
        "TAGS": f"tag{number % 3}",
        "WAIT": "true",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    return NewRecord(
        topic, queue_id, os.urandom(body_bytes), encode_properties(properties), properties, 0, 0, _now_ms(), HOST
    )


def _fill(root: str, body_bytes: int, megabytes: int, *, has_index: bool) -> None:
    store = _open(root, has_index=has_index)
    for number in count():
        store.append(_message(number, f"BenchTopic{number % 4}", number // 4 % 8, body_bytes))
        if number % _COMMIT == 0:
            store.commit()
            if store.log_max_offset > megabytes << 20:
                break
    store.tick()
    os._exit(0)  # as a kill: nothing is flushed, no index table written, `abort` stays


def _walk_bare(root: str) -> tuple[int, float]:
    """Return the bytes of the log and how long the bare loop takes for them."""
    started = time.process_time()
    total = 0
    for path in sorted(Path(root, "commitlog").iterdir()):
        with path.open("rb") as file:
            total += _walk_view(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    return total, time.process_time() - started


def _walk_view(view: memoryview) -> int:
    crc32, read, position = zlib.crc32, _SKETCH.unpack_from, 0
    while True:
        size, magic, body_crc, body_bytes = read(view, position)
        if magic != MAGIC_V1:
            return position
        body_at = position + 88
        if crc32(view[body_at : body_at + body_bytes]) & 0x7FFFFFFF != body_crc:
            return position
        position += size


def _measure_scan(body_bytes: int, megabytes: int, rounds: int, *, has_index: bool) -> None:
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(
            [sys.executable, __file__, "--fill", root, str(body_bytes), str(megabytes), str(has_index)], check=True
        )
        rows: list[tuple[float, float, float]] = []
        for _ in range(rounds):
            size, bare = _walk_bare(root)
            Path(root, "abort").touch()
            Path(root, "checkpoint").unlink(missing_ok=True)  # nothing is sure: all of the log is scanned
            started = time.process_time()
            store = _open(root, has_index=has_index)
            opened = time.process_time() - started
            store.close()
            rows.append((bare / opened, size / bare / 1e9, size / opened / 1e9))
        ratio, ceiling, reached = (statistics.median(column) for column in zip(*rows, strict=True))
        index = "with index" if has_index else "without index"
        print(
            f"bodies of {body_bytes} bytes, {index}: {reached:.2f} GB/s of {ceiling:.2f} GB/s bare, ratio {ratio:.2f}",
            flush=True,
        )


def _measure_queues(queues: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        started = time.perf_counter()
        with _open(root, queue_file_bytes=_QUEUE_FILE_BYTES) as store:
            for number in range(queues):
                store.append(_message(number, f"T{number // 16}", number % 16, 16))
                if number % _COMMIT == 0:
                    store.commit()
            store.commit()
        made = time.perf_counter() - started
        for state in ("clean stop", "kill"):
            started = time.perf_counter()
            store = _open(root, queue_file_bytes=_QUEUE_FILE_BYTES)
            opened = time.perf_counter() - started
            assert sum(1 for _ in store.queues()) == queues
            descriptors = len(os.listdir("/proc/self/fd"))
            store.close()
            Path(root, "abort").touch()
            per_10_000 = opened * 10_000 / queues
            print(f"{queues} queues after a {state}: {opened:.2f} s, {per_10_000:.2f} s per 10,000", end="; ")
            print(f"{descriptors} descriptors", flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{queues} queues: first message to each and a clean stop {made:.2f} s, peak memory {peak} MB")


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds of each row; the median is printed.")
@click.option("--megabytes", default=300, show_default=True, help="How much log is scanned, 0 for none.")
@click.option("--queues", default=50_000, show_default=True, help="How many queues are opened, 0 for none.")
def main(rounds: int, megabytes: int, queues: int) -> None:
    """Print how fast stores open."""
    for body_bytes in (128, 1024) if megabytes else ():
        for has_index in (False, True):
            _measure_scan(body_bytes, megabytes, rounds, has_index=has_index)
    if queues:
        _measure_queues(queues)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fill"]:
        _fill(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), has_index=sys.argv[5] == "True")
    main()
