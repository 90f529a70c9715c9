"""A slave takes the log of its master: what was recorded of an official pair, cut in any way, and what is wrong."""

import asyncio
import hashlib
import pathlib
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logbuilder import LogBuilder
from replicas import (
    SCENARIOS,
    SIZES,
    PeerTransport,
    Sent,
    connect,
    cut,
    frame,
    log_checksums,
    read_recording,
    read_truth,
    replication_settings,
    small_store,
    split_reports,
    stream_from,
    without_repeats,
)
from stores import TINY, LimitedFiles, StoreDirectory

from rocketlet.broker.replication.frames import HEAD
from rocketlet.broker.replication.ha_client import MasterLink
from rocketlet.store.consumequeue.appended import Placed
from rocketlet.store.message_store import MessageStore
from rocketlet.testing.manual_clock import ManualClock

SETTINGS = replication_settings(brokerRole="SLAVE", brokerId="1")
EMPTY_FILE = hashlib.md5(bytes(SIZES["segment_bytes"]), usedforsecurity=False).hexdigest()


@pytest.fixture
async def opened(tmp_path: pathlib.Path) -> AsyncGenerator[MessageStore]:
    """Return an empty store."""
    directory = small_store(tmp_path / "slave")
    yield await asyncio.to_thread(directory.open)
    await asyncio.to_thread(directory.close_all)


class Slave:
    """One connection of a store to its master, without a socket."""

    def __init__(self, store: MessageStore) -> None:
        self.clock = ManualClock()
        self.link = MasterLink(store, SETTINGS, self.clock, lambda _log_offset: True, store.advance)
        self.transport: PeerTransport = connect(self.link)
        self.link.begin(store.log_max_offset)

    def take(self, *pieces: bytes) -> None:
        """Receive pieces of the master's stream."""
        for piece in pieces:
            self.link.data_received(piece)

    def reports(self) -> list[int]:
        """Return what was reported since the last call."""
        return split_reports(self.transport.take())


def written_files(root: pathlib.Path) -> dict[str, str]:
    """Return the checksums of log files that hold anything."""
    return {name: md5 for name, md5 in log_checksums(root).items() if md5 != EMPTY_FILE}


def connections(scenario: str) -> Iterator[list[Sent]]:
    """Yield what went over each connection of a recording."""
    recorded = read_recording(scenario)
    for number in sorted({one.connection for one in recorded}):
        yield [one for one in recorded if one.connection == number]


def frames_in(recorded: Iterable[Sent]) -> list[bytes]:
    """Return the frames, heartbeats too, one by one."""
    return [one.data for one in recorded if one.kind != "report"]


@pytest.mark.feature("R2", "R7", "H1")
def test_recorded_copies_give_the_log_of_the_master(tmp_path: pathlib.Path) -> None:
    """The files get the checksums of the official master's, and the reports are those of its official slave.

    That goes for the first copy, a clean restart and a kill: each connection goes on where the one before has come to.
    """
    directory = small_store(tmp_path / "slave")
    slave, said, expected = Slave(directory.open()), list[int](), list[int]()
    for scenario in SCENARIOS:
        for number, recorded in enumerate(connections(scenario)):
            if number:
                directory = restart(directory, is_kill=scenario == "slave-killed")
                slave = Slave(directory.open())
                said.clear()
                expected.clear()
            slave.take(*frames_in(recorded))
            said += slave.reports()
            expected += (one.log_offset for one in recorded if one.kind == "report")
            assert without_repeats(said) == without_repeats(expected)
        truth = read_truth(scenario)
        assert written_files(directory.root) == {name: md5 for name, md5 in truth.items() if md5 != EMPTY_FILE}
    directory.close_all()


def restart(directory: StoreDirectory, *, is_kill: bool) -> StoreDirectory:
    """Return the store after a stop, or what a kill leaves of it."""
    if is_kill:
        left = directory.copy("killed")
        directory.close_all()
        return left
    directory.close_all()
    return directory


@given(places=st.lists(st.integers(0, 203_500), max_size=40), arrived=st.lists(st.integers(0, 80_000), max_size=20))
@settings(max_examples=30)
def test_any_cuts_give_the_same_log(places: list[int], arrived: list[int]) -> None:
    """Wherever the stream is cut, and wherever connections end: the next goes on where one has come to."""
    log = b"".join(one.data[HEAD.size :] for one in read_recording("fresh-catchup") if one.kind == "data")
    truth = {name: md5 for name, md5 in read_truth("fresh-catchup").items() if md5 != EMPTY_FILE}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one connection", "many connections"):
            directory = small_store(pathlib.Path(folder) / name)
            with directory.open() as store:
                for count in arrived if name.startswith("many") else []:
                    slave = Slave(store)
                    slave.take(stream_from(log, *slave.reports())[:count])
                slave = Slave(store)
                slave.take(*cut(stream_from(log, *slave.reports()), places))
                assert (store.log_max_offset, store.dispatch_behind_bytes) == (len(log), 0)
            assert written_files(directory.root) == truth


