"""Messages that a consumer sends back, by raw requests to a broker whose clock the test moves."""

import json
import pathlib
from typing import Any

import pytest
from raw_calls import Caller, open_caller, recorded_calls
from slow_disk import SlowDisk

from rocketlet.broker.send.send import dead_letters
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.topic.topics import TopicTable, make_topic
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import parse_offset_id
from rocketlet.common.record import Record, decode_record, iter_records
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import SendBackHeader
from rocketlet.testing.manual_clock import ManualClock

LEVELS = 18
RETRY, DLQ = "%RETRY%g", "%DLQ%g"
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
NEW_VERSION = 493


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Have level n wait for n seconds."""
    return {**settings, "messageDelayLevel": " ".join(f"{level}s" for level in range(1, LEVELS + 1))}


async def send_back(caller: Caller, log_offset: int, level: int = 0, **fields: Any) -> Command:
    """Send a message back for the group g."""
    version = fields.pop("version", NEW_VERSION)
    values: dict[str, Any] = {"group": "g", **fields}
    header = SendBackHeader(log_offset=log_offset, delay_level=level, **values)
    return await caller.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, version=version)


async def send(caller: Caller, topic: str = "T", body: bytes = b"body", **fields: Any) -> int:
    """Send a message and return its place in the log."""
    answer = await caller.send(topic, body, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return parse_offset_id(answer.ext["msgId"])[1]


async def records(caller: Caller, topic: str, queue_id: int = 0) -> list[Record]:
    """Return what a queue holds; nothing when the topic is not there."""
    answer = await caller.pull(topic, queue_id=queue_id)
    return list(iter_records(answer.body)) if answer.code == ResponseCode.SUCCESS else []


async def put_group(caller: Caller, **settings: Any) -> None:
    """Change the settings of the group g."""
    body = json.dumps({"groupName": "g", **settings}).encode()
    answer = await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.feature("C21")
@pytest.mark.parametrize("limit", [None, 16])
async def test_sixteen_retries_then_dead_letter(limit: int | None, caller: Caller, clock: ManualClock) -> None:
    """Failure n comes back after level n + 2; the seventeenth goes to the dead letters at once, undelayed."""
    place = await send(caller)
    for attempt in range(1, 17):
        assert (await send_back(caller, place, max_reconsume_times=limit)).code == ResponseCode.SUCCESS
        delay_ms = 1000 * (attempt + 2)
        await clock.elapse(delay_ms - 1)
        assert len(await records(caller, RETRY)) == attempt - 1
        await clock.elapse(1)
        retried = (await records(caller, RETRY))[-1]
        assert (retried.reconsume_times, retried.properties["DELAY"]) == (attempt, str(attempt + 2))
        place = retried.log_offset
    assert (await send_back(caller, place, max_reconsume_times=limit)).code == ResponseCode.SUCCESS
    (letter,) = await records(caller, DLQ)
    assert (letter.reconsume_times, letter.properties["DELAY"], letter.body) == (17, "0", b"body")


@pytest.mark.feature("C24")
async def test_retry_keeps_the_message(caller: Caller, clock: ManualClock) -> None:
    """Body, flag, born time and host, keys, tags and unique key stay; its first topic and id are told with it."""
    properties = "TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02own\x01v\x02WAIT\x01true\x02"
    answer = await caller.send("T", b"kept", properties=properties, flag=7)
    first_id = answer.ext["msgId"]
    (first,) = await records(caller, "T")
    for attempt in (1, 2):
        place = first.log_offset if attempt == 1 else (await records(caller, RETRY))[0].log_offset
        await send_back(caller, place, level=1)
        await clock.elapse(1_000)
        retried = (await records(caller, RETRY))[-1]
        assert retried.properties == {
            **first.properties,
            "WAIT": "false",
            "RETRY_TOPIC": "T",
            "ORIGIN_MESSAGE_ID": first_id,
            "DELAY": "1",
            "REAL_TOPIC": RETRY,
            "REAL_QID": "0",
        }
        same = "body", "flag", "sys_flag", "born_at_ms", "born_host"
        assert [getattr(retried, name) for name in same] == [getattr(first, name) for name in same]
        assert retried.reconsume_times == attempt


@pytest.mark.parametrize("origin", ["", " ", "\t"])
async def test_blank_origin_is_none(origin: str, caller: Caller, clock: ManualClock) -> None:
    """A property ORIGIN_MESSAGE_ID without an id, which anybody may send, is replaced (``UtilAll.isBlank``)."""
    answer = await caller.send("T", b"body", properties=f"ORIGIN_MESSAGE_ID\x01{origin}\x02own\x01v\x02")
    (first,) = await records(caller, "T")
    await send_back(caller, first.log_offset, level=1)
    await clock.elapse(1_000)
    (retried,) = await records(caller, RETRY)
    assert retried.properties["ORIGIN_MESSAGE_ID"] == answer.ext["msgId"]


@pytest.mark.feature("C21", "C24", "L4")
@pytest.mark.parametrize("version", ["5.4.0", "4.9.8"])
async def test_recorded_send_back_is_served_as_java_did(
    version: str, caller: Caller, clock: ManualClock, vectors: pathlib.Path
) -> None:
    """Two recorded send-backs of one message give the answers that Java gave; the copy has the properties of Java's."""
    calls = list(recorded_calls(vectors, f"send-back-{version}"))
    backs = [call for call in calls if call.request.code == RequestCode.CONSUMER_SEND_MSG_BACK]
    pulled = [
        record
        for call in calls
        if call.request.code == RequestCode.PULL_MESSAGE and call.answer is not None and call.answer.body
        for record in iter_records(call.answer.body)
    ]
    first, retried = pulled[0], pulled[1]
    text = "".join(f"{name}\x01{value}\x02" for name, value in first.properties.items())
    place = await send(caller, first.topic, bytes(first.body), properties=text)
    group = backs[0].request.ext["group"]
    for number, (request, answer, _) in enumerate(backs):
        ours = await caller.ask(request.code, {**request.ext, "offset": str(place)}, version=request.version)
        assert answer is not None
        assert (ours.code, ours.remark, ours.ext) == (answer.code, answer.remark, answer.ext)
        await clock.elapse(1_000)
        if number == 0:
            (record,) = await records(caller, f"%RETRY%{group}")
            own = {"ORIGIN_MESSAGE_ID", "CLUSTER"}
            assert {name: value for name, value in record.properties.items() if name not in own} == {
                name: value for name, value in retried.properties.items() if name not in own
            }
            assert (record.reconsume_times, record.flag) == (retried.reconsume_times, retried.flag)
            place = record.log_offset
    (letter,) = await records(caller, f"%DLQ%{group}")
    assert letter.reconsume_times == 2


