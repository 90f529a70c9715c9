"""A record that has its place in the log, on its way to queue and index."""

import msgspec

from ..common.properties import KEYS, TAGS, UNIQ_KEY
from ..common.sysflag import TRANSACTION_ROLLBACK
from .consumequeue import ConsumeQueue


class Appended(msgspec.Struct, gc=False):
    """Where a record stands; ``queue`` is ``None`` when it gets no queue entry."""

    log_offset: int
    queue_offset: int
    size: int
    topic: str
    queue_id: int
    sys_flag: int
    stored_at_ms: int
    properties: dict[str, str]
    queue: ConsumeQueue | None
    tags_code: int = 0


def has_keys(record: Appended) -> bool:
    """Tell whether the index has entries of the record (store.md §4.2)."""
    if record.sys_flag & TRANSACTION_ROLLBACK == TRANSACTION_ROLLBACK:
        return False
    get = record.properties.get
    return bool(get(UNIQ_KEY) or get(TAGS) or (get(KEYS) or "").strip(" "))