@pytest.mark.feature("R2", "R7")
def test_cut_at_every_byte_of_a_frame(tmp_path: pathlib.Path) -> None:
    """Nothing is kept of a frame that does not come whole; the next connection begins where it stands."""
    with small_store(tmp_path / "slave").open() as store:
        frames = [one for one in read_recording("fresh-catchup") if one.kind == "data"]
        for one in frames:
            for end in range(len(one.data)) if len(one.data) < 10_000 else ():
                slave = Slave(store)
                slave.take(one.data[:end])
                assert (slave.reports(), store.log_max_offset) == ([one.log_offset], one.log_offset)
            slave = Slave(store)
            slave.take(one.data)
            assert slave.reports() == [one.log_offset, one.end]
        assert (store.log_max_offset, store.dispatch_behind_bytes) == (frames[-1].end, 0)


@pytest.mark.feature("R6")
def test_record_that_is_cut_by_frames(tmp_path: pathlib.Path) -> None:
    """With a frame for each byte a message can be read with its last one, and not before."""
    log = next(one for one in read_recording("fresh-catchup") if one.kind == "data").data[HEAD.size :]
    directory = small_store(tmp_path / "slave")
    ends, arrived = list[int](), list[int]()
    while (at := ends[-1] if ends else 0) < len(log):
        ends.append(at + int.from_bytes(log[at : at + 4]))

    def note(records: Sequence[Placed]) -> None:
        arrived.extend(record.log_offset + record.size for record in records)

    with directory.open() as store:
        slave = Slave(store)
        store.subscribe(note)
        for offset in range(len(log)):
            slave.take(frame(offset, log[offset : offset + 1]))
            assert arrived == [end for end in ends if end <= offset + 1]
        assert slave.reports() == list(range(len(log) + 1))


@pytest.mark.feature("R7")
@pytest.mark.parametrize("is_kill", [True, False])
@pytest.mark.parametrize("missing", [1, 7, 8, 100])
def test_restart_amid_a_record(tmp_path: pathlib.Path, is_kill: bool, missing: int) -> None:
    """The start cuts the piece of a record, which is reported, and sent again; the log is that of the master."""
    [log] = [one.data[HEAD.size :] for one in read_recording("fresh-catchup") if one.kind == "data"][:1]
    directory = small_store(tmp_path / "slave")
    Slave(directory.open()).take(frame(0, log[:-missing]))
    directory = restart(directory, is_kill=is_kill)
    slave = Slave(directory.open())
    [end] = slave.reports()
    assert end < len(log) - missing
    slave.take(frame(end, log[end:]))
    assert slave.reports() == [len(log)]
    directory.close_all()
    assert (directory.root / "commitlog" / f"{0:020d}").read_bytes().rstrip(b"\0") == log.rstrip(b"\0")


@pytest.mark.feature("R5")
def test_silence_of_the_slave_is_a_report() -> None:
    """After haSendHeartbeatInterval without a report it says again where it is; heartbeats are not answered."""
    with tempfile.TemporaryDirectory() as folder, small_store(pathlib.Path(folder)).open() as store:
        slave = Slave(store)
        assert slave.reports() == [0]
        for at_ms in range(1_000, 13_000, 1_000):
            slave.clock.advance(1_000)
            slave.take(frame(0))
            assert slave.reports() == ([0] if at_ms % 6_000 == 0 else [])


@pytest.mark.feature("R5")
async def test_silence_of_the_master_ends_the_connection(opened: MessageStore) -> None:
    """After more than haHousekeepingInterval without a byte the slave hangs up; that is told apart from other ends."""
    slave = Slave(opened)
    slave.clock.advance(20_000)
    slave.take(frame(0)[:5])
    slave.clock.advance(20_000)
    assert not slave.transport.is_aborted
    slave.clock.advance(1_000)
    assert (slave.transport.is_aborted, slave.link.was_silent) == (True, True)
    await slave.link.closed.wait()
    assert slave.clock.next_at_ms is None


@pytest.mark.parametrize("body", [b"elsewhere", b""])
async def test_frame_for_another_place_ends_the_connection(opened: MessageStore, body: bytes) -> None:
    """Nothing of it is written; a heartbeat counts as well, since it says what the master would send next."""
    slave = Slave(opened)
    slave.take(frame(0, b"x" * 40) + frame(39, body) + frame(40, b"behind it"))
    assert slave.transport.is_aborted
    assert slave.link.failure == "the master sends log offset 39, this log ends at 40"
    assert (opened.log_max_offset, slave.reports()) == (40, [0, 40])


