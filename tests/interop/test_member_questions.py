"""What members answer administrators: running info, offsets, messages out of turn; Java's, Go's and our own client."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer, Queue, Sent
from interop.driver import Driver, DriverError
from interop.parts import mqadmin
from interop.servers import Server
from interop.toolchain import OLD_JAVA_VERSION
from interop.versions import DEFAULT_JAVA, JavaDriver, every_java, java_run

NewTopic = Callable[..., str]
MakeMember = Callable[..., PushConsumer]
every_member = pytest.mark.parametrize(
    ("client", "java"),
    [
        *(pytest.param(client, DEFAULT_JAVA, id=client) for client in ("java", "go", "python")),
        java_run(OLD_JAVA_VERSION, "java"),
    ],
    indirect=["java"],
    scope="function",
)


@pytest.fixture
def drivers(
    java: Driver, request: pytest.FixtureRequest, another_python: Callable[[], Driver]
) -> Callable[[str], Driver]:
    """Return a call that gives the driver of a client by its name, our own included."""

    def find(name: str) -> Driver:
        return java if name == "java" else another_python() if name == "python" else request.getfixturevalue(name)

    return find


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """Return a topic of two queues."""
    return new_topic(2)


@pytest.fixture
def member(driver: Driver, server: Server, topic: str) -> Iterator[PushConsumer]:
    """Return a member of the topic's group, which owns both queues."""
    about = {"group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with PushConsumer(driver, namesrv=server.namesrv, **about) as consumer:
        yield consumer


@pytest.fixture
def sent(java: Driver, server: Server, topic: str, member: PushConsumer) -> list[Sent]:
    """Return what three messages in the first queue gave, which the member has consumed."""
    with Producer(java, namesrv=server.namesrv) as producer:
        bodies = [Outgoing(b"%d" % number, keys=["k"]) for number in range(3)]
        results = producer.send_all(topic, *bodies, queue=Queue(topic, "broker-a", 0))
    assert len(member.received(3)) == 3
    return results


def client_of(java: Driver, server: Server, topic: str) -> str:
    """Return the client id of the one member of the topic's group."""
    with Admin(java, namesrv=server.namesrv) as admin:
        (found,) = admin.call("examineConsumerConnectionInfo", f"{topic}-group")["connectionSet"]
    return found["clientId"]


@pytest.mark.feature("D7")
@every_member
def test_running_info(java: Driver, server: Server, client: str, topic: str, sent: list[Sent]) -> None:
    """Settings, subscriptions and queues of a member, and with -s its stacks; all of a group are compared."""
    client_id = client_of(java, server, topic)
    about = ["-n", server.namesrv, "-g", f"{topic}-group"]
    printed = mqadmin(java, "consumerStatus", *about, "-i", client_id, "-s")
    assert re.search(r"PROP_CONSUME_TYPE +: CONSUME_PASSIVELY", printed), printed
    assert re.search(rf"(?m)^{re.escape(topic)} +broker-a +[01] ", printed) or topic in printed
    assert "#Consumer jstack" in printed
    compared = mqadmin(java, "consumerStatus", *about)
    assert client_id in compared
    assert "Same subscription in the same group of consumer" in compared
    assert "Rebalance OK" in compared
    assert len(sent) == 3


@pytest.mark.feature("D7")
@every_member
def test_offsets_of_members(java: Driver, server: Server, client: str, topic: str, sent: list[Sent]) -> None:
    """How far a member says that it is; all of the group, or one by its client id."""
    client_id = client_of(java, server, topic)
    group, expected = f"{topic}-group", [[{"topic": topic, "brokerName": "broker-a", "queueId": 0}, 3]]
    with Admin(java, namesrv=server.namesrv) as admin:
        for wanted in ("", client_id):
            told = admin.call("getConsumeStatus", topic, group, wanted)
            assert list(told) == [client_id]
            assert [entry for entry in told[client_id] if entry[0]["queueId"] == 0] == expected
        assert admin.call("getConsumeStatus", topic, group, "nobody") == {}
    assert len(sent) == 3


@pytest.mark.feature("D21", "D14")
@every_member
def test_message_out_of_turn(
    java: JavaDriver, server: Server, client: str, topic: str, member: PushConsumer, sent: list[Sent]
) -> None:
    """A member gets a message once more, by its offset id or unique key, and how it took it is told."""
    client_id = client_of(java, server, topic)
    with Admin(java, namesrv=server.namesrv) as admin:
        told = admin.call("consumeMessageDirectly", f"{topic}-group", client_id, topic, sent[1].msg_id)
    assert told["consumeResult"] == "CR_SUCCESS"
    assert [message.body for message in member.received(4)][3:] == [b"1"]
    about = ["-n", server.namesrv, "-g", f"{topic}-group", "-d", client_id]
    topics = ["-t", topic]  # in 4.9.8 an offset id is enough
    by_id = [*about, *topics] if java.version != OLD_JAVA_VERSION else about
    printed = mqadmin(java, "queryMsgById", *by_id, "-i", sent[0].offset_msg_id)
    assert "CR_SUCCESS" in printed
    printed = mqadmin(java, "queryMsgByUniqueKey", *about, *topics, "-i", sent[2].msg_id)
    assert "CR_SUCCESS" in printed
    assert [message.body for message in member.received(6)][4:] == [b"0", b"2"]


def failure_of(java: Driver, server: Server, method: str, *arguments: object) -> tuple[int | None, str]:
    """Return code and message with which a call of the administration client fails."""
    with Admin(java, namesrv=server.namesrv) as admin, pytest.raises(DriverError) as failed:
        admin.call(method, *arguments)
    return failed.value.failure.code, failed.value.failure.message


@pytest.mark.feature("D7", "D21")
@every_java
@pytest.mark.parametrize("client", ["java"])
def test_members_that_are_not_there(java: Driver, server: Server, client: str, topic: str, sent: list[Sent]) -> None:
    """An unknown group has no route, an unknown client is not online, an unknown message is not found."""
    group = f"{topic}-group"
    code, remark = failure_of(java, server, "getConsumerRunningInfo", group, "nobody", False)
    assert (code, f"The Consumer <{group}> <nobody> not online" in remark) == (1, True)
    code, remark = failure_of(java, server, "consumeMessageDirectly", group, "nobody", topic, sent[0].msg_id)
    assert (code, f"The Consumer <{group}> <nobody> not online" in remark) == (1, True)
    assert failure_of(java, server, "getConsumerRunningInfo", "nobody", "nobody", False)[0] == 17
    assert failure_of(java, server, "getConsumeStatus", topic, "nobody", "")[0] == 1
    code, _ = failure_of(java, server, "consumeMessageDirectly", group, "nobody", "nowhere", sent[0].msg_id)
    assert code in {17, 208}


@pytest.mark.feature("D6")
@every_java
def test_producers(java: Driver, server: Server, topic: str) -> None:
    """All producers of a broker by group, with client id, address, language and version."""
    with Producer(java, namesrv=server.namesrv, group=topic) as producer:
        producer.send_all(topic, Outgoing(b"x"))
        printed = ""
        while f"producer group ({topic}) instance" not in printed:  # its first heartbeat may come after a second
            printed = mqadmin(java, "producer", "-b", server.broker)
        (line,) = (line for line in printed.splitlines() if f"({topic})" in line)
        assert producer.client_id is not None
        assert producer.client_id in line
        assert re.search(r"remoteIP=/127\.0\.0\.\d+:\d+", line), line
        assert "language=JAVA" in line


@pytest.mark.feature("D6")
def test_what_groups_consume(java: Driver, server: Server, topic: str) -> None:
    """The topics of a group, what it subscribes to, and whether it may read them."""
    group = f"{topic}-group"
    about: dict[str, Any] = {"group": group, "subscriptions": {topic: "a || b"}}
    with (
        Admin(java, namesrv=server.namesrv) as admin,
        PushConsumer(java, namesrv=server.namesrv, **about),
    ):
        told = admin.call("querySubscription", group, topic)
        assert (told["topic"], told["subString"], sorted(told["tagsSet"])) == (topic, "a || b", ["a", "b"])
        assert admin.call("queryTopicsByConsumer", group)["topicList"] is not None
        assert not admin.call("updateAndGetGroupReadForbidden", server.broker, group, topic, False)["readable"]
        assert admin.call("updateAndGetGroupReadForbidden", server.broker, group, topic, True)["readable"]
