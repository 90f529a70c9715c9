"""Stored messages as clients of gRPC get them (``GrpcConverter.buildMessage``).

Rules

    1. Each has its digest, MD5 in capitals, and its body as it is: what producers of the remoting protocol have packed
       is unpacked. No client gets along with anything else that all others can read.
    2. What servers and clients keep for themselves among the properties is no user property; nor is what has a field
       of its own.
    3. A message that has no unique key has its offset id.
"""

import hashlib
from functools import lru_cache
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from ...common.ids import decode_host, format_address, format_offset_id
from ...common.message import split_keys
from ...common.properties import (
    BORN_HOST,
    CHECK_IMMUNITY_TIME,
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    ORIGIN_GROUP,
    PRIORITY,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRACE_CONTEXT,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from ...common.record import Record
from ..http2.compiled import codecs
from . import v2
from .enums import DigestType, Encoding
from .publishing import RESERVED, kind_of

HIDDEN: Final = RESERVED | {
    *(SHARDING_KEY, TRACE_CONTEXT, CHECK_IMMUNITY_TIME, TRANSACTION_ID, TRANSACTION_CHECK_TIMES, ORIGIN_GROUP, PRIORITY)
}

UNUSUAL: Final = frozenset(
    {
        *(SHARDING_KEY, TRACE_CONTEXT, PRIORITY, TRANSACTION_PREPARED, DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC),
        *(TIMER_DELIVER_MS, TIMER_OUT_MS, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID),
    }
)
"""What makes a message something else than a normal one, or has a field of its own."""


def encode_delivery(record: Record, topic: str, handle: str, attempt: int) -> bytes:
    """Return the answer that hands a record out (raises what ``deliver`` does)."""
    properties = record.properties
    numbers = (record.born_at_ms, record.stored_at_ms, record.queue_id, record.queue_offset, attempt)
    if codecs is None or min(numbers) < 0 or not UNUSUAL.isdisjoint(properties):
        answer = v2.ReceiveMessageResponse()
        deliver(answer.message, record, topic, handle, attempt)
        return answer.SerializeToString()
    body = record.inflated_body()
    users = {} if HIDDEN.issuperset(properties) else _user_properties(properties)
    texts = (
        topic,
        properties.get(TAGS, ""),
        _message_id(record, properties),
        _digest(body),
        properties.get(BORN_HOST) or _host_text(record.born_host),
        _host_text(record.store_host),
        handle,
    )
    return codecs.encode_delivery(texts, numbers, users, split_keys(properties.get(KEYS)), body)


def deliver(
    message: v2.Message, record: Record, topic: str, handle: str = "", attempt: int | None = None
) -> v2.Message:
    """Make a new message that of a record, under the topic that its consumer asked for; return it.

    ``attempt`` is which delivery this is where the record does not say it, as for what is consumed in order.

    Raises:
        DecodeError: The body does not inflate.
        ConfigError: The package that inflates it is not installed.
    """
    properties, body = record.properties, record.inflated_body()
    message.topic.name, message.body = topic, body
    if users := _user_properties(properties):
        message.user_properties.update(users)
    system = message.system_properties
    digest = system.body_digest
    digest.type, digest.checksum = DigestType.MD5, _digest(body)
    system.body_encoding = Encoding.IDENTITY
    system.message_type = kind_of(properties)
    system.message_id = _message_id(record, properties)
    if keys := properties.get(KEYS):
        system.keys.extend(split_keys(keys))
    _set_texts(system, properties)
    set_milliseconds(system.born_timestamp, record.born_at_ms)
    system.born_host = properties.get(BORN_HOST) or _host_text(record.born_host)
    set_milliseconds(system.store_timestamp, record.stored_at_ms)
    system.store_host = _host_text(record.store_host)
    if due_at := properties.get(TIMER_DELIVER_MS) or properties.get(TIMER_OUT_MS):
        system.delivery_timestamp.FromMilliseconds(int(due_at))
    if handle:
        system.receipt_handle = handle
    system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
    system.delivery_attempt = record.reconsume_times + 1 if attempt is None else attempt
    return message


def set_milliseconds(stamp: Timestamp, at_ms: int) -> None:
    """Set an instant; the library's own way takes longer than all else that a timestamp needs."""
    stamp.seconds, milliseconds = divmod(at_ms, 1000)
    stamp.nanos = milliseconds * 1_000_000


def _user_properties(properties: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name not in HIDDEN}


def _message_id(record: Record, properties: dict[str, str]) -> str:
    return properties.get(UNIQ_KEY) or format_offset_id(record.store_host, record.log_offset)


def _digest(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


@lru_cache(maxsize=256)
def _host_text(host: bytes) -> str:
    return format_address(*decode_host(host))


def _set_texts(system: v2.SystemProperties, properties: dict[str, str]) -> None:
    """Set what is a text, or made of texts, and may be missing."""
    if tag := properties.get(TAGS):
        system.tag = tag
    if group := properties.get(SHARDING_KEY):
        system.message_group = group
    if context := properties.get(TRACE_CONTEXT):
        system.trace_context = context
    if (priority := properties.get(PRIORITY, "")).isdecimal():
        system.priority = int(priority)
    origin = properties.get(DLQ_ORIGIN_TOPIC), properties.get(DLQ_ORIGIN_MESSAGE_ID)
    if origin[0] and origin[1]:
        system.dead_letter_queue.CopyFrom(v2.DeadLetterQueue(topic=origin[0], message_id=origin[1]))
