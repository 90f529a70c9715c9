"""Writes exported messages to one file: Parquet, Arrow IPC, JSON lines or a dump.

    suffix                 format
    .parquet               parquet    zstd, one row group per 64 MiB or so
    .arrow .feather .ipc   arrow      the file format of Arrow IPC, zstd
    .jsonl .ndjson .json   jsonl      one object per line
    (any)                  dump       see ``dumpfile``, which takes all columns in its own order

Rules:

- The file appears under its name when it is complete; until then it is ``<name>.part`` beside it, which a failed
  export removes.
- In JSON lines, timestamps are ISO 8601 in UTC, and a body is ``body`` when it is UTF-8, else ``bodyBase64``; absent
  values are left out.
"""

import base64
import contextlib
import datetime
import os
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from ...common.errors import ConfigError, StoreError
from ..columns.schema import FULL_SCHEMA, SCHEMA, TIMESTAMP
from .dump_file import DumpWriter

SUFFIXES: Final = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_TIMESTAMPS: Final = [field.name for field in FULL_SCHEMA if field.type == TIMESTAMP]


class Writer(Protocol):
    """Takes batches until it is closed."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """Complete the file."""
        ...

    def release(self) -> None:
        """Let go of the file, complete or not."""
        ...


def format_of(path: str) -> str:
    """Return the format that the name of a file asks for.

    Raises:
        ConfigError: The suffix is none of those above.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{path} ends in none of {' '.join(SUFFIXES)}; name the format")
    return SUFFIXES[suffix]


@contextlib.contextmanager
def open_writer(path: str, kind: str, schema: pa.Schema = SCHEMA) -> Generator[Writer]:
    """Write a file of a format; without an error in the block, it stands under its name at the end.

    Raises:
        ConfigError: The file cannot be made.
        StoreError: The disk takes no more bytes.
    """
    part = f"{path}.part"
    try:
        writer = WRITERS[kind](part, schema)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    try:
        yield writer
        writer.close()
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            writer.release()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


class ParquetWriter:
    """Collects batches into row groups, which readers scan one by one."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = pq.ParquetWriter(path, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Complete the file."""
        if self._waiting:
            self._write_group()
        self._file.close()

    def release(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write_group(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._file.write_table(rows, row_group_size=max(rows.num_rows, 1))


class ArrowWriter:
    """Writes each batch as it comes."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        self._file = pyarrow.ipc.new_file(path, schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if batch.num_rows:
            self._file.write_batch(batch)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    release = close


class JsonLinesWriter:
    """Writes each message as one line; the only writer whose work is done row by row."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 # closed by close
        self._encoder = msgspec.json.Encoder()
        self._timestamps = [name for name in _TIMESTAMPS if name in schema.names]

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        lines = self._encoder.encode_lines([self._to_json(row) for row in batch.to_pylist()])
        self._file.write(lines)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    release = close

    def _to_json(self, row: dict[str, Any]) -> dict[str, Any]:
        for name in self._timestamps:
            at: datetime.datetime | None = row[name]
            row[name] = at and f"{at.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
        if "properties" in row:
            row["properties"] = dict(row["properties"])
        body: bytes | None = row.pop("body", None)
        if body is not None:
            _set_body(row, body)
        return {name: value for name, value in row.items() if value is not None}


WRITERS: Final[dict[str, Callable[[str, pa.Schema], Writer]]] = {
    "parquet": ParquetWriter,
    "arrow": ArrowWriter,
    "jsonl": JsonLinesWriter,
    "dump": DumpWriter,
}


def write_all(batches: Iterable[pa.RecordBatch], path: str, kind: str, schema: pa.Schema = SCHEMA) -> None:
    """Write all batches to a file; raises what ``open_writer`` and the reading do."""
    with open_writer(path, kind, schema) as writer:
        for batch in batches:
            writer.write(batch)


def _set_body(row: dict[str, Any], body: bytes) -> None:
    try:
        row["body"] = body.decode()
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(body).decode()
