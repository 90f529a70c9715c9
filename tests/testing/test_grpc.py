"""The gRPC port of the fixture."""

import pathlib
from collections.abc import Mapping

import grpc
import pytest
from grpc_ground import Client

from rocketlet.testing.broker_thread import RocketmqBroker


def ask_route(address: str) -> str:
    """Return the gRPC status of a call without its headers; whoever answers has read it."""
    with grpc.insecure_channel(address) as channel:
        opened: Client = channel
        call = opened.unary_unary("/apache.rocketmq.v2.MessagingService/QueryRoute")
        _, done = call.with_call(b"", timeout=30, wait_for_ready=True)
        return str(done.code())


def test_port_stays_over_restarts() -> None:
    """Clients of RocketMQ 5 find the broker where it was, after a stop, a kill and a reset."""
    with RocketmqBroker() as broker:
        address = broker.grpc_address
        assert ask_route(address) == "StatusCode.OK"
        for again in (broker.stop, broker.kill, broker.reset):
            again()
            broker.restart()
            assert broker.grpc_address == address
            assert ask_route(address) == "StatusCode.OK"


@pytest.mark.parametrize("settings", [{"grpcServerPort": "-1"}])
def test_broker_without_the_port(settings: Mapping[str, str], tmp_path: pathlib.Path) -> None:
    """A test may want none."""
    with RocketmqBroker(settings) as broker:
        assert broker.grpc_address == ""
    assert not [*tmp_path.iterdir()]
