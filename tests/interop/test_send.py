"""Every kind of send of the official clients is stored once, whole, and read back by the official Java client."""

import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from random import Random

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer, Queue, Received, Sent, TransactionProducer
from interop.driver import Driver, DriverError
from interop.servers import Server
from interop.traffic import compress_with, read_topic
from interop.versions import JAVA_VERSIONS, every_client, every_java, java_run

Drivers = Callable[[str], Driver]
NewTopic = Callable[..., str]
LARGE = bytes(range(256)) * 40
KINDS = {"5.4.0": ("ZLIB", "LZ4", "ZSTD"), "4.9.8": ("ZLIB",)}
COMPRESSIONS = [java_run(version, kind) for version in JAVA_VERSIONS for kind in KINDS.get(version, ("ZLIB",))]


def make_messages(count: int) -> list[Outgoing]:
    """Return messages with everything that a sender can give them."""
    return [
        Outgoing(
            f"message {number} für 世界 😀".encode(),
            tags="täg😀",
            keys=[f"order-{number}", "schlüssel"],
            properties={"größe": f"{number} 公斤", "emoji": "🚀"},
            flag=number,
        )
        for number in range(count)
    ]


def offsets_by_queue(results: Sequence[Sent]) -> dict[int, list[int]]:
    """Return the offsets that each queue gave."""
    offsets: dict[int, list[int]] = {}
    for result in results:
        offsets.setdefault(result.queue_id, []).append(result.queue_offset)
    return offsets


def assert_same(sent: Sequence[Outgoing], read: Sequence[Received]) -> None:
    """Check that what was read is what was sent, in any order."""
    assert sorted(message.body for message in read) == sorted(message.body for message in sent)
    by_body = {message.body: message for message in sent}
    for message in read:
        original = by_body[message.body]
        assert message.tags == original.tags
        assert message.keys == " ".join(original.keys)
        assert message.flag == original.flag
        assert original.properties.items() <= message.properties.items()


def send_and_read(
    clients: tuple[Driver, Driver], server: Server, topic: str, messages: Sequence[Outgoing], mode: str
) -> tuple[Sequence[Sent], Sequence[Received]]:
    """Send with one client and read the topic with the other, which must find just that; return both's answers."""
    sender, reader = clients
    with Producer(sender, namesrv=server.namesrv) as producer:
        results = producer.send_all(topic, *messages, mode=mode)
    read = read_topic(reader, server.namesrv, topic)
    assert_same(messages, read)
    return results, read


@contextmanager
def administered(java: Driver, server: Server) -> Generator[tuple[Server, Admin, Producer]]:
    """Give a server with an administrator and a producer."""
    with Admin(java, namesrv=server.namesrv) as admin, Producer(java, namesrv=server.namesrv) as producer:
        yield server, admin, producer


