"""Which name server is asked."""

import asyncio

import pytest
from scripted_cluster import ScriptedCluster, ScriptedServer, refused, silent

from rocketlet.client import ClientSettings, Message, Producer, SendStatus
from rocketlet.client.session.interceptors import RequestPipeline
from rocketlet.client.session.routes import NameServers, parse_addresses
from rocketlet.common.errors import ConfigError, RemotingError
from rocketlet.remoting.codec.codes import RequestCode, ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.clock import LoopClock
from rocketlet.testing import ManualClock

NOTHING = RequestPipeline(ClientSettings(), namespace="")
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
        nameservers = NameServers(tuple(servers), pool, LoopClock(), NOTHING)
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
        nameservers = NameServers(tuple(servers), pool, clock, NOTHING)
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
            await NameServers(addresses, pool, LoopClock(), NOTHING).request(Command.request(ASK), 3000)


async def test_dead_name_server_costs_no_call_when_many_ask_at_once() -> None:
    """Calls that find the same server dead move on together: each asks the living one, and it is kept."""
    async with ScriptedServer("dead") as dead, ScriptedServer("alive") as alive, ConnectionPool(LoopClock()) as pool:
        addresses = (dead.address, alive.address)
        await dead.close()
        nameservers = NameServers(addresses, pool, LoopClock(), NOTHING)
        while nameservers.chosen != dead.address:
            nameservers = NameServers(addresses, pool, LoopClock(), NOTHING)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(nameservers.request(Command.request(ASK), 3000)) for _ in range(5)]
        assert [call.result().code for call in calls] == [0] * 5
        assert nameservers.chosen == alive.address


async def test_server_that_is_no_name_server_is_passed_over(cluster: ScriptedCluster) -> None:
    """A broker's address among them is asked once; its "not supported" is the answer only when all say so."""
    async with ScriptedServer("broker") as broker, ConnectionPool(LoopClock()) as pool:
        broker.answers[ASK] = refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "what?")
        nameservers = NameServers(
            (broker.address, cluster.nameserver.address),
            pool,
            LoopClock(),
            NOTHING,
        )
        for _ in range(3):
            assert (await nameservers.request(Command.request(ASK), 3000)).code == 0
        assert len(broker.asked(ASK)) <= 1
        only = NameServers((broker.address,), pool, LoopClock(), NOTHING)
        assert (await only.request(Command.request(ASK), 3000)).remark == "what?"


async def test_server_of_another_protocol_is_passed_over(cluster: ScriptedCluster) -> None:
    """A web server among the name servers breaks the connection, and the other is asked within the same call."""

    async def answer_as_a_web_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    web = await asyncio.start_server(answer_as_a_web_server, "127.0.0.1", 0)
    host, port = web.sockets[0].getsockname()
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    async with web:
        for _ in range(4):
            async with Producer("g", f"{host}:{port};{cluster.nameserver.address}") as producer:
                assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_producer_goes_on_while_one_name_server_lives(cluster: ScriptedCluster) -> None:
    """Of three one is alive: sends reach the brokers that it names; without it known routes are still good."""
    async with ScriptedServer("dead") as dead, ScriptedServer("dead too") as other:
        addresses = f"{dead.address};{cluster.nameserver.address};{other.address}"
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    async with Producer("g", addresses) as producer:
        await producer.send(Message("T", b"x"))
        await cluster.nameserver.close()
        await producer.send(Message("T", b"x"))
        with pytest.raises(RemotingError, match="cannot connect to"):
            await producer.send(Message("Unknown", b"x"))
