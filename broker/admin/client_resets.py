"""Where the members of a group shall go on in a topic, when they are told to move themselves (before 5.0).

Each queue that can be written gets an offset: the end for -1, else that of the first message stored at the instant or
later. Unless it is forced, a group is only set back. A group without an offset in one of the queues is not moved at all
(``Broker2Client.resetOffset``).
"""

from typing import NamedTuple

from ...common.codes import ResponseCode
from ...common.metadata import TopicConfig
from ...store.message_store import MessageStore
from ..group.groups import OffsetTable
from ..settings.refusal import Refusal

_END_MS = -1


class ClientReset(NamedTuple):
    """Which group begins again in which topic, at which instant; unforced, no queue goes on later than it would."""

    topic: str
    group: str
    at_ms: int
    is_forced: bool


class ClientResets:
    """Computes offsets; nothing is stored, which the members do when they have moved."""

    def __init__(self, store: MessageStore, offsets: OffsetTable) -> None:
        self._store = store
        self._offsets = offsets

    def offsets_for(self, reset: ClientReset, topic: TopicConfig | None) -> dict[int, int] | Refusal:
        """Return the new offsets by queue, or why there are none."""
        if topic is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={reset.topic}"
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        found: dict[int, int] = {}
        for queue_id in range(topic.write_queue_nums):
            committed = self._offsets.committed(reset.group, reset.topic, queue_id)
            if committed is None:
                return Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{reset.group}> not exist")
            wanted = max(self._at(reset, queue_id), 0)
            found[queue_id] = wanted if reset.is_forced else min(wanted, committed)
        return found

    def _at(self, reset: ClientReset, queue_id: int) -> int:
        if reset.at_ms == _END_MS:
            return self._store.max_offset(reset.topic, queue_id)
        return self._store.offset_by_time(reset.topic, queue_id, reset.at_ms)
