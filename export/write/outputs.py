"""Reads back what was exported: the columns of Parquet, Arrow IPC and JSON lines files by which rows are counted.

    part-0.parquet                             topic, queueId, queueOffset are columns
    topic=Orders/day=2026-01-31/part-0.parquet what is no column is taken from the names of the directories

Rules:

- A directory stands for all files below it with a known suffix; names that begin with ``_`` or ``.`` are no data.
- Rows are read in batches, columns that nobody asked for not at all; JSON lines are decoded line by line.
"""

import posixpath
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.ipc
import pyarrow.parquet as pq

from ...common.errors import ConfigError
from ..plan.places import Storage, is_pattern
from .write import SUFFIXES

COUNTED: Final = {"topic": pa.string(), "queueId": pa.int32(), "queueOffset": pa.int64()}
BODIES: Final = {"body": pa.binary(), "bodyCrc": pa.int32(), "sysFlag": pa.int32()}
_COMPRESSIONS: Final = (".gz", ".zst", ".bz2")
_BATCH_ROWS: Final = 65_536
_LINES_BYTES: Final = 8 << 20


class Output:
    """A file with exported rows."""

    def __init__(self, system: pafs.FileSystem, path: str, kind: str) -> None:
        self.path = path
        self._system = system
        self._kind = kind
        self._named = _named_values(path)

    def __repr__(self) -> str:
        return f"<Output {self.path}>"

    def batches(self, *, with_bodies: bool) -> Iterator[pa.RecordBatch]:
        """Yield the columns of ``COUNTED``, with ``BODIES`` where the file has all of these as bytes and numbers.

        Raises:
            ConfigError: The file cannot be read, or lacks a column.
        """
        try:
            if self._kind == "jsonl":
                yield from map(self._complete, self._read_lines())
            else:
                columnar = self._read_parquet if self._kind == "parquet" else self._read_arrow
                yield from map(self._complete, columnar(with_bodies=with_bodies))
        except (OSError, pa.ArrowException, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self.path} cannot be read: {error}") from error

    def _read_parquet(self, *, with_bodies: bool) -> Iterator[pa.RecordBatch]:
        with self._system.open_input_file(self.path) as source:
            file = pq.ParquetFile(source)
            names = _wanted(file.schema_arrow, with_bodies=with_bodies)
            yield from file.iter_batches(_BATCH_ROWS, columns=names)

    def _read_arrow(self, *, with_bodies: bool) -> Iterator[pa.RecordBatch]:
        with self._system.open_input_file(self.path) as source:
            file = pyarrow.ipc.open_file(source)
            names = _wanted(file.schema, with_bodies=with_bodies)
            for number in range(file.num_record_batches):
                yield file.get_batch(number).select(names)

    def _read_lines(self) -> Iterator[pa.RecordBatch]:
        decoder = msgspec.json.Decoder(dict[str, Any])
        rest = b""
        with self._system.open_input_stream(self.path) as source:
            while read := source.read(_LINES_BYTES):
                lines, _, rest = (rest + read).rpartition(b"\n")
                yield _columns_of(decoder.decode_lines(lines))
        yield _columns_of(decoder.decode_lines(rest))

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the columns that only the path knows."""
        arrays: dict[str, pa.Array] = {name: batch.column(name) for name in batch.schema.names}
        for name, kind in COUNTED.items():
            if name not in arrays and name not in self._named:
                raise ConfigError(f"{self.path} has no column {name}")
            column = arrays[name] if name in arrays else pa.repeat(self._named[name], batch.num_rows)
            arrays[name] = pc.cast(column, kind)
        return pa.RecordBatch.from_pydict(arrays)


def find_outputs(places: Iterable[str], storage: Storage) -> list[Output]:
    """Return the files of files and directories.

    A directory without files has no rows, nor has a pattern, which a shell hands on where nothing fits it.

    Raises:
        ConfigError: A place is not there, or its files are of no known format.
    """
    return [output for place in places for output in _find(place, *storage.resolve(place))]


def _find(place: str, system: pafs.FileSystem, path: str) -> list[Output]:
    found = system.get_file_info(path)
    if found.type == pafs.FileType.NotFound and is_pattern(place):
        return []
    if found.type == pafs.FileType.NotFound:
        raise ConfigError(f"{place} does not exist")
    if found.type == pafs.FileType.File:
        kind = _kind_of(path)
        if kind is None:
            raise ConfigError(f"{place} ends in none of {' '.join(SUFFIXES)}")
        return [Output(system, path, kind)]
    below = sorted(info.path for info in system.get_file_info(pafs.FileSelector(path, recursive=True)) if info.is_file)
    files = [one for one in below if not _is_hidden(one.removeprefix(path))]
    outputs = [Output(system, one, kind) for one in files if (kind := _kind_of(one)) is not None]
    if files and not outputs:
        raise ConfigError(f"{place} holds no file that ends in one of {' '.join(SUFFIXES)}")
    return outputs


def _kind_of(path: str) -> str | None:
    stem, suffix = posixpath.splitext(path.lower())
    if suffix in _COMPRESSIONS:
        kind = SUFFIXES.get(posixpath.splitext(stem)[1])
        return kind if kind == "jsonl" else None
    return SUFFIXES.get(suffix)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _named_values(path: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in path.split("/")[:-1]]
    return {name: unquote(value) for name, mark, value in pairs if mark}


def _wanted(schema: pa.Schema, *, with_bodies: bool) -> list[str]:
    names = [name for name in COUNTED if name in schema.names]
    if with_bodies and all(name in schema.names and schema.field(name).type == BODIES[name] for name in BODIES):
        names += BODIES
    return names


def _columns_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = [name for name in COUNTED if any(name in row for row in rows)] if rows else list(COUNTED)
    return pa.RecordBatch.from_pydict(
        {name: pa.array([row.get(name) for row in rows], COUNTED[name]) for name in names}
    )
