"""Plans the reading of store directories: which range of which file each task reads.

    STORE or STORE/commitlog -> files in order -> one ``Split`` per file, the last one up to the end of the log
    LOG,LOG,…                -> the same for a log in several directories, named as in ``storePathCommitLog``

Rules:

- The end of the log is found once, here, so that all tasks of one reading see the same prefix of a store that a
  broker is writing to. What is written later belongs to the next reading.
- Files before the last must be whole: their tasks meet a blank at the end, or say where the damage is. A file that is
  missing is damage, too, but where a broker was killed and what lies behind was not surely on disk.
- Damage that shows already here stops a reading before its first row (``plan_stores``), or the prefix before it is
  read and the damage told (``plan_prefixes``).
- A copy of a store may lack a part of its last file. Foreign files beside the segments are left alone.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..common.errors import ConfigError, StoreDamagedError, StoreError
from ..common.record import decode_record
from ..store.checkpoint import load_checkpoint
from ..store.config import PATH_SEPARATOR, SEGMENT_KEY
from ..store.files import OS_FILES
from ..store.logtail import Validity, find_valid
from ..store.segments import SegmentFile
from .segment import Segment
from .tail import LogStop, check_at, find_end

_DIRECTORY: Final = "commitlog"
_NAME_DIGITS: Final = 20
_LISTINGS: Final = 3


@dataclass(frozen=True)
class Split:
    """A part of one file that one task reads: the records that start in ``[start, stop)``."""

    store: str
    path: str
    base_offset: int
    start: int
    stop: int
    ends_in_blank: bool

    def __len__(self) -> int:
        return self.stop - self.start

    def open(self) -> Segment:
        """Map the file.

        Raises:
            StoreError: It is gone or cannot be read.
        """
        return _map(self.path, self.base_offset, self.stop)


class Plan(NamedTuple):
    """The splits of all stores, in log order, and by store what they end at: damage, or else the end of the log."""

    splits: list[Split]
    damages: dict[str, StoreDamagedError]
    ends: dict[str, LogStop]


def plan_stores(stores: Iterable[str], segment_bytes: int | None = None) -> list[Split]:
    """Return the splits of all stores, in log order.

    ``segment_bytes`` is the size that the files were written with; without it, it is taken from the first file.

    Raises:
        ConfigError: A directory holds no commit log, is given twice, or has files of another size.
        StoreDamagedError: A file is missing, or sound records follow a bad one at the end of the log.
        StoreError: A file or directory cannot be read.
    """
    plan = plan_prefixes(stores, segment_bytes)
    for damage in plan.damages.values():
        raise damage
    return plan.splits


def plan_prefixes(stores: Iterable[str], segment_bytes: int | None = None) -> Plan:
    """Return the splits of all stores up to damage, and what each of them ends at.

    Raises:
        ConfigError, StoreError: As ``plan_stores``.
    """
    plan = Plan([], {}, {})
    for store, files in _find_files(stores):
        splits, stop = _plan_store(store, files, segment_bytes)
        plan.splits.extend(splits)
        if isinstance(stop, LogStop):
            plan.ends[store] = stop
        else:
            plan.damages[store] = stop
    return plan


def check_stores(stores: Iterable[str]) -> None:
    """Raise what ``plan_stores`` would for directories that are no stores; cheap, since no file is opened."""
    _find_files(stores)


def _find_files(stores: Iterable[str]) -> list[tuple[str, list[SegmentFile]]]:
    found: dict[str, tuple[str, list[SegmentFile]]] = {}
    for store in stores:
        files = _list_settled(store)
        real = os.path.realpath(files[0].path)
        if real in found:
            raise ConfigError(f"store {store} is given twice")
        found[real] = store, files
    return list(found.values())


def _plan_store(
    store: str, files: Sequence[SegmentFile], segment_bytes: int | None
) -> tuple[list[Split], StoreDamagedError | LogStop]:
    _check_sizes(files, segment_bytes)
    gap = _find_gap(files)
    behind = files[gap:] if gap is not None else ()
    files = files[:gap]
    sure_at_ms = _sure_at_ms(store)
    last = _last_with_records(files, sure_at_ms)
    segments = [_map(*file) for file in files[last:]]
    end = find_end(segments, sure_at_ms)
    validity = Validity(end.stored_at_ms, sure_at_ms)
    missing = None
    if behind and (_is_closed(store) or any(_has_valid(file, validity) for file in behind)):
        missing = _missing_file(files[-1], behind[0])
    last += end.number
    splits = [_whole(store, file) for file in files[:last]]
    if end.position:
        path, base, _ = files[last]
        splits.append(Split(store, path, base, 0, end.position, ends_in_blank=end.is_full))
    return splits, end.damage or missing or end.stop(segments)


def _whole(store: str, file: SegmentFile) -> Split:
    return Split(store, file.path, file.base_offset, 0, file.size, ends_in_blank=True)


def _has_valid(file: SegmentFile, validity: Validity) -> bool:
    return find_valid(OS_FILES, file, _map(*file).view, 0, validity, reserved_bytes=0) is not None


def _missing_file(before: SegmentFile, behind: SegmentFile) -> StoreDamagedError:
    message = f"{behind.path} does not follow {before.path}: a file between them is missing"
    return StoreDamagedError(message, path=behind.path, position=0)


def _log_directories(store: str) -> list[str]:
    if PATH_SEPARATOR in store and not os.path.exists(store):
        return [_several(path.strip()) for path in store.split(PATH_SEPARATOR) if path.strip()]
    return [_log_directory(store)]


def _several(path: str) -> str:
    nested = os.path.join(path, _DIRECTORY)
    return nested if os.path.exists(nested) else path


def _log_directory(store: str) -> str:
    nested = os.path.join(store, _DIRECTORY)
    if not os.path.exists(nested) and os.path.basename(os.path.realpath(store)) == _DIRECTORY:
        return store
    return nested


def _list_settled(store: str) -> list[SegmentFile]:
    """List the files again when one seems to be missing: a broker makes and deletes files while they are listed."""
    files = _list_files(store)
    for _ in range(_LISTINGS):
        if _find_gap(files) is None:
            break
        files = _list_files(store)
    return files


def _list_files(store: str) -> list[SegmentFile]:
    found = sorted(one for directory in _log_directories(store) for one in _names(store, directory))
    files = [
        SegmentFile(path, int(name), _size(path))
        for name, directory in found
        for path in (os.path.join(directory, name),)
    ]
    # A file without bytes was deleted just now, or its creation was cut off.
    if not any(file.size for file in files):
        raise ConfigError(f"store {store} holds no commit log file")
    return [file for file in files if file.size]


def _names(store: str, directory: str) -> list[tuple[str, str]]:
    try:
        with os.scandir(directory) as entries:
            return [(entry.name, directory) for entry in entries if _is_segment(entry)]
    except (FileNotFoundError, NotADirectoryError):
        named = directory if PATH_SEPARATOR in store and not os.path.exists(store) else store
        reason = f"it has no directory {_DIRECTORY}" if os.path.exists(named) else "it does not exist"
        reason = reason if named == store else f"{named} does not exist"
        raise ConfigError(f"{store} is not a store: {reason}") from None
    except OSError as error:
        raise StoreError(f"{error.filename or directory} cannot be read: {error.strerror}") from error


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _is_segment(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit() and entry.is_file()


def _find_gap(files: Sequence[SegmentFile]) -> int | None:
    """Return the number of the first file that does not follow the one before it."""
    for number in range(1, len(files)):
        before = files[number - 1]
        if files[number].base_offset != before.base_offset + before.size:
            return number
    return None


def _check_sizes(files: Sequence[SegmentFile], segment_bytes: int | None) -> None:
    expected = files[0].size if segment_bytes is None else segment_bytes
    for number, (path, _, size) in enumerate(files):
        is_last = number == len(files) - 1
        if size != expected and not (is_last and size < expected):
            raise ConfigError(f"{path} has {size} bytes, {SEGMENT_KEY} is {expected}", key=SEGMENT_KEY)


def _last_with_records(files: Sequence[SegmentFile], sure_at_ms: int | None) -> int:
    """Return the number of the last file that begins with a sound record which is surely on disk, 0 without one."""
    for number in range(len(files) - 1, 0, -1):
        segment = _map(*files[number])
        if check_at(segment, 0) > 0 and (sure_at_ms is None or decode_record(segment.view).stored_at_ms <= sure_at_ms):
            return number
    return 0


def _sure_at_ms(store: str) -> int | None:
    """Return up to when records were flushed for certain, ``None`` for a store that was cleanly closed, or in doubt."""
    if _is_closed(store):
        return None
    try:
        return load_checkpoint(OS_FILES, os.path.join(_root(store), "checkpoint")).log_at_ms or None
    except OSError:
        return None


def _is_closed(store: str) -> bool:
    return not os.path.exists(os.path.join(_root(store), "abort"))


def _root(store: str) -> str:
    return os.path.dirname(os.path.realpath(_log_directories(store)[0]))


def _map(path: str, base_offset: int, size: int) -> Segment:
    try:
        return Segment(path, base_offset, size)
    except ValueError as error:  # this is how mmap says it
        raise StoreError(f"{path} has become shorter than {size} bytes") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
