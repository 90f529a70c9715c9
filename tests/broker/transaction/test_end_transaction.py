"""Half messages and how they end, by raw requests."""

import asyncio

import pytest
from halfcalls import (
    COMMIT,
    GROUP,
    OP_TOPIC,
    ROLLBACK,
    UNKNOWN,
    Half,
    bodies,
    end,
    pulled,
    record_at,
    send_half,
)
from raw_calls import Caller, open_caller, until
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.names import HALF_TOPIC
from rocketlet.remoting.codec.command import ONEWAY, Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import EndTransactionHeader
from rocketlet.testing.manual_clock import ManualClock

SAME = "body", "flag", "born_at_ms", "born_host", "store_host", "reconsume_times"


@pytest.mark.feature("T1")
async def test_half_message_is_invisible(caller: Caller, broker: Broker) -> None:
    """It lies in queue 0 of the half topic in Java's form; its own topic is there and empty."""
    half = await send_half(caller, queue_id=3, more="TAGS\x01a\x02UNIQ_KEY\x01k1\x02", sys_flag=4, flag=7)
    assert (half.half_offset, half.unique_key) == (0, "k1")
    assert await pulled(caller, queue_id=3) == []
    record = await record_at(caller, half.log_offset)
    assert (record.topic, record.queue_id, record.queue_offset) == (HALF_TOPIC, 0, 0)
    assert (record.sys_flag, record.flag, record.prepared_transaction_offset) == (0, 7, 0)
    told = {name: record.properties[name] for name in ("REAL_TOPIC", "REAL_QID", "__transactionId__", "TRAN_MSG")}
    assert told == {"REAL_TOPIC": "T", "REAL_QID": "3", "__transactionId__": "k1", "TRAN_MSG": "true"}
    assert broker.store.entries(HALF_TOPIC, 0, 0, 9)[0][2] == 97  # the code of its tag


@pytest.mark.feature("T1")
async def test_commit_makes_it_visible(caller: Caller) -> None:
    """The message is in its own queue, flag 8, the half message's position beside it, REAL_TOPIC and REAL_QID gone."""
    half = await send_half(caller, b"mine", queue_id=2, more="TAGS\x01a\x02", sys_flag=4, flag=7, reconsume_times=1)
    answer = await end(caller, half, COMMIT)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (record,) = await pulled(caller, queue_id=2)
    kept = await record_at(caller, half.log_offset)
    assert [getattr(record, name) for name in SAME] == [getattr(kept, name) for name in SAME]
    assert (record.sys_flag, record.prepared_transaction_offset) == (8, half.log_offset)
    assert record.properties == {
        name: value for name, value in kept.properties.items() if name not in ("REAL_TOPIC", "REAL_QID")
    }
    assert [bytes(op.body) for op in await pulled(caller, OP_TOPIC)] == [b"0,"]


@pytest.mark.feature("T2")
async def test_rollback_delivers_nothing(caller: Caller, broker: Broker) -> None:
    """Only an op message is written."""
    half = await send_half(caller)
    before = broker.store.log_max_offset
    assert (await end(caller, half, ROLLBACK)).code == ResponseCode.SUCCESS
    assert await bodies(caller) == []
    (op,) = await pulled(caller, OP_TOPIC)
    assert (bytes(op.body), op.properties, op.log_offset) == (b"0,", {"TAGS": "d", "WAIT": "true"}, before)
    assert broker.store.log_max_offset == before + op.total_size


async def send_in_one_read(broker: Broker, ends: list[EndTransactionHeader]) -> None:
    """Send one-way requests in one piece, and wait until they have been served."""
    frames = [Command.request(RequestCode.END_TRANSACTION, header) for header in ends]
    host, _, port = broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for frame in frames:
        frame.flag = ONEWAY
    unknown = Command.request(9_999)
    writer.write(b"".join(encode_command(frame) for frame in (*frames, unknown)))
    await reader.read(1)
    writer.close()
    await writer.wait_closed()


async def test_one_op_message_for_one_read(broker: Broker, caller: Caller) -> None:
    """What one read of a connection settles is named by one op message, behind what was committed."""
    halves = [await send_half(caller, b"%d" % number) for number in range(5)]
    outcomes = COMMIT, ROLLBACK, COMMIT, UNKNOWN, COMMIT
    await send_in_one_read(broker, [half.end(outcome) for half, outcome in zip(halves, outcomes, strict=True)])
    assert await bodies(caller) == [b"0", b"2", b"4"]
    (op,) = await pulled(caller, OP_TOPIC)
    assert bytes(op.body) == b"0,1,2,4,"
    assert op.log_offset > (await pulled(caller))[-1].log_offset


