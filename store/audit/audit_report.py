"""What an audit reads, and what it found: counts, damage, and notes.

Rules:

- A finding is damage: something that a sound store does not hold. A note is what a reader of the report should know
  and what the next start puts right by itself, such as the torn tail of a broker that was killed.
- Of each kind a bounded number of findings is kept, and fewer are listed in the text; the total counts all of them.

Rules of the files that it reads, found without judging, with everything that is odd about them reported
(``MappedFileQueue.doLoad``; store.md §1):

- Nothing is written, and no file is opened for writing. ``lock`` is never opened.
- Files of one kind have one size: the one that settings name, else the one that most files have. A file of another
  size or a foreign name is reported; so is a file that is missing between two others.
"""

import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from ..files.files import DirectoryEntry, Files
from ..files.segments import SegmentFile, segment_path

MOST_FINDINGS: Final = 100
MOST_LINES: Final = 20
MOST_HITS: Final = 20
_MOST_OPEN: Final = 256
_NAME_DIGITS: Final = 20


class Hit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that damage hit, as far as it can be known."""

    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    unique_key: str | None = None

    def __str__(self) -> str:
        words = [f"{self.topic}-{self.queue_id}" if self.topic is not None else ""]
        words.append(f"queue offset {self.queue_offset}" if self.queue_offset is not None else "")
        words.append(f"unique key {self.unique_key}" if self.unique_key else "")
        return ", ".join(filter(None, words))


class Finding(msgspec.Struct, omit_defaults=True):
    """One piece of damage; ``position`` is a place in the file, ``log_offset`` one in the log."""

    kind: str
    path: str
    reason: str
    position: int | None = None
    log_offset: int | None = None
    hits: list[Hit] = []
    hit_count: int = 0

    def add_hit(self, hit: Hit) -> None:
        """Name one more message."""
        self.hit_count += 1
        if len(self.hits) < MOST_HITS:
            self.hits.append(hit)

    def __str__(self) -> str:
        at = "" if self.position is None else f" at position {self.position}"
        log = "" if self.log_offset is None else f" (log offset {self.log_offset})"
        hits = "; ".join(map(str, self.hits))
        more = f" and {self.hit_count - len(self.hits)} more" if self.hit_count > len(self.hits) else ""
        return f"{self.path}{at}{log}: {self.reason}" + (f" [{hits}{more}]" if hits else "")


class AuditReport:
    """The result of an audit; the parts of the audit write into it.

    ``cut_at`` is the log offset of the first damage in the log, ``sound_behind`` counts the sound records behind it.
    ``directories`` are those with findings. ``wrong_queues`` holds, for each queue directory with findings, up to which
    slot its entries have expired, or ``None`` when the log before ``cut_at`` has records of the queue. ``wrong_blanks``
    are path, position and right size of blanks, ``backups`` the config files whose ``.bak`` has to take their place.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.is_open = False
        self.end = 0
        self.cut_at: int | None = None
        self.sound_behind = 0
        self.wrong_blanks: list[tuple[str, int, int]] = []
        self.backups: list[str] = []
        self.directories: set[str] = set()
        self.wrong_queues: dict[str, int | None] = {}
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.notes: list[str] = []

    def __repr__(self) -> str:
        return f"<AuditReport {self.root} {dict(self.totals)}>"

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not self.totals

    def add(self, finding: Finding) -> None:
        """Take a finding; all but the first of its kind are only counted."""
        self.totals[finding.kind] += 1
        self.directories.add(os.path.dirname(finding.path))
        if self.totals[finding.kind] <= MOST_FINDINGS:
            self.findings.append(finding)

    def add_more(self, kind: str, count: int) -> None:
        """Count findings that are not told one by one."""
        if count > 0:
            self.totals[kind] += count

    def add_cut(self, log_offset: int) -> None:
        """Take a place where a walk over the log would end."""
        self.cut_at = log_offset if self.cut_at is None else min(self.cut_at, log_offset)

    def add_or_note(self, finding: Finding) -> None:
        """Take what is damage after a clean stop, and to be expected while a broker runs or after a kill."""
        if self.is_open:
            self.notes.append(str(finding))
        else:
            self.add(finding)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "store": self.root,
            "sound": self.is_sound,
            "open": self.is_open,
            "logEnd": self.end,
            "firstDamage": self.cut_at,
            "soundRecordsBehind": self.sound_behind,
            "counts": {what: count for what, count in self.counts.items() if count},
            "damage": dict(self.totals),
            "findings": msgspec.to_builtins(self.findings),
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """Return the report for people."""
        words = [f"{count} {what}" for what, count in self.counts.items() if count]
        lines = [f"{self.root}: {', '.join(words) if words else 'nothing in it'}"]
        lines += [f"note: {note}" for note in self.notes]
        for kind, total in self.totals.items():
            listed = [finding for finding in self.findings if finding.kind == kind][:MOST_LINES]
            lines += [f"{kind}: {finding}" for finding in listed]
            if total > len(listed):
                lines.append(f"{kind}: {total - len(listed)} more findings are not listed")
        damage = ", ".join(f"{kind} {total}" for kind, total in self.totals.items())
        lines.append("sound" if self.is_sound else f"damaged: {damage}")
        return lines


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
        if not one.size or one.size != size:
            reason = f"the file has {one.size} bytes, the others have {size}" if one.size else "the file is empty"
            finding = Finding(kind, one.path, reason)
            if any(later.size for later in found[number:]):
                report.add(finding)
            else:
                report.notes.append(f"{finding}: its creation was cut off")
            if kind == "log" and not one.size and not is_last:
                report.add_cut(one.base_offset)
        elif one.base_offset % size:
            report.add(Finding(kind, one.path, f"the file does not begin at a multiple of {size}"))
            continue
        _check_gap(found, number, size, report, kind)
        if one.size:
            kept.append(one._replace(size=min(one.size, size)))
    return kept


def _check_gap(found: Sequence[SegmentFile], number: int, size: int, report: AuditReport, kind: str) -> None:
    if not number or not size:
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
