"""How far topics and groups are and who is connected, as mqadmin and the Java administration client tell it."""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer, Queue
from interop.driver import Driver, DriverError
from interop.parts import mqadmin
from interop.servers import Server
from interop.versions import JavaDriver, every_java
from polling import ask_until

NewName = Callable[[], str]


@contextmanager
def three_messages(java: Driver, server: Server, name: str) -> Generator[str]:
    """Make a topic of two queues, with three messages in the first; its producers are in the group of its name."""
    with Admin(java, namesrv=server.namesrv) as admin:
        admin.create_topic(server.broker, name, 2)
    with Producer(java, namesrv=server.namesrv, group=name) as producer:
        producer.send_all(name, *[Outgoing(b"%d" % number) for number in range(3)], queue=Queue(name, "broker-a", 0))
        yield name


@pytest.fixture
def topic(java: Driver, server: Server, new_name: NewName) -> Iterator[str]:
    """Return such a topic."""
    with three_messages(java, server, new_name()) as name:
        yield name


def rows_of(printed: str, topic: str) -> list[list[str]]:
    """Return the words of the lines that begin with a topic's name, which mqadmin cuts at 64 characters."""
    return [line.split() for line in printed.splitlines() if line.startswith(topic[:64])]


def await_progress(java: Driver, server: Server, group: str, behind: int, in_flight: int) -> str:
    """Ask until a group is behind by so many, with so many in flight; return what mqadmin prints then.

    mqadmin 4.9.8 does not know what is in flight.
    """

    def is_so(printed: str) -> bool:
        lag, flying = re.search(r"Diff Total: (\d+)", printed), re.search(r"Inflight Total: (\d+)", printed)
        return lag is not None and int(lag[1]) == behind and (flying is None or int(flying[1]) == in_flight)

    return ask_until(lambda: mqadmin(java, "consumerProgress", "-n", server.namesrv, "-g", group), is_so)


@pytest.mark.feature("D1")
@every_java
def test_topic_status(java: Driver, server: Server, topic: str) -> None:
    """The queues of a topic, their ends, and when they got their last message."""
    printed = mqadmin(java, "topicStatus", "-n", server.namesrv, "-t", topic)
    rows = [line.split() for line in printed.splitlines() if line.startswith("broker-a")]
    assert [row[:4] for row in rows] == [["broker-a", "0", "0", "3"], ["broker-a", "1", "0", "0"]]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", " ".join(rows[0][4:6]))
    assert len(rows[1]) == 4


@pytest.mark.feature("D4")
@every_java
def test_progress_of_a_stuck_group(java: Driver, server: Server, new_name: NewName) -> None:
    """A listener that does not come back has all messages in flight, and is behind by all.

    Ours says so at once; Java's broker knows a group only by the offsets that it commits.
    """
    settings = {"awaitTerminationMillisWhenShutdown": 0}
    with three_messages(java, server, new_name()) as topic:
        about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
        with PushConsumer(java, **about, failures=3, failure="hang", settings=settings) as stuck:
            assert len(stuck.received(3)) == 3
            await_progress(java, server, f"{topic}-group", 3, 3)


@pytest.mark.feature("D4")
@every_java
def test_progress_of_a_group(java: Driver, server: Server, topic: str) -> None:
    """When all is consumed nothing is in flight, and the group is not behind."""
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with PushConsumer(java, **about) as consumer:
        assert len(consumer.received(3)) == 3
        printed = await_progress(java, server, f"{topic}-group", 0, 0)
        (first, second) = rows_of(printed, topic)
        assert (first[1:5], second[1:5]) == (["broker-a", "0", "3", "3"], ["broker-a", "1", "0", "0"])


@pytest.mark.feature("D4", "D5")
@every_java
def test_progress_of_a_group_that_is_offline(java: Driver, server: Server, topic: str) -> None:
    """Without members a group keeps its progress, and is behind by what is sent then; its connections are none."""
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with PushConsumer(java, **about) as consumer:
        assert len(consumer.received(3)) == 3
        await_progress(java, server, f"{topic}-group", 0, 0)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *[Outgoing(b"later")] * 2, queue=Queue(topic, "broker-a", 0))
    await_progress(java, server, f"{topic}-group", 2, 0)
    with Admin(java, namesrv=server.namesrv) as admin, pytest.raises(DriverError, match="not online") as failed:
        admin.call("examineConsumerConnectionInfo", f"{topic}-group")
    assert failed.value.failure.code == 206


@pytest.mark.feature("D6")
@every_java
def test_connections_of_groups(java: JavaDriver, server: Server, topic: str) -> None:
    """Client ids, addresses, versions and subscriptions of those who are connected."""
    subscriptions = {topic: "a || b"}
    group = f"{topic}-group"
    with PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions=subscriptions) as consumer:
        printed = mqadmin(java, "consumerConnection", "-n", server.namesrv, "-g", group)
        assert consumer.client_id is not None
        (row,) = (line.split() for line in printed.splitlines() if consumer.client_id in line)
        assert re.fullmatch(r"127\.0\.0\.\d+:\d+", row[1])
        assert row[2:] == ["JAVA", f"V{java.version.replace('.', '_')}"]
        assert re.search(rf"(?m)^{re.escape(topic)} +a \|\| b", printed)
        assert "ConsumeType: CONSUME_PASSIVELY\nMessageModel: CLUSTERING\n" in printed
    while not re.search(r"0001 +\S+ +127\.0\.0\.\d+:\d+ +JAVA", printed):  # its first heartbeat may come after a second
        printed = mqadmin(java, "producerConnection", "-n", server.namesrv, "-g", topic, "-t", topic)
    with (
        Admin(java, namesrv=server.namesrv) as admin,
        pytest.raises(DriverError, match=r"\[nobody\] not exist") as failed,
    ):
        admin.call("examineProducerConnectionInfo", "nobody", topic)
    assert failed.value.failure.code == 1


@pytest.mark.feature("D13")
@every_java
def test_progress_of_all_groups(java: Driver, server: Server, topic: str) -> None:
    """All groups of a broker, and the groups of a topic."""
    group = f"{topic}-group"
    with PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}) as consumer:
        assert len(consumer.received(3)) == 3
        await_progress(java, server, group, 0, 0)
        printed = mqadmin(java, "brokerConsumeStats", "-b", server.broker, "-n", server.namesrv)
        (row,) = (line.split() for line in printed.splitlines() if line.startswith(topic[:32]) and " 3 " in line)
        assert row[1:6] == [group, "broker-a", "0", "3", "3"]
        with Admin(java, namesrv=server.namesrv) as admin:
            assert admin.call("queryTopicConsumeByWho", topic)["groupList"] == [group]


@pytest.mark.feature("D4", "D5")
def test_progress_of_every_group(java: Driver, server: Server, topic: str) -> None:
    """Without a name, consumerProgress lists each group once, with its members, their version, model and lag."""
    group = f"{topic}-group"

    def listed() -> list[str]:
        printed = mqadmin(java, "consumerProgress", "-n", server.namesrv)
        (row,) = (line.split() for line in printed.splitlines() if line.startswith(group[:64]))
        return row

    with PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}) as consumer:
        assert len(consumer.received(3)) == 3
        await_progress(java, server, group, 0, 0)
        name, members, version, kind, model, _, lag = listed()
        assert (name, members, kind, model, lag) == (group, "1", "PUSH", "CLUSTERING", "0")
        assert version.startswith("V5_")
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"later"), queue=Queue(topic, "broker-a", 0))
    assert listed()[-1] == "1"
