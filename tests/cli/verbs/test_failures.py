"""What the verbs say when a server refuses them, or ends their connection."""

import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from rocketlet.cli.verbs.connecting import explain
from rocketlet.common.errors import ResponseError

Failed = Callable[..., str]


@pytest.fixture
def rude_server() -> Iterator[str]:
    """Return the address of a server that ends each connection when something is said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_refusal_names_server_and_request(failed: Failed) -> None:
    """Which server, with what code, to what, and why."""
    told = failed(1, "config", "set", "listenPort=1", "--broker", "broker-a")
    assert re.match(r"127\.0\.0\.1:\d+ answered 1 to UPDATE_BROKER_CONFIG: listenPort is read at the start only", told)


@pytest.mark.parametrize(
    ("remark", "hint"),
    [
        ("username cannot be null.", "signed requests are wanted: give --access-key and --secret-key"),
        (
            "org.apache.rocketmq.acl.common.AclException: No accessKey is configured",
            "signed requests are wanted: give --access-key and --secret-key",
        ),
        ("check signature failed.", "the secret key is not that of the access key"),
        (
            "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=rocketlet",
            "the secret key is not that of the access key",
        ),
    ],
)
def test_what_helps_against_keys(remark: str, hint: str) -> None:
    """Brokers of 5.x and of 4.x say that keys are missing or wrong; the options are named."""
    said = explain(ResponseError(16, remark, "broker-a", "SEND_MESSAGE"))
    assert said == f"broker-a answered 16 to SEND_MESSAGE: {remark.rstrip('.')}; {hint}"


def test_other_refusals_are_told_as_they_are() -> None:
    """There is nothing to add."""
    assert explain(ResponseError(1, None, "broker-a")) == "broker-a answered 1: no remark"
    assert explain(ValueError("check signature failed")) == "check signature failed"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ([], "if it takes connections under TLS alone: --tls"),
        (["--tls", "--tls-trust-all"], "it may take no TLS"),
    ],
)
def test_connection_that_the_server_ends(options: list[str], hint: str, rude_server: str, failed: Failed) -> None:
    """It may want TLS, or know nothing of it."""
    told = failed(3, "topic", "list", "--namesrv", rude_server, *options)
    assert told.startswith("no server answers: ")
    assert told.endswith(f"; {hint}")