@pytest.mark.parametrize(
    ("garbage", "why"),
    [
        (HEAD.pack(0, -1), "HA frame at log offset 0 is -1 bytes, limit is "),
        (HEAD.pack(0, 1 << 30), "HA frame at log offset 0 is 1073741824 bytes, limit is "),
        (frame(1, b"x"), "copied bytes stand at 1, the log ends at 0"),
        (frame(-65_536, b"x"), "HA frame at log offset -65536 is 1 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HA frame at log offset 5211883372140375601 is "),
    ],
)
async def test_garbage_ends_the_connection(opened: MessageStore, garbage: bytes, why: str) -> None:
    """What no master sends is not written."""
    slave = Slave(opened)
    slave.take(garbage)
    assert slave.transport.is_aborted
    assert slave.link.failure.startswith(why)
    assert opened.log_max_offset == 0


async def test_full_disk_ends_the_connection(tmp_path: pathlib.Path) -> None:
    """Nothing of a frame is kept that has no room; when there is room, the copy goes on where the log ends."""
    disk, directory = LimitedFiles(), small_store(tmp_path / "slave")
    store = await asyncio.to_thread(directory.open, disk)
    disk.room = 100
    slave = Slave(store)
    slave.take(frame(0, b"x" * 80), frame(80, b"x" * 80))
    assert slave.transport.is_aborted
    assert "no room to write" in slave.link.failure
    disk.room = None
    slave = Slave(store)
    assert slave.reports() == [80]
    slave.take(frame(80, b"x" * 80))
    assert slave.reports() == [160]
    await asyncio.to_thread(directory.close_all)


def log_of_two_files(tmp_path: pathlib.Path, file_bytes: int) -> bytes:
    """Return a log of two files of that size, the second one begun."""
    log = LogBuilder(tmp_path / "master", segment_bytes=file_bytes)
    while log.end < file_bytes:
        log.add(b"x" * 100)
    log.save()
    first, second = sorted((tmp_path / "master" / "commitlog").iterdir())
    return first.read_bytes() + second.read_bytes()[: log.end - file_bytes]


@pytest.mark.parametrize("piece", [1, 100, 512, 4_096])
@pytest.mark.parametrize(("own", "others"), [(8_192, 4_096), (4_096, 8_192)])
async def test_master_with_files_of_another_size(tmp_path: pathlib.Path, own: int, others: int, piece: int) -> None:
    """The copy ends behind the last record that means the same in both, says why, and a restart finds a sound log."""
    log = log_of_two_files(tmp_path, others)
    directory = StoreDirectory(tmp_path / "slave", **{**TINY, "segment_bytes": own})
    store = await asyncio.to_thread(directory.open)
    for _ in range(3):
        slave = Slave(store)
        [start] = slave.reports()
        at = start
        while at < len(log) and not slave.transport.is_aborted:
            end = min(at + piece, at - at % others + others)
            slave.take(frame(at, log[at:end]))
            at = end
        assert slave.transport.is_aborted
        assert "mappedFileSizeCommitLog must be that of the master" in slave.link.failure
    ended = store.log_max_offset
    await asyncio.to_thread(directory.close_all)
    again = await asyncio.to_thread(directory.open)
    assert again.log_max_offset <= ended
    readable = [again.max_offset(*queue) for queue in again.queues()]
    assert sum(readable) == log[: min(own, others)].count(b"x" * 100)
    await asyncio.to_thread(directory.close_all)


def test_damage_in_the_masters_log_is_said_once(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """The copy goes on, byte for byte; what stands behind the damage cannot be read here."""
    log = LogBuilder(tmp_path / "master", segment_bytes=4_096)
    offsets = [log.add(b"x" * 100) for _ in range(5)]
    log.save()
    data = bytearray((tmp_path / "master" / "commitlog" / f"{0:020d}").read_bytes()[: log.end])
    data[offsets[2] + 4] ^= 0xFF
    directory = StoreDirectory(tmp_path / "slave")
    with directory.open() as store:
        slave = Slave(store)
        slave.take(*(frame(at, bytes(data[at : at + 50])) for at in range(0, len(data), 50)))
        assert store.log_max_offset == len(data)
        assert sum(store.max_offset(*queue) for queue in store.queues()) == 2
    [said] = [text for text in caplog.messages if "damaged" in text]
    assert said.startswith(f"the master's log is damaged at log offset {offsets[2]}")
