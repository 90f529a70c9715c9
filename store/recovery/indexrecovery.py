"""Opening the index: what of it can be trusted, and which records it lacks.

Rules (store.md §4.6, §7.4; stricter than Java, which loses entries here):

- After an unclean stop the entries written since the last full file are checked: each must point to the one before it
  in its slot, and lie not before it in the log. So a page that never reached the disk shows, and what follows it goes.
  The newest record loses its entries, too, since they may be incomplete.
- An index that does not end at a record, or lacks what lies before one of its files, is written anew.
"""

import logging
from itertools import islice

from ..commitlog.log_end import Stop
from ..consumequeue.appended import describe, has_keys
from ..index.key_index import Index
from .logsource import LogSource, Redispatch

_LOOK_BEHIND = 16
_log = logging.getLogger(__name__)


def prepare_index(index: Index, source: LogSource, start: int, sure_at_ms: int | None) -> None:
    """Drop what cannot be trusted; ``sure_at_ms`` is ``None`` after a clean stop (raises ``OSError``).

    What lies behind ``start`` is cheap to write anew, since the log is walked from there.
    """
    if sure_at_ms is not None:
        index.restore(sure_at_ms)
    if not _ends_at_record(index, source):
        _log.warning("index points to log offset %d, which holds no record, truncating it", index.end_log_offset)
        index.restore(-1, start)
    if not _ends_at_record(index, source) or _lacks_file(index, source):
        index.remove_from(0)


def index_before(index: Index, source: LogSource, start: int) -> Stop | None:
    """Add the records before ``start`` that the index lacks; return where the log is damaged before that."""
    begin = max(index.end_log_offset, source.first)
    return Redispatch(source.unchecked(), None, index).run(begin, start) if begin < start else None


def _ends_at_record(index: Index, source: LogSource) -> bool:
    return index.end_log_offset < source.first or source.record_at(index.end_log_offset) is not None


def _lacks_file(index: Index, source: LogSource) -> bool:
    """Tell whether a record with keys, soon behind the end of a file, lies before the next one begins."""
    end = source.first - 1
    for file in index.files:
        walk = source.unchecked().walk().walk_from(max(end, source.first))
        for log_offset, record in islice(walk, _LOOK_BEHIND):
            if log_offset >= file.begin_log_offset:
                break
            if log_offset > end and has_keys(describe(record)):
                _log.warning("index lacks records before %s, rebuilding it from the log", file.path)
                return True
        end = file.end_log_offset
    return False
