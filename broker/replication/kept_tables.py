"""Tables that a broker keeps and does not go by: a slave has them of its master, for whoever goes on with its store.

    timermetrics              how many timer messages of each topic wait
    timercheck                how far the master has delivered timer messages (store.md §9.7)
    replica.json              whether the store is that of a slave, and since when all its tables are copies

Rules

    1. A master counts no timer messages.
    2. A slave has no timer files but ``timercheck``. It says that they are to be made anew from the timer topic, and
       that whatever was due before its time is done: that is what a broker needs that goes on as master.
    3. The mark of a slave is what a broker goes by that is started as master of it: tables and log were copied at
       different times, so their ends are compared as after a kill.
"""

from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from ...common.java_json import Int64
from ...common.metadata import DataVersion
from ...store.files.files import Files
from ...store.timer.timer_check import REBUILDING, TimerCheck, load_timer_check, save_timer_check, timer_check_path
from ..topic.config_table import ConfigTable

_SAVE_MS: Final = 60_000


class TimerCount(Struct, rename="camel", kw_only=True):
    """How many timer messages of a topic wait, and when that changed."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerCounts(Struct, rename="camel", kw_only=True):
    """The same of all topics (``TimerMetricsSerializeWrapper``)."""

    data_version: DataVersion = DataVersion()
    timing_count: dict[str, TimerCount] = field(default_factory=dict[str, TimerCount])


class TimerCountTable:
    """The counts of waiting timer messages: those of the master on a slave; a master has none and no such file."""

    file_name = "timermetrics"
    content_type = TimerCounts

    def __init__(self, now_ms: int) -> None:
        self.change_count = 0
        self._counts = TimerCounts(data_version=DataVersion(timestamp=now_ms))

    def __repr__(self) -> str:
        return f"<TimerCountTable of {len(self._counts.timing_count)} topics>"

    def content(self) -> TimerCounts:
        """Return what the file shall hold."""
        return self._counts

    def load(self, content: TimerCounts) -> None:
        """Take over what the file held."""
        self._counts = content

    def take_copy(self, content: TimerCounts) -> None:
        """Take over what a master holds."""
        self.change_count += content != self._counts
        self._counts = content


class TimerCheckCopy:
    """How far the master has delivered timer messages; ``load`` and ``save`` may run in any thread."""

    def __init__(self, root: str, files: Files) -> None:
        self._path = timer_check_path(root)
        self._files = files
        self._saved = self.told = TimerCheck()

    def __repr__(self) -> str:
        return f"<TimerCheckCopy {self.told}>"

    def load(self) -> None:
        """Read what was saved (raises ``OSError``)."""
        self._saved = self.told = load_timer_check(self._files, self._path) or TimerCheck()

    @property
    def check(self) -> TimerCheck:
        """What others are told: a slave has no timer files of its own."""
        return self.told._replace(log_end=0, queue_offset=0, master_queue_offset=_put_until(self.told))

    def take(self, told: TimerCheck) -> bool:
        """Take over what a master has told; tell whether it is worth saving.

        Time alone is so once a minute, and not where there never was a timer message.
        """
        self.told = told
        is_older = told.read_at_ms - self._saved.read_at_ms >= _SAVE_MS
        return _put_until(told) != _put_until(self._saved) or (_put_until(told) > 0 and is_older)

    def save(self) -> None:
        """Save it as what timer files are made anew from (raises ``OSError``)."""
        told = self.told
        check = told._replace(log_end=REBUILDING, queue_offset=_put_until(told), master_queue_offset=0)
        save_timer_check(self._files, self._path, check)
        self._saved = told


def _put_until(check: TimerCheck) -> int:
    """Return before which message of the timer topic the master has put all into its wheel."""
    return max(check.queue_offset, check.master_queue_offset)


class ReplicaFile(Struct, rename="camel", kw_only=True):
    """The content of ``replica.json``; all zeros in the store of a master."""

    is_slave: bool = False
    master_address: str = ""
    copied_at: Int64 = 0


class ReplicaMark:
    """Whether the tables beside the log are copies, and of whom."""

    file_name = "replica.json"
    content_type = ReplicaFile

    def __init__(self) -> None:
        self.change_count = 0
        self._file = ReplicaFile()

    def __repr__(self) -> str:
        return f"<ReplicaMark of {self._file.master_address or 'no master'}>"

    @property
    def is_set(self) -> bool:
        """Whether they are."""
        return self._file.copied_at > 0

    @property
    def is_of_slave(self) -> bool:
        """Whether the store was that of a slave, maybe of one that has never copied all tables."""
        return self._file.is_slave or self.is_set

    def begin(self) -> None:
        """Note that the store is that of a slave."""
        if not self._file.is_slave:
            self._file = replace(self._file, is_slave=True)
            self.change_count += 1

    def put(self, master_address: str, now_ms: int) -> None:
        """Note that all tables were copied; what was noted of the same master stays."""
        if not self.is_set or self._file.master_address != master_address:
            self._file = ReplicaFile(is_slave=True, master_address=master_address, copied_at=max(1, now_ms))
            self.change_count += 1

    def remove(self) -> None:
        """Note that they are this broker's own from now on."""
        if self.is_of_slave:
            self._file = ReplicaFile()
            self.change_count += 1

    def content(self) -> ReplicaFile:
        """Return what the file shall hold."""
        return self._file

    def load(self, content: ReplicaFile) -> None:
        """Take over what the file held."""
        self._file = content


class KeptTables(NamedTuple):
    """All of them; ``tables`` are those that are loaded and saved as other tables are."""

    timer_counts: TimerCountTable
    timer_check: TimerCheckCopy
    mark: ReplicaMark
    tables: tuple[ConfigTable[Any], ...]


def keep_tables(root: str, now_ms: int, files: Files, *, is_slave: bool) -> KeptTables:
    """Return the tables of the store in a directory, still empty."""
    counts, mark = TimerCountTable(now_ms), ReplicaMark()
    tables = (counts, mark) if is_slave else (mark,)
    return KeptTables(counts, TimerCheckCopy(root, files), mark, tables)
