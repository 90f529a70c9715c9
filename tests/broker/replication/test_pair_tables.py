"""The tables of a master at its slave: both are ours, with a name server, under a clock that the test moves."""

import json
import pathlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
from broker_pairs import Member, pass_ms, run_member, until_copied, until_equal, until_so
from raw_calls import open_caller, send_header, topic_header
from replica_pair import replica_pair

from rocketlet.broker.replication.table_copy import SOON_MS
from rocketlet.common.ids import format_address
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.store.timer.timer_check import decode_timer_check
from rocketlet.testing.manual_clock import ManualClock

REGISTER_MS = 31_000
PERIOD_MS = 66_000
"""So that a copy has come: its rounds end a little later than they should in steps."""


@pytest.fixture
async def master(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> AsyncGenerator[Member]:
    """Run a master with a topic, a group and an offset."""
    async with run_member(tmp_path / "master", clock, nameserver.address) as member:
        await member.put_topic("T", 4)
        await member.put_group("G")
        await member.commit("G", "T", 1, 7)
        yield member


@pytest.fixture
async def slave(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, master: Member
) -> AsyncGenerator[Member]:
    """Run a slave that consumers may read."""
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1, slaveReadEnable="true") as member:
        await until_equal(master, member)
        await until_so(lambda: has_slave(master))  # before a test moves time: no question may be late by that
        yield member


@pytest.mark.feature("H2", "R8", "R9", "R10")
async def test_tables_are_equal_after_one_copy(master: Member, slave: Member) -> None:
    """The first copy needs no time to pass; contents and versions are those of the master, settings of groups too."""
    topics, groups, offsets = await slave.tables()
    assert topics["topicConfigTable"]["T"]["writeQueueNums"] == 4
    assert "G" in groups["subscriptionGroupTable"]
    assert offsets["offsetTable"]["T@G"] == {"1": 7}
    for code in (Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_TIMER_METRICS):
        assert await slave.table(code) == await master.table(code)


@pytest.mark.feature("R10")
async def test_what_is_removed_at_the_master_vanishes_within_a_minute(
    master: Member, slave: Member, clock: ManualClock
) -> None:
    """Topics with their queues, groups, and the offsets of both."""
    await master.caller.send("T", queue_id=1)
    await until_copied(master, slave, clock)
    assert slave.broker.store.max_offset("T", 1) == 1
    for code, header in (
        (Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"}),
    ):
        assert (await master.caller.ask(code, header)).code == 0
    await pass_ms(clock, PERIOD_MS, master, slave)
    await until_equal(master, slave)
    topics, groups, offsets = await slave.tables()
    assert "T" not in topics["topicConfigTable"]
    assert "G" not in groups["subscriptionGroupTable"]
    assert offsets["offsetTable"] == {}

    async def has_no_queue() -> bool:
        return slave.broker.store.max_offset("T", 1) == 0

    await until_so(has_no_queue)


async def test_more_topics_than_a_page_holds(master: Member, slave: Member, clock: ManualClock) -> None:
    """A slave asks page by page; each topic and each group comes over."""
    topics = [{"topicName": f"many-{number}", "readQueueNums": 1, "writeQueueNums": 1} for number in range(4_096)]
    body = json.dumps({"topicConfigList": topics}).encode()
    assert (await master.caller.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, body)).code == 0
    groups = [{"groupName": f"many-{number}"} for number in range(2_500)]
    body = json.dumps({"groupConfigList": groups}).encode()
    assert (await master.caller.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)).code == 0
    await pass_ms(clock, PERIOD_MS, master, slave)
    await until_equal(master, slave)
    found, found_groups, _ = await slave.tables()
    assert len(found["topicConfigTable"]) > 4_096
    assert len(found_groups["subscriptionGroupTable"]) > 2_500


