"""A part of a commit log file that one task reads, and the walk over its records.

    file     | record | record | record | record | … | blank
    splits   [            )[            )[ …               )     each record belongs to the split that it starts in

Rules:

- A split that begins inside a file finds its first record by itself (``record_walk``). All splits of a file agree on
  it, so each record is in exactly one of them, however large they are; ``began`` and ``ended`` let a report check it.
- The chain of records must lead to the end of the split. Where it does not, there is damage: an error that names file,
  position and reason, or, where a reading skips damage, a gap that is told to ``on_skip``.
- With ``candidates``, only the records that they name are looked at, and the chain is not walked; unless queues turn
  out to say something else than the log.
- A split travels to the task that reads it. It opens its file there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol

from ...common.errors import StoreDamagedError
from ...common.message import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from ...common.record import Record, Verdict
from ...store.commitlog.record_blocks import (
    LEAST_RECORD_BYTES,
    Block,
    Longs,
    ScanLimits,
    count_leading,
    has_body_crc,
    measure,
)
from .filesystems import Storage, is_url
from .log_file import LogFile, RemoteLogFile, check_at, map_log_file, record_at, size_at
from .record_walk import RecordWalk, find_first_record, find_next_sound


class Skip(NamedTuple):
    """Bytes that are no sound records; ``queue`` is that of a record whose body has not its checksum."""

    path: str
    position: int
    size_bytes: int
    reason: str
    queue: tuple[str, int] | None


class Candidates(Protocol):
    """Knows the records of a split that may be wanted, from queues and indexes."""

    def positions(self, split: "Split") -> Longs | None:
        """Return where they begin in the file, in order; ``None`` if that cannot be told after all."""
        ...


@dataclass(frozen=True)
class Split:
    """The records that start in ``[start, stop)`` of one file, of which the first ``end`` bytes are the log.

    ``ends_in_blank`` says so of the file, ``queues`` is the directory of queues that help to find the first record.
    """

    store: str
    path: str
    base_offset: int
    start: int
    stop: int
    end: int
    ends_in_blank: bool
    queues: str | None = None
    candidates: Candidates | None = None
    storage: Storage = field(default_factory=Storage)

    def __len__(self) -> int:
        return self.stop - self.start

    def open(self) -> LogFile:
        """Open the file.

        Raises:
            StoreError: It is gone or cannot be read.
        """
        if is_url(self.path):
            return RemoteLogFile(self.path, self.base_offset, self.end, self.storage)
        return map_log_file(self.path, self.base_offset, self.end)


def cut_file(whole: Split, split_bytes: int) -> list[Split]:
    """Return a split of a whole file in equal parts that are no larger than ``split_bytes``."""
    count = -(-len(whole) // split_bytes)
    bounds = [whole.start + len(whole) * number // count for number in range(count + 1)]
    return [replace(whole, start=low, stop=high) for low, high in pairwise(bounds)]


class SplitWalk:
    """Iterates the records of a split in blocks; ``position`` tells how far it has come.

    What belongs to the split begins at ``began`` (``None`` where nothing does, or with candidates). Afterwards
    ``ended`` is where its last record ends, and ``verdict`` what ended the walk (``None``: the start of the next
    split).
    """

    def __init__(self, split: Split, limits: ScanLimits, on_skip: Callable[[Skip], object] | None = None) -> None:
        self.split = split
        self.position = split.start
        self.began: int | None = None
        self.ended: int | None = None
        self.verdict: Verdict | None = None
        self._limits = limits
        self._on_skip = on_skip

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks of good records.

        Raises:
            StoreDamagedError: There is none where one must be, and nobody wants to skip that.
            StoreError: The file cannot be read.
        """
        file = self.split.open()
        positions = self.split.candidates.positions(self.split) if self.split.candidates is not None else None
        yield from self._walk_log(file) if positions is None else self._read_candidates(file, positions)
        self.position = self.split.stop

    def _walk_log(self, file: LogFile) -> Iterator[Block]:
        split = self.split
        self.position = find_first_record(file, split.start, split.end, split.queues)
        self.began = self.position if self.position < split.stop else None
        while self.position < split.stop:
            chain = RecordWalk(file, self.position, split.stop, self._limits, split.end)
            for block in chain:
                self.position = self.ended = chain.position
                yield block
            self.position, self.verdict = chain.position, chain.verdict
            damage = self._judge(chain)
            if damage is None:
                return
            self._skip(file, damage, chain.verdict or Verdict.ZEROS)

    def _judge(self, chain: RecordWalk) -> StoreDamagedError | None:
        if chain.verdict is Verdict.BLANK and self.split.ends_in_blank:
            return None
        if chain.verdict is None and (chain.position < self.split.end or not self.split.ends_in_blank):
            return None
        return self._damage(chain.position, chain.verdict)

    def _damage(self, position: int, verdict: Verdict | None) -> StoreDamagedError:
        reason = "the file does not end in a blank" if verdict is None else verdict.reason
        path = self.split.path
        return StoreDamagedError(f"{path} at position {position}: {reason}", path=path, position=position)

    def _skip(self, file: LogFile, damage: StoreDamagedError, verdict: Verdict) -> None:
        """Go on behind damage.

        Raises:
            StoreDamagedError: Nobody wants to.
        """
        if self._on_skip is None:
            raise damage
        position, end = damage.position, self.split.end
        behind = find_next_sound(file, position, end, verdict) if position < end else None
        self.position = self.ended = end if behind is None else behind
        self.verdict = None
        queue = _queue_of(file, position) if verdict is Verdict.BODY_CRC else None
        self._on_skip(Skip(self.split.path, position, self.position - position, verdict.reason, queue))

    def _read_candidates(self, file: LogFile, positions: Longs) -> Iterator[Block]:
        left = positions
        while len(left):
            window = file.window(int(left[0]), self._reach(file, int(left[0])))
            shift = window.base_offset - file.base_offset
            room = min(window.size, self.split.end - shift)
            many = left[: self._limits.block_records] - shift
            near = many[(many + LEAST_RECORD_BYTES <= room) & (many < many[0] + self._limits.block_bytes)]
            block = measure(window, near, room) if len(near) else None
            if block is not None and self._limits.checks_crc:
                block = block.select(slice(count_leading(has_body_crc(block))))
            if block is not None and len(block):
                yield block
                left = left[len(block) :]
                self.position = int(left[0]) if len(left) else self.split.stop
            else:
                self._pass_bad(file, int(left[0]))
                left = left[1:]

    def _reach(self, file: LogFile, position: int) -> int:
        left = self.split.end - position
        return min(left, max(0, size_at(file.window(position, min(left, LEAST_RECORD_BYTES)), file, position)))

    def _pass_bad(self, file: LogFile, position: int) -> None:
        found = check_at(file, position, checks_crc=self._limits.checks_crc, limit=self.split.end)
        verdict = Verdict.TORN if found > 0 else Verdict(found)
        if self._on_skip is None:
            self.verdict = verdict
            raise self._damage(position, verdict)
        queue = _queue_of(file, position) if verdict is Verdict.BODY_CRC else None
        self._on_skip(Skip(self.split.path, position, self._reach(file, position), verdict.reason, queue))


