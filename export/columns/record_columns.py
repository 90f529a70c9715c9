"""Turns the records of a block into the columns of ``schema``: a row for each message, also of inner batches.

    block -> texts of all rows in one array -> columns
    body of an inner batch (sysFlag 0x80; store.md §2.6) -> one row each, queue offset = that of the record + its place

    stored host: address (4 or 16 bytes) + port (4)      text: 192.0.2.1:10911, [fd00::1]:10911
    offset id: stored host + log offset (8), as upper-case hex digits

Rules:

- Only what the wanted columns need is looked at: a reading of heads alone touches neither bodies nor properties. The
  only work per record is done on bodies that are compressed, and on inner batches, which are rare: only brokers with
  topics of ``queue.type`` BatchCQ write such records.
- Arrays are copies, never slices of the map.
- A host is formatted once per distinct value in a block. A column with IPv4 and IPv6 hosts (store.md §2.1) is put
  together from one of each.
- A message of an inner batch has its own body, flag and properties; all else is what the record says. A record whose
  body is no batch stays one row, with its body as it is (``MessageDecoder.decodeMessage``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...common.compression import inflate
from ...common.errors import DecodeError
from ...common.ids import decode_host
from ...common.message import BORN_HOST_V6, COMPRESSED, INNER_BATCH, STORE_HOST_V6
from ...common.properties import KEYS, TAGS, UNIQ_KEY
from ...common.record import BatchPart, decode_batch
from ...store.commitlog.record_blocks import ADDED_BYTES, BORN_HOST_AT, STORE_HOST_AT, Block, Longs, Mask, SegmentBytes
from .property_table import PropertyTable, parse_property_texts, split_keys
from .schema import SYSTEM_FIELDS, make_timestamps
from .system_columns import DEFAULT_DELAYS_MS, SystemColumns

MAX_BODY_BYTES: Final = 128 * 1024 * 1024

# Row -> inflated body, or None where it does not inflate.
Inflated = Mapping[int, bytes | None]


class RecordRows:
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
        self.topics = block_topics(block) if topics_by_row is None else topics_by_row
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
        return parse_property_texts(block_texts(block.segment, block.properties_at, block.properties_bytes))

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
            return block_bodies(self.block)
        chosen = np.arange(len(self))
        chosen[list(self.inflated)] = len(self) + np.arange(len(self.inflated))
        inflated = pa.array(list(self.inflated.values()), pa.binary())
        return pa.concat_arrays([block_bodies(self.block), inflated]).take(pa.array(chosen))


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


def _number(name: str, kind: pa.DataType) -> Callable[[RecordRows], pa.Array]:
    return lambda rows: pa.array(rows.block.number(name), kind)


def _system(name: str) -> Callable[[RecordRows], pa.Array]:
    return lambda rows: rows.system.column(name)


def _topics(rows: RecordRows) -> pa.Array:
    codes, names = rows.topics
    return pa.array(names, pa.string()).take(pa.array(codes))


def _message_ids(rows: RecordRows) -> pa.Array:
    ids = rows.properties.column(UNIQ_KEY)
    return pc.coalesce(ids, rows.offset_ids) if ids.null_count else ids


def _timestamps(name: str) -> Callable[[RecordRows], pa.Array]:
    def make(rows: RecordRows) -> pa.Array:
        return make_timestamps(rows.block.number(name))

    return make


_MAKERS: Final[dict[str, Callable[[RecordRows], pa.Array]]] = {
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


def block_texts(segment: SegmentBytes, at: Longs, sizes: Longs) -> pa.Array:
    """Return the bytes at each position, of which there is one at least, as a binary array.

    One array over the map is laid out in which pieces and the gaps between them alternate, and every second
    element of it is taken.
    """
    count = len(at)
    first = int(at[0])
    offsets = np.empty(2 * count + 1, np.int32)
    np.subtract(at, first, out=offsets[0:-1:2], casting="unsafe")
    np.add(offsets[0:-1:2], sizes, out=offsets[1::2], casting="unsafe")
    # Take reserves as much as the pieces and gaps have on average and doubles it where that is too little, so there is
    # a last gap that makes it enough: bodies of 1,000 bytes take 0.17 us instead of 0.23 us.
    offsets[-1] = min(max(int(offsets[-2]), 2 * int(sizes.sum())), segment.size - first)
    pieces = pa.py_buffer(segment.view).slice(first, int(offsets[-1]))
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pieces])
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def block_bodies(block: Block) -> pa.Array:
    """Return the bodies as stored."""
    return block_texts(block.segment, block.body_at, block.body_bytes)


def block_topics(block: Block) -> tuple[Longs, list[str]]:
    """Return the number of each row's topic, and the topics by number."""
    coded = block_texts(block.segment, block.topic_at, block.topic_bytes).dictionary_encode()
    names = [str(name, "utf-8", "replace") for name in coded.dictionary.to_pylist()]
    return np.asarray(coded.indices, np.int64), names


