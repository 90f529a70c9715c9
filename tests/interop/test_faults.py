"""Faults of the fixture as official clients in other processes meet them.

Java's client 4.9.8 gives up at SYSTEM_BUSY, and waits out its time limit when its connection is closed: most tests are
for the newest clients.
"""

from collections.abc import Iterator

import pytest
from interop.clients import Outgoing, Producer, PushConsumer, Sent
from interop.driver import Driver
from interop.versions import DEFAULT_JAVA, every_client

from rocketlet.common.codes import ResponseCode
from rocketlet.testing import Fault, RocketmqBroker

TIMEOUT_MS = 1_000
newest_clients = pytest.mark.parametrize(
    ("client", "java"), [("java", DEFAULT_JAVA), ("go", DEFAULT_JAVA)], indirect=["java"], scope="function"
)


@pytest.fixture(scope="module")
def shared() -> Iterator[RocketmqBroker]:
    """Run the broker of these tests; the leak check of the session's does not know drivers."""
    with RocketmqBroker() as started:
        yield started


@pytest.fixture
def broker(shared: RocketmqBroker) -> Iterator[RocketmqBroker]:
    """Return the broker, with what a test has done to it undone at its end."""
    shared.begin_test()
    yield shared
    shared.end_test()


def produce(driver: Driver, broker: RocketmqBroker, topic: str, *bodies: bytes, mode: str = "sync") -> list[Sent]:
    """Send with an official client that waits a second for each answer."""
    quick = {"settings": {"sendMsgTimeout": TIMEOUT_MS}, "sendTimeoutMs": TIMEOUT_MS}
    with Producer(driver, namesrv=broker.nameserver, **quick) as producer:
        return producer.send(topic, *map(Outgoing, bodies), mode=mode)


def stored(broker: RocketmqBroker, topic: str) -> list[bytes]:
    """Return what is stored in a topic."""
    return [message.body for message in broker.messages(topic)]


@newest_clients
def test_busy_broker_is_tried_again(client: str, driver: Driver, broker: RocketmqBroker) -> None:
    """Java's client tries again by itself after SYSTEM_BUSY, Go's leaves that to the application; one is stored."""
    topic = broker.topic(queues=1)
    fault = broker.faults.add(on="send", topic=topic, times=2, answer=ResponseCode.SYSTEM_BUSY, remark="try later")
    *refused, sent = produce(driver, broker, topic, *([b"once"] if client == "java" else [b"once"] * 3))
    assert (sent.status, sent.queue_offset) == ("SEND_OK", 0)
    assert fault.hits == 2
    assert all(each.error is not None and "try later" in each.error.message for each in refused)
    sends = broker.requests(on="send", topic=topic)
    assert [send.answer for send in sends] == [ResponseCode.SYSTEM_BUSY] * 2 + [ResponseCode.SUCCESS]
    assert stored(broker, topic) == [b"once"]


@newest_clients
def test_closed_connection_is_made_anew(driver: Driver, broker: RocketmqBroker) -> None:
    """A connection that is closed instead of an answer costs an attempt, and no message."""
    topic = broker.topic(queues=1)
    broker.faults.add(on="send", topic=topic, answer=Fault.CLOSE)
    (sent,) = produce(driver, broker, topic, b"once")
    assert sent.status == "SEND_OK"
    first, second = broker.requests(on="send", topic=topic)
    assert (first.state, second.state) == ("connection closed", "answered")
    assert first.peer != second.peer
    assert stored(broker, topic) == [b"once"]


@newest_clients
def test_lost_answer_leaves_a_message(client: str, driver: Driver, broker: RocketmqBroker) -> None:
    """The message is stored. Java's client has spent its time on the first attempt and fails; Go's tries again."""
    topic = broker.topic(queues=1)
    broker.faults.add(on="send", topic=topic, answer=Fault.LOSE_ANSWER)
    (sent,) = produce(driver, broker, topic, b"body")
    if client == "java":
        assert sent.error is not None
        assert stored(broker, topic) == [b"body"]
    else:
        assert (sent.status, sent.queue_offset) == ("SEND_OK", 1)
        first, second = broker.messages(topic)
        assert first.message_id == second.message_id == sent.msg_id
    assert broker.requests(on="send", topic=topic)[0].state == "answer lost"


@newest_clients
def test_kill_and_restart_in_mid_traffic(driver: Driver, broker: RocketmqBroker) -> None:
    """A broker that is killed among 500 sends and started again has each message that was answered, where it said.

    How many fail meanwhile depends on the client's speed; those before the first fault and after the restart do not.
    """
    topic = broker.topic(queues=1)
    messages = [Outgoing(b"%d" % number) for number in range(600)]
    fault = broker.faults.add(on="send", topic=topic, after=200, times=None, answer=Fault.DROP)
    with Producer(driver, namesrv=broker.nameserver) as producer:
        begun = producer.begin_send(topic, *messages[:500])
        fault.wait()
        fault.remove()
        broker.kill()
        broker.restart()
        results = [*producer.finish_send(begun), *producer.send(topic, *messages[500:])]
    found = stored(broker, topic)
    answered = [
        (sent.queue_offset, message.body) for sent, message in zip(results, messages, strict=True) if not sent.error
    ]
    assert not any(sent.error for sent in [*results[:200], *results[500:]])
    assert all(found[queue_offset] == body for queue_offset, body in answered)
    clients = {each.client for each in broker.requests(on="send", topic=topic)}
    assert all(each is None or producer.name in each for each in clients)


@every_client
def test_requests_of_official_clients_are_decoded(driver: Driver, broker: RocketmqBroker) -> None:
    """A send tells topic and group, whichever of its requests and serialisations the client uses."""
    topic = broker.topic(queues=1)
    produce(driver, broker, topic, b"1")
    produce(driver, broker, topic, b"2", b"3", mode="batch")
    single, batch = broker.requests(on="send", topic=topic)
    assert (single.body, single.answer) == (b"1", ResponseCode.SUCCESS)
    assert batch.answer == ResponseCode.SUCCESS
    assert single.group is not None
    assert single.group.startswith("producer-")
    assert broker.requests(on="route", topic=topic)[0].answer == ResponseCode.SUCCESS
    assert all(each.group for each in broker.requests(on="heartbeat"))


@newest_clients
def test_partitioned_consumer_gets_everything_behind_it(driver: Driver, java: Driver, broker: RocketmqBroker) -> None:
    """What is sent while a consumer is cut off reaches it when the wire is whole again."""
    topic, group = broker.topic(queues=1), "cut-off"
    about = {"namesrv": broker.nameserver, "group": group, "subscriptions": {topic: "*"}}
    with Producer(java, namesrv=broker.nameserver) as producer, PushConsumer(driver, **about) as consumer:
        producer.send_all(topic, Outgoing(b"before"))
        consumer.wait_bodies([b"before"])
        client_id = broker.requests(on="heartbeat", group=group)[0].client
        assert client_id is not None
        with broker.partition(client_id):
            producer.send_all(topic, Outgoing(b"during"))
            assert [message.body for message in consumer.received()] == [b"before"]
        assert consumer.wait_bodies([b"during"]) == {b"before", b"during"}
