"""Frames: bytes to commands and back, without a socket.

    int32  total          bytes that follow: 4 + header length + body length
    int32  header word    serialise type << 24 | header length
    bytes  header         JSON (type 0) or binary (type 1)
    bytes  body           the rest

Rule 1: Big-endian; ``total`` is checked as soon as its four bytes are there, so garbage never waits for more.
Rule 2: Everything that a read brought is parsed in one loop over that read; only a frame's header and body are copied.
Rule 3: A frame that comes in pieces is collected in one buffer that never grows beyond the frame.
Rule 4: What came whole before a bad frame is still delivered; after a bad frame the connection is lost.

``spec/remoting.md`` §1.1; upstream ``NettyDecoder`` and ``RemotingCommand.decode``.
"""

import struct

from ...common.errors import FrameError
from .command import JSON, ROCKETMQ, Command
from .header_codec import (
    decode_binary_header,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
    fits_binary,
)

Buffer = bytes | memoryview
Encoded = bytes | list[Buffer]
"""A whole frame, with the opaque of its request: one buffer, or several in order."""

MAX_FRAME_BYTES = 16_777_216
PREFIX = struct.Struct(">ii")
_MAX_HEADER_BYTES = 2**24 - 1


class FrameParser:
    """Collects the bytes of one direction of a connection and returns the commands in them."""

    __slots__ = ("_max_total", "_pending", "expected_bytes", "failure")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_total = max_frame_bytes - 4
        self._pending = bytearray()
        self.expected_bytes = 0  # what the pending frame needs, 0 while that is not known
        self.failure: FrameError | None = None

    def __repr__(self) -> str:
        return f"<FrameParser {len(self._pending)} of {self.expected_bytes} bytes pending, failure={self.failure!r}>"

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an incomplete frame are held."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Command]:
        """Take the next bytes and return the commands that are complete now.

        Raises:
            FrameError: the connection must be closed. Commands before the bad frame come first; the error is in
                ``failure`` then, and the next call raises it.
        """
        if self.failure is not None:
            raise self.failure
        commands: list[Command] = []
        try:
            self._parse(data, self._complete_pending(data, commands) if self._pending else 0, commands)
        except FrameError as error:
            self.failure = error
            if not commands:
                raise
        return commands

    def _parse(self, data: bytes, position: int, commands: list[Command]) -> None:
        end = len(data)
        while end - position >= 8:
            total, word = PREFIX.unpack_from(data, position)
            frame_end = position + 4 + total
            if not 4 <= total <= self._max_total or frame_end > end:
                break
            body_at = position + 8 + (word & _MAX_HEADER_BYTES)
            if body_at > frame_end:
                raise FrameError(f"header is {body_at - position - 8} bytes, the frame holds {total - 4}")
            header = data[position + 8 : body_at]
            command = decode_json_header(header) if word >> 24 == JSON else _decode_other_header(word >> 24, header)
            command.body = data[body_at:frame_end]
            commands.append(command)
            position = frame_end
        if position < end:
            self._pending += data[position:]
            self._measure_pending()

    def _complete_pending(self, data: bytes, commands: list[Command]) -> int:
        """Add to the pending frame what belongs to it, parse it if it is whole, and return where the next begins."""
        pending = self._pending
        taken = 0
        if not self.expected_bytes:
            taken = 4 - len(pending)
            pending += data[:taken]
            self._measure_pending()
            if not self.expected_bytes:
                return len(data)
        taken_end = taken + self.expected_bytes - len(pending)
        pending += data[taken:taken_end]
        if len(pending) == self.expected_bytes:
            frame = bytes(pending)
            pending.clear()
            self.expected_bytes = 0
            self._parse(frame, 0, commands)
        return min(taken_end, len(data))

    def _measure_pending(self) -> None:
        if len(self._pending) >= 4:
            total = int.from_bytes(self._pending[:4], "big", signed=True)
            if not 4 <= total <= self._max_total:
                raise FrameError(f"frame is {total + 4} bytes, limit is {self._max_total + 4}")
            self.expected_bytes = total + 4


def encode_command(command: Command) -> bytes:
    """Return the whole frame of a command, in the serialisation that it names and that it fits."""
    if command.serialize == ROCKETMQ and fits_binary(command):
        kind, header = ROCKETMQ, encode_binary_header(command)
    else:
        kind, header = JSON, encode_json_header(command)
    size = len(header)
    if size > _MAX_HEADER_BYTES:
        raise FrameError(f"header is {size} bytes, limit is {_MAX_HEADER_BYTES}")
    return b"".join((PREFIX.pack(4 + size + len(command.body), kind << 24 | size), header, command.body))


def _decode_other_header(kind: int, header: bytes) -> Command:
    if kind == ROCKETMQ:
        return decode_binary_header(header)
    raise FrameError(f"serialise type {kind} is unknown")