@pytest.mark.feature("R9")
async def test_pages_are_cut_in_the_order_of_names(master: Member) -> None:
    """A page of another version begins at the first name; who asks for nothing in particular gets all."""
    for name in ("A1", "A2", "A3"):
        await master.put_topic(name)
    whole = await master.caller.ask(Code.GET_ALL_TOPIC_CONFIG)
    table = json.loads(whole.body)
    names = sorted(table["topicConfigTable"])
    assert whole.ext == {"totalTopicNum": str(len(names))}
    version = json.dumps(table["dataVersion"], separators=(",", ":"))

    async def page(first: int, seen: str, most: int) -> list[str]:
        fields = {"topicSeq": str(first), "dataVersion": seen, "maxTopicNum": str(most)}
        answer = await master.caller.ask(Code.GET_ALL_TOPIC_CONFIG, fields)
        assert answer.ext == whole.ext
        return sorted(json.loads(answer.body)["topicConfigTable"])

    assert await page(0, "", 2) == names[:2]
    assert await page(2, version, 2) == names[2:4]
    assert await page(2, version.replace('"counter":', '"counter":9'), 2) == names[:2]
    assert await page(len(names), version, 2) == []
    assert await page(0, version, 100_000) == names
    group = await master.caller.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "0", "maxGroupNum": "1"})
    assert len(json.loads(group.body)["subscriptionGroupTable"]) == 1
    assert int(group.ext["totalGroupNum"]) > 1


async def test_a_new_topic_is_there_with_its_first_message(master: Member, slave: Member, clock: ManualClock) -> None:
    """The slave asks for the topics when a message of an unknown one comes, long before the next copy.

    It asks the more rarely the longer answers take, and time that is moved while one is on its way counts for that.
    """
    await pass_ms(clock, 3_000, master, slave)
    await master.caller.send("New")
    await until_copied(master, slave, clock)
    await pass_ms(clock, PERIOD_MS // 3, master, slave)
    await until_equal(master, slave)
    answer = await slave.caller.pull("New")
    assert (answer.code, answer.remark) == (0, "FOUND")


@pytest.mark.feature("H2", "R10")
async def test_delay_progress_is_that_of_the_master(master: Member, slave: Member, clock: ManualClock) -> None:
    """What the master has delivered is known at the slave, which delivers nothing itself."""
    await master.caller.send("T", properties="DELAY\x011\x02")
    clock.advance(2_000)

    async def is_delivered() -> bool:
        return master.broker.store.max_offset("T", 0) == 1

    await until_so(is_delivered)
    await pass_ms(clock, 10_000, master, slave)  # the progress is saved

    async def is_told() -> bool:
        return (await master.table(Code.GET_ALL_DELAY_OFFSET))["offsetTable"] == {"1": 1}

    await until_so(is_told)
    await until_copied(master, slave, clock)
    await pass_ms(clock, PERIOD_MS, master, slave)

    async def is_equal() -> bool:
        return await slave.table(Code.GET_ALL_DELAY_OFFSET) == await master.table(Code.GET_ALL_DELAY_OFFSET)

    await until_so(is_equal)
    assert slave.broker.store.log_max_offset == master.broker.store.log_max_offset


async def test_batches_of_the_master_are_batches_at_the_slave(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, master: Member
) -> None:
    """The log of a new slave comes behind the topics, which say that their queues keep batches whole."""
    await master.caller.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_header("Batches", "BatchCQ"))
    await master.caller.send("Batches", b"single")
    parts = encode_batch([BatchPart(0, b"first", b""), BatchPart(0, b"second", b"")])
    header = send_header("Batches", batch=True)
    assert (await master.caller.ask(Code.SEND_BATCH_MESSAGE, header, parts)).code == 0
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1, slaveReadEnable="true") as slave:
        await until_copied(master, slave, clock)
        await until_equal(master, slave)
        assert slave.broker.store.max_offset("Batches", 0) == 3
        assert (await slave.caller.pull("Batches")).body == (await master.caller.pull("Batches")).body


