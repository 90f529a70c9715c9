"""A slave that acts as master while its master is gone: whole brokers, and what an official pair answered."""

import json
import logging
import pathlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from broker_pairs import Member, passing_time, run_member, until_copied, until_equal, until_so
from raw_calls import Caller, open_caller, recorded_calls, send_header, until

from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import format_address
from rocketlet.common.java_json import read_json
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import BrokerMemberGroupBody, TopicRouteData
from rocketlet.remoting.codec.command import ONEWAY, Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing.manual_clock import ManualClock

Start = Callable[..., AbstractAsyncContextManager[Member]]
QUEUE = {"topic": "T", "queueId": "0"}
ACTING = {"enableSlaveActingMaster": "true"}
DELAYED = "DELAY\x011\x02"


@pytest.fixture
async def nameserver(clock: ManualClock) -> AsyncGenerator[NameServer]:
    """Run a name server that shows acting masters."""
    config = NameServerConfig.from_java({"listenPort": "0", "supportActingMaster": "true"})
    async with NameServer(config, clock) as server:
        yield server


@pytest.fixture
def start(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> Start:
    """Return a call that runs a broker of the group by its number, with a store of that number."""

    def run(number: int, **settings: str) -> AbstractAsyncContextManager[Member]:
        root = tmp_path / f"store-{number}"
        return run_member(root, clock, nameserver.address, number, **{**ACTING, **settings})

    return run


@pytest.fixture
async def names(nameserver: NameServer) -> AsyncGenerator[Caller]:
    """Return a connection to the name server."""
    async with open_caller(nameserver.address) as caller:
        yield caller


async def fill(master: Member) -> None:
    """Make a topic of one queue with two messages, and groups."""
    await master.put_topic("T", 1)
    for group in ("ahead", "behind", "new"):
        await master.put_group(group)
    for _ in range(2):
        assert (await master.caller.send("T")).code == 0


async def until_level(master: Member, slave: Member, clock: ManualClock) -> None:
    """Wait until a slave has the tables and the log of its master."""
    await until_equal(master, slave)
    await until_copied(master, slave, clock)


async def until_served(slave: Member) -> None:
    """Wait until a slave serves readers, as it does without a master only."""

    async def is_served() -> bool:
        return (await slave.caller.pull("T")).code != ResponseCode.SYSTEM_BUSY

    await until_so(is_served)


async def shown_route(names: Caller) -> tuple[dict[int, str], int]:
    """Return the addresses that a name server shows for the topic, and what may be done there."""
    answer = await names.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    route = decode_body(TopicRouteData, answer.body)
    return route.broker_datas[0].broker_addrs, route.queue_datas[0].perm


async def members(names: Caller) -> dict[int, str]:
    """Return the addresses of the group by their true numbers."""
    header = {"clusterName": "ha-cluster", "brokerName": "ha-broker"}
    answer = await names.ask(Code.GET_BROKER_MEMBER_GROUP, header)
    return decode_body(BrokerMemberGroupBody, answer.body).broker_member_group.broker_addrs


@pytest.mark.feature("R22", "N25")
@pytest.mark.parametrize("as_before_5", ["true", "false"])
async def test_slave_acts_until_its_master_is_back(
    start: Start, clock: ManualClock, names: Caller, caplog: pytest.LogCaptureFixture, as_before_5: str
) -> None:
    """Within seconds it is shown as one to be read from, serves readers, and sends them home when the master is back.

    It serves them though ``slaveReadEnable`` is not set. All that time it stands under its own number in the group.
    """
    caplog.set_level(logging.INFO)
    asked = {"compatibleWithOldNameSrv": as_before_5}
    async with passing_time(clock), AsyncExitStack() as stack:
        async with start(0, **asked) as master:
            await fill(master)
            slave = await stack.enter_async_context(start(1, **asked))
            await until_level(master, slave, clock)
            assert (await slave.caller.pull("T")).code == 2
            assert await shown_route(names) == ({0: master.broker.address, 1: slave.broker.address}, 6)
            port = master.broker.address.rpartition(":")[2]
        await until_served(slave)
        assert await shown_route(names) == ({0: slave.broker.address}, 4)
        assert await members(names) == {1: slave.broker.address}
        assert "broker ha-broker-1 acts as master, to be read from" in caplog.messages
        async with start(0, **asked, listenPort=port) as master:

            async def is_refused() -> bool:
                return (await slave.caller.pull("T")).code == 2

            await until_so(is_refused)
            assert await shown_route(names) == ({0: master.broker.address, 1: slave.broker.address}, 6)
            assert "broker ha-broker-1 acts as master no more: number 0 is there" in caplog.messages
            assert (await master.caller.send("T")).code == 0
            await until_copied(master, slave, clock)


@pytest.mark.feature("R22")
async def test_answers_are_those_of_an_official_acting_master(
    start: Start, clock: ManualClock, vectors: pathlib.Path
) -> None:
    """Sends get 14, what could not be consumed 1; offsets are stored, queues locked, messages found."""
    recorded = {row["note"]: row for row in json.loads((vectors / "ha" / "truth-ha3.json").read_text())}
    async with passing_time(clock), AsyncExitStack() as stack:
        async with start(0) as master:
            await fill(master)
            slave = await stack.enter_async_context(start(1))
            await until_level(master, slave, clock)
        await until_served(slave)
        end, caller = slave.broker.store.log_max_offset, slave.caller
        sent, theirs = await caller.send("T"), recorded["acting: send"]
        assert (sent.code, sent.ext) == (theirs["code"], theirs["ext"])
        assert sent.remark is not None
        assert sent.remark.partition(".")[0] == theirs["remark"].partition(".")[0]
        assert sent.remark.endswith("messages are put to the slave, message store has been shut down, etc.")
        back, theirs = await caller.ask(Code.CONSUMER_SEND_MSG_BACK, {}), recorded["acting: send back"]
        assert (back.code, back.remark) == (theirs["code"], theirs["remark"])
        committed = await slave.commit("new", "T", 0, 2)
        assert committed.code == recorded["acting: commit offset"]["code"]
        asked = await caller.ask(Code.QUERY_CONSUMER_OFFSET, {"consumerGroup": "new", **QUEUE})
        assert asked.ext == {"offset": "2"}
        queue = {"topic": "T", "brokerName": "ha-broker", "queueId": 0}
        body = json.dumps({"consumerGroup": "G", "clientId": "c", "mqSet": [queue]}).encode()
        locked = await caller.ask(Code.LOCK_BATCH_MQ, None, body)
        assert [each["queueId"] for each in read_json(locked.body)["lockOKMQSet"]] == [0]
        assert slave.broker.store.log_max_offset == end


class RecordingNameServer:
    """Answers a broker that it is alone, and keeps what it is told."""

    def __init__(self) -> None:
        self.told: dict[int, Command] = {}

    def answer(self, command: Command, _connection: Connection) -> Command:
        """Keep a request."""
        self.told[command.code] = command
        return Command.response(17 if command.code == Code.GET_ROUTEINFO_BY_TOPIC else 0)


@pytest.mark.feature("R22")
@pytest.mark.parametrize("as_before_5", ["true", "false"])
async def test_name_servers_are_told_what_official_members_tell(
    tmp_path: pathlib.Path, vectors: pathlib.Path, clock: ManualClock, as_before_5: str
) -> None:
    """That slaves may act, after how long a silence it is gone, that it is alive, and who else is there."""
    recorded = {call.request.code: call.request for call in recorded_calls(vectors, "acting-master-namesrv", "ha")}
    names = RecordingNameServer()
    others = {Code.BROKER_HEARTBEAT, Code.GET_BROKER_MEMBER_GROUP}
    codes = {Code.QUERY_DATA_VERSION, Code.GET_ROUTEINFO_BY_TOPIC} if as_before_5 == "true" else others
    settings = {**ACTING, "compatibleWithOldNameSrv": as_before_5}
    async with RemotingServer("127.0.0.1", 0, RequestHandlers(fallback=names.answer), LoopClock()) as server:
        address = format_address(*server.address)
        async with passing_time(clock), run_member(tmp_path / "store", clock, address, 0, **settings) as master:
            await until(lambda: codes <= names.told.keys())
            place = master.broker.address
    own = {"brokerAddr": place, "haServerAddr": "", "bodyCrc32": "", "compressed": "", "brokerId": "0"}
    for code in {Code.REGISTER_BROKER, *codes} - others:
        ours, theirs = names.told[code], recorded[code]
        assert {**theirs.ext, **own}.items() <= {**ours.ext, **own}.items()
        assert ours.flag == theirs.flag
    if as_before_5 == "true":
        sign = names.told[Code.QUERY_DATA_VERSION]
        assert sign.ext["brokerAddr"] == place
        assert read_json(sign.body).keys() == read_json(recorded[Code.QUERY_DATA_VERSION].body).keys()
    else:
        identity = {"clusterName": "ha-cluster", "brokerName": "ha-broker"}
        sign, asked = names.told[Code.BROKER_HEARTBEAT], names.told[Code.GET_BROKER_MEMBER_GROUP]
        assert (sign.ext, sign.flag, asked.ext) == ({**identity, "brokerAddr": place}, ONEWAY, identity)


@pytest.mark.feature("R22")
async def test_progress_at_the_acting_slave_is_that_of_the_restarted_master(start: Start, clock: ManualClock) -> None:
    """A group goes on where it was at the slave; one that is further at the master stays there."""
    group = {"totalReplicas": "2"}
    async with passing_time(clock), AsyncExitStack() as stack:
        async with start(0, **group) as master:
            await fill(master)
            await master.commit("behind", "T", 0, 1)
            slave = await stack.enter_async_context(start(1, **group))
            await until_level(master, slave, clock)
            await master.commit("ahead", "T", 0, 2)
            port = master.broker.address.rpartition(":")[2]
        await until_served(slave)
        for name, offset in (("behind", 2), ("ahead", 1), ("new", 1)):
            assert (await slave.commit(name, "T", 0, offset)).code == 0
        async with start(0, **group, listenPort=port) as master:

            async def committed(name: str) -> str | None:
                answer = await master.caller.ask(Code.QUERY_CONSUMER_OFFSET, {"consumerGroup": name, **QUEUE})
                return answer.ext.get("offset")

            async def is_level() -> bool:
                return await committed("behind") == "2"

            await until_so(is_level)
            assert [await committed(name) for name in ("behind", "ahead", "new")] == ["2", "2", "1"]
            await until_copied(master, slave, clock)


@pytest.mark.feature("R22")
async def test_nothing_is_delivered_without_the_master(start: Start, clock: ManualClock) -> None:
    """Delayed messages wait for the master, which delivers each of them once, however long it was away."""
    group = {"totalReplicas": "2", "messageDelayLevel": "5m", "brokerNotActiveTimeoutMillis": "3600000"}
    async with passing_time(clock), AsyncExitStack() as stack:
        async with start(0, **group) as master:
            await fill(master)
            slave = await stack.enter_async_context(start(1, **group))
            for _ in range(3):
                await master.caller.send("T", properties=DELAYED)
            await until_level(master, slave, clock)
            port = master.broker.address.rpartition(":")[2]
        await until_served(slave)
        clock.advance(360_000)
        async with open_caller(slave.broker.address) as caller:  # who has said nothing for so long is gone
            for _ in range(10):
                assert (await caller.ask(Code.GET_MAX_OFFSET, QUEUE)).ext == {"offset": "2"}
        async with start(0, **group, listenPort=port) as master:

            async def are_delivered() -> bool:
                await master.caller.ask(Code.GET_MAX_OFFSET, QUEUE)
                return master.broker.store.max_offset("T", 0) >= 5

            await until_so(are_delivered)
            await until_copied(master, slave, clock)
            assert master.broker.store.max_offset("T", 0) == slave.broker.store.max_offset("T", 0) == 5


async def test_master_waits_for_its_slave(
    start: Start, clock: ManualClock, names: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in no route before the slave copies its log again, unless it is told not to wait."""
    group = {"totalReplicas": "2"}
    async with passing_time(clock), AsyncExitStack() as stack:
        async with start(0, **group) as master:
            await fill(master)
            slave = await stack.enter_async_context(start(1, **group, haMasterAddress="127.0.0.1:9"))
            await until_equal(master, slave)
        await until_served(slave)
        async with start(0, **group) as master:
            why = f"not online yet: slave 1 at {slave.broker.address} does not copy the log of this broker"

            async def is_told() -> bool:
                await members(names)
                return why in caplog.messages

            await until_so(is_told)
            assert await members(names) == {1: slave.broker.address}
        async with start(0, **group, skipPreOnline="true") as master:
            assert await members(names) == {0: master.broker.address, 1: slave.broker.address}


async def test_master_without_name_servers_waits_for_nobody(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    """With some it waits until one of them says who is there."""
    group = {**ACTING, "totalReplicas": "2", "messageDelayLevel": "1s"}
    async with passing_time(clock), run_member(tmp_path / "store", clock, "", 0, **group) as master:
        await master.put_topic("T", 1)
        await master.caller.send("T", properties=DELAYED)
        await until(lambda: master.broker.store.max_offset("T", 0) == 1)
    async with passing_time(clock), run_member(tmp_path / "store", clock, "127.0.0.1:9", 0, **group) as master:
        await master.caller.send("T", properties=DELAYED)
        late_ms = clock.monotonic_ms() + 5_000
        await until(lambda: clock.monotonic_ms() > late_ms)
        assert master.broker.store.max_offset("T", 0) == 1


async def test_slave_waits_for_the_log_of_its_master(start: Start, clock: ManualClock, names: Caller) -> None:
    """It is in no route before it copies; without a master it is there at once."""
    group = {"totalReplicas": "2"}
    async with passing_time(clock):
        async with start(1, **group) as slave:
            assert await members(names) == {1: slave.broker.address}
        async with start(0, **group) as master:
            async with start(1, **group, haMasterAddress="127.0.0.1:9"):
                assert await members(names) == {0: master.broker.address}
            async with start(1, **group) as slave:

                async def is_there() -> bool:
                    return len(await members(names)) == 2

                await until_so(is_there)
                assert len(master.broker.slaves) == 1


async def test_second_slave_does_not_act(start: Start, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """The one with the least number does; the other one serves readers as well."""
    async with passing_time(clock), AsyncExitStack() as stack:
        async with start(0) as master:
            await fill(master)
            slaves = [await stack.enter_async_context(start(number)) for number in (1, 2)]
            for slave in slaves:
                await until_level(master, slave, clock)
        for slave in slaves:
            await until_served(slave)
    assert [text for text in caplog.messages if "acts as master" in text] == [
        "broker ha-broker-1 acts as master, to be read from"
    ]


@pytest.mark.feature("R23")
async def test_message_that_needs_more_replicas_is_not_written(
    start: Start, clock: ManualClock, vectors: pathlib.Path
) -> None:
    """It is refused while fewer are in sync than it needs; what does not wait for slaves is taken."""
    recorded = {row["note"]: row for row in json.loads((vectors / "ha" / "truth-ha3.json").read_text())}
    theirs = recorded["inSync 2, alone: send"]
    async with passing_time(clock), start(0, brokerRole="SYNC_MASTER", inSyncReplicas="2") as master:
        await master.put_topic("T", 1)
        batch = encode_batch([BatchPart(0, b"a", b""), BatchPart(0, b"b", b"")])
        for header, body in ((send_header("T"), b"one"), (send_header("T", batch=True), batch)):
            answer = await master.caller.ask(Code.SEND_MESSAGE_V2, header, body)
            assert (answer.code, answer.remark, answer.ext) == (theirs["code"], theirs["remark"], theirs["ext"])
        assert (await master.caller.send("T", properties="WAIT\x01false\x02")).code == 0
        assert master.broker.store.max_offset("T", 0) == 1
        async with start(1) as slave:

            async def is_taken() -> bool:
                return (await master.caller.send("T")).code == 0

            await until_so(is_taken)
            assert slave.broker.store.max_offset("T", 0) >= 1


@pytest.mark.feature("R23")
async def test_needed_replicas_are_those_that_are_there(start: Start, clock: ManualClock) -> None:
    """With ``enableAutoInSyncReplicas`` a message needs no more than are in sync, but ``minInSyncReplicas``."""
    sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "enableAutoInSyncReplicas": "true"}
    async with passing_time(clock), start(0, **sync) as master:
        await master.put_topic("T", 1)
        assert (await master.caller.send("T")).code == 0
        await master.caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"minInSyncReplicas=2")
        for properties in ("", "UNIQ_KEY\x01K"):  # the second one goes the short way
            answer = await master.caller.send("T", properties=properties)
            assert answer.remark == "in-sync replicas not enough"
        await master.caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"minInSyncReplicas=1\ninSyncReplicas=3")
        async with start(1) as slave:
            await until_level(master, slave, clock)
            assert (await master.caller.send("T")).code == 0
            await until_copied(master, slave, clock)
