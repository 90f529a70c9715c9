"""Timer messages and recalls, by raw requests to a broker whose clock the test moves."""

import pathlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from raw_calls import Caller, open_caller, recorded_calls, send_header, until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import RecallHandle, format_recall_handle, parse_offset_id, parse_recall_handle
from rocketlet.common.record import Record, decode_record, iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

TIMER_TOPIC = "rmq_sys_wheel_timer"
DAY_S = 86_400
RECORDED_AT_MS = 1_795_248_952_620
TOO_FAR = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set del msg, "
    "the delay time should be bigger than the current time"
)

FLOW_CONTROL = (
    "timer message is under flow control, max num limit is 2 or the current value is greater than 1 and less than 2, "
    "trigger random flow control"
)


async def send(caller: Caller, body: bytes = b"timed", queue_id: int = 0, **properties: Any) -> Command:
    """Send a message to T."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return await caller.send("T", body, queue_id=queue_id, properties=text)


async def recall(caller: Caller, handle: str, topic: str = "T") -> Command:
    """Recall a message."""
    fields = {"producerGroup": "p", "topic": topic, "recallHandle": handle}
    return await caller.ask(RequestCode.RECALL_MESSAGE, fields)


async def records(caller: Caller, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Return what a queue holds."""
    answer = await caller.pull(topic, queue_id=queue_id)
    return list(iter_records(answer.body)) if answer.code == ResponseCode.SUCCESS else []


async def bodies(caller: Caller) -> list[bytes]:
    """Return the bodies in queue 0 of T."""
    return [bytes(record.body) for record in await records(caller)]


async def wait_bodies(broker: Broker, caller: Caller, *wanted: bytes) -> None:
    """Wait until queue 0 of T holds so many messages; they must be these."""
    await until(lambda: broker.store.max_offset("T", 0) >= len(wanted))
    assert await bodies(caller) == list(wanted)


def timer_settings(settings: dict[str, str], **more: str) -> BrokerConfig:
    """Return the settings of another broker on the same directory."""
    return BrokerConfig.from_java({**settings, **more})


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Let producers recall."""
    return {**settings, "recallMessageEnable": "true", "mappedFileSizeTimerLog": "1048576"}


@pytest.mark.feature("L6")
@pytest.mark.parametrize("asked", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
async def test_message_comes_at_its_time(asked: str, broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """Three seconds ahead, in whichever way it is asked for: nothing a millisecond before, the message then."""
    at_ms = clock.now_ms() + 3_000
    timing = {"TIMER_DELAY_SEC": 3, "TIMER_DELAY_MS": 3_000, "TIMER_DELIVER_MS": at_ms}
    await send(caller, b"timed", **{asked: timing[asked]})
    await clock.elapse(2_999)
    assert await bodies(caller) == []
    await clock.elapse(1)
    await wait_bodies(broker, caller, b"timed")


@pytest.mark.feature("L6")
async def test_stored_shape(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """The waiting record is in queue 0 of the timer topic and says where it belongs; so does the delivered one."""
    out_ms = clock.now_ms() // 1_000 * 1_000 + 4_000
    answer = await send(caller, queue_id=3, TIMER_DELIVER_MS=out_ms + 700, TAGS="a", UNIQ_KEY="K")
    place = parse_offset_id(answer.ext["msgId"])[1]
    parked = decode_record((await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)})).body)
    assert (parked.topic, parked.queue_id, answer.ext["queueId"]) == (TIMER_TOPIC, 0, "3")
    told = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "3", "TAGS": "a", "UNIQ_KEY": "K"}
    assert told.items() <= parked.properties.items()
    await clock.elapse(5_000)
    await until(lambda: broker.store.max_offset("T", 3) == 1)
    (record,) = await records(caller, queue_id=3)
    assert parked.properties.items() <= record.properties.items()
    assert set(record.properties) - set(parked.properties) == {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
    same = "body", "flag", "sys_flag", "born_at_ms", "born_host", "store_host", "reconsume_times"
    assert [getattr(record, name) for name in same] == [getattr(parked, name) for name in same]
    tagged = await caller.pull("T", queue_id=3, subscription="a")
    assert len(list(iter_records(tagged.body))) == 1


@pytest.mark.feature("L6")
@pytest.mark.parametrize(
    ("properties", "is_taken"),
    [
        ({"TIMER_DELAY_SEC": 3 * DAY_S}, True),
        ({"TIMER_DELAY_SEC": 3 * DAY_S + 1}, False),
        ({"TIMER_DELAY_MS": 3_000 * DAY_S + 1}, False),
        ({"TIMER_DELAY_SEC": 4 * DAY_S}, False),
        ({"TIMER_DELIVER_MS": 2**63 - 1}, False),
        ({"TIMER_DELIVER_MS": 2**63}, False),
        ({"TIMER_DELIVER_MS": "tomorrow"}, False),
        ({"TIMER_DELAY_SEC": " 1"}, False),
        ({"TIMER_DELAY_MS": "1.5"}, False),
        ({"TIMER_DELAY_SEC": "x", "TIMER_DELAY_MS": 5}, False),
        ({"TIMER_DELAY_SEC": "+7", "TIMER_DELAY_MS": "x"}, True),
    ],
)
async def test_times_that_cannot_be(properties: dict[str, Any], is_taken: bool, caller: Caller) -> None:
    """More than three days ahead, and what is no number, is answered 13 in Java's words; the first property counts."""
    answer = await send(caller, **properties)
    assert (answer.code, answer.remark) == ((0, None) if is_taken else (13, TOO_FAR))
    assert ("recallHandle" in answer.ext) == is_taken


