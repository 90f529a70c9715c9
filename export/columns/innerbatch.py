"""Takes inner batches apart: records that hold several messages (sysFlag 0x80; store.md §2.6).

    body of the record = batch records -> one row each, queue offset = that of the record + its place in the batch

Rules (``MessageDecoder.decodeMessage``):

- A message of a batch has its own body, flag and properties; all else is what the record says.
- A record whose body is no batch stays one row, with its body as it is. Only brokers with topics of ``queue.type``
  BatchCQ write such records, so the work per message that is done here is rare.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from ...common.compression import inflate
from ...common.errors import DecodeError
from ...common.record import BatchPart, decode_batch
from ...common.sysflag import INNER_BATCH
from ...store.commitlog.record_blocks import Block, Longs
from .columns import Rows
from .propertymap import PropertyTable, parse_property_texts

# Position of a record in its segment -> the messages in it.
Batches = Mapping[int, Sequence[BatchPart]]


def find_batches(block: Block) -> Batches:
    """Return the inner batches among the records."""
    found: dict[int, Sequence[BatchPart]] = {}
    flags = block.number("sys_flag")
    for row in np.flatnonzero(flags & INNER_BATCH).tolist():
        start, size = int(block.body_at[row]), int(block.body_bytes[row])
        try:
            parts = decode_batch(inflate(block.segment.view[start : start + size], int(flags[row])))
        except DecodeError:
            continue
        if parts:
            found[int(block.positions[row])] = parts
    return found


def count_messages(block: Block, batches: Batches) -> Longs:
    """Return how many messages each record holds."""
    counts = np.ones(len(block), np.int64)
    if batches:
        counts[:] = [len(batches.get(position, " ")) for position in block.positions.tolist()]
    return counts


def unwrap(rows: Rows, batches: Batches) -> "Rows | UnwrappedRows":
    """Return the rows with each batch replaced by its messages."""
    return UnwrappedRows(rows, batches) if batches else rows


class UnwrappedRows:
    """The messages of a block, column by column; ``owners`` tells for each the row of its record."""

    def __init__(self, rows: Rows, batches: Batches) -> None:
        counts = count_messages(rows.block, batches)
        self._rows = rows
        self._firsts = np.cumsum(counts) - counts
        self.owners = np.repeat(np.arange(len(rows)), counts)
        is_batch = np.isin(rows.block.positions, list(batches))
        self._is_part = is_batch[self.owners]
        parts = [part for owner in rows.block.positions[is_batch].tolist() for part in batches[owner]]
        self._parts = _PartRows(rows, parts, self.owners[self._is_part])

    def column(self, name: str) -> pa.Array:
        """Return one column of the schema."""
        column = self._rows.column(name)
        if name in _PartRows.OWN_COLUMNS:
            both = pa.concat_arrays([column, self._parts.column(name)])
            chosen = self.owners.copy()
            chosen[self._is_part] = len(column) + np.arange(len(self._parts))
            return both.take(pa.array(chosen))
        column = column.take(pa.array(self.owners))
        if name != "queueOffset":
            return column
        places = np.arange(len(self.owners)) - self._firsts[self.owners]
        return pa.array(np.asarray(column) + places, pa.int64())


class _PartRows(Rows):
    """The messages that came in batches, as far as they differ from their records."""

    OWN_COLUMNS = frozenset({"msgId", "tags", "keys", "properties", "body", "flag"})

    def __init__(self, rows: Rows, parts: Sequence[BatchPart], owners: Longs) -> None:
        super().__init__(rows.block, {})
        self._owner_rows = rows
        self._parts = parts
        self._owners = owners

    def __len__(self) -> int:
        return len(self._parts)

    def column(self, name: str) -> pa.Array:
        if name == "flag":
            return pa.array([part.flag for part in self._parts], pa.int32())
        return super().column(name)

    @cached_property
    def properties(self) -> PropertyTable:
        return parse_property_texts(pa.array([part.property_text for part in self._parts], pa.binary()))

    @cached_property
    def offset_ids(self) -> pa.Array:
        return self._owner_rows.offset_ids.take(pa.array(self._owners))

    def bodies(self) -> pa.Array:
        return pa.array([part.body for part in self._parts], pa.binary())


AnyRows = Rows | UnwrappedRows
