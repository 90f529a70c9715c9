"""The records of a split that may be wanted, as queues or index files name them; made by ``pushdown``.

Rules:

- Picks are complete for their split, or the planner would not have made them. A record that they name may still be
  unwanted: the reader judges each.
- What a queue names must be what stands in the log: a record of that size, queue and queue offset. If it is not, or
  the queue's files are gone, the picks give up, and the split is walked.
- Where they name the larger part of a split, walking its chain of records is faster, and done.
- A tag is compared by its hash, where an entry has one (store.md §3.2, §3.7).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ...common.record import MAGIC_V1, MAGIC_V2
from ...store.commitlog.record_blocks import LEAST_RECORD_BYTES, Longs, Mask, Structs
from ...store.consumequeue.consume_queue import PRE_BLANK_SIZE
from ..plan.logfile import LogFile
from ..plan.queuefiles import QueueFiles, numbers
from ..plan.split import Split

_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">u4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
     ("log_offset", ">i8")]
)  # fmt: skip
_DENSE: Final = 0.5
_LAST_EXT_ADDRESS: Final = -2_147_483_649


@dataclass(frozen=True)
class QueueSlice:
    """The entries of a queue whose records begin in a split."""

    files: QueueFiles
    first: int
    stop: int


class _Named(NamedTuple):
    """What entries of a queue say: where records are in the file, their sizes and queue offsets."""

    queue_id: int
    positions: Longs
    sizes: Longs
    offsets: Longs

    def is_in(self, file: LogFile, split: Split) -> bool:
        """Tell whether it is so."""
        heads = _heads(file, split, self.positions)
        if heads is None:
            return False
        good = (heads["size"] == self.sizes) & (heads["queue_offset"] == self.offsets)
        return bool((good & (heads["queue_id"] == self.queue_id)).all())


@dataclass(frozen=True)
class QueuePicks:
    """What entries of queues name; with ``tags_codes``, only those of one of these tags."""

    slices: tuple[QueueSlice, ...]
    tags_codes: frozenset[int] = frozenset()

    @property
    def count(self) -> int:
        """How many entries there are."""
        return sum(one.stop - one.first for one in self.slices)

    def joined(self, other: "QueuePicks") -> "QueuePicks":
        """Return these picks and those of a later split, between which nothing is wanted."""
        slices = {one.files: one for one in self.slices}
        for one in other.slices:
            before = slices.get(one.files, one)
            slices[one.files] = QueueSlice(one.files, before.first, one.stop)
        return QueuePicks(tuple(slices.values()), self.tags_codes)

    def positions(self, split: Split) -> Longs | None:
        """Return where the records begin in the file (``split.Picks``)."""
        named = [found for one in self.slices if (found := self._name(one, split)) is not None]
        size_bytes = sum(int(one.sizes.sum()) for one in named)
        if len(named) < len(self.slices) or size_bytes > len(split) * _DENSE:
            return None
        file = split.open()
        if not all(one.is_in(file, split) for one in named):
            return None
        return np.sort(np.concatenate([one.positions for one in named])) if named else np.empty(0, np.int64)

    def _name(self, one: QueueSlice, split: Split) -> "_Named | None":
        entries = one.files.read(one.first, one.stop)
        if entries is None:
            return None
        positions, sizes = numbers(entries, "log_offset") - split.base_offset, numbers(entries, "size")
        if not (sizes > 0).all() or (sizes == PRE_BLANK_SIZE).any() or not (np.diff(positions) > 0).all():
            return None
        is_batch = one.files.is_batch
        offsets = numbers(entries, "first_offset") if is_batch else np.arange(one.first, one.stop)
        chosen = self._has_tag(entries) if self.tags_codes and not is_batch else slice(None)
        return _Named(one.files.queue_id, positions[chosen], sizes[chosen], offsets[chosen])

    def _has_tag(self, entries: Structs) -> Mask:
        codes = numbers(entries, "tags_code")
        return np.isin(codes, sorted(self.tags_codes)) | (codes <= _LAST_EXT_ADDRESS)


@dataclass(frozen=True)
class KeyPicks:
    """What index files name, by log offset."""

    log_offsets: tuple[int, ...]

    def positions(self, split: Split) -> Longs | None:
        """Return where the records begin in the file (``split.Picks``)."""
        positions = np.array(self.log_offsets, np.int64) - split.base_offset
        return positions if _heads(split.open(), split, positions) is not None else None


AnyPicks = QueuePicks | KeyPicks


def _heads(file: LogFile, split: Split, positions: Longs) -> Structs | None:
    """Return the heads of the records at these positions, ``None`` when there is none at one of them."""
    if not len(positions):
        return np.empty(0, _HEAD)
    if positions[0] < split.start or positions[-1] >= split.stop or positions[-1] + LEAST_RECORD_BYTES > split.end:
        return None
    heads = file.window(0, split.end).gather(positions, _HEAD)
    is_record = (heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2)
    is_record &= heads["log_offset"] == positions + split.base_offset
    return heads if is_record.all() else None
