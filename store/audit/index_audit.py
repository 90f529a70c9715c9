"""The audit of the index: its files against themselves, and their entries against the keys of the log's records.

Rules (store.md §4):

- Entries stand in the order of the log. An entry may stand there twice (Java repeats the last message's after a
  restart). Entries of tags may be missing: brokers before 5.4.0 wrote none.
- Keys are expected from the record behind that of the first entry on. What the end of the index lacks is a lag while a
  broker runs or after a kill.
- The index may be missing: it is an option, and the Java broker does not make it anew.

Rules of one file: header, entries, chains and slots (store.md §4.1, §4.3).

- What stands before an entry in its slot follows from the hashes before it; so do the slots of the file.
- The slots of the last file are written when it is full and at a clean stop, and are not judged before.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common.errors import ConfigError
from ..commitlog.record_blocks import Block, Longs
from ..files.store_config import ENTRIES_KEY, SLOTS_KEY, StoreConfig
from ..index.index_build import chain
from ..index.index_file import HEADER, INDEX_ENTRY
from .audit_report import AuditReport, Finding, Hit, ReadFiles
from .block_keys import BlockKeys, KeyEntries
from .log_audit import LogAudit

_KIND: Final = "index"
_EVERYTHING: Final = int(np.iinfo(np.int64).max)
_HASH_BITS: Final = 31
_MOST_SECONDS: Final = 2**31 - 1

Mask = npt.NDArray[np.bool_]
_ENTRY: Final = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_READ_ENTRIES: Final = 65_536
_SLOT_BYTES: Final = 4
_NAME_DIGITS: Final = 17


class IndexRows(NamedTuple):
    """Entries in order; ``places`` are file number << 32 | entry number, ``order`` are log offsets without outliers."""

    places: Longs
    hashes: Longs
    log_offsets: Longs
    seconds: Longs
    order: Longs

    def select(self, rows: "slice | npt.NDArray[np.bool_]") -> "IndexRows":
        """Return some of the rows."""
        return IndexRows(*(column[rows] for column in self))

    def join(self, other: "IndexRows") -> "IndexRows":
        """Return both, one behind the other."""
        return IndexRows(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def empty_rows() -> IndexRows:
    """Return no rows."""
    return IndexRows(*(np.zeros(0, np.int64) for _ in IndexRows._fields))


class IndexFileAudit:
    """One file; its header is read with the first chunk."""

    def __init__(self, reader: ReadFiles, path: str, config: StoreConfig, report: AuditReport) -> None:
        self._reader = reader
        self._config = config
        self._report = report
        self.path = path
        self.begin_at_ms = self.end_at_ms = 0
        self.last_log_offset = -1

    def __repr__(self) -> str:
        return f"<IndexFileAudit {self.path}>"

    def position(self, number: int) -> int:
        """Return the place of an entry in the file."""
        return HEADER.size + _SLOT_BYTES * self._config.index_slots + INDEX_ENTRY.size * number

    def chunks(self, file_number: int, order: int, *, is_last: bool) -> Iterator[IndexRows]:
        """Yield the entries; ``order`` is where the file before ended."""
        header = self._header()
        self.begin_at_ms, self.end_at_ms = header[:2]
        count, used = self._bounded(header[5]), header[4]
        table = np.zeros(self._config.index_slots, np.int32)
        number, first, last, seconds = 1, -1, -1, 0
        while number < count:
            wanted = min(_READ_ENTRIES, count - number)
            data = self._reader.read(self.path, wanted * INDEX_ENTRY.size, self.position(number))
            entries = np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY.size], _ENTRY)
            if not len(entries):
                break
            self._check_chain(entries, table, number, last)
            rows = _rows(entries, file_number, number, order)
            first = int(rows.log_offsets[0]) if first < 0 else first
            last, seconds = int(rows.log_offsets[-1]), int(rows.seconds[-1])
            self.last_log_offset = order = int(rows.order[-1])
            number += len(entries)
            yield rows
            if number >= count and is_last and self._report.is_open:
                count = self._bounded(self._header()[5])  # a broker goes on writing
        if not (is_last and self._report.is_open):
            self._check_header(header, (first, last, seconds), number)
            self._check_slots(table, used)

    def _header(self) -> tuple[int, int, int, int, int, int]:
        return HEADER.unpack(self._reader.read(self.path, HEADER.size, 0).ljust(HEADER.size, b"\0"))

    def _bounded(self, count: int) -> int:
        if 0 <= count <= self._config.index_entries:
            return max(1, count)
        self._report.add(Finding(_KIND, self.path, f"the header counts {count} entries", 36))
        return self._config.index_entries if count > 0 else 1

    def _check_chain(self, entries: npt.NDArray[np.void], table: npt.NDArray[np.int32], number: int, last: int) -> None:
        hashes = entries["hash"].astype(np.int64)
        offsets = entries["log_offset"].astype(np.int64)
        slots = np.maximum(hashes, 0) % len(table)
        previous, _, last_rows = chain(slots, table, number)
        bad = (previous != entries["previous"]) | (hashes < 0) | (entries["seconds"] < 0)
        bad |= np.diff(offsets, prepend=max(last, 0)) < 0
        table[slots[last_rows]] = number + last_rows
        self._report.counts["index files"] += number == 1
        for row in np.flatnonzero(bad).tolist():
            reason = "the entry does not follow from those before it"
            place = self.position(number + row)
            self._report.add(Finding(_KIND, self.path, reason, place, int(offsets[row])))

    def _check_header(self, header: tuple[int, ...], ends: tuple[int, int, int], count: int) -> None:
        begin_at, end_at, begin_offset, end_offset, _, named = header
        first, last, seconds = ends
        if count == 1:
            return
        wrong = [
            name
            for name, is_wrong in (
                ("begin log offset", begin_offset != first),
                ("end log offset", end_offset != last),
                ("end time", (end_at - begin_at) // 1000 != seconds and count > 2),
                ("count", named != count),
            )
            if is_wrong
        ]
        if wrong:
            self._report.add(
                Finding(_KIND, self.path, f"the header's {', '.join(wrong)} is not that of the entries", 0)
            )

    def _check_slots(self, table: npt.NDArray[np.int32], used: int) -> None:
        data = self._reader.read(self.path, _SLOT_BYTES * len(table), HEADER.size)
        found = np.frombuffer(data.ljust(_SLOT_BYTES * len(table), b"\0"), ">i4")
        wrong = np.flatnonzero(found != table)
        for slot in wrong[:100].tolist():
            reason = f"slot {slot} names entry {int(found[slot])}, the last of the slot is {int(table[slot])}"
            self._report.add(Finding(_KIND, self.path, reason, HEADER.size + _SLOT_BYTES * slot))
        self._report.add_more(_KIND, len(wrong) - 100)
        if used != (in_use := int(np.count_nonzero(table))):
            self._report.add(Finding(_KIND, self.path, f"the header counts {used} used slots, {in_use} are", 32))


def find_index_files(
    reader: ReadFiles, directory: str, config: StoreConfig, report: AuditReport
) -> list[IndexFileAudit]:
    """Return the files of an index; report those that cannot be read.

    Raises:
        ConfigError: All files have one size that is not the configured one.
    """
    entries = [entry for entry in reader.files.list(directory) if not entry.is_directory]
    named = [entry for entry in entries if len(entry.name) == _NAME_DIGITS and entry.name.isdigit()]
    for entry in entries:
        if entry not in named:
            report.add(Finding(_KIND, f"{directory}/{entry.name}", "the name is no time: brokers pass the file over"))
    expected = config.index_file_bytes
    sizes = {entry.size for entry in named}
    if len(sizes) == 1 and (size := sizes.pop()) != expected:
        raise ConfigError(_explain_sizes(directory, size, expected), key=ENTRIES_KEY)
    for entry in named:
        if entry.size != expected:
            report.add(Finding(_KIND, f"{directory}/{entry.name}", f"the file has {entry.size} bytes, not {expected}"))
    whole = [entry.name for entry in named if entry.size == expected]
    return [IndexFileAudit(reader, f"{directory}/{name}", config, report) for name in whole]


def _explain_sizes(directory: str, size: int, expected: int) -> str:
    return (
        f"files in {directory} have {size} bytes, {SLOTS_KEY} and {ENTRIES_KEY} make {expected}: "
        f"give the broker's settings with -c or --set, or remove a single file that was cut off"
    )


def _rows(entries: npt.NDArray[np.void], file_number: int, number: int, order: int) -> IndexRows:
    offsets = entries["log_offset"].astype(np.int64)
    return IndexRows(
        (file_number << 32) + number + np.arange(len(entries)),
        entries["hash"].astype(np.int64),
        offsets,
        entries["seconds"].astype(np.int64),
        np.maximum.accumulate(np.maximum(_without_outliers(offsets), order)),
    )


def _without_outliers(offsets: Longs) -> Longs:
    """Return the offsets with each that is above both of the next two replaced by the one before it."""
    if len(offsets) < 3:
        return offsets
    cleaned = offsets.copy()
    is_high = (offsets[1:-1] > offsets[2:]) & (offsets[:-2] <= offsets[2:])
    cleaned[1:-1][is_high] = offsets[:-2][is_high]
    if offsets[0] > offsets[1] and offsets[0] > offsets[2]:
        cleaned[0] = offsets[1]
    return cleaned


class _Expected(NamedTuple):
    keys: BlockKeys
    entries: KeyEntries
    log_offsets: Longs


class IndexAudit:
    """Reads the files in order, along with the records of the log; give it every block, then ``finish``."""

    def __init__(self, files: list[IndexFileAudit], log: LogAudit) -> None:
        self._files = files
        self._log, self._report = log, log.report
        self._window = empty_rows()
        self._chunks = self._read()
        self._is_read = False
        self._fill(log.start)
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

    def _read(self) -> Iterator[IndexRows]:
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

    def _take(self, high: int) -> IndexRows:
        self._fill(high)
        count = int(np.searchsorted(self._window.order, high, "right"))
        taken, self._window = self._window.select(slice(count)), self._window.select(slice(count, None))
        return taken

    def _report_missing(self, block: Block, expected: _Expected, is_missing: Mask) -> None:
        is_missing &= expected.log_offsets > self._first
        self._report.counts["tags without index entry"] += int((is_missing & expected.entries.is_tag).sum())
        is_missing &= ~expected.entries.is_tag
        if self._report.is_open and self._is_read and not len(self._window.order):
            last = max(file.last_log_offset for file in self._files)
            is_late = is_missing & (expected.log_offsets >= last)
            self._report.counts["keys not in the index yet"] += int(is_late.sum())
            is_missing &= ~is_late
        rows = np.unique(expected.entries.rows[is_missing])
        for row in rows[:100].tolist():
            position = int(block.positions[row])
            queue_offset, queue_id = (int(block.heads[name][row]) for name in ("queue_offset", "queue_id"))
            hit = Hit(expected.keys.topic(row), queue_id, queue_offset, expected.keys.unique_key(row))
            reason = "the index lacks keys of the record"
            log_offset = block.segment.base_offset + position
            self._report.add(Finding(_KIND, block.segment.path, reason, position, log_offset, [hit], 1))
        self._report.add_more(_KIND, len(rows) - 100)

    def _report_foreign(self, rows: IndexRows) -> None:
        """Report entries that no key of a record belongs to; what has expired or lost its record is not damage here."""
        is_expired = (rows.log_offsets < self._log.start) & (rows.log_offsets >= 0)
        self._report.counts["expired index entries"] += int(is_expired.sum())
        rows = rows.select(~is_expired)
        for at, log_offset in enumerate(rows.log_offsets.tolist()):
            if self._log.finding_at(log_offset) is None:
                self._report_row(rows, at, "no key of a record belongs to the entry")

    def _check_times(self, rows: IndexRows, stored_at: Longs) -> None:
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

    def _report_row(self, rows: IndexRows, at: int, reason: str) -> None:
        place = int(rows.places[at])
        file = self._files[place >> 32]
        position = file.position(place & 0xFFFFFFFF)
        self._report.add(Finding(_KIND, file.path, reason, position, int(rows.log_offsets[at])))


def _pairs(rows: IndexRows, low: int) -> Longs:
    """Return record and hash as one number; rows outside the block get numbers that mean nothing."""
    return (np.clip(rows.log_offsets - low, 0, 1 << 31) << _HASH_BITS) + np.maximum(rows.hashes, 0)
