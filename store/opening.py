"""Builds the parts of a store from its directory: lock, load, recover.

The order is fixed (store.md §6.4, §7.1): the lock before anything is touched; settings and damage are judged before
anything is changed; ``abort`` is on disk before the first record can be.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..common.errors import ConfigError, RocketletError
from .checkpoint import Checkpoint, load_checkpoint
from .commitlog import CommitLog
from .config import SEGMENT_KEY, StoreConfig
from .consumequeue import QueueSpace
from .descriptors import Descriptors
from .dispatcher import Dispatcher
from .files import Files, descriptor_limit
from .flush import Flusher
from .index import Index
from .indexfile import IndexSpace
from .lock import StoreLock
from .queues import Queues
from .recovery import Recovered, Recovery
from .segments import empty_last_file, list_segments

_MOST_DESCRIPTORS = 4_096
_MOST_MAPS = 512


@dataclass
class Parts:
    """What a message store works with."""

    files: Files
    lock: StoreLock
    descriptors: Descriptors
    log: CommitLog
    queue_space: QueueSpace
    queues: Queues
    index_space: IndexSpace
    index: Index | None
    dispatcher: Dispatcher
    flusher: Flusher
    checkpoint: Checkpoint
    recovered: Recovered

    def close(self) -> None:
        """Let go of all files, the lock last."""
        self.flusher.close()
        self.log.close()
        self.descriptors.close()
        self.lock.release()


def open_parts(config: StoreConfig, now_ms: Callable[[], int], files: Files) -> Parts:
    """Lock, load and recover the directory.

    Raises:
        ConfigError: The directory cannot be used, or was written with other sizes.
        StoreInUseError: Somebody else has it open.
        StoreDamagedError: Damage before valid data.
    """
    lock = StoreLock(files, config.root)
    try:
        files.make_directories(config.root)
        lock.acquire()
        return _load(config, now_ms, files, lock)
    except OSError as error:
        lock.release()
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise ConfigError(f"cannot use the store directory {config.root}: {what}", key="storePathRootDir") from error
    except RocketletError:
        lock.release()
        raise


def abort_path(config: StoreConfig) -> str:
    """Return the path of the file whose existence means "not cleanly closed"."""
    return os.path.join(config.root, "abort")


def _load(config: StoreConfig, now_ms: Callable[[], int], files: Files, lock: StoreLock) -> Parts:
    limit = descriptor_limit()
    descriptors = Descriptors(files, min(limit // 4, _MOST_DESCRIPTORS))
    log = CommitLog(files, config.log_directory, config.segment_bytes, max_maps=max(4, min(limit // 8, _MOST_MAPS)))
    queue_root = os.path.join(config.root, "consumequeue")
    queue_space = QueueSpace(files, queue_root, config.queue_file_bytes, descriptors)
    batch_topics = [entry.name for entry in files.list(os.path.join(config.root, "batchconsumequeue"))]
    queues = Queues(queue_space, batch_topics)
    sizes = (config.index_slots, config.index_entries)
    index_space = IndexSpace(files, os.path.join(config.root, "index"), sizes, descriptors)
    index = Index(index_space, now_ms) if config.has_index else None
    checkpoint_path = os.path.join(config.root, "checkpoint")
    checkpoint = load_checkpoint(files, checkpoint_path)
    try:
        recovered = _recover(config, files, (log, queues, index), checkpoint)
        files.make_directories(config.log_directory)
        _write_abort(config, files)
    except (OSError, RocketletError):
        log.close()
        descriptors.close()
        raise
    dispatcher = Dispatcher(index, config.delays_ms)
    dispatcher.dispatched_offset = recovered.end
    flusher = Flusher(files, checkpoint_path)
    return Parts(
        files,
        lock,
        descriptors,
        log,
        queue_space,
        queues,
        index_space,
        index,
        dispatcher,
        flusher,
        checkpoint,
        recovered,
    )


def _recover(
    config: StoreConfig, files: Files, parts: tuple[CommitLog, Queues, Index | None], checkpoint: Checkpoint
) -> Recovered:
    log, queues, index = parts
    segments = list_segments(files, [config.log_directory], config.segment_bytes, SEGMENT_KEY)
    empty = empty_last_file(files, config.log_directory)
    queues.load()
    if index is not None:
        index.load()
    if empty is not None:
        files.unlink(empty)
    is_clean = not files.exists(abort_path(config))
    return Recovery(files, config, log, queues, index).run(segments, checkpoint, is_clean=is_clean)


def _write_abort(config: StoreConfig, files: Files) -> None:
    descriptor = files.create(abort_path(config), 0)
    try:
        files.truncate(descriptor, 0)
        files.pwrite(descriptor, str(os.getpid()).encode(), 0)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.sync_directory(config.root)
