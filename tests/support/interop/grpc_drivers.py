"""The processes with official clients for RocketMQ 5, and which of them a test runs with.

@every_grpc_client       ``grpc_driver`` is the process of each official client, one after the other
@every_pushing_client    the same without that of Rust, which has no push consumer, and cannot change a lease or recall
"""

import pathlib
from collections.abc import Callable

import pytest
from interop.grpc_clients import GrpcDriver
from interop.toolchain import (
    INTEROP,
    build_grpc_go,
    build_grpc_node,
    build_grpc_python,
    build_grpc_rust,
    grpc_java_command,
)
from interop.versions import skipped_without

GRPC_CLIENTS: dict[str, Callable[[pathlib.Path], list[str]]] = {
    "java": grpc_java_command,
    "python": lambda _: [str(build_grpc_python()), str(INTEROP / "python-grpc" / "driver.py")],
    "node": lambda _: build_grpc_node(),
    "go": lambda _: [str(build_grpc_go())],
    "rust": lambda _: [str(build_grpc_rust())],
}
every_grpc_client = pytest.mark.parametrize("grpc_driver", list(GRPC_CLIENTS), indirect=True, scope="session")
every_pushing_client = pytest.mark.parametrize(
    "grpc_driver", [name for name in GRPC_CLIENTS if name != "rust"], indirect=True, scope="session"
)


def start_grpc_driver(name: str) -> GrpcDriver:
    """Start a process with the official client of a language, or skip the test where it cannot be built."""
    with skipped_without(f"the official {name} client for RocketMQ 5"):
        return GrpcDriver(f"{name}5", GRPC_CLIENTS[name])
