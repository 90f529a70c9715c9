"""Two brokers of ours, each a process: where topics are created, and sends while one of the two dies."""

import pathlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Queue, await_first_look
from interop.driver import Driver
from interop.parts import Cluster, mqadmin, start_brokers, start_cluster
from interop.versions import every_client, every_java

NewName = Callable[[], str]


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    """Run two name servers and two brokers."""
    with ExitStack() as started:
        yield start_cluster(started, tmp_path)


def numbered(count: int) -> list[Outgoing]:
    """Return messages whose bodies are their numbers."""
    return [Outgoing(b"%d" % number) for number in range(count)]


@pytest.mark.feature("S5", "S6")
@every_java
def test_ten_sends_create_a_topic_on_both_brokers(java: Driver, cluster: Cluster, new_name: NewName) -> None:
    """A producer rotates over the template's queues of both brokers, so ten sends give the topic 4 and 4 queues."""
    topic = new_name()
    with Producer(java, namesrv=cluster.namesrv) as producer:
        await_first_look(producer, new_name)
        producer.send_all(topic, *numbered(10))
    with Producer(java, namesrv=cluster.namesrv) as producer:
        queues = Counter(queue.broker_name for queue in producer.queues(topic))
    assert queues == {"broker-a": 4, "broker-b": 4}


@pytest.mark.feature("S6")
@every_java
def test_one_send_creates_a_topic_on_one_broker(java: Driver, cluster: Cluster, new_name: NewName) -> None:
    """After a single send only its broker has the topic, and every later producer sends there and nowhere else."""
    topic = new_name()
    with Producer(java, namesrv=cluster.namesrv) as producer:
        (first,) = producer.send_all(topic, Outgoing(b"first"))
    assert first.queue is not None
    with Producer(java, namesrv=cluster.namesrv) as producer:
        results = producer.send_all(topic, *numbered(10))
        queues = Counter(queue.broker_name for queue in producer.queues(topic))
    assert queues == {first.queue.broker_name: 4}
    assert {result.queue and result.queue.broker_name for result in results} == {first.queue.broker_name}


@pytest.mark.feature("S8")
@every_java
def test_topic_with_more_queues_on_one_broker(java: Driver, cluster: Cluster, new_name: NewName) -> None:
    """A topic that mqadmin creates with 4 queues on one broker and 2 on the other has 6, and sends rotate over them."""
    topic = new_name()
    for name, queues in (("broker-a", "4"), ("broker-b", "2")):
        about = ["-n", cluster.namesrv, "-b", cluster.brokers[name].address, "-t", topic]
        printed = mqadmin(java, "updateTopic", *about, "-w", queues, "-r", queues)
        assert "success" in printed, printed
    with Producer(java, namesrv=cluster.namesrv) as producer:
        wanted = [("broker-a", number) for number in range(4)] + [("broker-b", number) for number in range(2)]
        assert sorted((queue.broker_name, queue.queue_id) for queue in producer.queues(topic)) == wanted
        results = producer.send_all(topic, *numbered(12))
    used = Counter((result.queue.broker_name, result.queue.queue_id) for result in results if result.queue)
    assert used == dict.fromkeys(wanted, 2)


@pytest.mark.feature("H5")
@every_client
def test_sends_go_on_when_a_broker_is_killed(
    request: pytest.FixtureRequest,
    client: str,
    driver: Driver,
    java: Driver,
    cluster: Cluster,
    new_name: NewName,
) -> None:
    """Sends while one of two brokers is killed succeed, but for one that it may have had; new ones go to the other."""
    topic = new_name()
    with Admin(java, namesrv=cluster.nameservers[0].address) as tools:
        for broker in cluster.brokers.values():
            tools.create_topic(broker.address, topic, 2)
        with Producer(driver, namesrv=cluster.namesrv) as producer:
            early = producer.send_all(topic, *numbered(8))
            assert {result.queue and result.queue.broker_name for result in early} == {"broker-a", "broker-b"}
            begun = producer.begin_send(topic, *numbered(2000))
            with PullConsumer(java, namesrv=cluster.namesrv) as reader:
                assert reader.pull(Queue(topic, "broker-a", 0), 2, block=True).status == "FOUND"
            cluster.brokers["broker-a"].kill()
            during = producer.finish_send(begun)
        failed = [result.error for result in during if result.status != "SEND_OK"]
        # Java's 4.9 client may notice only when the time is over that the one under way died with its connection.
        may_lose_one = request.node.get_closest_marker("old_java") is not None
        assert [error and error.message for error in failed] in ([], ["sendDefaultImpl call timeout"] * may_lose_one)
        tools.await_route(topic, ["broker-b"])
        with Producer(driver, namesrv=cluster.namesrv) as producer:
            late = producer.send_all(topic, *numbered(8))
    assert {result.queue and result.queue.broker_name for result in late} == {"broker-b"}