@pytest.mark.feature("L7")
@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": 1},
        {"TIMER_DELAY_SEC": 0},
        {"TIMER_DELAY_MS": -5},
        {"TIMER_DELIVER_MS": -(2**63)},
        {"TIMER_DELAY_SEC": 2**63 - 1},
    ],
)
async def test_time_that_has_passed(properties: dict[str, Any], caller: Caller) -> None:
    """The message is in its queue at once, as it was sent, and cannot be recalled; so is one whose sum wraps."""
    answer = await send(caller, **properties)
    (record,) = await records(caller)
    assert {name: str(value) for name, value in properties.items()}.items() <= record.properties.items()
    assert "TIMER_OUT_MS" not in record.properties
    assert (answer.code, answer.ext.get("recallHandle")) == (0, None)


@pytest.mark.feature("L6")
async def test_delay_level_beats_a_timer(broker: Broker, caller: Caller) -> None:
    """A message with both is parked by its level, and the properties of the timer are gone."""
    await send(caller, DELAY=3, TIMER_DELAY_SEC=5)
    assert broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1
    assert broker.store.max_offset(TIMER_TOPIC, 0) == 0


async def test_message_that_was_in_the_wheel_asks_for_nothing(caller: Caller) -> None:
    """TIMER_OUT_MS says that a message has had its time."""
    await send(caller, TIMER_DELAY_SEC=5, TIMER_OUT_MS=7)
    assert await bodies(caller) == [b"timed"]


