"""Members of a group share its queues, whoever joins, leaves or dies."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest
from interop.clients import Outgoing, Producer, PushConsumer, Queue
from interop.driver import Driver
from interop.servers import Server
from interop.versions import every_client, every_java

NewTopic = Callable[..., str]


def assert_shared(topic: str, members: Sequence[PushConsumer], counts: Sequence[int]) -> None:
    """Wait until each member owns its number of queues; together they own each of them once."""
    owned: list[Queue] = []
    for member, count in zip(members, counts, strict=True):
        queues = member.queues(topic, count)
        assert len(queues) == count, f"{member.client_id} owns {queues}"
        owned += queues
    assert sorted(queue.queue_id for queue in owned) == list(range(sum(counts)))


@pytest.mark.feature("C2", "C4", "B1", "C31")
@every_java
def test_group_shares_queues_while_members_come_and_go(
    java: Driver, told_java: Driver, another_java: Callable[[], Driver], server: Server, new_topic: NewTopic
) -> None:
    """Two members own 4 of 8 queues each, three 3, 3 and 2; one is killed and one leaves, and the last owns all.

    Those that stay learn of each change from the broker: of themselves they would look after an hour.
    """
    topic, mortal = new_topic(8), another_java()
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with ExitStack() as clients:
        producer = clients.enter_context(Producer(java, namesrv=server.namesrv))
        first = clients.enter_context(PushConsumer(told_java, **about))
        assert_shared(topic, [first], [8])
        second = clients.enter_context(PushConsumer(told_java, **about))
        assert_shared(topic, [first, second], [4, 4])
        doomed = PushConsumer(mortal, **about)
        members = sorted([first, second, doomed], key=lambda member: str(member.client_id))
        assert_shared(topic, members, [3, 3, 2])

        producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(80)])
        got = [member.received(count * 10) for member, count in zip(members, [3, 3, 2], strict=True)]
        assert Counter(message.body for part in got for message in part) == {b"%d" % number: 1 for number in range(80)}

        mortal.kill()
        assert_shared(topic, sorted([first, second], key=lambda member: str(member.client_id)), [4, 4])
        second.stop()
        assert_shared(topic, [first], [8])
        later = {b"later %d" % number for number in range(16)}
        producer.send_all(topic, *map(Outgoing, later))
        assert first.wait_bodies(later) >= later


@pytest.mark.feature("C4")
@every_java
def test_member_whose_connections_close_loses_its_queues(
    told_java: Driver, server: Server, new_topic: NewTopic
) -> None:
    """When a member's connections close without a word, the other is told, and takes its queues over."""
    topic = new_topic(4)
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with PushConsumer(told_java, **about) as stays:
        gone = PushConsumer(told_java, **about)
        assert_shared(topic, [stays, gone], [2, 2])
        gone.drop()
        assert_shared(topic, [stays], [4])


@pytest.mark.feature("C31")
@every_client
def test_members_divide_the_messages(
    client: str, go: Driver, java: Driver, server: Server, new_topic: NewTopic
) -> None:
    """Two members of one group get 100 of 100 messages together, none twice; here of one or of two languages."""
    topic = new_topic(4)
    other = go if client == "go" else java
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with PushConsumer(java, **about) as first, PushConsumer(other, **about) as second:
        assert len(first.queues(topic, 2)) == 2
        with Producer(java, namesrv=server.namesrv) as producer:
            producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(100)])
        got = first.received(50), second.received(50)
    assert Counter(message.body for part in got for message in part) == {b"%d" % number: 1 for number in range(100)}


@pytest.mark.feature("C31")
@every_java
def test_each_group_gets_every_message(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Three groups get 100 of 100 messages each, none twice."""
    topic = new_topic(4)
    with ExitStack() as clients:
        groups = [
            clients.enter_context(
                PushConsumer(java, namesrv=server.namesrv, group=f"{topic}-group-{number}", subscriptions={topic: "*"})
            )
            for number in range(3)
        ]
        producer = clients.enter_context(Producer(java, namesrv=server.namesrv))
        producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(100)])
        for group in groups:
            assert {message.body for message in group.received(100)} == {b"%d" % number for number in range(100)}
            assert len(group.received()) == 100
