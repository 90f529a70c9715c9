"""A master and its slaves, whole brokers with a name server, under a clock that the test moves."""

import asyncio
import logging
import pathlib
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from raw_calls import open_caller, until
from replicas import log_checksums, send_all_kinds
from slow_disk import SlowDisk
from stores import new_record

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import StoreNotWritableError
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import iter_records
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.files.files import OS_FILES, Files
from rocketlet.testing.manual_clock import ManualClock

SMALL = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000", "slaveReadEnable": "true"}

Start = Callable[..., AbstractAsyncContextManager[Broker]]


@pytest.fixture
def start(settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path) -> Start:
    """Return a call that makes a broker of the group by its number, with a store of that number."""

    def make(number: int, files: Files = OS_FILES, **given: str) -> Broker:
        role = {"brokerRole": "SLAVE", "brokerId": str(number)} if number else {}
        store = {"storePathRootDir": str(tmp_path / f"store-{number}")}
        return Broker(BrokerConfig.from_java({**settings, **SMALL, **role, **store, **given}), clock, files)

    return make


async def is_level(master: Broker, slave: Broker, clock: ManualClock) -> None:
    """Wait until the slave has all that the master has, and everybody can read it."""

    def is_copied() -> bool:
        clock.advance(1)
        copied, readable = slave.store.log_max_offset, slave.store.confirm_offset
        return master.store.log_max_offset == copied == readable and not slave.store.dispatch_behind_bytes

    await until(is_copied)


def is_same_log(tmp_path: pathlib.Path, *numbers: int) -> bool:
    """Tell whether stopped brokers have left the same log."""
    first, *others = (log_checksums(tmp_path / f"store-{number}") for number in numbers)
    return bool(first) and all(first == other for other in others)


@pytest.mark.feature("R7", "H1")
async def test_slave_has_the_log_of_its_master(start: Start, clock: ManualClock, tmp_path: pathlib.Path) -> None:
    """Byte by byte from the oldest file on, with the same queues; a delayed message is delivered by the master."""
    async with start(0) as master, open_caller(master.address) as caller:
        await send_all_kinds(caller)
        async with start(1) as slave:
            await is_level(master, slave, clock)
            await clock.elapse(1_500)
            assert master.store.max_offset("T", 0) == 14  # 10, 2 of the batch, a committed and a delayed one
            await is_level(master, slave, clock)
        await caller.send(body=b"while it is away")
        async with start(1) as slave:
            await is_level(master, slave, clock)
            for topic, queue_id in master.store.queues():
                assert slave.store.max_offset(topic, queue_id) == master.store.max_offset(topic, queue_id)
                assert slave.store.min_offset(topic, queue_id) == 0
    assert is_same_log(tmp_path, 0, 1)


async def test_route_names_both(start: Start, clock: ManualClock, nameserver: NameServer) -> None:
    """The slave is registered by its number, and hears where the master is."""
    async with start(0) as master, start(1) as slave, open_caller(nameserver.address) as caller:
        answer = await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        [data] = decode_body(TopicRouteData, answer.body).broker_datas
        assert data.broker_addrs == {0: master.address, 1: slave.address}
        await until(lambda: bool(master.slaves))  # it copies the log when it has asked for the topics
        assert [state.peer.partition(":")[0] for state in master.slaves] == ["127.0.0.1"]


async def test_slave_takes_no_messages(start: Start, clock: ManualClock) -> None:
    """Sends are refused before anything else is looked at, and its store refuses what is not a copy."""
    async with start(0) as master, start(1) as slave, open_caller(slave.address) as caller:
        answer = await caller.send()
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while",
        )
        with pytest.raises(StoreNotWritableError, match="this broker is a slave"):
            slave.store.append(new_record())
        async with open_caller(master.address) as other:
            assert (await other.send()).code == ResponseCode.SUCCESS
        await is_level(master, slave, clock)
        with pytest.raises(StoreNotWritableError, match="this broker is a slave"):
            slave.store.append(new_record())


async def test_copied_message_wakes_a_waiting_consumer(start: Start, clock: ManualClock) -> None:
    """A pull that waits at the slave gets the message as soon as it has come."""
    async with start(0) as master, open_caller(master.address) as producer:
        await producer.send(body=b"first")
        async with start(1) as slave, open_caller(slave.address) as caller, asyncio.TaskGroup() as group:
            await producer.heartbeat("c", "consumers", {"T": "*"})
            await is_level(master, slave, clock)
            topics = slave.figures.tables.topics
            topics.ensure("T", 4)
            pulled = group.create_task(caller.pull(queue_offset=1, sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND))
            await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})  # it is held by now
            assert not pulled.done()
            await producer.send(body=b"second")
            await until(lambda: clock.advance(1) or pulled.done())
            assert [bytes(record.body) for record in iter_records((await pulled).body)] == [b"second"]


