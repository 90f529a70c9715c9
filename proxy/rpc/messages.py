"""Messages of gRPC: cut out of the body of a request, and put in front of each other in that of an answer.

    offset  size  field
    0       1     1 if the message is compressed, as the header grpc-encoding says, else 0
    1       4     length of the message
    5       -     message

Rules
    1. A message above the limit ends its call with the first bytes of it.
    2. A compressed message is at most ``max_inflated_bytes`` long: inflating takes the loop some 3 ms for a megabyte,
       and a few bytes of a peer stand for a thousand times as many.
    3. Answers are not compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from msgspec import Struct

from ...common.errors import GrpcMessageError
from .call import GrpcStatus

_PREFIX = struct.Struct(">BI")
_GZIP = 31  # window bits that ask for the header and the checksum of gzip
ENCODINGS = frozenset({b"identity", b"gzip"})


class MessageLimits(Struct, frozen=True):
    """How long a message of a request may be (``grpcMaxInboundMessageSize``), and one that came compressed."""

    max_message_bytes: int = 130 << 20
    max_inflated_bytes: int = 16 << 20


class MessageReader:
    """Cuts the body of one request into messages."""

    __slots__ = ("_buffer", "_is_gzip", "_limits", "_needed")

    def __init__(self, limits: MessageLimits, encoding: bytes = b"identity") -> None:
        self._limits = limits
        self._is_gzip = encoding == b"gzip"
        self._buffer: bytearray | None = None
        self._needed = _PREFIX.size

    def __repr__(self) -> str:
        return f"<MessageReader {self.pending_bytes} of {self._needed} bytes>"

    @property
    def pending_bytes(self) -> int:
        """How much of a message that is not complete is kept."""
        return 0 if self._buffer is None else len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that a piece of the body completes.

        Raises:
            GrpcMessageError: one is too long or damaged.
        """
        buffer = self._buffer
        if buffer is None:
            message = whole_message(data)
            if message is not None and len(message) <= self._limits.max_message_bytes:
                return [message]
            messages, at = self._cut(data)
            if at < len(data):
                self._buffer = bytearray(memoryview(data)[at:])
            return messages
        buffer += data
        if len(buffer) < self._needed:
            return []
        messages, at = self._cut(buffer)
        if at == len(buffer):
            self._buffer = None
        else:
            del buffer[:at]
        return messages

    def _cut(self, buffer: bytes | bytearray) -> tuple[list[bytes], int]:
        """Return the messages in a buffer, and where they end."""
        messages: list[bytes] = []
        at, end = 0, len(buffer)
        while end - at >= _PREFIX.size:
            flag, size = _PREFIX.unpack_from(buffer, at)
            self._check_size(size)
            start = at + _PREFIX.size
            if start + size > end:
                self._needed = _PREFIX.size + size
                return messages, at
            with memoryview(buffer) as view:
                messages.append(self._decode(flag, bytes(view[start : start + size])))
            at = start + size
        self._needed = _PREFIX.size
        return messages, at

    def _check_size(self, size: int) -> None:
        limit = self._limits.max_message_bytes
        if size > limit:
            raise GrpcMessageError(f"a message is {size} bytes, limit is {limit}", GrpcStatus.RESOURCE_EXHAUSTED)

    def _decode(self, flag: int, message: bytes) -> bytes:
        if flag == 0:
            return message
        if flag != 1 or not self._is_gzip:
            raise GrpcMessageError(f"a message has the flag {flag}, and no encoding for that", GrpcStatus.INTERNAL)
        return inflate(message, self._limits.max_inflated_bytes)


def whole_message(data: bytes) -> bytes | None:
    """Return the message that a body is, as that of nearly every request; None if it is more, less, or compressed."""
    is_whole = int.from_bytes(data[: _PREFIX.size]) == len(data) - _PREFIX.size  # the flag is the highest byte of five
    return data[_PREFIX.size :] if is_whole else None


def inflate(message: bytes, limit: int) -> bytes:
    """Return what a message of gzip stands for.

    Raises:
        GrpcMessageError: it is more than the limit, or damaged.
    """
    inflating = zlib.decompressobj(_GZIP)
    try:
        inflated = inflating.decompress(message, limit + 1)
    except zlib.error as error:
        raise GrpcMessageError(f"a message cannot be decompressed: {error}", GrpcStatus.INTERNAL) from error
    if len(inflated) > limit:
        raise GrpcMessageError(
            f"a message of {len(message)} bytes is more than {limit} when it is decompressed",
            GrpcStatus.RESOURCE_EXHAUSTED,
        )
    if not inflating.eof or inflating.unused_data:
        raise GrpcMessageError("a compressed message ends too early or too late", GrpcStatus.INTERNAL)
    return inflated


def encode_messages(messages: Sequence[bytes]) -> bytes:
    """Return messages as they stand in a body, one behind the other."""
    if len(messages) == 1:
        return encode_message(messages[0])
    return b"".join([part for message in messages for part in (_PREFIX.pack(0, len(message)), message)])


def encode_message(message: bytes) -> bytes:
    """Return a message as it stands in a body."""
    return _PREFIX.pack(0, len(message)) + message