async def test_wheel_that_is_off(settings: dict[str, str], clock: ManualClock) -> None:
    """Without a wheel timer messages are answered 1, and nothing is stored."""
    async with (
        Broker(timer_settings(settings, timerWheelEnable="false"), clock) as broker,
        open_caller(broker.address) as caller,
    ):
        answer = await send(caller, TIMER_DELAY_SEC=5)
        assert (answer.code, answer.remark) == (
            1,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
        assert list(broker.store.queues()) == []


async def test_slot_that_is_full(settings: dict[str, str], clock: ManualClock) -> None:
    """A slot with twice its number refuses the next message with 1; the slot beside it takes it."""
    async with (
        Broker(timer_settings(settings, timerCongestNumEachSlot="1"), clock) as broker,
        open_caller(broker.address) as caller,
    ):
        at_ms = clock.now_ms() // 1_000 * 1_000 + 60_500
        codes: list[int] = []
        while codes.count(0) < 2 and len(codes) < 1_000:
            codes.append((await send(caller, TIMER_DELIVER_MS=at_ms)).code)
        await until(lambda: _is_put(settings, 2))
        answer = await send(caller, TIMER_DELIVER_MS=at_ms)
        assert (answer.code, answer.remark) == (
            1,
            FLOW_CONTROL,
        )
        assert (await send(caller, TIMER_DELIVER_MS=at_ms + 1_000)).code == 0


def _is_put(settings: dict[str, str], count: int) -> bool:
    """Tell whether so many messages are in the wheel."""
    log = pathlib.Path(settings["storePathRootDir"], "timerlog", "0" * 20)
    return log.exists() and log.read_bytes()[52 * (count - 1) :][:4] == b"\0\0\0\x34"


@pytest.mark.feature("L8")
async def test_recall_prevents_delivery(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """A message that was recalled before its time does not come; another one of the same second does."""
    answers = [await send(caller, body, TIMER_DELAY_SEC=10) for body in (b"recalled", b"other")]
    handle = parse_recall_handle(answers[0].ext["recallHandle"])
    assert handle[:2] == ("T", "broker-a")
    assert (int(handle.due_at) % 1_000, handle.unique_key) == (1, answers[0].ext["transactionId"])
    done = await recall(caller, answers[0].ext["recallHandle"])
    assert (done.code, done.ext["msgId"]) == (0, handle.unique_key)
    await clock.elapse(20_000)
    await wait_bodies(broker, caller, b"other")
    (deletion,) = [one for one in await records(caller, TIMER_TOPIC) if one.body == b"0"]
    told = {
        "TIMER_DEL_UNIQKEY": handle.unique_key,
        "UNIQ_KEY": handle.unique_key,
        "TAGS": "_RECALL_TAG_",
        "PGROUP": "p",
    }
    assert told.items() <= deletion.properties.items()


@asynccontextmanager
async def first_of_two_recalled(
    config: BrokerConfig, clock: ManualClock
) -> AsyncGenerator[tuple[Broker, Caller, list[Command]]]:
    """Run a broker with two timer messages, one of which is recalled; yield the answers to the sends with it."""
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        answers = [await send(caller, body, TIMER_DELAY_SEC=10) for body in (b"recalled", b"other")]
        await recall(caller, answers[0].ext["recallHandle"])
        yield broker, caller, answers


@pytest.mark.feature("L8")
async def test_recall_that_names_its_topic(settings: dict[str, str], clock: ManualClock) -> None:
    """With appendTopicForTimerDeleteKey a recall has the form of brokers before 5.4.0, and works as well."""
    config = timer_settings(settings, appendTopicForTimerDeleteKey="true")
    async with first_of_two_recalled(config, clock) as (broker, caller, answers):
        await clock.elapse(20_000)
        await wait_bodies(broker, caller, b"other")
        (deletion,) = [one for one in await records(caller, TIMER_TOPIC) if one.body == b"0"]
        assert deletion.properties["TIMER_DEL_UNIQKEY"] == f"T+{answers[0].ext['transactionId']}"


@pytest.mark.feature("L6", "L8")
async def test_recorded_requests_are_answered_as_by_java(
    settings: dict[str, str], vectors: pathlib.Path, clock: ManualClock
) -> None:
    """What the official client sent, at the time at which it did: codes, remarks, handles and ids are Java's."""
    config = timer_settings(settings, brokerName="golden-a")
    clock.advance_to(RECORDED_AT_MS)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await caller.send("Topic540")
        told: list[tuple[int, str | None, dict[str, str]]] = []
        wanted: list[tuple[int, str | None, dict[str, str]]] = []
        for call in recorded_calls(vectors, "timer-recall-5.4.0"):
            if call.request.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.RECALL_MESSAGE):
                assert call.answer is not None
                answer = await caller.ask(call.request.code, dict(call.request.ext), call.request.body)
                told.append(_told(answer))
                wanted.append(_told(call.answer))
    assert told == wanted
    assert [code for code, *_ in told] == [0, 0, 0, 0, 13]


def _told(answer: Command) -> tuple[int, str | None, dict[str, str]]:
    """Return what the answer says, without places, and the remark of a success, in which Java forgets to say so."""
    is_place = "queueId" in answer.ext
    fields = {name: value for name, value in answer.ext.items() if not (is_place and name in ("msgId", "queueOffset"))}
    return answer.code, answer.remark if answer.code else None, fields


@pytest.mark.feature("L8")
async def test_recall_waits_for_the_disk(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH timer messages and recalls are answered when they are flushed, and work as well."""
    config = timer_settings(settings, flushDiskType="SYNC_FLUSH")
    async with first_of_two_recalled(config, clock) as (broker, caller, _):
        assert broker.store.flushed_offset == broker.store.log_max_offset
        await clock.elapse(20_000)
        await wait_bodies(broker, caller, b"other")


@pytest.mark.feature("L8")
async def test_recall_is_off(settings: dict[str, str], clock: ManualClock) -> None:
    """Unless recallMessageEnable says so, a recall is answered 16."""
    async with (
        Broker(timer_settings(settings, recallMessageEnable="false"), clock) as broker,
        open_caller(broker.address) as caller,
    ):
        answer = await send(caller, TIMER_DELAY_SEC=10)
        refused = await recall(caller, answer.ext["recallHandle"])
        assert (refused.code, refused.remark) == (16, "recall failed, operation is forbidden")


@pytest.mark.feature("L8")
async def test_recalls_that_cannot_be(caller: Caller, clock: ManualClock) -> None:
    """Another topic, another broker, a time that has passed or lies too far, and what is no handle: Java's answers."""
    now_ms = clock.now_ms()

    def handle(topic: str = "T", broker_name: str = "broker-a", due_at: object = now_ms + 5_000) -> str:
        return format_recall_handle(RecallHandle(topic, broker_name, str(due_at), "K"))

    assert ((await recall(caller, handle())).code) == ResponseCode.TOPIC_NOT_EXIST
    await caller.send("T")
    await caller.send("U")
    wrong = {
        handle("U"): "recall failed, topic not match",
        handle(broker_name="broker-b"): "recall failed, broker service not available",
        handle(due_at=now_ms): "recall failed, timestamp invalid",
        handle(due_at=now_ms + 3_000 * DAY_S): "recall failed, timestamp invalid",
        handle(due_at="soon"): "recall failed, timestamp invalid",
        "no handle": "recall handle is invalid",
        "": "recall handle is invalid",
    }
    answers = {text: await recall(caller, text) for text in wrong}
    assert {text: (answer.code, answer.remark) for text, answer in answers.items()} == {
        text: (ResponseCode.ILLEGAL_OPERATION, remark) for text, remark in wrong.items()
    }
    assert all(answer.ext["MSG_REGION"] == "DefaultRegion" for answer in answers.values())
    assert (await recall(caller, handle())).code == 0


@pytest.mark.feature("L8")
async def test_recall_is_a_timer_message(caller: Caller, clock: ManualClock) -> None:
    """It is due when its target is, for any time between now and the longest delay, and says what it deletes."""
    await caller.send("T")
    now_ms, most_ms = clock.now_ms(), 3 * DAY_S * 1_000
    for ahead_ms, code in ((1, 0), (most_ms - 1, 0), (most_ms, ResponseCode.ILLEGAL_OPERATION)):
        handle = format_recall_handle(RecallHandle("T", "broker-a", str(now_ms + ahead_ms), "K"))
        assert (await recall(caller, handle)).code == code
    found = list(iter_records((await caller.pull(TIMER_TOPIC)).body))
    assert [int(record.properties["TIMER_DELIVER_MS"]) - now_ms for record in found] == [1, most_ms - 1]
    for record in found:
        assert (bytes(record.body), record.flag, record.sys_flag, record.born_at_ms) == (b"0", 0, 0, now_ms)
        named = {"REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": "K", "TIMER_DEL_UNIQKEY": "K", "TAGS": "_RECALL_TAG_"}
        assert record.properties.items() >= named.items()


@pytest.mark.feature("L8")
async def test_deletion_that_comes_too_late(caller: Caller) -> None:
    """A message that is to delete another one, but is due already, is answered 13."""
    answer = await send(caller, TIMER_DELIVER_MS=1, TIMER_DEL_UNIQKEY="K")
    assert (answer.code, answer.remark) == (13, TOO_FAR)


@pytest.mark.feature("L6")
async def test_restart_keeps_what_waits(settings: dict[str, str], clock: ManualClock) -> None:
    """After a clean stop delivered messages do not come again, and those that wait come in time or at once."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        for body, seconds in ((b"delivered", 1), (b"overdue", 5), (b"later", 10)):
            await send(caller, body, TIMER_DELAY_SEC=seconds)
        await clock.elapse(1_000)
        await wait_bodies(broker, caller, b"delivered")
    clock.advance(5_000)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await clock.settle()
        await wait_bodies(broker, caller, b"delivered", b"overdue")
        await clock.elapse(4_000)
        await wait_bodies(broker, caller, b"delivered", b"overdue", b"later")


async def test_broker_without_timer_messages_makes_no_files(settings: dict[str, str], clock: ManualClock) -> None:
    """The wheel of 38.7 MB and its log are made for the first timer message."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await caller.send("T")
        await clock.elapse(5_000)
    root = pathlib.Path(settings["storePathRootDir"])
    assert [name for name in ("timerwheel", "timerlog", "config/timercheck") if (root / name).exists()] == []


async def test_stop_puts_what_has_arrived_into_the_wheel(settings: dict[str, str], clock: ManualClock) -> None:
    """Messages that were sent right before the stop have their units: a Java broker finds them in the wheel."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send(caller, TIMER_DELAY_SEC=10)
        await until(lambda: _is_put(settings, 1))
        for _ in range(3):
            header = send_header("T", properties="TIMER_DELAY_SEC\x0110\x02")
            caller.ask_oneway(RequestCode.SEND_MESSAGE_V2, header, b"timed")
        await send(caller, TIMER_DELAY_SEC=10)
    assert _is_put(settings, 5)
