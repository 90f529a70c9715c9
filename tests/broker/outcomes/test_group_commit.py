"""SYNC_FLUSH: a send is answered when its message is on disk, by a broker whose disk the test holds back."""

import asyncio
import logging
import pathlib
from collections.abc import AsyncGenerator, Coroutine
from itertools import islice
from typing import Any

import pytest
from clientframes import sends
from memory_connection import connect_in_memory
from raw_calls import Caller, open_caller, send_header, until
from served import observe
from slow_disk import SlowDisk

from rocketlet.broker import server
from rocketlet.broker.outcomes import group_commit
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import BatchPart, decode_record, encode_batch, iter_records
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.files.files import Files
from rocketlet.testing.manual_clock import ManualClock

HOLD = PULL_SUBSCRIPTION | PULL_SUSPEND


@pytest.fixture
def disk() -> SlowDisk:
    """Give the broker's disk."""
    return SlowDisk()


@pytest.fixture
async def broker(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> AsyncGenerator[Broker]:
    """Run a broker with SYNC_FLUSH that has the topic T."""
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, disk) as started:
        async with open_caller(started.address) as caller:
            assert (await caller.send(properties="WAIT\x01false\x02", queue_id=3)).code == ResponseCode.SUCCESS
        yield started
        disk.go_on(failing=disk.fails)


async def begin(
    group: asyncio.TaskGroup, caller: Caller, disk: SlowDisk, *bodies: bytes
) -> list[asyncio.Task[Command]]:
    """Send while the disk is stuck, and return when all is written and a flush held back; the answers are owed."""
    disk.get_stuck()
    sending = [asyncio.ensure_future(caller.send(body=body)) for body in bodies]  # noqa: TID251 # awaited by the test
    await until(disk.waiting.is_set)
    await max_offset(caller)  # a flush from before may be the one that is held back; what was sent is served by now
    return sending


async def stored_bodies(caller: Caller, queue_offset: int = 0) -> list[bytes]:
    """Return the bodies that a consumer of queue 0 gets."""
    answer = await caller.pull(queue_offset=queue_offset)
    return [bytes(record.body) for record in iter_records(answer.body)]


def has_abort(settings: dict[str, str]) -> bool:
    """Tell whether the store says that it was not closed cleanly."""
    return pathlib.Path(settings["storePathRootDir"], "abort").exists()


async def max_offset(caller: Caller) -> str:
    """Return the end of queue 0."""
    return (await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})).ext["offset"]


@pytest.mark.feature("S19")
async def test_send_is_answered_when_it_is_on_disk(caller: Caller, disk: SlowDisk) -> None:
    """Until the flush is over there is no answer and nothing to read; then SEND_OK, and the message is there."""
    async with asyncio.TaskGroup() as group:
        (sending,) = await begin(group, caller, disk, b"one")
        assert (await max_offset(caller), await stored_bodies(caller), sending.done()) == ("0", [], False)
        disk.go_on()
        answer = await sending
        assert (answer.code, answer.remark, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, None, "0")
        assert await stored_bodies(caller) == [b"one"]


async def noted(order: list[str], name: str, asking: Coroutine[Any, Any, Command]) -> Command:
    """Note the name when the answer has come."""
    answer = await asking
    order.append(name)
    return answer


async def test_waiting_pull_is_answered_behind_the_sender(caller: Caller, disk: SlowDisk) -> None:
    """The answer to the producer comes with the flush, and behind it a pull that waits gets the message."""
    order: list[str] = []
    disk.get_stuck()
    async with asyncio.TaskGroup() as group:
        sent = group.create_task(noted(order, "send", caller.send(body=b"one")))
        pulled = group.create_task(noted(order, "pull", caller.pull(sys_flag=HOLD)))
        await until(disk.waiting.is_set)
        await max_offset(caller)  # the pull is held by now
        disk.go_on()
    assert bytes(decode_record(pulled.result().body).body) == b"one"
    assert (sent.result().code, order) == (ResponseCode.SUCCESS, ["send", "pull"])