_HEX_DIGITS: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)


def born_hosts(block: Block) -> pa.Array:
    """Return the text of the host that each message was born on."""
    return _host_texts(block, "born_host", block.positions + BORN_HOST_AT, BORN_HOST_V6)


def store_hosts(block: Block) -> pa.Array:
    """Return the text of the host that stored each message."""
    return _host_texts(block, "store_host", _store_host_at(block), STORE_HOST_V6)


def offset_ids(block: Block) -> pa.Array:
    """Return the offset id of each record."""
    segment, at = block.segment, _store_host_at(block)
    offsets = _bytes(np.ascontiguousarray(block.heads["log_offset"]).view("V8"))

    def format_rows(rows: slice | Mask, size: int) -> pa.Array:
        hosts = segment.gather(at[rows], f"V{size}")
        return _format_hex(np.concatenate((_bytes(hosts), offsets[rows]), axis=1))

    return _by_kind(block.number("sys_flag") & STORE_HOST_V6 != 0, format_rows)


def _host_texts(block: Block, name: str, at: Longs, v6_flag: int) -> pa.Array:
    if not block.has_v6:
        return _format_hosts(np.ascontiguousarray(block.heads[name]))
    is_v6 = block.number("sys_flag") & v6_flag != 0
    return _by_kind(is_v6, lambda rows, size: _format_hosts(block.segment.gather(at[rows], f"V{size}")))


def _store_host_at(block: Block) -> Longs:
    return block.positions + STORE_HOST_AT + ADDED_BYTES * (block.number("sys_flag") & BORN_HOST_V6 != 0)


def _by_kind(is_v6: Mask, make: Callable[[slice | Mask, int], pa.Array]) -> pa.Array:
    """Make the column of a host of 8 bytes, of 20 bytes, or of both, put into the order of the rows."""
    if not is_v6.any():
        return make(slice(None), 8)
    if is_v6.all():
        return make(slice(None), 20)
    both = pa.concat_arrays([make(~is_v6, 8), make(is_v6, 20)])
    return both.take(pa.array(np.argsort(np.argsort(is_v6, kind="stable"), kind="stable")))


def _format_hosts(hosts: npt.NDArray[np.void]) -> pa.Array:
    kind = pa.binary(hosts.dtype.itemsize)
    coded = pa.Array.from_buffers(kind, len(hosts), [None, pa.py_buffer(hosts)]).dictionary_encode()
    texts = pa.array([_format_host(host) for host in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


@lru_cache(maxsize=65_536)
def _format_host(host: bytes) -> str:
    address, port = decode_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _format_hex(rows: npt.NDArray[np.uint8]) -> pa.Array:
    count, size = rows.shape
    digits = _HEX_DIGITS.take(rows)
    ends = np.arange(0, 2 * size * count + 1, 2 * size, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(digits)])


def _bytes(items: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    return items.view(np.uint8).reshape(len(items), items.dtype.itemsize)


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


def unwrap(rows: RecordRows, batches: Batches) -> "RecordRows | UnwrappedRows":
    """Return the rows with each batch replaced by its messages."""
    return UnwrappedRows(rows, batches) if batches else rows


class UnwrappedRows:
    """The messages of a block, column by column; ``owners`` tells for each the row of its record."""

    def __init__(self, rows: RecordRows, batches: Batches) -> None:
        counts = count_messages(rows.block, batches)
        self._rows = rows
        self._firsts = np.cumsum(counts) - counts
        self.owners = np.repeat(np.arange(len(rows)), counts)
        is_batch = np.isin(rows.block.positions, list(batches))
        self._is_part = is_batch[self.owners]
        parts = [part for owner in rows.block.positions[is_batch].tolist() for part in batches[owner]]
        self._parts = _BatchRows(rows, parts, self.owners[self._is_part])

    def column(self, name: str) -> pa.Array:
        """Return one column of the schema."""
        column = self._rows.column(name)
        if name in _BatchRows.OWN_COLUMNS:
            both = pa.concat_arrays([column, self._parts.column(name)])
            chosen = self.owners.copy()
            chosen[self._is_part] = len(column) + np.arange(len(self._parts))
            return both.take(pa.array(chosen))
        column = column.take(pa.array(self.owners))
        if name != "queueOffset":
            return column
        places = np.arange(len(self.owners)) - self._firsts[self.owners]
        return pa.array(np.asarray(column) + places, pa.int64())


class _BatchRows(RecordRows):
    """The messages that came in batches, as far as they differ from their records."""

    OWN_COLUMNS = frozenset({"msgId", "tags", "keys", "properties", "body", "flag"})

    def __init__(self, rows: RecordRows, parts: Sequence[BatchPart], owners: Longs) -> None:
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


AnyRows = RecordRows | UnwrappedRows
