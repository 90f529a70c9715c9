"""The gRPC port of `rocketlet up` and `rocketlet broker`: where it is, when it is left out, and what it costs."""

import contextlib
import re
import socket
import ssl

import grpc
import pytest
from command_line import Refuse, Start
from grpc_ground import Client

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def ask(channel: Client) -> str:
    """Return the status of a call to a method that is not there."""
    with channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/nobody/None")(b"", timeout=60)
    error: Client = caught.value
    return f"{error.code().name}: {error.details()}"


def test_port_serves_tls_and_plain_text(start: Start) -> None:
    """The ready line has its address; a client that trusts the certificate gets the same answer as one without TLS."""
    running = start("up", "--ephemeral", *FREE_PORTS)
    address = running.addresses["grpc"]
    answer = "UNIMPLEMENTED: there is no method /nobody/None"
    assert ask(grpc.insecure_channel(address)) == answer
    host, port = address.split(":")
    pem = ssl.get_server_certificate((host, int(port))).encode()
    assert ask(grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(pem))) == answer
    code, _, said = running.stop()
    assert code == 0
    assert all(line.startswith("rocketlet: ") for line in said.splitlines()), said


def test_port_that_nobody_uses(start: Start) -> None:
    """It is closed with the server, and nothing of what serves it was imported."""
    running = start("up", "--ephemeral", *FREE_PORTS, "--grpc-port", "0", PYTHONPROFILEIMPORTTIME="1")
    address = running.addresses["grpc"]
    code, _, said = running.stop()
    assert code == 0
    assert not re.search(r"rocketlet\.proxy|hpack|cryptography|google\.protobuf", said)
    with pytest.raises(grpc.FutureTimeoutError), grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=0.1)


def test_default_port_in_use(start: Start) -> None:
    """All else starts, and one line says what is missing and what to do."""
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # somebody else has it, which is as good
            other.bind(("127.0.0.1", 8081))
        other.listen()
        running = start("up", "--ephemeral", "--namesrv-port", "0", "--broker-port", free_broker_port())
        assert "grpc" not in running.addresses
        code, _, said = running.stop()
    assert code == 0
    [line] = [line for line in said.splitlines() if "RocketMQ 5" in line]
    assert "clients of RocketMQ 5 are not served: cannot listen on 127.0.0.1:8081: the address is in use by" in line
    assert line.endswith("--grpc-port takes another port, 0 a free one")


def free_broker_port() -> str:
    """Return a port that is free, and whose neighbours are."""
    with socket.socket() as sought:
        sought.bind(("127.0.0.1", 0))
        return str(sought.getsockname()[1])


@pytest.mark.parametrize("options", [("--grpc-port", "{}"), ("--set", "grpcServerPort={}")])
def test_port_in_use_that_was_asked_for(refuse: Refuse, options: tuple[str, str]) -> None:
    """Nothing starts."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refuse("up", "--ephemeral", *FREE_PORTS, *(option.format(port) for option in options))
    assert f"cannot listen on 127.0.0.1:{port}: the address is in use" in line


def test_contradiction(refuse: Refuse) -> None:
    """Who asks for a port and refuses it is told."""
    line = refuse("up", "--ephemeral", *FREE_PORTS, "--no-grpc", "--grpc-port", "0")
    assert "--no-grpc and --grpc-port (grpcServerPort) contradict each other" in line


def test_no_port(start: Start) -> None:
    """It can be left out, and a broker alone has none unless asked."""
    assert "grpc" not in start("up", "--ephemeral", *FREE_PORTS, "--no-grpc").addresses
    assert "grpc" not in start("broker", "--ephemeral", "--broker-port", "0").addresses
    address = start("broker", "--ephemeral", "--broker-port", "0", "--grpc-port", "0").addresses["grpc"]
    assert ask(grpc.insecure_channel(address)).startswith("UNIMPLEMENTED")


def test_port_of_each_broker(start: Start) -> None:
    """Each broker has its own; slaves have none."""
    running = start("up", "--ephemeral", *FREE_PORTS, "--brokers", "2", "--slaves", "1")
    addresses = running.addresses["grpc"].split(",")
    assert len({*addresses}) == 2
    assert [ask(grpc.insecure_channel(address))[:13] for address in addresses] == ["UNIMPLEMENTED"] * 2
