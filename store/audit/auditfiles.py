"""The files that an audit reads: found without judging, with everything that is odd about them reported.

Rules (``MappedFileQueue.doLoad``; store.md §1):

- Nothing is written, and no file is opened for writing. ``lock`` is never opened.
- Files of one kind have one size: the one that settings name, else the one that most files have. A file of another
  size or a foreign name is reported; so is a file that is missing between two others.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from ..files.files import DirectoryEntry, Files
from ..files.segments import SegmentFile, segment_path
from .audit_report import AuditReport, Finding

_MOST_OPEN: Final = 256
_NAME_DIGITS: Final = 20


class ReadFiles:
    """A bounded set of files that are open for reading."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._open: OrderedDict[str, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<ReadFiles {len(self._open)} open>"

    def read(self, path: str, size: int, position: int) -> bytes:
        """Return the bytes of a file, none when it is gone."""
        descriptor = self._open.get(path)
        if descriptor is None:
            try:
                descriptor = self._keep(path, self.files.open(path))
            except FileNotFoundError:
                return b""
        else:
            self._open.move_to_end(path)
        return self.files.pread(descriptor, size, position)

    def next_data(self, path: str, position: int) -> int | None:
        """Return the first position that is not in a hole, ``None`` when only holes follow."""
        return self.files.next_data(self._open[path], position) if self.read(path, 1, position) else None

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self.files.close(self._open.popitem()[1])

    def _keep(self, path: str, descriptor: int) -> int:
        if len(self._open) >= _MOST_OPEN:
            self.files.close(self._open.popitem(last=False)[1])
        self._open[path] = descriptor
        return descriptor


def find_files(files: Files, directories: Iterable[str], report: AuditReport, kind: str) -> list[SegmentFile]:
    """Return the files of directories that are named by a position; report those that are not."""
    found: list[SegmentFile] = []
    for directory in directories:
        entries = [entry for entry in files.list(directory) if not entry.is_directory]
        for entry in entries:
            path = f"{directory}/{entry.name}"
            if _is_name(entry):
                found.append(SegmentFile(path, int(entry.name), entry.size))
            else:
                report.add(Finding(kind, path, "the file does not belong here: the Java broker would not start"))
    return sorted(found, key=lambda one: one.base_offset)


def usual_size(found: Iterable[SegmentFile]) -> int:
    """Return the size that most files have, the largest of those; 0 without files."""
    sizes = Counter(one.size for one in found if one.size)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def log_file_size(found: Sequence[SegmentFile]) -> int:
    """Return the size of the log's files: the least distance of two, since a single one may have been cut off."""
    steps = (after.base_offset - before.base_offset for before, after in pairwise(found))
    least = min((step for step in steps if step > 0), default=0)
    usual = usual_size(found)
    return usual if not usual or least % usual == 0 else least


def check_sizes(found: Sequence[SegmentFile], size: int, report: AuditReport, kind: str) -> list[SegmentFile]:
    """Report files of another size and gaps; return those that can be read, with what they have of their size."""
    kept: list[SegmentFile] = []
    for number, one in enumerate(found):
        is_last = number == len(found) - 1
        if one.size != size:
            reason = f"the file has {one.size} bytes, the others have {size}" if one.size else "the file is empty"
            finding = Finding(kind, one.path, reason)
            if one.size or not is_last:
                report.add(finding)
            else:
                report.notes.append(f"{finding}: its creation was cut off")
        elif one.base_offset % size:
            report.add(Finding(kind, one.path, f"the file does not begin at a multiple of {size}"))
            continue
        _check_gap(found, number, size, report, kind)
        if one.size:
            kept.append(one._replace(size=min(one.size, size)))
    return kept


def _check_gap(found: Sequence[SegmentFile], number: int, size: int, report: AuditReport, kind: str) -> None:
    if not number:
        return
    before, after = found[number - 1], found[number]
    missing = (after.base_offset - before.base_offset) // size - 1
    if missing > 0:
        path = segment_path(before.path.rpartition("/")[0], before.base_offset + size)
        more = f" and {missing - 1} more behind it" if missing > 1 else ""
        report.add(Finding(kind, path, f"the file is missing{more}"))
        if kind == "log":
            report.add_cut(before.base_offset + size)


def _is_name(entry: DirectoryEntry) -> bool:
    return len(entry.name) == _NAME_DIGITS and entry.name.isascii() and entry.name.isdigit()
