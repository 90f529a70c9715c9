"""Two name servers and two brokers of ours, each a process, as the official Java client and mqadmin see them."""

import json
import pathlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from typing import Any

import pytest
from interop.clients import Admin, Outgoing, Producer, await_first_look
from interop.driver import Driver, DriverError
from interop.parts import Cluster, brokers_in, mqadmin, start_cluster, start_nameserver
from interop.servers import Server
from interop.tap import Tap
from interop.toolchain import JAVA_VERSION, java_command
from interop.versions import DEFAULT_JAVA, every_client, every_java, skipped_without

CLUSTER = "DefaultCluster"
SCAN_PERIOD_MS = 5_000
NewName = Callable[[], str]


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    """Run the cluster."""
    with ExitStack() as started:
        yield start_cluster(started, tmp_path)


@pytest.fixture
def tools(java: Driver, cluster: Cluster) -> Iterator[Admin]:
    """Return an administration client of the first name server."""
    with Admin(java, namesrv=cluster.nameservers[0].address) as client:
        yield client


def failure_code(admin: Admin, method: str, *arguments: object) -> int | None:
    """Return the code with which a call of the official tools fails."""
    with pytest.raises(DriverError) as failed:
        admin.call(method, *arguments)
    return failed.value.failure.code


@pytest.mark.feature("N1", "N3", "N18", "N19", "N23")
def test_topics_and_brokers_as_the_tools_show_them(
    java: Driver, tools: Admin, cluster: Cluster, new_name: NewName
) -> None:
    """Routes, lists and cluster info name both brokers; TBW102 gives a client 16 queues."""
    topic, namesrv = new_name(), cluster.nameservers[0].address
    for name, queues in (("broker-a", 4), ("broker-b", 2)):
        tools.create_topic(cluster.brokers[name].address, topic, queues)
    route = tools.call("examineTopicRouteInfo", topic)
    assert {queue["brokerName"]: queue["writeQueueNums"] for queue in route["queueDatas"]} == {
        "broker-a": 4,
        "broker-b": 2,
    }
    assert {queue["perm"] for queue in route["queueDatas"]} == {6}
    assert {broker["brokerAddrs"]["0"] for broker in route["brokerDatas"]} == {
        broker.address for broker in cluster.brokers.values()
    }
    with Producer(java, namesrv=namesrv) as producer:
        assert len(producer.queues(topic)) == 6
        assert len(producer.queues("TBW102")) == 16
    assert topic in mqadmin(java, "topicList", "-n", namesrv)
    listed = mqadmin(java, "clusterList", "-n", namesrv)
    assert all(broker.address in listed for broker in cluster.brokers.values())
    assert topic in tools.call("fetchTopicsByCLuster", CLUSTER)["topicList"]


@pytest.mark.feature("N3")
@every_java
def test_template_topic_of_two_brokers(java: Driver, cluster: Cluster, new_name: NewName) -> None:
    """TBW102 has permission 7 and 8 queues on each broker, 16 for a client; a new topic is sent to 4 of each."""
    topic = new_name()
    with Admin(java, namesrv=cluster.namesrv) as admin, Producer(java, namesrv=cluster.namesrv) as producer:
        template = admin.await_route("TBW102", cluster.brokers)["queueDatas"]
        published = [(queue.broker_name, queue.queue_id) for queue in producer.queues("TBW102")]
        await_first_look(producer, new_name)
        results = producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(8)])
    assert [(queue["perm"], queue["readQueueNums"], queue["writeQueueNums"]) for queue in template] == [(7, 8, 8)] * 2
    assert published == [(name, number) for name in ("broker-a", "broker-b") for number in range(8)]
    used = {(result.queue.broker_name, result.queue.queue_id) for result in results if result.queue}
    assert used == {(name, number) for name in ("broker-a", "broker-b") for number in range(4)}


@pytest.mark.feature("N23")
@every_client
def test_route_is_written_as_its_reader_expects(
    client: str, driver: Driver, server: Server, new_topic: Callable[..., str]
) -> None:
    """Java's clients, from 4.9.4 on, get routes as strict JSON; Go's, which calls itself older, with bare numbers."""
    topic = new_topic()
    with Tap(server) as tap, Producer(driver, namesrv=tap.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"sent by that route"))
        routes = tap.routes(topic)
    key = b'{"0":' if client == "java" else b"{0:"
    assert len(routes) >= 1
    assert all(b'"brokerAddrs":' + key in route for route in routes)
    if client == "java":
        assert {json.loads(route)["brokerDatas"][0]["brokerAddrs"]["0"] for route in routes} == {server.broker}


