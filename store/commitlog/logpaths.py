"""In which directory each file of the log lies (``MultiPathMappedFileQueue``; store.md §1).

Rules:

- File k of the log goes to the directory k mod n of those that are neither read-only nor too full, in the order of
  their names; when all are too full, of those that are not read-only.
- A file stays where it is: once found, or chosen for a file that is being made, its directory is remembered.
"""

from collections.abc import Collection, Iterable

from ...common.errors import ConfigError
from ..files.files import Files
from ..files.segments import SegmentFile, segment_path
from ..files.store_config import LOG_KEY, READ_ONLY_KEY, StoreConfig


class LogPaths:
    """The directories of one log; ``full`` are those that get no new files at present."""

    def __init__(self, directories: Collection[str], file_bytes: int, read_only: Collection[str] = ()) -> None:
        self._writable = sorted(set(directories) - set(read_only))
        self._file_bytes = file_bytes
        self._held: dict[int, str] = {}
        self.full: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<LogPaths {','.join(self._writable)}>"

    @property
    def are_several(self) -> bool:
        """Whether new files go to several directories in turn."""
        return len(self._writable) > 1

    def set_files(self, segments: Iterable[SegmentFile]) -> None:
        """Take over where the files are."""
        self._held = {segment.base_offset: segment.path for segment in segments}

    def path_of(self, base_offset: int) -> str:
        """Return where the file that begins at the position lies, or would be made."""
        held = self._held.get(base_offset)
        return held if held is not None else self._choose(base_offset)

    def hold(self, base_offset: int) -> str:
        """Return where the file lies, or shall be made from now on."""
        return self._held.setdefault(base_offset, self.path_of(base_offset))

    def set_file(self, base_offset: int, path: str) -> None:
        """Take over where a file is."""
        self._held[base_offset] = path

    def forget(self, base_offset: int) -> None:
        """Drop a file that is gone."""
        self._held.pop(base_offset, None)

    def forget_from(self, end: int) -> None:
        """Drop the files that begin at the position or behind it."""
        self._held = {base: path for base, path in self._held.items() if base < end}

    def _choose(self, base_offset: int) -> str:
        free = [directory for directory in self._writable if directory not in self.full] or self._writable
        return segment_path(free[base_offset // self._file_bytes % len(free)], base_offset)


def check_directories(files: Files, config: StoreConfig) -> None:
    """See to it that no directory of a log in several ones is missing, as one on a disk that is not mounted.

    Raises:
        ConfigError: A read-only directory is missing, or another one while there are files of the log elsewhere.
    """
    missing = [directory for directory in config.all_log_directories if not files.exists(directory)]
    read_only = config.read_only_directories
    for directory in missing:
        if directory in read_only:
            raise ConfigError(f"{READ_ONLY_KEY} names {directory}, which does not exist", key=READ_ONLY_KEY)
    if missing and any(files.list(directory) for directory in config.all_log_directories):
        raise ConfigError(
            f"{LOG_KEY} names {missing[0]}, which does not exist, while other directories hold the log; "
            "mount it, or make it if it is new",
            key=LOG_KEY,
        )
