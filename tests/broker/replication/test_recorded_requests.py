"""Requests to an official master and slave of 5.4.0 that were recorded, asked again of ours (``vectors/ha``).

The topics and messages of the recording are made first. What cannot be the same is left out: times, versions,
addresses and ids, the order of tables, topics that only one of the two makes for itself, and a remark that only says
that there is none. Where ours answers otherwise on purpose, ``OTHERWISE`` says how.
"""

import asyncio
import pathlib
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from broker_pairs import Member, run_member, until_copied, until_equal
from raw_calls import RecordedCall, open_caller, recorded_calls

from rocketlet.broker.replication.slave_handlers import NOT_HERE, REJECTED
from rocketlet.common.ids import format_address
from rocketlet.common.java_json import read_json
from rocketlet.common.record import Record, iter_records
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

TOPIC, GROUP, END = "HaTopic", "CG", 18
OTHERWISE = {
    Code.UPDATE_AND_CREATE_TOPIC: (1, NOT_HERE),
    Code.DELETE_TOPIC_IN_BROKER: (1, NOT_HERE),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (1, NOT_HERE),
    Code.DELETE_SUBSCRIPTIONGROUP: (1, NOT_HERE),
    Code.POP_MESSAGE: (2, REJECTED),
}
OWN_FIELDS = {"timestamp", "topicSysFlag", "groupSysFlag", "indexLastUpdatePhyoffset", "indexLastUpdateTimestamp"}
OWN_VALUES = {"totalTopicNum", "totalGroupNum", "masterAddress", "masterHaAddress", "masterFlushOffset"}
NO_REMARK = ("", "not set any response code")


@pytest.fixture
async def master(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> AsyncGenerator[Member]:
    """Run a master with the topic of the recording."""
    async with run_member(tmp_path / "master", clock, nameserver.address) as member:
        await member.put_topic(TOPIC, 4)
        yield member


@pytest.fixture
async def slave(
    tmp_path: pathlib.Path, vectors: pathlib.Path, clock: ManualClock, nameserver: NameServer, master: Member
) -> AsyncGenerator[Member]:
    """Run a slave that has copied the messages of the recording."""
    for record in recorded_messages(vectors):
        properties = record.property_text.decode()
        await master.caller.send(TOPIC, bytes(record.body), properties=properties)
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1) as member:
        await until_equal(master, member)
        await until_copied(master, member, clock)
        yield member


def recorded_messages(vectors: pathlib.Path) -> list[Record]:
    """Return the messages that the recorded slave held."""
    pulls = [call for call in recorded_calls(vectors, "slave-requests", "ha") if call.request.code == Code.PULL_MESSAGE]
    found = [list(iter_records(call.answer.body)) for call in pulls if call.answer is not None and not call.answer.code]
    assert len(found[0]) == END
    return found[0]


def told(answer: Command) -> tuple[int, str | None, dict[str, str]]:
    """Return code, remark and fields of an answer, without what belongs to the broker alone."""
    remark = None if answer.remark in NO_REMARK else answer.remark
    ext = {name: "" if name in OWN_VALUES else value for name, value in answer.ext.items() if name not in OWN_FIELDS}
    return answer.code, remark, ext


def shape(value: Any) -> Any:
    """Return the keys of tables in tables, and what kind of value stands there."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in sorted(cast("dict[str, Any]", value).items())}
    return [shape(item) for item in cast("list[Any]", value)[:1]] if isinstance(value, list) else type(value).__name__


def content(code: int, body: bytes) -> Any:
    """Return what must be equal of a body."""
    if code in (Code.GET_BROKER_RUNTIME_INFO, Code.VIEW_MESSAGE_BY_ID):
        return bool(body)
    if code == Code.PULL_MESSAGE:
        return [(record.queue_offset, bytes(record.body)) for record in iter_records(body)]
    if code == Code.GET_TIMER_CHECK_POINT:
        return len(body), body[8:40]  # the last time, and the state of the version
    return content_of_table(code, cast("dict[str, Any]", read_json(body))) if body else None


def content_of_table(code: int, table: dict[str, Any]) -> Any:
    """Return what must be equal of a table."""
    if code == Code.GET_BROKER_HA_STATUS:
        return shape(table), table["master"], table["inSyncSlaveNums"]
    if code == Code.GET_ALL_TOPIC_CONFIG:
        return sorted(table), table["topicConfigTable"]["SELF_TEST_TOPIC"]
    if code == Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
        return sorted(table), table["subscriptionGroupTable"]["TOOLS_CONSUMER"]
    table.pop("dataVersion", None)
    if "offsetTable" in table:
        table["offsetTable"] = {name: queues.get("0") for name, queues in table["offsetTable"].items()}
    return table


async def ask(member: Member, call: RecordedCall, clock: ManualClock) -> Command:
    """Ask again what was asked; a pull that waits is answered when the broker has looked for it."""
    request = call.request
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(
            member.caller.ask(request.code, dict(request.ext), request.body, version=request.version)
        )
        if call.answer is not None and call.answer.remark == "OFFSET_OVERFLOW_ONE":
            await member.caller.ask(Code.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})  # it is held by now
            clock.advance(6_000)
    return asking.result()


@pytest.mark.feature("R14", "R15", "R19", "R20")
async def test_slave_answers_as_an_official_one(vectors: pathlib.Path, clock: ManualClock, slave: Member) -> None:
    """47 requests: refusals, reads with and without ``slaveReadEnable``, tables, offsets, locks, and how it stands."""
    seen = 0
    for call in recorded_calls(vectors, "slave-requests", "ha"):
        assert call.answer is not None
        answer, code = await ask(slave, call, clock), call.request.code
        seen += 1
        if code in OTHERWISE:
            assert (answer.code, answer.remark) == OTHERWISE[Code(code)]
            continue
        assert told(answer) == told(call.answer), call.request
        assert content(code, answer.body) == content(code, call.answer.body), call.request
    assert seen == 47


@pytest.mark.feature("R9", "R19", "R20")
async def test_master_answers_as_an_official_one(
    vectors: pathlib.Path, clock: ManualClock, master: Member, slave: Member
) -> None:
    """Requests of the members of its group and of ``mqadmin haStatus``, with a slave that has all of the log."""
    assert slave.broker is not master.broker
    await master.caller.ask(Code.GET_BROKER_HA_STATUS)  # the slave has said by now how far it is
    for call in recorded_calls(vectors, "master-requests", "ha"):
        assert call.answer is not None
        answer, code = await ask(master, call, clock), call.request.code
        assert told(answer) == told(call.answer), call.request
        assert content(code, answer.body) == content(code, call.answer.body), call.request


@pytest.mark.feature("R8", "R9")
async def test_an_official_slave_gets_its_tables(vectors: pathlib.Path, clock: ManualClock, master: Member) -> None:
    """What one asked its master in three minutes, at the ports where it asked."""
    host, port = master.broker.advertised.told
    seen: set[tuple[str, int]] = set()
    async with open_caller(format_address(host, port - 2)) as fast:
        members = {"master": master, "master-fast": Member(master.broker, fast)}
        for call in recorded_calls(vectors, "slave-to-master-remoting", "ha"):
            if call.answer is not None:
                answer, code = await ask(members[call.server], call, clock), call.request.code
                assert told(answer) == told(call.answer), call.request
                assert content(code, answer.body) == content(code, call.answer.body), call.request
                seen.add((call.server, code))
    assert seen == {
        *(("master-fast", code) for code in (21, 60, 61)),
        *(("master", code) for code in (43, 45, 201, 402)),
    }
