"""A segment of a commit log as bytes, numbers and Arrow memory over one read-only map, and records in it as columns.

Rules:

- The map lives as long as something refers to it; nothing is closed by hand, since slices may be in use anywhere.
- ``Block`` holds records whose lengths were checked, so that its gathers stay within the map. What it hands out are
  copies, never slices of the map: a block may be dropped while its columns travel on.
"""

import mmap
import os
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..common.record import MAGIC_V2
from ..common.sysflag import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Structs = npt.NDArray[np.void]

BORN_HOST_AT: Final = 48
STORE_HOST_AT: Final = 64
ADDED_BYTES: Final = 12
_HEAD_BYTES: Final = 88
LEAST_RECORD_BYTES: Final = _HEAD_BYTES + 3

_NAMES: Final = (
    ("size", ">i4"), ("magic", ">u4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
    ("queue_offset", ">i8"), ("log_offset", ">i8"), ("sys_flag", ">i4"), ("born_at_ms", ">i8"),
    ("born_host", "V8"), ("stored_at_ms", ">i8"), ("store_host", "V8"), ("reconsume_times", ">i4"),
    ("prepared_transaction_offset", ">i8"), ("body_bytes", ">i4"),
)  # fmt: skip


def _head(born_bytes: int, store_bytes: int) -> np.dtype[np.void]:
    wide = {"born_host": f"V{born_bytes}", "store_host": f"V{store_bytes}"}
    return np.dtype([(name, wide.get(name, kind)) for name, kind in _NAMES])


_HEADS: Final = {
    0: _head(8, 8),
    BORN_HOST_V6: _head(20, 8),
    STORE_HOST_V6: _head(8, 20),
    HOSTS_V6: _head(20, 20),
}
_NUMBERS: Final = [name for name, _ in _NAMES if not name.endswith("host")]


class Segment:
    """The first ``size`` bytes of a commit log file."""

    def __init__(self, path: str, base_offset: int, size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = size
        with open(path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        self.map.madvise(mmap.MADV_SEQUENTIAL)

    def __repr__(self) -> str:
        return f"<Segment {os.path.basename(self.path)} size={self.size}>"

    @cached_property
    def view(self) -> memoryview:
        """The bytes."""
        return memoryview(self.map)

    @cached_property
    def numbers(self) -> npt.NDArray[np.uint8]:
        """The bytes as numbers."""
        return np.frombuffer(self.map, np.uint8)

    @cached_property
    def memory(self) -> pa.Buffer:
        """The bytes as Arrow memory."""
        return pa.py_buffer(self.map)

    def gather(self, at: Longs, kind: str | np.dtype[Any]) -> npt.NDArray[Any]:
        """Return a copy of the item that starts at each position, which need not be aligned."""
        dtype = np.dtype(kind)
        window = np.ndarray((self.size - dtype.itemsize + 1,), f"V{dtype.itemsize}", self.map, 0, (1,))
        return window[at].view(dtype)


@dataclass(frozen=True)
class Block:
    """Records of a segment in log order: where their parts are, and their heads as a structured array.

    The hosts in ``heads`` are only those of 8 bytes.
    """

    segment: Segment
    positions: Longs
    heads: Structs
    body_at: Longs
    body_bytes: Longs
    topic_at: Longs
    topic_bytes: Longs
    properties_at: Longs
    properties_bytes: Longs

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def has_v6(self) -> bool:
        """Whether any record has a host of 20 bytes."""
        return bool((self.heads["sys_flag"] & HOSTS_V6).any())

    def number(self, name: str) -> npt.NDArray[Any]:
        """Return one number of the heads, in the byte order of the machine."""
        column = self.heads[name]
        return column.astype(column.dtype.newbyteorder("="))

    def select(self, rows: slice | Longs) -> "Block":
        """Return the block of these rows, which must be in order."""
        columns = [getattr(self, field.name)[rows] for field in fields(self)[1:]]
        return Block(self.segment, *columns)

    @cached_property
    def bodies(self) -> pa.Array:
        """The bodies as stored."""
        return self.texts(self.body_at, self.body_bytes)

    def texts(self, at: Longs, sizes: Longs) -> pa.Array:
        """Return the bytes at each position as a binary array.

        One array over the map is laid out in which pieces and the gaps between them alternate, and every second
        element of it is taken.
        """
        count = len(at)
        if not count:
            return pa.array([], pa.binary())
        first = int(at[0])
        offsets = np.empty(2 * count, np.int32)
        np.subtract(at, first, out=offsets[0::2], casting="unsafe")
        np.add(offsets[0::2], sizes, out=offsets[1::2], casting="unsafe")
        pieces = self.segment.memory.slice(first, int(offsets[-1]))
        both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pieces])
        return both.take(pa.array(np.arange(0, 2 * count, 2)))

    @cached_property
    def topics(self) -> tuple[Longs, list[str]]:
        """The number of each row's topic, and the topics by number."""
        coded = self.texts(self.topic_at, self.topic_bytes).dictionary_encode()
        names = [str(name, "utf-8", "replace") for name in coded.dictionary.to_pylist()]
        return np.asarray(coded.indices, np.int64), names


def measure(segment: Segment, positions: Longs, stop: int) -> Block:
    """Return the leading records whose lengths add up, which name their own position and end by ``stop``.

    ``positions`` hold a known magic each, and 91 bytes at least.
    """
    heads = segment.gather(positions, _HEADS[0])
    added = 0
    layouts = heads["sys_flag"] & HOSTS_V6
    if layouts.any():
        added = ADDED_BYTES * ((layouts & BORN_HOST_V6 != 0).astype(np.int64) + (layouts & STORE_HOST_V6 != 0))
        count = count_leading(positions + LEAST_RECORD_BYTES + added <= stop)
        positions, added = positions[:count], added[:count]
        heads = _gather_heads(segment, positions, layouts[:count])
    ends = positions + heads["size"]
    is_wide = heads["magic"] == MAGIC_V2
    body_bytes = heads["body_bytes"].astype(np.int64)
    body_at = positions + (_HEAD_BYTES + added)
    topic_at = body_at + body_bytes + 1 + is_wide
    good = (heads["log_offset"] == segment.base_offset + positions) & (ends <= stop)
    good &= (body_bytes >= 0) & (topic_at + 2 <= ends)
    topic_bytes = _lengths(segment, np.where(good, topic_at, positions + 2), is_wide)
    properties_at = topic_at + topic_bytes + 2
    good &= (topic_bytes >= 0) & (properties_at <= ends)
    properties_bytes = segment.gather(np.where(good, properties_at, positions + 2) - 2, ">i2").astype(np.int64)
    good &= (properties_bytes >= 0) & (properties_at + properties_bytes == ends)

    block = Block(
        segment, positions, heads, body_at, body_bytes, topic_at, topic_bytes, properties_at, properties_bytes
    )
    return block if good.all() else block.select(slice(count_leading(good)))


def _lengths(segment: Segment, ends: Longs, is_wide: Mask) -> Longs:
    """Return the signed lengths that end before the positions: 2 bytes where wide, else 1."""
    lengths = segment.numbers[ends - 1].view(np.int8).astype(np.int64)
    if is_wide.any():
        lengths[is_wide] = segment.gather(ends[is_wide] - 2, ">i2")
    return lengths


def _gather_heads(segment: Segment, positions: Longs, layouts: npt.NDArray[np.int32]) -> Structs:
    heads = np.empty(len(positions), _HEADS[0])
    for layout, kind in _HEADS.items():
        rows = layouts == layout
        if not rows.any():
            continue
        found = segment.gather(positions[rows], kind)
        for name in _NUMBERS:
            heads[name][rows] = found[name]
    return heads


def count_leading(good: Mask) -> int:
    """Return how many of the first are good."""
    return len(good) if good.all() else int(np.argmin(good))
