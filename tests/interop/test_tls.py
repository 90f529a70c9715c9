"""The official Java client and mqadmin under TLS, against servers that take it beside plain text, or it alone."""

import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer
from interop.driver import Driver, DriverError
from interop.mqadmin_page import Printed
from interop.servers import Server
from interop.toolchain import JAVA_VERSION, QUICK_JVM, TLS_MODE, java_command
from interop.versions import skipped_without

from rocketlet.remoting.tls.certificates import CA_FILE, SERVER_FILE, SERVER_KEY_FILE, make_test_authority

StartServer = Callable[..., Server]
SPEAKS_TLS = "-Dtls.enable=true"


def start_java(*options: str) -> Driver:
    """Return a process with the Java client, whose connections all are TLS."""
    with skipped_without("the official Java client"):
        command = partial(java_command, version=JAVA_VERSION, options=(*QUICK_JVM, SPEAKS_TLS, *options))
        return Driver("java-tls", command)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a directory with certificates."""
    directory = tmp_path_factory.mktemp("authority")
    for name, content in make_test_authority(["localhost", "127.0.0.1"], 1).items():
        (directory / name).write_bytes(content)
    return directory


@pytest.fixture(scope="module")
def tls_java() -> Iterator[Driver]:
    """Return a Java client that takes any server, as it does by itself."""
    with start_java() as driver:
        yield driver


def exchange(sender: Driver, reader: Driver, server: Server, topic: str) -> None:
    """Send by one client what another consumes."""
    with Admin(sender, namesrv=server.namesrv) as admin:
        admin.create_topic(server.broker, topic)
    messages = [Outgoing(b"message %d" % number) for number in range(20)]
    subscriptions = {topic: "*"}
    with (
        Producer(sender, namesrv=server.namesrv) as producer,
        PushConsumer(reader, namesrv=server.namesrv, group=f"{topic}-group", subscriptions=subscriptions) as consumer,
    ):
        producer.send_all(topic, *messages)
        received = consumer.received(len(messages))
    assert sorted(each.body for each in received) == sorted(each.body for each in messages)


def list_cluster(java: Driver, server: Server) -> Sequence[str]:
    """Return what mqadmin prints of the cluster."""
    printed = java.call_as(Printed, "mqadmin", args=["clusterList", "-n", server.namesrv])
    return printed.output.splitlines()


@pytest.mark.feature("A1", "A5")
def test_tls_and_plain_text_on_the_same_ports(tls_java: Driver, java: Driver, fresh_server: StartServer) -> None:
    """A permissive server takes a client under TLS and one without at once; mqadmin works under TLS."""
    server = fresh_server(**{TLS_MODE: "permissive"})
    exchange(tls_java, java, server, "to-plain")
    exchange(java, tls_java, server, "to-tls")
    assert any("broker-a" in line for line in list_cluster(tls_java, server))


@pytest.mark.feature("A2", "A3", "A5")
def test_servers_that_take_tls_alone(
    java: Driver, tls_java: Driver, authority: pathlib.Path, fresh_server: StartServer
) -> None:
    """A client that checks the certificate, one that does not, and mqadmin are served; a plain one is not."""
    settings = {
        TLS_MODE: "enforcing",
        "tls.test.mode.enable": "false",  # for the official ones
        "tls.server.certPath": str(authority / SERVER_FILE),
        "tls.server.keyPath": str(authority / SERVER_KEY_FILE),
        "tls.client.trustCertPath": str(authority / CA_FILE),
    }
    checks = ("-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true")
    trust = f"-Dtls.client.trustCertPath={authority / CA_FILE}"
    server = fresh_server(**settings)
    with start_java(*checks, trust) as strict:
        exchange(strict, tls_java, server, "checked")
        assert any("broker-a" in line for line in list_cluster(strict, server))
        with Producer(java, namesrv=server.namesrv) as plain:
            [refused] = plain.send("checked", Outgoing(b"in plain text"))
            assert refused.error is not None


@pytest.mark.feature("A2")
def test_server_without_tls(tls_java: Driver, java: Driver, fresh_server: StartServer) -> None:
    """A client under TLS finds no server where it is disabled, a plain one does."""
    server = fresh_server(**{TLS_MODE: "disabled"})
    exchange(java, java, server, "plain")
    with pytest.raises(DriverError), Admin(tls_java, namesrv=server.namesrv) as admin:
        admin.call("examineTopicRouteInfo", "plain")
