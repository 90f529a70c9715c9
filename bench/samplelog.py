"""Logs that the benchmarks read, with properties as a client gives them."""

import os
import struct
from pathlib import Path

from rocketlet.common.properties import encode_properties
from rocketlet.common.record import MAGIC_BLANK, NewRecord, encode_record

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
SEGMENT_BYTES = 1 << 30
FIRST_MS = 1_750_000_000_000


def write_log(store: Path, log_bytes: int, body_bytes: int, first_file: int = 0) -> int:
    """Write a log with properties as a client gives them, and return the number of records."""
    folder = store / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    position, number = first_file * SEGMENT_BYTES, 0
    body = os.urandom(body_bytes)
    end = position + log_bytes
    while position < end:
        with (folder / f"{position // SEGMENT_BYTES * SEGMENT_BYTES:020d}").open("wb") as file:
            file.truncate(SEGMENT_BYTES)
            stop = min(end, (position // SEGMENT_BYTES + 1) * SEGMENT_BYTES)
            while True:
                record = _record(number, body, position)
                if position + len(record) + 8 > stop:
                    break
                file.write(record)
                position += len(record)
                number += 1
            if stop % SEGMENT_BYTES == 0:
                file.write(struct.pack(">iI", stop - position, MAGIC_BLANK))
            position = stop
    return number


def _record(number: int, body: bytes, log_offset: int) -> bytes:
    properties = {
        "UNIQ_KEY": f"7F0000010A2B3C4D5E6F{number:012X}",
        "KEYS": f"key{number}",
        "TAGS": f"tag{number % 3}",
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
    }
    new = NewRecord(
        f"Topic{number // 8 % 3}", number % 8, body, encode_properties(properties), {}, 0, 0, FIRST_MS, HOST
    )
    return encode_record(
        new, queue_offset=number // 24, log_offset=log_offset, stored_at_ms=FIRST_MS + number, store_host=HOST
    )


def write_sparse_log(store: Path, files: int, last_bytes: int) -> None:
    """Write a log of whole files that hold one record and a blank each, and of a last one with more."""
    folder = store / "commitlog"
    folder.mkdir(parents=True)
    for number in range(files - 1):
        base = number * SEGMENT_BYTES
        record = _record(number * 24, b"body", base)
        with (folder / f"{base:020d}").open("wb") as file:
            file.truncate(SEGMENT_BYTES)
            file.write(record + struct.pack(">iI", SEGMENT_BYTES - len(record), MAGIC_BLANK))
    write_log(store, last_bytes, 1_000, files - 1)
