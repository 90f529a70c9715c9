"""Messages as clients of gRPC send them, checked, and as they are stored (``SendMessageActivity``).

    tag, keys, message id        TAGS, KEYS joined by one blank, UNIQ_KEY
    delivery timestamp           TIMER_DELIVER_MS, of a message of the type DELAY or in any case beside a group
    message group, priority      __SHARDINGKEY, _SYS_MSG_PRIORITY_
    trace context                TRACE_CONTEXT
    born host, timestamp         __BORNHOST, BORN_TIMESTAMP; where they are missing, the peer and now
    transaction                  TRAN_MSG, CHECK_IMMUNITY_TIME_IN_SECONDS
    topic                        PGROUP: any producer of the topic may be asked about its transactions
    user properties              as they are

Rules

    1. The checks come in upstream's order, with its words; the first that fails decides. What a message is by its
       properties, and not what it says to be, is its type.
    2. A body that says to be packed by gzip is stored as it was before: not every client unpacks. What its digest
       contradicts is refused. (Upstream stores it packed, and looks at no digest.)
    3. A message without a time of birth was born now. (Upstream says 1970.)
    4. A priority beside a group or a time counts for nothing.
"""

import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from ...common.compression import inflate_zlib
from ...common.errors import DecodeError
from ...common.names import RETRY_PREFIX
from ...common.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CHECK_IMMUNITY_TIME,
    DELAY,
    KEYS,
    PRIORITY,
    PRODUCER_GROUP,
    RECONSUME_TIME,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRACE_CONTEXT,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from . import v2
