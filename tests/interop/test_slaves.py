"""A master and its slave, each a process, and what official clients make of them: while both run, alone, and again."""

import operator
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from interop.clients import (
    Admin,
    Outgoing,
    Producer,
    PullConsumer,
    PushConsumer,
    Queue,
    Received,
    Sent,
    TransactionProducer,
)
from interop.driver import Driver
from interop.parts import Part
from interop.replica_group import GroupQueue, ReplicaGroup, ask_once, committed_at
from interop.servers import BROKER_NAME
from interop.tap import Tap
from interop.versions import every_client, every_java
from polling import ask_until

from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import encode_host, format_offset_id, parse_offset_id
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

NewName = Callable[[], str]
StartGroup = Callable[..., ReplicaGroup]
COMMIT_FLAG = 1
LOOK_MS = 60_000
READABLE = {"slaveReadEnable": "true"}
QUICK = {  # Java's waits; Go has no settings for them
    "pollNameServerInterval": 200,
    "heartbeatBrokerInterval": 500,
    "persistConsumerOffsetInterval": 500,
    "pullTimeDelayMillsWhenException": 100,
}


@pytest.fixture
def start_group(tmp_path: pathlib.Path) -> Iterator[StartGroup]:
    """Return a call that starts a name server, a master and its slave with some settings."""
    with ExitStack() as started:

        def start(**settings: str) -> ReplicaGroup:
            return ReplicaGroup(started, tmp_path, **settings)

        yield start


def numbered(count: int, start: int = 0) -> list[Outgoing]:
    """Return messages whose bodies are their numbers."""
    return [Outgoing(b"%d" % number) for number in range(start, start + count)]


def bodies(messages: Iterable[Outgoing | Received]) -> list[bytes]:
    """Return the bodies of messages, sorted."""
    return sorted(message.body for message in messages)


def pulls_of(topic: str, tap: Tap) -> list[Command]:
    """Return the pulls of a topic that have passed."""
    return [pull for pull in tap.asked(RequestCode.PULL_MESSAGE) if pull.ext["topic"] == topic]


def wait_committed(broker: Part, group: str, sent: Iterable[Sent]) -> None:
    """Return when a broker says that a group is done with all that was sent to a topic since it was made."""
    for queue, count in Counter(one.queue for one in sent).items():
        assert queue is not None
        asked = GroupQueue(group, queue.topic, queue.queue_id)
        ask_until(partial(committed_at, broker, asked), partial(operator.eq, count))


@pytest.mark.feature("P15", "R15")
@every_client
def test_consumer_far_behind_reads_at_the_slave(
    client: str, driver: Driver, java: Driver, start_group: StartGroup, new_name: NewName
) -> None:
    """The master sends a consumer that is far behind to the slave; it stores its offsets at the master all the same."""
    group, topic = start_group(**READABLE, accessMessageInMemoryMaxRatio="0"), new_name()
    queue, members = Queue(topic, BROKER_NAME, 0), f"{topic}-group"
    with Admin(java, namesrv=group.namesrv) as tools, Producer(java, namesrv=group.namesrv) as producer:
        tools.create_topic(group.master.address, topic, 1)
        sent = producer.send_all(topic, *numbered(200))
    group.wait_copied(topic)
    about = {"group": members, "subscriptions": {topic: "*"}, "settings": QUICK}
    with group.tapped() as taps:
        with PushConsumer(driver, namesrv=taps.namesrv, **about) as consumer:
            received = consumer.received(200)
            if client == "java":
                consumer.wait_progress(queue, 200)  # and it is stored at the end
            else:
                wait_committed(group.master, members, sent)
        wait_committed(group.master, members, sent)
        at_slave = pulls_of(topic, taps.slave)
        assert not taps.slave.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert bodies(received) == bodies(numbered(200))
    assert [pull.ext["queueOffset"] for pull in at_slave][-1] == "200"
    assert not any(int(pull.ext["sysFlag"]) & COMMIT_FLAG for pull in at_slave)


@pytest.mark.feature("H3", "N10", "R16", "R17")
@pytest.mark.parametrize("client", ["java", "go"])
def test_consumer_goes_on_at_the_slave_and_back(
    client: str, driver: Driver, java: Driver, start_group: StartGroup, new_name: NewName
) -> None:
    """Without the master its consumer reads the rest at the slave, and with it again what comes; nothing comes twice.

    What the consumer has when the master is killed is less than was sent: its pulls are refused before that. Java's
    consumer stores its offsets at the slave; Go's knows masters only there.
    """
    group, topic = start_group(**READABLE), new_name()
    early, rest, late = numbered(20), numbered(80, 20), numbered(20, 100)
    members = f"{topic}-group"
    about = {"group": members, "subscriptions": {topic: "*"}, "settings": QUICK}
    with group.tapped() as taps, Producer(java, namesrv=group.namesrv) as producer:
        with Admin(java, namesrv=group.namesrv) as tools:
            tools.create_topic(group.master.address, topic, 2)
        sent = producer.send_all(topic, *early)
        with PushConsumer(driver, namesrv=taps.namesrv, **about) as consumer:
            assert bodies(consumer.received(20)) == bodies(early)
            taps.master.refused = frozenset([RequestCode.PULL_MESSAGE])
            sent += producer.send_all(topic, *rest)
            group.wait_copied(topic)
            group.kill_master()
            consumer.wait_bodies((message.body for message in rest), LOOK_MS)
            if client == "java":
                wait_committed(group.slave, members, sent)
            taps.master.refused = frozenset()
            group.restart_master()
            sent += producer.send_all(topic, *late)
            consumer.wait_bodies((message.body for message in late), LOOK_MS)
            wait_committed(group.master, members, sent)
            received = consumer.received()
        at_slave = pulls_of(topic, taps.slave)
    assert bodies(received) == bodies(early + rest + late)
    assert at_slave
    assert not any(int(pull.ext["sysFlag"]) & COMMIT_FLAG for pull in at_slave)


