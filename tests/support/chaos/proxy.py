"""A TCP proxy on the loop of the test that breaks connections in the two ways in which networks do.

    drop      both ends of every connection are reset
    silence   what was sent on a connection that is open now never arrives, and neither end is told (half open);
              connections that are made afterwards work

Before a name server it also replaces the address of a broker in routes by that of the proxy before the broker.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple, Self

from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.transport.event_loop import TaskScope

READ_BYTES = 1 << 16


class Replaced(NamedTuple):
    """An address that clients must not see, and what they see in its place."""

    old: str
    new: str


class _Link:
    """A client's connection, continued by one to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.is_silent = False

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

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer), name="link")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, int(self._port))
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, server_writer)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(link, _chunks(reader), server_writer))
                pumps.create_task(_pump(link, self._answers(server_reader), writer))
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


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(READ_BYTES):
        yield chunk


async def _pump(link: _Link, chunks: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        async for chunk in chunks:
            if writer.transport.is_closing():
                break  # on uvloop a write would be no OSError
            if not link.is_silent:
                writer.write(chunk)
                await writer.drain()
    if link.is_silent:
        await asyncio.Event().wait()  # the other end is not told
    raise ConnectionResetError("one end has closed the connection")