def _queue_of(file: LogFile, position: int) -> tuple[str, int]:
    """Return the queue of a record whose body alone is bad."""
    record = record_at(file, position)
    return record.topic, record.queue_id


class PlannedLog:
    """The splits of a store in log order, and the records at places of its log."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self.splits = splits
        self.start = splits[0].base_offset + splits[0].start
        self.end = splits[-1].base_offset + splits[-1].stop
        self._by_base = {split.base_offset: split for split in splits}
        self._bases = sorted(self._by_base)
        self._open = lru_cache(maxsize=8)(self._open_file)

    def record_at(self, log_offset: int) -> Record | None:
        """Return the record that begins at a place of the log, ``None`` when there is none."""
        base = next((base for base in reversed(self._bases) if base <= log_offset), None)
        if base is None or log_offset - base >= self._by_base[base].end:
            return None
        return read_record(self._open(base), log_offset - base)

    def first_records(self) -> Iterator[tuple[int, Record | None]]:
        """Yield the base offset of each file, and the record that it begins with."""
        for base in self._bases:
            yield base, self.record_at(base)

    def _open_file(self, base: int) -> LogFile:
        return self._by_base[base].open()


def read_record(file: LogFile, position: int) -> Record | None:
    """Return the sound record at a position of a file, its body unchecked."""
    return record_at(file, position) if check_at(file, position, checks_crc=False) > 0 else None


def is_in_queue(record: Record) -> bool:
    """Tell whether a record has an entry in its queue."""
    return record.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
