"""Official consumers whose requests go wrong on the way, or are left out on purpose."""

from collections.abc import Callable

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer, Queue
from interop.driver import Driver
from interop.servers import Server
from interop.tap import Passed, Tap
from interop.toolchain import JAVA_VERSION
from interop.versions import DEFAULT_JAVA

from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.client import HeartbeatData
from rocketlet.remoting.codec.request_codes import RequestCode

NewTopic = Callable[..., str]
only_new_java = pytest.mark.skipif(DEFAULT_JAVA != JAVA_VERSION, reason="4.9.8 takes any error for a new group")


def numbered(first: int, after: int) -> list[Outgoing]:
    """Return messages whose bodies are their numbers."""
    return [Outgoing(b"%d" % number) for number in range(first, after)]


@only_new_java
@pytest.mark.feature("C9")
def test_consumer_waits_for_its_offset(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """While queries for its offset fail a consumer pulls nothing; then it goes on where its group was."""
    topic = new_topic(1)
    queue = Queue(topic, "broker-a", 0)
    about = {"group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with Tap(server) as tap, Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *numbered(0, 20))
        with PullConsumer(java, namesrv=server.namesrv, group=f"{topic}-group") as before_it:
            assert before_it.committed(queue) == 0
            before_it.commit(queue, 10)
        tap.refused = frozenset([RequestCode.QUERY_CONSUMER_OFFSET])
        before = tap.count
        with PushConsumer(java, namesrv=tap.namesrv, **about) as consumer:
            seen = before
            for _ in range(20):
                seen = tap.wait(lambda passed: _is_refused(passed, topic), after=seen)
            assert (consumer.queues(topic), consumer.received()) == ([], [])
            tap.refused = frozenset()
            assert {message.body for message in consumer.received(10)} == {one.body for one in numbered(10, 20)}
            assert len(consumer.received()) == 10


def _is_refused(passed: Passed, topic: str) -> bool:
    is_query = passed.request.code == RequestCode.QUERY_CONSUMER_OFFSET
    return is_query and passed.answered == 1 and passed.request.ext["topic"] == topic


@pytest.mark.skipif(DEFAULT_JAVA != JAVA_VERSION, reason="4.9.8 has no heartbeats of version 2")
def test_client_leaves_known_subscriptions_out(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A client with heartbeats of version 2 sends short ones once the broker knows it, a full one after a change."""
    topic, another = new_topic(1), new_topic(1)
    settings = {"useHeartbeatV2": True, "heartbeatBrokerInterval": 50}
    group = f"{topic}-group"
    with Tap(server) as tap, Producer(java, namesrv=server.namesrv) as producer:
        about = {"namesrv": tap.namesrv, "group": group, "settings": settings}
        with PushConsumer(java, **about, subscriptions={topic: "*"}) as consumer:
            assert len(consumer.queues(topic, 1)) == 1
            seen = _wait_short(tap, 0)
            seen = _wait_short(tap, seen)
            producer.send_all(topic, Outgoing(b"first"))
            assert len(consumer.received(1)) == 1
            java.call("consumer.subscribe", name=consumer.name, subscriptions={another: "*"})
            seen = tap.wait(lambda passed: another in _subscribed(passed), after=seen)
            _wait_short(tap, seen)


def _heartbeat(passed: Passed) -> HeartbeatData | None:
    if passed.request.code != RequestCode.HEART_BEAT or passed.answered is None:
        return None
    data = decode_body(HeartbeatData, passed.request.body)
    return data if data.consumer_data_set else None


def _wait_short(tap: Tap, after: int) -> int:
    def is_short(passed: Passed) -> bool:
        data = _heartbeat(passed)
        return data is not None and data.without_sub and not _subscribed(passed)

    return tap.wait(is_short, after)


def _subscribed(passed: Passed) -> set[str]:
    data = _heartbeat(passed)
    consumers = data.consumer_data_set if data else []
    return {subscription.topic for consumer in consumers for subscription in consumer.subscription_data_set}
