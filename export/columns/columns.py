"""Decodes the records of a block into the columns of ``schema``.

Only what the wanted columns need is looked at: a reading of heads alone touches neither bodies nor properties. The
only work per record is done on bodies that are compressed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...common.compression import inflate
from ...common.errors import DecodeError
from ...common.properties import KEYS, TAGS, UNIQ_KEY
from ...common.sysflag import COMPRESSED
from ...store.commitlog.record_blocks import Block, Longs
from ..plan.segment import bodies, texts, topics
from .hosts import born_hosts, offset_ids, store_hosts
from .propertymap import PropertyTable, parse_property_texts, split_keys
from .schema import SYSTEM_FIELDS
from .systemcolumns import DEFAULT_DELAYS_MS, SystemColumns
from .timestamps import make_timestamps

MAX_BODY_BYTES: Final = 128 * 1024 * 1024

# Row -> inflated body, or None where it does not inflate.
Inflated = Mapping[int, bytes | None]


class Rows:
    """The messages of a block, column by column; what columns share is made once."""

    def __init__(
        self,
        block: Block,
        inflated: Inflated,
        topics_by_row: tuple[Longs, list[str]] | None = None,
        delays_ms: Sequence[int] = DEFAULT_DELAYS_MS,
    ) -> None:
        self.block = block
        self.inflated = inflated
        self.topics = topics(block) if topics_by_row is None else topics_by_row
        self._delays_ms = delays_ms

    def __len__(self) -> int:
        return len(self.block)

    @property
    def owners(self) -> Longs:
        """The row of the record of each message."""
        return np.arange(len(self))

    def column(self, name: str) -> pa.Array:
        """Return one column of the schema."""
        return _MAKERS[name](self)

    @cached_property
    def properties(self) -> PropertyTable:
        """The properties of the records."""
        block = self.block
        return parse_property_texts(texts(block.segment, block.properties_at, block.properties_bytes))

    @cached_property
    def system(self) -> SystemColumns:
        """What the messages wait for."""
        stored_at_ms = self.block.number("stored_at_ms")
        return SystemColumns(self.topics, lambda: self.properties, stored_at_ms, self._delays_ms)

    @cached_property
    def offset_ids(self) -> pa.Array:
        """The offset ids."""
        return offset_ids(self.block)

    def bodies(self) -> pa.Array:
        """Return the bodies, inflated."""
        if not self.inflated:
            return bodies(self.block)
        chosen = np.arange(len(self))
        chosen[list(self.inflated)] = len(self) + np.arange(len(self.inflated))
        inflated = pa.array(list(self.inflated.values()), pa.binary())
        return pa.concat_arrays([bodies(self.block), inflated]).take(pa.array(chosen))


def inflate_in_pieces(block: Block, *, max_bytes: int = MAX_BODY_BYTES) -> Iterator[tuple[Block, Inflated]]:
    """Yield the block with its inflated bodies, in pieces where these are more than one batch should hold."""
    inflated: dict[int, bytes | None] = {}
    first = size = 0
    flags = block.number("sys_flag")
    for row in np.flatnonzero(flags & COMPRESSED).tolist():
        body = _inflate(block, row, int(flags[row]))
        size += len(body or b"")
        if size > max_bytes and row > first:
            yield block.select(slice(first, row)), inflated
            first, size, inflated = row, len(body or b""), {}
        inflated[row - first] = body
    yield (block.select(slice(first, None)) if first else block), inflated


def _inflate(block: Block, row: int, sys_flag: int) -> bytes | None:
    start = int(block.body_at[row])
    try:
        return inflate(block.segment.view[start : start + int(block.body_bytes[row])], sys_flag)
    except DecodeError:
        return None


def _number(name: str, kind: pa.DataType) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.array(rows.block.number(name), kind)


def _system(name: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: rows.system.column(name)


def _topics(rows: Rows) -> pa.Array:
    codes, names = rows.topics
    return pa.array(names, pa.string()).take(pa.array(codes))


def _message_ids(rows: Rows) -> pa.Array:
    ids = rows.properties.column(UNIQ_KEY)
    return pc.coalesce(ids, rows.offset_ids) if ids.null_count else ids


def _timestamps(name: str) -> Callable[[Rows], pa.Array]:
    def make(rows: Rows) -> pa.Array:
        return make_timestamps(rows.block.number(name))

    return make


_MAKERS: Final[dict[str, Callable[[Rows], pa.Array]]] = {
    "topic": _topics,
    "queueId": _number("queue_id", pa.int32()),
    "queueOffset": _number("queue_offset", pa.int64()),
    "logOffset": _number("log_offset", pa.int64()),
    "msgId": _message_ids,
    "offsetMsgId": lambda rows: rows.offset_ids,
    "tags": lambda rows: rows.properties.column(TAGS),
    "keys": lambda rows: split_keys(rows.properties.column(KEYS)),
    "properties": lambda rows: rows.properties.to_map(),
    "body": lambda rows: rows.bodies(),
    "flag": _number("flag", pa.int32()),
    "sysFlag": _number("sys_flag", pa.int32()),
    "bornTimestamp": _timestamps("born_at_ms"),
    "storeTimestamp": _timestamps("stored_at_ms"),
    "bornHost": lambda rows: born_hosts(rows.block),
    "storeHost": lambda rows: store_hosts(rows.block),
    "reconsumeTimes": _number("reconsume_times", pa.int32()),
    "preparedTransactionOffset": _number("prepared_transaction_offset", pa.int64()),
    "bodyCrc": _number("body_crc", pa.int32()),
    **{name: _system(name) for name in SYSTEM_FIELDS},
}
