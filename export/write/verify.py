"""Reads exported files back, and compares them with the report of their export, queue by queue.

    part-0.parquet                             topic, queueId, queueOffset are columns
    topic=Orders/day=2026-01-31/part-0.parquet what is no column is taken from the names of the directories

Rules:

- A directory stands for all Parquet, Arrow IPC and JSON lines files below it; names that begin with ``_`` or ``.`` are
  no data. Rows are read in batches, columns that nobody asked for not at all; JSON lines are decoded line by line.
- Compared are the number of rows, the first, the last and the sum of their queue offsets, and, where no message of the
  queue was left out, each single offset: so what is missing and what is there twice is named.
- Where several stores of a report have a queue of one name, their rows are compared together.
- Bodies are compared with their checksums, where the files have ``body``, ``bodyCrc`` and ``sysFlag``. Bodies that
  were compressed, or came in an inner batch, have another checksum than the stored one and cannot be.
- What stands against the report itself is a difference, too: then it is not known what should be there.
"""

import posixpath
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.ipc
import pyarrow.parquet as pq

from ...common.errors import ConfigError
from ...common.message import COMPRESSED, INNER_BATCH
from ..plan.filesystems import Storage, is_pattern
from ..report.counters import SUM_MASK, QueueCounters, QueueKey
from ..report.interval_set import ArrayIntervalSet, IntervalSet
from ..report.report import Report
from .writers import SUFFIXES

_NOT_AS_STORED: Final = COMPRESSED | INNER_BATCH
_CRC_MASK: Final = 0x7FFFFFFF


COUNTED: Final = {"topic": pa.string(), "queueId": pa.int32(), "queueOffset": pa.int64()}


BODIES: Final = {"body": pa.binary(), "bodyCrc": pa.int32(), "sysFlag": pa.int32()}


_COMPRESSIONS: Final = (".gz", ".zst", ".bz2")


_BATCH_ROWS: Final = 65_536


_LINES_BYTES: Final = 8 << 20


class ExportedFile:
    """A file with exported rows."""

    def __init__(self, system: pafs.FileSystem, path: str, kind: str) -> None:
        self.path = path
        self._system = system
        self._kind = kind
        self._named = _named_values(path)

    def __repr__(self) -> str:
        return f"<ExportedFile {self.path}>"

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


def find_outputs(places: Iterable[str], storage: Storage) -> list[ExportedFile]:
    """Return the files of files and directories.

    A directory without files has no rows, nor has a pattern, which a shell hands on where nothing fits it.

    Raises:
        ConfigError: A place is not there, or its files are of no known format.
    """
    return [output for place in places for output in _find(place, *storage.resolve(place))]


def _find(place: str, system: pafs.FileSystem, path: str) -> list[ExportedFile]:
    found = system.get_file_info(path)
    if found.type == pafs.FileType.NotFound and is_pattern(place):
        return []
    if found.type == pafs.FileType.NotFound:
        raise ConfigError(f"{place} does not exist")
    if found.type == pafs.FileType.File:
        kind = _kind_of(path)
        if kind is None:
            raise ConfigError(f"{place} ends in none of {' '.join(SUFFIXES)}")
        return [ExportedFile(system, path, kind)]
    below = sorted(info.path for info in system.get_file_info(pafs.FileSelector(path, recursive=True)) if info.is_file)
    files = [one for one in below if not _is_hidden(one.removeprefix(path))]
    outputs = [ExportedFile(system, one, kind) for one in files if (kind := _kind_of(one)) is not None]
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


@dataclass
class ExportedRows:
    """What the files hold."""

    rows: int = 0
    files: int = 0
    checked_bodies: int = 0
    wrong_bodies: int = 0
    queues: dict[QueueKey, ArrayIntervalSet] = field(default_factory=dict[QueueKey, ArrayIntervalSet])


def read_outputs(outputs: Iterable[ExportedFile], *, checks_bodies: bool = True) -> ExportedRows:
    """Return what the files hold; raises ``ConfigError`` as ``ExportedFile.batches`` does."""
    found = ExportedRows()
    for output in outputs:
        found.files += 1
        for batch in output.batches(with_bodies=checks_bodies):
            found.rows += batch.num_rows
            _count_offsets(found, batch)
            if "body" in batch.schema.names:
                _check_bodies(found, batch)
    return found


