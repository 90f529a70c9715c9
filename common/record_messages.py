"""Stored records as the messages that applications see.

The answer to a pull becomes messages the short way (``decode_messages``): one loop for records of version 1 with IPv4
hosts and a plain body that is no batch, which decodes what a consumer needs at once and leaves the rest to the message.
The long way gives the same and takes three times as long; a test compares.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from .compression import inflate
from .errors import DecodeError, RecordError
from .ids import decode_host, format_offset_id
from .message import COMPRESSED, HOSTS_V6, INNER_BATCH, NEEDS_UNWRAP, MessageQueue, ReceivedMessage, split_keys
from .properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from .record import MAGIC_V1, RECORD_HEAD, Record, decode_batch, decode_record


def decode_message(record: Record, broker_name: str) -> ReceivedMessage:
    """Return the message of a record as a consumer sees it.

    Raises:
        DecodeError: The body does not inflate.
        ConfigError: The package that inflates it is not installed.
    """
    properties = parse_properties(record.property_text)
    offset_id = format_offset_id(record.store_host, record.log_offset)
    return ReceivedMessage(  # by position: names cost time, and consumers come here for each message
        record.topic,
        inflate(record.body, record.sys_flag),
        properties.get(TAGS),
        split_keys(properties.get(KEYS)),
        properties,
        record.flag,
        record.sys_flag,
        _queue(record.topic, broker_name, record.queue_id),
        record.queue_offset,
        record.log_offset,
        properties.get(UNIQ_KEY) or offset_id,
        offset_id,
        record.born_at_ms,
        record.stored_at_ms,
        decode_host(record.born_host),
        decode_host(record.store_host),
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.body_crc,
        record.total_size,
    )


_queue = lru_cache(maxsize=4096)(MessageQueue)


def unwrap_batch(batch: ReceivedMessage) -> list[ReceivedMessage]:
    """Return the messages of an inner batch, each at its own queue offset (``MessageDecoder.decodeMessage``).

    Raises:
        RecordError: The body is no batch.
    """
    messages: list[ReceivedMessage] = []
    for place, (flag, body, text) in enumerate(decode_batch(batch.body)):
        properties = parse_properties(text)
        messages.append(
            replace(
                batch,
                body=body,
                tags=properties.get(TAGS),
                keys=split_keys(properties.get(KEYS)),
                properties=properties,
                flag=flag,
                queue_offset=batch.queue_offset + place,
                message_id=properties.get(UNIQ_KEY) or batch.offset_message_id,
            )
        )
    return messages


_BATCH = INNER_BATCH | NEEDS_UNWRAP
_UNUSUAL = HOSTS_V6 | COMPRESSED | INNER_BATCH

LeaveOut = Callable[[int, DecodeError], object]
_NOTHING: Final[Mapping[str, str]] = {}


def decode_messages(
    buffer: bytes, broker_name: str, leave_out: LeaveOut, added: Mapping[str, str] = _NOTHING
) -> list[ReceivedMessage]:
    """Return the messages of records that stand one behind the other, which get some more properties.

    A message whose body cannot be read is not among them; ``leave_out`` is told its queue offset and the reason.

    Raises:
        RecordError: there is something else than whole records.
    """
    messages: list[ReceivedMessage] = []
    position, last_head_at = 0, len(buffer) - RECORD_HEAD.size
    place, queue = (b"", -1), _NO_QUEUE
    while position <= last_head_at:  # no call for each record: it would cost a tenth
        head = _unpack(buffer, position)
        body_at = position + RECORD_HEAD.size
        end: int = position + head[0]
        topic_at: int = body_at + head[14]
        size_at: int = topic_at + 1 + buffer[topic_at] if body_at <= topic_at < end <= len(buffer) else end
        is_usual: bool = head[1] == MAGIC_V1 and not head[7] & _UNUSUAL and size_at <= end - 2
        if not is_usual or size_at + 2 + (buffer[size_at] << 8 | buffer[size_at + 1]) != end:
            position += _add_unusual(messages, buffer[position:], broker_name, leave_out, added)
            continue
        if place != (found := (buffer[topic_at + 1 : size_at], head[3])):
            place, queue = found, _queue_of(found[0], broker_name, found[1])
        message = _new(ReceivedMessage)
        message.topic, message.queue, message.queue_offset = queue.topic, queue, head[5]
        message.body = buffer[body_at:topic_at]
        message.later = head, buffer[size_at + 2 : end], added
        messages.append(message)
        position = end
    if position < len(buffer):
        decode_record(buffer, position)
    return messages


def _add_unusual(
    messages: list[ReceivedMessage], rest: bytes, broker_name: str, leave_out: LeaveOut, added: Mapping[str, str]
) -> int:
    """Add what the first record of the rest holds, and return its size."""
    record = decode_record(rest)
    is_batch = record.sys_flag & _BATCH == _BATCH
    try:
        message = decode_message(record, broker_name)
        found = unwrap_batch(message) if is_batch else [message]
        for each in found:
            each.properties.update(added)
        messages += found
    except RecordError as error:
        if not is_batch:
            raise
        leave_out(record.queue_offset, error)
    except DecodeError as error:
        leave_out(record.queue_offset, error)
    return record.total_size


@lru_cache(maxsize=4096)
def _queue_of(topic: bytes, broker_name: str, queue_id: int) -> MessageQueue:
    return MessageQueue(str(topic, "utf-8", "replace"), broker_name, queue_id)


_NO_QUEUE: Final = MessageQueue("", "", -1)
_new: Callable[[type[ReceivedMessage]], ReceivedMessage] = object.__new__
_unpack: Callable[[bytes, int], tuple[Any, ...]] = RECORD_HEAD.unpack_from
