"""The HTTP side: formats, what is no request, and clients that do not behave."""

import asyncio
import socket
from collections.abc import Callable

import httpx
import pytest
from metrics_scrape import Scrape
from raw_calls import until

from rocketlet.broker.admin.figures import Figures
from rocketlet.broker.server import Broker
from rocketlet.common.errors import AddressInUseError, ConfigError
from rocketlet.metrics import server as serving
from rocketlet.metrics.server import MetricsConfig, MetricsServer
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.testing.manual_clock import ManualClock


async def converse(url: str, data: bytes) -> bytes:
    """Send bytes, and return all that comes until the server closes."""
    host, port = httpx.URL(url).host, httpx.URL(url).port
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /metrics?name[]=up HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=x;q=\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=99.0.0\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n:\r\n\xff\xfe: \x00\r\n\r\n", b"200 OK"),
        (b"GET /other HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400 Bad Request"),
        (b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 9_000 + b"\r\n", b"431 Request Header Fields Too Large"),
    ],
)
async def test_answers(request_text: bytes, status: bytes, metrics: MetricsServer, scrape: Scrape) -> None:
    """Each request has one answer that says its length, and the next scrape is whole."""
    answer = await converse(metrics.url, request_text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
    assert (b"Allow: GET, HEAD" in head.split(b"\r\n")) == (status == b"405 Method Not Allowed")
    assert (await scrape()).one("rocketmq_broker_permission") == 6


async def test_head_has_no_body(metrics: MetricsServer) -> None:
    """HEAD is answered with the head that GET has."""
    head, _, body = (await converse(metrics.url, b"HEAD /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body == b""


async def test_silent_client_is_cut_off(broker: Broker, scrape: Scrape) -> None:
    """A request that does not come ends with the patience of the server, by its clock."""
    clock = ManualClock()
    async with MetricsServer(broker.figures, MetricsConfig(), clock) as server:
        port = httpx.URL(server.url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HT")
        await until(lambda: server.connection_count == 1)
        clock.advance(serving.PATIENCE_MS + 1)
        with pytest.raises(ConnectionError):
            await raise_at_end(reader)
        writer.close()
    assert (await scrape()).one("rocketmq_broker_permission") == 6


async def raise_at_end(reader: asyncio.StreamReader) -> None:
    """Read on; an end is an error too, since both say that the server has closed."""
    if not await reader.read():
        raise ConnectionResetError


async def test_connections_are_limited(broker: Broker, scrape: Scrape, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection more than the limit is closed at once; when others have gone there is room again."""
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 2)
    async with MetricsServer(broker.figures, MetricsConfig(), LoopClock()) as server:
        port = httpx.URL(server.url).port
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: server.connection_count == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ConnectionError):
            await raise_at_end(reader)
        for _, each in [*streams, (reader, writer)]:
            each.close()
        await until(lambda: server.connection_count == 0)
        assert (await converse(server.url, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert (await scrape()).one("rocketmq_broker_permission") == 6


async def test_broker_that_fails_is_told(
    metrics: MetricsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that cannot be measured is an answer 500 and a line in the log, and no more."""

    async def fail(_self: object) -> None:
        raise OSError("no such disk")

    monkeypatch.setattr(Figures, "measure", fail)
    answer = await converse(metrics.url, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert "no such disk" in caplog.text
    assert b"no such disk" not in answer


async def test_port_that_is_taken(broker: Broker) -> None:
    """The error says which port it is."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUseError, match=rf"127\.0\.0\.1:{port}: the address is in use"):
            await enter(broker, MetricsConfig(port=port))
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0"):
        await enter(broker, MetricsConfig(host="192.0.2.1"))


async def enter(broker: Broker, config: MetricsConfig) -> None:
    """Start the metrics of a broker, and end them."""
    async with MetricsServer(broker.figures, config, LoopClock()):
        pass


async def test_end_leaves_nothing(broker: Broker, unused_tcp_port_factory: Callable[[], int]) -> None:
    """Start and end, many times at one port, with a connection that still waits."""
    config = MetricsConfig(port=unused_tcp_port_factory())
    for _ in range(5):
        async with MetricsServer(broker.figures, config, LoopClock()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", config.port)
            await until(lambda: server.connection_count == 1)
        with pytest.raises(ConnectionError):
            await raise_at_end(reader)
        writer.close()
