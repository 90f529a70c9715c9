"""What has become of a message, and what can be done with one that was given up, by official tools."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Queue, Received
from interop.driver import Driver
from interop.parts import mqadmin
from interop.servers import Server
from interop.toolchain import OLD_JAVA_VERSION
from interop.versions import JavaDriver, every_java
from polling import ask_until

NewTopic = Callable[..., str]
QUICK = {"persistConsumerOffsetInterval": 200}


@dataclass
class Groups:
    """The groups of one topic, named by what each does."""

    java: Driver
    server: Server
    topic: str
    started: list[PushConsumer | PullConsumer] = field(default_factory=list[PushConsumer | PullConsumer])

    @property
    def queue(self) -> Queue:
        """The one queue of the topic."""
        return Queue(self.topic, "broker-a", 0)

    def push(self, name: str, expression: str = "*", **more: Any) -> PushConsumer:
        """Start the member of a group."""
        about = {"group": f"{self.topic}-{name}", "subscriptions": {self.topic: expression}}
        settings = QUICK | more.pop("settings", {})
        consumer = PushConsumer(self.java, namesrv=self.server.namesrv, **about, **more, settings=settings)
        self.started.append(consumer)
        return consumer

    def pull(self, name: str) -> PullConsumer:
        """Start a member that pulls when it likes."""
        about = {"group": f"{self.topic}-{name}", "settings": {"registerTopics": [self.topic]}}
        consumer = PullConsumer(self.java, namesrv=self.server.namesrv, **about)
        self.started.append(consumer)
        return consumer

    def await_tracks(self, message_id: str, expected: dict[str, str]) -> None:
        """Wait until it is told just so what each group has done with a message: offsets are committed later."""
        with Admin(self.java, namesrv=self.server.namesrv) as admin:
            ask_until(lambda: admin.tracks(self.topic, message_id), lambda tracks: tracks == expected)


@pytest.fixture
def groups(java: Driver, server: Server, new_topic: NewTopic) -> Iterator[Groups]:
    """Return the groups of a topic of one queue; they end in the order in which they came."""
    made = Groups(java, server, new_topic(1))
    yield made
    for one in made.started:
        one.stop()


@pytest.mark.feature("D20")
@every_java
def test_who_has_consumed_a_message(java: JavaDriver, server: Server, groups: Groups) -> None:
    """Consumed, filtered, not consumed yet, offline, pulled and broadcast: each group of the topic has its own."""
    topic, queue = groups.topic, groups.queue
    with Producer(java, namesrv=server.namesrv) as producer:
        (before,) = producer.send_all(topic, Outgoing(b"1", tags="a"), queue=queue)
    offline = groups.push("offline")
    assert len(offline.received(1)) == 1
    offline.wait_progress(queue, 1)
    groups.started.remove(offline)
    offline.stop()
    consumed = groups.push("consumed")
    groups.push("filtered", "b")
    waiting = groups.push("waiting", failures=9, failure="hang", settings={"awaitTerminationMillisWhenShutdown": 0})
    broadcast = groups.push("broadcast", settings={"messageModel": "BROADCASTING"})
    puller = groups.pull("pulled")
    assert all(len(one.received(1)) == 1 for one in (consumed, waiting, broadcast))
    puller.commit(queue, 1)
    expected = {
        f"{topic}-offline": "NOT_ONLINE",
        f"{topic}-consumed": "CONSUMED",
        f"{topic}-filtered": "CONSUMED_BUT_FILTERED",
        f"{topic}-waiting": "NOT_CONSUME_YET",
        f"{topic}-broadcast": "NOT_ONLINE" if java.version == OLD_JAVA_VERSION else "CONSUME_BROADCASTING",
        f"{topic}-pulled": "PULL",
    }
    groups.await_tracks(before.msg_id, expected)
    about = ["-t", topic] if java.version != OLD_JAVA_VERSION else []  # in 4.9.8 an offset id is enough
    printed = mqadmin(java, "queryMsgById", "-n", server.namesrv, *about, "-i", before.offset_msg_id)
    assert f"consumerGroup={topic}-consumed, trackType=CONSUMED," in printed


@pytest.fixture
def dead(java: Driver, server: Server, new_topic: NewTopic) -> tuple[str, Received]:
    """Return a topic, and the message that its group has given up at once."""
    topic = new_topic(1)
    about = {"group": f"{topic}-group", "subscriptions": {topic: "*"}, "failures": 99}
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        PushConsumer(java, namesrv=server.namesrv, **about, settings={"maxReconsumeTimes": 0}) as refusing,
        PullConsumer(java, namesrv=server.namesrv) as reader,
        Admin(java, namesrv=server.namesrv) as admin,
    ):
        producer.send_all(topic, Outgoing(b"dead", keys=["k"]))
        assert len(refusing.received(1)) == 1
        admin.await_route(f"%DLQ%{topic}-group")
        admin.call(
            "createAndUpdateTopicConfig",
            server.broker,
            {"topicName": f"%DLQ%{topic}-group", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
        )
        letters: list[Received] = []
        while not letters:
            letters = reader.query(f"%DLQ%{topic}-group", "k")
    return topic, letters[0]


@pytest.mark.feature("D21")
@every_java
def test_dead_letter_is_consumed_again(java: Driver, server: Server, dead: tuple[str, Received]) -> None:
    """A member gets it out of turn, with the topic where it lies; or it is sent to its own topic once more."""
    topic, letter = dead
    group = f"{topic}-group"
    with (
        PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}) as consumer,
        Admin(java, namesrv=server.namesrv) as admin,
    ):
        (found,) = admin.call("examineConsumerConnectionInfo", group)["connectionSet"]
        told = admin.call("consumeMessageDirectly", group, found["clientId"], f"%DLQ%{group}", letter.msg_id)
        assert told["consumeResult"] == "CR_SUCCESS"
        (again,) = consumer.received(1)
        assert (again.body, again.topic) == (b"dead", f"%DLQ%{group}")
        with Producer(java, namesrv=server.namesrv) as producer:
            producer.send_all(topic, Outgoing(letter.body, keys=["k"]))
        assert [message.body for message in consumer.received(2)] == [b"dead"] * 2