async def test_long_op_messages_are_split(settings: dict[str, str], clock: ManualClock) -> None:
    """TransactionOpMsgMaxSize bounds one op message."""
    settings["transactionOpMsgMaxSize"] = "3"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        halves = [await send_half(caller) for _ in range(5)]
        await send_in_one_read(broker, [half.end(ROLLBACK) for half in halves])
        assert [bytes(op.body) for op in await pulled(caller, OP_TOPIC)] == [b"0,1,", b"2,3,", b"4,"]


@pytest.mark.feature("T9")
async def test_unknown_outcome_gets_no_answer(caller: Caller) -> None:
    """The next request on the connection is answered, and nothing has come before; the transaction stays open."""
    half = await send_half(caller)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(end(caller, half, UNKNOWN, is_from_check=check)) for check in (True, False)]
        await asyncio.sleep(0)
        assert await pulled(caller, OP_TOPIC) == []
        assert not any(one.done() for one in asked)
        for one in asked:
            one.cancel()
    assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS


@pytest.mark.feature("T8")
@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"producer_group": "others"}, "The producer group wrong"),
        ({"half_offset": 7}, "The transaction state table offset wrong"),
        ({"log_offset": 5}, "Find prepared transaction message failed"),
        ({"log_offset": 10**15}, "Find prepared transaction message failed"),
        ({"log_offset": -1}, "Find prepared transaction message failed"),
        ({"outcome": 4}, "commitOrRollback field wrong"),
        ({"outcome": 9}, "commitOrRollback field wrong"),
    ],
)
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_wrong_end_is_refused(fields: dict[str, object], remark: str, outcome: int, caller: Caller) -> None:
    """A wrong group, offset, position or outcome is answered 1 with Java's remark, and settles nothing."""
    half = await send_half(caller)
    answer = await end(caller, half, **{"outcome": outcome, **fields})  # pyright: ignore[reportArgumentType] # wrong types too
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert (await bodies(caller), await pulled(caller, OP_TOPIC)) == ([], [])


@pytest.mark.feature("T8")
async def test_other_records_are_no_half_messages(caller: Caller) -> None:
    """The position of an ordinary message is refused, whatever it says of itself."""
    answer = await caller.send(properties=f"PGROUP\x01{GROUP}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02")
    place = int(answer.ext["msgId"][-16:], 16)
    answer = await end(caller, Half(0, place, "k"), COMMIT)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


@pytest.mark.parametrize(
    "field", ["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId"]
)
async def test_missing_field_is_named(field: str, caller: Caller) -> None:
    """Each of the five fields has to be there."""
    fields = {
        "producerGroup": GROUP,
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": "8",
        "msgId": "k",
    }
    del fields[field]
    answer = await caller.ask(RequestCode.END_TRANSACTION, fields)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"the custom field <{field}> is null")