@pytest.mark.feature("N2", "N20")
@pytest.mark.skipif(DEFAULT_JAVA != JAVA_VERSION, reason="4.9.8 mixes up topic and cluster")
def test_topic_deleted_by_the_tools_has_no_route(tools: Admin, cluster: Cluster, new_name: NewName) -> None:
    """A topic that is deleted in one name server is unknown there and still known to the other."""
    topic = new_name()
    tools.create_topic(cluster.brokers["broker-a"].address, topic, 4)
    tools.call("deleteTopicInNameServer", [cluster.nameservers[0].address], topic)
    assert failure_code(tools, "examineTopicRouteInfo", topic) == 17
    with Admin(tools.driver, namesrv=cluster.nameservers[1].address) as other:
        assert brokers_in(other.await_route(topic)) == {"broker-a"}


@pytest.mark.feature("N14", "D18")
def test_write_permission_is_wiped_and_added_by_mqadmin(
    java: Driver, tools: Admin, cluster: Cluster, new_name: NewName
) -> None:
    """A wiped broker is left out of what a new producer publishes to, and back in when added; both tell a count."""
    topic, namesrv = new_name(), cluster.nameservers[0].address
    for broker in cluster.brokers.values():
        tools.create_topic(broker.address, topic, 2)
    for command, expected in (("wipeWritePerm", {"broker-b"}), ("addWritePerm", {"broker-a", "broker-b"})):
        printed = mqadmin(java, command, "-b", "broker-a", "-n", namesrv)
        assert re.search(r"broker-a.*OK, \d+", printed), printed
        with Producer(java, namesrv=namesrv) as producer:
            assert {queue.broker_name for queue in producer.queues(topic)} == expected


@pytest.mark.feature("N15", "N16", "D19")
def test_key_values_of_mqadmin_survive_a_restart(
    java: Driver, cluster: Cluster, tmp_path: pathlib.Path, tools: Admin
) -> None:
    """What mqadmin puts is still there after a restart, and gone once it is deleted; a missing key is answered 22."""
    server = cluster.nameservers[0]
    about = "-s", "NS", "-k", "key", "-n", server.address
    mqadmin(java, "updateKvConfig", *about, "-v", "größe")
    server.stop()
    with (
        start_nameserver(tmp_path / "0", server.address.rpartition(":")[2]),
        Admin(java, namesrv=server.address) as admin,
    ):
        assert admin.call("getKVListByNamespace", "NS") == {"table": {"key": "größe"}}
        mqadmin(java, "deleteKvConfig", *about)
        assert admin.call("getKVListByNamespace", "NS") == {"table": {}}
        assert failure_code(admin, "getKVListByNamespace", "unknown") == 22


@pytest.mark.feature("N17", "N21")
def test_settings_of_mqadmin_and_order_of_a_topic(
    java: Driver, tools: Admin, cluster: Cluster, new_name: NewName
) -> None:
    """With orderMessageEnable set by mqadmin, a producer's queues follow the order configuration, also to the dead."""
    topic, namesrv = new_name(), cluster.nameservers[0].address
    tools.create_topic(cluster.brokers["broker-a"].address, topic, 2)
    mqadmin(java, "updateNamesrvConfig", "-n", namesrv, "-k", "orderMessageEnable", "-v", "true")
    assert re.search(r"orderMessageEnable\s+=\s+true", mqadmin(java, "getNamesrvConfig", "-n", namesrv))
    assert failure_code(tools, "updateNameServerConfig", {"kvConfigPath": "elsewhere"}, [namesrv]) == 16

    tools.call("createOrUpdateOrderConf", topic, "broker-a:3;broker-dead:2", False)
    with Producer(java, namesrv=namesrv) as producer:
        queues = sorted((queue.broker_name, queue.queue_id) for queue in producer.queues(topic))
    assert queues == [("broker-a", 0), ("broker-a", 1), ("broker-a", 2), ("broker-dead", 0), ("broker-dead", 1)]


