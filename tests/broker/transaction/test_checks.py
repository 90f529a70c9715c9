"""Checks of open transactions, by raw requests to a broker whose clock the test moves; and what a check decides.

Also over restarts of the broker, and while its disk is slow or full.
"""

import json
import logging
import pathlib

import pytest
from halfcalls import (
    CHECK_TIMES,
    COMMIT,
    DISCARD_TOPIC,
    OP_TOPIC,
    PATIENT,
    ROLLBACK,
    ROUND_MS,
    TRANSACTION_GROUP,
    Half,
    asked_bodies,
    asked_half,
    bodies,
    end,
    next_round,
    open_producer,
    pulled,
    questions,
    record_at,
    send_half,
)
from raw_calls import Caller, open_caller, recorded_questions, until
from slow_disk import SlowDisk
from stores import HOST

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.transaction.checks import CheckRules, CheckVerdict, check_times, is_too_late, judge
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import format_offset_id
from rocketlet.common.names import HALF_TOPIC
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord, Record, decode_record, encode_record
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

IMMUNE = "CHECK_IMMUNITY_TIME_IN_SECONDS\x01{}\x02"


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Let clients be silent for hours."""
    return settings | PATIENT


def saved_cursors(settings: dict[str, str]) -> list[int | None]:
    """Return half and op cursor in consumerOffset.json."""
    path = pathlib.Path(settings["storePathRootDir"], "config", "consumerOffset.json")
    table: dict[str, dict[str, int]] = json.loads(path.read_text())["offsetTable"]
    return [table.get(f"{topic}@{TRANSACTION_GROUP}", {}).get("0") for topic in (HALF_TOPIC, OP_TOPIC)]


def lose_cursors(settings: dict[str, str]) -> None:
    """Remove consumerOffset.json."""
    pathlib.Path(settings["storePathRootDir"], "config", "consumerOffset.json").unlink()


def leave_unclean(settings: dict[str, str]) -> None:
    """Let the store look as if its broker had not stopped cleanly."""
    pathlib.Path(settings["storePathRootDir"], "abort").touch()


@pytest.mark.feature("T3")
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_unknown_outcome_is_asked_for(outcome: int, broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """With the round that comes after the time-out the producer is asked; its answer ends the transaction."""
    async with open_producer(broker) as producer:
        await send_half(caller)
        await clock.elapse(ROUND_MS - 1)
        assert await questions(producer) == []
        await clock.elapse(1)
        half = asked_half(await producer.next_request())
        assert (await end(producer, half, outcome, is_from_check=True)).code == ResponseCode.SUCCESS
        assert await bodies(caller) == ([b"half"] if outcome == COMMIT else [])
        await next_round(clock, 3)
        assert await questions(producer) == []


@pytest.mark.feature("T3")
async def test_question_is_javas(broker: Broker, caller: Caller, clock: ManualClock, vectors: pathlib.Path) -> None:
    """It names the copy that was made for it, and brings the message as a record of its own topic and queue."""
    first = await send_half(caller, queue_id=3, more="TAGS\x01a\x02", flag=5)
    async with open_producer(broker) as producer:
        await next_round(clock)
        question = await producer.next_request()
    half = asked_half(question)
    assert half == (1, half.log_offset, first.unique_key)
    copy, carried = await record_at(caller, half.log_offset), decode_record(question.body)
    place = format_offset_id(copy.store_host, half.log_offset)
    fields = {"topic": HALF_TOPIC, "bname": "broker-a", "offsetMsgId": place, "transactionId": first.unique_key}
    assert question.ext.items() >= fields.items()
    java = next(recorded_questions(vectors, "transaction-5.4.0"))
    assert (question.code, question.is_oneway, question.ext.keys()) == (java.code, True, java.ext.keys())
    assert (copy.topic, copy.queue_offset, copy.properties[CHECK_TIMES], copy.flag) == (HALF_TOPIC, 1, "1", 5)
    assert (carried.topic, carried.queue_id, carried.queue_offset, carried.log_offset) == ("T", 3, 1, half.log_offset)
    assert (carried.properties, bytes(carried.body), carried.flag) == (copy.properties, b"half", 5)


@pytest.mark.feature("T4")
async def test_half_of_them_is_committed_by_the_check(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """Of ten open transactions the five are delivered that the producer commits."""
    async with open_producer(broker) as producer:
        for number in range(10):
            half = await send_half(caller, b"%d" % number)
            assert half.half_offset == number
        await next_round(clock)
        asked = [await producer.next_request() for _ in range(10)]
        for question in asked:
            outcome = COMMIT if int(bytes(decode_record(question.body).body)) % 2 else ROLLBACK
            producer.ask_oneway(RequestCode.END_TRANSACTION, asked_half(question).end(outcome, is_from_check=True))
        await questions(producer)
        assert await bodies(caller) == [b"1", b"3", b"5", b"7", b"9"]
        await next_round(clock, 2)
        assert await questions(producer) == []


@pytest.mark.feature("T5")
async def test_another_producer_of_the_group_is_asked(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """Members are asked in turn; when the sender is gone the others are asked; nobody of another group is."""
    async with open_producer(broker, "p2") as second, open_producer(broker, "p3", "others") as stranger:
        async with open_producer(broker, "p1") as first:
            for number in range(4):
                await send_half(first, b"%d" % number)
            await next_round(clock)
            asked = sorted(await asked_bodies(first)), sorted(await asked_bodies(second))
            assert [len(part) for part in asked] == [2, 2]
            assert sorted(asked[0] + asked[1]) == [b"0", b"1", b"2", b"3"]
        await until(lambda: len(broker.clients) == 2)
        await next_round(clock)
        assert await asked_bodies(second) == [b"0", b"1", b"2", b"3"]
        assert await questions(stranger) == []


async def test_nobody_is_there_to_ask(
    broker: Broker, caller: Caller, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The check counts all the same; that is said once a round for a group, and a producer that comes is asked."""
    for _ in range(3):
        await send_half(caller)
    with caplog.at_level(logging.WARNING):
        await next_round(clock, 2)
    told = [record.message for record in caplog.records if "no producer of group producers" in record.message]
    assert len(told) == 2
    async with open_producer(broker) as producer:
        await next_round(clock)
        times = [decode_record(question.body).properties[CHECK_TIMES] for question in await questions(producer)]
        assert times == ["3", "3", "3"]


