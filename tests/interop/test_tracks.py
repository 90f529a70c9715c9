"""What has become of a message, and what can be done with one that was given up, by official tools."""

from collections.abc import Callable
from typing import Any

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Queue, Received
from interop.driver import Driver
from interop.parts import mqadmin
from interop.servers import Server
from interop.versions import every_java

NewTopic = Callable[..., str]
QUICK = {"persistConsumerOffsetInterval": 200}


@pytest.mark.feature("D20")
def test_who_has_consumed_a_message(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Consumed, filtered, not consumed yet, offline, pulled and broadcast: each group of the topic has its own."""
    topic = new_topic(1)
    queue = Queue(topic, "broker-a", 0)
    started: list[Any] = []

    def start(name: str, expression: str = "*", **more: Any) -> PushConsumer:
        settings = QUICK | more.pop("settings", {})
        about = {"group": f"{topic}-{name}", "subscriptions": {topic: expression}, "settings": settings}
        started.append(PushConsumer(java, namesrv=server.namesrv, **about, **more))
        return started[-1]

    with Producer(java, namesrv=server.namesrv) as producer:
        (before,) = producer.send_all(topic, Outgoing(b"1", tags="a"), queue=queue)
    with start("offline") as offline:
        assert len(offline.received(1)) == 1
        offline.wait_progress(queue, 1)
    consumed = start("consumed")
    start("filtered", "b")
    waiting = start("waiting", failures=9, failure="hang", settings={"awaitTerminationMillisWhenShutdown": 0})
    broadcast = start("broadcast", settings={"messageModel": "BROADCASTING"})
    puller = PullConsumer(java, namesrv=server.namesrv, group=f"{topic}-pulled", settings={"registerTopics": [topic]})
    try:
        assert all(len(one.received(1)) == 1 for one in (consumed, waiting, broadcast))
        puller.commit(queue, 1)
        expected = {
            f"{topic}-offline": "NOT_ONLINE",
            f"{topic}-consumed": "CONSUMED",
            f"{topic}-filtered": "CONSUMED_BUT_FILTERED",
            f"{topic}-waiting": "NOT_CONSUME_YET",
            f"{topic}-broadcast": "CONSUME_BROADCASTING",
            f"{topic}-pulled": "PULL",
        }
        with Admin(java, namesrv=server.namesrv) as admin:
            tracks: dict[str, str] = {}
            while tracks != expected:  # offsets are committed a moment later; ends by the time limit of tests
                tracks = admin.tracks(topic, before.msg_id)
        printed = mqadmin(java, "queryMsgById", "-n", server.namesrv, "-t", topic, "-i", before.offset_msg_id)
        assert f"consumerGroup={topic}-consumed, trackType=CONSUMED," in printed
    finally:
        puller.stop()
        for one in started:
            one.stop()


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
