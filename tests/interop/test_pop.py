"""Java's push consumer that pops, as the broker says: once, again after a lease, shared, moved, and over a kill."""

import json
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Queue, Received, waits_between
from interop.driver import Driver
from interop.servers import Server
from polling import ask_until

NewTopic = Callable[..., str]
LEASE_MS = 5_000  # the least that the client allows
POPS = {"clientRebalance": False, "popInvisibleTime": LEASE_MS}


def consumer(java: Driver, server: Server, topic: str, group: str, **about: object) -> PushConsumer:
    """Return a consumer that asks the broker for its queues."""
    return PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}, settings=POPS, **about)


def set_mode(admin: Admin, server: Server, topic: str, group: str, mode: str, share: int = 0) -> None:
    """Have a group pop or pull."""
    admin.call("setMessageRequestMode", server.broker, topic, group, mode, share, 5_000)


def numbered(count: int) -> list[Outgoing]:
    """Return messages with different bodies."""
    return [Outgoing(b"%d" % number) for number in range(count)]


def bodies_of(messages: list[Outgoing]) -> Counter[bytes]:
    """Return how often each body was sent."""
    return Counter(message.body for message in messages)


def saved_offset(path: pathlib.Path, topic: str, group: str) -> int:
    """Return how far a group has come by the file."""
    if not path.exists():
        return -1
    return json.loads(path.read_text())["offsetTable"].get(f"{topic}@{group}", {}).get("0", -1)


def bodies(messages: list[Received]) -> Counter[bytes]:
    """Return how often each body came."""
    return Counter(message.body for message in messages)


def committed(reader: PullConsumer, topic: str, queues: int = 1) -> int:
    """Return how far the group has come in a topic, all queues together."""
    return sum(max(0, reader.committed(Queue(topic, "broker-a", queue_id))) for queue_id in range(queues))


def pulled(admin: Admin, member: PushConsumer, topic: str, group: str) -> int:
    """Return how far a member that pulls has come, by itself: the broker hears of it every five seconds."""
    told = admin.call("getConsumerRunningInfo", group, member.client_id, False)["mqTable"]
    return sum(max(0, state["commitOffset"]) for queue, state in told if queue["topic"] == topic)


def popped(admin: Admin, topic: str, group: str) -> int:
    """Return how far a group that pops has come, as administrators are told: they are no members."""
    told = admin.call("examineConsumeStats", group, topic)["offsetTable"]
    return sum(max(0, offsets["consumerOffset"]) for _queue, offsets in told)


@pytest.mark.feature("O1")
def test_each_message_is_popped_once(java: Driver, admin: Admin, server: Server, new_topic: NewTopic) -> None:
    """A hundred messages of four queues, each acknowledged, and the group is at their end."""
    topic, group = new_topic(4), new_topic(1)
    set_mode(admin, server, topic, group, "POP")
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        consumer(java, server, topic, group) as popping,
        PullConsumer(java, namesrv=server.namesrv, group=group) as reader,
    ):
        producer.send_all(topic, *numbered(100))
        assert bodies(popping.received(100)) == bodies_of(numbered(100))
        ask_until(lambda: committed(reader, topic, 4), lambda end: end == 100)
        assert bodies(popping.received()) == bodies_of(numbered(100))


@pytest.mark.feature("O2")
def test_message_that_is_held_too_long_comes_again(
    java: Driver, admin: Admin, server: Server, new_topic: NewTopic
) -> None:
    """When its lease is over, not before and within four seconds, as its second attempt under its own topic."""
    topic, group = new_topic(1), new_topic(1)
    set_mode(admin, server, topic, group, "POP")
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        consumer(java, server, topic, group, failures=1, failure="hang") as popping,
    ):
        producer.send_all(topic, *numbered(1))
        first, again = popping.received(2)
        popping.drop()
    [wait_ms] = waits_between([first, again])
    assert LEASE_MS - 100 <= wait_ms <= LEASE_MS + 4_000
    assert (first.reconsume_times, again.reconsume_times, again.topic) == (0, 1, topic)
    assert again.properties["ORIGIN_GROUP"] == group
    assert "1ST_POP_TIME" in again.properties


@pytest.mark.feature("O3")
def test_messages_that_are_refused_come_again_once(
    java: Driver, admin: Admin, server: Server, new_topic: NewTopic
) -> None:
    """All three of a batch, ten seconds later, and are done with then."""
    topic, group = new_topic(1), new_topic(1)
    set_mode(admin, server, topic, group, "POP")
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *numbered(3))
    with (
        consumer(java, server, topic, group, failures=1) as popping,
        PullConsumer(java, namesrv=server.namesrv, group=group) as reader,
    ):
        found = popping.received(6)
        assert Counter((message.body, message.reconsume_times) for message in found) == Counter(
            (message.body, attempt) for message in numbered(3) for attempt in (0, 1)
        )
        ask_until(lambda: committed(reader, f"%RETRY%{group}_{topic}"), lambda end: end == 3)
        assert len(popping.received()) == 6


