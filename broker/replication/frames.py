"""What master and slave send each other at the HA port (``DefaultHAService``; spec replication.md §2).

    slave to master   end of its log (8): "I have everything before this"; again and again
    master to slave   log offset (8) | size (4) | so many bytes of the log; none: a heartbeat, the offset is the next

There is no handshake and no magic. Streams are cut anywhere; a part of a frame waits for its rest.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ...common.errors import FrameError

REPORT: Final = struct.Struct(">q")
HEAD: Final = struct.Struct(">qi")
MOST_TAKEN_BYTES: Final = (4 << 20) - HEAD.size
"""Of a frame: an official slave has a buffer of 4 MiB for it."""


class Frame(NamedTuple):
    """Bytes of the log, and where they stand; none in a heartbeat."""

    log_offset: int
    body: memoryview


class ReportParser:
    """Takes what a slave has sent apart."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the whole reports."""
        data = self._left + data
        end = len(data) - len(data) % REPORT.size
        self._left = data[end:]
        return [log_offset for (log_offset,) in REPORT.iter_unpack(data[:end])]


class FrameParser:
    """Takes what a master has sent apart.

    ``admit`` is told where the bytes of a frame stand as soon as its head is there; it raises what ends the connection.
    """

    def __init__(self, admit: Callable[[int], object]) -> None:
        self._admit = admit
        self._left = bytearray()
        self._wanted = HEAD.size  # with fewer bytes than these there is no frame

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the whole frames; each is to be used before the next is asked for.

        Raises:
            FrameError: A frame has a size or a place that none can have.
        """
        if self._left:
            self._left += data
            if len(self._left) < self._wanted:
                return
            data = bytes(self._left)
        elif len(data) < self._wanted:
            self._left += data
            return
        self._left = bytearray()
        view, at = memoryview(data), 0
        self._wanted = HEAD.size
        while len(view) - at >= HEAD.size:
            log_offset, size = HEAD.unpack_from(view, at)
            if log_offset < 0 or not 0 <= size <= MOST_TAKEN_BYTES:
                raise FrameError(f"HA frame at log offset {log_offset} is {size} bytes, limit is {MOST_TAKEN_BYTES}")
            self._admit(log_offset)
            end = at + HEAD.size + size
            if end > len(view):
                self._wanted = end - at
                break
            yield Frame(log_offset, view[at + HEAD.size : end])
            at = end
        self._left = bytearray(view[at:])
