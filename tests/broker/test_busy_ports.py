"""Who looks for the next request is told of what both ports of a broker are asked, and is there if it is wanted."""

import asyncio
from contextlib import AsyncExitStack
from typing import cast

import pytest
from http2_peer import EMPTY_SETTINGS
from raw_calls import open_caller

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.cli.broker import BrokerFlags, enter_broker
from rocketlet.proxy.http2.frames import PREFACE
from rocketlet.proxy.server import serving
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.acceptor import Admission
from rocketlet.remoting.transport.busy_poll import BusyPoll
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.server import open_listener

ALONE: BrokerFlags = cast("BrokerFlags", {"advertise": None, "repair": False, "config_file": None})


def two_cores(_pid: int) -> set[int]:
    """Return what a process on two cores may use."""
    return {0, 1}


class NotingPoll(BusyPoll):
    """Notes what kinds of connections it is told of, and never looks."""

    def __init__(self) -> None:
        super().__init__(300)
        self.told: list[str] = []

    def after_read(self, peer: object) -> None:
        """Note it."""
        self.told.append(type(peer).__name__)


async def send_both(address: str) -> None:
    """Have two requests come in one read, and take their answers."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(2 * encode_command(Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)))
    for _ in range(2):
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()


@pytest.mark.parametrize("is_guarded", ["false", "true"])
async def test_both_ports_tell_of_their_reads(settings: dict[str, str], is_guarded: str) -> None:
    """A read of a client of remoting and one of gRPC are told of once each, whoever may be served, and no other."""
    poll, clock = NotingPoll(), LoopClock()
    given = {**settings, "authenticationEnabled": is_guarded}
    async with Broker(BrokerConfig.from_java(given), clock, busy_poll=poll) as broker:
        async with open_caller(broker.address) as caller:
            await caller.send()
            assert poll.told == ["Connection"]
            await send_both(broker.address)
        assert poll.told == ["Connection"]
        listener = open_listener("127.0.0.1", 0, key="grpcServerPort")
        async with serving(broker, clock, Admission())(listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(PREFACE + EMPTY_SETTINGS)
            await reader.readexactly(1)
            writer.close()
        assert poll.told == ["Connection", "Http2Link"]
        listener.close()


@pytest.mark.parametrize(("mean_us", "is_wanted"), [("", True), ("0", False), ("50", True)])
async def test_command_line_looks_unless_told_not_to(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, mean_us: str, *, is_wanted: bool
) -> None:
    """A broker that has a process for itself looks, as ``busyPollMicros`` says."""
    monkeypatch.setattr("os.sched_getaffinity", two_cores, raising=False)
    given = {**settings, "busyPollMicros": mean_us} if mean_us else settings
    async with AsyncExitStack() as servers:
        broker = await enter_broker(servers, LoopClock(), ALONE, given)
        assert (broker.busy_poll is not None) == is_wanted
