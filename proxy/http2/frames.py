"""Frames of HTTP/2, read and written.

    offset  size  field
    0       3     length of the payload
    3       1     type
    4       1     flags
    5       4     stream, the highest bit is ignored; 0 is the connection
    9       -     payload

Rules
    1. A frame above the limit is an error before its payload has come, so that no more than one frame is kept.
    2. What a payload means is not known here, but how it is padded is.

Source: RFC 9113, sections 4 and 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct

from ...common.errors import Http2Error
from .compiled import codecs

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
MAX_WINDOW = (1 << 31) - 1
LEAST_FRAME_LIMIT = 1 << 14
MOST_FRAME_LIMIT = (1 << 24) - 1

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20

_HEAD = struct.Struct(">BHBBI")
_UINT = struct.Struct(">I")
_TWO_UINTS = struct.Struct(">II")


class FrameType(IntEnum):
    """What a frame is; others are ignored."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Http2Code(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Frame(Struct, frozen=True, gc=False):
    """One frame."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


class Http2FrameParser:
    """Cuts what comes in into frames, the client's preface first."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._rest = b""
        self.has_preface = False

    def __repr__(self) -> str:
        return f"<Http2FrameParser {'open' if self.has_preface else 'new'}, {len(self._rest)} bytes pending>"

    @property
    def pending_bytes(self) -> int:
        """How much of a frame that is not complete is kept."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that the bytes complete.

        Raises:
            Http2Error: the preface is wrong, or a frame is too large.
        """
        buffer = self._rest + data if self._rest else data
        at, end = 0, len(buffer)
        self._rest = b""
        if not self.has_preface:
            if not PREFACE.startswith(buffer[: len(PREFACE)]):
                raise Http2Error("the client's first bytes are not HTTP/2", Http2Code.PROTOCOL_ERROR)
            if end < len(PREFACE):
                self._rest = buffer
                return
            self.has_preface, at = True, len(PREFACE)
        while end - at >= HEADER_BYTES:
            high, low, kind, flags, stream_id = _HEAD.unpack_from(buffer, at)
            size = high << 16 | low
            if size > self._max_frame_bytes:
                text = f"frame is {size} bytes, limit is {self._max_frame_bytes}"
                raise Http2Error(text, Http2Code.FRAME_SIZE_ERROR)
            start, after = at + HEADER_BYTES, at + HEADER_BYTES + size
            if after > end:
                break
            at = after
            yield Frame(kind, flags, stream_id & MAX_WINDOW, buffer[start:after])
        self._rest = buffer[at:]


def unpad(flags: int, payload: bytes) -> bytes:
    """Return a payload without its padding.

    Raises:
        Http2Error: there is more padding than payload.
    """
    if not flags & PADDED:
        return payload
    if not payload:
        raise Http2Error("a padded frame has no length of its padding", Http2Code.FRAME_SIZE_ERROR)
    padding = payload[0]
    if padding >= len(payload):
        text = f"padding is {padding} bytes of a payload of {len(payload)}"
        raise Http2Error(text, Http2Code.PROTOCOL_ERROR)
    return payload[1 : len(payload) - padding]


def decode_uint(payload: bytes) -> int:
    """Return the number of four bytes that a payload is.

    Raises:
        Http2Error: it has another size.
    """
    if len(payload) != _UINT.size:
        raise Http2Error(f"payload is {len(payload)} bytes, not {_UINT.size}", Http2Code.FRAME_SIZE_ERROR)
    number: int = _UINT.unpack(payload)[0]
    return number


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes | memoryview = b"") -> bytes:
    """Return a frame."""
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def encode_header_frames(stream_id: int, block: bytes, max_frame_bytes: int, *, ends: bool) -> bytes:
    """Return a header block as HEADERS, with as many CONTINUATION as it needs."""
    ending = END_STREAM if ends else 0
    if len(block) <= max_frame_bytes:
        return encode_frame(FrameType.HEADERS, END_HEADERS | ending, stream_id, block)
    frames = [encode_frame(FrameType.HEADERS, ending, stream_id, block[:max_frame_bytes])]
    for at in range(max_frame_bytes, len(block), max_frame_bytes):
        flags = END_HEADERS if at + max_frame_bytes >= len(block) else 0
        frames.append(encode_frame(FrameType.CONTINUATION, flags, stream_id, block[at : at + max_frame_bytes]))
    return b"".join(frames)


def encode_answer_frames(stream_id: int, head: bytes, body: bytes, tail: bytes) -> bytes:
    """Return HEADERS, DATA and the HEADERS that end a stream, each of a size that fits a frame."""
    if codecs is not None:
        return codecs.encode_answer_frames(stream_id, head, body, tail)
    size, pack = len(body), _HEAD.pack
    return b"".join(
        (
            pack(0, len(head), FrameType.HEADERS, END_HEADERS, stream_id),
            head,
            pack(size >> 16, size & 0xFFFF, FrameType.DATA, 0, stream_id),
            body,
            pack(0, len(tail), FrameType.HEADERS, END_HEADERS | END_STREAM, stream_id),
            tail,
        )
    )


def encode_reset(stream_id: int, code: int) -> bytes:
    """Return an RST_STREAM."""
    return encode_frame(FrameType.RST_STREAM, 0, stream_id, _UINT.pack(code))


def encode_window_update(stream_id: int, size: int) -> bytes:
    """Return a WINDOW_UPDATE; stream 0 is the connection."""
    return encode_frame(FrameType.WINDOW_UPDATE, 0, stream_id, _UINT.pack(size))


def encode_goaway(last_stream_id: int, code: int, text: str = "") -> bytes:
    """Return a GOAWAY, with a text for whoever reads the peer's log."""
    return encode_frame(FrameType.GOAWAY, 0, 0, _TWO_UINTS.pack(last_stream_id, code) + text.encode())
