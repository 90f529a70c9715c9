"""What one HTTP/2 connection may cost, and how often its peer may do what costs us more than it costs the peer."""

from __future__ import annotations

from msgspec import Struct

from ...common.errors import Http2Error
from .frames import LEAST_FRAME_LIMIT, MAX_WINDOW, MOST_FRAME_LIMIT, Http2Code

DEFAULT_WINDOW = 65_535
"""What a peer may send before it has read our settings."""


class FloodLimit(Struct, frozen=True):
    """So many at once, and so many a second in the long run."""

    burst: int
    per_second: int


class Http2Limits(Struct, frozen=True):
    """How much one connection may hold and ask for.

    A request with more headers than ``max_header_list_bytes`` is refused with status 431; one of more than
    ``max_header_block_bytes``, compressed or not, or in more than ``max_header_frames``, ends its connection. Bodies
    that have come and were not released are held: from ``max_stream_held_bytes`` on a stream's window is not opened
    again before some are released, and what would exceed ``max_held_bytes`` of the connection ends its stream. Answers
    that the peer gives no window for, or does not read, end the connection above ``max_unsent_bytes``.

    A peer has ``first_bytes_ms`` to say that it speaks HTTP/2, and may be silent for ``idle_ms`` without a stream.
    """

    max_frame_bytes: int = LEAST_FRAME_LIMIT
    max_header_list_bytes: int = 16 << 10
    max_header_block_bytes: int = 64 << 10
    max_header_frames: int = 16
    max_streams: int = 1024
    stream_window_bytes: int = 1 << 20
    connection_window_bytes: int = 4 << 20
    max_stream_held_bytes: int = 8 << 20
    max_held_bytes: int = 64 << 20
    max_unsent_bytes: int = 64 << 20
    high_water_bytes: int = 1 << 18
    low_water_bytes: int = 1 << 16
    first_bytes_ms: int = 10_000
    idle_ms: int = 120_000
    resets: FloodLimit = FloodLimit(500, 100)
    pings: FloodLimit = FloodLimit(500, 100)
    settings: FloodLimit = FloodLimit(50, 5)
    empty_data: FloodLimit = FloodLimit(100, 10)

    def __post_init__(self) -> None:
        if not min(self.stream_window_bytes, self.connection_window_bytes) >= DEFAULT_WINDOW:
            raise ValueError(f"a window is below {DEFAULT_WINDOW}, which a peer may use before it knows better")
        if max(self.stream_window_bytes, self.connection_window_bytes) > MAX_WINDOW:
            raise ValueError(f"a window is above {MAX_WINDOW}")
        if not LEAST_FRAME_LIMIT <= self.max_frame_bytes <= MOST_FRAME_LIMIT:
            raise ValueError(f"frame limit is {self.max_frame_bytes}, not {LEAST_FRAME_LIMIT} to {MOST_FRAME_LIMIT}")


class FloodGuard:
    """Counts one kind of thing that a peer does."""

    __slots__ = ("_left", "_limit", "_seen_at_ms", "_what")

    def __init__(self, limit: FloodLimit, what: str) -> None:
        self._limit = limit
        self._what = what
        self._left = 1000 * limit.burst  # in thousandths, so that milliseconds fill it evenly
        self._seen_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"<FloodGuard {self._what}, {self._left // 1000} left>"

    def count(self, now_ms: int) -> None:
        """Count one more.

        Raises:
            Http2Error: there were too many.
        """
        if self._seen_at_ms is not None:
            filled = self._left + (now_ms - self._seen_at_ms) * self._limit.per_second
            self._left = min(filled, 1000 * self._limit.burst)
        self._seen_at_ms = now_ms
        self._left -= 1000
        if self._left < 0:
            text = f"too many {self._what}: above {self._limit.burst} at once and {self._limit.per_second} a second"
            raise Http2Error(text, Http2Code.ENHANCE_YOUR_CALM)