async def test_own_commits_stay_until_the_master_says_otherwise(
    master: Member, slave: Member, clock: ManualClock
) -> None:
    """A group that is known to the slave alone keeps its offset; the others go back to that of the master."""
    await master.put_group("Late")
    await pass_ms(clock, PERIOD_MS, master, slave)
    await until_equal(master, slave)
    await slave.commit("Late", "T", 0, 3)
    await slave.commit("G", "T", 1, 9)
    assert (await slave.table(Code.GET_ALL_CONSUMER_OFFSET))["offsetTable"] == {"T@G": {"1": 9}, "T@Late": {"0": 3}}
    await pass_ms(clock, PERIOD_MS, master, slave)

    async def is_set_back() -> bool:
        offsets = (await slave.table(Code.GET_ALL_CONSUMER_OFFSET))["offsetTable"]
        return offsets == {"T@G": {"1": 7}, "T@Late": {"0": 3}}

    await until_so(is_set_back)


async def test_a_master_goes_away_and_comes_back(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """Meanwhile the slave serves what it has; it takes what has changed when a name server knows the master again."""
    place = tmp_path / "master"
    async with AsyncExitStack() as stack:
        async with run_member(place, clock, nameserver.address) as master:
            await master.put_topic("T", 1)
            await master.caller.send("T")
            slave = await stack.enter_async_context(run_member(tmp_path / "slave", clock, nameserver.address, 1))
            await until_equal(master, slave)
            await until_copied(master, slave, clock)
        await pass_ms(clock, REGISTER_MS, slave)
        assert (await slave.caller.pull("T")).remark == "FOUND"
        tables = await slave.tables()
        master = await stack.enter_async_context(run_member(place, clock, nameserver.address))
        await master.put_topic("U", 1)
        await pass_ms(clock, REGISTER_MS, master, slave)
        await until_equal(master, slave)
        assert "U" not in tables[0]["topicConfigTable"]
        assert (await slave.caller.pull("T")).code == 2


async def test_a_master_without_its_disk_does_not_empty_the_tables(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the name of the one that is gone, but its log ends before that of the slave: nothing is taken from it."""
    async with AsyncExitStack() as stack:
        async with run_member(tmp_path / "master", clock, nameserver.address) as master:
            await master.put_topic("T", 1)
            await master.caller.send("T")
            slave = await stack.enter_async_context(run_member(tmp_path / "slave", clock, nameserver.address, 1))
            await until_equal(master, slave)
            await until_copied(master, slave, clock)
        clock.advance(1)
        master = await stack.enter_async_context(run_member(tmp_path / "empty", clock, nameserver.address))
        await pass_ms(clock, REGISTER_MS + PERIOD_MS, master, slave)
        assert "nothing is copied" in caplog.text
        assert "T" in (await slave.table(Code.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
        assert slave.broker.store.max_offset("T", 0) == 1


async def test_tables_are_kept_over_a_restart_without_the_master(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """A slave that has copied once serves what it has, though no name server knows its master."""
    place = tmp_path / "slave"
    async with run_member(tmp_path / "master", clock, nameserver.address) as master:
        await master.put_topic("T", 1)
        await master.caller.send("T")
        clock.advance(1)
        async with run_member(place, clock, nameserver.address, 1) as slave:
            await until_equal(master, slave)
            await until_copied(master, slave, clock)
            tables = await slave.tables()
    async with run_member(place, clock, nameserver.address, 1) as slave:
        assert await slave.tables() == tables
        assert (await slave.caller.pull("T")).remark == "FOUND"
        assert (await slave.caller.pull("Nope")).code == 17


async def test_nothing_is_denied_before_the_tables_are_there(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """Without its master a new slave says that it is not ready, for topics and for offsets."""
    async with run_member(tmp_path / "slave", clock, nameserver.address, 1, slaveReadEnable="true") as slave:
        answer = await slave.caller.pull("T")
        assert (answer.code, answer.remark) == (
            14,
            "this slave has not copied the tables of its master yet, try again",
        )
        offset = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
        assert (await slave.caller.ask(Code.QUERY_CONSUMER_OFFSET, offset)).code == 14


async def test_a_slave_that_goes_on_as_master_keeps_what_it_has(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """Offsets beyond its log are pulled back, a message that was delivered is not delivered again."""
    place = tmp_path / "slave"
    async with run_member(tmp_path / "master", clock, nameserver.address) as master:
        await master.put_topic("T", 1)
        await master.put_group("G")
        await master.commit("G", "T", 0, 5)  # as if the master had more messages than the slave
        async with run_member(place, clock, nameserver.address, 1) as slave:
            await until_equal(master, slave)
            await master.caller.send("T")
            await master.caller.send("T", properties="DELAY\x011\x02UNIQ_KEY\x01k\x02")
            clock.advance(2_000)

            async def is_delivered() -> bool:
                return master.broker.store.max_offset("T", 0) == 2

            await until_so(is_delivered)
            await until_copied(master, slave, clock)
    async with run_member(place, clock, nameserver.address) as promoted:
        offsets = await promoted.table(Code.GET_ALL_CONSUMER_OFFSET)
        assert offsets["offsetTable"] == {"T@G": {"0": 2}}
        clock.advance(2_000)
        await promoted.caller.send("T", body=b"later")
        assert promoted.broker.store.max_offset("T", 0) == 3
        assert "T" in (await promoted.table(Code.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]


async def test_a_slave_without_tables_that_goes_on_as_master_knows_its_topics(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """It was told the HA port of its master alone, so it has the log and nothing else; all of that can be read."""
    place = tmp_path / "slave"
    async with run_member(tmp_path / "master", clock, nameserver.address) as master:
        await master.caller.send("T", queue_id=3)
        clock.advance(1)
        host, _, port = master.broker.address.rpartition(":")
        async with run_member(place, clock, "", 1, haMasterAddress=f"{host}:{int(port) + 1}") as slave:
            await until_copied(master, slave, clock)
            assert (await slave.caller.pull("T", queue_id=3)).code == 2
    async with run_member(place, clock, nameserver.address) as promoted:
        assert (await promoted.caller.pull("T", queue_id=3)).remark == "FOUND"
    async with run_member(place, clock, nameserver.address) as restarted:
        assert restarted.broker.store.was_closed_cleanly


async def test_timers_go_on_where_the_master_was(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """A slave that is made master delivers what is still to come, and nothing twice."""
    place, now_ms = tmp_path / "slave", clock.now_ms()
    async with run_member(tmp_path / "master", clock, nameserver.address) as master:
        await master.put_topic("T", 1)
        async with run_member(place, clock, nameserver.address, 1) as slave:
            await until_equal(master, slave)
            for number, delay_ms in enumerate((1_500, 60_500, 300_000)):
                due = f"TIMER_DELIVER_MS\x01{now_ms + delay_ms}\x02UNIQ_KEY\x01k{number}\x02"
                assert (await master.caller.send("T", b"%d" % number, properties=due)).code == 0

            async def is_known() -> bool:
                await pass_ms(clock, 500, master, slave)
                answer = await slave.caller.ask(Code.GET_TIMER_CHECK_POINT)
                check = decode_timer_check(answer.body)
                return check is not None and check.read_at_ms >= now_ms + 2_000

            await until_so(is_known)  # the first is delivered, and the slave has heard so
            assert master.broker.store.max_offset("T", 0) == 1
            clock.advance(now_ms + 61_000 - clock.now_ms())  # the second is delivered: the slave has not heard it

            async def is_delivered() -> bool:
                return master.broker.store.max_offset("T", 0) == 2

            await until_so(is_delivered)
            await until_copied(master, slave, clock)
    async with run_member(place, clock, nameserver.address) as promoted:
        await pass_ms(clock, 5_000, promoted)
        assert promoted.broker.store.max_offset("T", 0) == 2
        await pass_ms(clock, 300_000, promoted)

        async def is_last() -> bool:
            return promoted.broker.store.max_offset("T", 0) == 3

        await until_so(is_last)


@pytest.mark.feature("R8")
async def test_tables_are_told_at_the_fast_port(master: Member) -> None:
    """The port below the one below it answers the same."""
    host, port = master.broker.advertised.told
    async with open_caller(format_address(host, port - 2)) as fast:
        for code in (Code.GET_ALL_TOPIC_CONFIG, Code.GET_TIMER_METRICS):
            assert (await fast.ask(code)).body == (await master.caller.ask(code)).body
        assert len((await fast.ask(Code.GET_TIMER_CHECK_POINT)).body) == 56


async def routed_queues(nameserver: NameServer, topic: str) -> dict[str, int]:
    """Return the addresses of a topic's brokers, each with the number of queues; nothing without a route."""
    async with open_caller(nameserver.address) as caller:
        answer = await caller.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if answer.code:
        return {}
    route = decode_body(TopicRouteData, answer.body)
    [queues], [brokers] = route.queue_datas, route.broker_datas
    return dict.fromkeys(brokers.broker_addrs.values(), queues.read_queue_nums)


@pytest.mark.feature("R16", "S20")
async def test_acknowledged_message_of_a_new_topic_outlives_the_master(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer
) -> None:
    """Its topic is younger than the copied tables: it can be read at once, is routed soon, and is a master's later."""
    sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    place = tmp_path / "slave"
    async with AsyncExitStack() as stack:
        async with run_member(tmp_path / "master", clock, nameserver.address, 0, **sync) as master:
            slave = await stack.enter_async_context(
                run_member(place, clock, nameserver.address, 1, slaveReadEnable="true")
            )
            await until_equal(master, slave)
            await until_so(lambda: has_slave(master))
            assert (await master.caller.send("New", b"acknowledged", queue_id=2)).code == 0
            assert "New" not in (await slave.table(Code.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
        answer = await slave.caller.pull("New", queue_id=2)
        assert (answer.remark, b"acknowledged" in answer.body) == ("FOUND", True)
        await pass_ms(clock, REGISTER_MS, slave)
        assert await routed_queues(nameserver, "New") == {slave.broker.address: 3}
    async with run_member(place, clock, nameserver.address) as promoted:
        assert (await promoted.caller.pull("New", queue_id=2)).remark == "FOUND"
        assert (await promoted.caller.send("New", b"later", queue_id=2)).code == 0
        assert promoted.broker.store.max_offset("New", 2) == 2


async def has_slave(master: Member) -> bool:
    """Tell whether a slave of the master has reported."""
    await master.caller.ask(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})  # something to wait for
    return any(state.acknowledged >= 0 for state in master.broker.slaves)


async def test_new_queues_of_a_topic_outlive_the_master(
    master: Member, slave: Member, clock: ManualClock, nameserver: NameServer
) -> None:
    """A topic that was widened after the last copy is read in its new queues."""
    await master.put_topic("T", 8)
    await master.caller.send("T", b"beyond", queue_id=6)
    await until_copied(master, slave, clock)
    answer = await slave.caller.pull("T", queue_id=6)
    assert (answer.remark, b"beyond" in answer.body) == ("FOUND", True)
    clock.advance(SOON_MS)

    async def has_all_queues() -> bool:
        return await slave.table(Code.GET_ALL_TOPIC_CONFIG) == await master.table(Code.GET_ALL_TOPIC_CONFIG)

    await until_so(has_all_queues)


async def test_new_topic_of_a_master_that_is_gone_on_real_time(tmp_path: pathlib.Path) -> None:
    """No time has to pass after its last message: a slave that runs on has all that it has copied."""
    async with (
        NameServer(NameServerConfig(port=0), LoopClock()) as nameserver,
        replica_pair(nameserver, tmp_path) as pair,
    ):
        await pair.start_slave()
        for number in range(20):
            assert (await pair.master.caller.send(f"New{number}", queue_id=3)).code == 0
            end = pair.master.broker.store.log_max_offset

            async def is_copied(end: int = end) -> bool:
                await pair.slave.caller.ask(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
                return pair.slave.broker.store.log_max_offset == end

            await until_so(is_copied)
            assert (await pair.slave.caller.pull(f"New{number}", queue_id=3)).remark == "FOUND"
        await pair.stop_master()
        for number in range(20):
            assert (await pair.slave.caller.pull(f"New{number}", queue_id=3)).remark == "FOUND"
