"""Readers over the log and the queues of a closed store."""

from stores import StoreDirectory

from rocketlet.store.commitlog.commit_log import CommitLog
from rocketlet.store.consumequeue.consume_queue import QueueSpace
from rocketlet.store.consumequeue.queue_reader import QueueReader
from rocketlet.store.consumequeue.queue_table import BatchQueueTable, QueueTable, batch_space
from rocketlet.store.files.files import OS_FILES, Descriptors
from rocketlet.store.files.store_config import StoreConfig


def open_reader(
    directory: StoreDirectory, descriptors: Descriptors, config: StoreConfig
) -> tuple[QueueReader, CommitLog, QueueTable]:
    """Return a reader over the log and the queues of a store, whose bounds a test may move."""
    with directory.open() as store:
        end = store.log_max_offset
    log = CommitLog(OS_FILES, config.log_directories[0], config.segment_bytes)
    log.set_bounds(0, end)
    space = QueueSpace(OS_FILES, f"{config.root}/consumequeue", config.queue_file_bytes, descriptors)
    queues = QueueTable(space, BatchQueueTable(batch_space(config, space)))
    queues.load()
    queues.batches.load()
    for queue in queues.batches:
        queue.correct_min_offset(0)
    return QueueReader(log, queues, config), log, queues
