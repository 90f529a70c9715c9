"""After recovery: what the start has read is brought to the disk before anybody relies on it.

Rules (store.md §6.2, §7):

- What a killed process had written may be in memory only: after an unclean start the files of the log that were
  walked are flushed before a record is read or written, and the queue files that the walk found good with the first
  round of the flusher, which is due at once. After a clean start it is the last file of the log, whose end may have
  been cut.
- Queue files that recovery has written are flushed at once: the checkpoint that is on the disk speaks for them.
- The checkpoint is written at each start: records that are written next and torn by a power failure are newer than it,
  so the following start knows them for a torn end and not for damage.
"""

from collections.abc import Iterable, Sequence

from ..commitlog.commit_log import CommitLog
from ..consumequeue.consume_queue import ConsumeQueue, QueueSpace
from ..files.checkpoint import Checkpoint, save_checkpoint
from ..files.file_sync import sync_all
from ..files.files import Files
from .recovery import Recovered


def settle_log(files: Files, log: CommitLog, start: int, directories: Sequence[str]) -> None:
    """Bring the files of the log from a position on, and all names, to the disk (raises ``OSError``)."""
    first = max(log.min_offset, start) // log.file_bytes * log.file_bytes
    paths = [log.paths.path_of(base) for base in range(first, log.max_offset, log.file_bytes)]
    sync_all(files, paths, directories)


def settle_queues(space: QueueSpace) -> None:
    """Bring the queue files that recovery has written to the disk (raises ``OSError``)."""
    sync_all(space.files, list(space.dirty_paths), sorted(space.new_directories))
    space.dirty_paths.clear()
    space.new_directories.clear()


def mark_unsettled(queues: Iterable[ConsumeQueue], start: int) -> None:
    """Have the files flushed that hold entries of records from the log position on."""
    for queue in queues:
        last = queue.entry(queue.max_offset - 1) if queue.max_offset else None
        if last is not None and last[0] >= start:
            queue.mark_written_from(queue.first_at(start, queue.file_start(queue.min_offset), queue.max_offset))


def settled_checkpoint(found: Checkpoint, recovered: Recovered, now_ms: int, *, are_queues_settled: bool) -> Checkpoint:
    """Return what is true of a store whose log is on disk."""
    newest_at_ms = recovered.last_stored_at_ms
    log_at_ms = newest_at_ms if 0 < newest_at_ms < now_ms else (newest_at_ms or now_ms) - 1
    queues_at_ms = log_at_ms if are_queues_settled else min(found.queues_at_ms, log_at_ms)
    return found._replace(log_at_ms=log_at_ms, queues_at_ms=queues_at_ms)


def save_if_changed(files: Files, path: str, found: Checkpoint, checkpoint: Checkpoint) -> None:
    """Write the file unless it says so already (raises ``OSError``); the caller makes its name durable."""
    if checkpoint != found or not files.exists(path):
        save_checkpoint(files, path, checkpoint)
