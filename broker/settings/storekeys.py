"""Rows of ``--print-config`` for the store's settings."""

from ...common.settings import Setting, describe_settings, format_setting
from ...store.files.store_config import StoreConfig

_ROWS = (
    ("storePathRootDir", "root", "directory of the store"),
    (
        "storePathCommitLog",
        "log_path_list",
        "directories of the commit log, between commas; commitlog in the store unless given",
    ),
    ("readOnlyCommitLogStorePaths", "read_only_path_list", "directories of the commit log that get no new files"),
    ("mappedFileSizeCommitLog", "segment_bytes", "length of a commit log file"),
    ("mappedFileSizeConsumeQueue", "queue_file_bytes", "length of a consume queue file"),
    ("mapperFileSizeBatchConsumeQueue", "batch_file_bytes", "length of a batch consume queue file"),
    ("maxHashSlotNum", "index_slots", "hash slots of an index file"),
    ("maxIndexNum", "index_entries", "entries of an index file"),
    ("messageIndexEnable", "has_index", "index messages by key"),
    ("maxMessageSize", "max_message_bytes", "longest body"),
    ("flushDiskType", "flush_disk_type", "ASYNC_FLUSH, or SYNC_FLUSH: a send is answered when it is on disk"),
    ("syncFlushTimeout", "sync_flush_timeout_ms", "how long a send waits for the disk under SYNC_FLUSH"),
    ("flushIntervalCommitLog", "flush_log_interval_ms", "how often to look whether the log is to be flushed"),
    ("flushCommitLogTimed", "is_log_flush_timed", "accepted; the log is flushed at its interval either way"),
    ("flushCommitLogLeastPages", "flush_log_least_pages", "pages of 4 KiB that are worth a flush of the log"),
    ("flushCommitLogThoroughInterval", "flush_log_thorough_ms", "how often the log is flushed whatever was written"),
    ("flushIntervalConsumeQueue", "flush_queue_interval_ms", "how often to look which queues are to be flushed"),
    ("flushConsumeQueueLeastPages", "flush_queue_least_pages", "pages of 4 KiB that are worth a flush of a queue"),
    ("flushConsumeQueueThoroughInterval", "flush_queue_thorough_ms", "how often all queues are flushed"),
    ("checkCRCOnRecover", "checks_crc", "check bodies when a store is recovered"),
    ("enabledAppendPropCRC", "seals_records", "end each record with a checksum of all its bytes"),
    ("forceVerifyPropCRC", "demands_seals", "take records without that checksum for damage"),
    ("maxFilterMessageSize", "max_scan_bytes", "bytes of queue entries that one pull looks at"),
    ("accessMessageInMemoryMaxRatio", "in_memory_percent", "share of memory that counts as the hot end of the log"),
    ("maxTransferBytesOnMessageInMemory", "max_memory_bytes", "bytes of a pull near the end of the log"),
    ("maxTransferCountOnMessageInMemory", "max_memory_messages", "messages of a pull near the end of the log"),
    ("maxTransferBytesOnMessageInDisk", "max_disk_bytes", "bytes of a pull further behind"),
    ("maxTransferCountOnMessageInDisk", "max_disk_messages", "messages of a pull further behind"),
    ("messageDelayLevel", "delay_levels", "delays of the levels 1, 2, … in s, m, h or d"),
    ("maxMsgsNumBatch", "max_query_messages", "messages of a query by key"),
)


def describe_store(config: StoreConfig) -> list[Setting]:
    """Return every store setting with its value, default and meaning."""
    default = StoreConfig("~/store")
    rows = [
        Setting(key, format_setting(getattr(config, name)), format_setting(getattr(default, name)), meaning)
        for key, name, meaning in _ROWS
    ]
    return rows + describe_settings(config.cleaning) + describe_settings(config.timers)
