"""Flow control in both directions, for a connection as for a stream.

Rules
    1. A window that we give is filled up when half of it is used, not with each frame.
    2. A window that the peer gives may be negative, after its settings have made it smaller (RFC 9113, 6.9.2).
"""

from __future__ import annotations

from msgspec import Struct

from .frames import MAX_WINDOW


class ReceiveWindow(Struct, gc=False):
    """What the peer may send: so many bytes of so many."""

    left: int
    full: int

    def take(self, size: int) -> bool:
        """Use some of it; False when there was not as much."""
        self.left -= size
        return self.left >= 0

    def refill(self) -> int:
        """Return by how much to open it now, 0 while more than half is left."""
        if self.left > self.full >> 1:
            return 0
        grant = self.full - self.left
        self.left = self.full
        return grant


def widened(window: int, size: int) -> int | None:
    """Return a window that the peer has changed by so much, None if it is larger than there may be."""
    window += size
    return None if window > MAX_WINDOW else window
