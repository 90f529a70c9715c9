"""Files that somebody removes under a running broker: a clear answer for what was in them, all else goes on."""

import os
import pathlib
from collections.abc import AsyncGenerator

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import StoreNotWritableError
from rocketlet.common.record import decode_record, iter_records
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

COUNT = 400
ENTRIES_PER_FILE = 20
SMALL = {
    "mappedFileSizeCommitLog": "1024",
    "maxMessageSize": "500",
    "mappedFileSizeConsumeQueue": str(20 * ENTRIES_PER_FILE),
    "maxHashSlotNum": "10",
    "maxIndexNum": "60",
}


@pytest.fixture
async def reopened(
    settings: dict[str, str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Caller]:
    """Run a broker over a store that another one filled: many more files than it may have open."""
    monkeypatch.setattr("rocketlet.store.store_parts.descriptor_limit", lambda: 24)
    settings |= SMALL
    async with Broker(BrokerConfig.from_java(settings), clock) as first, open_caller(first.address) as caller:
        for number in range(COUNT):
            answer = await caller.send("T", b"body %d" % number, properties=f"KEYS\x01k{number}\x02")
            assert answer.code == ResponseCode.SUCCESS
    async with Broker(BrokerConfig.from_java(settings), clock) as second, open_caller(second.address) as caller:
        yield caller


async def pull_bodies(caller: Caller, queue_offset: int) -> list[bytes]:
    """Return the bodies of one pull."""
    answer = await caller.pull("T", queue_offset)
    assert answer.code == ResponseCode.SUCCESS
    return [bytes(record.body) for record in iter_records(answer.body)]


def file_of(tmp_path: pathlib.Path, folder: str, number: int) -> pathlib.Path:
    """Return a file of a folder of the store by its number; -1 is the last."""
    return sorted((tmp_path / "store" / folder).iterdir())[number]


def first_offset_of(path: pathlib.Path) -> int:
    """Return the queue offset of the first message of a log file."""
    return decode_record(path.read_bytes()).queue_offset


@pytest.mark.parametrize("number", [0, 3])
async def test_missing_log_file_is_named(number: int, reopened: Caller, tmp_path: pathlib.Path) -> None:
    """A pull from a file of the log that is gone gets an error that names it; the messages beside it are served."""
    lost = file_of(tmp_path, "commitlog", number)
    first = first_offset_of(lost)
    lost.unlink()
    answer = await reopened.pull("T", first)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"{lost} cannot be used: No such file or directory"
    assert await pull_bodies(reopened, COUNT - 1) == [b"body %d" % (COUNT - 1)]
    assert (await reopened.send("T", b"more")).code == ResponseCode.SUCCESS
    assert await pull_bodies(reopened, COUNT) == [b"more"]


async def test_missing_index_file_is_named(reopened: Caller, tmp_path: pathlib.Path) -> None:
    """A query by key says which file of the index is gone; pulls and sends do not need it."""
    lost = file_of(tmp_path, "index", 0)
    lost.unlink()
    fields = {"topic": "T", "key": "k0", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
    answer = await reopened.ask(RequestCode.QUERY_MESSAGE, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"{lost} cannot be used: No such file or directory"
    assert await pull_bodies(reopened, 0) != []
    assert (await reopened.send("T", b"more")).code == ResponseCode.SUCCESS


async def test_missing_queue_file_is_named(reopened: Caller, tmp_path: pathlib.Path) -> None:
    """A pull from a file of a queue that is gone gets an error that names it; the rest of the queue is served."""
    lost = file_of(tmp_path, "consumequeue/T/0", 1)
    lost.unlink()
    answer = await reopened.pull("T", ENTRIES_PER_FILE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"{lost} cannot be used: No such file or directory"
    assert await pull_bodies(reopened, 4 * ENTRIES_PER_FILE) != []


async def test_queue_file_that_was_cut_is_named(reopened: Caller, tmp_path: pathlib.Path) -> None:
    """A pull from a file of a queue that somebody has cut gets an error that names it; the rest is served."""
    cut = file_of(tmp_path, "consumequeue/T/0", 1)
    os.truncate(cut, 30)
    answer = await reopened.pull("T", ENTRIES_PER_FILE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"{cut} cannot be used: read 30 bytes of 400 at 0, somebody may have cut it"
    assert await pull_bodies(reopened, 4 * ENTRIES_PER_FILE) != []


@pytest.mark.parametrize(("length", "read"), [(40, "0 bytes of 4 at"), (100, "0 bytes of 20 at")])
async def test_index_file_that_was_cut_is_named(
    length: int, read: str, reopened: Caller, tmp_path: pathlib.Path
) -> None:
    """A query by key that needs slots or entries that somebody has cut off is no "not found"; the others are found."""
    cut = file_of(tmp_path, "index", 0)
    os.truncate(cut, length)
    fields = {"topic": "T", "key": "k0", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
    answer = await reopened.ask(RequestCode.QUERY_MESSAGE, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith(f"{cut} cannot be used: read {read} ")
    last = {**fields, "key": f"k{COUNT - 1}", "maxNum": "1"}
    assert (await reopened.ask(RequestCode.QUERY_MESSAGE, last)).code == ResponseCode.SUCCESS
    assert (await reopened.send("T", b"more", properties="KEYS\x01more\x02")).code == ResponseCode.SUCCESS


async def test_log_file_that_is_removed_while_it_is_written_stops_the_sends(
    broker: Broker, caller: Caller, tmp_path: pathlib.Path
) -> None:
    """The next flush finds that the file has no name any more: sends are refused from then on, readers go on."""
    assert (await caller.send("T", b"one")).code == ResponseCode.SUCCESS
    assert await pull_bodies(caller, 0) == [b"one"]
    file_of(tmp_path, "commitlog", 0).unlink()
    with pytest.raises(StoreNotWritableError, match="removed while it was written to"):
        broker.store.flush()
    answer = await caller.send("T", b"two")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert await pull_bodies(caller, 0) == [b"one"]
