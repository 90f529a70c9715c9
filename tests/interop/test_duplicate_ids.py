"""Official consumers with one client id in two processes: the backlog that this makes, and its cure."""

from collections.abc import Callable

import pytest
from interop import clients
from interop.clients import Outgoing
from interop.driver import Driver
from interop.servers import Server

NewTopic = Callable[..., str]


@pytest.mark.feature("B13")
def test_one_id_in_two_processes_leaves_half_of_the_queues_unread(
    java: Driver, another_java: Callable[[], Driver], server: Server, new_topic: NewTopic
) -> None:
    """Both take queues 0 to 3 of 8, so 4 to 7 pile up; when one has an id of its own, all is read."""
    topic = new_topic(8)
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    other_java = another_java()
    sent = {b"%d" % number for number in range(16)}
    with clients.PushConsumer(java, **about, instance="same") as first:
        with clients.PushConsumer(other_java, **about, instance="same") as second:
            assert first.client_id == second.client_id
            for member in (first, second):
                assert [queue.queue_id for queue in member.queues(topic, 4)] == [0, 1, 2, 3]
            with clients.Producer(java, namesrv=server.namesrv) as producer:
                results = producer.send_all(topic, *(Outgoing(body) for body in sorted(sent)))
            shared = sum(result.queue_id < 4 for result in results)
            assert shared == 8
            for member in (first, second):
                assert {message.queue_id for message in member.received(shared)} == {0, 1, 2, 3}
        with clients.PushConsumer(other_java, **about) as third:
            assert first.client_id != third.client_id
            owned = [queue.queue_id for member in (first, third) for queue in member.queues(topic, 4)]
            assert sorted(owned) == list(range(8))
            assert _read_by(sent, first, third) == sent


def _read_by(wanted: set[bytes], *members: clients.PushConsumer) -> set[bytes]:
    """Return the bodies that members have got, once all are there or none comes any more."""
    read: set[bytes] = set()
    for _ in range(10):
        for member in members:
            read |= {message.body for message in member.received(len(member.received()) + 1, 1_000)}
        if read >= wanted:
            break
    return read
