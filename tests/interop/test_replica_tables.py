"""Tables between our broker and the official one 5.4.0: each as the slave of the other, and mqadmin about our pair."""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer
from interop.driver import Driver
from interop.parts import Part, mqadmin
from interop.servers import BROKER_NAME, JavaBroker, Server
from polling import ask_until

StartServer = Callable[..., Server]
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
CALL_LIMIT_MS = 10_000
GROUP = "GID-replica"
TABLES = {"getAllTopicConfig": "topicConfigTable", "getAllSubscriptionGroup": "subscriptionGroupTable"}


def start_slave(store: pathlib.Path, namesrv: str, **settings: str) -> Part:
    """Run our broker as the slave of the one with the usual name."""
    given = {"brokerName": BROKER_NAME, "brokerClusterName": "DefaultCluster", **SLAVE, **settings}
    options = [option for key, value in given.items() for option in ("--set", f"{key}={value}")]
    return Part("broker", "--broker-port", "0", "--namesrv", namesrv, "--store", store, *options)


def fill(java: Driver, server: Server, topic: str) -> None:
    """Have a master with all kinds of tables: a topic, a group with settings, offsets, and delayed messages."""
    admin = Admin(java, namesrv=server.namesrv)
    admin.create_topic(server.broker, topic, 3)
    group = {"groupName": GROUP, "retryMaxTimes": 7}
    admin.call("createAndUpdateSubscriptionGroupConfig", server.broker, group)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(12)])
        producer.send_all(topic, Outgoing(b"delayed", delay_level=1), Outgoing(b"waiting", delay_level=18))
    with PushConsumer(java, namesrv=server.namesrv, group=GROUP, subscriptions={topic: "*"}) as consumer:
        consumer.received(13)


def settings_of(java: Driver, namesrv: str, address: str) -> dict[str, dict[str, Any]]:
    """Return the topics and the groups of a broker, as Java's client reads them."""
    admin = Admin(java, namesrv=namesrv)
    return {table: admin.call(call, address, CALL_LIMIT_MS)[table] for call, table in TABLES.items()}


def read_table(store: pathlib.Path, name: str) -> Any:
    """Return the content of a file of tables; Java writes bare numbers for keys, and leaves out what is null."""
    path = store / "config" / name
    text = path.read_text() if path.exists() else "{}"
    return json.loads(
        re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text),
        object_pairs_hook=lambda pairs: {key: value for key, value in pairs if value is not None},
    )


def tables_on_disk(store: pathlib.Path) -> dict[str, Any]:
    """Return what the files of both brokers must say alike."""
    return {
        "topics": read_table(store, "topics.json").get("topicConfigTable"),
        "groups": read_table(store, "subscriptionGroup.json").get("subscriptionGroupTable"),
        "offsets": read_table(store, "consumerOffset.json").get("offsetTable"),
        "delays": read_table(store, "delayOffset.json").get("offsetTable"),
        "modes": read_table(store, "messageRequestMode.json").get("messageRequestModeMap", {}),
    }


def progress_on_disk(store: pathlib.Path) -> tuple[int, int]:
    """Return how many messages the group has consumed, and how many were delivered of the first delay level."""
    found = tables_on_disk(store)
    offsets: dict[str, dict[str, int]] = found["offsets"] or {}
    delays: dict[str, int] = found["delays"] or {}
    return sum(offsets.get(f"replicated@{GROUP}", {}).values()), delays.get("1", 0)


@pytest.mark.feature("H2", "R8", "R9")
@pytest.mark.timeout(300, func_only=True)
def test_official_slave_has_our_tables(java: Driver, rocketlet_up: StartServer, tmp_path: pathlib.Path) -> None:
    """A minute after its start, which is when it asks first, its files say what ours do."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    server = rocketlet_up(ours)
    fill(java, server, "replicated")
    with JavaBroker(theirs, server.namesrv, SLAVE):
        ask_until(lambda: (tables_on_disk(ours), tables_on_disk(theirs)), lambda both: both[0] == both[1])
    found = tables_on_disk(theirs)
    assert found["topics"]["replicated"]["writeQueueNums"] == 3
    assert found["groups"][GROUP]["retryMaxTimes"] == 7
    assert progress_on_disk(theirs) == (13, 1)


@pytest.mark.feature("H2", "R10")
@pytest.mark.timeout(300, func_only=True)
def test_our_slave_has_the_tables_of_an_official_master(
    java: Driver, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """As soon as it is started; delay progress and offsets follow within a minute."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    server = java_broker(theirs)
    fill(java, server, "replicated")
    official = settings_of(java, server.namesrv, server.broker)
    with start_slave(ours, server.namesrv) as slave:
        ask_until(lambda: settings_of(java, server.namesrv, slave.address), lambda found: found == official)
        ask_until(lambda: progress_on_disk(ours), lambda progress: progress == (13, 1))
        slave.stop()
    found, wanted = tables_on_disk(ours), tables_on_disk(theirs)
    assert (found["topics"], found["groups"]) == (wanted["topics"], wanted["groups"])
    assert found["topics"]["replicated"]["writeQueueNums"] == 3


@pytest.mark.feature("R19")
def test_mqadmin_about_our_pair(java: Driver, rocketlet_up: StartServer, tmp_path: pathlib.Path) -> None:
    """Both ends are shown by haStatus, without anything missing; brokerStatus and getBrokerConfig work for both."""
    server = rocketlet_up(tmp_path / "master")
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all("replicated", Outgoing(b"one"))
    with start_slave(tmp_path / "slave", server.namesrv) as slave:
        level = re.compile(r"#MasterCommitLogMaxOffset\t(\d+)\n.*\n127\.0\.0\.1:\d+ +\1 +0 +\S+ +OK +\1\n", re.DOTALL)
        own = ask_until(
            lambda: mqadmin(java, "haStatus", "-b", server.broker), lambda told: level.search(told) is not None
        )
        end = level.findall(own)[0]
        assert "#InSyncSlaveNum\t1\n" in own
        told = mqadmin(java, "haStatus", "-b", slave.address)
        host, port = server.broker.split(":")
        assert f"#MasterAddr\t{host}:{int(port) + 1}\n#CommitLogMaxOffset\t{end}\n" in told, told
        for address in (server.broker, slave.address):
            status = mqadmin(java, "brokerStatus", "-n", server.namesrv, "-b", address)
            assert "bootTimestamp" in status
            settings = mqadmin(java, "getBrokerConfig", "-n", server.namesrv, "-b", address)
            role = "SLAVE" if address == slave.address else "ASYNC_MASTER"
            assert re.search(rf"brokerRole\s+=\s+{role}", settings), settings
