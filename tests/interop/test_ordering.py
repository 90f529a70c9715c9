"""Ordered consumption by the official clients: by queue and as a whole, while members change and listeners refuse."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from itertools import chain

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Queue, Received, waits_between
from interop.driver import Driver
from interop.servers import Server
from interop.versions import every_client, every_java
from polling import ask_until

NewTopic = Callable[..., str]
SUSPEND, ROLLBACK, COMMIT, SUCCESS = "SUSPEND_CURRENT_QUEUE_A_MOMENT", "ROLLBACK", "COMMIT", "SUCCESS"
LOAD, LOAD_MS = 1_000, 1_000
LOCK_MS, TWO_MINUTES_MS = 20_000, 120_000
LOCK_WAIT_MS = 90_000
"""A lock lasts a minute when its owner, who gives the call one second, could not give it back."""
SOON = {"suspendCurrentQueueTimeMillis": 20}


def numbered(first: int, after: int) -> list[Outgoing]:
    """Return messages whose bodies are their numbers."""
    return [Outgoing(b"%d" % number) for number in range(first, after)]


def bodies(first: int, after: int) -> list[bytes]:
    """Return the bodies of such messages."""
    return [message.body for message in numbered(first, after)]


def by_queue(messages: Iterable[Received]) -> dict[int, list[bytes]]:
    """Return the bodies of each queue in the order of their delivery."""
    queues: dict[int, list[bytes]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append(message.body)
    return dict(queues)


def ordered(server: Server, topic: str, **settings: object) -> dict[str, object]:
    """Return the arguments of an ordered consumer of a topic."""
    subscriptions = {topic: "*"}
    return {
        "namesrv": server.namesrv,
        "group": f"{topic}-group",
        "subscriptions": subscriptions,
        "orderly": True,
        **settings,
    }


@contextmanager
def joined(java: Driver, server: Server, topic: str) -> Generator[list[PushConsumer]]:
    """Give two ordered members of the topic's group, which leave it again."""
    with PushConsumer(java, **ordered(server, topic)) as one, PushConsumer(java, **ordered(server, topic)) as two:
        yield [one, two]


def send_to_each(java: Driver, server: Server, topic: str, queues: int, messages: list[Outgoing]) -> None:
    """Send the same messages to each queue, in order."""
    with Producer(java, namesrv=server.namesrv) as producer:
        for number in range(queues):
            producer.send_all(topic, *messages, mode="batch", queue=Queue(topic, "broker-a", number))


@pytest.mark.feature("C11")
@every_client
@pytest.mark.parametrize(("queues", "count"), [(8, 30), (1, 100)])
def test_each_queue_is_consumed_in_order(
    queues: int,
    count: int,
    driver: Driver,
    java: Driver,
    server: Server,
    new_topic: NewTopic,
) -> None:
    """The messages of each queue reach an ordered listener as they were sent, none twice."""
    topic = new_topic(queues)
    send_to_each(java, server, topic, queues, numbered(0, count))
    with PushConsumer(driver, **ordered(server, topic)) as consumer:
        received = by_queue(consumer.received(queues * count))
    assert received == dict.fromkeys(range(queues), bodies(0, count))


