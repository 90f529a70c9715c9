"""Official clients for RocketMQ 5 at a port that takes TLS alone, with the certificate of a test authority."""

import pathlib
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
from interop.driver import DriverError
from interop.grpc_clients import GrpcDriver, Outgoing5, Producer5, SimpleConsumer
from interop.grpc_drivers import GRPC_CLIENTS
from interop.grpc_servers import RocketletGrpcServer
from interop.versions import skipped_without

TOPIC, GROUP = "Orders", "billing"
# Those of Java and Go take any certificate, and have no way to trust one.
TRUST_VARIABLES = {"python": "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "node": "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"}
# That of Rust is built without TLS.
every_client = pytest.mark.parametrize("client", [name for name in GRPC_CLIENTS if name != "rust"])


@pytest.fixture
def authority(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the directory that ``rocketlet tls make-test-ca`` makes."""
    command = [sys.executable, "-m", "rocketlet", "tls", "make-test-ca", str(tmp_path / "ca")]
    subprocess.run(command, check=True, capture_output=True)
    return tmp_path / "ca"


@pytest.fixture
def server(tmp_path: pathlib.Path, authority: pathlib.Path) -> Callable[..., RocketletGrpcServer]:
    """Return a call that makes a server which takes TLS alone, with the certificate of the authority."""
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(authority / "server.pem"),
        "tls.server.keyPath": str(authority / "server.key"),
        "tls.client.trustCertPath": str(authority / "ca.pem"),
    }
    return partial(RocketletGrpcServer, tmp_path / "store", settings)


def start_client(client: str, trusted: pathlib.Path | None) -> GrpcDriver:
    """Start a process with an official client, which trusts an authority if it can be told to."""
    variable = TRUST_VARIABLES.get(client)
    environment = ["env", f"{variable}={trusted}"] if variable and trusted else []
    with skipped_without(f"the official {client} client for RocketMQ 5"):
        return GrpcDriver(f"{client}5", lambda directory: [*environment, *GRPC_CLIENTS[client](directory)])


def send(driver: GrpcDriver, server: RocketletGrpcServer, *, tls: bool) -> str | None:
    """Send a message; return how that fails, if it does."""
    about = {"endpoints": server.grpc, "topics": [TOPIC], "tls": tls, "requestTimeoutMs": 3_000}
    try:
        with Producer5(driver, **about) as producer:
            (sent,) = producer.send(TOPIC, Outgoing5(b"hello"))
    except DriverError as error:
        return str(error)
    return sent.error.message if sent.error is not None else None


@pytest.mark.feature("A2", "A3", "G1")
@every_client
def test_port_that_takes_tls_alone(
    client: str, server: Callable[..., RocketletGrpcServer], authority: pathlib.Path
) -> None:
    """A client under TLS sends and consumes; the same client in plain text is not served."""
    with server() as running, start_client(client, authority / "ca.pem") as driver:
        assert send(driver, running, tls=True) is None
        about = {"endpoints": running.grpc, "group": GROUP, "subscriptions": {TOPIC: None}, "tls": True}
        with SimpleConsumer(driver, **about) as consumer:
            (received,) = consumer.receive_all(1)
            assert received.body == b"hello"
            assert consumer.ack(received)[0].error is None
        assert send(driver, running, tls=False) is not None


@pytest.mark.feature("A3", "G1")
@pytest.mark.parametrize("client", list(TRUST_VARIABLES))
def test_client_that_does_not_know_the_authority(client: str, server: Callable[..., RocketletGrpcServer]) -> None:
    """It does not send to somebody whom it cannot trust."""
    with server() as running, start_client(client, None) as driver:
        assert send(driver, running, tls=True) is not None
