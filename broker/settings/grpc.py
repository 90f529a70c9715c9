"""The settings of the gRPC port, by the keys that Java's proxy has in ``rmq-proxy.json``."""

from typing import Annotated

from msgspec import Struct

from ...common.settings import Key

PORT_KEY = "grpcServerPort"
DEFAULT_GRPC_PORT = 8081
"""Where clients of RocketMQ 5 look for a proxy."""
NO_PORT = -1


class GrpcConfig(Struct, frozen=True, kw_only=True):
    """Where clients of RocketMQ 5 are served, and what they may send; fields in the order of ``--print-config``."""

    port: Annotated[
        int,
        Key(PORT_KEY, "port for clients of RocketMQ 5; 0 takes a free one, -1 is none", least=NO_PORT, most=65_535),
    ] = NO_PORT
    most_message_bytes: Annotated[
        int, Key("grpcMaxInboundMessageSize", "longest request of a gRPC client", least=1 << 10, most=1 << 30)
    ] = 130 << 20
    idle_ms: Annotated[
        int, Key("grpcClientIdleTimeMills", "silence without a call after which its connection is closed", least=1)
    ] = 120_000
