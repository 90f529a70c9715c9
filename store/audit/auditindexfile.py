"""The audit of one index file: header, entries, chains and slots (store.md §4.1, §4.3).

- What stands before an entry in its slot follows from the hashes before it; so do the slots of the file.
- The slots of the last file are written when it is full and at a clean stop, and are not judged before.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common.errors import ConfigError
from ..commitlog.record_blocks import Longs
from ..files.store_config import ENTRIES_KEY, SLOTS_KEY, StoreConfig
from ..index.index_build import chain
from ..index.index_file import HEADER, INDEX_ENTRY
from .audit_report import AuditReport, Finding
from .auditfiles import ReadFiles

_ENTRY: Final = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_READ_ENTRIES: Final = 65_536
_SLOT_BYTES: Final = 4
_KIND: Final = "index"
_NAME_DIGITS: Final = 17


class Rows(NamedTuple):
    """Entries in order; ``places`` are file number << 32 | entry number, ``order`` are log offsets without outliers."""

    places: Longs
    hashes: Longs
    log_offsets: Longs
    seconds: Longs
    order: Longs

    def select(self, rows: "slice | npt.NDArray[np.bool_]") -> "Rows":
        """Return some of the rows."""
        return Rows(*(column[rows] for column in self))

    def join(self, other: "Rows") -> "Rows":
        """Return both, one behind the other."""
        return Rows(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def empty_rows() -> Rows:
    """Return no rows."""
    return Rows(*(np.zeros(0, np.int64) for _ in Rows._fields))


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

    def chunks(self, file_number: int, order: int, *, is_last: bool) -> Iterator[Rows]:
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


def _rows(entries: npt.NDArray[np.void], file_number: int, number: int, order: int) -> Rows:
    offsets = entries["log_offset"].astype(np.int64)
    return Rows(
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
