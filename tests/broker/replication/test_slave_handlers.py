"""What a slave answers otherwise than a master; the recorded answers of an official one are in another module."""

import asyncio
import json
import pathlib
from collections.abc import AsyncGenerator, Mapping

import pytest
from broker_pairs import Member, run_member, until_copied, until_equal
from raw_calls import pull_header, send_header

from rocketlet.broker.replication.slave_handlers import NOT_HERE, NOT_READY, REJECTED
from rocketlet.broker.replication.slave_link import GATHER_MS
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

SEND = {"producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0"}
RECALL = {"topic": "T", "recallHandle": "x"}


@pytest.fixture
async def master(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> AsyncGenerator[Member]:
    """Run a master with two messages in a topic."""
    async with run_member(tmp_path / "master", clock, nameserver.address) as member:
        await member.put_topic("T", 1)
        for _ in range(2):
            await member.caller.send("T")
        yield member


@pytest.fixture
async def slave(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, master: Member
) -> AsyncGenerator[Member]:
    """Run a slave that has both."""
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1) as member:
        await until_equal(master, member)
        await until_copied(master, member, clock)
        yield member


@pytest.mark.feature("R14")
@pytest.mark.parametrize(
    ("code", "fields", "answered", "remark"),
    [
        (Code.SEND_MESSAGE, {}, 2, REJECTED),
        (Code.SEND_MESSAGE_V2, {}, 2, REJECTED),
        (Code.SEND_BATCH_MESSAGE, {}, 2, REJECTED),
        (Code.CONSUMER_SEND_MSG_BACK, {}, 2, REJECTED),
        (Code.SEND_REPLY_MESSAGE_V2, {}, 2, REJECTED),
        (Code.PULL_MESSAGE, {}, 2, REJECTED),
        (Code.LITE_PULL_MESSAGE, {}, 2, REJECTED),
        (Code.END_TRANSACTION, {}, 11, None),
        (Code.RECALL_MESSAGE, RECALL, 16, "recall failed, operation is forbidden"),
        (Code.RESUME_CHECK_HALF_MESSAGE, {}, 1, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."),
        (Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, 1, NOT_HERE),
        (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, 1, NOT_HERE),
        (Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "G", "topic": "T", "readable": "false"}, 1, NOT_HERE),
        (Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "G", "topic": "T"}, 0, None),
        (Code.INVOKE_BROKER_TO_RESET_OFFSET, {}, 1, "Can not reset offset in slave broker"),
    ],
)
async def test_refusals(
    slave: Member, code: Code, fields: Mapping[str, str], answered: int, remark: str | None
) -> None:
    """They come before anything that is wrong with the request, and nothing is written."""
    end = slave.broker.store.log_max_offset
    answer = await slave.caller.ask(code, fields)
    assert (answer.code, answer.remark) == (answered, remark)
    assert slave.broker.store.log_max_offset == end


async def test_recalls_where_they_are_allowed(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """A slave says that its service is not available, and names the region as to every recall."""
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1, recallMessageEnable="true") as slave:
        answer = await slave.caller.ask(Code.RECALL_MESSAGE, RECALL)
    assert (answer.code, answer.remark) == (11, "recall failed, broker service not available")
    assert answer.ext == {"MSG_REGION": "DefaultRegion"}


@pytest.mark.feature("R15")
async def test_reads_begin_with_the_setting(slave: Member) -> None:
    """It may be set while the slave runs; what is found is suggested to be read at the broker of the group."""
    assert (await slave.caller.pull("T")).code == 2
    await slave.caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"slaveReadEnable=true")
    answer = await slave.caller.pull("T")
    assert (answer.code, answer.remark, answer.ext["suggestWhichBrokerId"]) == (0, "FOUND", "0")


@pytest.mark.feature("R15")
@pytest.mark.parametrize(("setting", "answered", "next_offset"), [("false", 20, "9"), ("true", 21, "2")])
async def test_outside_of_a_queue(slave: Member, setting: str, answered: int, next_offset: str) -> None:
    """The slave may lag, so that the offset is left as it is, unless ``offsetCheckInSlave`` is set."""
    settings = f"slaveReadEnable=true\noffsetCheckInSlave={setting}".encode()
    await slave.caller.ask(Code.UPDATE_BROKER_CONFIG, None, settings)
    answer = await slave.caller.pull("T", 9)
    assert (answer.code, answer.remark) == (answered, "OFFSET_OVERFLOW_BADLY")
    assert answer.ext["nextBeginOffset"] == next_offset


