"""A server of HTTP/2 that sends bodies back, for peers of others: ``python http2_echo.py [PORT]`` prints its port."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rocketlet.proxy.http2.events import (
    BodyReceived,
    ConnectionEnded,
    Http2Event,
    RequestReset,
    RequestStarted,
    TrailersReceived,
)
from rocketlet.proxy.http2.limits import Http2Limits
from rocketlet.proxy.http2.links import Http2Links
from rocketlet.proxy.http2.protocol import Http2Link, Http2Service
from rocketlet.remoting.transport.event_loop import LoopClock

OK = ((b":status", b"200"), (b"content-type", b"application/octet-stream"))
TRAILERS = ((b"echo-status", b"0"),)
HELLO = b"hello"


class Echo:
    """Sends each body back when it is complete, with a header behind it; ``hello`` where there is none."""

    def __init__(self) -> None:
        self.events: list[Http2Event] = []
        self._bodies: dict[tuple[Http2Link, int], list[bytes]] = {}

    def serve(self, event: Http2Event, link: Http2Link) -> None:
        """Answer requests that are complete."""
        if isinstance(event, RequestStarted):
            if event.ends:
                link.release(event.stream_id, len(event.body))
                self._answer(link, event.stream_id, event.body or HELLO)
            else:
                self._bodies[link, event.stream_id] = []
        elif isinstance(event, BodyReceived):
            self._bodies[link, event.stream_id].append(event.data)
            link.release(event.stream_id, len(event.data))
            if event.ends:
                self._answer(link, event.stream_id, b"".join(self._bodies.pop((link, event.stream_id))))
        elif isinstance(event, TrailersReceived):
            self._answer(link, event.stream_id, b"".join(self._bodies.pop((link, event.stream_id))))
        elif isinstance(event, RequestReset):
            self._bodies.pop((link, event.stream_id), None)
        elif isinstance(event, ConnectionEnded):
            self.events.append(event)
            self._bodies = {key: body for key, body in self._bodies.items() if key[0] is not link}

    def _answer(self, link: Http2Link, stream_id: int, body: bytes) -> None:
        link.send_headers(stream_id, OK)
        link.send_body(stream_id, body)
        link.send_headers(stream_id, TRAILERS, ends=True)


@asynccontextmanager
async def serving_echo(port: int = 0, limits: Http2Limits | None = None) -> AsyncGenerator[int]:
    """Serve at a port, which is given."""
    clock = LoopClock()
    home, echo, limits = Http2Links(clock), Echo(), limits or Http2Limits()
    service = Http2Service(echo.serve)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Http2Link(service, clock, limits, home), "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await home.close_all()
        await server.wait_closed()


async def _main(port: int) -> None:
    async with serving_echo(port) as bound:
        sys.stdout.write(f"{bound}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
