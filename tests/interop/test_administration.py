"""What mqadmin switches off and on, and how running official clients take it."""

from collections.abc import Callable, Iterator

import pytest
from interop.clients import Outgoing, Producer, PushConsumer, Queue
from interop.driver import Driver
from interop.parts import mqadmin
from interop.servers import Server
from interop.tap import Passed, Tap
from interop.versions import every_java

from rocketlet.remoting.codec.request_codes import RequestCode

NewTopic = Callable[..., str]


@pytest.fixture
def tap(server: Server) -> Iterator[Tap]:
    """Return a tap before the shared server."""
    with Tap(server) as opened:
        yield opened


def assert_stops_and_resumes(
    java: Driver, server: Server, tap: Tap, topic: str, switch: Callable[[bool], None]
) -> None:
    """Check that a group's pulls are answered 16 while something is off, and what it gets when it is on again."""
    group, queue = f"{topic}-group", Queue(topic, "broker-a", 0)

    def is_refused(passed: Passed) -> bool:
        return passed.request.code in PULLS and passed.answered == 16 and passed.request.ext["topic"] == topic

    with (
        Producer(java, namesrv=server.namesrv) as producer,
        PushConsumer(java, namesrv=tap.namesrv, group=group, subscriptions={topic: "*"}) as consumer,
    ):
        producer.send_all(topic, Outgoing(b"before"), queue=queue)
        assert len(consumer.received(1)) == 1
        switch(False)
        before = tap.count
        producer.send_all(topic, Outgoing(b"meanwhile"), queue=queue)
        tap.wait(is_refused, after=before)
        assert [message.body for message in consumer.received()] == [b"before"]
        switch(True)
        assert [message.body for message in consumer.received(2)] == [b"before", b"meanwhile"]


PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


@pytest.mark.feature("P12")
@every_java
def test_disabled_group_stops_and_resumes(java: Driver, server: Server, tap: Tap, new_topic: NewTopic) -> None:
    """With consumeEnable=false a group gets nothing, also what a held pull waited for; enabled again it goes on."""
    topic = new_topic(1)

    def switch(is_on: bool) -> None:
        about = ["-n", server.namesrv, "-b", server.broker, "-g", f"{topic}-group"]
        printed = mqadmin(java, "updateSubGroup", *about, "-s", str(is_on).lower())
        assert "success" in printed, printed

    assert_stops_and_resumes(java, server, tap, topic, switch)


@pytest.mark.feature("P14")
@every_java
def test_unreadable_topic_stops_and_resumes(java: Driver, server: Server, tap: Tap, new_topic: NewTopic) -> None:
    """Without the read permission a topic is written but not read; with it, consumers go on."""
    topic = new_topic(1)

    def switch(is_on: bool) -> None:
        about = ["-n", server.namesrv, "-b", server.broker, "-t", topic]
        printed = mqadmin(java, "updateTopicPerm", *about, "-p", "6" if is_on else "2")
        assert "success" in printed, printed

    assert_stops_and_resumes(java, server, tap, topic, switch)


@pytest.mark.feature("C32")
@every_java
def test_fewer_queues_to_write_than_to_read(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """With 2 queues to write and 4 to read, a producer uses 2, a consumer owns 4 and gets what the others held."""
    topic = new_topic(4)
    group = f"{topic}-group"
    with Producer(java, namesrv=server.namesrv) as producer:
        for number in range(4):
            producer.send_all(topic, Outgoing(b"early %d" % number), queue=Queue(topic, "broker-a", number))
    printed = mqadmin(java, "updateTopic", "-n", server.namesrv, "-b", server.broker, "-t", topic, "-w", "2", "-r", "4")
    assert "success" in printed, printed
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}) as consumer,
    ):
        assert [queue.queue_id for queue in producer.queues(topic)] == [0, 1]
        results = producer.send_all(topic, *[Outgoing(b"late %d" % number) for number in range(4)])
        assert {result.queue_id for result in results} == {0, 1}
        assert [queue.queue_id for queue in consumer.queues(topic, 4)] == [0, 1, 2, 3]
        expected = {b"%s %d" % (when, number) for when in (b"early", b"late") for number in range(4)}
        assert {message.body for message in consumer.received(8)} == expected
