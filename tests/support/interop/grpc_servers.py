"""Servers for clients that speak gRPC: ``rocketlet up`` with its port, and the official proxy in local mode.

Both have name server and broker in them, so that remoting clients reach the same messages.
"""

import pathlib
import signal
from collections.abc import Mapping
from functools import partial
from typing import Protocol, Self

from interop.driver import Driver
from interop.servers import JAVA_SETTINGS, RocketletServer, Server, free_port, ports_of
from interop.toolchain import QUICK_JVM, java_command

# What a broker does only when it is told to.
GRPC_SETTINGS = {"recallMessageEnable": "true"}

# Else the broker asks about transactions whose end it has not written yet.
PROXY_BROKER_SETTINGS = JAVA_SETTINGS | GRPC_SETTINGS | {"transactionOpBatchInterval": "100"}
# Push consumers wait for the end of their long polls before they stop.
PROXY_SETTINGS = {"grpcClientConsumerMaxLongPollingTimeoutMillis": "5000"}


class GrpcServer(Server, Protocol):
    """A name server, a broker and a port for gRPC on one store directory."""

    grpc: str

    @property
    def pid(self) -> int:
        """The id of the process."""
        ...


def grpc_port_of(server: GrpcServer) -> str:
    """Return the port for gRPC of a server, for one that takes its place."""
    return server.grpc.rpartition(":")[2]


class RocketletGrpcServer(RocketletServer):
    """``rocketlet up`` with its port for gRPC, on free ports."""

    def __init__(self, store: pathlib.Path, settings: Mapping[str, str], replaced: GrpcServer | None = None) -> None:
        port = grpc_port_of(replaced) if replaced else str(free_port(1))
        self.grpc = f"127.0.0.1:{port}"
        super().__init__(store, {**GRPC_SETTINGS, **settings}, replaced, options=["--grpc-port", port])


class ProxyServer:
    """The official name server, and the official proxy with the broker in it, in one driver process on free ports."""

    def __init__(
        self,
        store: pathlib.Path,
        settings: Mapping[str, str],
        replaced: GrpcServer | None = None,
        *,
        options: tuple[str, ...] = QUICK_JVM,
    ) -> None:
        self.store = store
        self.driver = Driver("java-proxy", partial(java_command, options=options, tls_mode="permissive"))
        namesrv, broker = ports_of(replaced) if replaced else (None, None)
        settings = {**PROXY_BROKER_SETTINGS, **settings, **({"listenPort": broker} if broker else {})}
        proxy = PROXY_SETTINGS | ({"grpcServerPort": grpc_port_of(replaced)} if replaced else {})
        try:
            started = self.driver.call("namesrv.start", name="ns", directory=str(self.driver.directory), port=namesrv)
            self.namesrv: str = started["address"]
            started = self.driver.call(
                "proxy.start", namesrv=self.namesrv, store=str(store), settings=settings, proxySettings=proxy
            )
        except BaseException:
            self.driver.close()
            raise
        self.broker: str = started["address"]
        self.grpc: str = started["grpc"]

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs."""
        self.kill()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.driver.pid

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        self.driver.send_signal(signal.SIGTERM)
        self.driver.wait()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.driver.kill()
