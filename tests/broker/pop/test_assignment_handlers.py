"""Which queues members read, by raw requests: the exchange that was recorded from Java's broker, and over restarts."""

import json
import pathlib
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from javastores import VECTORS
from raw_calls import Caller, open_caller, topic_header

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

EXCHANGES: list[dict[str, Any]] = json.loads((VECTORS / "pop/pop-assignment.json").read_text())["exchanges"]
TOPIC, GROUP = "QA376422", "QL376422"
MEMBERS_FROM = {"pull c0": range(3), "set POP share 1, 6 clients on 4 queues": range(3, 6)}
"""Before which exchange clients came."""


async def make_topic(caller: Caller) -> None:
    """Make the topic with its four queues."""
    fields = topic_header(TOPIC, "SimpleCQ") | {"readQueueNums": "4", "writeQueueNums": "4"}
    answer = await caller.ask(Code.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def query(caller: Caller, **changes: str) -> list[tuple[str, int, str]] | None:
    """Return what a client is told."""
    asked = {"clientId": "c0", "consumerGroup": GROUP, "messageModel": "CLUSTERING", "strategyName": "AVG"}
    return told(await caller.ask(Code.QUERY_ASSIGNMENT, None, json.dumps(asked | {"topic": TOPIC} | changes).encode()))


async def set_mode(caller: Caller, mode: str, share: int) -> Command:
    """Say how the group gets the messages."""
    body = {"consumerGroup": GROUP, "mode": mode, "popShareQueueNum": share, "topic": TOPIC}
    return await caller.ask(Code.SET_MESSAGE_REQUEST_MODE, None, json.dumps(body).encode())


def told(answer: Command) -> list[tuple[str, int, str]] | None:
    """Return the queues that an answer names, None when it says nothing."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return named(json.loads(answer.body))


def named(body: Mapping[str, Any]) -> list[tuple[str, int, str]] | None:
    """Return the queues of a body, with their mode."""
    assigned: list[dict[str, Any]] | None = body.get("messageQueueAssignments")
    if assigned is None:
        return None
    queues = [(each["messageQueue"], each["mode"]) for each in assigned]
    return sorted((queue["topic"], queue["queueId"], mode) for queue, mode in queues)


@pytest.mark.feature("O7")
async def test_assignments_are_those_of_java(broker: Broker, caller: Caller) -> None:
    """Each question and each setting, in the order of the recording."""
    await make_topic(caller)
    async with AsyncExitStack() as members:
        for exchange in EXCHANGES:
            for number in MEMBERS_FROM.get(exchange["name"], ()):
                member = await members.enter_async_context(open_caller(broker.address))
                await member.heartbeat(f"c{number}", GROUP, {TOPIC: "*"})
            answer = await caller.ask(exchange["code"], None, exchange["body"].encode())
            recorded = exchange["answer"]
            assert (answer.code, answer.remark) == (recorded["code"], recorded["remark"]), exchange["name"]
            if exchange["code"] == Code.QUERY_ASSIGNMENT:
                assert told(answer) == named(json.loads(recorded["body"])), exchange["name"]


@pytest.mark.feature("O7")
async def test_mode_outlives_a_kill(settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path) -> None:
    """It is on the disk, as Java writes it, when that is answered; slaves are told it."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await make_topic(caller)
        assert (await set_mode(caller, "POP", 0)).code == ResponseCode.SUCCESS
        shutil.copytree(settings["storePathRootDir"], tmp_path / "copy")
    saved = json.loads((tmp_path / "copy/config/messageRequestMode.json").read_text())
    mode = {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, "topic": TOPIC}
    assert saved == {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}
    settings["storePathRootDir"] = str(tmp_path / "copy")
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await caller.heartbeat("c0", GROUP, {TOPIC: "*"})
        assert await query(caller) == [(TOPIC, -1, "POP")]
        assert json.loads((await caller.ask(Code.GET_ALL_MESSAGE_REQUEST_MODE)).body) == saved


@pytest.mark.feature("O7")
async def test_queues_of_all_brokers_are_shared(
    settings: dict[str, str], broker: Broker, caller: Caller, clock: ManualClock, tmp_path: pathlib.Path
) -> None:
    """A broker asks the name server where a topic is, and goes by the answer for half a minute, and longer without."""
    await make_topic(caller)
    await caller.heartbeat("c0", GROUP, {TOPIC: "*"})
    assert len(await query(caller) or ()) == 4
    other = {**settings, "brokerName": "broker-b", "storePathRootDir": str(tmp_path / "other")}
    async with Broker(BrokerConfig.from_java(other), clock) as second, open_caller(second.address) as second_caller:
        await make_topic(second_caller)
        assert len(await query(caller) or ()) == 4
        clock.advance(30_000)
        assert len(await query(caller) or ()) == 8
        assert len(await query(caller, messageModel="BROADCASTING") or ()) == 8


async def test_broker_without_name_servers_shares_its_own_queues(settings: dict[str, str], clock: ManualClock) -> None:
    """It knows no others; what it does not know is nowhere."""
    own = {key: value for key, value in settings.items() if key != "namesrvAddr"}
    async with Broker(BrokerConfig.from_java(own), clock) as broker, open_caller(broker.address) as caller:
        await make_topic(caller)
        await caller.heartbeat("c0", GROUP, {TOPIC: "*"})
        assert len(await query(caller) or ()) == 4
        assert await query(caller, topic="NoSuch") is None


async def test_settings_of_who_gets_what(settings: dict[str, str], clock: ManualClock) -> None:
    """Without sharing each gets all; groups of which nothing was said may pop."""
    own = {**settings, "serverLoadBalancerEnable": "false", "defaultMessageRequestMode": "POP"}
    async with (
        Broker(BrokerConfig.from_java(own), clock) as broker,
        open_caller(broker.address) as caller,
        open_caller(broker.address) as other,
    ):
        await make_topic(caller)
        for number, member in enumerate((caller, other)):
            await member.heartbeat(f"c{number}", GROUP, {TOPIC: "*"})
        assert await query(caller) == [(TOPIC, queue_id, "POP") for queue_id in range(4)]
        await caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"serverLoadBalancerEnable=true\n")
        assert await query(caller) == [(TOPIC, -1, "POP")]
