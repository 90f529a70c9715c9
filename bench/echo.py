"""A bare asyncio server that sends every byte back: the ceiling that the broker's figures stand beside.

As a program it prints ``ready PORT`` and runs until its standard input ends; ``running`` starts it as one.
"""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import uvloop


class Echo(asyncio.Protocol):
    """Write what was read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Send the bytes back."""
        self._transport.write(data)


async def serve() -> None:
    """Serve on a free port until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    async with server:
        print(f"ready {server.sockets[0].getsockname()[1]}", flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def running() -> Generator[str]:
    """Run the echo as a process; yields its address."""
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as echo:
        assert echo.stdin is not None, "asked for a pipe"
        assert echo.stdout is not None, "asked for a pipe"
        yield f"127.0.0.1:{echo.stdout.readline().split()[1]}"
        echo.stdin.close()


if __name__ == "__main__":
    uvloop.run(serve())
