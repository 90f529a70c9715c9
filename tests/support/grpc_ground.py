"""A gRPC port over a broker with methods for tests, and ``grpc.aio`` as its client."""

import asyncio
import pathlib
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, NamedTuple, cast

import grpc
import grpc.aio

from rocketlet.broker.ports import admit_grpc
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.clock import Clock
from rocketlet.proxy.rpc.call import Call, GrpcStatus, Methods, StreamMethod, UnaryMethod
from rocketlet.proxy.server import GrpcPort
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.server import open_listener

SERVICE = "/test.Echo"
Client = Any
"""A channel of ``grpc.aio``, whose types leave open what calls are of."""


class EchoMethods:
    """Methods that answer what was asked, and what they were asked with; ``over`` is set by a call that was cut."""

    def __init__(self) -> None:
        self.held: list[Call] = []
        self.has_come = asyncio.Event()
        self.over = asyncio.Event()
        self.metadata: list[Mapping[str, str]] = []
        self.remaining_ms: list[int | None] = []

    def methods(self) -> Methods:
        """Return them by their paths."""
        return {
            f"{SERVICE}/Say": UnaryMethod(self._say),
            f"{SERVICE}/Repeat": UnaryMethod(self._repeat),
            f"{SERVICE}/Hold": UnaryMethod(self._hold, is_long_poll=True),
            f"{SERVICE}/Owe": UnaryMethod(self._hold),
            f"{SERVICE}/Refuse": UnaryMethod(self._refuse),
            f"{SERVICE}/Break": UnaryMethod(self._break),
            f"{SERVICE}/Talk": StreamMethod(self._talk),
            f"{SERVICE}/BreakTalk": StreamMethod(_BrokenTalk),
        }

    def _say(self, message: bytes, call: Call) -> None:
        self.metadata.append(call.metadata)
        self.remaining_ms.append(call.remaining_ms())
        call.send(message)
        call.finish()
        call.send(b"too late")

    def _repeat(self, message: bytes, call: Call) -> None:
        for number in range(int(message)):
            call.send(b"%d" % number)
        call.finish()

    def _hold(self, _message: bytes, call: Call) -> None:
        self.held.append(call)
        self.has_come.set()
        call.on_over(self.over.set)

    def _refuse(self, message: bytes, call: Call) -> None:
        call.finish(GrpcStatus.NOT_FOUND, message.decode())

    def _break(self, _message: bytes, call: Call) -> None:
        call.on_over(self.over.set)
        raise RuntimeError("this method is broken")

    def _talk(self, call: Call) -> "Talk":
        self.held.append(call)
        self.has_come.set()
        call.on_over(self.over.set)
        return Talk(call)


class Talk:
    """Says each message back, and ends when its peer does."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def received(self, message: bytes) -> None:
        """Say it back."""
        self._call.send(message)

    def ended(self) -> None:
        """End as well."""
        self._call.finish()


class _BrokenTalk(Talk):
    def received(self, message: bytes) -> None:
        """Fail."""
        raise RuntimeError(f"cannot bear {message!r}")


class GrpcGround(NamedTuple):
    """A port and what serves there."""

    port: int
    echo: EchoMethods
    server: GrpcPort
    store: pathlib.Path

    def open(self, **options: Any) -> Client:
        """Return a client in plain text."""
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=[*options.items()])

    async def open_tls(self) -> Client:
        """Return a client over TLS, which trusts what the port shows to the first that asks."""
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.port))
        return grpc.aio.secure_channel(f"localhost:{self.port}", grpc.ssl_channel_credentials(pem.encode()))


@asynccontextmanager
async def serving_grpc(store: pathlib.Path, clock: Clock | None = None, **settings: str) -> AsyncGenerator[GrpcGround]:
    """Start a broker, and a port with methods for tests."""
    given = {"storePathRootDir": str(store), "listenPort": "0", "mappedFileSizeCommitLog": "1048576", **settings}
    clock = clock or LoopClock()
    echo = EchoMethods()
    config = BrokerConfig.from_java(given)
    async with Broker(config, clock) as broker:
        admission = await admit_grpc(config, clock)
        with open_listener("127.0.0.1", 0, key="grpcServerPort") as listener:
            async with GrpcPort(
                broker, listener, lambda _broker, _address: nullcontext(echo.methods()), clock, admission
            ) as server:
                yield GrpcGround(listener.getsockname()[1], echo, server, store)


async def ask(channel: Client, name: str, message: bytes = b"", **options: Any) -> bytes:
    """Call a unary method."""
    return cast("bytes", await channel.unary_unary(f"{SERVICE}/{name}")(message, **options))
