"""The answer to a pull as messages, the short way: one loop for records of the usual kind, one by one for the others.

Usual are records of version 1 with IPv4 hosts and a plain body that is no batch. What comes out is the same as from
``decode_record`` and ``decode_message``, which take about half as long again; a test compares the two.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .errors import DecodeError, RecordError
from .ids import decode_host
from .message import COMPRESSED, HOSTS_V6, INNER_BATCH, NEEDS_UNWRAP, MessageQueue, ReceivedMessage, split_keys
from .properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from .record import MAGIC_V1, RECORD_HEAD, decode_message, decode_record, unwrap_batch

_BATCH = INNER_BATCH | NEEDS_UNWRAP
_UNUSUAL = HOSTS_V6 | COMPRESSED | INNER_BATCH

LeaveOut = Callable[[int, DecodeError], object]


def decode_messages(buffer: bytes, broker_name: str, leave_out: LeaveOut) -> list[ReceivedMessage]:
    """Return the messages of records that stand one behind the other.

    A message whose body cannot be read is not among them; ``leave_out`` is told its queue offset and the reason.

    Raises:
        RecordError: there is something else than whole records.
    """
    messages: list[ReceivedMessage] = []
    position, last_head_at = 0, len(buffer) - RECORD_HEAD.size
    while position <= last_head_at:  # no call for each record: it would cost a tenth
        (size, magic, body_crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_at_ms, born_host,
         stored_at_ms, store_host, reconsume_times, prepared, body_size) = _unpack(buffer, position)  # fmt: skip
        body_at = position + RECORD_HEAD.size
        end: int = position + size
        topic_at: int = body_at + body_size
        size_at: int = topic_at + 1 + buffer[topic_at] if body_at <= topic_at < end <= len(buffer) else end
        is_usual: bool = magic == MAGIC_V1 and not sys_flag & _UNUSUAL and size_at <= end - 2
        if not is_usual or size_at + 2 + (buffer[size_at] << 8 | buffer[size_at + 1]) != end:
            position += _add_unusual(messages, buffer[position:], broker_name, leave_out)
            continue
        queue = _queue(buffer[topic_at + 1 : size_at], broker_name, queue_id)
        born_from, stored_at, id_prefix = _hosts(born_host, store_host)
        properties = parse_properties(str(buffer[size_at + 2 : end], "utf-8", "replace"))
        get = properties.get
        keys = get(KEYS)
        offset_id = f"{id_prefix}{log_offset & 0xFFFFFFFFFFFFFFFF:016X}"
        messages.append(ReceivedMessage(  # by position: names cost time
            queue.topic, buffer[body_at:topic_at], get(TAGS), split_keys(keys) if keys else (), properties,
            flag, sys_flag, queue, queue_offset, log_offset, get(UNIQ_KEY) or offset_id, offset_id,
            born_at_ms, stored_at_ms, born_from, stored_at, reconsume_times, prepared, body_crc, size,
        ))  # fmt: skip
        position = end
    if position < len(buffer):
        decode_record(buffer, position)
    return messages


def _add_unusual(messages: list[ReceivedMessage], rest: bytes, broker_name: str, leave_out: LeaveOut) -> int:
    """Add what the first record of the rest holds, and return its size."""
    record = decode_record(rest)
    is_batch = record.sys_flag & _BATCH == _BATCH
    try:
        message = decode_message(record, broker_name)
        messages += unwrap_batch(message) if is_batch else (message,)
    except RecordError as error:
        if not is_batch:
            raise
        leave_out(record.queue_offset, error)
    except DecodeError as error:
        leave_out(record.queue_offset, error)
    return record.total_size


@lru_cache(maxsize=4096)
def _queue(topic: bytes, broker_name: str, queue_id: int) -> MessageQueue:
    return MessageQueue(str(topic, "utf-8", "replace"), broker_name, queue_id)


@lru_cache(maxsize=4096)
def _hosts(born_host: bytes, store_host: bytes) -> tuple[tuple[str, int], tuple[str, int], str]:
    """Return both hosts, and how the ids of what the second stores begin."""
    return decode_host(born_host), decode_host(store_host), store_host.hex().upper()


_unpack: Callable[[bytes, int], tuple[Any, ...]] = RECORD_HEAD.unpack_from
