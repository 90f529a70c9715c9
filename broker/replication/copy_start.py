"""Where a connection to the master begins, and whether this log can go on from the master's at all.

Rules, stronger than those of official pairs, which compare offsets only (replication.md §11)

    1. A master that has lost its newest records, and taken others since, would send what follows them: two logs in one.
       So before the first report of each connection the last record of this log is compared with what the master has
       at its place. If that is something else, or the master's log ends before it, nothing is copied.
    2. What cannot be compared goes on as in official pairs: where nobody has ever said how to ask the master, and
       where the master has deleted the file of that record.
    3. An empty log begins at the oldest file. A master that says where that is gets it reported; an official one takes
       0 for the newest file, so it gets the second file reported when it shows that there are more. With
       ``syncFromLastFile`` the newest file is enough.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from ...common.errors import RocketletError
from ..settings.replication import ReplicationConfig
from .known_master import KnownMaster

_log = logging.getLogger(__name__)


class ComparedLog(Protocol):
    """The log of a slave, as far as it is compared."""

    @property
    def log_max_offset(self) -> int:
        """The end of what is written."""
        ...

    def last_copied_record(self) -> tuple[int, bytes] | None:
        """Return place and bytes of the last record, ``None`` without one."""
        ...


class AskedMaster(Protocol):
    """Answers about its log; raises ``RocketletError`` if it does not."""

    async def record_at(self, log_offset: int) -> bytes | None:
        """Return the record at a position, ``None`` if there is none."""
        ...

    async def log_bounds(self) -> tuple[int, int]:
        """Return where the log begins and ends."""
        ...


Connect = Callable[[str], AskedMaster]


async def compare_logs(log: ComparedLog, master: AskedMaster) -> None:
    """Compare the last record of a copy with what the master has at its place.

    Raises:
        RemotingError, DecodeError: The master does not say.
        RocketletError: It has something else, or less: the copy is not the beginning of its log.
    """
    last = log.last_copied_record()
    if last is None:
        return
    log_offset, record = last
    found = await master.record_at(log_offset)
    if found == record:
        return
    least, end = await master.log_bounds()
    own_end = log.log_max_offset
    if end < own_end:
        raise RocketletError(f"this log ends at {own_end}, ahead of the master's, which ends at {end}")
    if found is not None or log_offset >= least:
        what = "has another record" if found is not None else "has no record"
        both = f"this log ends at {own_end}, the master's at {end}"
        raise RocketletError(f"the master {what} at log offset {log_offset}, where the last one is here: {both}")


class CopyStart:
    """Finds what to report first; ``file_bytes`` is the size of a file of the log."""

    def __init__(self, log: ComparedLog, master: KnownMaster, config: ReplicationConfig, file_bytes: int) -> None:
        self._log = log
        self._master = master
        self._wants_newest = config.starts_at_newest_file
        self._file_bytes = file_bytes
        self._begins_at = self._empty_start = 0
        self._said = ""

    def __repr__(self) -> str:
        return f"<CopyStart at {self._log.log_max_offset or self._empty_start}>"

    async def find(self, connect: Connect) -> int:
        """Return what to report first.

        Raises:
            RocketletError: The log cannot go on from the master's, or that could not be found out.
        """
        end, address = self._log.log_max_offset, self._master.last_address
        if not address:
            self._say("copying without a look at the master's records: nobody has said where it takes requests")
            self._begins_at = end or self._empty_start
        elif end:
            await compare_logs(self._log, connect(address))
            self._begins_at = end
        else:
            self._begins_at = 0 if self._wants_newest else await self._find_oldest(connect(address))
        return self._begins_at

    def accepts(self, log_offset: int) -> bool:
        """Tell whether an empty log shall begin there; if not, another connection is to be made."""
        if self._wants_newest or self._empty_start or log_offset <= max(self._begins_at, self._file_bytes):
            return True
        self._empty_start = self._file_bytes
        return False

    async def _find_oldest(self, master: AskedMaster) -> int:
        least, _ = await master.log_bounds()
        start = least or self._empty_start
        if start:
            self._say(f"copying the master's log from {start} on: this slave will not have what was written before")
        return start

    def _say(self, text: str) -> None:
        if text != self._said:
            _log.warning(text)
        self._said = text
