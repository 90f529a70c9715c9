"""Logs that the benchmarks read, with properties as a client gives them, and with queues; which columns are read."""

import os
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from rocketlet.common.properties import encode_properties, java_hash
from rocketlet.common.record import MAGIC_BLANK, NewRecord, encode_record
from rocketlet.store.consumequeue.consume_queue import ENTRY

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
SEGMENT_BYTES = 1 << 30
FIRST_MS = 1_750_000_000_000
QUEUE_FILE_BYTES = 300_000 * 20
METADATA = (
    "topic", "queueId", "queueOffset", "logOffset", "flag", "sysFlag", "bornTimestamp", "storeTimestamp",
    "reconsumeTimes", "preparedTransactionOffset", "bodyCrc",
)  # fmt: skip
CONTENT = (*METADATA, "tags", "keys", "properties", "body")


def write_log(store: Path, log_bytes: int, body_bytes: int) -> None:
    """Write a log and its queues."""
    queues: defaultdict[tuple[str, int], bytearray] = defaultdict(bytearray)
    for number, position, size in _write_records(store, log_bytes, body_bytes, 0):
        queues[_topic(number), number % 8] += ENTRY.pack(position, size, java_hash(_tag(number)))
    for (topic, queue_id), entries in queues.items():
        folder = store / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        for start in range(0, len(entries), QUEUE_FILE_BYTES):
            with (folder / f"{start:020d}").open("wb") as file:
                file.write(entries[start : start + QUEUE_FILE_BYTES])
                file.truncate(QUEUE_FILE_BYTES)


def _write_records(store: Path, log_bytes: int, body_bytes: int, first_file: int) -> Iterator[tuple[int, int, int]]:
    """Write a log, and yield number, position and size of each record."""
    folder = store / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    position, number = first_file * SEGMENT_BYTES, 0
    body = os.urandom(body_bytes)
    end = position + log_bytes
    while position < end:
        with (folder / f"{position // SEGMENT_BYTES * SEGMENT_BYTES:020d}").open("wb", buffering=1 << 20) as file:
            file.truncate(SEGMENT_BYTES)
            stop = min(end, (position // SEGMENT_BYTES + 1) * SEGMENT_BYTES)
            while True:
                record = _record(number, body, position)
                if position + len(record) + 8 > stop:
                    break
                file.write(record)
                yield number, position, len(record)
                position += len(record)
                number += 1
            if stop % SEGMENT_BYTES == 0:
                file.write(struct.pack(">iI", stop - position, MAGIC_BLANK))
            position = stop


def _topic(number: int) -> str:
    return f"Topic{number // 8 % 3}"


def _tag(number: int) -> str:
    return f"tag{number % 3}"


def _record(number: int, body: bytes, log_offset: int) -> bytes:
    properties = {
        "UNIQ_KEY": f"7F0000010A2B3C4D5E6F{number:012X}",
        "KEYS": f"key{number}",
        "TAGS": _tag(number),
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
    }
    new = NewRecord(_topic(number), number % 8, body, encode_properties(properties), {}, 0, 0, FIRST_MS, HOST)
    return encode_record(
        new, queue_offset=number // 24, log_offset=log_offset, stored_at_ms=FIRST_MS + number, store_host=HOST
    )


def write_sparse_log(store: Path, files: int, last_bytes: int) -> None:
    """Write a log without queues, of whole files that hold one record and a blank each, and of a last one with more."""
    folder = store / "commitlog"
    folder.mkdir(parents=True)
    for number in range(files - 1):
        base = number * SEGMENT_BYTES
        record = _record(number * 24, b"body", base)
        with (folder / f"{base:020d}").open("wb") as file:
            file.truncate(SEGMENT_BYTES)
            file.write(record + struct.pack(">iI", SEGMENT_BYTES - len(record), MAGIC_BLANK))
    for _ in _write_records(store, last_bytes, 1_000, files - 1):
        pass