@pytest.mark.feature("O7")
def test_two_consumers_share_what_the_broker_assigns(
    java: Driver, another_java: Callable[[], Driver], admin: Admin, server: Server, new_topic: NewTopic
) -> None:
    """Both pop from all queues, and no message comes to both."""
    topic, group = new_topic(4), new_topic(1)
    set_mode(admin, server, topic, group, "POP")
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        consumer(java, server, topic, group) as one,
        consumer(another_java(), server, topic, group) as other,
    ):
        producer.send_all(topic, *numbered(400))
        ask_until(lambda: len(one.received()) + len(other.received()), lambda count: count >= 400)
        assert bodies(one.received() + other.received()) == bodies_of(numbered(400))


@pytest.mark.feature("O9")
def test_running_consumer_is_reset(java: Driver, admin: Admin, server: Server, new_topic: NewTopic) -> None:
    """It gets everything once more, and what it held before does not come a third time."""
    topic, group = new_topic(1), new_topic(1)
    set_mode(admin, server, topic, group, "POP")
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        consumer(java, server, topic, group) as popping,
        PullConsumer(java, namesrv=server.namesrv, group=group) as reader,
    ):
        producer.send_all(topic, *numbered(10))
        assert len(popping.received(10)) == 10
        ask_until(lambda: committed(reader, topic), lambda end: end == 10)
        arguments = {"method": "resetOffsetByTimestamp", "args": [topic, group, 0, True]}
        java.call_as(list[Any], "admin.call", name=admin.name, **arguments)
        assert bodies(popping.received(20)) == bodies_of(numbered(10)) + bodies_of(numbered(10))
        ask_until(lambda: committed(reader, topic), lambda end: end == 10)
        assert len(popping.received()) == 20


@pytest.mark.feature("O10")
@pytest.mark.timeout(240, func_only=True)
def test_kill_loses_nothing_that_was_popped(
    java: Driver, rocketlet_up: Callable[..., Server], new_name: Callable[[], str], tmp_path: pathlib.Path
) -> None:
    """What was acknowledged when the offsets were saved does not come again; what was held does, in its time."""
    topic, group, store = new_name(), new_name(), tmp_path / "store"
    first = rocketlet_up(store)
    with Admin(java, namesrv=first.namesrv) as admin:
        admin.create_topic(first.broker, topic, queues=1)
        admin.create_topic(first.broker, group, queues=1)
        set_mode(admin, first, topic, group, "POP")
    with (
        Producer(java, namesrv=first.namesrv) as producer,
        consumer(java, first, topic, group) as popping,
    ):
        producer.send_all(topic, *numbered(50))
        assert len(popping.received(50)) == 50
        path = store / "config/consumerOffset.json"
        ask_until(lambda: saved_offset(path, topic, group), lambda end: end == 50)
        producer.send_all(topic, *[Outgoing(b"late %d" % number) for number in range(50)])
        first.kill()
        second = rocketlet_up(store, first)
        late = {b"late %d" % number for number in range(50)}
        assert late <= popping.wait_bodies(late, 60_000)
        counts = bodies(popping.received())
        assert [counts[b"%d" % number] for number in range(50)] == [1] * 50
        second.stop()


@pytest.mark.feature("O13")
@pytest.mark.timeout(240, func_only=True)
def test_group_changes_to_pop_and_back(
    java: Driver, told_java: Driver, admin: Admin, server: Server, new_topic: NewTopic
) -> None:
    """A client that asks the broker pulls, pops and pulls again; what it refuses comes again, whatever it does then.

    Each change waits until the group is past what it refused. What is still in hand then comes twice, rightly. So may
    the last message: a pop that the broker still holds leases it, though the member, which pulls it, has dropped that.
    """
    topic, group = new_topic(1), new_topic(1)

    def change(mode: str) -> None:
        set_mode(admin, server, topic, group, mode)
        with consumer(java, server, topic, group):
            pass  # its coming and going has the member ask again

    with (
        Producer(java, namesrv=server.namesrv) as producer,
        consumer(told_java, server, topic, group, failures=1) as member,
    ):
        first, second, third = numbered(3)
        producer.send_all(topic, first)
        member.wait_bodies([first.body])
        ask_until(lambda: pulled(admin, member, topic, group), lambda end: end == 1)
        change("POP")
        ask_until(lambda: member.queues(topic), lambda queues: not queues)
        producer.send_all(topic, second)
        member.wait_bodies([second.body])
        ask_until(lambda: popped(admin, topic, group), lambda end: end == 2)
        change("PULL")
        ask_until(lambda: member.queues(topic), lambda queues: len(queues) == 1)
        producer.send_all(topic, third)
        expected = {(body, attempt) for body in (b"0", b"1", b"2") for attempt in (0, 1)}
        found = ask_until(
            lambda: Counter((message.body, message.reconsume_times) for message in member.received()),
            lambda found: found.keys() >= expected,
        )
    assert found.keys() == expected
    assert {delivery for delivery, count in found.items() if count > 1} <= {(third.body, 0), (third.body, 1)}
