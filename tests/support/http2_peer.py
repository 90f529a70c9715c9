"""A client of HTTP/2 for tests that send what no well-kept library would: frames by hand, headers by hpack."""

import struct
from collections.abc import Sequence

from hpack import Decoder, Encoder

from rocketlet.proxy.http2.connection import Http2Connection
from rocketlet.proxy.http2.events import ConnectionEnded, Http2Event
from rocketlet.proxy.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PREFACE,
    Frame,
    FrameType,
    Http2Code,
    Http2FrameParser,
    encode_frame,
)
from rocketlet.proxy.http2.limits import Http2Limits

REQUEST = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"localhost"))
EMPTY_SETTINGS = encode_frame(FrameType.SETTINGS, 0, 0)
MOST = (1 << 24) - 1


def uint(number: int) -> bytes:
    """Return four bytes."""
    return struct.pack(">I", number)


def setting(name: int, value: int) -> bytes:
    """Return a SETTINGS frame with one setting."""
    return encode_frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", name, value))


def ping(number: int) -> bytes:
    """Return a PING frame."""
    return encode_frame(FrameType.PING, 0, 0, struct.pack(">Q", number))


def data(stream_id: int, body: bytes, flags: int = 0) -> bytes:
    """Return a DATA frame."""
    return encode_frame(FrameType.DATA, flags, stream_id, body)


class Http2Peer:
    """A client and the connection that serves it, without a socket; time is ``now_ms``."""

    def __init__(self, limits: Http2Limits | None = None, first: bytes = PREFACE + EMPTY_SETTINGS) -> None:
        self.connection = Http2Connection(limits or Http2Limits())
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.now_ms = 0
        self._parser = Http2FrameParser(MOST)
        self._parser.has_preface = True
        self.send(first)
        self.frames()

    def send(self, *frames: bytes) -> list[Http2Event]:
        """Hand the connection what a read would bring; return what it makes of it."""
        return self.connection.receive(b"".join(frames), self.now_ms)

    def frames(self) -> list[Frame]:
        """Return what the connection has sent since."""
        return [*self._parser.feed(b"".join(self.connection.take_output()))]

    def headers(self, stream_id: int, more: Sequence[tuple[bytes, bytes]] = (), flags: int = END_STREAM) -> bytes:
        """Return a request's headers."""
        block = self.encoder.encode([*REQUEST, *more])
        return encode_frame(FrameType.HEADERS, END_HEADERS | flags, stream_id, block)


def code_of(events: list[Http2Event]) -> Http2Code | None:
    """Return the code with which a connection was ended, None while it is not."""
    return Http2Code(events[-1].code) if events and isinstance(events[-1], ConnectionEnded) else None


def reset_code(frames: list[Frame], stream_id: int) -> int | None:
    """Return the code with which a stream was reset, None if it was not."""
    codes = [one.payload for one in frames if one.kind == FrameType.RST_STREAM and one.stream_id == stream_id]
    return int.from_bytes(codes[0], "big") if codes else None


def body_bytes(frames: list[Frame], stream_id: int) -> int:
    """Return how much of a body was sent."""
    return sum(len(one.payload) for one in frames if one.kind == FrameType.DATA and one.stream_id == stream_id)


def is_acknowledgement(frame: Frame) -> bool:
    """Tell whether a frame acknowledges settings or a ping."""
    return frame.kind in (FrameType.SETTINGS, FrameType.PING) and bool(frame.flags & ACK)
