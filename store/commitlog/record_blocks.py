"""Many records of the log at once, with numpy: found by their lengths, checked, and handed out as columns.

Rules of a ``Block`` (store.md §2.1, §7.2):

- ``Block`` holds records whose lengths were checked, so that its gathers stay within the file. What it hands out are
  copies, never slices of the map: a block may be dropped while its columns travel on.
- The strictness is that of ``common.walk.check_record``, record for record.

A ``BlockScan`` goes along the chain of records of one file, a ``BlockWalk`` over the files of a log, to the end that
``log_end`` would find record by record:

    TOTALSIZE -> the next record is TOTALSIZE further -> … -> a blank, zeros, or ``stop``

Rules of the scan (store.md §7.2, §7.6):

- Records are hopped over one by one by their sizes, or many at once where equal sizes follow each other. All else
  is looked at for a whole block at once, as strictly as ``common.walk.check_record`` does, which also names the reason
  where the chain breaks. The only other loop over records works out the checksums of the bodies.
- A block is cut at the first record that does not pass; the walk ends there.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...common.message import BORN_HOST_V6, HOSTS_V6, STORE_HOST_V6
from ...common.record import BLANK_BYTES, MAGIC_V1, MAGIC_V2, Verdict, check_record, has_sealed_crc
from ..files.files import check_map
from .log_end import LogWalk

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Structs = npt.NDArray[np.void]

BORN_HOST_AT: Final = 48
STORE_HOST_AT: Final = 64
ADDED_BYTES: Final = 12
_HEAD_BYTES: Final = 88
LEAST_RECORD_BYTES: Final = _HEAD_BYTES + 3
_LEAST_EQUAL: Final = 64
_MOST_COPIED: Final = 512

_NAMES: Final = (
    ("size", ">i4"), ("magic", ">u4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
    ("queue_offset", ">i8"), ("log_offset", ">i8"), ("sys_flag", ">i4"), ("born_at_ms", ">i8"),
    ("born_host", "V8"), ("stored_at_ms", ">i8"), ("store_host", "V8"), ("reconsume_times", ">i4"),
    ("prepared_transaction_offset", ">i8"), ("body_bytes", ">i4"),
)  # fmt: skip

_SIZE: Final = struct.Struct(">i")
_LEAST_SINGLES: Final = 64
_MOST_SINGLES: Final = 2_048
_BLOCK_RECORDS = 16384
_BLOCK_BYTES = 16 * 1024 * 1024


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


class SegmentBytes:
    """The first ``size`` bytes of a commit log file, as bytes and as numbers."""

    def __init__(self, path: str, base_offset: int, view: memoryview) -> None:
        self.path = path
        self.base_offset = base_offset
        self.size = len(view)
        self.view = view

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {os.path.basename(self.path)} size={self.size}>"

    @cached_property
    def numbers(self) -> npt.NDArray[np.uint8]:
        """The bytes as numbers."""
        return np.frombuffer(self.view, np.uint8)

    def gather(self, at: Longs, kind: str | np.dtype[Any]) -> npt.NDArray[Any]:
        """Return a copy of the item that starts at each position, which need not be aligned."""
        dtype = np.dtype(kind)
        is_number = dtype.names is None
        whole = dtype if is_number else f"V{dtype.itemsize}"
        found = np.ndarray((self.size - dtype.itemsize + 1,), whole, self.view, 0, (1,))[at]
        return found if is_number else found.view(dtype)


@dataclass(frozen=True)
class Block:
    """Records of a segment in log order: where their parts are, and their heads as a structured array.

    The hosts in ``heads`` are only those of 8 bytes.
    """

    segment: SegmentBytes
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

    @property
    def end(self) -> int:
        """The log offset behind the last record."""
        return self.segment.base_offset + int(self.positions[-1]) + int(self.heads["size"][-1])

    def rows_before(self, log_offset: int) -> "Block":
        """Return the records that begin before a position of the log."""
        count = int(np.searchsorted(self.positions, log_offset - self.segment.base_offset))
        return self if count == len(self) else self.select(slice(count))

    def rows_behind(self, log_offset: int) -> "Block":
        """Return the records that begin behind a position of the log."""
        first = int(np.searchsorted(self.positions, log_offset - self.segment.base_offset, side="right"))
        return self.select(slice(first, None)) if first else self

    def select(self, rows: slice | Longs) -> "Block":
        """Return the block of these rows, which must be in order."""
        columns = [getattr(self, field.name)[rows] for field in fields(self)[1:]]
        return Block(self.segment, *columns)


def measure(segment: SegmentBytes, positions: Longs, stop: int, *, is_log: bool = True) -> Block:
    """Return the leading records that are as ``check_record`` wants them, but for the CRC, and end by ``stop``.

    ``LEAST_RECORD_BYTES`` follow each position. Without ``is_log`` these are copies of records, one after the other.
    """
    heads = segment.gather(positions, _HEADS[0])
    added = 0
    layouts = heads["sys_flag"] & HOSTS_V6
    if layouts.any():
        added = ADDED_BYTES * ((layouts & BORN_HOST_V6 != 0).astype(np.int64) + (layouts & STORE_HOST_V6 != 0))
        count = count_leading(positions + LEAST_RECORD_BYTES + added <= stop)
        positions, added = positions[:count], added[:count]
        heads = _gather_heads(segment, positions, layouts[:count])
    ends = positions + heads["size"].astype(np.int64)
    magics = heads["magic"].astype(np.uint32)
    is_wide = magics == MAGIC_V2
    body_bytes = heads["body_bytes"].astype(np.int64)
    body_at = positions + (_HEAD_BYTES + added)
    topic_at = body_at + body_bytes + (1 + is_wide)
    good = ends <= stop
    if is_log:
        good &= heads["log_offset"].astype(np.int64) == segment.base_offset + positions
    good &= heads["queue_offset"].astype(np.int64) >= 0
    good &= is_wide | (magics == MAGIC_V1)
    good &= (body_bytes >= 0) & (topic_at + 2 <= ends)
    topic_bytes = _lengths(segment, _where(good, topic_at, positions), is_wide)
    properties_at = topic_at + (topic_bytes + 2)
    good &= (topic_bytes >= 0) & (properties_at <= ends)
    properties_bytes = segment.gather(_where(good, properties_at, positions) - 2, ">i2").astype(np.int64)
    good &= (properties_bytes >= 0) & (properties_at + properties_bytes == ends)

    block = Block(
        segment, positions, heads, body_at, body_bytes, topic_at, topic_bytes, properties_at, properties_bytes
    )
    return block if good.all() else block.select(slice(count_leading(good)))


def _where(good: Mask, at: Longs, positions: Longs) -> Longs:
    """Return the places that are good, and such as can be read instead of the others."""
    return at if good.all() else np.where(good, at, positions + 2)


def _lengths(segment: SegmentBytes, ends: Longs, is_wide: Mask) -> Longs:
    """Return the signed lengths that end before the positions: 2 bytes where wide, else 1."""
    lengths = segment.numbers[ends - 1].view(np.int8).astype(np.int64)
    if is_wide.any():
        lengths[is_wide] = segment.gather(ends[is_wide] - 2, ">i2")
    return lengths


def _gather_heads(segment: SegmentBytes, positions: Longs, layouts: npt.NDArray[np.int32]) -> Structs:
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


def has_body_crc(block: Block) -> Mask:
    """Tell for each record whether its stored body has its checksum; an empty body needs none, as in Java."""
    sums = np.zeros(len(block), np.uint32)
    sizes, counts = np.unique(block.body_bytes, return_counts=True)
    is_left = np.ones(len(block), bool)
    for size in sizes[(counts >= _LEAST_EQUAL) & (sizes > 0) & (sizes <= _MOST_COPIED)].tolist():
        rows = block.body_bytes == size
        bodies = block.segment.gather(block.body_at[rows], f"V{size}").tolist()  # cheaper than a slice for each
        sums[rows] = list(map(zlib.crc32, bodies))
        is_left &= ~rows
    view, crc32 = block.segment.view, zlib.crc32
    starts, ends = block.body_at[is_left].tolist(), (block.body_at + block.body_bytes)[is_left].tolist()
    sums[is_left] = [crc32(view[start:end]) for start, end in zip(starts, ends, strict=True)]
    return (sums & 0x7FFFFFFF == block.number("body_crc")) | (block.body_bytes == 0)


@dataclass(frozen=True)
class ScanLimits:
    """What is checked, and how large blocks become (a block holds one record at least).

    ``reserved_bytes`` must follow a record in its file: ``BLANK_BYTES`` where the files are known to be whole.
    """

    checks_crc: bool = True
    block_records: int = 16_384
    block_bytes: int = 16 * 1024 * 1024
    reserved_bytes: int = 0


class BlockScan:
    """The records that start from ``position`` to ``stop``; iterating moves ``position``.

    They end by ``end``, which is ``stop`` unless it is given. Afterwards ``verdict`` tells what stands at
    ``position``; ``None`` means that ``stop`` was reached.
    """

    def __init__(
        self, segment: SegmentBytes, position: int, stop: int, limits: ScanLimits, end: int | None = None
    ) -> None:
        self.segment = segment
        self.position = position
        self.stop = stop
        self.end = stop if end is None else end
        self.limits = limits
        self.verdict: Verdict | None = None

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of good records; a block is yielded before what follows it is judged.

        Raises:
            StoreDamagedError: The file is a map, and somebody has cut it.
        """
        while self.verdict is None and self.position < self.stop:
            check_map(self.segment.view)
            last = min(self.stop - 1, self.end - LEAST_RECORD_BYTES, self.position + self.limits.block_bytes)
            positions, end = hop_records(self.segment, self.position, last, self.limits.block_records)
            block = self._checked(positions)
            if block is None:
                self.verdict = self._judge()
                return
            self.position = end if len(block) == len(positions) else int(positions[len(block)])
            yield block

    def _checked(self, positions: Longs) -> Block | None:
        if not len(positions):
            return None
        block = measure(self.segment, positions, min(self.end, self.segment.size - self.limits.reserved_bytes))
        if self.limits.checks_crc and not (good := has_body_crc(block)).all():
            block = block.select(slice(count_leading(good)))
        return block if len(block) else None

    def _judge(self) -> Verdict:
        log_offset = self.segment.base_offset + self.position
        checks_crc, reserved_bytes = self.limits.checks_crc, self.limits.reserved_bytes
        view = self.segment.view[: self.end]
        found = check_record(view, self.position, log_offset, checks_crc=checks_crc, reserved_bytes=reserved_bytes)
        # A size means that a writer completed the record just now; it was not complete when it was needed.
        return Verdict.TORN if found > 0 else Verdict(found)


