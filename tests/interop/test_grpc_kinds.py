"""Messages in order, delayed, recalled and refused, as official clients for RocketMQ 5 send and receive them."""

import time
from collections.abc import Callable, Sequence

import pytest
from interop.grpc_clients import GrpcDriver, MessageView, Outgoing5, Producer5, PushConsumer5, SimpleConsumer
from interop.grpc_drivers import every_grpc_client, every_pushing_client
from interop.grpc_servers import GrpcServer

NewTopic = Callable[..., str]
NewGroup = Callable[..., str]
GROUPS = ("a", "b", "c")


def in_order(count: int) -> list[Outgoing5]:
    """Return messages of some groups in turn, numbered."""
    return [Outgoing5(b"%d" % number, message_group=GROUPS[number % len(GROUPS)]) for number in range(count)]


def numbers_of(messages: Sequence[MessageView], group: str) -> list[int]:
    """Return the numbers of a group in order of arrival."""
    return [int(message.body) for message in messages if message.message_group == group]


@pytest.mark.feature("G9")
@every_pushing_client
def test_messages_of_a_group_come_in_order(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, new_grpc_topic: NewTopic, new_grpc_group: NewGroup
) -> None:
    """Messages of one group are pushed in the order they were sent, each once, by an ordered group of consumers."""
    topic, group = new_grpc_topic("FIFO"), new_grpc_group(consumeMessageOrderly=True)
    about = {"endpoints": grpc_server.grpc, "group": group, "subscriptions": {topic: None}}
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        PushConsumer5(grpc_driver, **about) as pushed,
    ):
        producer.send_all(topic, *in_order(60))
        received = pushed.received(60)
    for first, name in enumerate(GROUPS):
        assert numbers_of(received, name) == [*range(first, 60, len(GROUPS))]


@pytest.mark.feature("G9")
@every_grpc_client
def test_next_of_a_queue_waits_for_the_one_before(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, new_grpc_topic: NewTopic, new_grpc_group: NewGroup
) -> None:
    """While a message of an ordered group is not acknowledged the next of its queue does not come, then it does."""
    topic, group = new_grpc_topic("FIFO", queues=1), new_grpc_group(consumeMessageOrderly=True)
    about = {"endpoints": grpc_server.grpc, "group": group, "subscriptions": {topic: None}}
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        SimpleConsumer(grpc_driver, **about) as consumer,
    ):
        producer.send_all(topic, *[Outgoing5(b"%d" % number, message_group="g") for number in range(2)])
        (first,) = consumer.receive_all(1, 60_000)
        assert first.body == b"0"
        assert consumer.receive(1) == []
        assert consumer.ack(first)[0].error is None
        (second,) = consumer.receive_all(1)
        assert second.body == b"1"


@pytest.mark.feature("G9")
@pytest.mark.parametrize("grpc_driver", ["java"], indirect=True, scope="session")
def test_refused_message_stays_before_the_next(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, new_grpc_topic: NewTopic, new_grpc_group: NewGroup
) -> None:
    """A refused message of an ordered group is tried again before the next one of its group.

    The Go client hands out the others of a batch first, and the one of Python does not count its attempts.
    """
    topic, group = new_grpc_topic("FIFO"), new_grpc_group(consumeMessageOrderly=True)
    about = {"endpoints": grpc_server.grpc, "group": group, "subscriptions": {topic: None}, "failures": 1}
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        PushConsumer5(grpc_driver, **about) as pushed,
    ):
        producer.send_all(topic, *in_order(6))
        received = pushed.received(12)
    for first, name in enumerate(GROUPS):
        assert numbers_of(received, name) == [first, first, first + 3, first + 3]


@pytest.mark.feature("G10")
@every_pushing_client
def test_delayed_messages_are_not_early(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, new_grpc_topic: NewTopic, new_name: Callable[[], str]
) -> None:
    """A delayed message comes when it is due, and one that was recalled does not; what is no handle is refused."""
    topic = new_grpc_topic("DELAY")
    due = (time.time_ns() // 1_000_000_000 + 5) * 1000
    about = {"endpoints": grpc_server.grpc, "group": new_name(), "subscriptions": {topic: None}}
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        PushConsumer5(grpc_driver, **about) as pushed,
    ):
        recalled, kept = producer.send_all(
            topic, Outgoing5(b"recalled", deliver_at_ms=due), Outgoing5(b"kept", deliver_at_ms=due + 1000)
        )
        assert recalled.recall_handle is not None
        taken_back = producer.recall(topic, recalled.recall_handle)
        assert (taken_back.error, taken_back.message_id) == (None, recalled.message_id)
        assert producer.recall(topic, "bm8gaGFuZGxl").error is not None
        (message,) = pushed.received(1)
    assert message.message_id == kept.message_id
    assert message.received_at >= due + 1000
    assert message.deliver_at_ms == due + 1000


@pytest.mark.feature("G12")
@pytest.mark.parametrize("grpc_driver", ["java"], indirect=True, scope="session")
def test_refusals_name_their_code(grpc_driver: GrpcDriver, grpc_server: GrpcServer, new_grpc_topic: NewTopic) -> None:
    """The client tells why a message was refused: properties, groups, times and types that are not taken."""
    plain, ordered, delayed = (new_grpc_topic(kind) for kind in ("NORMAL", "FIFO", "DELAY"))
    in_40_days = (time.time_ns() // 1_000_000_000 + 40 * 86_400) * 1000
    refused = [
        (plain, Outgoing5(b"x", properties={"UNIQ_KEY": "mine"}), 40007),
        (plain, Outgoing5(b"x", properties={f"p{number}": "x" for number in range(200)}), 43101),
        (ordered, Outgoing5(b"x", message_group="g" * 64), 40006),
        (delayed, Outgoing5(b"x", deliver_at_ms=in_40_days), 40012),
    ]
    with Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[plain, ordered, delayed]) as producer:
        for topic, message, code in refused:
            (receipt,) = producer.send(topic, message)
            assert receipt.error is not None
            assert receipt.error.code == code, receipt.error
        assert producer.send(ordered, Outgoing5(b"x"))[0].error is not None, "the client itself knows the topic's type"