@pytest.mark.feature("N17")
@every_java
def test_order_configuration_holds_when_a_broker_dies(java: Driver, cluster: Cluster, new_name: NewName) -> None:
    """The route tells the order configuration; a dead broker's queues stay in the list, and only sends to them fail."""
    ordered, plain = new_name(), new_name()
    namesrv = cluster.nameservers[0].address
    with Admin(java, namesrv=namesrv) as admin:
        for broker, topic in product(cluster.brokers.values(), (ordered, plain)):
            admin.create_topic(broker.address, topic, 2)
        admin.call("updateNameServerConfig", {"orderMessageEnable": "true"}, [namesrv])
        admin.call("createOrUpdateOrderConf", ordered, "broker-a:2;broker-b:2", False)
        cluster.brokers["broker-b"].kill()
        route = admin.await_route(ordered, ["broker-a"])
    assert set(route["orderTopicConf"].split(";")) == {"broker-a:2", "broker-b:2"}
    with Producer(java, namesrv=namesrv) as producer:
        queues = producer.queues(ordered)
        assert {queue.broker_name for queue in producer.queues(plain)} == {"broker-a"}
        results = [producer.send(ordered, Outgoing(b"body"), queue=queue)[0] for queue in queues]
    assert [(queue.broker_name, queue.queue_id) for queue in queues] == [*product(("broker-a", "broker-b"), range(2))]
    assert [result.status for result in results] == ["SEND_OK", "SEND_OK", "", ""]


@pytest.mark.feature("N4")
def test_one_name_server_is_enough(java: Driver, cluster: Cluster, new_name: NewName) -> None:
    """Both name servers tell the same route; when one stops, producers go on, also with topics they do not know yet."""
    first, second = new_name(), new_name()
    with Producer(java, namesrv=cluster.namesrv) as producer:
        producer.send_all(first, *[Outgoing(b"%d" % number) for number in range(8)])
        routes: list[dict[str, Any]] = []
        for server in cluster.nameservers:
            with Admin(java, namesrv=server.address) as admin:
                routes.append(admin.await_route(first))
        assert brokers_in(routes[0]) == brokers_in(routes[1])
        cluster.nameservers[0].kill()
        producer.send_all(first, *[Outgoing(b"%d" % number) for number in range(8)])
        producer.send_all(second, *[Outgoing(b"%d" % number) for number in range(8)])


@pytest.mark.feature("N7", "N8")
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_producer_goes_on_without_one_of_two_brokers(
    end: str, java: Driver, tools: Admin, cluster: Cluster, new_name: NewName
) -> None:
    """A broker that ends, however, is out of the route at once; every send before, during and after it succeeds.

    By the clock of the client there is less between its last answer and its absence than between two of the looks that
    a name server takes for silent brokers, the first of which would find it after two minutes.
    """
    topic = new_name()
    for broker in cluster.brokers.values():
        tools.create_topic(broker.address, topic, 2)
    with Producer(java, namesrv=cluster.namesrv) as producer:
        early = producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(8)])
        begun = producer.begin_send(topic, *[Outgoing(b"%d" % number) for number in range(2000)])
        getattr(cluster.brokers["broker-a"], end)()
        lost_at = tools.await_route_time(topic, ["broker-b"])
        results = producer.finish_send(begun)
        assert {result.status for result in results} == {"SEND_OK"}
        answers = [sent.answered_at for sent in early + results if sent.queue and sent.queue.broker_name == "broker-a"]
        assert lost_at < max(answers) + SCAN_PERIOD_MS
        late = producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(8)])
        assert late[-1].queue is not None
        assert late[-1].queue.broker_name == "broker-b"
    with Producer(java, namesrv=cluster.namesrv) as producer:
        assert {queue.broker_name for queue in producer.queues(topic)} == {"broker-b"}


@pytest.mark.feature("N9")
def test_official_master_and_slave_register(tmp_path: pathlib.Path, java: Driver) -> None:
    """An official master and its slave find each other by our name server, and without the master the slave stays."""
    settings = {"brokerClusterName": CLUSTER, "brokerName": "pair"}
    with ExitStack() as started:
        server = started.enter_context(start_nameserver(tmp_path))
        with skipped_without("the official broker"):
            pair = started.enter_context(Driver("java-server", java_command))
        roles = {"0": "ASYNC_MASTER", "1": "SLAVE"}
        addresses = {
            number: pair.call(
                "broker.start",
                name=number,
                namesrv=server.address,
                store=str(tmp_path / number),
                settings={**settings, "brokerId": number, "brokerRole": role},
            )["address"]
            for number, role in roles.items()
        }
        admin = started.enter_context(Admin(java, namesrv=server.address))
        group = admin.call("examineBrokerClusterInfo")["brokerAddrTable"]["pair"]
        assert group["brokerAddrs"] == addresses
        pair.call("broker.stop", name="0")
        route = admin.call("examineTopicRouteInfo", "TBW102")
        assert [broker["brokerAddrs"] for broker in route["brokerDatas"]] == [{"1": addresses["1"]}]
