"""Recalling timer messages: RECALL_MESSAGE(370) (``RecallMessageProcessor``; spec behaviour.md B.12, store.md §10.6).

Rules

    1. Nobody may recall unless ``recallMessageEnable`` says so.
    2. The handle names topic, broker, time and unique key. Topic and broker must be those asked, the time lie ahead.
    3. A recall is a timer message itself, due at the same time, that names what it deletes; it is never delivered.
       Whether its target exists is not known before that time, and not told.
    4. What the store does not take is answered 1.
"""

import re
from typing import Final

from ...common.errors import DecodeError, MessageRefusedError, StoreError
from ...common.ids import encode_host
from ...common.names import PERM_WRITE
from ...common.properties import (
    BORN_TIMESTAMP,
    PRODUCER_GROUP,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    encode_properties,
)
from ...common.recallhandle import RecallHandle, parse_recall_handle
from ...common.record import NewRecord
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.recall import RecallHeader, RecallReply
from ...remoting.transport.connection import Connection
from ...remoting.transport.service import Reply
from ...store.message_store import MessageStore
from ..settings.config import BrokerConfig
from ..topic.topics import TopicTable
from ..transaction.endtransaction import Committing

RECALL_CODES: Final = frozenset({RequestCode.RECALL_MESSAGE})
_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"
_FAILED: Final = "recall failed, execute error"
_UNAVAILABLE: Final = "recall failed, broker service not available"
_NUMBER: Final = re.compile(r"[+-]?\d{1,19}")


class RecallHandler:
    """Takes recalls."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        committing: Committing,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._parking, self._group, self._now_ms = committing

    def recall(self, command: Command, connection: Connection) -> Reply:
        """Keep a message from being delivered."""
        header = decode_header(RecallHeader, command)
        refusal = self._refusal(header.topic)
        if refusal is not None:
            return refusal
        try:
            handle = parse_recall_handle(header.recall_handle)
        except DecodeError as error:
            return self._answer(ResponseCode.ILLEGAL_OPERATION, str(error))
        wrong = self._misfit(header.topic, handle)
        if wrong is not None:
            return self._answer(ResponseCode.ILLEGAL_OPERATION, wrong)
        return self._store_recall(command, self._deletion(header, handle, encode_host(*connection.remote_address)))

    def refuse_uncommitted(self, _command: Command, _error: StoreError) -> Command:
        """Return the answer to a recall that could not be written."""
        return self._answer(ResponseCode.SYSTEM_ERROR, _FAILED)

    def _refusal(self, topic: str) -> Command | None:
        config = self._config
        if not config.is_recall_enabled:
            return self._answer(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not (config.permission & PERM_WRITE or config.recalls_when_not_writable):
            return self._answer(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if self._topics.get(topic) is None:
            return self._answer(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        return None

    def _misfit(self, topic: str, handle: RecallHandle) -> str | None:
        """Return why a handle cannot be served."""
        if handle.topic != topic:
            return "recall failed, topic not match"
        if handle.broker_name != self._config.broker_name:
            return _UNAVAILABLE
        now_ms = self._now_ms()
        left_ms = (int(handle.due_at) if _NUMBER.fullmatch(handle.due_at) else -1) - self._wheel_ms(now_ms)
        if not 0 < left_ms < self._store.config.timers.most_delay_ms:
            return "recall failed, timestamp invalid"
        return None

    def _deletion(self, header: RecallHeader, handle: RecallHandle, born_host: bytes) -> NewRecord:
        """Return the message that deletes another."""
        now_ms, key = self._now_ms(), handle.unique_key
        properties = {
            TIMER_DEL_UNIQKEY: f"{handle.topic}+{key}" if self._store.config.timers.names_topic_in_delete_key else key,
            UNIQ_KEY: key,
            TIMER_DELIVER_MS: str(now_ms + int(handle.due_at) - self._wheel_ms(now_ms)),
            BORN_TIMESTAMP: str(now_ms),
            TAGS: _TAG,
        }
        if header.producer_group is not None:
            properties[PRODUCER_GROUP] = header.producer_group
        text = encode_properties(properties)
        return NewRecord(handle.topic, 0, _BODY, text, properties, 0, 0, now_ms, born_host)

    def _wheel_ms(self, now_ms: int) -> int:
        """Return the instant that the due times in handles are compared with."""
        return now_ms + self._parking.timers_ahead_ms(now_ms)

    def _store_recall(self, command: Command, deletion: NewRecord) -> Reply:
        try:
            self._store.append(self._parking.place(deletion, self._now_ms()))
        except (StoreError, MessageRefusedError):
            return self._answer(ResponseCode.SYSTEM_ERROR, _FAILED)
        done = RecallReply(msg_id=deletion.properties[UNIQ_KEY], region=self._config.region_id)
        reply = Command.response(ResponseCode.SUCCESS, None, done)
        return reply if self._group is None else self._group.hold(command, "", reply)

    def _answer(self, code: int, remark: str) -> Command:
        return Command.response(code, remark, {"MSG_REGION": self._config.region_id})
