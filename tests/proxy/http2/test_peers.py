"""Well-kept peers of others, over sockets: ``h2`` and ``httpx`` exchange what they like with our server."""

import asyncio
import ssl
from collections.abc import AsyncGenerator

import h2.config
import h2.connection
import h2.events
import h2.settings
import httpx
import pytest
from http2_echo import HELLO, serving_echo

from rocketlet.proxy.http2.limits import Http2Limits

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "localhost")]
SMALL_WINDOWS = Http2Limits(stream_window_bytes=1 << 16, connection_window_bytes=1 << 16)


@pytest.fixture
async def port() -> AsyncGenerator[int]:
    """Serve with windows that are much smaller than bodies."""
    async with serving_echo(limits=SMALL_WINDOWS) as bound:
        yield bound


class H2Client:
    """A client whose every step is h2's; ``exchange`` sends bodies on streams at the same time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.bodies: dict[int, bytes] = {}
        self.trailers: dict[int, object] = {}
        self._unsent: dict[int, bytes] = {}
        self._open: set[int] = set()

    async def exchange(self, bodies: list[bytes]) -> list[bytes]:
        """Send each body on a stream of its own, as windows allow; return what came back."""
        streams: list[int] = []
        for body in bodies:
            stream_id = self.h2.get_next_available_stream_id()
            self.h2.send_headers(stream_id, REQUEST)
            streams.append(stream_id)
            self._unsent[stream_id] = body
            self.bodies[stream_id] = b""
        self._open = {*streams}
        while self._open:
            self._send_what_may_be_sent()
            self._writer.write(self.h2.data_to_send())
            data = await self._reader.read(1 << 16)
            assert data, "the server has closed the connection"
            for event in self.h2.receive_data(data):
                self._take(event)
        return [self.bodies[stream_id] for stream_id in streams]

    def _send_what_may_be_sent(self) -> None:
        for stream_id, body in [*self._unsent.items()]:
            while stream_id in self._unsent:
                window = self.h2.local_flow_control_window(stream_id)
                size = min(window, self.h2.max_outbound_frame_size, len(body))
                if body and not size:
                    break
                self.h2.send_data(stream_id, body[:size], end_stream=size == len(body))
                self._unsent[stream_id] = body = body[size:]
                if not body:
                    del self._unsent[stream_id]

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            self.bodies[event.stream_id] += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            self.trailers[event.stream_id] = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            self._open.remove(event.stream_id)
        else:
            assert not isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated), event


async def test_bodies_above_both_windows(port: int) -> None:
    """Megabytes go up and down on several streams at once through windows of 64 KiB, and headers stand behind them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = H2Client(reader, writer)
    bodies = [bytes([number]) * (number * 300_000) for number in range(4)]
    assert await client.exchange(bodies) == bodies
    assert set(map(str, client.trailers.values())) == {str([("echo-status", "0")])}
    assert await client.exchange([b"again"]) == [b"again"]
    writer.close()
    await writer.wait_closed()


async def test_settings_that_change_between_answers(port: int) -> None:
    """Windows and frames of another size, told while the connection is in use."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = H2Client(reader, writer)
    body = bytes(200_000)
    for window, frame in ((1, 16_384), (100_000, 32_768), (65_535, 16_384)):
        settings = h2.settings.SettingCodes
        client.h2.update_settings({settings.INITIAL_WINDOW_SIZE: window, settings.MAX_FRAME_SIZE: frame})
        assert await client.exchange([body if window > 1 else b"abc"]) == [body if window > 1 else b"abc"]
    writer.close()
    await writer.wait_closed()


async def test_httpx_over_one_connection(port: int) -> None:
    """A client of HTTP that has never heard of us."""
    async with httpx.AsyncClient(http1=False, http2=True, verify=ssl.create_default_context()) as client:
        answers = [await client.post(f"http://127.0.0.1:{port}/", content=body) for body in (b"one", bytes(300_000))]
        assert [answer.content for answer in answers] == [b"one", bytes(300_000)]
        assert (await client.get(f"http://127.0.0.1:{port}/")).content == HELLO
        assert answers[0].http_version == "HTTP/2"
