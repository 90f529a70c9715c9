"""Makes a damaged store sound again: cuts the log at its first damage and has the rest written anew from the log.

    audit -> plan, in words -> (whoever asked agrees) -> apply -> open, which walks the whole log -> close

Rules (store.md §7.6, §15.1):

- The log is cut at the first bytes that are no sound record, or where a file is missing. What lies behind is lost
  unless its files are copied first.
- Queues and index are removed where they are wrong; opening writes them anew. A queue without a record in the log
  keeps its numbering: its entries become pre-blank ones.
- ``abort`` is made and ``checkpoint`` removed before anything else, so that opening walks the whole log, also after a
  repair that was cut off. Files that do not belong into the log are left for people to look at.
"""

import errno
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from ...common.errors import ConfigError, StoreError
from ..consumequeue.consume_queue import PRE_BLANK
from ..files.files import OS_FILES, Files, zero_range
from ..files.segments import SegmentFile
from ..files.store_config import ENTRY_BYTES, StoreConfig
from ..message_store import MessageStore
from ..timer.timer_check import REBUILDING, TimerCheck, load_timer_check, save_timer_check, timer_check_path
from .audit_report import AuditReport, Finding, find_files
from .small_files_audit import KIND
from .store_audit import StoreAudit

_CHUNK = 4 << 20
_NOBODY = bytes(8)  # a store host that no record gets: nothing is appended


@dataclass
class RepairPlan:
    """What is to be done; ``lines`` says it."""

    config: StoreConfig
    segments: list[SegmentFile]
    report: AuditReport

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.report.is_sound

    @property
    def cut_files(self) -> list[SegmentFile]:
        """The files of the log that lose something."""
        cut_at = self.report.cut_at
        return [] if cut_at is None else [one for one in self.segments if one.base_offset + one.size > cut_at]

    @property
    def short_files(self) -> list[SegmentFile]:
        """The files of the log that stay and are too short."""
        size, cut_at = self.config.segment_bytes, self.report.cut_at
        return [one for one in self.segments if one.size < size and (cut_at is None or one.base_offset < cut_at)]

    @property
    def rewrites_index(self) -> bool:
        """Whether the index is removed and written anew."""
        return "index" in self.report.totals or self.report.cut_at is not None

    def lines(self) -> list[str]:
        """Return what will be done."""
        report = self.report
        if self.is_empty:
            return ["nothing to repair"]
        lines: list[str] = []
        if report.cut_at is not None:
            lines.append(_cut_line(self, report.cut_at))
        size = self.config.segment_bytes
        lines += [f"{one.path}: give it its full size of {size} bytes again" for one in self.short_files]
        lines += [f"{path} at position {position}: correct the blank" for path, position, _ in report.wrong_blanks]
        lines += [self._queue_line(*wrong) for wrong in report.wrong_queues.items()]
        if self.rewrites_index:
            lines.append(f"{self.config.root}/index: write it anew from the log")
        if KIND in report.totals:
            lines.append(f"{self.config.root}/timerlog and timerwheel: make them anew from the timer topic")
        lines += [f"{path}: put {path}.bak, which is older, in its place" for path in report.backups]
        lines += [f"{one.path}: not repaired: {one.reason}" for one in report.findings if _is_left(one, report)]
        return [*lines, "walk the whole log, zero what stands behind its end, and write what queues and index lack"]

    def _queue_line(self, directory: str, expired: int | None) -> str:
        cut_at = self.report.cut_at
        if not self.segments or (cut_at is not None and cut_at <= self.segments[0].base_offset):
            return f"{directory}: remove the queue, nothing of the log is left"
        kept = "" if expired is None else f"; no record is left, it goes on at {expired}"
        return f"{directory}: write the queue anew from the log{kept}"


def plan_repair(audit: StoreAudit) -> RepairPlan:
    """Return what would make the audited store sound.

    Raises:
        ConfigError: A file does not belong into the log.
    """
    config, files = audit.found_config, OS_FILES
    stray = AuditReport(config.root)
    segments = find_files(files, config.all_log_directories, stray, "log")
    paths = [finding.path for finding in stray.findings]
    paths += [one.path for one in segments if config.segment_bytes and one.base_offset % config.segment_bytes]
    if paths:
        raise ConfigError(f"{paths[0]} does not belong into the log; move it away first")
    return RepairPlan(config, segments, audit.report)


def save_cut(plan: RepairPlan, folder: str, files: Files = OS_FILES) -> None:
    """Copy the files of the log that will lose something, as they are.

    Raises:
        ConfigError: The folder holds something, or cannot be written to.
    """
    target = os.path.join(folder, "commitlog")
    try:
        if files.list(target):
            raise ConfigError(f"{target} is not empty", key="--save-cut")
        files.make_directories(target)
        for segment in plan.cut_files:
            _copy(files, segment, os.path.join(target, os.path.basename(segment.path)))
        files.sync_directory(target)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}", key="--save-cut") from error


