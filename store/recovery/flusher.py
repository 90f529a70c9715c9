"""The flusher: two threads that bring written bytes to the disk when asked, one for the log, one for all else.

Rules (store.md §6.1; DESIGN "the flusher"):

- Nothing here waits on time. The owner asks, with what there is to flush at that moment; all requests that arrive
  while the disk is busy are served by the next round together (group commit).
- Whoever waits for the log never waits for queues: these have a thread of their own.
- A log round: files, then the directories in which they are new; then ``flushed`` moves. A file that somebody has
  removed or cut meanwhile is a failure: its bytes would end with the process, or are gone.
- A round of the rest: queues and index, their directories, checkpoint, next log file. What the checkpoint says was
  true when the round was asked for, or is by what the round did before.
- After a failed flush every later request fails too: the kernel may have dropped the pages. One line is logged.
- A round that finds no descriptor free is put off until the next request; files of the log are open.
- ``done`` callbacks run on the thread of the log.
"""

import errno
import logging
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from ...common.errors import StoreNotWritableError
from ..commitlog.commit_log import OpenSegment
from ..files.checkpoint import Checkpoint, save_checkpoint
from ..files.file_sync import CoalescingWorker, Done, sync_all
from ..files.files import NO_DESCRIPTOR, Files

_log = logging.getLogger(__name__)


class Flushed(NamedTuple):
    """How far the log is on disk: up to the position, and all records stored up to the instant."""

    log_offset: int = 0
    until_ms: int = 0


class LogWork(Struct):
    """What was written to the log since the last request; taken on the owner's thread."""

    reaches: Flushed
    segments: list[OpenSegment] = field(default_factory=list[OpenSegment])
    full: list[int] = field(default_factory=list[int])  # descriptors that nobody writes to any more, to be closed
    directories: set[str] = field(default_factory=set[str])

    def merge(self, later: "LogWork") -> None:
        """Take over a later request."""
        self.reaches = later.reaches
        self.segments += later.segments
        self.full += later.full
        self.directories |= later.directories


class FileWork(Struct):
    """Queue and index files to flush, directories with new names, and what follows then."""

    paths: list[str] = field(default_factory=list[str])
    directories: list[str] = field(default_factory=list[str])
    checkpoint: Checkpoint | None = None
    spare: tuple[str, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.paths or self.directories or self.checkpoint or self.spare)

    def merge(self, later: "FileWork") -> None:
        """Take over a later request."""
        self.paths += later.paths
        self.directories += later.directories
        self.checkpoint = later.checkpoint or self.checkpoint
        self.spare = later.spare or self.spare


class Flusher:
    """Flushes for one store (``FlushRealTimeService``, ``GroupCommitService``, ``FlushConsumeQueueService``)."""

    def __init__(self, files: Files, checkpoint_path: str, flushed: Flushed = Flushed()) -> None:  # noqa: B008 # a tuple
        self._files = files
        self._checkpoint_path = checkpoint_path
        self._log_rounds = CoalescingWorker("rocketlet-log-flusher", self._serve_log)
        self._file_rounds = CoalescingWorker("rocketlet-flusher", self._serve_files)
        self._log_put_off: LogWork | None = None  # touched by whoever serves only
        self._files_put_off: FileWork | None = None
        self.flushed = flushed
        self.failure: StoreNotWritableError | None = None

    def __repr__(self) -> str:
        return f"<Flusher at {self.flushed.log_offset}{f', failed: {self.failure}' if self.failure else ''}>"

    @property
    def is_log_put_off(self) -> bool:
        """Whether a flush of the log waits for a descriptor, to be asked for again."""
        return self._log_put_off is not None

    @property
    def are_files_put_off(self) -> bool:
        """Whether a flush of queues and index waits for a descriptor, to be asked for again."""
        return self._files_put_off is not None

    def request_log(self, work: LogWork, done: Done | None = None) -> None:
        """Flush the log on its thread; ``done`` gets the failure or ``None``."""
        self._log_rounds.request(work, done)

    def request_files(self, work: FileWork) -> None:
        """Flush the rest on its thread."""
        self._file_rounds.request(work)

    def flush_log(self, work: LogWork) -> None:
        """Flush the log on the caller's thread.

        Raises:
            StoreNotWritableError: This or an earlier flush failed, or could not be done.
        """
        _raise_unless_done(self._log_rounds.run_now(work), is_put_off=self.is_log_put_off)

    def flush_files(self, work: FileWork) -> None:
        """Flush the rest on the caller's thread (raises as ``flush_log`` does)."""
        _raise_unless_done(self._file_rounds.run_now(work), is_put_off=self.are_files_put_off)

    def close(self) -> None:
        """Serve what was asked for and end the threads."""
        self._log_rounds.close()
        self._file_rounds.close()

    def _serve_log(self, work: LogWork) -> StoreNotWritableError | None:
        if self._log_put_off is not None:
            self._log_put_off.merge(work)
            work, self._log_put_off = self._log_put_off, None
        try:
            if self.failure is None:
                self._flush_log(work)
        except OSError as error:
            if self._may_put_off(error, "the log"):
                self._log_put_off = replace(work, segments=[], full=[])
        finally:
            for descriptor in work.full:
                self._files.close(descriptor)
        return self.failure

    def _flush_log(self, work: LogWork) -> None:
        for segment in dict.fromkeys(work.segments):
            self._files.sync(segment.descriptor)
            if not self._files.has_name(segment.descriptor):
                raise FileNotFoundError(errno.ENOENT, "it was removed while it was written to", segment.path)
            self._files.check_size(segment.descriptor, segment.size, segment.path)
        if work.directories:
            sync_all(self._files, (), sorted(work.directories))
        self.flushed = work.reaches

    def _serve_files(self, work: FileWork) -> StoreNotWritableError | None:
        if self._files_put_off is not None:
            self._files_put_off.merge(work)
            work, self._files_put_off = self._files_put_off, None
        try:
            if self.failure is None:
                self._flush_files(work)
        except OSError as error:
            if self._may_put_off(error, "queues and index"):
                self._files_put_off = work
        return self.failure

    def _flush_files(self, work: FileWork) -> None:
        sync_all(self._files, list(dict.fromkeys(work.paths)), list(dict.fromkeys(work.directories)))
        if work.checkpoint is not None:
            save_checkpoint(self._files, self._checkpoint_path, work.checkpoint)
        if work.spare is not None:
            self._prepare(*work.spare)

    def _prepare(self, path: str, size: int) -> None:
        try:
            self._files.close(self._files.create(path, size))
        except OSError as error:
            _log.warning(
                "allocating %s ahead of its use failed: %s", path, error
            )  # the commit that needs it creates it, or fails

    def _may_put_off(self, error: OSError, what: str) -> bool:
        if error.errno in NO_DESCRIPTOR:
            _log.warning("postponing the flush of %s: %s", what, error)
            return True
        if self.failure is None:
            self.failure = StoreNotWritableError(f"a flush failed, rejecting writes: {error}")
            _log.error("%s; restart to accept them again, reads go on", self.failure)
        return False


def _raise_unless_done(failure: StoreNotWritableError | None, *, is_put_off: bool) -> None:
    if failure is not None:
        raise failure
    if is_put_off:
        raise StoreNotWritableError("no descriptor was free to flush with")
