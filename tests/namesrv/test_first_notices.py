"""What brokers of a group are told when another one of them is the first by then."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from raw_calls import Caller, open_caller
from registrations import register

from rocketlet.common.ids import format_address
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import ONEWAY, Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing.manual_clock import ManualClock


class ToldBroker:
    """A broker that keeps what it is told."""

    def __init__(self) -> None:
        self.address = ""
        self.told = asyncio.Queue[Command]()

    def take(self, command: Command, _connection: Connection) -> None:
        """Keep a request."""
        self.told.put_nowait(command)

    async def next_told(self) -> dict[str, str]:
        """Return the fields of the next notice."""
        command = await self.told.get()
        assert command.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        assert command.flag & ONEWAY
        return dict(command.ext)


@asynccontextmanager
async def told_broker() -> AsyncGenerator[ToldBroker]:
    """Run such a broker."""
    broker = ToldBroker()
    async with RemotingServer("127.0.0.1", 0, RequestHandlers(fallback=broker.take), LoopClock()) as server:
        broker.address = format_address(*server.address)
        yield broker


@asynccontextmanager
async def open_nameserver(clock: ManualClock, **settings: str) -> AsyncGenerator[Caller]:
    """Run a name server and connect to it."""
    config = NameServerConfig.from_java({"listenPort": "0", **settings})
    async with NameServer(config, clock) as server, open_caller(server.address) as caller:
        yield caller


async def register_as(names: Caller, address: str, number: int, acts: str) -> None:
    """Register a broker of the group, which wants an acting master or not."""
    answer = await register(names, brokerAddr=address, brokerId=str(number), enableActingMaster=acts)
    assert answer.code == 0


@pytest.mark.feature("R22")
async def test_others_are_told_who_is_the_first(clock: ManualClock) -> None:
    """Those who stay when the first goes, and those who come after a new first; nobody else."""
    async with (
        told_broker() as first,
        told_broker() as second,
        open_nameserver(clock, notifyMinBrokerIdChanged="true") as names,
    ):
        gone = {"brokerAddr": "127.0.0.1:9", "brokerId": "0"}
        await register_as(names, second.address, 2, "true")
        await register_as(names, first.address, 1, "true")
        one = {"minBrokerId": "1", "minBrokerAddr": first.address}
        assert await second.next_told() == {**one, "haBrokerAddr": "10.0.0.1:10912"}
        await register_as(names, gone["brokerAddr"], 0, "true")
        zero = {"minBrokerId": "0", "minBrokerAddr": gone["brokerAddr"], "haBrokerAddr": "10.0.0.1:10912"}
        assert (await first.next_told(), await second.next_told()) == (zero, zero)
        await names.ask(RequestCode.UNREGISTER_BROKER, {"brokerName": "broker-a", "clusterName": "c", **gone})
        left = {**one, "offlineBrokerAddr": gone["brokerAddr"]}
        assert (await first.next_told(), await second.next_told()) == (left, left)
        assert first.told.empty()
        assert second.told.empty()


@pytest.mark.parametrize(("settings", "acts"), [({}, "true"), ({"notifyMinBrokerIdChanged": "true"}, "false")])
async def test_nobody_is_told_who_does_not_want_it(clock: ManualClock, settings: dict[str, str], acts: str) -> None:
    """Name server and group must both want it, unless a new first one comes."""
    async with told_broker() as slave, open_nameserver(clock, **settings) as names:
        gone = {"brokerAddr": "127.0.0.1:9", "brokerId": "0"}
        await register_as(names, gone["brokerAddr"], 0, acts)
        await register_as(names, slave.address, 1, acts)
        await names.ask(RequestCode.UNREGISTER_BROKER, {"brokerName": "broker-a", "clusterName": "c", **gone})
        async with open_caller(slave.address) as caller:
            caller.ask_oneway(RequestCode.GET_BROKER_CONFIG)
            assert (await slave.told.get()).code == RequestCode.GET_BROKER_CONFIG