def compare(report: Report, found: ExportedRows) -> Iterator[str]:
    """Yield the differences, one line each."""
    yield from (f"report: {fault}" for fault in report.faults())
    expected = _expected_queues(report)
    for key in sorted({*expected, *found.queues}):
        queue, offsets = expected.get(key, QueueCounters()), found.queues.get(key, ArrayIntervalSet())
        yield from (f"{key[0]} queue {key[1]}: {text}" for text in _compare_queue(queue, offsets))
    if found.wrong_bodies:
        yield f"bodies without their checksum: {found.wrong_bodies}"


def _expected_queues(report: Report) -> dict[QueueKey, QueueCounters]:
    expected: dict[QueueKey, QueueCounters] = {}
    for counters in report.stores:
        for key, queue in counters.queues.items():
            expected.setdefault(key, QueueCounters()).merge(queue)
    return expected


def _compare_queue(queue: QueueCounters, offsets: ArrayIntervalSet) -> Iterator[str]:
    if offsets.count != queue.rows:
        yield f"{offsets.count} rows instead of {queue.rows}"
    if queue.rows == queue.messages:
        yield from _compare_offsets(queue.offsets, offsets)
    elif offsets.count and queue.rows:
        yield from _compare_sums(queue, offsets)


def _compare_offsets(expected: IntervalSet, offsets: ArrayIntervalSet) -> Iterator[str]:
    found = IntervalSet(offsets.runs())
    yield from (f"missing {_name(*run)}" for run in expected.minus(found))
    yield from (f"unexpected {_name(*run)}" for run in found.minus(expected))
    repeated = offsets.repeated()
    if len(repeated) != expected.repeats:
        first = f", the first is {repeated[0]}" if repeated else ""
        yield f"repeated queue offsets: {len(repeated)} instead of {expected.repeats}{first}"


def _compare_sums(queue: QueueCounters, offsets: ArrayIntervalSet) -> Iterator[str]:
    runs, repeated = offsets.runs(), offsets.repeated()
    first, last = runs[0][0], runs[-1][1] - 1
    if (first, last) != (queue.delivered.first, queue.delivered.last):
        yield f"queue offsets {first} to {last} instead of {queue.delivered.first} to {queue.delivered.last}"
    added = sum((start + end - 1) * (end - start) // 2 for start, end in runs) + sum(repeated)
    if added & SUM_MASK != queue.delivered.offset_sum:
        yield "the queue offsets are others: they do not have the sum of the report"
    if repeated and not queue.offsets.repeats:
        yield f"repeated queue offsets: {len(repeated)} instead of 0, the first is {repeated[0]}"


def _name(start: int, end: int) -> str:
    return f"queue offset {start}" if end == start + 1 else f"queue offsets {start} to {end - 1}"


def _count_offsets(found: ExportedRows, batch: pa.RecordBatch) -> None:
    topics = batch.column("topic").dictionary_encode()
    names: list[str] = topics.dictionary.to_pylist()
    codes, queue_ids = np.asarray(topics.indices), np.asarray(batch.column("queueId"))
    offsets = np.asarray(batch.column("queueOffset"))
    for code, name in enumerate(names):
        of_topic = codes == code
        ids: list[int] = np.unique(queue_ids[of_topic]).tolist()
        for queue_id in ids:
            chosen = offsets[of_topic & (queue_ids == queue_id)]
            found.queues.setdefault((name, queue_id), ArrayIntervalSet()).add(chosen)


def _check_bodies(found: ExportedRows, batch: pa.RecordBatch) -> None:
    bodies, sums, flags = (batch.column(name) for name in BODIES)
    as_stored = np.asarray(flags) & _NOT_AS_STORED == 0
    as_stored &= np.asarray(pc.binary_length(bodies).fill_null(0)) > 0  # Java keeps no checksum of an empty body
    found.checked_bodies += int(as_stored.sum())
    rows = pa.array(np.flatnonzero(as_stored))
    crcs = np.array([zlib.crc32(body.as_buffer()) for body in bodies.take(rows)], np.int64) & _CRC_MASK
    found.wrong_bodies += int((crcs != np.asarray(sums)[as_stored]).sum())