def apply_repair(plan: RepairPlan, files: Files = OS_FILES) -> None:
    """Do what the plan says; the caller holds the lock of the store.

    Raises:
        StoreError: A file cannot be changed.
    """
    try:
        _force_walk(plan.config.root, files)
        for path, position, room in plan.report.wrong_blanks:
            with _writable(files, path) as descriptor:
                files.pwrite(descriptor, room.to_bytes(4, "big"), position)
        _cut_log(plan, files)
        for directory, expired in plan.report.wrong_queues.items():
            _mend_queue(plan.config, files, directory, expired)
        if plan.rewrites_index:
            _clear(files, os.path.join(plan.config.root, "index"))
        if KIND in plan.report.totals:
            _drop_timers(files, plan.config.root)
        for path in plan.report.backups:
            files.rename(f"{path}.bak", path)
    except OSError as error:
        what = error.filename or plan.config.root
        raise StoreError(f"{what} cannot be changed: {error.strerror}") from error


def reopen(config: StoreConfig, now_ms: Callable[[], int]) -> None:
    """Open the store, which writes queues and index anew, and close it cleanly."""
    MessageStore.open(config, now_ms=now_ms, store_host=_NOBODY).close()


def _is_left(finding: Finding, report: AuditReport) -> bool:
    return finding.kind == "config" and finding.path not in report.backups


def _cut_line(plan: RepairPlan, cut_at: int) -> str:
    names = ", ".join(one.path for one in plan.cut_files)
    lost = max(0, plan.report.end - cut_at)  # a file that is missing may lie behind the end
    return (
        f"cut the log at {cut_at}: {lost} bytes are lost, with {plan.report.sound_behind} sound records behind the "
        f"damage, in {names}"
    )


def _force_walk(root: str, files: Files) -> None:
    descriptor = files.create(os.path.join(root, "abort"), 0)
    files.close(descriptor)
    checkpoint = os.path.join(root, "checkpoint")
    if files.exists(checkpoint):
        files.unlink(checkpoint)
    files.sync_directory(root)


def _cut_log(plan: RepairPlan, files: Files) -> None:
    """Remove what lies behind the cut, the last file first; files that are too short get their size back."""
    cut_at, size = plan.report.cut_at, plan.config.segment_bytes
    for segment in reversed(plan.segments):
        if cut_at is not None and segment.base_offset >= cut_at:
            files.unlink(segment.path)
            continue
        start = size if cut_at is None else min(size, cut_at - segment.base_offset)
        if segment.size == size and start == size:
            continue
        with _writable(files, segment.path) as descriptor:
            files.truncate(descriptor, size)
            zero_range(files, descriptor, start, size)
    for directory in filter(files.exists, plan.config.all_log_directories):
        files.sync_directory(directory)


def _mend_queue(config: StoreConfig, files: Files, directory: str, expired: int | None) -> None:
    """Remove the files of a queue; one without a record left keeps a last file of pre-blank entries."""
    _clear(files, directory)
    if not expired:
        return
    position = expired * ENTRY_BYTES
    base = (position - ENTRY_BYTES) // config.queue_file_bytes * config.queue_file_bytes
    descriptor = files.create(f"{directory}/{base:020d}", config.queue_file_bytes)
    try:
        files.pwrite(descriptor, PRE_BLANK * ((position - base) // ENTRY_BYTES), 0)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.sync_directory(directory)


def _drop_timers(files: Files, root: str) -> None:
    """Have the timer files made anew: the progress stays, if it makes sense."""
    path = timer_check_path(root)
    check = load_timer_check(files, path) or TimerCheck()
    save_timer_check(files, path, check._replace(log_end=REBUILDING, master_queue_offset=0))
    _clear(files, os.path.join(root, "timerlog"))


def _clear(files: Files, directory: str) -> None:
    for entry in reversed(files.list(directory)):
        if not entry.is_directory:
            files.unlink(f"{directory}/{entry.name}")


@contextmanager
def _writable(files: Files, path: str) -> Generator[int]:
    """Open a file for a change that is on disk afterwards."""
    descriptor = files.open(path, writable=True)
    try:
        yield descriptor
        files.sync(descriptor)
    finally:
        files.close(descriptor)


def _copy(files: Files, segment: SegmentFile, target: str) -> None:
    """Copy a file, leaving out its holes."""
    source, copy = files.open(segment.path), files.create(target, segment.size)
    try:
        position: int | None = files.next_data(source, 0)
        while position is not None and position < segment.size:
            data = files.pread(source, _CHUNK, position)
            if files.pwrite(copy, data, position) != len(data) or not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
            position = files.next_data(source, position + len(data))
        files.sync(copy)
    finally:
        files.close(source)
        files.close(copy)