@pytest.mark.feature("R15")
async def test_a_pull_waits_for_what_is_copied(master: Member, slave: Member, clock: ManualClock) -> None:
    """A held pull is answered as soon as the record is readable here."""
    await slave.caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"slaveReadEnable=true")
    async with asyncio.TaskGroup() as tasks:
        pulling = tasks.create_task(slave.caller.ask(Code.PULL_MESSAGE, pull_header("T", 2, sys_flag=6)))
        await slave.caller.ask(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})  # it is held by now
        assert not pulling.done()
        await master.caller.send("T", b"third")
        clock.advance(GATHER_MS)
    answer = pulling.result()
    assert (answer.code, b"third" in answer.body) == (0, True)


async def test_reads_without_the_master(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> None:
    """When no name server knows the master, consumers are served though ``slaveReadEnable`` is not set."""
    async with run_member(tmp_path / "master", clock, nameserver.address) as master:
        await master.put_topic("T", 1)
        await master.caller.send("T")
        async with run_member(tmp_path / "slave", clock, nameserver.address, 1) as slave:
            await until_equal(master, slave)
            await until_copied(master, slave, clock)
            assert (await slave.caller.pull("T")).code == 2
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1) as slave:
        assert (await slave.caller.pull("T")).remark == "FOUND"
        assert (await slave.caller.ask(Code.SEND_MESSAGE_V2, send_header("T"), b"x")).code == 2
        header = {"consumerGroup": "consumers", "topic": "T", "queueId": "0", "commitOffset": "1"}
        assert (await slave.caller.ask(Code.UPDATE_CONSUMER_OFFSET, header)).code == 0
        assert (await slave.caller.ask(Code.QUERY_CONSUMER_OFFSET, header)).ext == {"offset": "1"}


async def test_what_may_come_is_not_denied(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> None:
    """Without the tables of its master a slave is not ready: for topics, groups and offsets that it does not know."""
    settings = {"slaveReadEnable": "true", "autoCreateSubscriptionGroup": "false"}
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1, **settings) as slave:
        for group in ("G", "TOOLS_CONSUMER"):
            answer = await slave.caller.pull("T", consumer_group=group)
            assert (answer.code, answer.remark) == (14, NOT_READY)
        offset = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}
        for code in (Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET):
            assert (await slave.caller.ask(code, offset)).code == 14


@pytest.mark.feature("R20")
async def test_what_members_tell_a_slave(slave: Member) -> None:
    """It copies from where a master says (906), and keeps what administrators say of the master's flush (908)."""
    addresses = {"masterHaAddress": "192.0.2.1:10912", "masterFlushOffset": "7", "masterAddress": "192.0.2.1:10911"}
    answer = await slave.caller.ask(Code.EXCHANGE_BROKER_HA_INFO, addresses)
    assert (answer.code, answer.ext) == (0, {})
    await slave.caller.ask(Code.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "5"})
    status = json.loads((await slave.caller.ask(Code.GET_BROKER_HA_STATUS)).body)
    client = status["haClientRuntimeInfo"]
    assert (client["masterAddr"], client["masterFlushOffset"]) == ("192.0.2.1:10912", 5)
    assert client["maxOffset"] == slave.broker.store.log_max_offset


@pytest.mark.feature("R20")
async def test_what_a_master_tells(master: Member) -> None:
    """906 without an address is answered with its own; the end is that of the start. With one it is told nothing."""
    host, port = master.broker.advertised.told
    answer = await master.caller.ask(Code.EXCHANGE_BROKER_HA_INFO, {})
    assert answer.ext == {
        "masterHaAddress": f"{host}:{port + 1}",
        "masterFlushOffset": "0",
        "masterAddress": f"{host}:{port}",
    }
    assert (await master.caller.ask(Code.EXCHANGE_BROKER_HA_INFO, {"masterHaAddress": "192.0.2.1:10912"})).ext == {}
    assert (await master.caller.ask(Code.RESET_MASTER_FLUSH_OFFSET, {})).code == 0


@pytest.mark.feature("R19")
async def test_both_tell_how_they_stand(master: Member, slave: Member) -> None:
    """The master lists the slave with the whole log, the slave its master."""
    end = master.broker.store.log_max_offset
    told = json.loads((await master.caller.ask(Code.GET_BROKER_HA_STATUS)).body)
    (one,) = told["haConnectionInfo"]
    assert (one["diff"], one["slaveAckOffset"], one["transferFromWhere"], one["inSync"]) == (0, end, end, True)
    assert (told["master"], told["inSyncSlaveNums"], told["masterCommitLogMaxOffset"]) == (True, 1, end)
    told = json.loads((await slave.caller.ask(Code.GET_BROKER_HA_STATUS)).body)
    host, port = master.broker.advertised.told
    assert (told["master"], told["haClientRuntimeInfo"]["masterAddr"]) == (False, f"{host}:{port + 1}")
    assert told["haClientRuntimeInfo"]["lastReadTimestamp"] >= 1_700_000_000_000
