"""The key index of a store: its files, what waits to be built, and look-ups.

    index/<yyyyMMddHHmmssSSS>      17 digits, the local time of creation

Rules (``IndexService``; store.md §4):

- The dispatcher adds records; entries are built in batches: when enough wait, at ``build``, and before every look-up,
  so that a look-up sees all that is dispatched.
- numpy is loaded with the first batch. Until somebody has loaded it, batches may grow (``is_due``).
- A file that is full gets its slots written; the flush that follows lets ``full_end_at_ms`` into the checkpoint.

``query`` finds messages by key (``DefaultMessageStore.queryMessage``; store.md §4.4). Collisions of the hash are
returned as they are, in ascending order of log offsets: the client compares topic and key. Records that have left the
log are left out. (Java asks the index up to three times then, with the same result.)
"""

import errno
import sys
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ...common.errors import ConfigError
from ...common.message import TRANSACTION_ROLLBACK
from ...common.properties import index_hash
from ..consumequeue.appended import Appended, Placed
from ..files.files import NO_ROOM
from ..files.segments import find_other_size
from ..files.store_config import ENTRIES_KEY, SLOTS_KEY
from .index_file import IndexFile, IndexSpace

if TYPE_CHECKING:
    from .index_build import IndexBatch
from typing import Literal

INDEX_BATCH_RECORDS = 1_024
_MOST_WAITING = 8_192
KeyKind = Literal["K", "U", "T"]
"""What a query's key is (``indexType``): a word of KEYS, a unique key, or a tag."""


class IndexHits(NamedTuple):
    """Log offsets in ascending order, and the newest record that the index knows."""

    log_offsets: list[int]
    last_log_offset: int
    last_at_ms: int


