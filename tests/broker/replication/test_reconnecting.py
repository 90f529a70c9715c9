"""When a slave connects to its master again, by a master that the test plays."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest
from raw_calls import until
from replicas import StatedMaster, frame, replication_settings

from rocketlet.broker.replication.frames import REPORT
from rocketlet.broker.replication.ha_client import REFUSED_MS, RETRY_MS, HaClient
from rocketlet.broker.replication.known_master import KnownMaster
from rocketlet.testing.manual_clock import ManualClock


class AppendedBytes:
    """A log that takes what comes at its end."""

    def __init__(self) -> None:
        self.data = b""

    @property
    def log_max_offset(self) -> int:
        """The end."""
        return len(self.data)

    def last_copied_record(self) -> tuple[int, bytes] | None:
        """Return the last record."""
        return (0, self.data) if self.data else None

    def append_copy(self, log_offset: int, data: memoryview) -> None:
        """Append."""
        assert log_offset == len(self.data)
        self.data += data


class PlayedMaster:
    """Takes a slave's connection, and sends what the test says."""

    def __init__(self) -> None:
        self.address = ""
        self.arrived = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

    async def next_slave(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        """Return what the next slave that comes reports first, and its connection."""
        reader, writer = await self.arrived.get()
        return REPORT.unpack(await reader.readexactly(REPORT.size))[0], reader, writer


@pytest.fixture
async def played() -> AsyncGenerator[PlayedMaster]:
    """Listen as a master."""
    master = PlayedMaster()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        master.arrived.put_nowait((reader, writer))

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    master.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield master


@pytest.fixture
def log() -> AppendedBytes:
    """Return an empty log."""
    return AppendedBytes()


@pytest.fixture
def make(log: AppendedBytes, clock: ManualClock) -> Callable[[str], HaClient]:
    """Return a call that makes a client of the master at an address."""

    def make_client(address: str) -> HaClient:
        settings = replication_settings(brokerRole="SLAVE", brokerId="1", haMasterAddress=address)
        master = KnownMaster(settings.config.replication)
        return HaClient(log, master, settings, clock, lambda: None)

    return make_client


@pytest.mark.feature("R5", "R7")
async def test_lost_connection_goes_on_where_the_log_ends(
    make: Callable[[str], HaClient], played: PlayedMaster, log: AppendedBytes
) -> None:
    """A master that hangs up amid a frame is connected to again after a moment."""
    client = make(played.address)
    async with asyncio.TaskGroup() as group:
        for reported, sent in ((0, b"first"), (5, b"second")):
            running = group.create_task(client.run(StatedMaster().connect))
            found, reader, writer = await played.next_slave()
            assert found == reported
            writer.write(frame(reported, sent) + frame(reported + len(sent), b"cut off")[:-1])
            assert REPORT.unpack(await reader.readexactly(REPORT.size)) == (reported + len(sent),)
            assert "reported" in repr(client)
            writer.close()
            assert await running == RETRY_MS
    assert (log.data, client.link) == (b"firstsecond", None)


@pytest.mark.feature("R5")
async def test_silent_master_is_connected_to_at_once(
    make: Callable[[str], HaClient], played: PlayedMaster, clock: ManualClock
) -> None:
    """The silence has lasted long enough."""
    client = make(played.address)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(client.run(StatedMaster().connect))
        _, reader, writer = await played.next_slave()
        for _ in range(21):
            clock.advance(1_000)
        assert await running == 0
        assert {offset for (offset,) in REPORT.iter_unpack(await reader.read())} == {0}
        writer.close()


async def test_refused_bytes_are_asked_for_after_a_while(
    make: Callable[[str], HaClient], played: PlayedMaster, log: AppendedBytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Why is said once, however often the same happens."""
    log.data = b"x" * 7
    client = make(played.address)
    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(client.run(StatedMaster().connect))
            _, _, writer = await played.next_slave()
            writer.write(frame(9, b"elsewhere"))
            assert await running == REFUSED_MS
            writer.close()
    [unseen, refused] = caplog.messages
    assert unseen == "copying without a look at the master's records: nobody has said where it takes requests"
    assert refused.endswith(": the master sends log offset 9, this log ends at 7; trying again")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no host:port"])
async def test_master_that_cannot_be_reached(
    make: Callable[[str], HaClient], address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again after a moment, and said once."""
    client = make(address)
    assert [await client.run(StatedMaster().connect) for _ in range(3)] == [RETRY_MS] * 3
    [said] = caplog.messages
    assert said.startswith(f"cannot connect to the master's HA port {address}: ")


async def test_end_of_the_slave_ends_the_connection(make: Callable[[str], HaClient], played: PlayedMaster) -> None:
    """A stop leaves nothing open."""
    client = make(played.address)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(client.run(StatedMaster().connect))
        _, reader, writer = await played.next_slave()
        running.cancel()
        await until(running.done)
        assert client.link is None
        assert await reader.read() == b""
        writer.close()


async def test_master_that_is_not_known_yet_is_waited_for(
    log: AppendedBytes, clock: ManualClock, played: PlayedMaster
) -> None:
    """The first answer of a name server begins the copy, without a pause."""
    settings = replication_settings(brokerRole="SLAVE", brokerId="1")
    master = KnownMaster(settings.config.replication)
    client = HaClient(log, master, settings, clock, lambda: None)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(client.run(StatedMaster().connect))
        await clock.settle()
        master.tell("a", "127.0.0.1:1", played.address)
        _, _, writer = await played.next_slave()
        writer.close()
        assert await running == RETRY_MS