async def test_copy_under_sync_flush(start: Start, clock: ManualClock) -> None:
    """What was copied is reported before it is on disk, and can be read when it is."""
    disk = SlowDisk()
    async with start(0) as master, open_caller(master.address) as caller:
        await caller.send(body=b"first")
        async with start(1, disk, flushDiskType="SYNC_FLUSH") as slave:
            await is_level(master, slave, clock)
            disk.get_stuck()
            await caller.send(body=b"second")
            await until(lambda: clock.advance(1) or master.slaves[0].acknowledged == master.store.log_max_offset)
            assert slave.store.max_offset("T", 0) == 1
            await until(disk.waiting.is_set)
            disk.go_on()
            await until(lambda: slave.store.max_offset("T", 0) == 2)


async def test_slave_of_a_slave(start: Start, clock: ManualClock, tmp_path: pathlib.Path) -> None:
    """A slave gives on what it gets."""
    async with AsyncExitStack() as stack:
        master, first = [await stack.enter_async_context(start(number)) for number in range(2)]
        host, _, port = first.address.rpartition(":")
        second = await stack.enter_async_context(start(2, haMasterAddress=f"{host}:{int(port) + 1}"))
        caller = await stack.enter_async_context(open_caller(master.address))
        await send_all_kinds(caller)
        await is_level(master, first, clock)
        await is_level(first, second, clock)
        assert (len(master.slaves), len(first.slaves)) == (1, 1)
    assert is_same_log(tmp_path, 0, 1, 2)


@pytest.mark.feature("R5", "R7")
async def test_master_comes_back(
    start: Start, clock: ManualClock, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While it is away the slave tries again and says so once; then the copy goes on where it was."""
    caplog.set_level(logging.WARNING, "rocketlet.broker.replication.ha_client")
    async with AsyncExitStack() as stack:
        async with start(0) as master, open_caller(master.address) as caller:
            slave = await stack.enter_async_context(start(1))
            await caller.send(body=b"first")
            await is_level(master, slave, clock)
        port = master.address.rpartition(":")[2]
        for _ in range(10):
            await clock.elapse(1_000)
        said = [record.getMessage() for record in caplog.records if record.name.endswith("ha_client")]
        [lost, refused] = said
        assert lost.startswith("lost the connection to the master at 127.0.0.1:")
        assert refused.startswith("cannot connect to the master's HA port 127.0.0.1:")
        async with start(0, listenPort=port) as master, open_caller(master.address) as caller:
            await caller.send(body=b"second")
            await is_level(master, slave, clock)
            await stack.aclose()
    assert is_same_log(tmp_path, 0, 1)


@pytest.mark.feature("R11", "S20")
async def test_acknowledged_by_a_real_slave(start: Start, clock: ManualClock) -> None:
    """Under SYNC_MASTER a send is answered 0 with a slave, without that time passes."""
    async with (
        start(0, brokerRole="SYNC_MASTER", inSyncReplicas="2") as master,
        start(1) as slave,
        open_caller(master.address) as caller,
    ):
        await until(lambda: bool(master.slaves) and master.slaves[0].acknowledged == 0)
        for count in range(1, 20):
            assert (await caller.send(body=b"x" * 4_000)).code == ResponseCode.SUCCESS
            assert slave.store.max_offset("T", 0) == count


@pytest.mark.feature("R21")
@pytest.mark.parametrize("later", [1, 30])
async def test_master_that_has_lost_messages_is_not_mixed_with_its_slave(
    start: Start, clock: ManualClock, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, later: int
) -> None:
    """Whether it has come less far than its slave by then or further, the slave's log stays as it is, and says why."""
    async with start(0) as master, open_caller(master.address) as caller:
        await caller.send(body=b"kept")
    shutil.copytree(tmp_path / "store-0", tmp_path / "before")
    async with start(0) as master, open_caller(master.address) as caller, start(1) as slave:
        for number in range(10):
            await caller.send(body=b"lost %d" % number)
        await is_level(master, slave, clock)
        end = slave.store.log_max_offset
    copied = log_checksums(tmp_path / "store-1")
    shutil.rmtree(tmp_path / "store-0")
    (tmp_path / "before").rename(tmp_path / "store-0")
    async with start(0) as master, open_caller(master.address) as caller:
        for number in range(later):
            await caller.send(body=b"other %d" % number)
        async with start(1) as slave:
            why = "ahead of the master's" if later == 1 else "at log offset"
            await until(lambda: clock.advance(1) or any(why in text for text in caplog.messages))
            await clock.elapse(12_000)
            assert slave.store.log_max_offset == end
            assert f"{end}" in next(text for text in caplog.messages if why in text)
    assert log_checksums(tmp_path / "store-1") == copied
