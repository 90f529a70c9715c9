"""Both ends of a copy of the log without sockets, a slave that a test plays, and what official brokers have sent."""

import asyncio
import gzip
import hashlib
import json
import pathlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any, NamedTuple, Self

from raw_calls import Caller, send_header
from stores import StoreDirectory

from rocketlet.broker.replication.frames import HEAD, REPORT, FrameParser
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import RemotingError
from rocketlet.common.ids import UniqueIds
from rocketlet.common.message import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.message_store import MessageStore

VECTORS = pathlib.Path(__file__).parent.parent / "vectors" / "ha"
SIZES = {"segment_bytes": 65_536, "queue_file_bytes": 2_000, "index_slots": 100, "index_entries": 400}
"""Those of the brokers that were recorded."""
BATCH_BYTES = 32_768
RETRIERS = "retriers"
SCENARIOS = ("fresh-catchup", "slave-restart", "slave-killed")
"""What happened to one pair, in this order."""


class Sent(NamedTuple):
    """A frame or a report that was recorded."""

    connection: int
    kind: str
    log_offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The log offset behind the bytes of a frame."""
        return self.log_offset + len(self.data) - HEAD.size


def read_recording(name: str) -> list[Sent]:
    """Return what was recorded, in its order."""
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt") as file:
        rows: list[dict[str, Any]] = [json.loads(line) for line in file]
    return [Sent(row["conn"], row["kind"], row["offset"], bytes.fromhex(row["hex"])) for row in rows if "kind" in row]


def steps_of(sent: Iterable[Sent]) -> list[list[Sent]]:
    """Return the data frames of a master in groups, each up to where its log ended when it sent them.

    That is behind each frame that is neither full nor at the end of a file.
    """
    steps: list[list[Sent]] = [[]]
    for one in sent:
        if one.kind == "data":
            steps[-1].append(one)
            if len(one.data) - HEAD.size < BATCH_BYTES and one.end % SIZES["segment_bytes"]:
                steps.append([])
    return [step for step in steps if step]


def without_repeats(offsets: Iterable[int]) -> list[int]:
    """Return reports without those that only say that the slave is alive."""
    return [offset for offset, _ in groupby(offsets)]


def read_truth(scenario: str) -> dict[str, str]:
    """Return the checksums of a master's log files by their names, after a scenario."""
    truth = json.loads((VECTORS / "truth-ha1.json").read_text())
    return truth[scenario]["master"]


def log_checksums(root: pathlib.Path) -> dict[str, str]:
    """Return the checksums of the log files of a store by their names."""
    files = sorted((root / "commitlog").iterdir())
    return {path.name: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in files}


def replication_settings(**given: str) -> LiveSettings:
    """Return settings of a master, or of what they say."""
    return LiveSettings(BrokerConfig.from_java(given), "127.0.0.1")


class PeerTransport(asyncio.Transport):
    """Keeps what is written; a test says when the peer takes nothing more."""

    def __init__(self, protocol: asyncio.Protocol, peer: tuple[str, int] = ("192.0.2.7", 50_000)) -> None:
        super().__init__({"peername": peer})
        self._protocol = protocol
        self.written = bytearray()
        self.room: int | None = None
        self.high = 0
        self.is_aborted = self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Take note of the limit."""
        self.high = high or 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the bytes; when there is no more room, pause the writer."""
        self.written += data
        if self.room is not None:
            self.room -= len(data)
            if self.room <= 0:
                self._protocol.pause_writing()

    def take(self, room: int | None = None) -> bytes:
        """Return what was written and let the writer go on, until so many bytes are written."""
        taken = bytes(self.written)
        self.written.clear()
        was_full, self.room = self.room is not None and self.room <= 0, room
        if was_full:
            self._protocol.resume_writing()
        return taken

    def is_closing(self) -> bool:
        """Tell whether it was ended."""
        return self.is_aborted or self.is_closed

    def close(self) -> None:
        """End when all is written, which is the case."""
        self._end()
        self.is_closed = True

    def abort(self) -> None:
        """End at once."""
        self._end()
        self.is_aborted = True

    def _end(self) -> None:
        if not self.is_closing():
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


def connect(protocol: asyncio.Protocol) -> PeerTransport:
    """Give a protocol its connection."""
    transport = PeerTransport(protocol)
    protocol.connection_made(transport)
    return transport


