"""Reads splits of a log into record batches, and counts what it meets on the way.

    Split -> blocks of checked records -> selection -> columns -> inner batches -> tags and keys -> record batch

A reading whose chain of records breaks before the end of its split has met damage. After the rows before it were
handed out, it raises, or (``Reading`` with ``damages``) notes in the report where and why it stopped, and goes on with
the next store.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ...common.errors import StoreDamagedError
from ...common.walk import Verdict
from ...store.files.files import name_file
from ..columns.schema import pick_columns
from ..plan.plan import PlanOptions, plan_stores
from ..plan.selection import Selection
from ..plan.split import Skip, Split, SplitScan
from ..plan.tail import LogStop
from ..report.report import Report
from ..report.tally import SplitRead, StoreTally
from .blockread import BlockReader, ReadOptions


@dataclass(frozen=True)
class SplitReader:
    """Reads splits of one store; counts into ``tally`` where there is one, and tells ``advance`` the bytes read."""

    options: ReadOptions = field(default_factory=ReadOptions)
    tally: StoreTally | None = None
    advance: Callable[[int], object] | None = None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages in log order.

        Raises:
            StoreDamagedError: A bad record, or a file that was cut; the message names file, place and reason.
            StoreError: The file cannot be read.
        """
        return name_file(split.path, self._read(split))

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        started, position = time.perf_counter(), split.start
        scan = SplitScan(split, self.options.limits, self._note_skip if self.options.skips_damage else None)
        blocks = BlockReader(self.options, self.tally)
        try:
            for block in scan:
                yield from blocks.read(block)
                self._count_bytes(min(scan.position, split.stop) - position)
                position = max(position, min(scan.position, split.stop))
        finally:
            if self.tally is not None:
                self.tally.seconds += time.perf_counter() - started
                self.tally.crc_failures += scan.verdict is Verdict.BODY_CRC
        self._count_bytes(split.stop - position)
        if self.tally is not None:
            self.tally.blanks += scan.verdict is Verdict.BLANK
            self.tally.splits.append(SplitRead(split.path, split.start, split.stop, scan.began, scan.ended))

    def _note_skip(self, skip: Skip) -> None:
        if self.tally is not None:
            self.tally.skip(skip.path, skip.position, skip.size_bytes, skip.reason)
            if skip.queue is not None:
                self.tally.fail_crc(*skip.queue)

    def _count_bytes(self, size: int) -> None:
        if self.tally is not None:
            self.tally.log_bytes += size
        if self.advance is not None:
            self.advance(size)


@dataclass
class Reading:
    """One reading of planned splits, with the report that comes of it.

    Without ``damages`` (``Plan.damages``) it raises what it meets; with them, damage ends the reading of its store.
    ``ends`` (``Plan.ends``) are for the report.
    """

    splits: Sequence[Split]
    options: ReadOptions = field(default_factory=ReadOptions)
    advance: Callable[[int], object] | None = None
    damages: Mapping[str, StoreDamagedError] | None = None
    ends: Mapping[str, LogStop] = field(default_factory=dict[str, LogStop])
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        self.report = Report(checks_crc=self.options.limits.checks_crc)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages, store by store in log order; raises what ``SplitReader.read`` does."""
        for split in self.splits:
            if self.report.of_store(split.store).damage is None:
                yield from self._read_split(split)
        for store, damage in (self.damages or {}).items():
            tally = self.report.of_store(store)
            tally.damage = tally.damage or damage
        for store, end in self.ends.items():
            tally = self.report.of_store(store)
            tally.end = end if tally.damage is None else None

    def _read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        tally = StoreTally(split.store)
        try:
            yield from SplitReader(self.options, tally, self.advance).read(split)
        except StoreDamagedError as damage:
            if self.damages is None:
                raise
            tally.damage = damage
        finally:
            self.report.add([tally])

    @property
    def size_bytes(self) -> int:
        """Bytes of log that are read; what ``advance`` is told adds up to it."""
        return sum(len(split) for split in self.splits)


def count_stores(stores: Iterable[str], selection: Selection, segment_bytes: int | None = None) -> Report:
    """Return the report of a reading that keeps no rows; raises what ``plan_stores`` and ``SplitReader.read`` do."""
    options = ReadOptions(selection, pick_columns(["queueOffset"]))
    reading = Reading(plan_stores(stores, PlanOptions(segment_bytes)), options)
    for _ in reading:
        pass
    return reading.report
