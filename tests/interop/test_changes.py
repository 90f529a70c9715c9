"""Topics and groups that mqadmin deletes, and groups that it sends elsewhere, under running official clients."""

from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer, Queue
from interop.driver import Driver, DriverError
from interop.parts import mqadmin
from interop.servers import Server
from interop.versions import every_java

NewName = Callable[[], str]
BODIES = [b"%d" % number for number in range(3)]


@pytest.fixture
def topic(java: Driver, server: Server, new_name: NewName) -> str:
    """Return a topic of two queues with three messages in the first."""
    name = new_name()
    with Admin(java, namesrv=server.namesrv) as admin:
        admin.create_topic(server.broker, name, 2)
    send(java, server, name, *BODIES)
    return name


def send(java: Driver, server: Server, topic: str, *bodies: bytes) -> None:
    """Send messages to the first queue."""
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *map(Outgoing, bodies), queue=Queue(topic, "broker-a", 0))


def consumer_of(java: Driver, server: Server, topic: str) -> PushConsumer:
    """Return a consumer in the group of the topic."""
    settings = {"persistConsumerOffsetInterval": 200}
    return PushConsumer(
        java, namesrv=server.namesrv, group=f"{topic}-group", subscriptions={topic: "*"}, settings=settings
    )


def bodies_of(consumer: PushConsumer, count: int) -> list[bytes]:
    """Return the first so many messages of a consumer, in the order in which they came."""
    return [message.body for message in consumer.received(count)]


def failure_of(java: Driver, server: Server, call: str, *arguments: object) -> int:
    """Return the code with which a call of the administration client fails."""
    with Admin(java, namesrv=server.namesrv) as admin, pytest.raises(DriverError) as failed:
        admin.call(call, *arguments)
    code = failed.value.failure.code
    assert code is not None
    return code


@pytest.mark.feature("D2")
@every_java
def test_deleted_topic_is_gone(java: Driver, server: Server, topic: str) -> None:
    """Neither broker nor name server knows it; made anew it begins empty, and so does its group."""
    with consumer_of(java, server, topic) as consumer:
        assert sorted(bodies_of(consumer, 3)) == BODIES
    printed = mqadmin(java, "deleteTopic", "-n", server.namesrv, "-c", "DefaultCluster", "-t", topic)
    assert "success" in printed, printed
    assert failure_of(java, server, "examineTopicStats", topic) == 17
    assert failure_of(java, server, "examineTopicRouteInfo", topic) == 17
    with Admin(java, namesrv=server.namesrv) as admin:
        assert topic not in admin.call("fetchAllTopicList")["topicList"]
        admin.create_topic(server.broker, topic, 2)
    send(java, server, topic, b"new")
    printed = mqadmin(java, "topicStatus", "-n", server.namesrv, "-t", topic)
    rows = [line.split()[:4] for line in printed.splitlines() if line.startswith("broker-a")]
    assert rows == [["broker-a", "0", "0", "1"], ["broker-a", "1", "0", "0"]]
    with consumer_of(java, server, topic) as consumer:
        assert bodies_of(consumer, 1) == [b"new"]


@pytest.mark.feature("D3")
@every_java
def test_deleted_group_is_gone(java: Driver, server: Server, topic: str) -> None:
    """With its offsets; those who come in its name later begin as a new group, at the start of a young topic."""
    group = f"{topic}-group"
    about = ["-n", server.namesrv, "-b", server.broker]
    printed = mqadmin(java, "updateSubGroup", *about, "-g", group, "-r", "5")
    assert "success" in printed, printed
    with consumer_of(java, server, topic) as consumer:
        assert sorted(bodies_of(consumer, 3)) == BODIES
    printed = mqadmin(java, "deleteSubGroup", *about, "-g", group, "-r", "true")
    assert "success" in printed, printed
    with Admin(java, namesrv=server.namesrv) as admin:
        groups = admin.call("getAllSubscriptionGroup", server.broker, 10_000)["subscriptionGroupTable"]
        assert group not in groups
        assert groups
        assert admin.call("queryTopicConsumeByWho", topic)["groupList"] in (None, [])
    with consumer_of(java, server, topic) as consumer:
        assert sorted(bodies_of(consumer, 3)) == BODIES


@pytest.mark.feature("D8")
@every_java
def test_running_group_begins_again(java: Driver, server: Server, topic: str) -> None:
    """A group that has consumed everything gets it again, without a restart; then it goes on with what is new."""
    with consumer_of(java, server, topic) as consumer:
        assert sorted(bodies_of(consumer, 3)) == BODIES
        about = ["-n", server.namesrv, "-g", f"{topic}-group", "-t", topic]
        printed = mqadmin(java, "resetOffsetByTime", *about, "-s", "0")
        rows = sorted(line.split() for line in printed.splitlines() if line.startswith("broker-a"))
        assert rows == [["broker-a", "0", "0"], ["broker-a", "1", "0"]]
        assert sorted(bodies_of(consumer, 6)) == sorted(BODIES * 2)
        send(java, server, topic, b"new")
        assert bodies_of(consumer, 7)[6:] == [b"new"]


@pytest.mark.feature("D8")
def test_group_that_is_away_skips_what_it_has_not_consumed(java: Driver, server: Server, topic: str) -> None:
    """After skipAccumulatedMessage it begins with what comes later."""
    with consumer_of(java, server, topic) as consumer:
        assert sorted(bodies_of(consumer, 3)) == BODIES
    send(java, server, topic, b"skipped", b"skipped, too")
    about = ["-n", server.namesrv, "-g", f"{topic}-group", "-t", topic]
    printed = mqadmin(java, "skipAccumulatedMessage", *about)
    assert ["broker-a", "0", "5"] in [line.split() for line in printed.splitlines()]
    send(java, server, topic, b"new")
    with consumer_of(java, server, topic) as consumer:
        assert bodies_of(consumer, 1) == [b"new"]


@pytest.mark.feature("D10")
def test_one_queue_begins_at_an_offset(java: Driver, server: Server, topic: str) -> None:
    """A running group goes on at an offset of one queue; one beyond the queue is refused."""
    group = f"{topic}-group"
    with consumer_of(java, server, topic) as consumer:
        assert sorted(bodies_of(consumer, 3)) == BODIES
        with Admin(java, namesrv=server.namesrv) as admin:
            admin.call("resetOffsetByQueueId", server.broker, group, topic, 0, 2)
        assert bodies_of(consumer, 4)[3:] == [BODIES[2]]
        with (
            Admin(java, namesrv=server.namesrv) as admin,
            pytest.raises(DriverError, match=r"Target offset 5 not in consume queue range \[0-3\]"),
        ):
            admin.call("resetOffsetByQueueId", server.broker, group, topic, 0, 5)
