"""A master sends slaves its log: what was recorded of an official one, and what that does worse."""

import asyncio
import logging
import pathlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_calls import until
from replicas import (
    SCENARIOS,
    MemoryLog,
    PeerTransport,
    Sent,
    connect,
    fill_log,
    read_recording,
    replication_settings,
    report,
    small_store,
    split_frames,
    steps_of,
)

from rocketlet.broker.replication.frames import HEAD, REPORT
from rocketlet.broker.replication.ha_server import MOST_LINES, MOST_LINKS, HaServer
from rocketlet.broker.replication.slave_link import GATHER_MS, CopiedLog, SlaveLink
from rocketlet.testing.manual_clock import ManualClock

FILE = 65_536


class Master:
    """The listening end over a log, without sockets; ``told`` is how far its slaves have come, each time."""

    def __init__(self, log: CopiedLog, **settings: str) -> None:
        self.clock = ManualClock()
        self.told: list[list[int]] = []
        self.server = HaServer(log, replication_settings(**settings), self.clock, self._note)
        self._log = log

    def connect(self) -> tuple[SlaveLink, PeerTransport]:
        """Return a connection of a slave."""
        link = SlaveLink(self.server, self._log, self.clock)
        return link, connect(link)

    def join(self, log_offset: int) -> tuple[SlaveLink, PeerTransport]:
        """Return a connection of a slave that has reported where it is."""
        link, transport = self.connect()
        link.data_received(report(log_offset))
        return link, transport

    def end_moved(self) -> None:
        """Tell of a commit, and let the time pass in which more is waited for."""
        for link in self.server.links:
            link.end_moved()
        self.clock.advance(GATHER_MS)

    def _note(self, log_ends: Sequence[int]) -> None:
        self.told.append([*log_ends])


async def reads_nothing(reader: asyncio.StreamReader) -> bool:
    """Tell whether a connection ends without a byte."""
    try:
        return not await reader.read()
    except ConnectionError:
        return True


def frames_of(recorded: Sequence[Sent]) -> bytes:
    """Return the bytes of recorded frames."""
    return b"".join(one.data for one in recorded)


@pytest.mark.feature("R1", "H1")
def test_recorded_frames_of_a_copy(tmp_path: pathlib.Path) -> None:
    """The log of an official master, written in the steps that it was, goes out in the same frames, byte by byte."""
    directory = small_store(tmp_path / "master")
    with directory.open() as store:
        master = Master(store)
        steps = steps_of(one for name in SCENARIOS for one in read_recording(name))
        fill_log(store, steps[0])
        link, transport = master.join(0)
        assert transport.take() == frames_of(steps[0])
        for step in steps[1:]:
            fill_log(store, step)
            master.end_moved()
            assert transport.take() == frames_of(step)
            link.data_received(report(step[-1].end))
        assert master.told[-1] == [steps[-1][-1].end]
        _, behind = master.join(steps[5][0].log_offset)
        assert split_frames(behind.take())[0][0] == steps[5][0].log_offset


@pytest.mark.feature("R1", "R7")
@given(ends=st.lists(st.integers(0, 70_000), max_size=20), piece=st.integers(1, REPORT.size))
def test_any_cuts_give_the_same_log(ends: list[int], piece: int) -> None:
    """Wherever reports are cut and connections end: the next goes on behind the last frame that came whole."""
    log = b"".join(one.data[HEAD.size :] for one in read_recording("fresh-catchup") if one.kind == "data")
    master = Master(MemoryLog(log, file_bytes=FILE))
    copied = b""

    def say_where(link: SlaveLink) -> None:
        data = report(len(copied))
        for at in range(0, len(data), piece):
            link.data_received(data[at : at + piece])

    for end in (*ends, None):
        link, transport = master.connect()
        say_where(link)
        for offset, body in split_frames(transport.take()[:end]):
            assert offset == len(copied)
            copied += body
            say_where(link)
        assert link.acknowledged == len(copied)
        master.server.remove(link)
    assert copied == log


