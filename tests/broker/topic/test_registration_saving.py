"""Topics that a broker makes known before they are on the disk, and how they get there."""

import asyncio
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

import msgspec
import pytest
from raw_calls import open_caller, until
from registrations import SilentNameServer, route_at, topics_known, until_known
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.topic.registration import Registration
from rocketlet.broker.topic.topics import TopicTable, make_topic
from rocketlet.common.codes import ResponseCode
from rocketlet.common.metadata import TopicConfigTable
from rocketlet.common.record import iter_records
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import TaskScope
from rocketlet.store.files.files import Files
from rocketlet.testing.manual_clock import ManualClock

TOPIC = {"topic": "T", "defaultTopic": "", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
CREATE = {**TOPIC, "topicFilterType": "SINGLE_TAG", "order": "false"}


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    """Give a disk whose flushes the test holds back."""
    made = SlowDisk()
    yield made
    made.go_on()


def is_saved(settings: dict[str, str], topic: str) -> bool:
    """Tell whether topics.json has a topic."""
    path = pathlib.Path(settings["storePathRootDir"], "config", "topics.json")
    return path.exists() and f'"{topic}"' in path.read_text()


async def test_topic_is_answered_while_no_flush_ends(
    settings: dict[str, str],
    clock: ManualClock,
    nameserver: NameServer,
    silent_nameserver: SilentNameServer,
    disk: SlowDisk,
) -> None:
    """Disk, its thread and a name server hang: creating a topic and sending are answered in a second, then at once."""
    settings["namesrvAddr"] = f"{nameserver.address};{silent_nameserver.address}"
    starting = Broker(BrokerConfig.from_java(settings), clock, disk)
    async with asyncio.TaskGroup() as group:
        group.create_task(starting.__aenter__())
        await until(lambda: len(silent_nameserver.asked) == 1)
        await until_known(nameserver.address, "TBW102")
        clock.advance(1000)
    async with open_caller(starting.address) as caller:
        disk.get_stuck()
        async with asyncio.TaskGroup() as group:
            creation = caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
            calls = creation, caller.send("U"), caller.send("U"), caller.heartbeat("c", "g", {"U": "*"})
            answers = [group.create_task(call) for call in calls]
            await until(disk.waiting.is_set)
            await until_known(nameserver.address, "T")
            await until_known(nameserver.address, "U")
            assert not any(answer.done() for answer in answers)
            asked = len(silent_nameserver.asked)
            clock.advance(1000)
        assert [answer.result().code for answer in answers] == [ResponseCode.SUCCESS] * 4
        assert [(await caller.send(topic)).code for topic in ("T", "U", "U")] == [ResponseCode.SUCCESS] * 3
        assert len(silent_nameserver.asked) == asked
        disk.go_on()
        while not await asyncio.to_thread(is_saved, settings, "U"):
            pass
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(starting.__aexit__(None, None, None))
        while not stopping.done():
            await clock.elapse(1000)


class RefusingDisk(Files):
    """A disk that refuses to write small files while there is an ``error``, and counts that."""

    def __init__(self) -> None:
        self.error = 0
        self.refused = 0

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write, or fail."""
        if self.error:
            self.refused += 1
            raise OSError(self.error, os.strerror(self.error))
        return super().pwrite(descriptor, data, position)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
async def test_topic_that_was_not_saved_is_saved_again(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer, tmp_path: pathlib.Path, error: int
) -> None:
    """A topic that the disk has refused is answered, and saved a second later: a broker that is killed then has it."""
    settings["flushConsumerOffsetInterval"] = "600000"
    disk = RefusingDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        disk.error = error
        for count, topic in enumerate(("T", "U"), 1):
            answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": topic})
            assert answer.code == ResponseCode.SUCCESS
            assert disk.refused >= count
        await clock.elapse(1000)
        await until(lambda: disk.refused >= 3)
        assert not await asyncio.to_thread(is_saved, settings, "T")
        disk.error = 0
        while not await asyncio.to_thread(is_saved, settings, "T"):
            await clock.elapse(1000)
        await asyncio.to_thread(shutil.copytree, settings["storePathRootDir"], tmp_path / "killed")
    killed = {**settings, "storePathRootDir": str(tmp_path / "killed")}
    async with Broker(BrokerConfig.from_java(killed), clock):
        assert await topics_known(nameserver.address) >= {"T", "U"}


async def test_topic_counts_as_unsaved_until_the_disk_has_it(settings: dict[str, str], clock: ManualClock) -> None:
    """Senders are told of a topic whose save has failed as of one that is being saved; it is tried once a second."""
    live = LiveSettings(BrokerConfig.from_java(settings), "127.0.0.1")
    topics, saved = TopicTable(live, clock.now_ms), [False, False, True]

    async def save() -> bool:
        return saved.pop(0)

    async with TaskScope() as tasks:
        registration = Registration(live, topics, save, tasks, clock)
        for name in ("T", "U"):
            topics.put(make_topic(name, 1))
        answered = asyncio.Event()
        registration.make_known(["T"], answered.set)
        await clock.settle()
        assert answered.is_set()
        assert topics.unsaved == {"T", "U"}
        await clock.elapse(1000)
        assert (saved, topics.unsaved) == ([True], {"T", "U"})
        await clock.elapse(1000)
        assert (saved, topics.unsaved) == ([], {"U"})
        await clock.elapse(10_000)


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_failed_saves_are_tried_again_together(
    settings: dict[str, str], clock: ManualClock, is_stopped: bool
) -> None:
    """However many saves have failed, there is one more in a second; and none after the stop, which saves all."""
    live = LiveSettings(BrokerConfig.from_java(settings), "127.0.0.1")
    topics, saves = TopicTable(live, clock.now_ms), list[int]()
    may_fail = asyncio.Event()

    async def save() -> bool:
        saves.append(clock.now_ms())
        await may_fail.wait()
        return len(saves) > 3

    async with TaskScope() as tasks:
        registration = Registration(live, topics, save, tasks, clock)
        for name in ("T", "U", "V"):
            topics.put(make_topic(name, 1))
            registration.make_known([name], lambda: None)
        await clock.settle()
        if is_stopped:
            await registration.stop()
        may_fail.set()
        await clock.elapse(10_000)
    assert len(saves) == (3 if is_stopped else 4)


async def test_topic_that_has_changed_is_told_again(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer, disk: SlowDisk
) -> None:
    """While a topic waits for the disk, another number of queues reaches the route all the same."""
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        disk.get_stuck()
        for queues in ("1", "2"):
            async with asyncio.TaskGroup() as group:
                fields = {**CREATE, "readQueueNums": queues, "writeQueueNums": queues}
                created = group.create_task(caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
                await until_known(nameserver.address, "T")
                while f'"writeQueueNums":{queues}'.encode() not in (await route_at(nameserver.address, "T")).body:
                    pass
                assert not created.done()
                clock.advance(1000)
            assert created.result().code == ResponseCode.SUCCESS
        disk.go_on()


@pytest.fixture
async def killed(
    settings: dict[str, str], clock: ManualClock, disk: SlowDisk, tmp_path: pathlib.Path
) -> dict[str, str]:
    """Return the settings over what a kill leaves of topic U, which got messages while nothing reached the disk."""
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        assert (await caller.send("before")).code == ResponseCode.SUCCESS
        disk.get_stuck()
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(caller.send("U", b"first", queue_id=2))
            await until(disk.waiting.is_set)
            clock.advance(1000)
        assert sending.result().code == ResponseCode.SUCCESS
        assert not is_saved(settings, "U")
        shutil.copytree(settings["storePathRootDir"], tmp_path / "twin")
        disk.go_on()
    return settings | {"storePathRootDir": str(tmp_path / "twin")}


async def test_topic_that_was_not_saved_is_made_again_after_a_kill(
    killed: dict[str, str], clock: ManualClock, nameserver: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its acknowledged messages are pulled, its route is known, and its next message follows; the log names it."""
    settings = killed | {"autoCreateTopicEnable": "false"}
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        told = "topic U has messages, but was not saved before the broker ended: made again with 3 queues"
        assert told in caplog.text
        assert is_saved(settings, "U")
        await until_known(nameserver.address, "U")
        (record,) = iter_records((await caller.pull("U", queue_id=2)).body)
        assert bytes(record.body) == b"first"
        assert (await caller.send("U", queue_id=2)).ext["queueOffset"] == "1"


async def test_deleted_topic_does_not_come_again_after_a_kill(
    settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path
) -> None:
    """A table that was saved after the last message of a topic, and does not list it, was saved by its deletion."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        assert (await caller.send("gone")).code == ResponseCode.SUCCESS
        shutil.copytree(settings["storePathRootDir"], tmp_path / "twin")
    settings["storePathRootDir"] = str(tmp_path / "twin")
    path = tmp_path / "twin" / "config" / "topics.json"
    table = TopicTable(LiveSettings(BrokerConfig.from_java(settings), "127.0.0.1"), clock.now_ms)
    table.load(msgspec.json.decode(path.read_bytes(), type=TopicConfigTable))
    assert table.delete("gone")
    path.write_bytes(msgspec.json.encode(table.content()))
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        assert broker.store.max_offset("gone", 0) == 1
        answer = await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "gone"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
