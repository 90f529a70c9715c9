"""Exports splits by several processes: to one file, or to a directory with one file for each split.

    splits -> process per core: split -> part-00000.parquet, … of the directory
    splits -> process per core: split -> intermediate file -> this process: these in order -> one file

Rules:

- Rows are in log order, store by store: within a file, and over the files of a directory by their numbers. A split
  without rows has no file.
- Intermediate files are uncompressed Arrow IPC, which this process maps and copies; they are few at a time, beside the
  target. One file is encoded and compressed by this process alone; a directory is written by all processes alike, so it
  is the way to export much.
- What stops a store at damage, stops it for all: parts behind the damage are dropped, however far their processes were.
- Files appear when they are complete. A failed export leaves no intermediate file and no file of its own.
"""

import contextlib
import itertools
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc

from ...common.errors import ConfigError, StoreDamagedError
from ..plan.split import Split
from ..report.counters import StoreCounters
from ..report.report import Report
from .log_reader import ReadOptions, SplitReader
from .worker_pool import WorkerPool, open_worker_pool
from .writers import open_writer, write_all

INTERMEDIATE: Final = "intermediate"

Advance = Callable[[int], object]
"""Takes how many bytes more were read."""


@dataclass(frozen=True)
class ExportJob:
    """What is exported: with ``stops_at_damage`` a store ends there, else damage is an error."""

    splits: Sequence[Split]
    options: ReadOptions
    kind: str
    jobs: int = 1
    stops_at_damage: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes of log that are read; what ``advance`` is told adds up to it, unless a store ends before."""
        return sum(map(len, self.splits))


class PartFile(NamedTuple):
    """What became of a split."""

    split: Split
    path: str
    counters: StoreCounters


def read_split(
    split: Split, job: ExportJob, counters: StoreCounters, advance: Advance | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, up to damage if that ends its store; raises what ``SplitReader.read`` does."""
    try:
        yield from SplitReader(job.options, counters, advance).read(split)
    except StoreDamagedError as damage:
        if not job.stops_at_damage:
            raise
        counters.damage = damage


def write_part_file(split: Split, path: str, job: ExportJob, kind: str) -> PartFile:
    """Write a split to a file (``INTERMEDIATE`` or a format); raises what ``read_split`` and ``write_all`` do."""
    counters = StoreCounters(split.store)
    batches = read_split(split, job, counters)
    if kind == INTERMEDIATE:
        with pyarrow.ipc.new_file(path, job.options.schema) as file:
            for batch in batches:
                file.write_batch(batch)
    else:
        write_all(batches, path, kind, job.options.schema)
    return PartFile(split, path, counters)


def read_part_file(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece."""
    with pa.memory_map(path) as source:
        file = pyarrow.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


_PART: Final = re.compile(r"part-\d{5,}\.(parquet|arrow|jsonl)")
_AHEAD: Final = 2


def export_file(job: ExportJob, target: str, report: Report, advance: Advance) -> None:
    """Write all splits to one file, and add to the report what was met.

    Raises:
        ConfigError: The file cannot be made.
        StoreDamagedError: There is damage, and stores are not to end there.
        StoreError: A store cannot be read, or the disk takes no more bytes.
    """
    with open_writer(target, job.kind, job.options.schema) as writer:
        if job.jobs == 1:
            for batch in _read_in_turn(job, report, advance):
                writer.write(batch)
        else:
            with (
                _folder_beside(target) as folder,
                contextlib.closing(_part_files(job, folder, INTERMEDIATE)) as part_files,
            ):
                for part_file in _wanted(part_files, report, advance):
                    for batch in read_part_file(part_file.path):
                        writer.write(batch)


def export_directory(job: ExportJob, folder: str, report: Report, advance: Advance) -> None:
    """Write each split to a file of its own; report and errors are as for ``export_file``."""
    made: list[str] = []
    try:
        os.makedirs(folder, exist_ok=True)
        beside = _folder_beside(os.path.join(folder, "part"))
        with beside as own, contextlib.closing(_part_files(job, own, job.kind)) as part_files:
            for part_file in _wanted(part_files, report, advance):
                made.append(os.path.join(folder, os.path.basename(part_file.path)))
                os.replace(part_file.path, made[-1])
    except BaseException as error:
        for path in made:
            os.unlink(path)
        if isinstance(error, OSError):
            raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from error
        raise


def find_parts(folder: str) -> list[str]:
    """Return the files that an earlier export to a directory left there."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.path.join(folder, name) for name in os.listdir(folder) if _PART.fullmatch(name))
    return []


def _read_in_turn(job: ExportJob, report: Report, advance: Advance) -> Iterator[pa.RecordBatch]:
    stopped: set[str] = set()
    for split in job.splits:
        if split.store not in stopped:
            counters = StoreCounters(split.store)
            yield from read_split(split, job, counters, advance)
            report.add([counters])
            if counters.damage is not None:
                stopped.add(split.store)


def _wanted(part_files: Iterable[PartFile], report: Report, advance: Advance) -> Iterator[PartFile]:
    """Yield the pieces that have rows and do not stand behind damage, and count them."""
    stopped: set[str] = set()
    for part_file in part_files:
        advance(len(part_file.split))
        if part_file.split.store not in stopped:
            report.add([part_file.counters])
            if part_file.counters.delivered_rows:
                yield part_file
            if part_file.counters.damage is not None:
                stopped.add(part_file.split.store)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part_file.path)


def _part_files(job: ExportJob, folder: str, kind: str) -> Generator[PartFile]:
    """Yield what processes make of the splits, in order."""
    suffix = "arrow" if kind == INTERMEDIATE else kind
    paths = (os.path.join(folder, f"part-{number:05d}.{suffix}") for number in itertools.count())
    calls = zip(job.splits, paths, strict=False)
    if job.jobs == 1:
        yield from (write_part_file(split, path, job, kind) for split, path in calls)
        return
    lean = replace(job, splits=[])
    with open_worker_pool(job.jobs) as workers:
        waiting = deque(_submit(workers, calls, lean, kind, job.jobs + _AHEAD))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(_submit(workers, calls, lean, kind, 1))


def _submit(
    workers: WorkerPool, calls: Iterator[tuple[Split, str]], job: ExportJob, kind: str, count: int
) -> list[Future[PartFile]]:
    return [workers.submit(write_part_file, split, path, job, kind) for split, path in itertools.islice(calls, count)]


@contextlib.contextmanager
def _folder_beside(target: str) -> Generator[str]:
    """Make a directory for pieces on the file system of the target.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        folder = tempfile.mkdtemp(prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(os.path.abspath(target)))
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