@pytest.mark.feature("R1")
@pytest.mark.parametrize(("newest", "start"), [("true", 4 * FILE), ("false", 2 * FILE)])
def test_empty_slave_begins_at_a_file(tmp_path: pathlib.Path, newest: str, start: int) -> None:
    """It gets all files that there are, or with syncFromLastFile the newest one, in the frames that were recorded."""
    recorded = [one for one in read_recording("fresh-slave-newest-file") if one.kind == "data"]
    directory = small_store(tmp_path / "master")
    with directory.open() as store:
        for base in (2 * FILE, 3 * FILE):
            store.append_copy(base, HEAD.pack(FILE << 32 | 0xCBD43194, 0).ljust(FILE, b"\0"))
        fill_log(store, recorded)
        _, transport = Master(store, syncFromLastFile=newest).join(0)
        sent = transport.take()
    frames = split_frames(sent)
    assert frames[0][0] == start
    assert sent.endswith(frames_of(recorded))
    assert all(len(body) <= 32_768 and offset % FILE + len(body) <= FILE for offset, body in frames)


@pytest.mark.feature("R1", "R5")
def test_recorded_slave_that_does_not_acknowledge() -> None:
    """A first report in two pieces begins the copy; a lower one later moves what is acknowledged, and nothing else."""
    recorded = read_recording("fake-slave-start")
    sent = [one for one in recorded if one.kind != "report"]
    log = MemoryLog(b"".join(one.data[HEAD.size :] for one in sent[:2]), file_bytes=FILE)
    master = Master(log)
    link, transport = master.connect()
    master.clock.advance(3_000)
    link.data_received(report(0)[:3])
    assert (transport.take(), link.state().acknowledged) == (b"", -1)
    link.data_received(report(0)[3:])
    assert transport.take() == frames_of(sent[:2])
    link.data_received(report(5))
    assert (transport.take(), link.state().acknowledged, link.state().next_offset) == (b"", 5, 40_732)
    master.clock.advance(6_000)
    assert transport.take() == sent[2].data
    for one in sent[3:]:
        log.add(one.data[HEAD.size :])
        master.end_moved()
        assert transport.take() == one.data


@pytest.mark.feature("R21")
async def test_slave_ahead_gets_heartbeats_only(caplog: pytest.LogCaptureFixture) -> None:
    """It has records of its own: it is not in sync, and nothing is sent to it when the log grows or it comes back."""
    recorded = read_recording("fake-slave-ahead")
    heartbeat = next(one for one in recorded if one.kind == "heartbeat").data
    log = MemoryLog(bytes(4_792), file_bytes=FILE)
    master = Master(log)
    link, transport = master.join(20_000)
    assert "ends at 20000, ahead of this log, which ends at 4792: it gets nothing" in caplog.text
    assert transport.take() == b""
    assert (link.state().is_in_sync, link.state().behind_bytes, master.told[-1]) == (False, -15_208, [])
    master.clock.advance(6_000)
    assert transport.take() == heartbeat
    log.add(bytes(20_732 + 20_000 - 4_792))
    master.end_moved()
    link.data_received(report(20_000))
    assert transport.take() == b""
    link.close()
    await asyncio.sleep(0)
    link, transport = master.join(20_000)
    assert "ends at 20000, where a slave was ahead of this log when it ended at 4792" in caplog.text
    assert (transport.take(), link.state().is_in_sync, master.told[-1]) == (b"", False, [])
    _, other = master.join(20_001)
    assert split_frames(other.take())[0][0] == 20_001


@pytest.mark.feature("R21")
def test_slave_before_the_first_file_gets_heartbeats_only(caplog: pytest.LogCaptureFixture) -> None:
    """What it needs was deleted: it is told nothing but where it is, and does not count as in sync."""
    recorded = [one for one in read_recording("master-purged-offset") if one.kind == "heartbeat"]
    master = Master(MemoryLog(bytes(1_000), begins_at=FILE, file_bytes=FILE))
    link, transport = master.join(15_990)
    assert f"ends at 15990, before this log, which begins at {FILE}: it gets nothing" in caplog.text
    assert link.state().is_in_sync is False
    for one in recorded:
        master.clock.advance(6_000)
        assert transport.take() == one.data
        link.data_received(report(15_990))


