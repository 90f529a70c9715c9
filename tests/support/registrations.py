"""What a broker registers at a name server, and routes, by raw requests."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from raw_calls import Caller, open_caller

from rocketlet.common.clock import Clock
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import format_address
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.server import RemotingServer

BROKER: dict[str, Any] = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "brokerId": "0"}
OTHER: dict[str, Any] = {"brokerName": "broker-b", "brokerAddr": "10.0.0.3:10911"}
SLAVE: dict[str, Any] = {"brokerAddr": "10.0.0.2:10911", "brokerId": "1"}
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 5}
LATER_VERSION = {**VERSION, "counter": 2}


def registration_body(*topics: str, version: dict[str, int] = VERSION, flag: int = 0) -> bytes:
    """Return what a broker registers; each topic has four queues."""
    shape = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": flag}
    table = {topic: {"topicName": topic, **shape} for topic in topics}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()


async def register(caller: Caller, *topics: str, version: dict[str, int] = VERSION, **fields: Any) -> Command:
    """Register a broker with two topics unless others are named."""
    flag = fields.pop("flag", 0)
    header = {**BROKER, "haServerAddr": "10.0.0.1:10912", "compressed": "false", "bodyCrc32": "0", **fields}
    body = registration_body(*(topics or ("T", "U")), version=version, flag=flag)
    return await caller.ask(RequestCode.REGISTER_BROKER, header, body)


async def route(caller: Caller, topic: str = "T", **changes: Any) -> Command:
    """Ask where a topic is."""
    return await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, **changes)


async def route_body(caller: Caller, topic: str = "T", **fields: str) -> dict[str, Any] | None:
    """Return the route of a topic, None when there is none; fields are those of the request."""
    answer = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **fields})
    return json.loads(answer.body) if answer.body else None


async def route_at(address: str, topic: str = "TBW102") -> Command:
    """Ask a name server where a topic is, on a connection of its own."""
    async with open_caller(address) as caller:
        return await route(caller, topic)


async def until_known(address: str, topic: str) -> None:
    """Wait until a name server has a route; the answers to us let the broker's requests come in between."""
    async with open_caller(address) as caller:
        while (await route(caller, topic)).code != ResponseCode.SUCCESS:
            pass


async def topics_known(address: str) -> set[str]:
    """Return the topics that a name server has routes for."""
    async with open_caller(address) as caller:
        answer = await caller.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return set(json.loads(answer.body)["topicList"])


@dataclass
class SilentNameServer:
    """A server that takes requests and never answers."""

    address: str
    asked: list[Command]


@asynccontextmanager
async def silent_name_server(clock: Clock) -> AsyncGenerator[SilentNameServer]:
    """Run a server that never answers."""
    asked: list[Command] = []

    def owe(command: Command, _connection: Connection) -> Outcome[Command]:
        asked.append(command)
        return Outcome[Command]()

    async with RemotingServer("127.0.0.1", 0, RequestHandlers(fallback=owe), clock) as server:
        yield SilentNameServer(format_address(*server.address), asked)
