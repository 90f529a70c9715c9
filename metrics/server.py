"""Serves the metrics of a broker over HTTP/1.1, on the loop that the broker runs on.

request                     answer
GET, HEAD of /metrics or /  200; OpenMetrics where Accept asks for it, else the text format of Prometheus
another path                404
another method              405
what is no request          400, or 431 for a head of more than ``MOST_HEAD_BYTES``
a broker that fails         500, and a line in the log

Rules

    1. A connection has one request, which has to be there within ``PATIENCE_MS``, and is closed after its answer.
    2. There are ``MOST_CONNECTIONS`` at most; another one is closed at once.
    3. One scrape is served at a time. The loop does a little of it at a time, a millisecond or so, and serves messages
       in between: a thread would keep it waiting for the interpreter each time, five milliseconds long.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import chain, islice
from typing import Final, NamedTuple, Self

from prometheus_client.exposition import choose_encoder

from ..broker.admin.figures import Figures
from ..common.clock import Clock
from ..common.ids import format_address
from ..remoting.transport.addresses import reachable_host
from ..remoting.transport.event_loop import TaskScope
from ..remoting.transport.server import open_listener
from .exporter import EXPORTER, exporter_labels, exporter_reads, exporter_samples, exporter_topics
from .families import Exposition, Kept
from .native import NATIVE, native_labels, native_reads, native_samples, native_topics

PATIENCE_MS: Final = 10_000
MOST_HEAD_BYTES: Final = 8_192
MOST_CONNECTIONS: Final = 32
_SAMPLES_IN_STEP: Final = 500
_FAMILIES: Final = (*NATIVE, *EXPORTER)
_OPENMETRICS: Final = "application/openmetrics-text"
_ESCAPING: Final = re.compile(r"(; escaping=)\S+")
_PATHS: Final = frozenset(["/", "/metrics"])
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where metrics are served; port 0 is a free one. ``labels`` are laid under those of all metrics."""

    host: str = "127.0.0.1"
    port: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


class Answer(NamedTuple):
    """What a request is answered with."""

    status: HTTPStatus
    body: Sequence[bytes] = ()
    content_type: str = "text/plain; charset=utf-8"

    def encode(self, *, with_body: bool) -> list[bytes]:
        """Return the answer as it is sent, in pieces."""
        body = self.body or [f"{self.status.phrase}\n".encode()]
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {sum(map(len, body))}",
            "Connection: close",
            *(["Allow: GET, HEAD"] if self.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        )
        return ["\r\n".join([*lines, "", ""]).encode("latin-1"), *(body if with_body else ())]


class MetricsServer:
    """The metrics of one broker; ``async with`` starts and ends it.

    Raises on entering:
        AddressInUseError: the port is taken.
        ConfigError: the address cannot be listened at.
    """

    def __init__(self, figures: Figures, config: MetricsConfig, clock: Clock) -> None:
        self._figures = figures
        self._config = config
        self._clock = clock
        self._tasks = TaskScope()
        self._scraping = asyncio.Lock()
        self._kept = Kept()
        self._open: set[asyncio.StreamWriter] = set()
        self._stack = AsyncExitStack()
        self._address: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"<MetricsServer {self._address or 'closed'}>"

    @property
    def url(self) -> str:
        """The address to scrape."""
        assert self._address is not None, "asked for inside of the context"
        return f"http://{format_address(reachable_host(self._config.host), self._address[1])}/metrics"

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._open)

    async def __aenter__(self) -> Self:
        """Bind the port."""
        async with AsyncExitStack() as stack:
            listening = open_listener(self._config.host, self._config.port, key="metricsPromExporterHost")
            stack.callback(listening.close)
            await stack.enter_async_context(self._tasks)
            server = await asyncio.start_server(self._accept, sock=listening, limit=MOST_HEAD_BYTES)
            stack.callback(server.close)
            self._address = listening.getsockname()[:2]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the port and the connections."""
        await self._stack.aclose()
        await asyncio.sleep(0)  # transports close in the next turn
        self._address = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(writer)
        self._tasks.start(self._serve(reader, writer), "scrape")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError) as error:
            _log.debug("a scrape ended early: %s", error)
        except Exception:  # the fault boundary per connection
            _log.exception("a scrape failed")
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        try:
            async with self._clock.timeout(PATIENCE_MS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                return
            answer = Answer(HTTPStatus.BAD_REQUEST)
        else:
            answer = await self._answer(head)
        writer.writelines(answer.encode(with_body=not head.startswith(b"HEAD ")))
        writer.write_eof()
        async with self._clock.timeout(PATIENCE_MS):
            await writer.drain()
            while await reader.read(MOST_HEAD_BYTES):  # closing before all is read would cut the answer off
                pass

    async def _answer(self, head: bytes) -> Answer:
        request, _, fields = head.decode("latin-1").partition("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
            return Answer(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        if target.partition("?")[0] not in _PATHS:
            return Answer(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await self._scrape(_accepted(fields))
        except Exception:  # the fault boundary per request
            _log.exception("cannot tell metrics")
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _scrape(self, accept: str) -> Answer:
        async with self._scraping:
            figures = await self._figures.measure()
            content_type = _choose_type(accept)
            is_open = content_type.startswith(_OPENMETRICS)
            exposition = Exposition(_FAMILIES, self._config.labels, self._kept, is_open=is_open, at_ms=figures.at_ms)
            samples = chain(native_samples(figures), exporter_samples(figures))
            while batch := list(islice(samples, _SAMPLES_IN_STEP)):
                exposition.add(batch)
                await asyncio.sleep(0)
            node, where = native_labels(figures), exporter_labels(figures)
            for number, run in enumerate(figures.runs):
                exposition.add_run(native_topics, node, number, run.topics)
                exposition.add_run(native_reads, node, number, run.reads)
                exposition.add_run(exporter_topics, where, number, run.topics)
                exposition.add_run(exporter_reads, where, number, run.reads)
                await asyncio.sleep(0)
            self._kept = exposition.kept
            return Answer(HTTPStatus.OK, exposition.encode(), content_type)


def _choose_type(accept: str) -> str:
    """Return the format that a field Accept asks for."""
    try:
        _, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        _, content_type = choose_encoder("")
    return _ESCAPING.sub(r"\1underscores", content_type)


def _accepted(fields: str) -> str:
    pairs = (line.partition(":") for line in fields.split("\r\n"))
    return ",".join(value.strip() for name, _, value in pairs if name.strip().lower() == "accept")