def test_file_is_deleted_before_a_slave_has_it(caplog: pytest.LogCaptureFixture) -> None:
    """It gets nothing more, since the next bytes would not follow what it has."""
    log = MemoryLog(bytes(3_500))
    master = Master(log, haTransferBatchSize="500")
    link, transport = master.connect()
    transport.room = 1
    link.data_received(report(0))
    assert [offset for offset, _ in split_frames(transport.take(room=1))] == [0]
    log.log_min_offset = 2_000
    assert [offset for offset, _ in split_frames(transport.take())] == [500]
    assert (transport.take(), link.state().is_in_sync) == (b"", False)
    assert "is to get log offset 1000, the log begins at 2000: it gets nothing" in caplog.text
    master.clock.advance(6_000)
    assert split_frames(transport.take()) == [(1_000, b"")]


def test_slave_that_takes_no_more_is_left_alone() -> None:
    """A frame that fills its buffer is the last one until there is room; then the copy goes on where it was."""
    log = MemoryLog(bytes(5_000))
    master = Master(log)
    link, transport = master.connect()
    transport.room = 1_500
    link.data_received(report(0))
    assert [offset for offset, _ in split_frames(transport.take(room=1))] == [0, 1_000]
    log.add(bytes(500))
    master.end_moved()
    master.clock.advance(6_000)
    assert [offset for offset, _ in split_frames(transport.take())] == [2_000]
    assert [(offset, len(body)) for offset, body in split_frames(transport.take())] == [
        (3_000, 1_000),
        (4_000, 1_000),
        (5_000, 500),
    ]


@pytest.mark.parametrize(
    ("settings", "is_at_once"),
    [
        ({}, False),
        ({"haTransferBatchSize": "64"}, True),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}, True),
        ({"brokerRole": "SYNC_MASTER"}, False),
    ],
)
def test_commit_goes_out_at_once_or_with_others(settings: dict[str, str], is_at_once: bool) -> None:
    """At once when it makes a whole frame or somebody may wait for it; else with what comes in the next moment."""
    log = MemoryLog(bytes(100))
    master = Master(log, **settings)
    link, transport = master.join(0)
    transport.take()
    log.add(bytes(64))
    link.end_moved()
    link.data_received(report(100))
    assert bool(transport.take()) is is_at_once
    log.add(bytes(8))
    link.end_moved()
    master.clock.advance(GATHER_MS)
    sizes = [len(body) for _, body in split_frames(transport.take())]
    assert sizes == ([8] if is_at_once else [72])


@pytest.mark.feature("R5")
def test_silence_of_the_master_is_a_heartbeat() -> None:
    """After more than haSendHeartbeatInterval without a frame an empty one says where the next will stand."""
    log = MemoryLog(bytes(100))
    master = Master(log)
    _, silent = master.connect()
    link, transport = master.join(100)
    for at_ms in range(1_000, 13_000, 1_000):
        master.clock.advance(1_000)
        link.data_received(report(100))
        assert split_frames(transport.take()) == ([(100, b"")] if at_ms % 6_000 == 0 else [])
    assert silent.take() == b""  # nothing before the first report
    log.add(b"x")
    master.end_moved()
    master.clock.advance(5_000)
    assert split_frames(transport.take()) == [(100, b"x")]


@pytest.mark.feature("R5")
async def test_silence_of_the_slave_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """After more than haHousekeepingInterval without a report, whether it has ever sent one or not."""
    master = Master(MemoryLog(bytes(100)))
    _, silent = master.connect()
    link, transport = master.join(100)
    master.clock.advance(20_000)
    assert not transport.is_aborted
    link.data_received(report(100))
    master.clock.advance(1_000)
    assert (silent.is_aborted, transport.is_aborted) == (True, False)
    await asyncio.sleep(0)
    assert master.server.links == [link]
    master.clock.advance(20_000)
    assert transport.is_aborted
    assert "closing the connection of slave 192.0.2.7:50000: no report for 21000 ms" in caplog.text
    await asyncio.sleep(0)
    master.clock.advance(1_000)
    assert (master.server.links, master.clock.next_at_ms) == ([], None)


