"""Messages made ready to send: checked, with a unique key, compressed, encoded.

Checks before anything is sent (Java's ``Validators.checkMessage``; each is the caller's mistake, so ``TypeError`` or
``ValueError``): the topic's name is legal and open to clients, the body is not empty and not above the limit, the
properties fit their field. A batch has one topic and one wait flag, no delays and no retry topic.

    part of a batch     each has a unique key of its own; the batch itself has one more, which brokers do not store
    compression         zlib from 4096 bytes on; never of a batch

A message that is sent again keeps its key, so that its copies can be told from others.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..common.compression import CompressionKind, deflate
from ..common.message import Message
from ..common.names import RETRY_PREFIX, client_topic_remark, is_sendable_topic
from ..common.properties import (
    DELAY,
    MAX_PROPERTIES_BYTES,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from ..common.record import BatchPart, encode_batch
from .settings import ProducerSettings

_DELAYS = frozenset({DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS})
_LOG_OVERHEAD_BYTES = 20  # what Java's sample splitter adds for each message


class Outgoing(NamedTuple):
    """A message, or a batch of one topic, as it travels."""

    topic: str
    body: bytes
    property_text: str
    message_id: str
    flag: int
    sys_flag: int
    is_batch: bool = False


def prepare_message(message: Message, unique_id: str, settings: ProducerSettings) -> Outgoing:
    """Return a checked message ready to send.

    Raises:
        TypeError: the body is not bytes.
        ValueError: topic, body or properties cannot be sent.
    """
    check_message(message, settings.max_message_bytes)
    properties = message.to_properties()
    message_id = properties.setdefault(UNIQ_KEY, unique_id)
    body, sys_flag = message.body, 0
    if len(body) >= settings.compress_from_bytes:
        body = deflate(body, CompressionKind.ZLIB, settings.compression_level)
        sys_flag = CompressionKind.ZLIB.sys_flag
    return Outgoing(message.topic, bytes(body), _text_of(properties), message_id, message.flag, sys_flag)


def prepare_batch(messages: Sequence[Message], unique_ids: Sequence[str], settings: ProducerSettings) -> Outgoing:
    """Return a checked batch ready to send; ``unique_ids`` holds one id for each message and one for the batch.

    Raises:
        TypeError: a body is not bytes.
        ValueError: a message, their mixture or their sum cannot be sent.
    """
    check_batch(messages)
    keys: list[str] = []
    parts: list[BatchPart] = []
    for message, unique_id in zip(messages, unique_ids, strict=False):
        check_message(message, settings.max_message_bytes)
        properties = message.to_properties()
        keys.append(properties.setdefault(UNIQ_KEY, unique_id))
        parts.append(BatchPart(message.flag, bytes(message.body), encode_properties(properties)))
    body = encode_batch(parts)
    if len(body) > settings.max_message_bytes:
        raise ValueError(f"batch is {len(body)} bytes, limit is {settings.max_message_bytes}; see split_batch")
    first = messages[0]
    head = {UNIQ_KEY: unique_ids[len(messages)], WAIT: "true" if first.waits_for_store else "false"}
    return Outgoing(first.topic, body, _text_of(head), ",".join(keys), 0, 0, is_batch=True)


def check_message(message: Message, max_bytes: int) -> None:
    """Refuse a message that no broker may get.

    Raises:
        TypeError: it is no message, or its body is not bytes.
        ValueError: its topic or the size of its body is not allowed.
    """
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"send takes a Message, not {type(message).__name__}")
    if not isinstance(message.body, (bytes, bytearray, memoryview)):  # pyright: ignore[reportUnnecessaryIsInstance] # as above
        raise TypeError(f"body is {type(message.body).__name__}, it must be bytes; encode text first")
    check_topic(message.topic)
    if not is_sendable_topic(message.topic):
        raise ValueError(f"topic {message.topic} takes no messages of clients")
    if not message.body:
        raise ValueError("body is empty")
    if len(message.body) > max_bytes:
        raise ValueError(f"body is {len(message.body)} bytes, limit is {max_bytes}")


def check_topic(topic: str) -> None:
    """Refuse a topic name that no server accepts (Java's ``Validators.checkTopic``).

    Raises:
        ValueError: the name is blank, too long or has characters that are not allowed.
    """
    remark = _topic_remark(topic)
    if remark is not None:
        raise ValueError(remark)


def check_batch(messages: Sequence[Message]) -> None:
    """Refuse messages that may not travel together (Java's ``MessageBatch.generateFromList``).

    Raises:
        ValueError: there is none, or one does not fit the others.
    """
    if not messages:
        raise ValueError("batch is empty")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise ValueError(f"batch holds the topics {first.topic} and {message.topic}, it must have one")
        if message.waits_for_store != first.waits_for_store:
            raise ValueError("batch holds messages that wait for the store and others that do not")
        if message.topic.startswith(RETRY_PREFIX):
            raise ValueError(f"batch has the retry topic {message.topic}, which takes no batches")
        if not _DELAYS.isdisjoint(message.properties):
            raise ValueError("batch holds a delayed message, which must be sent alone")


def split_batch(messages: Iterable[Message], limit_bytes: int = 4 * 1024 * 1024) -> Iterator[list[Message]]:
    """Yield consecutive messages in lists that each fit a batch.

    The size of a message is that of Java's sample ``ListSplitter``: topic, body, properties and 20 bytes. One that is
    above the limit alone comes alone, so that its own send is what fails.
    """
    piece: list[Message] = []
    piece_bytes = 0
    for message in messages:
        size = _size_in_batch(message)
        if piece and piece_bytes + size > limit_bytes:
            yield piece
            piece, piece_bytes = [], 0
        piece.append(message)
        piece_bytes += size
    if piece:
        yield piece


_topic_remark = lru_cache(maxsize=1024)(client_topic_remark)  # a producer sends to few topics, and often


def _size_in_batch(message: Message) -> int:
    properties = message.to_properties()
    texts = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    return len(message.topic) + len(message.body) + texts + _LOG_OVERHEAD_BYTES


def _text_of(properties: dict[str, str]) -> str:
    text = encode_properties(properties)
    if len(text) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"properties are {len(text)} bytes, limit is {MAX_PROPERTIES_BYTES}")
    return text.decode()
