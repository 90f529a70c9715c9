"""A part of a commit log file that one task reads, and the walk over its records.

    file     | record | record | record | record | … | blank
    splits   [            )[            )[ …               )     each record belongs to the split that it starts in

Rules:

- A split that begins inside a file finds its first record by itself (``seek``). All splits of a file agree on it, so
  each record is in exactly one of them, however large they are; ``began`` and ``ended`` let a report check that.
- The chain of records must lead to the end of the split. Where it does not, there is damage: an error that names file,
  position and reason, or, where a reading skips damage, a gap that is told to ``on_skip``.
- With ``picks``, only the records that they name are looked at, and the chain is not walked; unless queues turn out
  to say something else than the log.
- A split travels to the task that reads it. It opens its file there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

from ...common.errors import StoreDamagedError
from ...common.record import decode_record
from ...common.walk import Verdict
from ...store.commitlog.record_blocks import (
    LEAST_RECORD_BYTES,
    Block,
    Longs,
    ScanLimits,
    count_leading,
    has_body_crc,
    measure,
)
from .chain import Chain
from .logfile import LogFile, check_at, size_at
from .places import Storage, is_url
from .remote import RemoteFile
from .seek import find_first
from .segment import map_file
from .skip import find_next


class Skip(NamedTuple):
    """Bytes that are no sound records; ``queue`` is that of a record whose body has not its checksum."""

    path: str
    position: int
    size_bytes: int
    reason: str
    queue: tuple[str, int] | None = None


class Picks(Protocol):
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
    picks: Picks | None = None
    storage: Storage = field(default_factory=Storage)

    def __len__(self) -> int:
        return self.stop - self.start

    def open(self) -> LogFile:
        """Open the file.

        Raises:
            StoreError: It is gone or cannot be read.
        """
        if is_url(self.path):
            return RemoteFile(self.path, self.base_offset, self.end, self.storage)
        return map_file(self.path, self.base_offset, self.end)


def cut_file(whole: Split, split_bytes: int) -> list[Split]:
    """Return a split of a whole file in equal parts that are no larger than ``split_bytes``."""
    count = -(-len(whole) // split_bytes)
    bounds = [whole.start + len(whole) * number // count for number in range(count + 1)]
    return [replace(whole, start=low, stop=high) for low, high in pairwise(bounds)]


class SplitScan:
    """Iterates the records of a split in blocks; ``position`` tells how far it has come.

    What belongs to the split begins at ``began`` (``None`` where nothing does, or with picks). Afterwards ``ended`` is
    where its last record ends, and ``verdict`` what ended the walk (``None``: the start of the next split).
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
        positions = self.split.picks.positions(self.split) if self.split.picks is not None else None
        yield from self._walked(file) if positions is None else self._picked(file, positions)
        self.position = self.split.stop

    def _walked(self, file: LogFile) -> Iterator[Block]:
        split = self.split
        self.position = find_first(file, split.start, split.end, split.queues)
        self.began = self.position if self.position < split.stop else None
        while self.position < split.stop:
            chain = Chain(file, self.position, split.stop, self._limits, split.end)
            for block in chain:
                self.position = self.ended = chain.position
                yield block
            self.position, self.verdict = chain.position, chain.verdict
            damage = self._judge(chain)
            if damage is None:
                return
            self._skip(file, damage, chain.verdict or Verdict.ZEROS)

    def _judge(self, chain: Chain) -> StoreDamagedError | None:
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
        behind = find_next(file, position, end, verdict) if position < end else None
        self.position = self.ended = end if behind is None else behind
        self.verdict = None
        queue = _queue_of(file, position) if verdict is Verdict.BODY_CRC else None
        self._on_skip(Skip(self.split.path, position, self.position - position, verdict.reason, queue))

    def _picked(self, file: LogFile, positions: Longs) -> Iterator[Block]:
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
    window = file.window(position, size_at(file.window(position), file, position))
    record = decode_record(window.view, position - (window.base_offset - file.base_offset))
    return record.topic, record.queue_id
