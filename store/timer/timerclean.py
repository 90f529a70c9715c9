"""Which files of the timer log may go: those that lead to no record any more (store.md §10.7).

Rules (``deleteExpiredFileByOffsetForTimerLog``):

- Files go from the first on, never the last one. A file goes when all its units lead before the log begins. Java looks
  at the last unit only; after messages were read again from the timer topic, that one need not be the newest.
"""

from ..files.files import Files
from .timer_log import TimerLog, UnitReader


def find_log_start(files: Files, log: TimerLog, log_min_offset: int) -> int:
    """Return where the timer log may begin; slow (raises ``OSError``)."""
    start, last_base = log.first_base, log.end - log.end % log.file_bytes
    with UnitReader(files, log) as units:
        while start < last_base and _is_expired(units, log, start, log_min_offset):
            start += log.file_bytes
    return start


def _is_expired(units: UnitReader, log: TimerLog, base: int, log_min_offset: int) -> bool:
    end = base + log.file_bytes
    last = log.before(end)
    unit = None if last is None else units.unit(last)
    if unit is None or unit.log_offset >= log_min_offset:
        return False
    return all(one.log_offset < log_min_offset for position, one in units.scan(base) if position < end)
