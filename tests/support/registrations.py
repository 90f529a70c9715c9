"""What a broker registers at a name server, and routes, by raw requests."""

import json
from typing import Any

from raw_calls import Caller

from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

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
