"""A TCP proxy on the loop of the test that breaks connections in the ways in which networks do.

    drop      both ends of every connection are reset
    silence   what was sent on a connection that is open now never arrives, and neither end is told (half open);
              connections that are made afterwards work
    slow      until ``heal``, only so much passes each way, again and again after a pause
    flap      until ``heal``, each connection is cut after some bytes, wherever that is, as are those made afterwards

Before a name server it also replaces the address of a broker in routes by that of the proxy before the broker.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Self

from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.transport.event_loop import LoopClock, TaskScope

READ_BYTES = 1 << 16
_clock = LoopClock()


class Replaced(NamedTuple):
    """An address that clients must not see, and what they see in its place."""

    old: str
    new: str


class Pace(NamedTuple):
    """How slowly bytes pass: at most so many after each pause."""

    most_bytes: int
    pause_ms: int


class _Link:
    """A client's connection, continued by one to the server; cut when ``left`` bytes have passed, if that is said."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter, left: int | None) -> None:
        self.client = client
        self.server = server
        self.left = left
        self.is_silent = False

    def admit(self, data: bytes) -> bytes:
        """Return what passes of it."""
        if self.is_silent:
            return b""
        if self.left is not None:
            data = data[: self.left]
            self.left -= len(data)
        return data

    def abort(self) -> None:
        """Reset both ends."""
        for end in (self.client, self.server):
            end.transport.abort()


class Proxy:
    """One listener before one server; ``async with`` opens and closes it."""

    def __init__(self, target: str, replaced: Replaced | None = None) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._replaced = replaced
        self._links: set[_Link] = set()
        self._tasks = TaskScope()
        self._server: asyncio.Server | None = None
        self._pace: Pace | None = None
        self._draw: Callable[[], int | None] = _never

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._server is not None, "it is asked for inside the block"
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        """Listen."""
        await self._tasks.__aenter__()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Listen no more and reset what is open."""
        assert self._server is not None, "the block was entered"
        self._server.close()
        await self._tasks.__aexit__(None, None, None)

    def drop(self) -> None:
        """Reset every connection."""
        for link in self._links:
            link.abort()

    def silence(self) -> None:
        """Let nothing pass any more on the connections that are open now."""
        for link in self._links:
            link.is_silent = True

    def slow(self, pace: Pace) -> None:
        """Let bytes pass at this pace."""
        self._pace = pace

    def flap(self, draw: Callable[[], int]) -> None:
        """Cut each connection after as many bytes as are drawn for it."""
        self._set_ends(draw)

    def heal(self) -> None:
        """Let all pass again; what is silent stays so."""
        self._pace = None
        self._set_ends(_never)

    def _set_ends(self, draw: Callable[[], int | None]) -> None:
        self._draw = draw
        for link in self._links:
            link.left = draw()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer), name="link")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, int(self._port))
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, server_writer, self._draw())
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(link, _chunks(reader), server_writer))
                pumps.create_task(self._pump(link, self._answers(server_reader), writer))
        except* OSError:
            pass  # one end is gone, so the other goes as well
        finally:
            self._links.discard(link)
            link.abort()

    async def _answers(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        if self._replaced is None:
            async for chunk in _chunks(reader):
                yield chunk
            return
        parser, (old, new) = FrameParser(), self._replaced
        async for chunk in _chunks(reader):
            for command in parser.feed(chunk):
                command.body = command.body.replace(old.encode(), new.encode())
                yield encode_command(command)

    async def _pump(self, link: _Link, chunks: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            async for piece in self._paced(chunks):
                if writer.transport.is_closing():
                    break  # on uvloop a write would be no OSError
                if passed := link.admit(piece):
                    writer.write(passed)
                    await writer.drain()
                if link.left == 0:
                    break
        if link.is_silent:
            await asyncio.Event().wait()  # the other end is not told
        raise ConnectionResetError("one end has closed the connection")

    async def _paced(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            while chunk:
                pace = self._pace
                most = len(chunk) if pace is None else pace.most_bytes
                if pace is not None:
                    await _clock.sleep(pace.pause_ms)
                yield chunk[:most]
                chunk = chunk[most:]


def _never() -> None:
    """Draw no end for a connection."""


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(READ_BYTES):
        yield chunk
