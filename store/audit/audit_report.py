"""What an audit of a store found: counts, damage, and notes.

Rules:

- A finding is damage: something that a sound store does not hold. A note is what a reader of the report should know
  and what the next start puts right by itself, such as the torn tail of a broker that was killed.
- Of each kind a bounded number of findings is kept, and fewer are listed in the text; the total counts all of them.
"""

import os
from collections import Counter
from typing import Any, Final

import msgspec

MOST_FINDINGS: Final = 100
MOST_LINES: Final = 20
MOST_HITS: Final = 20


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
