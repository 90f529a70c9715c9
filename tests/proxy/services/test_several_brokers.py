"""Routes of gRPC where there are several brokers: each names all, with the port of each."""

import pathlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
from grpc_calls import LocalPort, make_call
from raw_calls import until
from standing_servers import nameserver

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.topic.topics import make_topic
from rocketlet.namesrv.server import NameServer
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import Code
from rocketlet.proxy.messages.names import endpoints_of
from rocketlet.testing.manual_clock import ManualClock

pytestmark = pytest.mark.feature("G2")
__all__ = ["nameserver"]  # a fixture


@pytest.fixture
async def brokers(
    tmp_path: pathlib.Path, nameserver: NameServer, clock: ManualClock
) -> AsyncGenerator[tuple[Broker, Broker]]:
    """Run two brokers with a topic each, and one that both have; the first serves gRPC at 8081, the second at 8082."""
    async with AsyncExitStack() as stack:
        started: list[Broker] = []
        for name in ("a", "b"):
            settings = {
                "brokerName": name,
                "listenPort": "0",
                "storePathRootDir": str(tmp_path / name),
                "namesrvAddr": nameserver.address,
                "mappedFileSizeCommitLog": "1048576",
            }
            broker = await stack.enter_async_context(Broker(BrokerConfig.from_java(settings), clock))
            for topic in ("both", f"only-{name}"):
                broker.operations.topics.put(make_topic(topic, 2))
            await broker.register()
            await broker.announce_grpc(f"127.0.0.1:{8081 + len(started)}")
            started.append(broker)
        yield started[0], started[1]


async def places(broker: Broker, topic: str, *hosts: str) -> list[tuple[str, str, int]]:
    """Return the brokers that a route names, with their addresses, once for each queue."""
    port = LocalPort(broker, ("127.0.0.1", 8081))
    endpoints = endpoints_of(hosts[0], 8081)
    endpoints.addresses.extend(v2.Address(host=host, port=8082) for host in hosts[1:])
    request = v2.QueryRouteRequest(topic=v2.Resource(name=topic), endpoints=endpoints)
    call = port.start("QueryRoute", request.SerializeToString(), make_call())
    await until(lambda: call.status is not None)
    answer = call.one_answer(v2.QueryRouteResponse)
    assert answer.status.code == Code.OK
    return [
        (queue.broker.name, address.host, address.port)
        for queue in answer.message_queues
        for address in queue.broker.endpoints.addresses
    ]


async def test_route_names_all_brokers(brokers: tuple[Broker, Broker]) -> None:
    """The queues of both are told, at the host by which the client has come, each with its own port."""
    found = await places(brokers[0], "both", "here.example")
    assert found == [("a", "here.example", 8081)] * 2 + [("b", "here.example", 8082)] * 2
    found = await places(brokers[0], "both", "here.example", "here.example")
    assert found == [("a", "here.example", 8081)] * 2 + [("b", "here.example", 8082)] * 2


async def test_topic_of_another_broker_is_found(brokers: tuple[Broker, Broker]) -> None:
    """A topic that only the other has is not created here."""
    assert await places(brokers[0], "only-b", "here.example") == [("b", "here.example", 8082)] * 2
    assert brokers[0].operations.topics.get("only-b") is None


async def test_assignment_names_all_brokers(brokers: tuple[Broker, Broker]) -> None:
    """A member of a group receives from each broker."""
    request = v2.QueryAssignmentRequest(
        topic=v2.Resource(name="both"), group=v2.Resource(name="g"), endpoints=endpoints_of("127.0.0.1", 8081)
    )
    call = LocalPort(brokers[0]).start("QueryAssignment", request.SerializeToString(), make_call())
    await until(lambda: call.status is not None)
    answer = call.one_answer(v2.QueryAssignmentResponse)
    queues = [assignment.message_queue for assignment in answer.assignments]
    assert [(queue.broker.name, queue.id) for queue in queues] == [("a", -1), ("b", -1)]


async def test_silent_name_server_leaves_what_was_heard(brokers: tuple[Broker, Broker], nameserver: NameServer) -> None:
    """When the name server is gone, routes tell the brokers that were heard of before."""
    before = await places(brokers[0], "both", "127.0.0.1")
    await nameserver.__aexit__(None, None, None)
    assert await places(brokers[0], "both", "127.0.0.1") == before
