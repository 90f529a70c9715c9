"""Rows of ``--print-config`` for the store's settings."""

from ..common.settings import Setting, format_setting
from ..store.config import StoreConfig

_ROWS = (
    ("storePathRootDir", "root", "directory of the store"),
    ("storePathCommitLog", "log_directory", "directory of the commit log; commitlog in the store unless given"),
    ("mappedFileSizeCommitLog", "segment_bytes", "length of a commit log file"),
    ("mappedFileSizeConsumeQueue", "queue_file_bytes", "length of a consume queue file"),
    ("mapperFileSizeBatchConsumeQueue", "batch_file_bytes", "length of a batch consume queue file"),
    ("maxHashSlotNum", "index_slots", "hash slots of an index file"),
    ("maxIndexNum", "index_entries", "entries of an index file"),
    ("messageIndexEnable", "has_index", "index messages by key"),
    ("maxMessageSize", "max_message_bytes", "longest body"),
    ("flushIntervalConsumeQueue", "flush_queue_interval_ms", "how often queues are flushed"),
    ("checkCRCOnRecover", "checks_crc", "check bodies when a store is recovered"),
    ("maxFilterMessageSize", "max_scan_bytes", "bytes of queue entries that one pull looks at"),
    ("accessMessageInMemoryMaxRatio", "in_memory_percent", "share of memory that counts as the hot end of the log"),
    ("maxTransferBytesOnMessageInMemory", "max_memory_bytes", "bytes of a pull near the end of the log"),
    ("maxTransferCountOnMessageInMemory", "max_memory_messages", "messages of a pull near the end of the log"),
    ("maxTransferBytesOnMessageInDisk", "max_disk_bytes", "bytes of a pull further behind"),
    ("maxTransferCountOnMessageInDisk", "max_disk_messages", "messages of a pull further behind"),
    ("maxMsgsNumBatch", "max_query_messages", "messages of a query by key"),
)


def describe_store(config: StoreConfig) -> list[Setting]:
    """Return every store setting with its value, default and meaning."""
    default = StoreConfig("~/store")
    return [
        Setting(key, format_setting(getattr(config, name)), format_setting(getattr(default, name)), meaning)
        for key, name, meaning in _ROWS
    ]
