"""Headers of what administrators ask brokers (``spec/remoting.md`` §4.9, §4.11).

207  DELETE_SUBSCRIPTIONGROUP         DeleteGroupHeader    -
222  INVOKE_BROKER_TO_RESET_OFFSET    ResetOffsetHeader    -
"""

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64


class DeleteGroupHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which group goes, and whether its offsets go as well; 4.9 has another name for that."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


class ResetOffsetHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Where a group begins again: at an instant, or at the end when that is negative; in all queues or in one."""

    topic: str
    group: str
    at_ms: Int64 = field(name="timestamp")
    is_forced: bool = field(name="isForce", default=True)
    queue_id: Int32 = -1
    queue_offset: Int64 | None = field(name="offset", default=None)
