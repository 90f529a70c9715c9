"""The official clients for RocketMQ 5 start, work and stop without a line of trouble in their logs."""

from collections.abc import Callable

import pytest
from interop.clients import Admin
from interop.grpc_clients import GrpcDriver, Outgoing5, Producer5, PushConsumer5, SimpleConsumer
from interop.grpc_drivers import every_grpc_client
from interop.grpc_servers import GrpcServer, ProxyServer


@pytest.mark.feature("G2")
@every_grpc_client
def test_each_kind_of_client_starts_and_stops(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, grpc_admin: Admin, new_name: Callable[[], str]
) -> None:
    """A producer of three topics, a simple and a push consumer of them start and stop, and log nothing but news."""
    # The Node.js client misses the settings that come before it has all routes: the official proxy sends them once.
    count = 1 if grpc_driver.name == "node5" and isinstance(grpc_server, ProxyServer) else 3
    topics = [new_name() for _ in range(count)]
    for topic in topics:
        grpc_admin.create_topic(grpc_server.broker, topic)
    before = len(grpc_driver.troubles())
    every = dict.fromkeys(topics, None)
    with Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=topics) as producer:
        sent = [producer.send_all(topic, Outgoing5(b"hello"))[0] for topic in topics]
    with SimpleConsumer(grpc_driver, endpoints=grpc_server.grpc, group=new_name(), subscriptions=every) as consumer:
        received = consumer.receive_all(count)
        assert {message.message_id for message in received} == {receipt.message_id for receipt in sent}
        consumer.ack(*received)
    if grpc_driver.has_push_consumer:
        with PushConsumer5(grpc_driver, endpoints=grpc_server.grpc, group=new_name(), subscriptions=every) as pushed:
            assert len(pushed.received(count)) == count
            pushed.stop(waits=True)
    assert grpc_driver.troubles()[before:] == []


@pytest.mark.feature("G1")
@pytest.mark.parametrize("grpc_driver", ["java"], indirect=True, scope="session")
def test_one_port_takes_tls_and_plain_text(
    grpc_driver: GrpcDriver, grpc_server: GrpcServer, grpc_admin: Admin, new_name: Callable[[], str]
) -> None:
    """The Java client sends by TLS, which it speaks if it is told nothing, and in plain text, to one port."""
    topic = new_name()
    grpc_admin.create_topic(grpc_server.broker, topic)
    for told in ({}, {"tls": True}, {"tls": False}):
        with Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic], **told) as producer:
            producer.send_all(topic, Outgoing5(b"hello"))
