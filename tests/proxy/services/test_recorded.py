"""What a proxy of 5.4.0 was asked, asked here: the same answers, or others for a reason."""

import json
import pathlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from grpc_calls import LocalPort, make_call
from grpc_recordings import load_exchanges, recorded_at_ms
from raw_calls import until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.topic.topics import MESSAGE_TYPE, make_topic
from rocketlet.common.metadata import SubscriptionGroupConfig
from rocketlet.common.names import PERM_READ, PERM_WRITE
from rocketlet.proxy.messages import v2
from rocketlet.testing.manual_clock import ManualClock

pytestmark = [pytest.mark.feature("G12"), pytest.mark.feature("G16")]

UNARY = {
    *("QueryRoute", "QueryAssignment", "Heartbeat", "NotifyClientTermination", "SendMessage", "RecallMessage"),
    "EndTransaction",
}
TOPICS = {  # by how the names of a recording begin: type, permission, queues to read and to write
    **dict.fromkeys(("SNormal", "EN", "FNormal", "VNormal"), ("NORMAL", 6, 4, 4)),
    **dict.fromkeys(("SFifo", "EF3", "VFifo"), ("FIFO", 6, 4, 4)),
    **dict.fromkeys(("SDelay", "ED", "FDelay", "VDelay"), ("DELAY", 6, 4, 4)),
    **dict.fromkeys(("ET", "FTran", "VTran"), ("TRANSACTION", 6, 4, 4)),
    **dict.fromkeys(("SMixed", "VMixed"), ("MIXED", 6, 4, 4)),
    **dict.fromkeys(("SPrio", "VPrio"), ("PRIORITY", 6, 4, 4)),
    "VUnspec": ("UNSPECIFIED", 6, 4, 4),
    "VNone": (None, 6, 4, 4),
    "ENoRead": ("NORMAL", PERM_WRITE, 4, 4),
    "ENoWrite": ("NORMAL", PERM_READ, 4, 4),
    "EW": ("NORMAL", 6, 4, 4),
    "VNoRead": ("NORMAL", PERM_WRITE, 2, 2),
    "VNoWrite": ("NORMAL", PERM_READ, 2, 2),
    "VNoPerm": ("NORMAL", 0, 2, 2),
    "VUneven": ("NORMAL", 6, 3, 2),
}
OTHERWISE = {
    "heartbeat without settings": "a client is known by its heartbeat alone, after a restart for one",
    "heartbeat after terminate": "the same",
    "heartbeat unknown language": "nothing depends on the language",
    "terminate unknown client": "nobody is refused to leave",
    "two messages": "each message has its entry, with its own id",
    "body digest wrong": "a digest that is there is looked at",
    "priority -1": "the text is ours",
    "commit 0 again": "an end that was taken is taken again, and nothing happens",
    "rollback of the committed": "the same",
    "route other endpoints": "clients are told the endpoints that they have asked at",
    "route without endpoints": "what is told is where the port is",
}


def normal(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without the name of a Java class, and without what the choice of a queue decides."""
    status = answer.get("status", {})
    if "message" in status:
        status["message"] = status["message"].removeprefix("org.apache.rocketmq.proxy.common.ProxyException: ")
    for entry in answer.get("entries", ()):
        entry.pop("offset", None)
    return answer


@asynccontextmanager
async def open_port(root: pathlib.Path, scenario: str) -> AsyncGenerator[LocalPort]:
    """Run a broker at the time of a recording, with its topics and settings."""
    exchanges = load_exchanges(scenario)
    settings = {
        "brokerName": "broker-a",
        "listenPort": "0",
        "storePathRootDir": str(root / "store"),
        "autoCreateTopicEnable": "false",
        "recallMessageEnable": "true",
        "transactionTimeOut": "3000",
        "mappedFileSizeCommitLog": "16777216",
    }
    async with Broker(BrokerConfig.from_java(settings), ManualClock(recorded_at_ms(exchanges[1]))) as broker:
        port = LocalPort(broker)
        for name in sorted(set(names_in(exchanges))):
            add_topic(port, name)
        port.operations.groups.put(SubscriptionGroupConfig(group_name="GFifo", consume_message_orderly=True))
        yield port


def names_in(value: Any) -> list[str]:
    """Return the names of the topics in a recording."""
    return re.findall(r'"topic": \{[^{}]*"name": "([^"]+)"', json.dumps(value))


def add_topic(port: LocalPort, name: str) -> None:
    """Create a topic as it was when the recording was made."""
    begin = max((begin for begin in TOPICS if name.startswith(begin)), key=len, default=None)
    if begin is None:
        return
    kind, permission, reads, writes = TOPICS[begin]
    topic = make_topic(name, reads, permission)
    topic.write_queue_nums = writes
    topic.attributes = {} if kind is None else {MESSAGE_TYPE: kind}
    port.operations.topics.put(topic)


@pytest.mark.parametrize("scenario", ["errors", "send", "transaction", "recall", "query-route", "telemetry-producer"])
async def test_answers_are_those_of_the_proxy(scenario: str, tmp_path: pathlib.Path) -> None:
    """Each answer has the code, the text and the fields that the proxy's has, but for those that are listed."""
    differ: dict[str, tuple[Any, Any]] = {}
    asked: set[str] = set()
    async with open_port(tmp_path, scenario) as port:
        for exchange in load_exchanges(scenario):
            if exchange.get("method") not in UNARY or exchange["requestHex"].startswith("<"):
                continue
            name, method = exchange["name"], exchange["method"]
            call = port.start(method, bytes.fromhex(exchange["requestHex"]), make_call(exchange["metadata"]))
            await until(lambda call=call: call.status is not None)
            assert call.status is not None
            if exchange["grpcStatus"] != "OK":
                assert call.status.name == exchange["grpcStatus"]
                continue
            kind: type[Message] = getattr(v2, f"{method}Response")
            ours = json_format.MessageToDict(call.one_answer(kind), preserving_proto_field_name=True)
            theirs = exchange["responses"][0]["json"]
            asked.add(name)
            if normal(ours) != normal(theirs):
                differ[name] = ours, theirs
    surprising = {name: pair for name, pair in differ.items() if name not in OTHERWISE}
    assert surprising == {}, json.dumps(surprising, indent=1)
    assert asked.intersection(OTHERWISE) == differ.keys()