def test_two_brokers_of_one_process(java: Driver, tmp_path: pathlib.Path, new_name: NewName) -> None:
    """A topic lies on both brokers of `rocketlet up --brokers 2`, a consumer gets all of it, and so after a restart."""
    topic = new_name()
    for number in range(2):
        with start_brokers(tmp_path, 2) as brokers:
            about = {"group": f"{topic}-{number}", "subscriptions": {topic: None}}
            with Producer(java, namesrv=brokers.address) as producer:
                await_first_look(producer, new_name)
                results = producer.send_all(topic, *numbered(10))
            with PushConsumer(java, namesrv=brokers.address, **about) as consumer:  # it finds the topic at its start
                received = consumer.received(10 * (number + 1))
            assert {result.queue and result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
            assert sorted(message.body for message in received) == sorted(
                message.body for message in numbered(10) * (number + 1)
            )
            brokers.stop()


@pytest.mark.feature("D1", "D2", "D11", "D16", "D18", "D19", "N14", "N15")
def test_mqadmin_on_two_masters(java: Driver, cluster: Cluster, new_name: NewName) -> None:
    """Commands about a cluster reach both masters and name servers: topic, order, permission, offsets, cleaning."""
    topic, group = new_name(), new_name()

    def run(command: str, *arguments: str) -> str:
        return mqadmin(java, command, *arguments, "-n", cluster.namesrv)

    made = run("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2", "-o", "true")
    assert made.count(" success.") == 2, made
    told = re.search(r"orderConf=\[(.*)\]", run("updateOrderConf", "-t", topic, "-m", "get"))
    assert told is not None
    assert {*told[1].split(";")} == {"broker-a:2", "broker-b:2"}
    with Admin(java, namesrv=cluster.namesrv) as tools, Producer(java, namesrv=cluster.namesrv) as producer:
        assert {entry["writeQueueNums"] for entry in tools.await_route(topic, cluster.brokers)["queueDatas"]} == {2}
        producer.send_all(topic, *numbered(8))
        for server in cluster.nameservers:
            run("wipeWritePerm", "-b", "broker-a")
            with Admin(java, namesrv=server.address) as admin:
                queues = admin.call("examineTopicRouteInfo", topic)["queueDatas"]
                assert {one["brokerName"]: one["perm"] for one in queues} == {"broker-a": 4, "broker-b": 6}
        run("addWritePerm", "-b", "broker-a")
    with PushConsumer(java, namesrv=cluster.namesrv, group=group, subscriptions={topic: "*"}) as consumer:
        assert len(consumer.received(8)) == 8
    run("updateSubGroup", "-c", "DefaultCluster", "-g", f"{group}-2")
    run("cloneGroupOffset", "-s", group, "-d", f"{group}-2", "-t", topic, "-o", "true")
    late = [Outgoing(b"late %d" % number) for number in range(8)]
    about = {"group": f"{group}-2", "subscriptions": {topic: "*"}}
    with (
        Producer(java, namesrv=cluster.namesrv) as producer,
        PushConsumer(java, namesrv=cluster.namesrv, **about) as consumer,
    ):
        producer.send_all(topic, *late)
        assert {message.body for message in consumer.received(8)} == {message.body for message in late}
    for command in ("cleanUnusedTopic", "cleanExpiredCQ", "deleteExpiredCommitLog"):
        assert "success" in run(command, "-c", "DefaultCluster")
    assert "success" in run("updateOrderConf", "-t", topic, "-m", "delete")
    deleted = run("deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert f"delete topic [{topic}] from NameServer success" in deleted
    for server in cluster.nameservers:
        assert topic not in mqadmin(java, "topicList", "-n", server.address).split()
