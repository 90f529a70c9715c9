"""How full the disks are, and what follows from it (``CleanCommitLogService.isSpaceToDelete``; store.md §8.2).

    percent in use of the log's path (the least full of several), then of the queues' path
    > warning level    the store takes no messages, files go before their time
    > forced level     files go before their time; a path above it gets no new log files
    > max used         expired files go at any hour
    else               messages are taken again; only the log's path at or below the forced level ends a full disk

Percentages are rounded up, and counted against what an ordinary user may fill. A path that is not there yet is measured
where it will be made; one that cannot be measured counts as -1, which cleans by time at any hour.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from .cleaningconfig import CleaningConfig
from .files import Files

UNKNOWN = -1


class DiskUse(NamedTuple):
    """Percentages in use: of each log path, of the queues' path and of the index's path."""

    log: Mapping[str, int]
    queues: int
    keys: int

    @property
    def least_log(self) -> int:
        """The percentage of the log path that is the least full."""
        return min(self.log.values())

    def remark(self) -> str:
        """Return the words that stand in Java's answer to a send (``SendMessageProcessor.diskUtil``)."""
        log, queues, index = self.least_log / 100, self.queues / 100, self.keys / 100
        return f"CL: {log:5.2f} CQ: {queues:5.2f} INDEX: {index:5.2f}"


class DiskReport(NamedTuple):
    """Percentages in use, and the bytes of the disk behind the store directory, which are 0 when nobody can tell."""

    use: DiskUse
    total: int
    free: int


class DiskVerdict(NamedTuple):
    """What the figures mean; ``is_full`` is ``None`` when they leave it as it was."""

    is_full: bool | None
    is_forced: bool
    exceeds_limit: bool
    full_paths: frozenset[str]


def measure_use(files: Files, path: str) -> int:
    """Return how many percent of the disk behind the path are in use, rounded up; waits for the disk."""
    while not files.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        used, usable = files.disk_usage(path)
    except OSError:
        return UNKNOWN
    return -(-used * 100 // (used + usable)) if used + usable else UNKNOWN


def measure_capacity(files: Files, path: str) -> tuple[int, int]:
    """Return the bytes of the disk behind the path, and those not in use; waits for the disk."""
    try:
        return files.disk_capacity(path)
    except OSError:
        return 0, 0


def judge_use(use: DiskUse, config: CleaningConfig) -> DiskVerdict:
    """Return what the figures mean, with Java's order of the checks."""
    full_paths = frozenset(path for path, percent in use.log.items() if percent > config.forced_percent)
    is_full: bool | None = None
    for percent in (use.least_log, use.queues):
        if percent > config.warning_percent:
            return DiskVerdict(True, True, True, full_paths)
        if percent > config.forced_percent:
            return DiskVerdict(is_full, True, True, full_paths)
        is_full = False
    exceeds = any(not 0 <= percent <= config.max_used_percent for percent in (use.least_log, use.queues))
    return DiskVerdict(is_full, False, exceeds, full_paths)
