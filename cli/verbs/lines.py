"""The lines of standard input, without blocking the event loop while nobody types.

A thread reads, since a terminal, a pipe and a file cannot all be waited for in one way. It is a daemon and reads the
descriptor itself: neither an interruption nor the end of the interpreter waits for a line that never comes.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

READ_BYTES: Final = 65_536
MOST_LINES_AHEAD: Final = 256
MAX_LINE_BYTES: Final = 16 << 20


async def read_lines(descriptor: int) -> AsyncIterator[bytes]:
    """Iterate over lines without their ends; the last one may have none.

    Raises:
        ValueError: a line is longer than any message can be.
        OSError: it cannot be read.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(MOST_LINES_AHEAD)

    def put(found: bytes | Exception | None) -> bool:
        waiting = ready.put(found)
        try:
            asyncio.run_coroutine_threadsafe(waiting, loop).result()
        except (RuntimeError, asyncio.CancelledError):  # the loop has ended
            waiting.close()
            return False
        return True

    thread = threading.Thread(target=_read, args=(descriptor, put), name="standard input", daemon=True)
    thread.start()
    while (found := await ready.get()) is not None:
        if isinstance(found, Exception):
            raise found
        yield found


def _read(descriptor: int, put: Callable[[bytes | Exception | None], bool]) -> None:
    rest = b""
    try:
        while data := os.read(descriptor, READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                put(ValueError(f"a line is longer than {MAX_LINE_BYTES} bytes"))
                return
            if not all(put(line.removesuffix(b"\r")) for line in lines):
                return
    except OSError as error:
        put(error)
        return
    if rest:
        put(rest)
    put(None)
