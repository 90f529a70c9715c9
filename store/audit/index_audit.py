"""The audit of the index against the keys of the log's records.

Rules (store.md §4):

- Entries stand in the order of the log. An entry may stand there twice (Java repeats the last message's after a
  restart). Entries of tags may be missing: brokers before 5.4.0 wrote none.
- Keys are expected from the record behind that of the first entry on. What the end of the index lacks is a lag while a
  broker runs or after a kill.
- The index may be missing: it is an option, and the Java broker does not make it anew.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..commitlog.record_blocks import Block, Longs
from .audit_report import AuditReport, Finding, Hit
from .auditindexfile import IndexFileAudit, Rows, empty_rows
from .block_keys import BlockKeys, KeyEntries
from .log_audit import LogAudit

_KIND: Final = "index"
_EVERYTHING: Final = 1 << 62
_HASH_BITS: Final = 31
_MOST_SECONDS: Final = 2**31 - 1

Mask = npt.NDArray[np.bool_]


class _Expected(NamedTuple):
    keys: BlockKeys
    entries: KeyEntries
    log_offsets: Longs


class IndexAudit:
    """Reads the files in order, along with the records of the log; give it every block, then ``finish``."""

    def __init__(self, files: list[IndexFileAudit], report: AuditReport, log: LogAudit, log_start: int) -> None:
        self._files = files
        self._report = report
        self._log = log
        self._log_start = log_start
        self._window = empty_rows()
        self._chunks = self._read()
        self._is_read = False
        self._fill(log_start)
        self._first = int(self._window.log_offsets[0]) if len(self._window.order) else -1

    @property
    def is_there(self) -> bool:
        """Whether there are files."""
        return bool(self._files)

    def compare(self, block: Block, keys: BlockKeys) -> None:
        """Compare the keys of a block with the entries of its records."""
        if not self._files:
            return
        log_offsets = block.number("log_offset")
        low, high = int(log_offsets[0]), int(log_offsets[-1])
        found = self._take(high)
        entries = keys.key_entries()
        expected = _Expected(keys, entries, log_offsets[entries.rows])
        same = len(found.order) == len(entries.rows) and bool(
            (found.hashes == entries.hashes).all() and (found.log_offsets == expected.log_offsets).all()
        )
        owners = entries.rows
        if not same:
            is_inside = (found.log_offsets >= low) & (found.log_offsets <= high)
            pairs = _pairs(found, low)
            wanted = (expected.log_offsets - low << _HASH_BITS) + entries.hashes
            is_right = is_inside & np.isin(pairs, wanted)
            self._report_missing(block, expected, ~np.isin(wanted, pairs[is_inside]))
            self._report_foreign(found.select(~is_right))
            found = found.select(is_right)
            owners = np.searchsorted(log_offsets, found.log_offsets)
        self._check_times(found, block.number("stored_at_ms")[owners])
        self._report.counts["index entries"] += len(found.order)

    def finish(self) -> None:
        """Report the entries behind the last record, and what the files say of themselves."""
        rest = self._take(_EVERYTHING)
        is_behind = rest.log_offsets >= self._log.end
        if self._report.is_open:
            self._report.counts["index entries behind the end of the log"] += int(is_behind.sum())
            rest = rest.select(~is_behind)
        self._report_foreign(rest)

    def _read(self) -> Iterator[Rows]:
        order = -1
        for number, file in enumerate(self._files):
            for rows in file.chunks(number, order, is_last=number == len(self._files) - 1):
                yield rows
                order = int(rows.order[-1])

    def _fill(self, high: int) -> None:
        """Read on until the window ends behind the position."""
        while not self._is_read and (not len(self._window.order) or self._window.order[-1] <= high):
            rows = next(self._chunks, None)
            if rows is None:
                self._is_read = True
            else:
                self._window = self._window.join(rows)

    def _take(self, high: int) -> Rows:
        self._fill(high)
        count = int(np.searchsorted(self._window.order, high, "right"))
        taken, self._window = self._window.select(slice(count)), self._window.select(slice(count, None))
        return taken

    def _report_missing(self, block: Block, expected: _Expected, is_missing: Mask) -> None:
        is_missing &= expected.log_offsets > self._first
        self._report.counts["tags without index entry"] += int((is_missing & expected.entries.is_tag).sum())
        is_missing &= ~expected.entries.is_tag
        if self._report.is_open and self._is_read and not len(self._window.order):
            last = max((file.last_log_offset for file in self._files), default=-1)
            is_late = is_missing & (expected.log_offsets >= last)
            self._report.counts["keys not in the index yet"] += int(is_late.sum())
            is_missing &= ~is_late
        rows = np.unique(expected.entries.rows[is_missing])
        for row in rows[:100].tolist():
            position = int(block.positions[row])
            offset, queue_id = (int(block.heads[name][row]) for name in ("queue_offset", "queue_id"))
            hit = Hit(expected.keys.topic(row), queue_id, offset, expected.keys.unique_key(row))
            reason = "the index lacks keys of the record"
            log_offset = block.segment.base_offset + position
            self._report.add(Finding(_KIND, block.segment.path, reason, position, log_offset, [hit], 1))
        self._report.add_more(_KIND, len(rows) - 100)

    def _report_foreign(self, rows: Rows) -> None:
        """Report entries that no key of a record belongs to; what has expired or lost its record is not damage here."""
        is_expired = (rows.log_offsets < self._log_start) & (rows.log_offsets >= 0)
        self._report.counts["expired index entries"] += int(is_expired.sum())
        rows = rows.select(~is_expired)
        for at, log_offset in enumerate(rows.log_offsets.tolist()):
            if self._log.finding_at(log_offset) is None:
                self._report_row(rows, at, "no key of a record belongs to the entry")

    def _check_times(self, rows: Rows, stored_at: Longs) -> None:
        """Check the seconds; those of a file's first entry count from the end of the file before."""
        files = rows.places >> 32
        is_first = rows.places & 0xFFFFFFFF == 1
        begin = np.array([file.begin_at_ms for file in self._files], np.int64)[files]
        before = np.array([0, *(file.end_at_ms for file in self._files)], np.int64)[files]
        seconds = np.clip((stored_at - np.where(is_first, before, begin)) // 1000, 0, _MOST_SECONDS)
        is_known = np.where(is_first, before, begin) > 0
        for at in np.flatnonzero((seconds != rows.seconds) & is_known).tolist():
            found, right = int(rows.seconds[at]), int(seconds[at])
            self._report_row(rows, at, f"the entry's time is {found} s, the record's {right} s")

    def _report_row(self, rows: Rows, at: int, reason: str) -> None:
        place = int(rows.places[at])
        file = self._files[place >> 32]
        position = file.position(place & 0xFFFFFFFF)
        self._report.add(Finding(_KIND, file.path, reason, position, int(rows.log_offsets[at])))


def _pairs(rows: Rows, low: int) -> Longs:
    """Return record and hash as one number; rows outside the block get numbers that mean nothing."""
    return (np.clip(rows.log_offsets - low, 0, 1 << 31) << _HASH_BITS) + np.maximum(rows.hashes, 0)
