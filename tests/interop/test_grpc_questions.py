"""What official clients for RocketMQ 5 answer to administrators: where their threads are, messages out of turn."""

import re
from collections.abc import Callable

import pytest
from interop.clients import Admin
from interop.driver import Driver
from interop.grpc_clients import GrpcDriver, Outgoing5, Producer5, PushConsumer5
from interop.grpc_servers import GrpcServer, ProxyServer
from interop.parts import mqadmin
from interop.versions import DEFAULT_JAVA

NewTopic = Callable[..., str]


@pytest.mark.feature("D7", "D21", "G21")
@pytest.mark.parametrize(
    ("grpc_driver", "stack", "result"),
    [
        ("java", "ThreadPoolExecutor", "CR_SUCCESS"),
        ("go", "goroutine|golang", None),
        ("node", "mock stack", None),
    ],
    indirect=["grpc_driver"],
    ids=["java", "go", "node"],
    scope="session",
)
def test_consumer_answers_administrators(
    grpc_driver: GrpcDriver,
    stack: str,
    result: str | None,
    grpc_server: GrpcServer,
    grpc_admin: Admin,
    java_of: Callable[[str], Driver],
    new_grpc_topic: NewTopic,
    new_name: Callable[[], str],
) -> None:
    """The tools show the threads of a push consumer, and has it consume a message once more, where its client does."""
    topic, group = new_grpc_topic(), new_name()
    if isinstance(grpc_server, ProxyServer):
        pytest.xfail("the tools find no members there, and print nothing of one that is found by a retry topic")
    with (
        Producer5(grpc_driver, endpoints=grpc_server.grpc, topics=[topic]) as producer,
        PushConsumer5(grpc_driver, endpoints=grpc_server.grpc, group=group, subscriptions={topic: None}) as pushed,
    ):
        (sent,) = producer.send_all(topic, Outgoing5(b"once more"))
        assert len(pushed.received(1)) == 1
        (found,) = grpc_admin.call("examineConsumerConnectionInfo", group)["connectionSet"]
        about = ["-n", grpc_server.namesrv, "-g", group, "-i", found["clientId"]]
        printed = mqadmin(java_of(DEFAULT_JAVA), "consumerStatus", *about, "-s")
        assert re.search(stack, printed), printed
        assert topic in printed
        assert topic in mqadmin(java_of(DEFAULT_JAVA), "consumerStatus", *about)
        told = grpc_admin.call("consumeMessageDirectly", group, found["clientId"], topic, sent.message_id)
        assert told.get("consumeResult") == result
        if result is not None:
            assert [message.body for message in pushed.received(2)] == [b"once more"] * 2