def hop_records(segment: SegmentBytes, position: int, last: int, left: int) -> tuple[Longs, int]:
    """Return where ``left`` records at most may start, up to ``last``, and where the one after them would."""
    parts: list[Longs] = []
    singles = _LEAST_SINGLES
    while left and position <= last:
        run, position = _hop_evenly(segment, position, last, left)
        left -= len(run)
        singles = _LEAST_SINGLES if len(run) >= _LEAST_SINGLES else min(2 * singles, _MOST_SINGLES)
        found, position = _hop_singly(segment.view, position, last, min(left, singles))
        left -= len(found)
        parts += (run, found)
        if not len(found):
            break
    return np.concatenate(parts) if parts else np.array([], np.int64), position


def _hop_evenly(segment: SegmentBytes, position: int, last: int, most: int) -> tuple[Longs, int]:
    """Hop over records of one size, which are looked at together: twice as many as long as all of them have it."""
    size: int = _SIZE.unpack_from(segment.view, position)[0]
    as_stored = np.array(size, ">i4").view("=i4")
    parts: list[Longs] = []
    count = _LEAST_SINGLES
    while size >= LEAST_RECORD_BYTES and position <= last and most:
        count = min(count, most, (last - position) // size + 1)
        tried = np.arange(position, position + size * count, size)
        even = tried[: count_leading(segment.gather(tried, "=i4") == as_stored)]
        parts.append(even)
        position += size * len(even)
        most -= len(even)
        if len(even) < count:
            break
        count *= 2
    return np.concatenate(parts) if parts else np.array([], np.int64), position


def _hop_singly(view: memoryview, position: int, last: int, most: int) -> tuple[Longs, int]:
    read = _SIZE.unpack_from
    found: list[int] = []
    append = found.append
    for _ in repeat(None, most):
        if position > last:
            break
        (size,) = read(view, position)
        if size < LEAST_RECORD_BYTES:
            break
        append(position)
        position += size
    return np.array(found, np.int64), position


class BlockWalk(LogWalk):
    """Iterates blocks of records; ``stop`` is set when the iteration has ended."""

    def blocks_from(self, log_offset: int) -> Iterator[Block]:
        """Walk from a position that a record or a file begins at."""
        self.stop = None
        limits = ScanLimits(self._checks_crc, _BLOCK_RECORDS, _BLOCK_BYTES, reserved_bytes=BLANK_BYTES)
        for number, segment in enumerate(self._segments):
            if log_offset >= segment.base_offset + segment.size:
                continue
            whole = SegmentBytes(segment.path, segment.base_offset, self._view(segment))
            scan = BlockScan(whole, max(0, log_offset - segment.base_offset), whole.size, limits)
            for block in scan:
                yield from self._whole_records(number, block)
                if self.stop is not None:
                    return
            if self._ends(number, scan.position, Verdict.BLANK if scan.verdict is None else scan.verdict):
                return
        self._end_full()

    def _whole_records(self, number: int, block: Block) -> Iterator[Block]:
        """Yield the block up to a record without its seal, or one that was cut short."""
        if self._demands_seals and (count := count_leading(_has_seal(block))) < len(block):
            self._ends(number, int(block.positions[count]), Verdict.SEAL)
            block = block.select(slice(count))
        elif not block.segment.view[block.end - block.segment.base_offset - 1] and self._is_cut_short(
            number, int(block.positions[-1]), int(block.heads["size"][-1])
        ):
            block = block.select(slice(len(block) - 1))
        if len(block):
            yield block


def _has_seal(block: Block) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    view = block.segment.view
    ends = (block.properties_at + block.properties_bytes).tolist()
    sealed = [has_sealed_crc(view[start:end]) for start, end in zip(block.positions.tolist(), ends, strict=True)]
    return np.array(sealed, bool)