@pytest.mark.feature("H3", "H5", "N9", "N10")
@every_client
def test_producers_leave_out_a_group_without_its_master(
    client: str, driver: Driver, java: Driver, start_group: StartGroup, new_name: NewName
) -> None:
    """While only a slave is left of a group, sends go to the other group, and those to its own topics fail at once."""
    group, both, alone = start_group(**READABLE), new_name(), new_name()
    other = group.start_broker(brokerName="broker-b")
    with Admin(java, namesrv=group.namesrv) as tools:
        for broker, topic in ((group.master, both), (other, both), (group.master, alone)):
            tools.create_topic(broker.address, topic, 2)
        named = {each["brokerName"]: each["brokerAddrs"] for each in tools.await_route(both)["brokerDatas"]}
        assert named[BROKER_NAME] == {"0": group.master.address, "1": group.slave.address}
        group.kill_master()
        named = {each["brokerName"]: each["brokerAddrs"] for each in tools.await_route(both)["brokerDatas"]}
        assert named == {BROKER_NAME: {"1": group.slave.address}, "broker-b": {"0": other.address}}
    with Producer(driver, namesrv=group.namesrv) as producer:
        sent = producer.send_all(both, *numbered(8))
        assert {one.queue and one.queue.broker_name for one in sent} == {"broker-b"}
        (refused,) = producer.send(alone, Outgoing(b"nowhere"))
    assert refused.error is not None
    if client == "java":
        assert f"No route info of this topic: {alone}" in refused.error.message
    else:
        assert refused.error.message == f"the topic={alone} route info not found"


@pytest.mark.feature("H1", "H3", "H4")
@every_java
def test_slave_alone_answers_for_its_messages(java: Driver, start_group: StartGroup, new_name: NewName) -> None:
    """Without the master the slave finds messages: by offset, key, unique key and place in its log; it takes none."""
    group, topic = start_group(**READABLE), new_name()
    queue = Queue(topic, BROKER_NAME, 0)
    with Admin(java, namesrv=group.namesrv) as tools, Producer(java, namesrv=group.namesrv) as producer:
        tools.create_topic(group.master.address, topic, 1)
        sent = producer.send_all(topic, *[Outgoing(b"%d" % number, keys=[f"key-{number}"]) for number in range(3)])
    group.wait_copied(topic)
    group.kill_master()
    host, _, port = group.slave.address.rpartition(":")
    with PullConsumer(java, namesrv=group.namesrv) as reader:
        pulled = reader.pull(queue, 1, count=1).messages
        (by_key,) = reader.query(topic, "key-1")
        by_id = reader.view(topic, sent[1].msg_id)
        _, log_offset = parse_offset_id(sent[1].offset_msg_id)
        in_log = reader.view(topic, format_offset_id(encode_host(host, int(port)), log_offset))
        assert reader.pull(queue, 3).status == "NO_NEW_MSG"
    send = {"producerGroup": "raw", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1"}
    place = {"queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0"}
    assert ask_once(group.slave.address, RequestCode.SEND_MESSAGE, send | place).code == ResponseCode.SYSTEM_BUSY
    assert [message.body for message in (*pulled, by_key, by_id, in_log)] == [b"1"] * 4
    assert {message.store_host for message in (*pulled, by_key, by_id, in_log)} == {group.master.address}


@pytest.mark.feature("R11", "S20")
@every_client
def test_sends_that_wait_for_a_slave(
    client: str, driver: Driver, java: Driver, start_group: StartGroup, new_name: NewName
) -> None:
    """Two shall have each message: SEND_OK while the slave copies, FLUSH_SLAVE_TIMEOUT without it, and it is there.

    A transaction whose half message was answered so is rolled back, and nobody consumes it.
    """
    waits = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "200"}
    group, topic = start_group(**waits), new_name()
    with Admin(java, namesrv=group.namesrv) as tools:
        tools.create_topic(group.master.address, topic, 1)
    about = {"group": f"{topic}-producers", "topic": topic}
    with (
        Producer(driver, namesrv=group.namesrv) as producer,
        TransactionProducer(driver, namesrv=group.namesrv, **about) as participant,
    ):
        producer.send_all(topic, Outgoing(b"two have it"))
        participant.send(topic, b"two have its half", outcome="commit")
        group.slave.kill()
        (late,) = producer.send(topic, Outgoing(b"one has it"))
        (undone,) = participant.try_send(topic, b"one has its half", outcome="commit", checked="commit")
    with Producer(java, namesrv=group.namesrv) as producer:  # Go's messages cannot say so
        producer.send_all(topic, Outgoing(b"one is enough", waits_for_store=False))
    assert [late.status, undone.status] == ["FLUSH_SLAVE_TIMEOUT"] * 2
    assert undone.state == ("ROLLBACK_MESSAGE" if client == "java" else None)
    with PullConsumer(java, namesrv=group.namesrv) as reader:
        stored = [message.body for message in reader.read_all(topic)]
    assert stored == [b"two have it", b"two have its half", b"one has it", b"one is enough"]
