"""The flusher: a thread that brings written bytes to the disk when asked.

Rules (store.md §6.1; DESIGN "the flusher"):

- Nothing here waits on time. The owner asks, with what there is to flush at that moment (``FlushWork``); all requests
  that arrive while the disk is busy are served by the next round together (group commit).
- Order of a round: log, new directories, queues and index, checkpoint. The checkpoint never runs ahead.
- After a failed flush every later request fails too: the kernel may have dropped the pages.
- A round that finds no descriptor free has flushed the log, whose files are open; the rest waits for the next request.
- ``done`` callbacks run on the flusher's thread.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..common.errors import StoreNotWritableError
from .checkpoint import Checkpoint, save_checkpoint
from .commitlog import Segment
from .files import NO_DESCRIPTOR, Files

_log = logging.getLogger(__name__)

Done = Callable[[StoreNotWritableError | None], None]


@dataclass
class FlushWork:
    """What was written since the last request; taken on the owner's thread."""

    log_end: int
    segments: list[tuple[Segment, bool]] = field(default_factory=list[tuple[Segment, bool]])
    paths: set[str] = field(default_factory=set[str])
    directories: set[str] = field(default_factory=set[str])
    spare: tuple[str, int] | None = None
    checkpoint: Checkpoint | None = None

    def merge(self, later: "FlushWork") -> None:
        """Take over a later request."""
        self.log_end = later.log_end
        self.segments += later.segments
        self.paths |= later.paths
        self.directories |= later.directories
        self.spare = later.spare or self.spare
        self.checkpoint = later.checkpoint or self.checkpoint


class Flusher:
    """One thread, started by the first request (``FlushRealTimeService``, ``GroupCommitService``)."""

    def __init__(self, files: Files, checkpoint_path: str) -> None:
        self._files = files
        self._checkpoint_path = checkpoint_path
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._work: FlushWork | None = None
        self._put_off: FlushWork | None = None  # touched by whoever serves only
        self._waiters: list[Done] = []
        self._is_closing = False
        self.flushed_offset = 0
        self.failure: StoreNotWritableError | None = None

    def __repr__(self) -> str:
        return f"<Flusher at {self.flushed_offset}{f', failed: {self.failure}' if self.failure else ''}>"

    def request(self, work: FlushWork, done: Done) -> None:
        """Flush the work and everything asked for before; ``done`` gets the failure or ``None``."""
        with self._condition:
            if self._work is None:
                self._work = work
            else:
                self._work.merge(work)
            self._waiters.append(done)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rocketlet-flusher", daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self) -> None:
        """Serve what was asked for and end the thread."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def flush_now(self, work: FlushWork) -> None:
        """Flush on the caller's thread; only when the flusher is closed.

        Raises:
            StoreNotWritableError: This or an earlier flush failed, or could not be done.
        """
        self._serve(work)
        if self._put_off is not None:
            raise StoreNotWritableError("no descriptor was free to flush queues and index")
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._work is not None or self._is_closing)
                work, self._work = self._work, None
                waiters, self._waiters = self._waiters, []
            if work is None:
                return
            self._serve(work)
            for done in waiters:
                done(self.failure)

    def _serve(self, work: FlushWork) -> None:
        if self._put_off is not None:
            self._put_off.merge(work)
            work, self._put_off = self._put_off, None
        try:
            if self.failure is None:
                self._flush(work)
        except OSError as error:
            self._judge(work, error)
        finally:
            for descriptor in {segment.descriptor for segment, is_full in work.segments if is_full}:
                self._files.close(descriptor)

    def _judge(self, work: FlushWork, error: OSError) -> None:
        if error.errno in NO_DESCRIPTOR:
            _log.warning("the flush of queues and index is put off: %s", error)
            self._put_off = replace(work, segments=[])
        else:
            self.failure = StoreNotWritableError(f"a flush failed, the store takes no more writes: {error}")

    def _flush(self, work: FlushWork) -> None:
        for descriptor in {segment.descriptor: None for segment, _ in work.segments}:
            self._files.sync(descriptor)
        self.flushed_offset = work.log_end
        for directory in work.directories:
            with suppress(FileNotFoundError):  # the queue was removed after it was written
                self._files.sync_directory(directory)
        self._sync_paths(work.paths)
        if work.checkpoint is not None:
            save_checkpoint(self._files, self._checkpoint_path, work.checkpoint)
        if work.spare is not None:
            self._prepare(*work.spare)

    def _prepare(self, path: str, size: int) -> None:
        try:
            self._files.close(self._files.create(path, size))
        except OSError as error:
            _log.warning("cannot prepare %s: %s", path, error)  # the commit that needs it creates it, or fails

    def _sync_paths(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                descriptor = self._files.open(path, writable=True)
            except FileNotFoundError:
                continue  # the queue was removed after it was written
            try:
                self._files.sync(descriptor)
            finally:
                self._files.close(descriptor)
