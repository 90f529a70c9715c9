"""A client of gRPC that sends what no library would, and the service that answers it, without a socket."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from hpack import Decoder, Encoder
from http2_peer import EMPTY_SETTINGS
from memory_connection import MemoryTransport

from rocketlet.proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    FrameType,
    Http2FrameParser,
    encode_frame,
)
from rocketlet.proxy.http2.limits import Http2Limits
from rocketlet.proxy.http2.links import Http2Links
from rocketlet.proxy.http2.protocol import Http2Link, Http2Service
from rocketlet.proxy.rpc.call import Methods
from rocketlet.proxy.rpc.messages import MessageLimits
from rocketlet.proxy.rpc.service import GrpcService
from rocketlet.testing.manual_clock import ManualClock

Field = tuple[bytes, bytes]
CALL: tuple[Field, ...] = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)
_LARGEST = (1 << 24) - 1


def message(body: bytes, flag: int = 0) -> bytes:
    """Return a message as it stands in a body."""
    return struct.pack(">BI", flag, len(body)) + body


class _Transport(MemoryTransport):
    """Keeps every write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the bytes."""
        super().write(data)
        self.writes.append(bytes(data))


class Answer(NamedTuple):
    """What has come of one call: its headers, those behind them, its body, and whether its stream was reset."""

    fields: dict[bytes, bytes]
    body: bytes
    ends: int
    is_reset: bool


class GrpcPeer:
    """A connection in memory, served by methods."""

    def __init__(self, methods: Methods, limits: MessageLimits | None = None, http2: Http2Limits | None = None) -> None:
        self.clock = ManualClock()
        self.links = Http2Links(self.clock)
        self.turns = 0
        self.service = GrpcService(methods, self.clock, limits, self._end_turn)
        self.transport = _Transport()
        served = Http2Service(self.service.serve, self.service.after_batch)
        self.link = Http2Link(served, self.clock, http2 or Http2Limits(), self.links)
        self.link.connection_made(self.transport)
        self.encoder = Encoder()
        self._decoder = Decoder()
        self._parser = Http2FrameParser(_LARGEST)
        self._parser.has_preface = True
        self.send(PREFACE + EMPTY_SETTINGS)

    def _end_turn(self) -> None:
        self.turns += 1

    def send(self, *frames: bytes) -> None:
        """Hand the connection what a read would bring."""
        self.link.data_received(b"".join(frames))

    def headers(self, stream_id: int, path: bytes, more: Sequence[Field] = (), *, ends: bool = False) -> bytes:
        """Return the headers of a call."""
        return self.raw_headers(stream_id, [(b":path", path), *CALL, *more], ends=ends)

    def raw_headers(self, stream_id: int, fields: Sequence[Field], *, ends: bool = False) -> bytes:
        """Return any headers, pseudo headers to the front."""
        block = self.encoder.encode(sorted(fields, key=lambda field: field[0][:1] != b":"))
        return encode_frame(FrameType.HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream_id, block)

    def data(self, stream_id: int, body: bytes, *, ends: bool = False) -> bytes:
        """Return a piece of a body."""
        return encode_frame(FrameType.DATA, END_STREAM if ends else 0, stream_id, body)

    def answers(self) -> dict[int, Answer]:
        """Return what has come since, by streams."""
        answers: dict[int, Answer] = {}
        written, self.transport.writes = b"".join(self.transport.writes), []
        for frame in self._parser.feed(written):
            if not frame.stream_id:
                continue
            answer = answers.get(frame.stream_id, Answer({}, b"", 0, is_reset=False))
            ends = answer.ends
            if frame.kind in (FrameType.HEADERS, FrameType.DATA):
                ends += bool(frame.flags & END_STREAM)
            fields, body, is_reset = answer.fields, answer.body, answer.is_reset
            if frame.kind == FrameType.HEADERS:
                fields = {**fields, **dict(self._decoder.decode(frame.payload, raw=True))}
            elif frame.kind == FrameType.DATA:
                body += frame.payload
            elif frame.kind == FrameType.RST_STREAM:
                is_reset = True
            answers[frame.stream_id] = Answer(fields, body, ends, is_reset)
        return answers
