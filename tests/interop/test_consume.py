"""What the official consumers get: by tag, by key, by group, by pull, and from where."""

import asyncio
import itertools
from collections.abc import Callable, Iterable

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, Pulled, PushConsumer, Queue, Received
from interop.driver import Driver, DriverError
from interop.servers import Server
from interop.versions import every_client, every_java
from polling import ask_until, ask_until_async

from rocketlet.client import Admin as OurAdmin
from rocketlet.common.properties import index_hash

Drivers = Callable[[str], Driver]
NewTopic = Callable[..., str]


def tagged(*tags: str | None, times: int = 1) -> list[Outgoing]:
    """Return messages with the tags, several of each."""
    return [Outgoing(f"{tag} {number}".encode(), tags=tag) for number in range(times) for tag in tags]


def bodies(messages: Iterable[Received | Outgoing]) -> list[bytes]:
    """Return the sorted bodies."""
    return sorted(message.body for message in messages)


@pytest.mark.feature("P18", "P19", "P22", "C31", "B28")
@every_client
def test_each_group_gets_its_tags(driver: Driver, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Groups with `A || B`, `C` and `*` get 20 of 20, 10 of 10 and everything, untagged messages too."""
    topic = new_topic()
    messages = tagged("A", "B", "C", None, times=10)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *messages, mode="async")
    wanted = {"A || B": bodies(tagged("A", "B", times=10)), "C": bodies(tagged("C", times=10)), "*": bodies(messages)}
    for number, (expression, expected) in enumerate(wanted.items()):
        group = f"{topic}-group-{number}"
        with PushConsumer(driver, namesrv=server.namesrv, group=group, subscriptions={topic: expression}) as consumer:
            assert bodies(consumer.received(len(expected))) == expected


@pytest.mark.feature("P19")
@every_java
def test_no_expression_means_all(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A subscription with no expression gets messages with and without tags."""
    topic, messages = new_topic(), tagged("A", None, times=3)
    with (
        PushConsumer(java, namesrv=server.namesrv, group=f"{topic}-group", subscriptions={topic: None}) as consumer,
        Producer(java, namesrv=server.namesrv) as producer,
    ):
        producer.send_all(topic, *messages)
        assert bodies(consumer.received(6)) == bodies(messages)


@pytest.mark.feature("P20", "P21")
@every_java
def test_tags_match_exactly(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """`Aa` has the hash of `BB` and `bb` its letters: a group of `BB` gets neither, its offset moves past them."""
    topic, group = new_topic(1), new_topic(1)
    queue = Queue(topic, "broker-a", 0)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *tagged("Aa", "bb", "BB", "Aa"))
    with PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "BB"}) as consumer:
        assert bodies(consumer.received(1)) == [b"BB 0"]
        with Producer(java, namesrv=server.namesrv) as producer:
            producer.send_all(topic, *tagged("Aa", "BB"))
        assert bodies(consumer.received(2)) == [b"BB 0", b"BB 0"]
    with PullConsumer(java, namesrv=server.namesrv, group=group) as reader:
        assert reader.committed(queue) == 6


@pytest.mark.feature("Q4")
@every_java
def test_keys_of_one_hash_are_told_apart(java: Driver, either: Server, new_name: Callable[[], str]) -> None:
    """Two keys in two topics have one hash in the index: Java's client finds what has the key in the topic, all of it.

    A key whose hash is the same, but which no message has, finds nothing. The official broker indexes a little later.
    """
    name = new_name()
    topics = (f"{name}-Aa", f"{name}-BB")
    *keys, unused = ("AaAa", "BBBB", "AaBB")
    assert len({index_hash(f"{topic}#{key}") for topic in topics for key in (*keys, unused)}) == 1
    with Producer(java, namesrv=either.namesrv) as producer, Admin(java, namesrv=either.namesrv) as admin:
        for topic in topics:
            admin.create_topic(either.broker, topic, 1)
        for topic, key in itertools.product(topics, keys):
            producer.send_all(topic, *[Outgoing(body, keys=["other", key]) for body in three(topic, key)])
        producer.send_all(topics[1], Outgoing(b"last", keys=["last"]))
    with PullConsumer(java, namesrv=either.namesrv) as reader:
        ask_until(lambda: found_by(reader, topics[1], "last"))
        for topic, key in itertools.product(topics, keys):
            assert found_by(reader, topic, key) == three(topic, key)
        assert [found_by(reader, topic, unused) for topic in topics] == [[], []]


def three(topic: str, key: str) -> list[bytes]:
    """Return the bodies of three messages with a key in a topic."""
    return [f"{topic} {key} {number}".encode() for number in range(3)]


def found_by(reader: PullConsumer, topic: str, key: str) -> list[bytes]:
    """Return the sorted bodies of the messages of a key, which may be none."""
    try:
        return bodies(reader.query(topic, key))
    except DriverError as failure:
        if "no message" not in failure.failure.message:
            raise
        return []


