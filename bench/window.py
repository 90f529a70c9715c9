"""The load: one connection that keeps a window of requests in flight and counts the answers.

It looks at the length field of each answer only, so that the load costs little beside the server on the same
cores. The first answer of a run is decoded and must have the code 0 (the echo's has none and is not looked at).
"""

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from rocketlet.remoting.codec.frames import FrameParser

_LENGTH = struct.Struct(">i")


@dataclass
class Run:
    """What one run sends: an endless supply of frames, how many, and how many at a time."""

    frames: Iterator[bytes]
    count: int
    in_flight: int
    on_answer: Callable[[bytes], None] | None = None
    latencies_ns: list[int] = field(default_factory=list[int])


class Window(asyncio.Protocol):
    """Keep ``in_flight`` requests on the way until ``count`` answers have come."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._left_to_send = run.count
        self._answered = 0
        self._pending = b""
        self._loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the window."""
        self._transport = cast("asyncio.Transport", transport)
        self._send(self._run.in_flight)

    def data_received(self, data: bytes) -> None:
        """Count whole answers and refill the window."""
        answers = self._count(self._pending + data if self._pending else data)
        self._answered += answers
        if self._answered >= self._run.count:
            if not self.finished.done():
                self.finished.set_result(None)
        elif answers:
            self._send(answers)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the run when the server hangs up early."""
        if not self.finished.done():
            self.finished.set_exception(ConnectionError(f"closed after {self._answered} answers: {exc}"))

    def _count(self, data: bytes) -> int:
        position = answers = 0
        end = len(data)
        while position + 4 <= end:
            length = _LENGTH.unpack_from(data, position)[0] + 4
            if position + length > end:
                break
            if self._run.on_answer is not None:
                self._run.on_answer(data[position : position + length])
            position += length
            answers += 1
        self._pending = data[position:]
        return answers

    def _send(self, count: int) -> None:
        count = min(count, self._left_to_send)
        if count:
            self._left_to_send -= count
            frames = self._run.frames
            self._transport.write(b"".join([next(frames) for _ in range(count)]))


def refuse_errors(frame: bytes) -> None:
    """End the program if an answer has another code than 0."""
    for command in FrameParser().feed(frame):
        if command.code != 0:
            raise SystemExit(f"the broker answered {command.code}: {command.remark}")


async def drive(host: str, port: int, run: Run) -> float:
    """Run to the end and return the seconds it took."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    transport, window = await loop.create_connection(lambda: Window(run), host, port)
    try:
        await window.finished
        return loop.time() - begin
    finally:
        transport.close()