@pytest.mark.feature("D13")
async def test_what_is_sent_back_counts_where_it_came_from(caller: Caller, clock: ManualClock) -> None:
    """A message that failed twice counts twice in the topic that it was sent to, and once as a dead letter."""
    await send_back(caller, await send(caller), level=1)
    await clock.elapse(1_000)
    (retried,) = await records(caller, RETRY)
    await send_back(caller, retried.log_offset, level=-1)
    await clock.elapse(10_000)
    told: dict[str, int | None] = {}
    for name, key in (
        ("SNDBCK_PUT_NUMS", "T@g"),
        ("SNDBCK_PUT_NUMS", f"{RETRY}@g"),
        ("SNDBCK2DLQ_TIMES", "null@T@g@SEND_BACK_TO_DLQ"),
    ):
        answer = await caller.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        told[key] = json.loads(answer.body)["statsMinute"]["sum"] if answer.body else None
    assert told == {"T@g": 2, f"{RETRY}@g": None, "null@T@g@SEND_BACK_TO_DLQ": 1}


@pytest.mark.feature("C22")
async def test_negative_level_gives_up_at_once(caller: Caller) -> None:
    """Level -1 stores a dead letter, whose topic has one queue and permission 6."""
    await send_back(caller, await send(caller), level=-1)
    (letter,) = await records(caller, DLQ)
    assert (letter.reconsume_times, letter.properties["RETRY_TOPIC"]) == (1, "T")
    topic = json.loads((await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": DLQ})).body)
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (1, 1, 6)


async def test_level_of_the_listener_counts(caller: Caller, clock: ManualClock) -> None:
    """A level above 0 is taken as it is, one above the highest as the highest."""
    place = await send(caller)
    for level, delay_s in ((2, 2), (99, LEVELS)):
        before = len(await records(caller, RETRY))
        await send_back(caller, place, level=level)
        await clock.elapse(1000 * delay_s - 1)
        assert len(await records(caller, RETRY)) == before
        await clock.elapse(1)
        assert len(await records(caller, RETRY)) == before + 1


@pytest.mark.feature("C20")
@pytest.mark.parametrize(
    ("limit", "version", "is_dead"), [(0, NEW_VERSION, True), (1, NEW_VERSION, False), (0, 121, True), (0, 120, False)]
)
async def test_limit_of_the_consumer(limit: int, version: int, is_dead: bool, caller: Caller) -> None:
    """The consumer's limit replaces the group's; 0 means no second attempt. Clients before 3.4.9 have no say."""
    await send_back(caller, await send(caller), max_reconsume_times=limit, version=version)
    assert bool(await records(caller, DLQ)) == is_dead


async def test_limit_of_the_group(caller: Caller) -> None:
    """Without a limit of the consumer that of the group counts."""
    await put_group(caller, retryMaxTimes=0)
    await send_back(caller, await send(caller))
    assert len(await records(caller, DLQ)) == 1


@pytest.mark.feature("C23")
@pytest.mark.parametrize("log_offset", [-1, 1, 7, 10**15])
async def test_message_that_is_not_there(log_offset: int, caller: Caller) -> None:
    """A position where no message begins is answered 1 and named; nothing is stored."""
    await send(caller)
    answer = await send_back(caller, log_offset)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"look message by offset failed, {log_offset}",
    )
    assert await records(caller, DLQ) == []


async def answer_with(settings: dict[str, str], clock: ManualClock) -> tuple[int, str | None]:
    """Return what a broker with settings answers to a message that is given back."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        answer = await send_back(caller, 0)
    return answer.code, answer.remark


async def test_unknown_group(settings: dict[str, str], clock: ManualClock) -> None:
    """Where groups are not made by themselves an unknown one is answered 26."""
    code, remark = await answer_with({**settings, "autoCreateSubscriptionGroup": "false"}, clock)
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert remark == f"subscription group not exist, g {FAQ}"


async def test_broker_that_may_not_be_written_to(settings: dict[str, str], clock: ManualClock) -> None:
    """With brokerPermission=4 the answer is 16 and names the broker."""
    code, remark = await answer_with({**settings, "brokerPermission": "4"}, clock)
    assert (code, remark) == (ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] sending message is forbidden")


async def test_retry_topic_that_may_not_be_written_to(caller: Caller) -> None:
    """A retry topic without write permission is answered 16 and named."""
    header = {"topic": RETRY, "defaultTopic": "TBW102", "perm": "4", "topicFilterType": "SINGLE_TAG", "order": "false"}
    await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**header, "readQueueNums": "1", "writeQueueNums": "1"})
    answer = await send_back(caller, await send(caller))
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        f"the topic[{RETRY}] sending message is forbidden",
    )


async def test_group_without_retry_queues(caller: Caller) -> None:
    """With retryQueueNums=0 the answer is 0 and the message is dropped."""
    await put_group(caller, retryQueueNums=0)
    assert (await send_back(caller, await send(caller), level=-1)).code == ResponseCode.SUCCESS
    assert await records(caller, DLQ) == []


async def test_retries_use_the_queues_of_their_group(caller: Caller, clock: ManualClock) -> None:
    """The retry topic is made with the group's retryQueueNums queues, and any of them is used."""
    await put_group(caller, retryQueueNums=3)
    place = await send(caller)
    for _ in range(60):
        await send_back(caller, place, level=1)
    await clock.elapse(1_000)
    counts = [len(await records(caller, RETRY, queue_id)) for queue_id in range(3)]
    assert sum(counts) == 60
    assert all(counts)


async def test_new_topics_are_known_when_the_answer_comes(caller: Caller, nameserver: NameServer) -> None:
    """The topics that a send-back made have a route by then."""
    await send_back(caller, await send(caller), level=-1)
    async with open_caller(nameserver.address) as other:
        for topic in (RETRY, DLQ):
            answer = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("missing", ["group", "offset", "delayLevel"])
async def test_missing_field(missing: str, caller: Caller) -> None:
    """A send-back without one of its three needed fields is answered 1, which names it."""
    fields = {"offset": "0", "group": "g", "delayLevel": "0"}
    del fields[missing]
    answer = await caller.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert missing in (answer.remark or "")


async def test_copy_that_is_too_large_is_refused(caller: Caller) -> None:
    """A message whose properties are full cannot take those of a retry: 1 and Java's word for it."""
    place = await send(caller, properties=f"UNIQ_KEY\x01U\x02p\x01{'v' * 32_660}\x02")
    answer = await send_back(caller, place)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL")


async def test_full_disk_is_answered_and_keeps_nothing(settings: dict[str, str], clock: ManualClock) -> None:
    """A copy that the disk does not take is answered 1; the consumer's next try is stored."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        place = await send(caller)
        await send_back(caller, place, level=-1)
        disk.has_room = False
        answer = await send_back(caller, place, level=-1)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")
        disk.has_room = True
        assert (await send_back(caller, place, level=-1)).code == ResponseCode.SUCCESS
        assert len(await records(caller, DLQ)) == 2


async def test_answer_does_not_wait_for_the_disk(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH the copy has WAIT=false: the answer comes while the disk is stuck, the copy after that."""
    disk = SlowDisk()
    settings["flushDiskType"] = "SYNC_FLUSH"
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        place = await send(caller)
        await send_back(caller, place, level=-1)
        disk.get_stuck()
        assert (await send_back(caller, place, level=1)).code == ResponseCode.SUCCESS
        await clock.elapse(2_000)
        assert await records(caller, RETRY) == []
        disk.go_on()
        await send(caller)
        await clock.elapse(2_000)
        await send(caller)
        assert len(await records(caller, RETRY)) == 1


@pytest.mark.feature("C25")
async def test_retries_belong_to_their_group(caller: Caller, clock: ManualClock) -> None:
    """Each group that sends a message back gets a copy of its own, with a topic of its own."""
    place = await send(caller)
    for group in ("g", "h"):
        await send_back(caller, place, level=1, group=group)
    await clock.elapse(1_000)
    for group in ("g", "h"):
        (record,) = await records(caller, f"%RETRY%{group}")
        assert record.properties["REAL_TOPIC"] == f"%RETRY%{group}"


@pytest.mark.feature("C27")
async def test_fallback_send_is_delayed(caller: Caller, clock: ManualClock) -> None:
    """A consumer that sends a failed message itself gets it back after the delay, with the attempts that it told."""
    text = "DELAY\x014\x02RETRY_TOPIC\x01T\x02TRAN_MSG\x01true\x02"
    answer = await caller.send(RETRY, reconsume_times=1, max_reconsume_times=16, properties=text)
    assert (answer.code, answer.ext["queueId"]) == (ResponseCode.SUCCESS, "0")
    await clock.elapse(3_999)
    assert await records(caller, RETRY) == []
    await clock.elapse(1)
    (record,) = await records(caller, RETRY)
    assert (record.reconsume_times, record.properties["RETRY_TOPIC"]) == (1, "T")


@pytest.mark.feature("C26")
async def test_dead_letter_is_sent_again(caller: Caller) -> None:
    """What is read from the dead letters can be sent to its topic again."""
    await send_back(caller, await send(caller, body=b"dead"), level=-1)
    letter = decode_record((await caller.pull(DLQ)).body)
    text = letter.property_text.decode()
    await caller.send(letter.properties["RETRY_TOPIC"], bytes(letter.body), properties=text)
    assert [bytes(record.body) for record in await records(caller, "T")] == [b"dead", b"dead"]


@pytest.mark.parametrize(("writes", "queues"), [(None, {0}), (0, {0}), (1, {0}), (3, {0, 1, 2})])
def test_queue_of_a_dead_letter(writes: int | None, queues: set[int], tmp_path: pathlib.Path) -> None:
    """It is any that may be written; the first when there is none, or when the topic is made for it."""
    config = BrokerConfig.from_java({"storePathRootDir": str(tmp_path)})
    topics = TopicTable(LiveSettings(config, "127.0.0.1"), lambda: 0)
    if writes is not None:
        topics.put(make_topic("%DLQ%g", writes))
    assert {dead_letters(topics, "g").queue_id for _ in range(100)} == queues
