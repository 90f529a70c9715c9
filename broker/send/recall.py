"""Recalling timer messages: RECALL_MESSAGE(370) (``RecallMessageProcessor``; spec behaviour.md B.12, store.md §10.6).

Rules

    1. Nobody may recall unless ``recallMessageEnable`` says so.
    2. The handle names topic, broker, time and unique key. Topic and broker must be those asked, the time lie ahead.
    3. A recall is a timer message itself, due at the same time, that names what it deletes; it is never delivered.
       Whether its target exists is not known before that time, and not told.
    4. What the store does not take is answered 1.
"""

import re
from typing import Any, Final, Protocol

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, MessageRefusedError, StoreError
from ...common.ids import RecallHandle, encode_host, parse_recall_handle
from ...common.names import PERM_WRITE
from ...common.outcome import Outcome
from ...common.properties import (
    BORN_TIMESTAMP,
    PRODUCER_GROUP,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    encode_properties,
)
from ...common.record import NewRecord
from ..delay.delayed_messages import DelayRouting
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..settings.refusal import Refusal
from ..topic.topics import TopicTable

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"
_UNAVAILABLE: Final = "recall failed, broker service not available"
_NUMBER: Final = re.compile(r"[+-]?\d{1,19}")
RECALL_FAILED: Final = Refusal(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")


class Recall(Protocol):
    """What a producer says of a message that is not to be delivered."""

    topic: str
    recall_handle: str
    producer_group: str | None


class RecallOperation:
    """Takes recalls."""

    def __init__(self, settings: LiveSettings, topics: TopicTable, routing: DelayRouting, scheduler: Scheduler) -> None:
        self._settings = settings
        self._topics = topics
        self._routing = routing
        self._store, self._scheduler, self._now_ms = scheduler.store, scheduler, routing.now_ms

    def recall(self, recall: Recall, producer: tuple[str, int]) -> Outcome[str | Refusal]:
        """Keep a message from being delivered; the answer is its unique key."""
        refusal = self._check(recall.topic)
        if refusal is not None:
            return Outcome(refusal, is_settled=True)
        try:
            handle = parse_recall_handle(recall.recall_handle)
        except DecodeError as error:
            return Outcome(Refusal(ResponseCode.ILLEGAL_OPERATION, str(error)), is_settled=True)
        wrong = self._misfit(recall.topic, handle)
        if wrong is not None:
            return Outcome(Refusal(ResponseCode.ILLEGAL_OPERATION, wrong), is_settled=True)
        deletion = self._deletion(recall, handle, encode_host(*producer))
        try:
            outcome: Outcome[Any] = self._scheduler.append(self._routing.place(deletion))
        except (StoreError, MessageRefusedError):
            return Outcome(RECALL_FAILED, is_settled=True)
        outcome.answer = deletion.properties[UNIQ_KEY]
        return outcome

    def _check(self, topic: str) -> Refusal | None:
        config = self._settings.config
        if not config.is_recall_enabled:
            return Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not (config.permission & PERM_WRITE or config.recalls_when_not_writable):
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if self._topics.get(topic) is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        return None

    def _misfit(self, topic: str, handle: RecallHandle) -> str | None:
        """Return why a handle cannot be served."""
        if handle.topic != topic:
            return "recall failed, topic not match"
        if handle.broker_name != self._settings.config.broker_name:
            return _UNAVAILABLE
        now_ms = self._now_ms()
        if not _NUMBER.fullmatch(handle.due_at):
            return "recall failed, timestamp invalid"
        if not 0 < int(handle.due_at) - self._wheel_ms(now_ms) < self._store.config.timers.most_delay_ms:
            return "recall failed, timestamp invalid"
        return None

    def _deletion(self, recall: Recall, handle: RecallHandle, born_host: bytes) -> NewRecord:
        """Return the message that deletes another."""
        now_ms, key = self._now_ms(), handle.unique_key
        properties = {
            TIMER_DEL_UNIQKEY: f"{handle.topic}+{key}" if self._store.config.timers.names_topic_in_delete_key else key,
            UNIQ_KEY: key,
            TIMER_DELIVER_MS: str(now_ms + int(handle.due_at) - self._wheel_ms(now_ms)),
            BORN_TIMESTAMP: str(now_ms),
            TAGS: _TAG,
        }
        if recall.producer_group is not None:
            properties[PRODUCER_GROUP] = recall.producer_group
        text = encode_properties(properties)
        return NewRecord(handle.topic, 0, _BODY, text, properties, 0, 0, now_ms, born_host)

    def _wheel_ms(self, now_ms: int) -> int:
        """Return the instant that the due times in handles are compared with."""
        return now_ms + self._routing.timers_ahead_ms(now_ms)
