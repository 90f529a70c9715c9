"""One split of an export as a file: in the format that is wanted, or as a piece of one.

A piece is uncompressed Arrow IPC, which the process that puts pieces together maps and copies.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.ipc

from ...common.errors import StoreDamagedError
from ..plan.split import Split
from ..report.tally import StoreTally
from .blockread import ReadOptions
from .read import SplitReader
from .write import write_all

PIECE: Final = "piece"

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


class Piece(NamedTuple):
    """What became of a split."""

    split: Split
    path: str
    tally: StoreTally


def read_split(
    split: Split, job: ExportJob, tally: StoreTally, advance: Advance | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, up to damage if that ends its store; raises what ``SplitReader.read`` does."""
    try:
        yield from SplitReader(job.options, tally, advance).read(split)
    except StoreDamagedError as damage:
        if not job.stops_at_damage:
            raise
        tally.damage = damage


def write_piece(split: Split, path: str, job: ExportJob, kind: str) -> Piece:
    """Write a split to a file of a kind (``PIECE`` or a format); raises what ``read_split`` and ``write_all`` do."""
    tally = StoreTally(split.store)
    batches = read_split(split, job, tally)
    if kind == PIECE:
        with pyarrow.ipc.new_file(path, job.options.schema) as file:
            for batch in batches:
                file.write_batch(batch)
    else:
        write_all(batches, path, kind, job.options.schema)
    return Piece(split, path, tally)


def read_piece(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece."""
    with pa.memory_map(path) as source:
        file = pyarrow.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)
