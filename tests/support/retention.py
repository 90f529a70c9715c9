"""Stores whose files grow old, and disks that say how full they are."""

import os
import pathlib
from collections.abc import Callable
from typing import Any

from stores import StoreDirectory

from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import CleaningConfig
from rocketlet.store.message_store import MessageStore

HOUR_MS = 3_600_000


class MeasuredFiles(Files):
    """A disk that is as full as the test says: percent in use by the beginning of the path."""

    def __init__(self, percent: int = 0) -> None:
        self.percents: dict[str, int] = {"/": percent}
        self.removed: list[str] = []
        self.unlinks_left: int | None = None

    def disk_usage(self, path: str) -> tuple[int, int]:
        """Answer for the longest path that the test named."""
        percent = self.percents[max((one for one in self.percents if path.startswith(one)), key=len)]
        if percent < 0:
            raise OSError(5, "Input/output error")
        return percent, 100 - percent

    def unlink(self, path: str) -> None:
        """Note the file; fail when as many were removed as the test allows."""
        if self.unlinks_left is not None:
            if not self.unlinks_left:
                raise PermissionError(1, "Operation not permitted", path)
            self.unlinks_left -= 1
        self.removed.append(path)
        super().unlink(path)


def cleaned_directory(root: pathlib.Path, cleaning: dict[str, Any] | None = None, **settings: Any) -> StoreDirectory:
    """Return a store of tiny files whose log files may go after an hour, at any hour of the day."""
    every_hour = ";".join(map(str, range(24)))
    wishes: dict[str, Any] = {"reserved_hours": 1, "delete_when": every_hour, "log_pause_ms": 0, "queue_pause_ms": 0}
    return StoreDirectory(root, cleaning=CleaningConfig(**{**wishes, **(cleaning or {})}), **settings)


def age(directory: StoreDirectory, numbers: range, hours: float) -> None:
    """Let those files of the log look as if they were last written so many hours ago, by the clock of the store."""
    at_ns = (directory.now_ms - int(hours * HOUR_MS)) * 1_000_000
    for number in set(numbers).intersection(log_files(directory)):
        os.utime(directory.segment(number), ns=(at_ns, at_ns))


def log_files(directory: StoreDirectory) -> list[int]:
    """Return the numbers of the log's files that are on disk."""
    names = [path.name for log in directory.config.all_log_directories for path in pathlib.Path(log).iterdir()]
    return sorted(int(name) // directory.config.segment_bytes for name in names)


def clean_until(store: MessageStore, is_done: Callable[[], bool], most_rounds: int = 20) -> None:
    """Clean until something is so."""
    for _ in range(most_rounds):
        if is_done():
            return
        store.clean_now()
    assert is_done(), f"not so after {most_rounds} rounds"
