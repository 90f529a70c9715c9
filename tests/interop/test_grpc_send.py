"""What official producers for RocketMQ 5 send: their consumers get it, and clients of the remoting protocol as well."""

import time
from collections.abc import Callable

import pytest
from interop.clients import Admin, PullConsumer
from interop.driver import Driver
from interop.grpc_clients import GrpcDriver, Outgoing5, Producer5, SimpleConsumer
from interop.grpc_drivers import every_grpc_client
from interop.grpc_servers import GrpcServer
from interop.versions import DEFAULT_JAVA

DELAY_MS = 3_000


@every_grpc_client
@pytest.mark.feature("G3", "G16")
def test_normal_messages_are_read_by_remoting(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, java_of: Callable[[str], Driver], new_name: Callable[[], str]
) -> None:
    """A Java client reads tag, keys, properties and id of messages to a topic that nobody has created."""
    topic = new_name()
    with Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer:
        messages = [
            Outgoing5(b"%d" % number, tag="paid", keys=[f"k{number}", "every"], properties={"größe": "5 公斤"})
            for number in range(10)
        ]
        receipts = producer.send_all(topic, *messages[:5]) + producer.send_all(topic, *messages[5:], mode="async")
    with PullConsumer(java_of(DEFAULT_JAVA), namesrv=grpc_server.namesrv, group=new_name()) as consumer:
        read = consumer.read_all(topic)
    assert {message.body for message in read} == {message.body for message in messages}
    assert {message.msg_id for message in read} == {receipt.message_id for receipt in receipts}
    for message in read:
        assert message.tags == "paid"
        assert set((message.keys or "").split()) == {f"k{message.body.decode()}", "every"}
        assert message.properties["größe"] == "5 公斤"


@every_grpc_client
@pytest.mark.feature("G9", "G16")
def test_group_is_one_queue_in_order(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, java_of: Callable[[str], Driver], new_name: Callable[[], str]
) -> None:
    """The messages of each group lie in one queue, in the order in which they were sent."""
    topic = new_name()
    with Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer:
        for number in range(12):
            producer.send_all(topic, Outgoing5(b"%d" % number, message_group=f"g{number % 3}"))
    with PullConsumer(java_of(DEFAULT_JAVA), namesrv=grpc_server.namesrv, group=new_name()) as consumer:
        read = consumer.read_all(topic)
    by_group = {
        group: [message for message in read if message.properties["__SHARDINGKEY"] == group]
        for group in ("g0", "g1", "g2")
    }
    for number, messages in enumerate(by_group.values()):
        assert len({message.queue_id for message in messages}) == 1
        in_order = sorted(messages, key=lambda message: message.queue_offset)
        assert [message.body for message in in_order] == [b"%d" % (number + 3 * step) for step in range(4)]


@every_grpc_client
@pytest.mark.feature("G10")
def test_delayed_message_is_not_early(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, new_name: Callable[[], str]
) -> None:
    """A message comes at its time and not before; its producer gets a handle to recall it by."""
    topic = new_name()
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        SimpleConsumer(
            grpc_driver, endpoints=grpc_server.grpc, group=new_name(), subscriptions={topic: None}
        ) as consumer,
    ):
        due_at_ms = (int(time.time()) + 1) * 1000 + DELAY_MS
        (receipt,) = producer.send_all(topic, Outgoing5(b"later", deliver_at_ms=due_at_ms))
        (message,) = consumer.receive_all(1)
        consumer.ack(message)
    assert (message.message_id, message.body) == (receipt.message_id, b"later")
    assert message.received_at >= due_at_ms
    assert message.deliver_at_ms == due_at_ms


@every_grpc_client
@pytest.mark.feature("G11")
def test_transactions(grpc_driver: GrpcDriver, grpc_server: GrpcServer, new_name: Callable[[], str]) -> None:
    """What is committed arrives, what is rolled back does not, and what is left open is asked about until it ends."""
    topic = new_name()
    outcomes = {
        b"committed": {"outcome": "commit"},
        b"rolled back": {"outcome": "rollback"},
        b"asked, committed": {"outcome": "unknown", "checked": "commit"},
        b"asked, rolled back": {"outcome": "unknown", "checked": "rollback"},
    }
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        SimpleConsumer(
            grpc_driver, endpoints=grpc_server.grpc, group=new_name(), subscriptions={topic: None}
        ) as consumer,
    ):
        producer.send_all(topic, *(Outgoing5(body, properties=about) for body, about in outcomes.items()))
        asked = producer.checked(2)
        received = consumer.receive_all(2)
        consumer.ack(*received)
    assert {message.body for message in asked} >= {b"asked, committed", b"asked, rolled back"}
    assert sorted(message.body for message in received) == [b"asked, committed", b"committed"]


@every_grpc_client
@pytest.mark.feature("G21")
def test_administrators_see_the_clients(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, grpc_admin: Admin, new_name: Callable[[], str]
) -> None:
    """The tools for administrators list who consumes in a group, and how far it is."""
    topic, group = new_name(), new_name()
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        SimpleConsumer(grpc_driver, endpoints=grpc_server.grpc, group=group, subscriptions={topic: None}) as consumer,
    ):
        producer.send_all(topic, *(Outgoing5(b"%d" % number) for number in range(3)))
        consumer.ack(*consumer.receive_all(3))
        told = grpc_admin.call("examineConsumerConnectionInfo", group)
        assert len(told["connectionSet"]) == 1
        if grpc_driver.name != "rust5":  # it tells its filter with each receive alone
            assert topic in told["subscriptionTable"]
        assert grpc_admin.call("examineConsumeStats", group)["offsetTable"]