@pytest.mark.feature("P21")
@every_java
def test_very_long_tag_is_a_tag(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A tag of 16 KB selects its messages as any other."""
    topic, tag = new_topic(1), "t" * 16_000
    with (
        PushConsumer(java, namesrv=server.namesrv, group=f"{topic}-group", subscriptions={topic: tag}) as consumer,
        Producer(java, namesrv=server.namesrv) as producer,
    ):
        producer.send_all(topic, Outgoing(b"other", tags=tag[1:]), Outgoing(b"same", tags=tag))
        assert bodies(consumer.received(1)) == [b"same"]


@pytest.mark.feature("P6")
@every_java
def test_held_pull_is_answered_on_arrival(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A pull at the end of a queue waits; the send that comes then is its answer."""
    queue = Queue(new_topic(1), "broker-a", 0)
    with PullConsumer(java, namesrv=server.namesrv) as reader, Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(queue.topic, Outgoing(b"before"))
        held = java.begin("pull.pull", name=reader.name, queue=queue, offset=1, block=True)
        producer.send_all(queue.topic, Outgoing(b"after"))
        pulled = java.finish(held, "pull.pull", Pulled)
    assert (pulled.status, pulled.next_offset, bodies(pulled.messages)) == ("FOUND", 2, [b"after"])


@pytest.mark.feature("P1", "P2", "P4", "P10")
@every_java
def test_pull_answers(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A pull brings up to 32 messages and the offset after them; at the end is nothing, beyond it is illegal."""
    queue = Queue(new_topic(1), "broker-a", 0)
    with PullConsumer(java, namesrv=server.namesrv) as reader, Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(queue.topic, *tagged("A", times=40), mode="batch")
        first = reader.pull(queue, 0, count=100)
        assert (first.status, len(first.messages), first.next_offset) == ("FOUND", 32, 32)
        assert (first.min_offset, first.max_offset) == (0, 40)
        rest = reader.pull(queue, 32, count=100)
        assert ([message.queue_offset for message in rest.messages], rest.next_offset) == (list(range(32, 40)), 40)
        assert reader.pull(queue, 40).status == "NO_NEW_MSG"
        beyond = reader.pull(queue, 45)
        assert (beyond.status, beyond.next_offset) == ("OFFSET_ILLEGAL", 40)


@pytest.mark.feature("P10")
@every_java
def test_pull_ends_at_its_last_byte(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Three messages that are stored in 262,144 bytes come with one pull; with one byte more the third waits."""
    exact, above = (Queue(new_topic(1), "broker-a", 0) for _ in range(2))
    settings = {"compressMsgBodyOverHowmuch": 1 << 20}
    with (
        PullConsumer(java, namesrv=server.namesrv) as reader,
        Producer(java, namesrv=server.namesrv, settings=settings) as producer,
    ):
        for queue, more in ((exact, 0), (above, 1)):
            producer.send_all(queue.topic, *[Outgoing(bytes(100_000))] * 2)
            size = reader.pull(queue, 0, count=1).messages[0].store_size
            producer.send_all(queue.topic, Outgoing(bytes(262_144 - 3 * size + 100_000 + more)))
        all_three, two = reader.pull(exact, 0), reader.pull(above, 0)
    assert (sum(message.store_size for message in all_three.messages), all_three.next_offset) == (262_144, 3)
    assert [message.queue_offset for message in two.messages] == [0, 1]


@pytest.mark.feature("C6")
@every_java
def test_group_offsets_are_stored_as_told(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A new group on a young queue is at 0; a stored offset is read back, and a smaller one replaces it."""
    queue = Queue(new_topic(1), "broker-a", 0)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(queue.topic, *tagged("A", times=5))
    with PullConsumer(java, namesrv=server.namesrv, group=f"{queue.topic}-group") as reader:
        assert reader.committed(queue) == 0
        for offset in (4, 2):
            reader.commit(queue, offset)
            assert reader.committed(queue) == offset


@pytest.mark.feature("C7")
@every_java
def test_new_group_on_young_topic_gets_the_backlog(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A new group that asks to start at the end still gets what a young topic already holds."""
    topic, messages = new_topic(), tagged("A", times=100)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *messages, mode="async")
    last = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    group = f"{topic}-group"
    with PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}, settings=last) as consumer:
        assert bodies(consumer.received(100)) == bodies(messages)


@pytest.mark.feature("C1")
@every_java
def test_group_gets_its_retry_topic(java: Driver, admin: Admin, server: Server, new_topic: NewTopic) -> None:
    """The heartbeat of a group's first consumer creates its retry topic, with 1 queue and permission 6."""
    topic = new_topic()
    group = f"{topic}-group"
    with PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}):
        (queues,) = admin.await_route(f"%RETRY%{group}")["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (1, 1, 6)


@pytest.mark.feature("C8")
@every_client
def test_consumer_goes_on_where_its_group_was(
    driver: Driver, java: Driver, server: Server, new_topic: NewTopic
) -> None:
    """The next consumer of a group gets what came after the last one stopped, and nothing again.

    Who stops does not wait for listeners: what they have just received would come again.
    """
    topic = new_topic()
    group = f"{topic}-group"
    about = {"namesrv": server.namesrv, "group": group, "subscriptions": {topic: "*"}}
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *tagged("before", times=20))
        with PushConsumer(driver, **about) as consumer:
            assert bodies(consumer.received(20)) == bodies(tagged("before", times=20))
            asyncio.run(wait_stored(server.namesrv, group, topic))
        producer.send_all(topic, *tagged("after", times=20))
        with PushConsumer(driver, **about) as consumer:
            assert bodies(consumer.received(20)) == bodies(tagged("after", times=20))


async def wait_stored(namesrv: str, group: str, topic: str) -> None:
    """Wait until a group has stored that it is done with all messages, as clients do every 5 s."""
    async with OurAdmin(namesrv) as admin:
        await ask_until_async(lambda: admin.progress(group, topic), lambda progress: not progress.lag)
