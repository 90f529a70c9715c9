"""The server's end of one HTTP/2 connection, without a socket: bytes in and events out, calls in and bytes out.

``receive`` returns what the peer did, and ``take_output`` what is to be written then: answers to the peer's frames, and
what ``send_headers``, ``send_body``, ``reset`` and ``shut_down`` have added. Time is an argument.

Rules
    1. ``receive`` never raises for what a peer sends. A mistake that concerns one stream ends that stream, others end
       the connection: GOAWAY tells why, ``ConnectionEnded`` is the last event, and nothing more is read.
    2. What is sent for a stream that is over is dropped. Nobody has to ask before.
    3. Body bytes are held until they are released; windows follow what is held (``Http2Limits``).
    4. What the windows of the peer do not allow waits, the headers behind it too; streams take turns, frame by frame.
    5. What costs us more than the peer is counted (``FloodGuard``): streams that are reset, SETTINGS, empty DATA, and
       PING, but for one behind each part of an answer.
    6. Such a PING is acknowledged when ``send_late`` is called: clients of gRPC measure the path with it, and send the
       next as soon as the last is acknowledged. At once, that is a wake-up on both sides for each call.
    7. PRIORITY and unknown frames are ignored.

Source: RFC 9113.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ...common.errors import Http2Error
from .compiled import codecs
from .events import (
    BodyReceived,
    ConnectionEnded,
    Headers,
    Http2Event,
    PeerLeaving,
    RequestReset,
    RequestStarted,
    TrailersReceived,
)
from .flow import ReceiveWindow
from .frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    MAX_WINDOW,
    PADDED,
    PRIORITY,
    Frame,
    FrameType,
    Http2Code,
    Http2FrameParser,
    decode_uint,
    encode_frame,
    encode_goaway,
    encode_reset,
    encode_window_update,
    unpad,
)
from .headers import HeaderReader, body_length, encode_headers, trailers_fault
from .limits import FloodGuard, Http2Limits
from .sending import Http2Sender
from .settings import PeerSettings, encode_own_settings
from .streams import STREAM_BYTES, ClosedStreams, Http2Stream

TOO_LARGE = ((b":status", b"431"),)
_PRIORITY_BYTES = 5
_PING_BYTES = 8
_GOAWAY_BYTES = 8


class _Block(Struct, frozen=True, gc=False):
    """Whose header block is being put together."""

    stream_id: int
    ends: bool
    depends_on_itself: bool


class Http2Connection:
    """One connection, from the first byte on."""

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._parser = Http2FrameParser(limits.max_frame_bytes)
        self._headers = HeaderReader(limits.max_header_block_bytes, limits.max_header_frames)
        self._block: _Block | None = None
        self._settings = PeerSettings()
        self._has_settings = False
        self._window = ReceiveWindow(limits.connection_window_bytes, limits.connection_window_bytes)
        self._streams: dict[int, Http2Stream] = {}
        self._closed = ClosedStreams()
        self._sender = Http2Sender(self._settings)
        self._out = self._sender.out
        self.take_output = self._sender.take_output
        self._late: list[bytes] = []
        self._events: list[Http2Event] = []
        self._begun: dict[int, RequestStarted] = {}  # in this read, with nothing of their bodies so far
        self._now_ms = 0
        self._resets = FloodGuard(limits.resets, "streams that are reset")
        self._pings = FloodGuard(limits.pings, "pings")
        self._setting_frames = FloodGuard(limits.settings, "frames of settings")
        self._empty_data = FloodGuard(limits.empty_data, "empty pieces of bodies")
        self._last_served: int | None = None  # the highest stream that is served after ``shut_down``
        self.held_body_bytes = 0
        self._held_stream_bytes = 0  # by streams as such, with the headers of their requests
        self.is_failed = False
        self._out.append(encode_own_settings(limits))
        self._by_kind: dict[int, Callable[[Frame], None]] = {
            FrameType.DATA: self._on_data,
            FrameType.HEADERS: self._on_headers,
            FrameType.PRIORITY: self._on_priority,
            FrameType.RST_STREAM: self._on_reset,
            FrameType.SETTINGS: self._on_settings,
            FrameType.PUSH_PROMISE: self._on_push,
            FrameType.PING: self._on_ping,
            FrameType.GOAWAY: self._on_goaway,
            FrameType.WINDOW_UPDATE: self._on_window_update,
            FrameType.CONTINUATION: self._on_continuation,
        }

    def __repr__(self) -> str:
        state = "failed" if self.is_failed else "open"
        return f"<Http2Connection {state}, {len(self._streams)} streams, {self.unsent_bytes} bytes unsent>"

    @property
    def has_begun(self) -> bool:
        """Whether the peer has said that it speaks HTTP/2."""
        return self._parser.has_preface

    @property
    def stream_count(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    @property
    def is_done(self) -> bool:
        """Whether it has failed, or was shut down and all its streams are over."""
        return self.is_failed or (self._last_served is not None and not self._streams)

    def is_quiet(self, most_bytes: int) -> bool:
        """Whether it goes on, and keeps no more than so much for the peer."""
        return self._last_served is None and not self.is_failed and self.held_bytes <= most_bytes

    @property
    def unsent_bytes(self) -> int:
        """How much waits for windows of the peer."""
        return self._sender.unsent_bytes

    @property
    def held_bytes(self) -> int:
        """How much is kept for the peer."""
        pending = self._parser.pending_bytes + self._headers.pending_bytes
        return self.held_body_bytes + self._held_stream_bytes + self._sender.unsent_bytes + pending

    # what comes in

    def receive(self, data: bytes, now_ms: int) -> list[Http2Event]:
        """Take in what the peer has sent; return what it did."""
        if self.is_failed:
            return []
        self._now_ms = now_ms
        by_kind = self._by_kind
        try:
            if codecs is not None and self._has_settings and self._block is None and not self._parser.pending_bytes:
                data = self._take_calls(data)
            for frame in self._parser.feed(data) if data else ():
                if self._block is not None and frame.kind != FrameType.CONTINUATION:
                    raise Http2Error("headers are followed by another frame", Http2Code.PROTOCOL_ERROR)
                if not self._has_settings and frame.kind != FrameType.SETTINGS:
                    raise Http2Error("the first frame is not SETTINGS", Http2Code.PROTOCOL_ERROR)
                handle = by_kind.get(frame.kind)
                if handle is not None:
                    handle(frame)
        except Http2Error as error:
            self._fail(error)
        events, self._events = self._events, []
        if self._begun:
            self._begun.clear()
        return events

    def _take_calls(self, data: bytes) -> bytes:
        """Take the frames of calls at the front of a read, and return what is behind them.

        It does what is done for such frames one by one (docs/decisions/compiled-codecs.md says what it gains).
        """
        assert codecs is not None, "checked by the caller"
        frames, end = codecs.cut_call_frames(data, self._limits.max_frame_bytes)
        for stream_id, flags, payload in frames:
            if flags & END_HEADERS:
                self._take_headers(stream_id, self._headers.read(payload), ends=bool(flags & END_STREAM))
            else:
                self._take_data(stream_id, flags, payload)
        return data[end:]

    def release(self, stream_id: int, size: int) -> None:
        """Say that body bytes of a stream are not kept any more."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return  # they were released with the stream
        stream.held_bytes -= size
        self.held_body_bytes -= size
        self._open_window(stream)

    # what goes out

    @property
    def has_late(self) -> bool:
        """Whether there is something for ``send_late``."""
        return bool(self._late)

    def send_late(self) -> None:
        """Send what need not be sent at once."""
        self._out += self._late
        self._late.clear()

    def send_headers(self, stream_id: int, block: bytes, *, ends: bool = False) -> None:
        """Send a block of ``encode_headers``: those of an answer, or those behind its body."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.is_ended:
            self._sender.send_headers(stream, block, ends=ends)
            self._leave_if_ended(stream)

    def send_body(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        """Send a piece of an answer's body."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.is_ended:
            self._sender.send_body(stream, data, ends=ends)
            self._leave_if_ended(stream)

    def send_answer(self, stream_id: int, head: bytes, body: bytes, tail: bytes) -> None:
        """Send a whole answer: blocks of ``encode_headers`` around its body."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.is_ended:
            self._sender.send_whole(stream, head, body, tail)
            self._leave_if_ended(stream)

    def reset(self, stream_id: int, code: Http2Code = Http2Code.CANCEL) -> None:
        """End a stream, whatever has been sent or received of it."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._out.append(encode_reset(stream_id, code))
            self._close(stream, by_us=True)

    def shut_down(self) -> None:
        """Begin no more streams, and tell the peer so; those that are open go on.

        Answers that did not need the rest of their request end without a reset from then on: the peer that was told
        to leave does, and some clients take the reset for an error without end (h2 of Rust).
        """
        if self._last_served is None and not self.is_failed:
            self._last_served = self._closed.last_stream_id
            self._out.append(encode_goaway(self._last_served, Http2Code.NO_ERROR))

    def drop(self) -> None:
        """Keep nothing more: the connection has ended."""
        self.is_failed = True
        self._streams.clear()
        self._sender.clear()
        self._out.clear()
        self.held_body_bytes = self._held_stream_bytes = 0

    # the life of streams

    def _fail(self, error: Http2Error) -> None:
        self.is_failed = True
        self._out.append(encode_goaway(self._closed.last_stream_id, error.code, str(error)))
        self._streams.clear()
        self._sender.clear()
        self.held_body_bytes = self._held_stream_bytes = 0
        self._events.append(ConnectionEnded(error.code, str(error)))

    def _close(self, stream: Http2Stream, *, by_us: bool) -> None:
        del self._streams[stream.stream_id]
        if stream.unsent:
            self._sender.forget(stream)
        self.held_body_bytes -= stream.held_bytes
        self._held_stream_bytes -= stream.own_bytes
        self._closed.add(stream.stream_id, by_us=by_us)

    def _leave_if_ended(self, stream: Http2Stream) -> None:
        """Close a stream whose answer is sent to its end."""
        if not stream.is_ended or stream.unsent:
            return
        if stream.is_receiving and self._last_served is None:  # the answer did not need the rest of the request
            self._out.append(encode_reset(stream.stream_id, Http2Code.NO_ERROR))
        self._close(stream, by_us=stream.is_receiving)

    def _refuse(self, stream_id: int, code: Http2Code) -> None:
        """End a stream for a mistake of the peer."""
        self._resets.count(self._now_ms)
        self._out.append(encode_reset(stream_id, code))
        stream = self._streams.get(stream_id)
        if stream is None:
            self._closed.add(stream_id, by_us=True)
        else:
            self._close(stream, by_us=True)
            self._events.append(RequestReset(stream_id, code, by_peer=False))

    def _check_begun(self, stream_id: int, what: str) -> None:
        if stream_id == 0 or self._closed.is_idle(stream_id):
            raise Http2Error(f"{what} for stream {stream_id}, which has not begun", Http2Code.PROTOCOL_ERROR)

    # frames of a body

    def _on_data(self, frame: Frame) -> None:
        self._take_data(frame.stream_id, frame.flags, frame.payload)

    def _take_data(self, stream_id: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_begun(stream_id, "a body")
        if not self._window.take(size):
            raise Http2Error("a body exceeds the window of the connection", Http2Code.FLOW_CONTROL_ERROR)
        data = unpad(flags, payload) if flags & PADDED else payload
        if grant := self._window.refill():
            self._out.append(encode_window_update(0, grant))
        ends = bool(flags & END_STREAM)
        if not data and not ends:
            self._empty_data.count(self._now_ms)
        if stream is None:
            if not self._closed.was_reset(stream_id):
                self._resets.count(self._now_ms)
                self._out.append(encode_reset(stream_id, Http2Code.STREAM_CLOSED))
            return
        if code := self._data_fault(stream, size, len(data), ends=ends):
            self._refuse(stream_id, code)
            return
        stream.held_bytes += len(data)
        self.held_body_bytes += len(data)
        begun = self._begun.pop(stream_id, None)
        if not ends:
            self._open_window(stream)
            self._events.append(BodyReceived(stream_id, data, ends))
            return
        stream.is_receiving = False
        if begun is not None and data:
            begun.body, begun.ends = data, True
        else:
            self._events.append(BodyReceived(stream_id, data, ends))

    def _data_fault(self, stream: Http2Stream, size: int, body_size: int, *, ends: bool) -> Http2Code | None:
        if not stream.is_receiving:
            return Http2Code.STREAM_CLOSED
        if not stream.receive_window.take(size):
            return Http2Code.FLOW_CONTROL_ERROR
        if stream.missing_bytes is not None:
            stream.missing_bytes -= body_size
            if stream.missing_bytes < 0 or (ends and stream.missing_bytes):
                return Http2Code.PROTOCOL_ERROR
        if self.held_body_bytes + body_size > self._limits.max_held_bytes:
            return Http2Code.ENHANCE_YOUR_CALM
        return None

    def _open_window(self, stream: Http2Stream) -> None:
        if stream.is_receiving and stream.held_bytes <= self._limits.max_stream_held_bytes:
            grant = stream.receive_window.refill()
            if grant:
                self._out.append(encode_window_update(stream.stream_id, grant))

    # frames of headers

    def _on_headers(self, frame: Frame) -> None:
        stream_id, flags, payload = frame.stream_id, frame.flags, frame.payload
        if flags & PADDED:
            payload = unpad(flags, payload)
        if not stream_id & 1:
            raise Http2Error(f"headers for stream {stream_id}, which is not the peer's", Http2Code.PROTOCOL_ERROR)
        depends_on_itself = False
        if flags & PRIORITY:
            if len(payload) < _PRIORITY_BYTES:
                raise Http2Error("headers are shorter than their priority", Http2Code.FRAME_SIZE_ERROR)
            depends_on_itself = decode_uint(payload[:4]) & MAX_WINDOW == stream_id
            payload = payload[_PRIORITY_BYTES:]
        ends = bool(flags & END_STREAM)
        self._block = _Block(stream_id, ends, depends_on_itself)
        self._take_block(payload, flags)

    def _on_continuation(self, frame: Frame) -> None:
        if self._block is None or self._block.stream_id != frame.stream_id:
            raise Http2Error(f"stream {frame.stream_id} continues no headers", Http2Code.PROTOCOL_ERROR)
        self._take_block(frame.payload, frame.flags)

    def _take_block(self, piece: bytes, flags: int) -> None:
        block = self._block
        if not flags & END_HEADERS or block is None:
            self._headers.add(piece)
            return
        self._block = None
        headers = self._headers.read(piece)
        self._take_headers(block.stream_id, headers, ends=block.ends, is_faulty=block.depends_on_itself)

    def _take_headers(self, stream_id: int, headers: Headers, *, ends: bool, is_faulty: bool = False) -> None:
        """Take headers, or trailers; those that are faulty only change the table and refuse their stream."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._take_trailers(stream, headers, ends=ends, is_faulty=is_faulty)
        elif stream_id > self._closed.last_stream_id:
            self._closed.last_stream_id = stream_id
            self._begin(stream_id, headers, ends=ends, is_faulty=is_faulty)
        elif not self._closed.was_reset(stream_id):
            code = Http2Code.STREAM_CLOSED if self._closed.is_known(stream_id) else Http2Code.PROTOCOL_ERROR
            raise Http2Error(f"headers for stream {stream_id}, which is over", code)

    def _begin(self, stream_id: int, headers: Headers, *, ends: bool, is_faulty: bool) -> None:
        """Begin a stream, or refuse it."""
        limits = self._limits
        if len(self._streams) >= limits.max_streams or self._last_served is not None:
            self._refuse(stream_id, Http2Code.REFUSED_STREAM)
            return
        fields = None if codecs is None or not self._headers.is_faultless else codecs.common_fields(headers)
        missing_bytes = None
        if fields is None:
            fields = dict(headers)
            missing_bytes = body_length(headers, fields, checks_fields=not self._headers.is_faultless)
            if missing_bytes is not None and (missing_bytes < 0 or (ends and missing_bytes)):
                self._refuse(stream_id, Http2Code.PROTOCOL_ERROR)
                return
        if is_faulty:
            self._refuse(stream_id, Http2Code.PROTOCOL_ERROR)
            return
        window, header_bytes = limits.stream_window_bytes, self._headers.list_bytes
        stream = Http2Stream(stream_id, ReceiveWindow(window, window), self._settings.window_bytes, missing_bytes)
        stream.is_receiving = not ends
        stream.own_bytes = STREAM_BYTES + header_bytes
        self._held_stream_bytes += stream.own_bytes
        self._streams[stream_id] = stream
        if header_bytes > limits.max_header_list_bytes:
            self._resets.count(self._now_ms)
            self.send_headers(stream_id, encode_headers(TOO_LARGE), ends=True)
            return
        begun = RequestStarted(stream_id, headers, fields, ends)
        self._events.append(begun)
        if not ends:
            self._begun[stream_id] = begun

    def _take_trailers(self, stream: Http2Stream, headers: Headers, *, ends: bool, is_faulty: bool) -> None:
        if not stream.is_receiving:
            self._refuse(stream.stream_id, Http2Code.STREAM_CLOSED)
        elif not ends or is_faulty or stream.missing_bytes or trailers_fault(headers):
            self._refuse(stream.stream_id, Http2Code.PROTOCOL_ERROR)
        elif self._headers.list_bytes > self._limits.max_header_list_bytes:
            self._refuse(stream.stream_id, Http2Code.ENHANCE_YOUR_CALM)
        else:
            stream.is_receiving = False
            self._events.append(TrailersReceived(stream.stream_id, headers))

    # other frames

    def _on_priority(self, frame: Frame) -> None:
        if frame.stream_id == 0:
            raise Http2Error("a priority for stream 0", Http2Code.PROTOCOL_ERROR)
        if len(frame.payload) != _PRIORITY_BYTES:
            text = f"a priority is {len(frame.payload)} bytes, not {_PRIORITY_BYTES}"
            raise Http2Error(text, Http2Code.FRAME_SIZE_ERROR)
        if decode_uint(frame.payload[:4]) & MAX_WINDOW == frame.stream_id:
            raise Http2Error(f"stream {frame.stream_id} depends on itself", Http2Code.PROTOCOL_ERROR)

    def _on_reset(self, frame: Frame) -> None:
        self._check_begun(frame.stream_id, "a reset")
        code = decode_uint(frame.payload)
        self._resets.count(self._now_ms)
        stream = self._streams.get(frame.stream_id)
        if stream is not None:
            self._close(stream, by_us=False)
            self._events.append(RequestReset(frame.stream_id, code, by_peer=True))

    def _on_settings(self, frame: Frame) -> None:
        if frame.stream_id:
            raise Http2Error(f"settings for stream {frame.stream_id}", Http2Code.PROTOCOL_ERROR)
        if frame.flags & ACK:
            if frame.payload:
                raise Http2Error("an acknowledgement of settings is not empty", Http2Code.FRAME_SIZE_ERROR)
            if not self._has_settings:
                raise Http2Error("the first frame acknowledges settings", Http2Code.PROTOCOL_ERROR)
        self._setting_frames.count(self._now_ms)
        if frame.flags & ACK:
            return
        change = self._settings.apply(frame.payload)
        self._has_settings = True
        self._out.append(encode_frame(FrameType.SETTINGS, ACK, 0))
        if change:
            for stream in self._streams.values():
                if not self._sender.widen_stream(stream, change):
                    raise Http2Error("settings make the window of a stream too large", Http2Code.FLOW_CONTROL_ERROR)
            self._pump()

    def _on_push(self, frame: Frame) -> None:
        raise Http2Error(f"stream {frame.stream_id} pushes, which only servers do", Http2Code.PROTOCOL_ERROR)

    def _on_ping(self, frame: Frame) -> None:
        if frame.stream_id:
            raise Http2Error(f"a ping for stream {frame.stream_id}", Http2Code.PROTOCOL_ERROR)
        if len(frame.payload) != _PING_BYTES:
            text = f"a ping is {len(frame.payload)} bytes, not {_PING_BYTES}"
            raise Http2Error(text, Http2Code.FRAME_SIZE_ERROR)
        out = self._out
        if self._sender.has_answered:
            self._sender.has_answered = False
            out = self._late
        else:
            self._pings.count(self._now_ms)
        if not frame.flags & ACK:
            out.append(encode_frame(FrameType.PING, ACK, 0, frame.payload))

    def _on_goaway(self, frame: Frame) -> None:
        if frame.stream_id:
            raise Http2Error(f"the end of the connection for stream {frame.stream_id}", Http2Code.PROTOCOL_ERROR)
        if len(frame.payload) < _GOAWAY_BYTES:
            text = f"a GOAWAY is {len(frame.payload)} bytes, at least {_GOAWAY_BYTES} are needed"
            raise Http2Error(text, Http2Code.FRAME_SIZE_ERROR)
        self._setting_frames.count(self._now_ms)
        self._events.append(PeerLeaving(decode_uint(frame.payload[4:8])))

    def _on_window_update(self, frame: Frame) -> None:
        size, stream_id = decode_uint(frame.payload) & MAX_WINDOW, frame.stream_id
        if stream_id == 0:
            if not size:
                raise Http2Error("the window of the connection is opened by 0", Http2Code.PROTOCOL_ERROR)
            if not self._sender.widen(size):
                raise Http2Error("the window of the connection is too large", Http2Code.FLOW_CONTROL_ERROR)
            self._pump()
            return
        self._check_begun(stream_id, "a window")
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if not size:
            self._refuse(stream_id, Http2Code.PROTOCOL_ERROR)
        elif not self._sender.widen_stream(stream, size):
            self._refuse(stream_id, Http2Code.FLOW_CONTROL_ERROR)
        else:
            self._pump()

    def _pump(self) -> None:
        for stream in self._sender.pump():
            self._leave_if_ended(stream)
