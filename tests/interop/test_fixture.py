"""The pytest fixture's broker with official clients, each a process with a clock of its own."""

from collections.abc import Iterator

import pytest
from interop.clients import Outgoing, Producer, PushConsumer, TransactionProducer
from interop.driver import Driver
from interop.versions import every_client, every_java
from polling import ask_until

from rocketlet.testing import RocketmqBroker


@pytest.fixture
def broker(rocketmq_broker: RocketmqBroker) -> Iterator[RocketmqBroker]:
    """Return the broker of the session; its time runs again afterwards."""
    yield rocketmq_broker
    rocketmq_broker.clock.resume()


@every_client
def test_delayed_message_comes_when_time_is_moved(driver: Driver, broker: RocketmqBroker) -> None:
    """A message for two hours later is received at once after the clock was moved so far, and not before."""
    topic, group = broker.topic(), broker.group()
    about = {"namesrv": broker.nameserver, "group": group, "subscriptions": {topic: "*"}}
    with PushConsumer(driver, **about) as consumer, Producer(driver, namesrv=broker.nameserver) as producer:
        producer.send_all(topic, Outgoing(b"late", delay_level=18), Outgoing(b"now"))
        assert [message.body for message in consumer.received(1)] == [b"now"]
        broker.clock.advance(hours=2)
        assert [message.body for message in consumer.received(2)] == [b"now", b"late"]
        broker.wait_consumed(group)
        assert broker.lag(group).total == 0


@every_client
def test_refused_message_becomes_a_dead_letter(driver: Driver, broker: RocketmqBroker) -> None:
    """A listener refuses a message seventeen times, each time at its hour, in one step of five hours."""
    topic, group = broker.topic(queues=1), broker.group()
    about = {"namesrv": broker.nameserver, "group": group, "subscriptions": {topic: "*"}, "failures": 20}
    with PushConsumer(driver, **about) as consumer, Producer(driver, namesrv=broker.nameserver) as producer:
        producer.send_all(topic, Outgoing(b"42"))
        broker.wait_consumed(group)
        assert broker.dead_letters(group) == []
        broker.clock.advance(hours=5)
        received = consumer.received(17)
    assert [message.reconsume_times for message in received] == [*range(17)]
    assert [message.body for message in broker.dead_letters(group)] == [b"42"]


@every_java
def test_open_transaction_is_asked_about(java: Driver, broker: RocketmqBroker) -> None:
    """A producer that does not know is asked when the time has come, and commits.

    Go's producer can be asked from its first heartbeat on, half a minute after its start by its own clock.
    """
    topic, group = broker.topic(), broker.group()
    about = {"group": group, "topic": topic}
    with TransactionProducer(java, namesrv=broker.nameserver, **about) as producer:
        producer.send(topic, b"42", outcome="unknown", checked="commit")
        assert [one.message.body for one in broker.transactions()] == [b"42"]
        broker.clock.advance(minutes=2)
        broker.wait_for(topic)
    assert broker.transactions() == []


def test_queue_of_an_ordered_member_that_is_gone_goes_to_the_next(java: Driver, broker: RocketmqBroker) -> None:
    """Without a word of the first its lock ends a minute later, on the broker's clock, and another client consumes."""
    topic, group = broker.topic(queues=1), broker.group()
    about = {"namesrv": broker.nameserver, "group": group, "subscriptions": {topic: "*"}, "orderly": True}
    with Producer(java, namesrv=broker.nameserver) as producer:
        with PushConsumer(java, **about) as gone:
            producer.send_all(topic, Outgoing(b"1"))
            assert [message.body for message in gone.received(1)] == [b"1"]
            broker.wait_consumed(group)
            gone.drop()
        with PushConsumer(java, **about) as heir:
            producer.send_all(topic, Outgoing(b"2"))
            ask_until(
                lambda: broker.requests("lock_queues", group=group), lambda asked: asked[-1].client == heir.client_id
            )
            broker.clock.advance(seconds=55)
            assert heir.received() == []
            broker.clock.advance(seconds=10)
            assert heir.wait_bodies([b"2"]) >= {b"2"}
