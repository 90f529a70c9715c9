"""Broadcasting groups of the official clients: each member gets everything, and nothing is tried again."""

from collections.abc import Callable
from typing import Any

import pytest
from interop.clients import Outgoing, Producer, PushConsumer
from interop.driver import Driver
from interop.servers import Server
from interop.tap import Tap
from interop.versions import every_client, every_java

from rocketlet.remoting.codec.request_codes import RequestCode

NewTopic = Callable[..., str]
JAVA = {"settings": {"messageModel": "BROADCASTING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}}
GO = {"broadcasting": True}


def member(namesrv: str, topic: str) -> dict[str, Any]:
    """Return what all members of a group are started with."""
    return {"namesrv": namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}


def numbered(first: int, after: int) -> dict[bytes, Outgoing]:
    """Return messages by their bodies."""
    return {b"%d" % number: Outgoing(b"%d" % number) for number in range(first, after)}


@pytest.mark.feature("C29")
@every_client
def test_each_member_gets_everything(
    client: str, driver: Driver, java: Driver, server: Server, new_topic: NewTopic
) -> None:
    """Two members get all messages of all queues, once each; one that starts late gets only what is new."""
    topic, early, late = new_topic(), numbered(0, 40), numbered(40, 80)
    about = member(server.namesrv, topic)
    with (
        PushConsumer(java, **about, **JAVA) as first,
        PushConsumer(driver, **about, **(JAVA if client == "java" else GO)) as second,
        Producer(java, namesrv=server.namesrv) as producer,
    ):
        for one in (first, second) if client == "java" else (first,):  # Go's starts with the first message anyway
            assert len(one.queues(topic, 4)) == 4
        producer.send_all(topic, *early.values())
        for one in (first, second):
            assert sorted(message.body for message in one.received(40)) == sorted(early)
        with PushConsumer(java, **about, **JAVA) as third:
            assert len(third.queues(topic, 4)) == 4
            producer.send_all(topic, *late.values())
            assert sorted(message.body for message in third.received(40)) == sorted(late)
        for one in (first, second):
            assert sorted(message.body for message in one.received(80)) == sorted(early | late)


@pytest.mark.feature("C29")
@every_java
def test_crash_of_a_member_harms_nobody(
    java: Driver, another_java: Callable[[], Driver], server: Server, new_topic: NewTopic
) -> None:
    """When one member is killed, the other still gets everything, and nothing again."""
    topic, mortal = new_topic(), another_java()
    about = member(server.namesrv, topic)
    with PushConsumer(java, **about, **JAVA) as stays, Producer(java, namesrv=server.namesrv) as producer:
        doomed = PushConsumer(mortal, **about, **JAVA)
        for one in (stays, doomed):
            assert len(one.queues(topic, 4)) == 4
        producer.send_all(topic, *numbered(0, 20).values())
        for one in (stays, doomed):
            assert len(one.received(20)) == 20
        mortal.kill()
        producer.send_all(topic, *numbered(20, 40).values())
        assert sorted(message.body for message in stays.received(40)) == sorted(numbered(0, 40))


@pytest.mark.feature("C30")
@every_java
def test_refused_broadcast_is_dropped(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A listener that fails gets no message twice: the client sends none back, and goes on with the next one."""
    topic, messages = new_topic(1), numbered(0, 10)
    settings = {**JAVA["settings"], "consumeThreadMin": 1, "consumeThreadMax": 1}  # one is done before the next
    with Tap(server) as tap, Producer(java, namesrv=server.namesrv) as producer:
        about = member(tap.namesrv, topic)
        with PushConsumer(java, **about, settings=settings, failures=9) as consumer:
            assert len(consumer.queues(topic, 1)) == 1
            producer.send_all(topic, *messages.values())
            assert len(consumer.received(10)) == 10
            tap.wait(lambda passed: passed.request.ext.get("queueOffset") == "10")
        assert not tap.asked(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert not tap.asked(RequestCode.SEND_MESSAGE_V2)
        with PushConsumer(java, **{**about, "group": f"{topic}-shared"}, failures=1) as shared:
            assert len(shared.received(10)) == 10
            tap.wait(lambda passed: passed.request.code == RequestCode.CONSUMER_SEND_MSG_BACK)