def split_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return where the bytes of each whole frame stand, and the bytes."""
    return [(frame.log_offset, bytes(frame.body)) for frame in FrameParser(lambda _log_offset: None).feed(data)]


def split_reports(data: bytes) -> list[int]:
    """Return the log offsets that a slave has reported."""
    return [offset for (offset,) in REPORT.iter_unpack(data)]


def report(*log_offsets: int) -> bytes:
    """Return the bytes of reports."""
    return b"".join(map(REPORT.pack, log_offsets))


def frame(log_offset: int, body: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return HEAD.pack(log_offset, len(body)) + body


def stream_from(log: bytes, start: int) -> bytes:
    """Return what a master sends of a log from a position on."""
    frames: list[bytes] = []
    while start < len(log):
        file_end = start - start % SIZES["segment_bytes"] + SIZES["segment_bytes"]
        end = min(start + BATCH_BYTES, file_end, len(log))
        frames.append(frame(start, log[start:end]))
        start = end
    return b"".join(frames)


def fill_log(store: MessageStore, frames: Iterable[Sent]) -> None:
    """Write to a log what was recorded of another one."""
    for one in frames:
        store.append_copy(one.log_offset, one.data[HEAD.size :])


def small_store(root: pathlib.Path) -> StoreDirectory:
    """Return the directory of a store with files as those of the recorded brokers."""
    return StoreDirectory(root, **SIZES)


class MemoryLog:
    """A log of any bytes, as a master sees it."""

    def __init__(self, data: bytes = b"", *, begins_at: int = 0, file_bytes: int = 1_000) -> None:
        self._data = bytes(begins_at) + data
        self._file_bytes = file_bytes
        self.log_min_offset = begins_at
        self.failure: OSError | None = None

    @property
    def log_max_offset(self) -> int:
        """The end."""
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Write."""
        self._data += data

    def newest_file(self) -> int:
        """Return where the last file begins."""
        return len(self._data) - len(self._data) % self._file_bytes

    def log_bytes(self, log_offset: int, most: int) -> memoryview:
        """Return what stands in one file from a position on, unless that fails."""
        if self.failure is not None:
            raise self.failure
        end = min(log_offset + most, log_offset - log_offset % self._file_bytes + self._file_bytes)
        return memoryview(self._data)[log_offset:end]


async def send_all_kinds(caller: Caller, topic: str = "T", count: int = 40) -> None:
    """Send messages of all kinds, more than a file of the log holds, and settle the transactions."""
    for number in range(count):
        answer = await caller.send(topic, b"x" * 2_000, queue_id=number % 4, properties="KEYS\x01every\x02")
        assert answer.code == ResponseCode.SUCCESS, answer
    body = encode_batch([BatchPart(0, b"a", b"TAGS\x01x\x02"), BatchPart(0, b"b", b"")])
    answer = await caller.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(topic, batch=True), body)
    assert answer.code == ResponseCode.SUCCESS, answer
    await caller.send(topic, properties="DELAY\x011\x02")
    for outcome in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        key = UniqueIds(b"\x7f\x00\x00\x01", 1, lambda: 0).next_id()
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01{key}{outcome}\x02"
        half = await caller.send(topic, properties=properties, sys_flag=TRANSACTION_PREPARED)
        end = {
            "producerGroup": "producers",
            "tranStateTableOffset": half.ext["queueOffset"],
            "commitLogOffset": str(int(half.ext["msgId"][-16:], 16)),
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": "false",
            "msgId": half.ext["transactionId"],
            "transactionId": half.ext["transactionId"],
        }
        answer = await caller.ask(RequestCode.END_TRANSACTION, end)
        assert answer.code == ResponseCode.SUCCESS, answer


async def send_for_later(caller: Caller, topic: str = "T") -> None:
    """Send a message that is due in a second, and give one back for the group ``RETRIERS``, which is due then, too."""
    answer = await caller.send(topic, b"timed", properties="TIMER_DELAY_MS\x011000\x02")
    assert answer.code == ResponseCode.SUCCESS, answer
    sent = await caller.send(topic, b"tried again", queue_id=1)
    back = {
        "group": RETRIERS,
        "offset": str(int(sent.ext["msgId"][-16:], 16)),
        "delayLevel": "1",
        "originMsgId": sent.ext["msgId"],
        "originTopic": topic,
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
    answer = await caller.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
    assert answer.code == ResponseCode.SUCCESS, answer


class StatedMaster:
    """A master whose log has these records, and these bounds."""

    def __init__(
        self, records: Mapping[int, bytes] | None = None, bounds: tuple[int, int] = (0, 0), failure: str = ""
    ) -> None:
        self.records = records or {}
        self.bounds = bounds
        self.failure = failure
        self.asked: list[str] = []

    def connect(self, address: str) -> Self:
        """Take note of the address."""
        self.asked.append(address)
        return self

    async def record_at(self, log_offset: int) -> bytes | None:
        """Return the record."""
        if self.failure:
            raise RemotingError(self.failure)
        return self.records.get(log_offset)

    async def log_bounds(self) -> tuple[int, int]:
        """Return the bounds."""
        if self.failure:
            raise RemotingError(self.failure)
        return self.bounds


class PlayedSlave:
    """A connection to the HA port of a broker, over which a test reports what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._end = 0

    def report(self, log_offset: int) -> None:
        """Say how far the log was copied."""
        self._writer.write(REPORT.pack(log_offset))

    async def copy_until(self, log_offset: int) -> None:
        """Read frames until they come to this position, and do not say so."""
        while self._end < log_offset:
            start, size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            await self._reader.readexactly(size)
            self._end = start + size

    async def wait_end(self) -> None:
        """Wait until the master has hung up."""
        while await self._reader.read(1 << 16):
            pass


@asynccontextmanager
async def play_slave(address: str, log_offset: int = 0) -> AsyncGenerator[PlayedSlave]:
    """Connect to the HA port of the broker at an address, and report."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port) + 1)
    slave = PlayedSlave(reader, writer)
    slave.report(log_offset)
    try:
        yield slave
    finally:
        writer.close()
        await writer.wait_closed()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return the pieces of a stream between these places."""
    ends = [*sorted({place for place in places if 0 < place < len(data)}), len(data)]
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
