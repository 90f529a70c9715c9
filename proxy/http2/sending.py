"""What goes out on a connection, as far as the windows of the peer allow.

Rules
    1. Headers need no window, but stay behind the body before them.
    2. Of the streams whose own windows are open, each sends a frame in its turn while that of the connection is.
    3. A piece that waits is not copied for each frame that is cut from it.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from .flow import widened
from .frames import END_STREAM, LEAST_FRAME_LIMIT, FrameType, encode_answer_frames, encode_frame, encode_header_frames
from .headers import TABLE_OF_NOTHING
from .limits import DEFAULT_WINDOW
from .settings import PeerSettings
from .streams import Http2Stream, Unsent

_MOST_FRAME_BYTES = 1 << 16  # of ours, however large the peer takes them: streams take turns


class Http2Sender:
    """The outgoing half of a connection."""

    def __init__(self, settings: PeerSettings) -> None:
        self.out: list[bytes] = []
        self.unsent_bytes = 0
        """How much waits for windows."""
        self.has_answered = False
        """Whether a part of an answer has left since this was last set to False."""
        self._settings = settings
        self._window = DEFAULT_WINDOW
        self._waiting: OrderedDict[int, Http2Stream] = OrderedDict()  # for the window of the connection alone
        self._has_sent_headers = False

    def __repr__(self) -> str:
        return f"<Http2Sender window {self._window}, {self.unsent_bytes} bytes unsent, {len(self._waiting)} waiting>"

    def take_output(self) -> list[bytes]:
        """Return what is to be written, in the list that is filled on."""
        taken = self.out.copy()
        self.out.clear()
        return taken

    def clear(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self.unsent_bytes = 0

    def forget(self, stream: Http2Stream) -> None:
        """Drop what waits of a stream."""
        self._waiting.pop(stream.stream_id, None)
        self.unsent_bytes -= stream.unsent_bytes
        stream.unsent = None
        stream.unsent_bytes = 0

    def send_headers(self, stream: Http2Stream, block: bytes, *, ends: bool) -> None:
        """Send headers now, or behind what waits."""
        stream.is_ended = ends
        if stream.unsent:
            self._keep(stream, Unsent(block, is_body=False, ends=ends))
        else:
            self._write_headers(stream.stream_id, block, ends=ends)

    def send_body(self, stream: Http2Stream, data: bytes, *, ends: bool) -> None:
        """Send a piece of a body now, as far as it may, and keep the rest."""
        stream.is_ended = ends
        size = len(data)
        may_leave = not size or size <= min(self._window, stream.send_window, self._frame_bytes())
        if may_leave and not stream.unsent:
            self._write_body(stream, data, ends=ends)
            return
        self._keep(stream, Unsent(memoryview(data), is_body=True, ends=ends))
        self.pump()

    def send_whole(self, stream: Http2Stream, head: bytes, body: bytes, tail: bytes) -> None:
        """Send headers, a body and the headers behind it: in one piece where nothing is in the way."""
        size = len(body)
        if (
            stream.unsent
            or size > self._window
            or size > stream.send_window
            or len(head) + size + len(tail) > LEAST_FRAME_LIMIT
            or not self._has_sent_headers
        ):
            self.send_headers(stream, head, ends=False)
            self.send_body(stream, body, ends=False)
            self.send_headers(stream, tail, ends=True)
            return
        stream.is_ended = self.has_answered = True
        self._window -= size
        stream.send_window -= size
        self.out.append(encode_answer_frames(stream.stream_id, head, body, tail))

    def widen(self, size: int) -> bool:
        """Take in that the peer opened the window of the connection; False if it is too large now."""
        window = widened(self._window, size)
        if window is None:
            return False
        self._window = window
        return True

    def widen_stream(self, stream: Http2Stream, size: int) -> bool:
        """Take in that the peer changed the window of a stream; False if it is too large now."""
        window = widened(stream.send_window, size)
        if window is None:
            return False
        stream.send_window = window
        if stream.unsent and stream.send_window > 0:
            self._waiting[stream.stream_id] = stream
        return True

    def pump(self) -> list[Http2Stream]:
        """Send what may be sent; return the streams of which nothing waits any more."""
        emptied: list[Http2Stream] = []
        while self._waiting and self._window > 0:
            stream_id, stream = self._waiting.popitem(last=False)
            self._send_next(stream)
            if not stream.unsent:
                emptied.append(stream)
            elif stream.send_window > 0:
                self._waiting[stream_id] = stream
        return emptied

    def _frame_bytes(self) -> int:
        return min(self._settings.max_frame_bytes, _MOST_FRAME_BYTES)

    def _keep(self, stream: Http2Stream, unsent: Unsent) -> None:
        if stream.unsent is None:
            stream.unsent = deque()
        stream.unsent.append(unsent)
        self._count(stream, len(unsent.payload))
        if stream.send_window > 0:
            self._waiting[stream.stream_id] = stream

    def _count(self, stream: Http2Stream, size: int) -> None:
        stream.unsent_bytes += size
        self.unsent_bytes += size

    def _send_next(self, stream: Http2Stream) -> None:
        """Send one frame of a body, and what needs no window behind it."""
        unsent = stream.unsent
        assert unsent, "who waits for a window has something to send"
        payload, _, ends = unsent[0]
        size = min(self._window, stream.send_window, self._frame_bytes())
        if size < len(payload):
            self._write_body(stream, payload[:size], ends=False)
            unsent[0] = Unsent(payload[size:], is_body=True, ends=ends)
            self._count(stream, -size)
            return
        self._write_body(stream, payload, ends=ends)
        unsent.popleft()
        self._count(stream, -len(payload))
        while unsent and not (unsent[0].is_body and unsent[0].payload):
            payload, is_body, ends = unsent.popleft()
            if is_body:
                self._write_body(stream, payload, ends=ends)
            else:
                self._write_headers(stream.stream_id, bytes(payload), ends=ends)
                self._count(stream, -len(payload))

    def _write_body(self, stream: Http2Stream, data: bytes | memoryview, *, ends: bool) -> None:
        self.has_answered = True
        self._window -= len(data)
        stream.send_window -= len(data)
        self.out.append(encode_frame(FrameType.DATA, END_STREAM if ends else 0, stream.stream_id, data))

    def _write_headers(self, stream_id: int, block: bytes, *, ends: bool) -> None:
        self.has_answered = True
        if not self._has_sent_headers:
            self._has_sent_headers = True
            block = TABLE_OF_NOTHING + block
        self.out.append(encode_header_frames(stream_id, block, self._settings.max_frame_bytes, ends=ends))
