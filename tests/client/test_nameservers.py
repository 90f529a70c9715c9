"""Which name server is asked."""

import asyncio

import pytest
from scripted_cluster import ScriptedCluster, ScriptedServer, silent

from rocketlet.client.nameservers import NameServers, parse_addresses
from rocketlet.common.errors import ConfigError, RemotingError
from rocketlet.remoting.client import ConnectionPool
from rocketlet.remoting.clock import LoopClock
from rocketlet.remoting.codes import RequestCode
from rocketlet.remoting.command import Command
from rocketlet.testing import ManualClock

ASK = RequestCode.GET_BROKER_CLUSTER_INFO


@pytest.mark.parametrize("text", ["a:1;b:2", " a:1 ; b:2; ", "a:1,b:2"])
def test_addresses_are_separated_by_semicolons(text: str) -> None:
    """Blanks and empty parts do not matter, a comma separates as well."""
    assert parse_addresses(text) == ("a:1", "b:2")


@pytest.mark.parametrize("text", ["", ";", "host", "host:", ":1", "host:x", "host:0", "host:65536"])
def test_address_without_host_and_port_is_refused(text: str) -> None:
    """A mistake in the option is found before the first connection."""
    with pytest.raises(ConfigError) as raised:
        parse_addresses(text)
    assert raised.value.key == "nameserver"


async def test_chosen_name_server_is_kept_until_it_fails(cluster: ScriptedCluster) -> None:
    """All requests go to one; when it is gone the other answers the same call and is kept from then on."""
    async with ScriptedServer("second") as second, ConnectionPool(LoopClock()) as pool:
        servers = {each.address: each for each in (cluster.nameserver, second)}
        nameservers = NameServers(tuple(servers), pool, LoopClock())
        first = servers[nameservers.chosen]
        other = second if first is cluster.nameserver else cluster.nameserver
        for _ in range(3):
            await nameservers.request(Command.request(ASK), 3000)
        assert (len(first.asked(ASK)), len(other.asked(ASK))) == (3, 0)

        await first.close()
        for _ in range(2):
            await nameservers.request(Command.request(ASK), 3000)
        assert nameservers.chosen == other.address
        assert len(other.asked(ASK)) == 2


async def test_name_server_that_hangs_leaves_time_for_the_other(cluster: ScriptedCluster) -> None:
    """Of 3 s the first of two has 1.5, so the second answers within the call."""
    clock = ManualClock()
    async with ScriptedServer("second") as second, ConnectionPool(clock) as pool, asyncio.TaskGroup() as group:
        servers = {each.address: each for each in (cluster.nameserver, second)}
        nameservers = NameServers(tuple(servers), pool, clock)
        hanging = servers[nameservers.chosen]
        hanging.answers[ASK] = silent
        call = group.create_task(nameservers.request(Command.request(ASK), 3000))
        await hanging.wait_asked(ASK)
        await clock.elapse(1500)

        assert (await call).code == 0
        assert nameservers.chosen != hanging.address


async def test_last_failure_is_raised_when_none_answers() -> None:
    """Each is tried once, then the call fails."""
    async with ScriptedServer("closed") as first, ScriptedServer("closed too") as second:
        addresses = (first.address, second.address)
    async with ConnectionPool(LoopClock()) as pool:
        with pytest.raises(RemotingError, match="cannot connect"):
            await NameServers(addresses, pool, LoopClock()).request(Command.request(ASK), 3000)
