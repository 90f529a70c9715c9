"""Who is no slave of a master, or no master of a slave: it is logged, senders do not wait, and no store is harmed."""

import asyncio
import pathlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest
from broker_pairs import Member, pass_ms, run_member, until_copied, until_equal, until_so
from raw_calls import until
from replicas import log_checksums, report

from rocketlet.broker.replication.ha_server import MOST_LINES, MOST_LINKS
from rocketlet.common.codes import ResponseCode
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

SYNC_MASTER = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
BAD = (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", report(-1), report(1 << 60), report(7, 1 << 40), b"\0\0\0", b"")
"""What those say that connect to the HA port: no slave, no end of a log, a piece of a report, nothing."""
ROUND_MS = 31_000  # in which each broker registers again
FIRST_MS = 500  # by which one registers earlier than the next


class SyncPair(NamedTuple):
    """A master whose senders wait for its slave, which has all that was sent."""

    master: Member
    slave: Member

    async def is_ready(self) -> bool:
        """Tell whether the slave has reported."""
        await self.master.caller.ask(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})  # something to wait for
        return any(state.acknowledged >= 0 for state in self.master.broker.slaves)

    async def send(self, count: int = 1) -> None:
        """Send messages; each is acknowledged by the slave, without that time passes."""
        for _ in range(count):
            assert (await self.master.caller.send("T")).code == ResponseCode.SUCCESS


@asynccontextmanager
async def sync_pair(root: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> AsyncGenerator[SyncPair]:
    """Run a pair; the slave asks name servers before its master does, a little each time."""
    async with run_member(root / "slave", clock, nameserver.address, 1, slaveReadEnable="true") as slave:
        clock.advance(FIRST_MS)
        async with run_member(root / "master", clock, nameserver.address, 0, **SYNC_MASTER) as master:
            await master.put_topic("T", 1)
            pair = SyncPair(master, slave)
            await pass_ms(clock, ROUND_MS, master, slave)
            await until_equal(master, slave)
            await until_so(pair.is_ready)
            yield pair


@pytest.mark.feature("R1", "S20")
async def test_senders_do_not_notice_hundreds_of_bad_connections(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Each send is acknowledged by the slave, whoever else comes; a few of them are logged, and both logs are equal."""
    async with sync_pair(tmp_path, clock, nameserver) as pair, AsyncExitStack() as stack:
        host, port = pair.master.broker.advertised.told
        for number in range(MOST_LINKS + 50):
            _, writer = await asyncio.open_connection(host, port + 1)
            stack.callback(writer.close)
            writer.write(BAD[number % len(BAD)])
            if number % 10 == 0:
                await pair.send()
        assert len(pair.master.broker.slaves) <= MOST_LINKS
        await pass_ms(clock, 25_000, pair.master, pair.slave)
        await until(lambda: len(pair.master.broker.slaves) == 1)
        await pair.send(10)
        await until_copied(pair.master, pair.slave, clock)
    assert log_checksums(tmp_path / "master") == log_checksums(tmp_path / "slave")
    said = [record for record in caplog.records if record.name.endswith((".slave_link", ".ha_server"))]
    assert {"ahead of this log", "reports log offset -1"} <= {
        words for words in ("ahead of this log", "reports log offset -1") for one in said if words in one.getMessage()
    }
    assert len(said) <= 5 * MOST_LINES  # in five times ten seconds
    assert "connections to the HA port refused within 10000 ms: logging no more of them" in caplog.text


@pytest.mark.feature("R21", "S20")
async def test_slave_with_files_of_another_size(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the first file of its master and no more, and says why; senders are told that no slave has theirs."""
    small, large = ({"mappedFileSizeCommitLog": str(size)} for size in (65_536, 131_072))
    place = tmp_path / "slave"
    async with (
        run_member(tmp_path / "master", clock, nameserver.address, 0, **SYNC_MASTER, **small) as master,
        run_member(place, clock, nameserver.address, 1, slaveReadEnable="true", **large) as slave,
    ):
        await master.put_topic("T", 1)
        await until_so(SyncPair(master, slave).is_ready)
        codes: list[int] = []

        async def send() -> None:
            while codes[-2:] != [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2:
                codes.append((await master.caller.send("T", b"x" * 8_000)).code)

        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send())
            await until(lambda: clock.advance(5) or sending.done())
        acknowledged = codes.count(ResponseCode.SUCCESS)
        assert codes == [ResponseCode.SUCCESS] * acknowledged + [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
        assert "mappedFileSizeCommitLog must be that of the master" in caplog.text
        assert master.broker.store.max_offset("T", 0) == len(codes)
        assert slave.broker.store.max_offset("T", 0) == acknowledged > 0
    async with run_member(place, clock, nameserver.address, 0, **large) as alone:
        assert alone.broker.store.max_offset("T", 0) == acknowledged
        assert (await alone.caller.pull("T")).code == ResponseCode.SUCCESS


@pytest.mark.feature("R21", "S20")
async def test_second_master_of_the_same_name(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The slave says that there are two; it takes nothing of the other, and goes on with the one whose log it has."""
    async with sync_pair(tmp_path, clock, nameserver) as pair:
        await pair.send(3)
        tables = await pair.slave.tables()
        async with run_member(tmp_path / "second", clock, nameserver.address) as second:
            await second.put_topic("U", 1)
            for _ in range(20):
                await second.caller.send("U", b"other")
            assert second.broker.store.log_max_offset > pair.master.broker.store.log_max_offset
            await pass_ms(clock, ROUND_MS, pair.master, pair.slave, second)
            addresses = second.broker.address, pair.master.broker.address
            assert "the master is at {}, it was at {}: two have the name".format(*addresses) in caplog.text
            await until(lambda: "where the last one is here" in caplog.text)
            assert "copying the tables of the master at " in caplog.text
            assert await pair.slave.tables() == tables
            assert pair.slave.broker.store.max_offset("T", 0) == 3
            await pair.send(3)
            assert pair.slave.broker.store.max_offset("T", 0) == 6
        await pass_ms(clock, 2 * ROUND_MS, pair.master, pair.slave)
        await pair.master.put_topic("V", 1)
        await pass_ms(clock, 2 * ROUND_MS, pair.master, pair.slave)
        await until_equal(pair.master, pair.slave)