class KeyIndex:
    """All index files of a store."""

    def __init__(self, space: IndexSpace, now_ms: Callable[[], int]) -> None:
        self._space = space
        self._now_ms = now_ms
        self._batches: list[IndexBatch] = []
        self._waiting: list[tuple[bytes, str, int, int]] = []  # the records would take more memory
        self.files: list[IndexFile] = []
        self.full_end_at_ms = 0

    def __repr__(self) -> str:
        return f"<KeyIndex {len(self.files)} files, {self.waiting_records} waiting>"

    @property
    def waiting_records(self) -> int:
        """How many records wait for ``build``."""
        return len(self._waiting)

    def add(self, records: Sequence[Placed]) -> None:
        """Take records that shall be found by their keys; those that are rolled back have none (store.md §4.2)."""
        for record in records:
            if record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
                continue
            topic, stored_at_ms = record.topic, record.stored_at_ms
            if type(record) is Appended:
                self._waiting.append((record.property_text, topic, record.log_offset, stored_at_ms))
            else:
                self._waiting += zip(record.property_texts, repeat(topic), record.log_offsets, repeat(stored_at_ms))

    @property
    def is_due(self) -> bool:
        """Whether a batch that waits is to be built now; more may wait while numpy is not loaded."""
        return self.waiting_records >= _MOST_WAITING or self.may_build

    @property
    def may_build(self) -> bool:
        """Whether building would not have to load numpy first; ``prepare`` does that."""
        return hasattr(sys.modules.get(f"{__package__}.index_build"), "restore")  # its last name: it is loaded whole

    def prepare(self) -> None:
        """Load what building needs; takes long, may run in any thread.

        Raises:
            OSError: It cannot be loaded, mostly for want of descriptors.
        """
        try:
            from . import index_build
        except ImportError as error:
            raise OSError(errno.EMFILE, f"cannot load what builds the index: {error}") from error
        assert index_build.restore, "the module is loaded"

    @property
    def is_behind(self) -> bool:
        """Whether anything waits to be built."""
        return bool(self._waiting or self._batches)

    @property
    def end_log_offset(self) -> int:
        """The last record that has entries, -1 when there is none."""
        last = self.files[-1] if self.files else None
        return last.end_log_offset if last is not None and (last.count > 1 or len(self.files) > 1) else -1

    def load(self) -> None:
        """Find the files on disk; a short one is removed with all that follow, to be written anew.

        Raises:
            ConfigError: The files have one size that is not the configured one.
        """
        entries = self._space.files.list(self._space.directory)
        named = [entry for entry in entries if not entry.is_directory and _is_name(entry.name)]
        expected = self._space.file_bytes
        size = find_other_size([entry.size for entry in named], expected)
        if size is not None and size % 4 == 0 and size > 40:
            raise ConfigError(
                f"files in {self._space.directory} have {size} bytes, {SLOTS_KEY} and {ENTRIES_KEY} make {expected}",
                key=ENTRIES_KEY,
            )
        self.files = [IndexFile(self._space, f"{self._space.directory}/{entry.name}") for entry in named]
        sound = next((number for number, entry in enumerate(named) if entry.size != expected), len(named))
        self.remove_from(sound)
        for file in self.files:
            file.load_header()

    def full_paths(self) -> set[str]:
        """Return the files that get no more entries."""
        return {file.path for file in self.files[:-1]}

    def restore(self, sure_at_ms: int, log_offset: int = sys.maxsize) -> None:
        """Make what was written since ``sure_at_ms`` end before the log position, and drop what is not sound.

        The newest record loses its entries, too, since they may be incomplete: its keys may have been meant for two
        files. Sure are full files only; the caller adds all that was dropped.
        """
        from .index_build import restore, save_slots

        unsure = (at for at, file in enumerate(self.files) if file.end_at_ms > sure_at_ms or not file.is_full)
        first = next(unsure, len(self.files))
        for number in range(first, len(self.files)):
            file = self.files[number]
            is_sound = restore(self._space, file, log_offset)
            if not file.is_full:
                self.remove_from(number + 1 if is_sound else number)
                break
            save_slots(file)
            file.slots = None
        self._drop_last_record()

    def _drop_last_record(self) -> None:
        from .index_build import restore

        while self.files:
            last = self.files[-1]
            restore(self._space, last, last.end_log_offset)
            if last.count > 1:
                last.write_header(has_slots=False)
                return
            self.remove_from(len(self.files) - 1)

    def build(self) -> None:
        """Write the entries of all that waits.

        Raises:
            SlotsUnreadableError: The slots of the last file could not be read; nothing was written.
            OSError: Some could not be written; they wait for the next call.
        """
        if not self.is_behind:
            return
        self.prepare()
        from .index_build import collect, insert

        waiting, self._waiting = self._waiting, []
        batch = collect(*zip(*waiting, strict=True)) if waiting else None
        if batch is not None:
            self._batches.append(batch)
        while self._batches:
            file = self._file()
            now, rest = self._batches[0].split(file.room)
            insert(self._space, file, now)
            self._batches[:1] = [rest] if len(rest.hashes) else []

    def find(self, key_text: str, limit: int, begin_ms: int, end_ms: int) -> IndexHits:
        """Look a key text up; collisions of the hash are not told apart (``IndexService.queryOffset``).

        What has no room on the disk is looked for among what waits (raises ``OSError`` for any other failure).
        """
        try:
            self.build()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        key_hash = index_hash(key_text)
        found: list[int] = []
        for batch in reversed(self._batches):
            found += batch.select(key_hash, begin_ms, end_ms, limit - len(found))
        for file in reversed(self.files):
            if file.overlaps(begin_ms, end_ms):
                found += file.select(key_hash, begin_ms, end_ms, limit - len(found))
            if file.begin_at_ms < begin_ms or len(found) >= limit:
                break
        last = self.files[-1] if self.files else None
        return IndexHits(
            sorted(set(found)),
            last.end_log_offset if last is not None else 0,
            last.end_at_ms if last is not None else 0,
        )

    def save(self) -> None:
        """Build what waits and write the slots of the last file (raises ``OSError``)."""
        self.build()
        if self.files and self.files[-1].slots is not None:
            from .index_build import save_slots

            save_slots(self.files[-1])

    def drop_first(self, log_min_offset: int) -> str | None:
        """Forget the first file if all of its records lie before the position, never the last one; return its path.

        The caller removes it (``deleteExpiredFile``).
        """
        if len(self.files) < 2 or self.files[0].end_log_offset >= log_min_offset:
            return None
        self._space.forget(self.files[0])
        return self.files.pop(0).path

    def remove_from(self, position: int) -> None:
        """Remove the files from a position on."""
        for file in self.files[position:]:
            self._space.remove(file)
        del self.files[position:]

    def _file(self) -> IndexFile:
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        if last is not None:
            self._finish(last)
        self.files.append(self._space.create(self._now_ms(), last))
        if last is not None:
            self.full_end_at_ms = last.end_at_ms  # not before: the next flush takes it along from now on
        return self.files[-1]

    def _finish(self, file: IndexFile) -> None:
        from .index_build import save_slots

        save_slots(file)
        file.slots = None


def _is_name(name: str) -> bool:
    return len(name) == 17 and name.isascii() and name.isdigit()


class KeyRange(Struct, frozen=True):
    """How many records at most, stored between which times (whole seconds, rounded down)."""

    max_count: int
    begin_ms: int
    end_ms: int


class QueryResult(Struct):
    """Records that may hold the key, and the newest record that the index knows."""

    log_offsets: list[int]
    records: list[memoryview]
    last_log_offset: int = 0
    last_at_ms: int = 0


def query(
    index: KeyIndex, key_text: str, wanted: KeyRange, record_at: Callable[[int], memoryview | None]
) -> QueryResult:
    """Look a key text (``topic#key``, ``topic#T#tags``) up and fetch the records (raises ``OSError``)."""
    found = index.find(key_text, wanted.max_count, wanted.begin_ms, wanted.end_ms)
    result = QueryResult([], [], found.last_log_offset, found.last_at_ms)
    for log_offset in found.log_offsets:
        record = record_at(log_offset)
        if record is not None:
            result.log_offsets.append(log_offset)
            result.records.append(record)
    return result