@pytest.mark.feature("T6")
async def test_message_is_given_up_after_fifteen_checks(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """Fifteen questions, one a round; no sixteenth, and a copy in TRANS_CHECK_MAX_TIME_TOPIC; nothing is delivered."""
    await send_half(caller, more="TAGS\x01a\x02")
    async with open_producer(broker) as producer:
        for number in range(1, 16):
            await next_round(clock)
            (question,) = await questions(producer)
            assert decode_record(question.body).properties[CHECK_TIMES] == str(number)
        await next_round(clock, 3)
        assert await questions(producer) == []
    (kept,) = await pulled(caller, DISCARD_TOPIC)
    assert (bytes(kept.body), kept.properties[CHECK_TIMES], kept.properties["REAL_TOPIC"]) == (b"half", "15", "T")
    assert (await bodies(caller), len(await pulled(caller, HALF_TOPIC))) == ([], 16)
    topic = json.loads((await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": DISCARD_TOPIC})).body)
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (1, 1, 6)


@pytest.mark.feature("T6")
@pytest.mark.parametrize("most", ["2", "0"])
async def test_number_of_checks_is_a_setting(most: str, settings: dict[str, str], clock: ManualClock) -> None:
    """TransactionCheckMax says how often; with 0 nobody is asked."""
    settings |= {"transactionCheckMax": most, "transactionCheckInterval": "1000", "transactionTimeOut": "100"}
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_producer(broker) as producer:
        await send_half(producer)
        await clock.elapse(10_000)
        await clock.settle()
        assert len(await questions(producer)) == int(most)
        assert len(await pulled(producer, DISCARD_TOPIC)) == 1


@pytest.mark.feature("T6")
async def test_message_older_than_files_is_given_up(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """A message born longer ago than fileReservedTime is not asked about."""
    await send_half(caller, born_at_ms=clock.now_ms() - 72 * 3_600_000)
    async with open_producer(broker) as producer:
        await next_round(clock)
        assert await questions(producer) == []
        assert len(await pulled(caller, DISCARD_TOPIC)) == 1


@pytest.mark.parametrize("keeps", [True, False])
async def test_what_is_given_up_is_a_policy(keeps: bool, settings: dict[str, str], clock: ManualClock) -> None:
    """The broker's constructor takes it: it says what is kept of the message, or that nothing is."""
    seen: list[bytes] = []

    def give_up(half: Record) -> NewRecord | None:
        seen.append(bytes(half.body))
        text, properties = half.property_text, half.properties
        kept = NewRecord("T", 0, b"kept", text, properties, 0, 0, half.born_at_ms, half.born_host)
        return kept if keeps else None

    settings |= {"transactionCheckMax": "0"}
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock, give_up=give_up) as broker, open_caller(broker.address) as caller:
        await send_half(caller)
        await next_round(clock, 2)
        assert (seen, await bodies(caller)) == ([b"half"], [b"kept"] if keeps else [])


@pytest.mark.feature("T7")
async def test_immune_message_is_not_asked_about(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """It is copied in each round until its immunity is over, with its first offset, and asked about then."""
    async with open_producer(broker) as producer:
        first = await send_half(caller, b"immune", IMMUNE.format(100))
        await send_half(caller, b"other")
        await next_round(clock)
        assert await asked_bodies(producer) == [b"other"]
        await next_round(clock, 2)
        assert b"immune" not in await asked_bodies(producer)
        copies = [record for record in await pulled(caller, HALF_TOPIC) if bytes(record.body) == b"immune"]
        assert len(copies) == 4
        assert [copy.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for copy in copies] == [None, "0", "0", "0"]
        assert all(CHECK_TIMES not in copy.properties for copy in copies)
        await next_round(clock)
        assert b"immune" in await asked_bodies(producer)
        assert (await end(caller, first, COMMIT)).code == ResponseCode.ILLEGAL_OPERATION


@pytest.mark.feature("T7")
async def test_immune_message_ends_by_its_first_offset(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """What the producer decides in time, by the only offset that it knows, settles the copy."""
    async with open_producer(broker) as producer:
        first = await send_half(caller, b"immune", IMMUNE.format(100))
        await next_round(clock)
        assert (await end(caller, first, COMMIT)).code == ResponseCode.SUCCESS
        await next_round(clock, 5)
        assert (await questions(producer), await bodies(caller)) == ([], [b"immune"])


async def test_young_message_waits_for_the_next_round(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """One that is younger than the time-out is asked about a round later, and so is what lies behind it."""
    async with open_producer(broker) as producer:
        await clock.elapse(ROUND_MS - 6_000)
        await send_half(caller, b"young", born_at_ms=clock.now_ms())
        await send_half(caller, b"of unknown age", born_at_ms=0)
        await clock.elapse(6_000)
        assert await questions(producer) == []
        await next_round(clock)
        assert await asked_bodies(producer) == [b"young"]
        assert await bodies(caller, DISCARD_TOPIC) == [b"of unknown age"]


async def test_late_commit_settles_the_copy(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """A decision that comes by the first offset, after the message was copied for a check, counts for the copy."""
    async with open_producer(broker) as producer:
        first = await send_half(caller)
        await next_round(clock, 2)
        copies = [asked_half(question) for question in await questions(producer)]
        assert (await end(caller, first, COMMIT)).code == ResponseCode.SUCCESS
        assert await bodies(caller) == [b"half"]
        for copy in (*copies, first):
            assert (await end(caller, copy, COMMIT, is_from_check=True)).code == ResponseCode.SUCCESS
        await next_round(clock, 3)
        assert (await bodies(caller), await questions(producer)) == ([b"half"], [])


async def test_commit_of_what_was_passed_delivers_once(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """Long after the checks have passed it, a message that was delivered is not delivered again."""
    settled = await send_half(caller, b"settled")
    delayed = await send_half(caller, b"delayed", "DELAY\x011\x02")
    for half in (settled, delayed):
        assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
    await next_round(clock, 2)
    for half in (settled, delayed):
        assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
    await next_round(clock)
    assert await bodies(caller) == [b"settled", b"delayed"]


async def test_commit_of_what_was_given_up_is_delivered(settings: dict[str, str], clock: ManualClock) -> None:
    """A decision that comes when nobody is asked any more still counts, once."""
    settings["transactionCheckMax"] = "1"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        half = await send_half(caller)
        await next_round(clock, 4)
        assert len(await pulled(caller, DISCARD_TOPIC)) == 1
        for _ in range(2):
            assert (await end(caller, half, COMMIT)).code == ResponseCode.SUCCESS
        assert await bodies(caller) == [b"half"]


@pytest.mark.feature("T11")
async def test_given_up_message_is_checked_again(settings: dict[str, str], clock: ManualClock) -> None:
    """Resumed by the id of what was kept of it, it is asked about as if for the first time."""
    settings["transactionCheckMax"] = "1"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_producer(broker) as producer:
        await send_half(producer)
        await next_round(clock, 3)
        assert len(await questions(producer)) == 1
        (kept,) = await pulled(producer, DISCARD_TOPIC)
        name = format_offset_id(kept.store_host, kept.log_offset)
        answer = await producer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": DISCARD_TOPIC, "msgId": name})
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        await next_round(clock)
        (question,) = await questions(producer)
        assert decode_record(question.body).properties[CHECK_TIMES] == "1"
        half = asked_half(question)
        assert (await end(producer, half, COMMIT, is_from_check=True)).code == ResponseCode.SUCCESS
        assert await bodies(producer) == [b"half"]


@pytest.mark.feature("T11")
@pytest.mark.parametrize("name", [None, "", "xyz", "7F00000100002A9F", "7F00000100002A9F00000000000FFFFF", "ordinary"])
async def test_what_cannot_be_resumed(name: str | None, caller: Caller, broker: Broker) -> None:
    """No id, none of a message, or that of a message that is no part of a transaction: 1, and nothing is stored."""
    answer = await caller.send()
    before = broker.store.log_append_offset
    fields = {"topic": "T"} | ({} if name is None else {"msgId": answer.ext["msgId"] if name == "ordinary" else name})
    answer = await caller.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)
    remark = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert broker.store.log_append_offset == before


NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RULES = CheckRules(timeout_ms=6_000, most_checks=15, reserved_ms=72 * HOUR_MS)
HAS_IMMUNITY, TIMES = "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES"


def half(age_ms: int, properties: dict[str, str] | None = None, stored_ms_ago: int = 1) -> Record:
    """Return a half message of an age."""
    properties = properties or {}
    new = NewRecord("H", 0, b"x", encode_properties(properties), properties, 0, 0, NOW_MS - age_ms, HOST)
    return decode_record(encode_record(new, 0, 0, NOW_MS - stored_ms_ago, HOST))


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (half(6_000), CheckVerdict.STOP),
        (half(6_001), CheckVerdict.ASK),
        (half(0), CheckVerdict.STOP),
        (half(-1), CheckVerdict.ASK),
        (half(60_000, stored_ms_ago=0), CheckVerdict.STOP),
        (half(60_000, {TIMES: "14"}), CheckVerdict.ASK),
        (half(60_000, {TIMES: "15"}), CheckVerdict.GIVE_UP),
        (half(60_000, {TIMES: "16"}, stored_ms_ago=0), CheckVerdict.GIVE_UP),
        (half(60_000, {TIMES: "many"}), CheckVerdict.ASK),
        (half(72 * HOUR_MS), CheckVerdict.ASK),
        (half(72 * HOUR_MS + 1), CheckVerdict.GIVE_UP),
    ],
    ids=[
        "at the time-out",
        "above it",
        "new",
        "born in the future",
        "stored in this round",
        "asked 14 times",
        "asked 15 times",
        "asked too often and just stored",
        "asked nobody knows how often",
        "as old as files get",
        "older",
    ],
)
def test_verdicts(message: Record, verdict: CheckVerdict) -> None:
    """Each row of the table, at its limit."""
    assert judge(message, RULES, NOW_MS, NOW_MS) is verdict


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    ("seconds", "until_ms"), [("10", 10_000), ("1", 1_000), ("0", 0), ("-1", 6_000), ("-2", -2_000), ("soon", 6_000)]
)
def test_immunity_of_its_own(seconds: str, until_ms: int) -> None:
    """Within it a message is spared; behind it, it is asked about; -1 and what is no number mean the time-out."""
    for age_ms, verdict in ((until_ms, CheckVerdict.SPARE), (until_ms + 1, CheckVerdict.ASK)):
        assert judge(half(age_ms, {HAS_IMMUNITY: seconds}), RULES, NOW_MS, NOW_MS) is verdict


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    ("seconds", "until_ms"), [("10", 10_000), ("1", 6_000), ("-1", 6_000), ("soon", 6_000), (None, 10**12)]
)
def test_too_late_to_decide(seconds: str | None, until_ms: int) -> None:
    """A producer may decide until its immunity is over, at least until the time-out; without one, at any time."""
    properties = {} if seconds is None else {HAS_IMMUNITY: seconds}
    assert not is_too_late(half(until_ms, properties), RULES, NOW_MS)
    assert is_too_late(half(until_ms + 1, properties), RULES, NOW_MS) is (seconds is not None)


def test_immunity_that_is_no_number_is_none() -> None:
    """It counts as one of no seconds, also where the time-out is shorter than a second."""
    quick = RULES._replace(timeout_ms=500)
    for age_ms, is_over in ((500, False), (501, True)):
        assert is_too_late(half(age_ms, {HAS_IMMUNITY: "soon"}), quick, NOW_MS) is is_over


def test_first_check_counts_from_nothing() -> None:
    """A message that nobody was asked about has been checked no time."""
    assert (check_times({}), check_times({TIMES: "3"}), check_times({TIMES: "x"})) == (0, 3, -1)


@pytest.mark.feature("T10")
@pytest.mark.parametrize("is_clean", [True, False])
async def test_open_message_is_checked_after_a_restart(
    is_clean: bool, settings: dict[str, str], clock: ManualClock
) -> None:
    """After a clean stop, and if the store has to be recovered: the open one is asked about, and only that."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        halves = [await send_half(caller, b"%d" % number) for number in range(4)]
        assert (await end(caller, halves[0], COMMIT)).code == ResponseCode.SUCCESS
        assert (await end(caller, halves[2], ROLLBACK)).code == ResponseCode.SUCCESS
        await next_round(clock)
        await end(caller, Half(5, (await pulled(caller, HALF_TOPIC))[5].log_offset, ""), COMMIT)
        assert await bodies(caller) == [b"0", b"3"]
    assert saved_cursors(settings) == [4, 2]
    if not is_clean:
        leave_unclean(settings)
    async with Broker(config, clock) as broker, open_producer(broker) as producer:
        await next_round(clock)
        (question,) = await questions(producer)
        assert (bytes(decode_record(question.body).body), asked_half(question).half_offset) == (b"1", 6)
        assert decode_record(question.body).properties[CHECK_TIMES] == "2"
        assert (await end(producer, asked_half(question), COMMIT)).code == ResponseCode.SUCCESS
        assert await bodies(producer) == [b"0", b"3", b"1"]


@pytest.mark.feature("T10")
async def test_crash_before_the_cursor_is_saved_asks_nobody_twice(settings: dict[str, str], clock: ManualClock) -> None:
    """The log is read back further then, but what was copied or settled is named by op messages."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        for number in range(3):
            await send_half(caller, b"%d" % number)
        await next_round(clock, 2)
        await end(caller, Half(6, (await pulled(caller, HALF_TOPIC))[6].log_offset, ""), ROLLBACK)
    lose_cursors(settings)
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_producer(broker) as producer:
        await next_round(clock)
        assert sorted(await asked_bodies(producer)) == [b"1", b"2"]


@pytest.mark.feature("T10")
@pytest.mark.parametrize(("outcome", "delivered"), [(COMMIT, [b"0"]), (ROLLBACK, [])])
async def test_message_with_a_copy_ends_though_the_cursor_was_not_saved(
    outcome: int, delivered: list[bytes], settings: dict[str, str], clock: ManualClock
) -> None:
    """The op message that names it is that of its copy: what its producer says counts, once, and nobody is asked."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        half = await send_half(caller, b"0")
        await next_round(clock)
    lose_cursors(settings)
    async with Broker(config, clock) as broker, open_producer(broker) as producer:
        for _ in range(2):
            assert (await end(producer, half, outcome)).code == ResponseCode.SUCCESS
            assert await bodies(producer) == delivered
        await send_half(producer, b"open")
        await next_round(clock)
        assert await asked_bodies(producer) == [b"open"]


async def test_cursors_follow(settings: dict[str, str], clock: ManualClock) -> None:
    """They are saved at the end; the op cursor is where op messages ended when a round began that passed all."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        for number in range(4):
            half = await send_half(caller, b"%d" % number)
            if number < 3:
                await end(caller, half, ROLLBACK)
        await next_round(clock)
    assert saved_cursors(settings) == [4, 3]
    async with Broker(config, clock) as broker:
        await next_round(clock)
        assert broker.store.max_offset(OP_TOPIC, 0) == 5
    assert saved_cursors(settings) == [5, 4]


async def test_cursors_are_saved_now_and_then(settings: dict[str, str], clock: ManualClock) -> None:
    """They are saved while the broker runs, as often as consumer offsets, and not before the log is on disk."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        await send_half(caller)
        disk.get_stuck()
        await next_round(clock)
        await clock.elapse(10_000)
        header = {"consumerGroup": TRANSACTION_GROUP, "topic": HALF_TOPIC, "queueId": "0"}
        answer = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        assert answer.ext.get("offset", "0") == "0"
        disk.go_on()
        await until(lambda: broker.store.flushed_offset == broker.store.log_max_offset)
        while answer.ext.get("offset", "0") == "0":
            await clock.settle()
            answer = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        assert answer.ext["offset"] == "1"


async def test_question_comes_when_the_copy_is_on_disk(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH a producer is asked when its answer can be taken."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, disk) as broker, open_producer(broker) as producer:
        await send_half(producer)
        disk.get_stuck()
        await next_round(clock)
        await until(disk.waiting.is_set)
        assert await questions(producer) == []
        disk.go_on()
        half = asked_half(await producer.next_request())
        assert (await end(producer, half, COMMIT, is_from_check=True)).code == ResponseCode.SUCCESS


async def test_commit_while_the_copy_is_on_its_way(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH a commit by an older offset counts for a copy that cannot be read yet; it is delivered once."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH", "brokerFastFailureEnable": "false"})
    async with Broker(config, clock, disk) as broker, open_producer(broker) as producer:
        first = await send_half(producer)
        await clock.elapse(ROUND_MS)
        await producer.next_request()
        disk.get_stuck()  # while a copy of the copy is written
        await clock.elapse(2 * ROUND_MS)
        await until(disk.waiting.is_set)
        for _ in range(2):
            producer.ask_oneway(RequestCode.END_TRANSACTION, first.end(COMMIT))
        await bodies(producer)
        disk.go_on()
        half = asked_half(await producer.next_request())
        assert half.half_offset == 2
        assert (await end(producer, half, COMMIT, is_from_check=True)).code == ResponseCode.SUCCESS
        await producer.send()
        assert await bodies(producer) == [b"half", b"body"]


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_late_commits_while_the_disk_is_busy(
    is_given_up: bool, settings: dict[str, str], clock: ManualClock
) -> None:
    """Under SYNC_FLUSH commits by an offset that was passed long ago deliver once, also before that can be read."""
    disk = SlowDisk()
    settings |= {"flushDiskType": "SYNC_FLUSH", "brokerFastFailureEnable": "false"}
    settings |= {"transactionCheckMax": "0" if is_given_up else "15"}
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_producer(broker) as producer:
        half = await send_half(producer)
        await clock.elapse(ROUND_MS)
        await until(lambda: broker.store.max_offset(DISCARD_TOPIC if is_given_up else HALF_TOPIC, 0) == 2 - is_given_up)
        disk.get_stuck()
        for _ in range(3):
            producer.ask_oneway(RequestCode.END_TRANSACTION, half.end(COMMIT))
        await until(disk.waiting.is_set)
        disk.go_on()
        assert (await end(producer, half, COMMIT)).code == ResponseCode.SUCCESS
        await producer.send()
        assert await bodies(producer) == [b"half", b"body"]


async def test_full_disk_puts_checks_off(
    settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """While nothing can be stored nobody is asked, which is said once; then the round is made up for."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_producer(broker) as producer:
        await send_half(producer)
        disk.has_room = False
        await next_round(clock, 3)
        assert await questions(producer) == []
        assert sum("transaction checks are paused" in record.message for record in caplog.records) == 1
        disk.has_room = True
        await next_round(clock, 2)
        asked = [decode_record(question.body).properties[CHECK_TIMES] for question in await questions(producer)]
        assert asked in (["1"], ["1", "2"])
