"""The gRPC port of a broker: TLS and plain text on one port, HTTP/2, and the methods of the services.

    async with GrpcPort(broker, listener, build_services, clock, admission):
        ...

It is entered when the first client knocks (``OnDemandPort``), since what it imports takes as long as the rest of a
start. Leaving it: no more connections and requests; the calls that wait are ended, the others get ``DRAIN_MS`` to be
answered, and peers to close; then every connection is closed.
"""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Self

from ..broker.server import Broker
from ..common.clock import Clock
from ..common.ids import Address
from ..remoting.transport.acceptor import Admission, PortAcceptor
from ..remoting.transport.server import MakeServer, first_kept_descriptor
from .http2.limits import Http2Limits
from .http2.links import MAX_HELD_BYTES, Http2Links
from .http2.protocol import Http2Link, Http2Service
from .rpc.call import Methods
from .rpc.messages import MessageLimits
from .rpc.service import GrpcService
from .services.services import serve_methods

BuildServices = Callable[[Broker, Address], AbstractAsyncContextManager[Methods]]
"""Makes what serves a broker whose port has an address; its methods are served while it is entered."""


class GrpcPort:
    """Serves gRPC over a socket that listens, which stays its opener's, for a broker that is started.

    Upstream: ``GrpcServer`` of the proxy in local mode.
    """

    def __init__(
        self,
        broker: Broker,
        listener: socket.socket,
        build_services: BuildServices,
        clock: Clock,
        admission: Admission,
    ) -> None:
        self._broker = broker
        self._listener = listener
        self._build_services = build_services
        self._clock = clock
        self._admission = admission
        self._links = Http2Links(clock, MAX_HELD_BYTES, first_kept_descriptor)
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<GrpcPort of {self._broker!r}, {len(self._links)} connections>"

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._links)

    async def __aenter__(self) -> Self:
        """Serve from now on."""
        broker, config = self._broker, self._broker.config
        limits = MessageLimits(max_message_bytes=config.grpc.most_message_bytes)
        commit, access = broker.operations.scheduler.commit_turn, broker.operations.access
        own_address = broker.advertised.told[0], self._listener.getsockname()[1]
        http2_limits = _http2_limits(limits.max_message_bytes, config.grpc.idle_ms)
        async with AsyncExitStack() as stack:
            methods = await stack.enter_async_context(self._build_services(broker, own_address))
            leave = None if access is None else access.leave
            service = GrpcService(methods, self._clock, limits, commit, leave)
            http2 = Http2Service(service.serve, service.after_batch, broker.after_read)

            def make_link() -> Http2Link:
                return Http2Link(http2, self._clock, http2_limits, self._links)

            acceptor = PortAcceptor(self._listener, make_link, self._admission, self._clock, first_kept_descriptor)
            stack.push_async_callback(self._end_connections, service)
            await stack.enter_async_context(acceptor)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer what is owed, and end every connection."""
        await self._stack.aclose()

    async def _end_connections(self, service: GrpcService) -> None:
        self._links.shut_down()
        service.stop()
        await self._links.drain()
        service.end_all()
        await self._links.close_all()


def _http2_limits(most_message_bytes: int, idle_ms: int) -> Http2Limits:
    """Return limits within which the longest message comes, beside others of its connection."""
    default = Http2Limits()
    stream_bytes = most_message_bytes + default.stream_window_bytes
    return Http2Limits(
        max_stream_held_bytes=stream_bytes,
        max_held_bytes=max(default.max_held_bytes, 2 * stream_bytes),
        idle_ms=idle_ms,
    )


def serving(
    broker: Broker, clock: Clock, admission: Admission, around: Callable[[Methods], Methods] | None = None
) -> MakeServer:
    """Return what serves a broker over a socket that listens; ``admission`` is that of ``admit_grpc``.

    ``around`` returns methods to serve instead: those of somebody who stands before them.
    """

    @asynccontextmanager
    async def build(broker: Broker, own_address: Address) -> AsyncGenerator[Methods]:
        async with serve_methods(broker.operations, own_address) as methods:
            yield methods if around is None else around(methods)

    return lambda listener: GrpcPort(broker, listener, build, clock, admission)