@pytest.mark.parametrize("reported", [-1, -(1 << 63)])
async def test_first_report_that_no_slave_sends(reported: int, caplog: pytest.LogCaptureFixture) -> None:
    """An end below 0 ends the connection, and is logged."""
    master = Master(MemoryLog(bytes(100)))
    _, transport = master.join(reported)
    assert (transport.is_aborted, transport.take(), master.told) == (True, b"", [])
    assert f"reports log offset {reported}" in caplog.text


@pytest.mark.parametrize("reported", [101, (1 << 63) - 1, -1])
async def test_later_report_that_no_slave_sends(reported: int, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is told that a slave has what it was not sent: the connection ends, and is logged."""
    master = Master(MemoryLog(bytes(100)))
    link, transport = master.join(0)
    link.data_received(report(100))
    assert master.told[-1] == [100]
    link.data_received(report(100, reported))
    assert (transport.is_aborted, master.told[-1]) == (True, [100])
    assert f"reports log offset {reported}, was sent what is before 100" in caplog.text


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "ends at 5135603447292250196, ahead of this log, which ends at 100"),
        (bytes(range(1, 200)), "ends at 72623859790382856, ahead of this log, which ends at 100"),
        (b"\xff" * 64, "reports log offset -1"),
    ],
)
async def test_garbage_gets_nothing(garbage: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever somebody else sends, no byte of the log goes to him, nobody is told that he has it, and it is logged."""
    master = Master(MemoryLog(bytes(100)))
    link, transport = master.connect()
    for at in range(0, len(garbage), 5):
        link.data_received(garbage[at : at + 5])
    assert (transport.take(), [log_ends for log_ends in master.told if log_ends]) == (b"", [])
    assert said in caplog.text


def test_acknowledgements_of_several_slaves() -> None:
    """Who waits is told how far each has come, the farthest first; one that has not reported does not count."""
    master = Master(MemoryLog(bytes(100)))
    first, _ = master.join(10)
    second, _ = master.join(40)
    master.connect()
    first.data_received(report(60, 90))
    second.data_received(report(70))
    assert master.told == [[10], [40, 10], [90, 40], [90, 70]]
    states = [(state.acknowledged, state.behind_bytes, state.is_in_sync) for state in master.server.states()]
    assert states == [(90, 10, True), (70, 30, True), (-1, 101, True)]


def test_slave_far_behind_is_not_in_sync() -> None:
    """One that lacks haMaxGapNotInSync or more is not."""
    master = Master(MemoryLog(bytes(100)), haMaxGapNotInSync="60")
    link, _ = master.join(0)
    link.data_received(report(40))
    assert not link.state().is_in_sync
    link.data_received(report(41))
    assert link.state().is_in_sync


def test_flow_is_limited() -> None:
    """With haFlowControlEnable a slave is sent maxHaTransferByteInSecond at most, and the rest in the next second."""
    log = MemoryLog(bytes(2_500))
    master = Master(log, haFlowControlEnable="true", maxHaTransferByteInSecond="1200", haTransferBatchSize="1000")
    link, transport = master.join(0)
    sizes = [[len(body) for _, body in split_frames(transport.take())]]
    for _ in range(3):
        master.clock.advance(1_000)
        link.data_received(report(0))
        sizes.append([len(body) for _, body in split_frames(transport.take())])
    assert sizes == [[1_000, 200], [800, 400], [100], []]
    assert [state.bytes_in_second for state in master.server.states()] == [1_200]


async def test_unreadable_log_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The slave comes again; whoever commits does not notice."""
    log = MemoryLog(bytes(100))
    master = Master(log)
    link, transport = master.join(100)
    log.add(b"more")
    log.failure = OSError("file was cut")
    master.end_moved()
    assert transport.is_aborted
    assert "cannot read the log: file was cut" in caplog.text
    link.end_moved()


async def test_hundreds_of_connections(caplog: pytest.LogCaptureFixture) -> None:
    """So many are kept; for more the oldest go that are no slaves, so a slave is served, and the log is not filled."""
    log = MemoryLog(b"x" * 100)
    master = Master(log)
    async with master.server as server:
        await server.listen("127.0.0.1", 0)
        slave, to_master = await asyncio.open_connection("127.0.0.1", server.port)
        to_master.write(report(0))
        assert await slave.readexactly(HEAD.size + 100) == HEAD.pack(0, 100) + b"x" * 100
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MOST_LINKS + 49)]
        for reader, _ in opened[:50]:
            assert await reads_nothing(reader)
        assert (len(server.links), server.links[0].next_offset) == (MOST_LINKS, 100)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(report(0))
        assert await reader.readexactly(HEAD.size + 100) == HEAD.pack(0, 100) + b"x" * 100
        master.clock.advance(21_000)
        await until(lambda: not server.links)
        for _, other in [*opened, (slave, to_master), (reader, writer)]:
            other.close()
    assert f"there are {MOST_LINKS} others" in caplog.text
    assert "no report for 21000 ms" in caplog.text
    assert len([text for text in caplog.messages if text.startswith("closing the connection")]) == 2 * MOST_LINES
    assert caplog.text.count("connections to the HA port refused within 10000 ms: logging no more of them") == 2


async def test_peers_that_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    """Without having said a word they are closed without one, by sentences of which so many are logged."""
    master = Master(MemoryLog(b"x" * 100), haAllowFrom="192.0.2.7, 2001:db8::/64")
    async with master.server as server:
        await server.listen("127.0.0.1", 0)
        for number in range(MOST_LINES + 5):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            if number % 2:
                writer.write(report(0))
            assert await reads_nothing(reader)
            writer.close()
        assert server.links == []
    refused = [text for text in caplog.messages if text.startswith("closing the connection of 127.0.0.1:")]
    assert len(refused) == MOST_LINES
    assert all(text.endswith(" to the HA port: haAllowFrom does not name it") for text in refused)
    assert len(caplog.messages) == MOST_LINES + 1
    assert master.told == []


async def test_peers_that_are_named() -> None:
    """An address, or one of a network, gets the log."""
    for allowed in ("192.0.2.7,127.0.0.1", "127.0.0.0/8"):
        async with Master(MemoryLog(b"x" * 100), haAllowFrom=allowed).server as server:
            await server.listen("127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(report(0))
            assert await reader.readexactly(HEAD.size + 100) == HEAD.pack(0, 100) + b"x" * 100
            writer.close()
            await until(lambda server=server: not server.links)


async def test_stop_sends_the_rest() -> None:
    """What was written but not sent yet goes out before the connection ends."""
    log = MemoryLog(b"x" * 100)
    master = Master(log)
    async with master.server as server:
        await server.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(report(100))
        await until(lambda: bool(server.links) and server.links[0].next_offset == 100)
        log.add(b"the rest")
        server.links[0].end_moved()
    assert await reader.read() == HEAD.pack(100, 8) + b"the rest"
    writer.close()
    assert master.clock.next_at_ms is None


async def test_states_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Who begins is logged with both ends, and so is who leaves; those who never said anything leave quietly."""
    caplog.set_level(logging.INFO)
    master = Master(MemoryLog(bytes(100)))
    assert repr(master.server) == "<HaServer at port 0, 0 slaves>"
    link, _ = master.join(40)
    assert repr(link) == "<SlaveLink 192.0.2.7:50000 at 40>"
    quiet, _ = master.connect()
    for one in (link, quiet):
        one.close()
        one.close()
    await asyncio.sleep(0)
    assert caplog.messages == [
        "slave 192.0.2.7:50000 has reported log offset 40: sending from 40, the log ends at 100",
        "slave 192.0.2.7:50000 has left at log offset 40",
    ]