@pytest.mark.feature("C12")
@every_java
def test_one_queue_is_one_members(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Of two members one gets all messages of a single queue in order; when it stops, the other goes on."""
    topic = new_topic(1)
    with joined(java, server, topic) as members:
        owner, other = sorted(members, key=lambda member: str(member.client_id))
        assert (len(owner.queues(topic, 1)), other.queues(topic, 0)) == (1, [])
        send_to_each(java, server, topic, 1, numbered(0, 50))
        assert [message.body for message in owner.received(50)] == bodies(0, 50)
        owner.wait_progress(Queue(topic, "broker-a", 0), 50)
        owner.stop()
        send_to_each(java, server, topic, 1, numbered(50, 100))
        assert [message.body for message in other.received(50, LOCK_WAIT_MS)] == bodies(50, 100)


@pytest.mark.feature("C13")
@every_java
def test_order_of_queues_while_members_come_and_go(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Two members own two of four queues each, four own one each, then two own two; each queue's order holds."""
    topic = new_topic(4)
    with joined(java, server, topic) as stayers:
        consume_share(java, server, topic, stayers, numbered(0, 30))
        with joined(java, server, topic) as guests:
            consume_share(java, server, topic, stayers + guests, numbered(30, 60))
        consume_share(java, server, topic, stayers, numbered(60, 90))


def consume_share(
    java: Driver, server: Server, topic: str, members: list[PushConsumer], messages: list[Outgoing]
) -> None:
    """Wait until each member owns its share of four queues, and check what it gets of messages sent to each queue."""
    share, known = 4 // len(members), [len(member.received()) for member in members]

    def own() -> list[list[int]]:
        return [[queue.queue_id for queue in member.queues(topic)] for member in members]

    def is_shared(owned: list[list[int]]) -> bool:
        return all(len(queues) == share for queues in owned) and len(set(chain(*owned))) == 4

    owned = ask_until(own, is_shared)
    send_to_each(java, server, topic, 4, messages)
    for member, before, queues in zip(members, known, owned, strict=True):
        received = by_queue(member.received(before + share * len(messages))[before:])
        assert received == {queue_id: [message.body for message in messages] for queue_id in queues}
        for queue_id in queues:
            member.wait_progress(Queue(topic, "broker-a", queue_id), int(messages[-1].body) + 1)


@pytest.mark.feature("C13")
@every_java
def test_order_of_queues_under_load_while_members_come_and_go(
    java: Driver, server: Server, new_topic: NewTopic
) -> None:
    """No member gets an older message of a queue after a younger one, and together they get all, as owners change.

    The load goes on until the second member has its share, which may take some rebalances: 4.9.8 has one in 20 s, and
    tries again only then to lock a queue that the first one was still consuming.
    """
    topic, sent = new_topic(4), LOAD
    with ExitStack() as clients:
        producer = clients.enter_context(Producer(java, namesrv=server.namesrv))
        first = clients.enter_context(PushConsumer(java, **ordered(server, topic)))
        begun = producer.begin_send(topic, *numbered(0, sent))
        assert len(first.received(10)) >= 10
        second = clients.enter_context(PushConsumer(java, **ordered(server, topic)))
        has_share = False
        while not has_share:  # ended by the time limit
            has_share = len(second.received(10, LOAD_MS)) >= 10
            assert {result.status for result in producer.finish_send(begun)} == {"SEND_OK"}
            begun, sent = producer.begin_send(topic, *numbered(sent, sent + LOAD)), sent + LOAD
        second.stop()
        assert {result.status for result in producer.finish_send(begun)} == {"SEND_OK"}
        first_ones = set(bodies(0, sent)) - {message.body for message in second.received()}
        while not first.wait_bodies(first_ones) >= first_ones:  # ended by the time limit
            pass
        for member in (first, second):
            for received in by_queue(member.received()).values():
                assert [int(body) for body in received] == sorted(int(body) for body in received)


@pytest.mark.feature("C14")
@every_java
def test_refused_message_blocks_its_queue(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A suspended message comes again to the same listener, thirty times here, and the next one only after it."""
    topic, script = new_topic(1), [SUSPEND] * 30
    send_to_each(java, server, topic, 1, numbered(0, 2))
    with PushConsumer(java, **ordered(server, topic, settings=SOON, script=script)) as consumer:
        received = consumer.received(32)
    assert [message.body for message in received] == [b"0"] * 31 + [b"1"]
    assert [message.reconsume_times for message in received] == [*range(31), 0]


@pytest.mark.feature("C14")
@pytest.mark.parametrize("retries", [2, pytest.param(30, id="30 in two minutes")])
@every_java
def test_refused_message_comes_again_after_a_second(
    retries: int, java: Driver, server: Server, new_topic: NewTopic
) -> None:
    """Unless told otherwise the client waits for a second, and not for the 20 s after which it renews its locks."""
    topic = new_topic(1)
    send_to_each(java, server, topic, 1, numbered(0, 2))
    with PushConsumer(java, **ordered(server, topic, script=[SUSPEND] * retries)) as consumer:
        *again, after = consumer.received(retries + 2, timeout_ms=TWO_MINUTES_MS)
    assert ([message.body for message in again], after.body) == ([b"0"] * (retries + 1), b"1")
    assert all(1_000 <= wait_ms < LOCK_MS for wait_ms in waits_between(again))
    assert again[-1].received_at - again[0].received_at < TWO_MINUTES_MS


@pytest.mark.feature("C15")
@every_java
def test_given_up_message_is_a_dead_letter(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A message that is refused more often than maxReconsumeTimes lies in the dead letters; the next ones follow."""
    topic, script = new_topic(1), [SUSPEND] * 3
    send_to_each(java, server, topic, 1, numbered(0, 3))
    settings = {**SOON, "maxReconsumeTimes": 2}
    with PushConsumer(java, **ordered(server, topic, settings=settings, script=script)) as consumer:
        received = consumer.received(5)
        assert [message.body for message in received] == [b"0", b"0", b"0", b"1", b"2"]
        with Admin(java, namesrv=server.namesrv) as admin, PullConsumer(java, namesrv=server.namesrv) as reader:
            admin.await_route(f"%DLQ%{topic}-group")
            (letter,) = reader.read_all(f"%DLQ%{topic}-group")
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"0", topic)


@pytest.mark.feature("C16")
@every_java
def test_listener_commits_by_hand(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Rolled back messages come again together; the group's offset moves with a commit and with nothing else."""
    topic, script = new_topic(1), [SUCCESS, SUCCESS, ROLLBACK, SUCCESS, SUCCESS, COMMIT]
    about = ordered(server, topic, settings=SOON, script=script, manual=True)
    send_to_each(java, server, topic, 1, numbered(0, 4))
    with PushConsumer(java, **about) as consumer:
        received = [message.body for message in consumer.received(7)]
    assert received == [*bodies(0, 3), *bodies(0, 4)]
    with PullConsumer(java, namesrv=server.namesrv, group=f"{topic}-group") as reader:
        assert reader.committed(Queue(topic, "broker-a", 0)) == 3
    with PushConsumer(java, **ordered(server, topic)) as consumer:
        assert [message.body for message in consumer.received(1)] == [b"3"]
