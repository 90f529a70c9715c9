"""The broker's timed cleaning, and what administrators can ask for."""

import os
import pathlib
from collections.abc import Callable

import pytest
from raw_calls import Caller, open_caller, until
from stores import HOST, new_record

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.files.files import Files
from rocketlet.store.message_store import MessageStore
from rocketlet.testing.manual_clock import ManualClock

FILE_BYTES = 4096
FOUND = ("Known", "Unknown", "SCHEDULE_TOPIC_XXXX", "%LMQ%light", "cluster-a", "rmq_sys_x")
EVERY_HOUR = ";".join(map(str, range(24)))
CLEANING = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "mappedFileSizeConsumeQueue": "200",
    "fileReservedTime": "1",
    "deleteWhen": EVERY_HOUR,
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
    "diskMaxUsedSpaceRatio": "95",
    "serverChannelMaxIdleTimeSeconds": "1000000",
}


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Return settings with tiny files that may go after an hour."""
    return {**settings, **CLEANING}


@pytest.fixture
async def filled(broker: Broker, caller: Caller, clock: ManualClock) -> Broker:
    """Run a broker with 60 flushed messages of one queue in some files."""
    for number in range(60):
        await caller.send(body=b"%0200d" % number)
    await clock.elapse(1000)
    await until(lambda: broker.store.flushed_offset == broker.store.log_max_offset)
    return broker


def log_files(broker: Broker) -> list[int]:
    """Return the numbers of the log's files, without one that is prepared for later."""
    folder = pathlib.Path(broker.store.config.root) / "commitlog"
    end = broker.store.log_max_offset
    return sorted(int(path.name) // FILE_BYTES for path in folder.iterdir() if int(path.name) < end)


async def clean_until(clock: ManualClock, is_so: Callable[[], bool]) -> None:
    """Let rounds follow each other until something is so; one begins ten seconds after the end of the one before."""
    while not is_so():
        await clock.elapse(10_000)


def usage(percent: int) -> Callable[[Files, str], tuple[int, int]]:
    """Return an answer of the disk: so many percent are in use."""
    return lambda _files, _path: (percent, 100 - percent)


def age(broker: Broker, clock: ManualClock, count: int) -> None:
    """Let the first files be two hours old, by the clock of the broker, and the others new."""
    folder = pathlib.Path(broker.store.config.root) / "commitlog"
    for number in log_files(broker):
        at_s = clock.now_ms() / 1000 - (7200 if number < count else 0)
        os.utime(folder / f"{number * FILE_BYTES:020d}", (at_s, at_s))


@pytest.mark.feature("H8")
async def test_expired_files_go_and_offsets_below_are_moved(filled: Broker, caller: Caller, clock: ManualClock) -> None:
    """A minute after the start files go; a pull below the first message is answered 21 with where to go on."""
    before = log_files(filled)
    age(filled, clock, 3)
    await clock.elapse(58_000)
    assert log_files(filled) == before
    await clock.elapse(1_000)
    await until(lambda: filled.store.min_offset("T", 0) > 0)
    assert log_files(filled) == before[3:]
    minimum = await caller.ask(RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"})
    first = int(minimum.ext["offset"])
    pulled = await caller.pull(queue_offset=0)
    assert pulled.code == ResponseCode.PULL_OFFSET_MOVED
    assert (pulled.ext["nextBeginOffset"], pulled.ext["minOffset"]) == (str(first), str(first))
    pulled = await caller.pull(queue_offset=first)
    assert pulled.code == ResponseCode.SUCCESS
    viewed = await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
    assert (viewed.code, viewed.remark) == (ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 0")


@pytest.mark.feature("P29")
async def test_new_group_on_a_topic_whose_start_is_gone(filled: Broker, caller: Caller, clock: ManualClock) -> None:
    """A new group gets offset 0 while message 0 is there, and 22 once its file has been removed."""
    about = {"topic": "T", "queueId": "0", "consumerGroup": "new"}
    assert (await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, about)).ext["offset"] == "0"
    age(filled, clock, 3)
    await clean_until(clock, lambda: filled.store.min_offset("T", 0) > 0)
    assert (await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, about)).code == ResponseCode.QUERY_NOT_FOUND


async def test_rounds_follow_at_their_interval(filled: Broker, clock: ManualClock) -> None:
    """After the first round one comes every ``cleanResourceInterval``."""
    await clock.elapse(60_000)
    before = log_files(filled)
    age(filled, clock, 2)
    await clean_until(clock, lambda: log_files(filled) == before[2:])


@pytest.mark.feature("D16")
async def test_request_deletes_expired_files_now(settings: dict[str, str], clock: ManualClock) -> None:
    """Request 329 does not wait for the hour nor for the next round."""
    settings["deleteWhen"] = ""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        for number in range(60):
            await caller.send(body=b"%0200d" % number)
        await clock.elapse(1000)
        await until(lambda: broker.store.flushed_offset == broker.store.log_max_offset)
        age(broker, clock, 3)
        before = log_files(broker)
        answer = await caller.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert answer.code == ResponseCode.SUCCESS
        await until(lambda: log_files(broker) == before[3:])


@pytest.mark.feature("D16")
async def test_queues_without_messages_are_removed(filled: Broker, caller: Caller, clock: ManualClock) -> None:
    """306 removes queues whose messages are all gone, and no others; their numbering begins anew."""
    queues = pathlib.Path(filled.store.config.root) / "consumequeue"
    await caller.send("Late")
    await caller.send("T")
    await clock.elapse(1000)
    await until(lambda: filled.store.flushed_offset == filled.store.log_max_offset)
    age(filled, clock, 99)
    await clock.elapse(60_000)
    await until(lambda: len(log_files(filled)) == 1)
    assert sorted(path.name for path in queues.iterdir()) == ["Late", "T"]
    answer = await caller.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert answer.code == ResponseCode.SUCCESS
    assert sorted(path.name for path in queues.iterdir()) == ["Late", "T"]
    for number in range(30):
        await caller.send(body=b"%0200d" % number)
    await clock.elapse(1000)
    await until(lambda: filled.store.flushed_offset == filled.store.log_max_offset)
    age(filled, clock, 99)
    await clean_until(clock, lambda: filled.store.min_offset("Late", 0) == 1)
    answer = await caller.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert answer.code == ResponseCode.SUCCESS
    assert [path.name for path in queues.iterdir()] == ["T"]
    assert (await caller.send("Late")).ext["queueOffset"] == "0"


@pytest.fixture
def found(settings: dict[str, str], clock: ManualClock) -> BrokerConfig:
    """Return the settings of a broker whose store has queues of topics that it does not know."""
    config = BrokerConfig.from_java(settings)
    with MessageStore.open(config.store, now_ms=clock.now_ms, store_host=HOST) as store:
        for topic in FOUND:
            store.append(new_record(topic))
        store.commit()
    return config


@pytest.mark.feature("D16")
async def test_queues_of_unknown_topics_are_removed(found: BrokerConfig, clock: ManualClock) -> None:
    """316 removes the queues of topics that the broker does not have; those of its topics and of the system stay."""
    async with Broker(found, clock) as broker, open_caller(broker.address) as caller:
        await caller.send("Known")
        assert (await caller.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
        left = sorted(path.name for path in (pathlib.Path(found.store.root) / "consumequeue").iterdir())
        assert left == sorted(set(FOUND) - {"Unknown"})


async def test_full_disk_is_answered_in_javas_words(
    filled: Broker, caller: Caller, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends are answered 14 with the ratios, pulls as ever; with room again, sends succeed without a restart."""
    monkeypatch.setattr(Files, "disk_usage", usage(91))
    await clock.elapse(60_000)
    await until(lambda: filled.store.refusal is not None)
    refused = await caller.send()
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refused.remark == (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
        "[CL:  0.91 CQ:  0.91 INDEX:  0.91], messages are put to the slave, message store has been shut down, etc."
    )
    last = filled.store.max_offset("T", 0) - 1
    assert (await caller.pull(queue_offset=last)).code == ResponseCode.SUCCESS
    monkeypatch.setattr(Files, "disk_usage", usage(50))
    await clean_until(clock, lambda: filled.store.refusal is None)
    assert (await caller.send()).code == ResponseCode.SUCCESS
