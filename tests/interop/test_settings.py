"""Settings of a running broker, read and changed by mqadmin, and how a running official client takes it."""

import pathlib
import re
from collections.abc import Callable, Iterator

import pytest
from interop.clients import Admin, Outgoing, Producer, Queue
from interop.driver import Driver, DriverError
from interop.parts import mqadmin
from interop.servers import Server
from interop.versions import every_java

NewName = Callable[[], str]
StartServer = Callable[..., Server]


@pytest.fixture
def own_server(fresh_server: Callable[..., Server]) -> Iterator[Server]:
    """Return a server whose settings no other test needs."""
    with fresh_server() as server:
        yield server


def update(java: Driver, server: Server, key: str, value: str) -> str:
    """Change a setting with mqadmin; return what it prints."""
    return mqadmin(java, "updateBrokerConfig", "-n", server.namesrv, "-b", server.broker, "-k", key, "-v", value)


def settings_of(java: Driver, server: Server) -> dict[str, str]:
    """Return the settings that mqadmin prints."""
    printed = mqadmin(java, "getBrokerConfig", "-n", server.namesrv, "-b", server.broker)
    return dict(re.findall(r"^(\S+) *=  (.*)$", printed, re.MULTILINE))


def failure_of(java: Driver, server: Server, settings: dict[str, str]) -> tuple[int | None, str]:
    """Return the code and the text with which a change fails."""
    with Admin(java, namesrv=server.namesrv) as admin, pytest.raises(DriverError) as failed:
        admin.call("updateBrokerConfig", server.broker, settings)
    return failed.value.failure.code, str(failed.value)


@pytest.mark.feature("D17")
@every_java
def test_running_client_follows_a_change(java: Driver, own_server: Server, new_name: NewName) -> None:
    """While the broker may not be written to, sends to an ordered topic are refused with 16; before and after not."""
    server, topic = own_server, new_name()
    create = ["-b", server.broker, "-t", topic, "-r", "1", "-w", "1", "-o", "true"]
    mqadmin(java, "updateTopic", "-n", server.namesrv, *create)
    queue = Queue(topic, "broker-a", 0)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"before"), queue=queue)
        assert "success" in update(java, server, "brokerPermission", "4")
        assert settings_of(java, server)["brokerPermission"] == "4"
        (refused,) = producer.send(topic, Outgoing(b"meanwhile"), queue=queue)
        assert refused.error is not None
        assert refused.error.code == 16
        assert "success" in update(java, server, "brokerPermission", "6")
        producer.send_all(topic, Outgoing(b"after"), queue=queue)


@pytest.mark.feature("D17")
@every_java
def test_refused_changes(java: Driver, own_server: Server) -> None:
    """A key of the black list is answered 16; what is read at the start only, and a bad value, 1."""
    before = settings_of(java, own_server)
    assert before["brokerName"] == "broker-a"
    assert failure_of(java, own_server, {"configBlackList": ""})[0] == 16
    code, text = failure_of(java, own_server, {"brokerName": "other", "traceOn": "false"})
    assert code == 1
    assert "brokerName is read at the start only" in text
    assert failure_of(java, own_server, {"shortPollingTimeMills": "many"})[0] == 1
    assert settings_of(java, own_server) == before


@pytest.mark.feature("D17")
@pytest.mark.parametrize("ending", ["kill", "stop"])
@every_java
def test_changes_are_kept(java: Driver, rocketlet_up: StartServer, tmp_path: pathlib.Path, ending: str) -> None:
    """What mqadmin has changed counts after a restart, whether the broker was killed or stopped."""
    with rocketlet_up(tmp_path / "store") as server:
        assert "success" in update(java, server, "fileReservedTime", "48")
        {"kill": server.kill, "stop": server.stop}[ending]()
    with rocketlet_up(tmp_path / "store") as server:
        assert settings_of(java, server)["fileReservedTime"] == "48"
