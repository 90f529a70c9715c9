"""Streams: what is open in each direction, what waits to be sent, and which ids are over.

    state                    is_receiving   is_sending
    open                     yes            yes
    half closed (remote)     no             yes
    half closed (local)      does not last: a request that was answered before it was complete is reset without error
    closed                   not in the table; at least the last ``REMEMBERED`` are known by how they ended

Rules
    1. The peer begins streams, with odd ids that grow. An id that was passed over was never open.
    2. What still comes for a stream that we have reset was on its way: it is ignored.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from .flow import ReceiveWindow

REMEMBERED = 1024
STREAM_BYTES = 2048
"""About what an open stream takes, with what serves it, beside headers and body."""


class Unsent(NamedTuple):
    """What waits to be sent: a piece of a body, or a header block."""

    payload: bytes | memoryview
    is_body: bool
    ends: bool


class Http2Stream(Struct, eq=False):
    """One stream that is not closed."""

    stream_id: int
    receive_window: ReceiveWindow
    send_window: int
    missing_bytes: int | None = None
    """How much of the body has to come yet, where its length was said."""
    is_receiving: bool = True
    is_ended: bool = False
    """Whether the end of our answer is sent, or waits to be."""
    held_bytes: int = 0
    own_bytes: int = 0
    """What it takes whatever its body is."""
    unsent_bytes: int = 0
    unsent: deque[Unsent] | None = None
    """What waits for windows, if ever something did."""

    def __repr__(self) -> str:
        state = "open" if self.is_receiving else "half closed"
        return f"<Http2Stream {self.stream_id} {state}, {self.unsent_bytes} bytes unsent, {self.held_bytes} held>"


class ClosedStreams:
    """How the last streams ended."""

    __slots__ = ("_ended", "last_stream_id")

    def __init__(self) -> None:
        self._ended: dict[int, bool] = {}
        self.last_stream_id = 0
        """The highest id that the peer has used."""

    def __repr__(self) -> str:
        return f"<ClosedStreams {len(self._ended)} up to {self.last_stream_id}>"

    def add(self, stream_id: int, *, by_us: bool) -> None:
        """Remember a stream, and whether we ended it while the peer was sending."""
        if len(self._ended) >= 2 * REMEMBERED:  # one by one would pass the gaps of all that were forgotten before
            self._ended = dict(islice(self._ended.items(), REMEMBERED, None))
        self._ended[stream_id] = by_us

    def is_idle(self, stream_id: int) -> bool:
        """Tell whether a stream has not begun yet."""
        return stream_id > self.last_stream_id or not stream_id & 1

    def is_known(self, stream_id: int) -> bool:
        """Tell whether a stream was open, not long ago."""
        return stream_id in self._ended

    def was_reset(self, stream_id: int) -> bool:
        """Tell whether we ended a stream while the peer was sending."""
        return self._ended.get(stream_id, False)