async def test_one_flush_serves_all_who_wait(caller: Caller, disk: SlowDisk) -> None:
    """What is sent during a flush is served together by the next one, and answered in order."""
    order: list[str] = []
    async with asyncio.TaskGroup() as group:
        await begin(group, caller, disk, b"first")
        rest = [group.create_task(noted(order, str(number), caller.send())) for number in range(1, 21)]
        await max_offset(caller)  # all have been served by now
        before = disk.syncs
        disk.go_on()
    assert disk.syncs - before == 2
    assert [answer.result().ext["queueOffset"] for answer in rest] == order == [str(number) for number in range(1, 21)]


async def test_answers_go_out_before_queue_entries_are_written(
    settings: dict[str, str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders go on meanwhile; those of one connection are answered with one write."""
    steps: list[str] = []

    class WatchedDisk(Files):
        def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
            steps.append("entries")
            return super().pwrite(descriptor, data, position)

    def note_answers(data: bytes) -> None:
        steps.append(f"{data.count(b'queueOffset')} answers")

    observed, config = observe(monkeypatch, server), BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, WatchedDisk()):
        connection, transport = connect_in_memory(observed[0].handlers, clock)
        sending = sends("T", 1, b"body")
        connection.data_received(next(sending))
        await transport.has_written.wait()  # the topic is there
        steps.clear()
        monkeypatch.setattr(transport, "write", note_answers)
        connection.data_received(b"".join(islice(sending, 3)))
        await until(lambda: "entries" in steps)
    assert steps[:2] == ["3 answers", "entries"]


async def leave_one_behind(group: asyncio.TaskGroup, caller: Caller, disk: SlowDisk) -> asyncio.Task[Command]:
    """Have a send answered and another one written during its flush; return what will be the other's answer."""
    (first,) = await begin(group, caller, disk, b"first")
    behind = group.create_task(caller.send(body=b"behind"))
    await max_offset(caller)
    disk.go_on()
    await first
    return behind


async def test_flush_waits_for_those_who_were_answered(
    caller: Caller, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came during a flush is flushed when the one whom that answered has sent again, both together."""
    monkeypatch.setattr(group_commit, "GATHER_S", 60)
    async with asyncio.TaskGroup() as group:
        behind = await leave_one_behind(group, caller, disk)
        before = disk.syncs
        assert (await max_offset(caller), behind.done(), disk.syncs) == ("1", False, before)
        assert (await caller.send()).ext["queueOffset"] == "2"
    assert (behind.result().ext["queueOffset"], disk.syncs) == ("1", before + 1)


async def test_flush_waits_for_those_who_stay_away_once(
    caller: Caller, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends nothing more holds others up for moments, and the next flushes wait for nobody."""
    async with asyncio.TaskGroup() as group:
        assert (await (await leave_one_behind(group, caller, disk))).ext["queueOffset"] == "1"
        monkeypatch.setattr(group_commit, "GATHER_S", 60)
        assert (await (await leave_one_behind(group, caller, disk))).ext["queueOffset"] == "3"


@pytest.mark.feature("S19")
async def test_slow_disk_is_told_after_the_timeout(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """After syncFlushTimeout the answer is FLUSH_DISK_TIMEOUT with the place of the message, which is stored."""
    async with asyncio.TaskGroup() as group:
        sending = await begin(group, caller, disk, b"one", b"two")
        await max_offset(caller)
        clock.advance(4_999)
        await clock.settle()
        assert not any(one.done() for one in sending)
        clock.advance(1)
        answers = [await one for one in sending]
        assert [(one.code, one.remark, one.ext["queueOffset"]) for one in answers] == [(10, None, "0"), (10, None, "1")]
        assert all(one.ext.keys() >= {"msgId", "queueId", "transactionId", "MSG_REGION"} for one in answers)
        assert await stored_bodies(caller) == []
        disk.go_on()
        assert (await caller.send(body=b"three")).code == ResponseCode.SUCCESS
        assert await stored_bodies(caller) == [b"one", b"two", b"three"]


async def test_timeout_is_each_senders_own(caller: Caller, disk: SlowDisk, clock: ManualClock) -> None:
    """Who came later waits longer, also with binary headers."""
    async with asyncio.TaskGroup() as group:
        (first,) = await begin(group, caller, disk, b"one")
        clock.advance(900)
        header = send_header("T")
        second = group.create_task(caller.ask(RequestCode.SEND_MESSAGE_V2, header, b"two", serialize=1))
        await max_offset(caller)  # when this has been asked, it is sent
        await max_offset(caller)
        clock.advance(4_100)
        assert (await first).code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert not second.done()
        clock.advance(900)
        answer = await second
        assert (answer.code, answer.serialize, answer.ext["queueOffset"]) == (10, 1, "1")


@pytest.mark.feature("S21")
async def test_send_with_wait_false_does_not_wait(caller: Caller, disk: SlowDisk) -> None:
    """It is answered at once; its message is readable after the flush that it has caused."""
    disk.get_stuck()
    answer = await caller.send(body=b"one", properties="UNIQ_KEY\x01k\x02WAIT\x01false\x02")
    assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")
    await until(disk.waiting.is_set)
    assert await stored_bodies(caller) == []
    disk.go_on()
    assert (await caller.send(body=b"two")).code == ResponseCode.SUCCESS
    assert await stored_bodies(caller) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("properties", "waits"),
    [("WAIT\x01true\x02", True), ("WAIT\x01TRUE\x02", True), ("AWAIT\x01false\x02", True), ("WAIT\x01no\x02", False)],
)
async def test_wait_is_read_as_java_reads_it(caller: Caller, disk: SlowDisk, properties: str, waits: bool) -> None:
    """Only a value other than "true" in any case lets the answer come early; another property does not."""
    async with asyncio.TaskGroup() as group:
        disk.get_stuck()
        sending = group.create_task(caller.send(properties=properties))
        await until(disk.waiting.is_set)
        await max_offset(caller)
        assert sending.done() is not waits
        disk.go_on()
        assert (await sending).code == ResponseCode.SUCCESS


async def test_batch_waits_as_one(caller: Caller, disk: SlowDisk) -> None:
    """A batch is answered when all of it is on disk; WAIT stands in the header's properties."""
    async with asyncio.TaskGroup() as group:
        body = encode_batch([BatchPart(0, b"a", b"TAGS\x01x\x02"), BatchPart(0, b"b", b"")])
        disk.get_stuck()
        header = send_header("T", batch=True)
        sending = group.create_task(caller.ask(RequestCode.SEND_BATCH_MESSAGE, header, body))
        await until(disk.waiting.is_set)
        early = await caller.ask(
            RequestCode.SEND_BATCH_MESSAGE, send_header("T", 0, "WAIT\x01false\x02", batch=True), body
        )
        assert (early.code, sending.done()) == (ResponseCode.SUCCESS, False)
        disk.go_on()
        answer = await sending
        assert (answer.code, len(answer.ext["msgId"].split(","))) == (ResponseCode.SUCCESS, 2)


async def test_oneway_send_is_flushed_too(caller: Caller, disk: SlowDisk) -> None:
    """Nobody waits for it, and no answer is owed; the next flush takes it along."""
    disk.get_stuck()
    caller.ask_oneway(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"one way")
    await until(disk.waiting.is_set)
    disk.go_on()
    assert (await caller.send(body=b"two")).code == ResponseCode.SUCCESS
    assert await stored_bodies(caller) == [b"one way", b"two"]


async def test_sender_that_has_gone_loses_only_its_answer(broker: Broker, caller: Caller, disk: SlowDisk) -> None:
    """The connection ends while the send waits: the message is stored, and others are answered."""
    async with asyncio.TaskGroup() as group:
        async with open_caller(broker.address) as leaving:
            leaving.ask_oneway(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
            (gone,) = await begin(group, leaving, disk, b"gone")
            staying = group.create_task(caller.send(body=b"stays"))
            await max_offset(caller)
            leaving.connection.abort()
            with pytest.raises(Exception, match="ended before the answer"):
                await gone
        disk.go_on()
        assert (await staying).code == ResponseCode.SUCCESS
        assert await stored_bodies(caller) == [b"gone", b"stays"]


async def test_send_that_creates_its_topic_waits_for_both(
    caller: Caller, disk: SlowDisk, nameserver: NameServer
) -> None:
    """It is answered after the flush, and then the name server knows the topic."""
    async with asyncio.TaskGroup() as group:
        disk.get_stuck()
        sending = group.create_task(caller.send("Fresh"))
        await until(disk.waiting.is_set)
        await max_offset(caller)
        assert not sending.done()
        disk.go_on()
        assert (await sending).code == ResponseCode.SUCCESS
        async with open_caller(nameserver.address) as other:
            route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Fresh"})
        assert route.code == ResponseCode.SUCCESS


@pytest.mark.feature("S19")
async def test_failed_flush_is_told_to_all_who_wait(
    broker: Broker, caller: Caller, disk: SlowDisk, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """No waiter gets SEND_OK, later sends are refused, reads go on, and one line is logged."""
    async with asyncio.TaskGroup() as group:
        assert (await caller.send(body=b"before")).code == ResponseCode.SUCCESS
        sending = await begin(group, caller, disk, b"one", b"two")
        await max_offset(caller)
        disk.go_on(failing=True)
        answers = [await one for one in sending]
        answers.append(await caller.send(body=b"three"))
        await clock.elapse(2_000)
        answers.append(await caller.send(body=b"four", properties="WAIT\x01false\x02"))
        assert {answer.code for answer in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert all("a flush failed" in (answer.remark or "") and "msgId" not in answer.ext for answer in answers)
        assert await stored_bodies(caller) == [b"before"]
        logged = [one for one in caplog.records if one.levelno >= logging.WARNING]
        told = [(one.name, "a flush failed" in one.getMessage()) for one in logged]
        assert told == [("rocketlet.store.recovery.flusher", True)]
        assert broker.store.flush_failure is not None


async def test_stop_after_a_failed_flush_leaves_abort(settings: dict[str, str], clock: ManualClock) -> None:
    """The next start recovers, and takes messages again."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, disk) as broker, open_caller(broker.address) as caller:
        assert (await caller.send(body=b"before")).code == ResponseCode.SUCCESS
        disk.go_on(failing=True)
        assert (await caller.send(body=b"lost")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert has_abort(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        assert (await caller.send(body=b"after")).code == ResponseCode.SUCCESS
        assert (await stored_bodies(caller))[0] == b"before"


async def test_write_that_fails_is_answered_once(
    settings: dict[str, str], clock: ManualClock, disk: SlowDisk, tmp_path: pathlib.Path
) -> None:
    """A message that cannot even be written is refused, and who comes after it gets its place."""
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, disk) as broker, open_caller(broker.address) as caller:
        assert (await caller.send(body=b"one")).code == ResponseCode.SUCCESS
        disk.has_room = False
        refused = [await caller.send(body=b"no"), await caller.send("Fresh")]
        assert {answer.code for answer in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        disk.has_room = True
        answer = await caller.send(body=b"two")
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "1")
        assert await stored_bodies(caller) == [b"one", b"two"]


@pytest.mark.feature("H6")
async def test_stop_answers_those_who_wait(settings: dict[str, str], clock: ManualClock, disk: SlowDisk) -> None:
    """A stop while sends wait for the disk answers them before it closes connections; ``abort`` goes."""
    async with asyncio.TaskGroup() as group:
        config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
        broker = await Broker(config, clock, disk).__aenter__()
        async with open_caller(broker.address) as caller:
            sending = await begin(group, caller, disk, b"one", b"two")
            await max_offset(caller)
            stopping = group.create_task(broker.__aexit__(None, None, None))
            await clock.settle()
            disk.go_on()
            await stopping
            assert [(await one).code for one in sending] == [ResponseCode.SUCCESS] * 2
        assert not has_abort(settings)


async def test_stop_waits_for_nobody_who_was_answered(
    settings: dict[str, str], clock: ManualClock, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send whose flush waits for another sender is answered when the broker stops."""
    monkeypatch.setattr(group_commit, "GATHER_S", 60)
    async with asyncio.TaskGroup() as group:
        broker = await Broker(
            BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"}), clock, disk
        ).__aenter__()
        async with open_caller(broker.address) as caller:
            behind = await leave_one_behind(group, caller, disk)
            await broker.__aexit__(None, None, None)
            assert (await behind).code == ResponseCode.SUCCESS


def test_unknown_flush_type_is_refused(settings: dict[str, str]) -> None:
    """The sentence names the key and the two values."""
    with pytest.raises(ConfigError, match="flushDiskType is 'FAST_FLUSH', it must be ASYNC_FLUSH or SYNC_FLUSH"):
        BrokerConfig.from_java({**settings, "flushDiskType": "FAST_FLUSH"})
