"""Builds the parts of a store from its directory: lock, load, recover.

The order is fixed (store.md §6.4, §7.1): the lock before anything is touched; settings and damage are judged before
anything is changed; ``abort`` is on disk before the first record can be.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from ..common.errors import ConfigError, RocketletError, StoreDamagedError
from .commitlog.commit_log import CommitLog, LogPaths, check_directories
from .consumequeue.consume_queue import QueueSpace
from .consumequeue.queue_table import (
    BatchQueueTable,
    ExtQueues,
    QueueTable,
    batch_space,
    check_kinds,
    load_batch_topics,
)
from .files.checkpoint import Checkpoint, load_checkpoint
from .files.files import Descriptors, Files, descriptor_limit, make_lasting_directory, write_label
from .files.segments import Layout, SegmentFile, complete_cut_off, empty_last_file, list_segments, remove_unused
from .files.store_config import SEGMENT_KEY, StoreConfig
from .files.store_lock import StoreLock, refuse_unknown_formats
from .index.index_file import IndexSpace
from .index.key_index import KeyIndex
from .recovery.dispatcher import Dispatcher, EntryRules
from .recovery.flusher import Flushed, Flusher
from .recovery.recovery import (
    Recovered,
    Recovery,
    checkpoint_after_recovery,
    mark_unsynced,
    save_if_changed,
    sync_recovered_log,
    sync_recovered_queues,
)
from .timer.timer_check import timer_check_path
from .timer.timer_log import find_timer_log, timer_log_directory

_MOST_DESCRIPTORS = 4_096
_MOST_MAPS = 512


class StoreParts(Struct):
    """What a message store works with."""

    files: Files
    lock: StoreLock
    descriptors: Descriptors
    log: CommitLog
    queue_space: QueueSpace
    queues: QueueTable
    index_space: IndexSpace
    index: KeyIndex | None
    rules: EntryRules
    dispatcher: Dispatcher
    flusher: Flusher
    checkpoint: Checkpoint
    recovered: Recovered
    is_clean: bool
    has_timers: bool

    def close(self) -> None:
        """Let go of all files, the lock last; nothing is flushed any more."""
        self.log.close()
        self.descriptors.close()
        self.lock.release()


def open_parts(config: StoreConfig, now_ms: Callable[[], int], files: Files, *, repairs: bool = False) -> StoreParts:
    """Lock, load and recover the directory.

    Raises:
        ConfigError: The directory cannot be used, or was written with other sizes.
        StoreInUseError: Somebody else has it open.
        StoreDamagedError: Damage before valid data.
    """
    lock = StoreLock(files, config.root)
    try:
        make_lasting_directory(files, config.root)
        lock.acquire()
        refuse_unknown_formats(files, config.root)
        return _load(config, now_ms, (files, lock), repairs=repairs)
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


def _load(
    config: StoreConfig, now_ms: Callable[[], int], held: tuple[Files, StoreLock], *, repairs: bool
) -> StoreParts:
    files, lock = held
    descriptors = Descriptors(files, min(descriptor_limit() // 4, _MOST_DESCRIPTORS) // config.sharers)
    log = _make_log(config, files)
    queues = _make_queues(config, files, descriptors)
    sizes = (config.index_slots, config.index_entries)
    index_space = IndexSpace(files, os.path.join(config.root, "index"), sizes, descriptors)
    index = KeyIndex(index_space, now_ms) if config.has_index else None
    checkpoint = load_checkpoint(files, _checkpoint_path(config))
    is_clean = not files.exists(abort_path(config))
    has_timers = _has_timers(config, files)
    try:
        recovered = _recover(config, files, (log, queues, index), checkpoint, repairs=repairs)
        for directory in config.log_directories:
            make_lasting_directory(files, directory)
        checkpoint = _sync_recovered(config, files, (log, queues, checkpoint), recovered, now_ms())
        _write_abort(config, files)
    except (OSError, RocketletError):
        log.close()
        descriptors.close()
        raise
    rules = EntryRules(queues, config.delays_ms)
    dispatcher = Dispatcher(rules, index, recovered.end)
    flusher = Flusher(files, _checkpoint_path(config), Flushed(log.max_offset, checkpoint.log_at_ms))
    return StoreParts(
        files, lock, descriptors, log, queues.space, queues, index_space, index, rules, dispatcher, flusher, checkpoint,
        recovered, is_clean, has_timers,
    )  # fmt: skip


def _make_log(config: StoreConfig, files: Files) -> CommitLog:
    paths = LogPaths(config.log_directories, config.segment_bytes, config.read_only_directories)
    max_maps = max(4, min(descriptor_limit() // 8, _MOST_MAPS) // config.sharers)
    return CommitLog(files, paths, config.segment_bytes, max_maps=max_maps)


def _has_timers(config: StoreConfig, files: Files) -> bool:
    """Tell whether there are timer files, after a look at their sizes; who uses them opens them."""
    is_cut_off = any(not entry.size for entry in files.list(timer_log_directory(config)))
    with suppress(StoreDamagedError):  # they are made anew then
        if not is_cut_off:
            find_timer_log(files, config)
    return files.exists(timer_check_path(config.root))


def _make_queues(config: StoreConfig, files: Files, descriptors: Descriptors) -> QueueTable:
    root, ext_root = (os.path.join(config.root, name) for name in ("consumequeue", "consumequeue_ext"))
    space = QueueSpace(files, root, config.queue_file_bytes, descriptors)
    queues = QueueTable(space, BatchQueueTable(batch_space(config, space)))
    if files.list(ext_root):
        queues.ext = ExtQueues(files, ext_root, descriptors)
    return queues


def _recover(
    config: StoreConfig,
    files: Files,
    parts: tuple[CommitLog, QueueTable, KeyIndex | None],
    checkpoint: Checkpoint,
    *,
    repairs: bool,
) -> Recovered:
    log, queues, index = parts
    check_directories(files, config)
    is_clean = not files.exists(abort_path(config))
    behind: list[SegmentFile] = []
    if not is_clean:
        complete_cut_off(files, config.all_log_directories, config.segment_bytes)
    layout = Layout(config.all_log_directories, config.segment_bytes, SEGMENT_KEY, config.root)
    segments = list_segments(files, layout, None if is_clean else behind)
    log.paths.set_files([*segments, *behind])
    empty = empty_last_file(files, config.all_log_directories)
    kinds = load_batch_topics(files, config.root)
    check_kinds(files, config.root, kinds)
    queues.batches.topics.update(name for name, is_batch in kinds.items() if is_batch)
    queues.batches.load()
    queues.load()
    if is_clean and kinds:
        queues.known_topics = frozenset({*kinds, *(key[0] for key in (*queues.by_key, *queues.batches.by_key))})
    if index is not None:
        index.load()
    if empty is not None:
        files.unlink(empty)
    if not behind:
        segments = remove_unused(files, segments)
    recovery = Recovery(files, config, log, queues, index)
    recovery.behind = behind
    return recovery.run(segments, checkpoint, is_clean=is_clean, repairs=repairs)


def _sync_recovered(
    config: StoreConfig,
    files: Files,
    parts: tuple[CommitLog, QueueTable, Checkpoint],
    recovered: Recovered,
    now_ms: int,
) -> Checkpoint:
    log, queues, found = parts
    is_clean = not files.exists(abort_path(config))
    start = log.max_offset - 1 if is_clean else recovered.start
    sync_recovered_log(files, log, start, config.log_directories)
    sync_recovered_queues(queues.space)
    if not is_clean:
        mark_unsynced([*queues, *(queue.slots for queue in queues.batches)], recovered.start)
    checkpoint = checkpoint_after_recovery(found, recovered, now_ms, are_queues_settled=is_clean)
    save_if_changed(files, _checkpoint_path(config), found, checkpoint)
    return checkpoint


def _checkpoint_path(config: StoreConfig) -> str:
    return os.path.join(config.root, "checkpoint")


def _write_abort(config: StoreConfig, files: Files) -> None:
    descriptor = files.create(abort_path(config), 0)
    try:
        files.truncate(descriptor, 0)
        write_label(files, descriptor, str(os.getpid()).encode())
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.sync_directory(config.root)