from .enums import Code, DigestType, Encoding, MessageType
from .statuses import status

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
MAX_PROPERTIES: Final = 128
MAX_PROPERTY_BYTES: Final = 16 << 10
MAX_GROUP_BYTES: Final = 64
MAX_DELAY_MS: Final = 24 * 3_600_000
MAX_RECOVERY_SECONDS: Final = 3600
RESERVED: Final = frozenset(
    {
        *("TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID"),
        *("TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG"),
        *("CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "UNIQ_KEY", "MAX_RECONSUME_TIMES"),
        *("CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET"),
        *("DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"),
        *("ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET"),
        *("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
        *("TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST"),
        *("BORN_TIMESTAMP", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#", "_SYS_MSG_PRIORITY_"),
    }
)
"""The names that servers and clients use themselves (``MessageConst.STRING_HASH_SET``)."""
_CARE: Final = RESERVED | {SHARDING_KEY, PRIORITY, TRACE_CONTEXT, CHECK_IMMUNITY_TIME}
_DELAYS: Final = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)


class PublishRules(NamedTuple):
    """What a message is judged by."""

    max_body_bytes: int
    now_ms: Callable[[], int]


class Publication(NamedTuple):
    """What is stored of a message, and what its sender hears of it."""

    topic: str
    body: bytes
    properties: dict[str, str]
    born_at_ms: int
    kind: MessageType
    message_id: str
    reconsume_times: int


class PlainMessage(NamedTuple):
    """What a request says that sends one common message (``read_send`` of ``common/_grpc_codecs.pyx``)."""

    topic: str
    message_id: str
    born_at_ms: int
    body: bytes
    user_properties: dict[str, str]
    property_text: str
    """What is stored of its properties, in the order of ``publish``."""
    properties: dict[str, str]
    """The same by their names."""

    @property
    def is_common(self) -> bool:
        """Whether no check of ``publish`` can find a fault in its words, and it is of no special kind."""
        user = self.user_properties
        return not user or (len(user) <= MAX_PROPERTIES and _CARE.isdisjoint(user))


def publish(message: v2.Message, born_host: str, rules: PublishRules) -> Publication | v2.Status:
    """Return what is to be stored of a message, or why it is refused; its topic is one that clients may use."""
    now_ms, system = rules.now_ms(), message.system_properties
    fault = (
        _body_fault(message, rules.max_body_bytes)
        or _properties_fault(message.user_properties)
        or _size_fault(message)
        or _words_fault(system)
        or _times_fault(system, now_ms)
    )
    if fault is not None:
        return fault
    body = _unpacked(message, rules.max_body_bytes)
    if isinstance(body, v2.Status):
        return body
    born_at_ms = now_ms
    if system.HasField("born_timestamp"):
        born = system.born_timestamp
        born_at_ms = born.seconds * 1000 + born.nanos // 1_000_000
    properties = _stored_properties(message, system.born_host or born_host, born_at_ms)
    return Publication(
        message.topic.name,
        body,
        properties,
        born_at_ms,
        kind_of(properties),
        system.message_id,
        system.delivery_attempt if message.topic.name.startswith(RETRY_PREFIX) else 0,
    )


def kind_of(properties: Mapping[str, str]) -> MessageType:
    """Return what a message is by its stored properties (``TopicMessageType.parseFromMessageProperty``)."""
    if properties.get(TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if any(name in properties for name in _DELAYS):
        return MessageType.DELAY
    if SHARDING_KEY in properties:
        return MessageType.FIFO
    return MessageType.PRIORITY if PRIORITY in properties else MessageType.NORMAL


def has_control_character(text: str) -> bool:
    """Tell whether a text holds what Java takes for a control character."""
    return _CONTROL.search(text) is not None


def _body_fault(message: v2.Message, max_body_bytes: int) -> v2.Status | None:
    if len(message.body) > max_body_bytes:
        return status(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {max_body_bytes}")
    return None if message.body else status(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")


def _properties_fault(properties: Mapping[str, str]) -> v2.Status | None:
    if len(properties) > MAX_PROPERTIES:
        return status(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {MAX_PROPERTIES}")
    for name, value in properties.items():
        if name in RESERVED:
            return status(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        for part, text in (("key", name), ("value", value)):
            if has_control_character(text):
                remark = f"the {part} of property cannot contain control character"
                return status(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, remark)
    return None


def _size_fault(message: v2.Message) -> v2.Status | None:
    texts = chain(*message.user_properties.items(), (message.system_properties.tag,), message.system_properties.keys)
    if sum(len(text.encode()) for text in texts) > MAX_PROPERTY_BYTES:
        remark = f"the total size of user property is too large, max is {MAX_PROPERTY_BYTES}"
        return status(Code.MESSAGE_PROPERTIES_TOO_LARGE, remark)
    return None


def _words_fault(system: v2.SystemProperties) -> v2.Status | None:
    fault = _word_fault(Code.ILLEGAL_MESSAGE_TAG, "tag", system.tag)
    if fault is None and "|" in system.tag:
        fault = status(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    for key in system.keys:
        fault = fault or _word_fault(Code.ILLEGAL_MESSAGE_KEY, "key", key)
    if fault is None and not system.message_id.strip():
        fault = status(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    group = system.message_group
    fault = fault or _word_fault(Code.ILLEGAL_MESSAGE_GROUP, "message group", group)
    if fault is None and len(group.encode()) >= MAX_GROUP_BYTES:
        fault = status(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {MAX_GROUP_BYTES}")
    if fault is None and system.priority < 0:
        fault = status(Code.INTERNAL_SERVER_ERROR, f"the priority is {system.priority}, it must not be below 0")
    return fault


def _word_fault(code: Code, what: str, word: str) -> v2.Status | None:
    if word and not word.strip():
        return status(code, f"{what} cannot be the char sequence of whitespace")
    return status(code, f"{what} cannot contain control character") if has_control_character(word) else None


def _times_fault(system: v2.SystemProperties, now_ms: int) -> v2.Status | None:
    try:
        due_at_ms = system.delivery_timestamp.ToMilliseconds()
    except ValueError as error:  # beyond the years 1 to 9999, or nanoseconds that are none
        return status(Code.ILLEGAL_DELIVERY_TIME, str(error))
    if due_at_ms - now_ms > MAX_DELAY_MS:
        remark = f"the max delay time of message is too large, max is {MAX_DELAY_MS}"
        return status(Code.ILLEGAL_DELIVERY_TIME, remark)
    if system.orphaned_transaction_recovery_duration.seconds > MAX_RECOVERY_SECONDS:
        remark = f"the max transaction recovery time of message is too large, max is {MAX_RECOVERY_SECONDS}"
        return status(Code.BAD_REQUEST, remark)
    return None


def _unpacked(message: v2.Message, max_body_bytes: int) -> bytes | v2.Status:
    digest = message.system_properties.body_digest
    if digest.checksum and not _fits(message.body, digest):
        return status(Code.MESSAGE_CORRUPTED, "the body of the message does not have its digest")
    if message.system_properties.body_encoding != Encoding.GZIP:
        return message.body
    try:
        body = inflate_zlib(message.body, max_body_bytes + 1, is_gzip=True)
    except DecodeError as error:
        return status(Code.MESSAGE_CORRUPTED, str(error))
    if len(body) > max_body_bytes:
        return status(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {max_body_bytes}")
    return body


def _fits(body: bytes, digest: v2.Digest) -> bool:
    """Tell whether a body has a digest; one of a kind that nobody knows says nothing."""
    told = digest.checksum.upper()
    if digest.type == DigestType.CRC32:
        return told.lstrip("0") == f"{zlib.crc32(body):X}".lstrip("0")
    kinds = {int(DigestType.MD5): hashlib.md5, int(DigestType.SHA1): hashlib.sha1}
    kind = kinds.get(digest.type)
    return kind is None or told == kind(body, usedforsecurity=False).hexdigest().upper()


def _stored_properties(message: v2.Message, born_host: str, born_at_ms: int) -> dict[str, str]:
    system = message.system_properties
    properties = dict(message.user_properties)
    if system.tag:
        properties[TAGS] = system.tag
    if system.keys:
        properties[KEYS] = " ".join(system.keys)
    properties[UNIQ_KEY] = system.message_id
    if system.message_type == MessageType.TRANSACTION:
        properties[TRANSACTION_PREPARED] = "true"
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if seconds > 0:
            properties[CHECK_IMMUNITY_TIME] = str(seconds)
    if system.HasField("delivery_timestamp"):
        properties[TIMER_DELIVER_MS] = str(system.delivery_timestamp.ToMilliseconds())
    if system.message_group:
        properties[SHARDING_KEY] = system.message_group
    if system.HasField("priority") and kind_of(properties) is MessageType.NORMAL:
        properties[PRIORITY] = str(system.priority)
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    properties |= {
        RECONSUME_TIME: str(system.delivery_attempt),
        PRODUCER_GROUP: message.topic.name,
        BORN_HOST: born_host,
        BORN_TIMESTAMP: str(born_at_ms),
    }
    return properties