@pytest.mark.feature("T7")
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_late_end_of_an_immune_message(outcome: int, caller: Caller, clock: ManualClock) -> None:
    """When its immunity is over the producer's own decision is answered 604, that to a check is taken."""
    half = await send_half(caller, more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02")
    early = await send_half(caller, b"early", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02")
    clock.advance(10_000)
    assert (await end(caller, early, outcome)).code == ResponseCode.SUCCESS
    clock.advance(1)
    answer = await end(caller, half, outcome)
    assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, None)
    assert (await end(caller, half, outcome, is_from_check=True)).code == ResponseCode.SUCCESS
    assert await bodies(caller) == ([b"early", b"half"] if outcome == COMMIT else [])


@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("is_same_read", [True, False])
async def test_second_end_changes_nothing(second: int, is_same_read: bool, broker: Broker, caller: Caller) -> None:
    """A commit that comes again, also in the same read, is answered 0 and delivers nothing more."""
    half = await send_half(caller)
    if is_same_read:
        await send_in_one_read(broker, [half.end(COMMIT), half.end(second)])
    else:
        assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
        assert (await end(caller, half, second)).code == ResponseCode.SUCCESS
    assert await bodies(caller) == [b"half"]
    assert [bytes(op.body) for op in await pulled(caller, OP_TOPIC)] == [b"0,"]


async def test_commit_after_rollback_delivers_nothing(caller: Caller) -> None:
    """The first outcome stands."""
    half = await send_half(caller)
    assert (await end(caller, half, ROLLBACK)).code == ResponseCode.SUCCESS
    assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
    assert await bodies(caller) == []


@pytest.mark.feature("L9")
async def test_delay_waits_for_the_commit(caller: Caller, clock: ManualClock) -> None:
    """A half message with a delay level is kept as one; the delay begins with the commit."""
    half = await send_half(caller, more="DELAY\x011\x02")
    assert (await record_at(caller, half.log_offset)).topic == HALF_TOPIC
    await clock.elapse(1_000)
    assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
    await clock.elapse(999)
    assert await bodies(caller) == []
    await clock.elapse(1)
    assert await bodies(caller) == [b"half"]
    assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
    await clock.elapse(1_000)
    assert await bodies(caller) == [b"half"]


async def test_timer_waits_for_the_commit(settings: dict[str, str], clock: ManualClock) -> None:
    """A half message that asks for a timer is kept; without a timer wheel its commit is refused as a send is."""
    settings["timerWheelEnable"] = "false"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        half = await send_half(caller, more="TIMER_DELAY_SEC\x015\x02")
        assert (await record_at(caller, half.log_offset)).topic == HALF_TOPIC
        answer = await end(caller, half, COMMIT)
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert await pulled(caller, OP_TOPIC) == []


async def test_delayed_retry_is_no_transaction(caller: Caller) -> None:
    """What a consumer sends back carries TRAN_MSG still; with attempts and a delay it is an ordinary message."""
    answer = await caller.send(properties="TRAN_MSG\x01true\x02DELAY\x010\x02", reconsume_times=1)
    assert (answer.code, await bodies(caller)) == (ResponseCode.SUCCESS, [])
    answer = await caller.send(properties="TRAN_MSG\x01true\x02DELAY\x011\x02", reconsume_times=1)
    assert len(await pulled(caller, HALF_TOPIC)) == 1
    assert len(await pulled(caller, "SCHEDULE_TOPIC_XXXX")) == 1


async def test_transactions_can_be_refused(settings: dict[str, str], clock: ManualClock) -> None:
    """RejectTransactionMessage answers 16 in Java's words, and stores nothing; other messages are taken."""
    settings["rejectTransactionMessage"] = "true"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        answer = await caller.send(properties="TRAN_MSG\x01true\x02PGROUP\x01g\x02")
        remark = "the broker[127.0.0.1] sending transaction message is forbidden"
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
        assert (await caller.send(properties="TRAN_MSG\x01false\x02")).ext["queueOffset"] == "0"
        assert await pulled(caller, HALF_TOPIC) == []


async def test_full_disk_settles_nothing(settings: dict[str, str], clock: ManualClock) -> None:
    """An end that cannot be written is answered 14, one-way or not; it can be told again when there is room."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        halves = [await send_half(caller, b"%d" % number) for number in range(3)]
        disk.has_room = False
        caller.ask_oneway(RequestCode.END_TRANSACTION, halves[0].end(COMMIT))
        for half, outcome in ((halves[1], COMMIT), (halves[2], ROLLBACK)):
            answer = await end(caller, half, outcome)
            assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
        disk.has_room = True
        await clock.elapse(1_000)
        assert (await bodies(caller), await pulled(caller, OP_TOPIC)) == ([], [])
        for half in halves:
            assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
        assert await bodies(caller) == [b"0", b"1", b"2"]


async def test_commit_is_answered_when_it_is_on_disk(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH the answer comes with the flush; one that comes too late counts as success."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH", "brokerFastFailureEnable": "false"})
    async with Broker(config, clock, disk) as broker, open_caller(broker.address) as caller:
        halves = [await send_half(caller, b"%d" % number) for number in range(3)]
        disk.get_stuck()
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(end(caller, halves[0], COMMIT))
            await until(disk.waiting.is_set)
            assert (await bodies(caller), ending.done()) == ([], False)
            disk.go_on()
            assert (await ending).code == ResponseCode.SUCCESS
            assert await bodies(caller) == [b"0"]
            disk.get_stuck()
            ending = group.create_task(end(caller, halves[1], COMMIT))
            await until(disk.waiting.is_set)
            await bodies(caller)
            await clock.elapse(5_000)
            answer = await ending
            assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
            disk.go_on(failing=True)
            answer = await end(caller, halves[2], COMMIT)
            assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