@pytest.mark.feature("S1", "S15", "S23", "P1")
@every_client
def test_sync_send_is_consumed_as_sent(driver: Driver, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Ten sends each get SEND_OK and the next offset of their queue; a consumer gets all ten as they were."""
    topic, messages = new_topic(), make_messages(10)
    with (
        Producer(driver, namesrv=server.namesrv) as producer,
        PushConsumer(java, namesrv=server.namesrv, group=f"{topic}-group", subscriptions={topic: "*"}) as consumer,
    ):
        results = producer.send_all(topic, *messages)
        received = consumer.received(10)
    assert_same(messages, received)
    offsets = offsets_by_queue(results)
    assert set(offsets) == {0, 1, 2, 3}
    assert all(given == list(range(len(given))) for given in offsets.values())
    assert {message.msg_id for message in received} == {result.msg_id for result in results}
    assert {result.region_id for result in results} == {"DefaultRegion"}


@pytest.mark.feature("S2")
@every_client
def test_async_send_tells_its_callback(driver: Driver, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A hundred sends in flight are each answered to their own callback, with ids and offsets that the store holds."""
    topic, messages = new_topic(), make_messages(100)
    results, read = send_and_read((driver, java), server, topic, messages, mode="async")
    stored = {message.msg_id: message for message in read}
    for message, result in zip(messages, results, strict=True):
        place = stored[result.msg_id]
        assert place.body == message.body
        assert result.queue == Queue(topic, "broker-a", place.queue_id)
        assert result.queue_offset == place.queue_offset


@pytest.mark.feature("S3")
@every_client
def test_oneway_send_arrives(driver: Driver, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """One-way sends arrive, though nothing answers them."""
    topic, messages = new_topic(), make_messages(20)
    with (
        Producer(driver, namesrv=server.namesrv) as producer,
        PushConsumer(java, namesrv=server.namesrv, group=f"{topic}-group", subscriptions={topic: "*"}) as consumer,
    ):
        producer.send(topic, *messages, mode="oneway")
        assert_same(messages, consumer.received(20))


@pytest.mark.feature("S17")
@every_client
def test_batch_becomes_single_messages(driver: Driver, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A batch of ten is ten messages with own ids and following offsets, in one queue."""
    topic, messages = new_topic(), make_messages(10)
    (result,), read = send_and_read((driver, java), server, topic, messages, mode="batch")
    assert [message.body for message in read] == [message.body for message in messages]
    assert {message.queue_id for message in read} == {result.queue_id}
    assert [message.queue_offset for message in read] == list(range(10))
    assert len({message.msg_id for message in read}) == 10
    assert [message.offset_msg_id for message in read] == result.offset_msg_id.split(",")


@pytest.mark.feature("S18")
@every_java
def test_sends_to_a_queue_stay_in_it(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Messages and batches that name a queue, or select one, are all in it."""
    topic = new_topic()
    second = {"topic": topic, "brokerName": "broker-a", "queueId": 2}
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *make_messages(3), queue=second)
        producer.send_all(topic, *make_messages(3), queue=second, mode="batch")
        producer.send_all(topic, *make_messages(3), selector=2, mode="async")
    assert Counter(message.queue_id for message in read_topic(java, server.namesrv, topic)) == {2: 9}


@pytest.mark.feature("S4")
@every_java
def test_all_send_requests_store_the_same(java: Driver, go: Driver, server: Server, new_topic: NewTopic) -> None:
    """The requests 10 (Go), 310 (Java) and 320 (batch) differ in their headers, not in what is stored."""
    topic, message = new_topic(1), Outgoing(b"same", tags="tag", keys=["key"], properties={"a": "b"}, flag=7)
    with Producer(java, namesrv=server.namesrv) as from_java, Producer(go, namesrv=server.namesrv) as from_go:
        from_go.send_all(topic, message)
        from_java.send_all(topic, message)
        from_java.send_all(topic, message, mode="batch")
    read = read_topic(java, server.namesrv, topic)
    assert [message.queue_offset for message in read] == [0, 1, 2]
    assert_same([message] * 3, read)


@pytest.mark.feature("S16")
@pytest.mark.parametrize(("kind", "java"), COMPRESSIONS, indirect=["java"], scope="function")
def test_large_body_travels_compressed(kind: str, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A body above 4096 bytes is compressed by its sender and stored so; consumers get the original."""
    topic = new_topic()
    with Producer(java, namesrv=server.namesrv, settings=compress_with(java, kind)) as producer:
        producer.send_all(topic, Outgoing(LARGE), Outgoing(LARGE[:100]))
    large, small = sorted(read_topic(java, server.namesrv, topic), key=lambda message: -len(message.body))
    assert (large.body, small.body) == (LARGE, LARGE[:100])
    assert large.store_size < len(LARGE) / 2


@pytest.mark.feature("S16")
@pytest.mark.parametrize(("sender", "receiver"), [("java", "go"), ("go", "java")])
@every_java
def test_languages_read_each_other(
    sender: str, receiver: str, drivers: Drivers, server: Server, new_topic: NewTopic
) -> None:
    """Java and Go clients read each other's messages, compressed ones too."""
    topic, messages = new_topic(), make_messages(5)
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with Producer(drivers(sender), namesrv=server.namesrv) as producer:
        producer.send_all(topic, *messages, Outgoing(LARGE, keys=["large"]))
        with PushConsumer(drivers(receiver), **about) as consumer:
            received = consumer.received(6)
    assert_same(messages, [message for message in received if message.keys != "large"])
    (large,) = (message for message in received if message.keys == "large")
    assert large.body == LARGE
    assert large.store_size < len(LARGE) / 2


@pytest.mark.feature("S5", "N1", "N23")
@every_client
def test_first_send_creates_the_topic(
    driver: Driver, admin: Admin, server: Server, new_name: Callable[[], str]
) -> None:
    """A send to a topic that nobody created makes it, with 4 queues, and its route is there at once.

    Java 5.4.0 reads routes as strict JSON; Go, which says it is 4.5.2, gets and reads the older dialect.
    """
    topic = new_name()
    with Producer(driver, namesrv=server.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"first"))
        route = admin.call("examineTopicRouteInfo", topic)
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (4, 4, 6)
    (broker,) = route["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": server.broker}


@pytest.mark.feature("N2", "N3")
def test_routes_of_template_and_unknown_topic(admin: Admin, new_name: Callable[[], str]) -> None:
    """The template topic TBW102 has 8 queues and permission 7; an unknown topic is code 17 with Java's remark."""
    (template,) = admin.call("examineTopicRouteInfo", "TBW102")["queueDatas"]
    assert (template["readQueueNums"], template["writeQueueNums"], template["perm"]) == (8, 8, 7)
    topic = new_name()
    with pytest.raises(DriverError, match=f"No topic route info in name server for the topic: {topic}") as caught:
        admin.call("examineTopicRouteInfo", topic)
    assert caught.value.failure.code == 17


@pytest.mark.feature("S12")
@every_java
def test_body_of_four_mebibytes_is_the_largest(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A body of 4 MiB passes, compressed on its way; one byte more does not leave the client."""
    topic, largest = new_topic(1), Random(1).randbytes(2 * 1024 * 1024).hex().encode()
    with Producer(java, namesrv=server.namesrv) as producer:
        (passes, fails) = producer.send(topic, Outgoing(largest), Outgoing(largest + b"+"))
    assert (passes.status, fails.status) == ("SEND_OK", "")
    (message,) = read_topic(java, server.namesrv, topic)
    assert message.body == largest


@pytest.mark.feature("S12")
@every_java
@pytest.mark.parametrize("kind", ["normal", "ordered", "delayed", "transaction"])
def test_body_limit_is_that_of_the_broker_for_all_kinds(
    kind: str, java: Driver, server: Server, new_topic: NewTopic
) -> None:
    """From a client that lets larger bodies out, uncompressed, 4 MiB arrive; one byte more is refused with code 13."""
    topic, largest = new_topic(1), bytes(range(256)) * 16 * 1024
    bodies = largest, largest + b"+", b"last"
    about = {"namesrv": server.namesrv, "group": f"{topic}-group"}
    patient = {"settings": {"maxMessageSize": 8 << 20, "compressMsgBodyOverHowmuch": 8 << 20}}
    with PushConsumer(java, **about, subscriptions={topic: "*"}, orderly=kind == "ordered") as consumer:
        if kind == "transaction":
            with TransactionProducer(java, **about, **patient) as producer:
                passes, fails, last = producer.try_send(topic, *bodies, outcome="commit")
        else:
            messages = [Outgoing(body, delay_level=int(kind == "delayed")) for body in bodies]
            with Producer(java, namesrv=server.namesrv, **patient) as producer:
                passes, fails, last = producer.send(topic, *messages, queue=Queue(topic, "broker-a", 0))
        received = consumer.received(2)
    assert (passes.status, last.status, fails.error and fails.error.code) == ("SEND_OK", "SEND_OK", 13)
    names = {largest: "largest", b"last": "last"}
    found = [names.get(message.body, "another") for message in received]
    assert (found if kind == "ordered" else sorted(found)) == ["largest", "last"]
    assert max(message.store_size for message in received) > len(largest)


@pytest.mark.feature("S13")
@every_java
def test_properties_have_a_limit(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Keys and tags of 16 KB and properties of 31 KB pass; 32 KB of properties are refused with code 13."""
    topic = new_topic(1)
    messages = [
        Outgoing(b"keys", keys=["k" * 16 * 1024]),
        Outgoing(b"tags", tags="t" * 16 * 1024),
        Outgoing(b"31 KB", properties={"p": "v" * 31 * 1024}),
        Outgoing(b"32 KB", properties={"p": "v" * 32 * 1024}),
    ]
    with Producer(java, namesrv=server.namesrv) as producer:
        *passed, refused = producer.send(topic, *messages)
    assert [result.status for result in passed] == ["SEND_OK"] * 3
    assert refused.error is not None
    assert refused.error.code == 13
    read = read_topic(java, server.namesrv, topic)
    assert [message.body for message in read] == [message.body for message in messages[:3]]
    assert (read[0].keys, read[1].tags, read[2].properties["p"]) == ("k" * 16384, "t" * 16384, "v" * 31744)


@pytest.mark.feature("S14")
@every_java
def test_nothing_is_not_sent(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """An empty body and an empty topic are refused by the client; the broker holds nothing."""
    topic = new_topic(1)
    with Producer(java, namesrv=server.namesrv) as producer:
        refused = producer.send(topic, Outgoing(b"")) + producer.send("", Outgoing(b"body"))
    assert [result.error and result.error.type for result in refused] == ["MQClientException"] * 2
    assert not read_topic(java, server.namesrv, topic)


@pytest.mark.feature("S7")
@every_java
def test_topic_is_not_created_when_that_is_off(fresh_server: Callable[..., Server], java: Driver) -> None:
    """With autoCreateTopicEnable=false a client finds no route, and the broker answers 17 to one that sends anyway."""
    with administered(java, fresh_server(autoCreateTopicEnable="false")) as (server, admin, producer):
        admin.create_topic(server.broker, "known", 1)
        producer.send_all("known", Outgoing(b"body"))
        (lost,) = producer.send("unknown", Outgoing(b"body"))
        (refused,) = producer.send("unknown", Outgoing(b"body"), queue=Queue("unknown", "broker-a", 0))
        assert lost.error is not None
        assert "No route info of this topic: unknown" in lost.error.message
        assert refused.error is not None
        assert refused.error.code == 17
        assert "topic[unknown] not exist, apply first please!" in refused.error.message
        with pytest.raises(DriverError):
            admin.call("examineTopicRouteInfo", "unknown")


@pytest.mark.feature("S10")
@every_client
@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_topic_of_the_broker_is_not_sent_to(topic: str, driver: Driver, server: Server) -> None:
    """Sends to the broker's own topics fail: Java's client refuses them itself, Go's is refused by the broker."""
    with Producer(driver, namesrv=server.namesrv) as producer:
        (refused,) = producer.send(topic, Outgoing(b"body"))
    assert (refused.status, refused.error is None) == ("", False)
    assert f"Sending message to topic[{topic}] is forbidden." in (refused.error.message if refused.error else "")


@pytest.mark.feature("S11")
@every_java
def test_queue_that_is_not_there(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A send to a queue with too large a number is answered 29; with a negative one the broker picks a queue."""
    topic = new_topic(4)
    with Producer(java, namesrv=server.namesrv) as producer:
        (refused,) = producer.send(topic, Outgoing(b"refused"), queue=Queue(topic, "broker-a", 100))
        (taken,) = producer.send_all(topic, Outgoing(b"taken"), queue=Queue(topic, "broker-a", -100))
    assert refused.error is not None
    assert refused.error.code == 29
    (message,) = read_topic(java, server.namesrv, topic)
    assert (message.body, message.queue_id) == (b"taken", taken.queue_id)
    assert taken.queue_id in range(4)


@pytest.mark.feature("S25")
@every_java
def test_broker_that_may_not_be_written(fresh_server: Callable[..., Server], java: Driver) -> None:
    """With brokerPermission=4 mqadmin shows routes without the write bit; ordered topics are refused with 16."""
    with administered(java, fresh_server(brokerPermission="4")) as (server, admin, producer):
        admin.create_topic(server.broker, "ordered", 1, order=True)
        admin.create_topic(server.broker, "plain", 1)
        printed = java.call("mqadmin", args=["topicRoute", "-n", server.namesrv, "-t", "plain"])["output"]
        assert re.search(r'"perm":\s*4\b', printed), printed
        (refused,) = producer.send("ordered", Outgoing(b"body"), queue=Queue("ordered", "broker-a", 0))
        assert refused.error is not None
        assert refused.error.code == 16
        producer.send_all("plain", Outgoing(b"body"), queue=Queue("plain", "broker-a", 0))
