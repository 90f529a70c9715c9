"""Messages made ready to send: checked, with a unique key, compressed, encoded.

Checks before anything is sent (Java's ``Validators.checkMessage``; each is the caller's mistake, so ``TypeError`` or
``ValueError``): the topic's name is legal and open to clients, the body is not empty and not above the limit, the
properties fit their field. A batch has one topic and one wait flag, no delays and no retry topic.

    part of a batch     each has a unique key of its own; the batch itself has one more, which brokers do not store
    compression         from 4096 bytes on, zlib unless set otherwise; never of a batch

A message that is sent again keeps its key, so that its copies can be told from others.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from ...common.compression import deflate
from ...common.message import Message, ReceivedMessage, check_body
from ...common.names import RETRY_PREFIX, client_topic_remark, is_sendable_topic, reply_topic
from ...common.properties import (
    CLUSTER,
    CORRELATION_ID,
    MAX_PROPERTIES_BYTES,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    TTL,
    UNIQ_KEY,
    WAIT,
    encode_properties,
    format_properties,
)
from ...common.record import encode_batch, encode_batch_part
from ...remoting.codec.request_codes import RequestCode
from ..session.settings import ProducerSettings

REPLY_TYPE = "reply"
_LOG_OVERHEAD_BYTES = 20  # what Java's sample splitter adds for each message

# To look up a member of an enum takes as long as four calls: not once for each message.
_SEND: Final = RequestCode.SEND_MESSAGE_V2
_SEND_REPLY: Final = RequestCode.SEND_REPLY_MESSAGE_V2
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE


class OutgoingMessage(msgspec.Struct, frozen=True, gc=False):
    """A message, or a batch of one topic, as it travels."""

    topic: str
    body: bytes
    property_text: str
    message_id: str
    flag: int
    sys_flag: int
    code: RequestCode = _SEND
    is_batch: bool = False


class PreparedPart(msgspec.Struct, frozen=True, gc=False):
    """A message as it travels in a batch."""

    message_id: str
    encoded: bytes


def prepare_message(message: Message, unique_id: str, settings: ProducerSettings) -> OutgoingMessage:
    """Return a checked message ready to send.

    Raises:
        TypeError: the body is not bytes.
        ValueError: topic, body or properties cannot be sent.
    """
    # What needs no further look is told here: each of the four calls saved takes a fiftieth of a send.
    if (
        type(message) is not Message
        or (type(message.body) is not bytes or not 0 < len(message.body) <= settings.max_message_bytes)
        or (type(message.topic) is not str or _sending_remark(message.topic) is not None or message.flag)
    ):
        check_message(message, settings.max_message_bytes)
    body, sys_flag, code, message_id = message.body, 0, _SEND, unique_id
    is_late = message.delay_level or message.delay_ms is not None or message.deliver_at_ms is not None
    if is_late or message.properties or message.tags or message.keys:
        properties = message.to_properties()
        message_id = properties.setdefault(UNIQ_KEY, unique_id)
        if MSG_TYPE in properties and properties[MSG_TYPE] == REPLY_TYPE:
            code = _SEND_REPLY
        text = format_properties(properties)
        if 4 * len(text) > MAX_PROPERTIES_BYTES:  # a character takes up to four bytes
            _check_size(text)
    else:
        text = f"{WAIT}\x01{'true' if message.waits_for_store else 'false'}\x02{UNIQ_KEY}\x01{unique_id}\x02"
    if len(body) >= settings.compress_from_bytes:
        body = deflate(body, settings.compression, settings.compression_level)
        sys_flag = settings.compression.sys_flag
    return OutgoingMessage(message.topic, bytes(body), text, message_id, message.flag, sys_flag, code)


def prepare_batch(
    messages: Sequence[Message], unique_ids: Sequence[str], settings: ProducerSettings
) -> OutgoingMessage:
    """Return a checked batch ready to send; ``unique_ids`` holds one id for each message and one for the batch.

    Raises:
        TypeError: a message or a body is of a wrong type.
        ValueError: a message, their mixture or their sum cannot be sent.
    """
    if not messages:
        raise ValueError("batch is empty")
    first, max_bytes = messages[0], settings.max_message_bytes
    check_message(first, max_bytes)
    _check_together(first, first)
    topic, waits = first.topic, first.waits_for_store
    plain = f"{WAIT}\x01{'true' if waits else 'false'}\x02{UNIQ_KEY}\x01"
    parts: list[tuple[int, bytes, bytes]] = []
    keys: list[str] = []
    for message, unique_id in zip(messages, unique_ids, strict=False):
        # What is like the first, as nearly all are, needs no further look; else it takes a third more.
        if type(message) is not Message or type(message.body) is not bytes or message.topic != topic:
            check_message(message, max_bytes)
        if not 0 < len(message.body) <= max_bytes or message.flag:
            check_message(message, max_bytes)
        if message.topic != topic or message.waits_for_store != waits or message.is_late:
            _check_together(first, message)
        key, text = unique_id, f"{plain}{unique_id}\x02"
        if message.tags or message.keys or message.properties:
            properties = message.to_properties()
            key = properties.setdefault(UNIQ_KEY, unique_id)
            text = format_properties(properties)
        parts.append((message.flag, bytes(message.body), text.encode()))
        keys.append(key)
    batch = _batch_of(topic, encode_batch(parts), ",".join(keys), unique_ids[len(messages)], waits_for_store=waits)
    if len(batch.body) > max_bytes:
        raise ValueError(f"batch is {len(batch.body)} bytes, limit is {max_bytes}; see split_batch")
    return batch


def prepare_part(message: Message, unique_id: str) -> PreparedPart:
    """Return a message, which has been checked, ready to travel in a batch.

    Raises:
        TypeError, ValueError: its properties cannot be sent.
    """
    properties = message.to_properties()
    message_id = properties.setdefault(UNIQ_KEY, unique_id)
    return PreparedPart(message_id, encode_batch_part(message.flag, bytes(message.body), encode_properties(properties)))


def join_parts(topic: str, parts: Sequence[PreparedPart], unique_id: str, *, waits_for_store: bool) -> OutgoingMessage:
    """Return the batch of parts that have a topic and a wait flag in common."""
    body = b"".join([part.encoded for part in parts])
    keys = ",".join([part.message_id for part in parts])
    return _batch_of(topic, body, keys, unique_id, waits_for_store=waits_for_store)


def _batch_of(topic: str, body: bytes, keys: str, unique_id: str, *, waits_for_store: bool) -> OutgoingMessage:
    head = {UNIQ_KEY: unique_id, WAIT: "true" if waits_for_store else "false"}
    return OutgoingMessage(topic, body, format_properties(head), keys, 0, 0, _SEND_BATCH, is_batch=True)


def check_message(message: Message, max_bytes: int) -> None:
    """Refuse a message that no broker may get.

    Raises:
        TypeError: it is no message, or its body is not bytes.
        ValueError: its topic or the size of its body is not allowed.
    """
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"send takes a Message, not {type(message).__name__}")
    body, topic = message.body, message.topic
    if type(body) is not bytes:
        check_body(body)  # it may have been exchanged since the message was made
    if not isinstance(topic, str):  # pyright: ignore[reportUnnecessaryIsInstance] # as above
        raise TypeError(f"topic is {type(topic).__name__}, it must be text")
    if (remark := _sending_remark(topic)) is not None:
        raise ValueError(remark)
    if not body:
        raise ValueError("body is empty")
    if len(body) > max_bytes:
        raise ValueError(f"body is {len(body)} bytes, limit is {max_bytes}")
    if message.flag:
        _check_flag(message.flag)


def _check_together(first: Message, message: Message) -> None:
    """Refuse a message that may not travel with the first of a batch (Java's ``MessageBatch.generateFromList``).

    Raises:
        ValueError: It does not fit.
    """
    if message.topic != first.topic:
        raise ValueError(f"batch holds the topics {first.topic} and {message.topic}, it must have one")
    if message.waits_for_store != first.waits_for_store:
        raise ValueError("batch holds messages that wait for the store and others that do not")
    if message.topic.startswith(RETRY_PREFIX):
        raise ValueError(f"batch has the retry topic {message.topic}, which takes no batches")
    if message.is_late:
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


def reply_to(request: ReceivedMessage, body: bytes) -> Message:
    """Return the message that answers a request; any producer sends it.

        async def answer(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await producer.send(reply_to(message, b"42"))

    A requester that is gone makes the send fail with ``ResponseError`` 1.

    Raises:
        TypeError: it is not a received message.
        ValueError: the message is no request, or came from no broker.
    """
    if not isinstance(request, ReceivedMessage):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"reply_to takes a ReceivedMessage, not {type(request).__name__}")
    properties = {MSG_TYPE: REPLY_TYPE}
    for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL):
        if name in request.properties:
            properties[name] = request.properties[name]
    if CORRELATION_ID not in properties or REPLY_TO_CLIENT not in properties:
        raise ValueError(f"message {request.message_id} waits for no reply: it has no {CORRELATION_ID} of a request")
    if CLUSTER not in request.properties:
        raise ValueError(f"message {request.message_id} cannot be replied to: no broker has put {CLUSTER} into it")
    return Message(reply_topic(request.properties[CLUSTER]), body, properties=properties)


@lru_cache(maxsize=1024)  # a producer sends to few topics, and often
def _sending_remark(topic: str) -> str | None:
    remark = client_topic_remark(topic)
    if remark is None and not is_sendable_topic(topic):
        return f"topic {topic} takes no messages of clients"
    return remark


def _check_flag(flag: int) -> None:
    if not isinstance(flag, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"flag is {type(flag).__name__}, it must be a whole number")
    if not -(1 << 31) <= flag < 1 << 31:
        raise ValueError(f"flag is {flag}, it must fit 32 bits")


def _size_in_batch(message: Message) -> int:
    properties = message.to_properties()
    texts = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    return len(message.topic) + len(message.body) + texts + _LOG_OVERHEAD_BYTES


def _check_size(text: str) -> None:
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_PROPERTIES_BYTES:
        raise ValueError(f"properties are {size} bytes, limit is {MAX_PROPERTIES_BYTES}")
