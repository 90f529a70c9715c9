"""The log of one store as far as its reading was planned, looked into record by record.

Rule: only the heads of few records are read, to judge what queues, index files and times say of the rest.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ...common.record import Record, decode_record
from ...common.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from .logfile import LogFile, check_at, size_at
from .split import Split

_SIZE_BYTES = 4


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
    if check_at(file, position, checks_crc=False) <= 0:
        return None
    window = file.window(position, size_at(file.window(position, _SIZE_BYTES), file, position))
    return decode_record(window.view, position - (window.base_offset - file.base_offset))


def is_queued(record: Record) -> bool:
    """Tell whether a record has an entry in its queue."""
    return record.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
