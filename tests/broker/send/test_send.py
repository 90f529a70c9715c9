"""Sending, by raw requests to a broker with its name server."""

import json
import resource
from itertools import product
from typing import Any

import pytest
from raw_calls import Caller, open_caller, send_header

from rocketlet.broker.send.send import PropertyEnricher
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import parse_offset_id
from rocketlet.common.properties import encode_properties, parse_properties
from rocketlet.common.record import BatchPart, decode_record, encode_batch, iter_records
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.send import SendHeader
from rocketlet.testing.manual_clock import ManualClock

SEND_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
SENDS = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
ILLEGAL_TOPICS = "", " ", "bad topic!", "a.b", "T\n", "中文", "x" * 128, "%DLQ%" + "x" * 251
LONG = {
    "producerGroup": "p",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "5",
    "flag": "3",
    "properties": "TAGS\x01old\x02",
}


async def stored_properties(caller: Caller, queue_offset: int = 0) -> dict[str, str]:
    """Return the properties of a stored message of queue 0."""
    answer = await caller.pull(queue_offset=queue_offset)
    return decode_record(answer.body).properties


async def known_topics(caller: Caller, nameserver: NameServer) -> tuple[bytes, bytes]:
    """Return the topics that the broker has, and those that the name server has heard of."""
    kept = await caller.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    async with open_caller(nameserver.address) as other:
        listed = await other.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return kept.body, listed.body


@pytest.mark.feature("S1", "S23")
async def test_send_is_answered_with_its_place(caller: Caller) -> None:
    """Sends to one queue get offsets 0, 1, 2, the queue, an id that names the record, region and trace."""
    answers = [await caller.send(body=b"m%d" % number, queue_id=2) for number in range(3)]
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3
    assert [answer.ext["queueOffset"] for answer in answers] == ["0", "1", "2"]
    assert {answer.ext["queueId"] for answer in answers} == {"2"}
    assert all(answer.ext.items() >= SEND_FIELDS.items() for answer in answers)


async def test_message_id_names_record_and_broker(caller: Caller, broker: Broker) -> None:
    """The id in the answer holds the broker's own address and the record's position: 33 finds the message by it."""
    await caller.send(body=b"first")
    answer = await caller.send(body=b"second")
    host, log_offset = parse_offset_id(answer.ext["msgId"])
    assert broker.address == f"127.0.0.1:{int.from_bytes(host[4:], 'big')}"
    found = await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)})
    record = decode_record(found.body)
    assert (bytes(record.body), record.log_offset, record.store_host) == (b"second", log_offset, host)


@pytest.mark.feature("G17")
async def test_priority_chooses_the_queue(caller: Caller) -> None:
    """A message with a priority lies in the queue of that number, or in the last; an ordered one where it was sent."""
    names = {"0": "0", "2": "2", "9": "3", "-1": "1", "much": "1"}
    for priority, queue_id in names.items():
        properties = encode_properties({"_SYS_MSG_PRIORITY_": priority}).decode()
        answer = await caller.send(queue_id=1, properties=properties)
        assert answer.ext["queueId"] == queue_id
    properties = encode_properties({"_SYS_MSG_PRIORITY_": "2", "__SHARDINGKEY": "g"}).decode()
    assert (await caller.send(queue_id=1, properties=properties)).ext["queueId"] == "1"


@pytest.mark.feature("S4")
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize("header", [LONG, send_header("T", 1, "TAGS\x01old\x02", flag=3)], ids=["long", "letters"])
async def test_both_codes_take_both_spellings(code: int, header: dict[str, str] | SendHeader, caller: Caller) -> None:
    """Codes 10 and 310 store the same message from long names and from letters."""
    answer = await caller.ask(code, header, b"body")
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "1", "0")
    pulled = await caller.pull(queue_id=1)
    record = decode_record(pulled.body)
    assert (record.flag, record.properties["TAGS"], bytes(record.body)) == (3, "old", b"body")


async def test_binary_request_gets_the_same_answer(caller: Caller) -> None:
    """A send with ROCKETMQ headers is answered with the same fields."""
    answer = await caller.ask(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"body", serialize=1)
    assert answer.serialize == 1
    assert answer.ext.items() >= {"queueId": "0", "queueOffset": "0", **SEND_FIELDS}.items()


@pytest.mark.feature("S3")
async def test_oneway_send_is_stored_and_not_answered(caller: Caller) -> None:
    """A one-way send arrives; the next answer on the connection is that of the next request."""
    caller.ask_oneway(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"one way")
    assert "offset" in (await caller.ask(RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"})).ext
    assert bytes(decode_record((await caller.pull()).body).body) == b"one way"


async def test_oneway_send_that_fails_is_not_answered(caller: Caller) -> None:
    """Not even an error is written for a one-way request."""
    caller.ask_oneway(RequestCode.SEND_MESSAGE_V2, send_header("bad topic"), b"x")
    caller.ask_oneway(RequestCode.SEND_MESSAGE_V2, {}, b"x")
    answer = await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.feature("S24")
async def test_missing_unique_key_is_made(caller: Caller) -> None:
    """A message without UNIQ_KEY gets one, which the answer tells as transactionId."""
    answer = await caller.send()
    properties = await stored_properties(caller)
    assert len(properties["UNIQ_KEY"]) == 32
    assert answer.ext["transactionId"] == properties["UNIQ_KEY"]


async def test_broker_adds_its_properties_and_drops_pop_ck(caller: Caller) -> None:
    """Region, trace and cluster are the broker's, whatever the sender wrote; POP_CK is dropped."""
    await caller.send(properties="UNIQ_KEY\x01k\x02MSG_REGION\x01elsewhere\x02POP_CK\x01x\x02own\x01v")
    assert await stored_properties(caller) == {
        "UNIQ_KEY": "k",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "cluster-a",
        "own": "v",
    }


@pytest.mark.feature("S5")
async def test_auto_created_topic_is_in_the_route_when_answered(caller: Caller, nameserver: NameServer) -> None:
    """A send creates min(4, 8) queues with permission 6, and its answer comes after the name server knows."""
    assert (await caller.send("Fresh", queue_id=3)).code == ResponseCode.SUCCESS
    async with open_caller(nameserver.address) as other:
        route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Fresh"})
    assert b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4' in route.body


@pytest.mark.parametrize(
    ("topic", "body", "queue_id"),
    [("Long", bytes(5 << 20), 0), ("Queueless", b"body", 99)],
)
async def test_topic_of_a_refused_message_is_known_too(
    topic: str, body: bytes, queue_id: int, caller: Caller, nameserver: NameServer
) -> None:
    """A message that created its topic and is refused then leaves a topic that has a route when it is answered."""
    assert (await caller.send(topic, body, queue_id=queue_id)).code != ResponseCode.SUCCESS
    async with open_caller(nameserver.address) as other:
        route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    assert route.code == ResponseCode.SUCCESS


async def test_auto_created_topic_has_at_most_the_queues_of_its_template(caller: Caller) -> None:
    """A producer that wishes 20 queues gets the template's 8."""
    await caller.send("Wide", default_topic_queue_nums=20, queue_id=7)
    answer = await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Wide"})
    assert b'"readQueueNums":8' in answer.body


@pytest.mark.feature("S7")
async def test_auto_creation_off_refuses_unknown_topics(settings: dict[str, str], clock: ManualClock) -> None:
    """Without auto-creation a send to an unknown topic is answered 17."""
    settings["autoCreateTopicEnable"] = "false"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        answer = await caller.send("Unknown")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert "topic[Unknown] not exist, apply first please!" in answer.remark
    assert answer.ext == SEND_FIELDS


@pytest.mark.feature("S11")
async def test_queue_out_of_range(caller: Caller) -> None:
    """A queue id that is too large is refused, a negative one lets the broker pick."""
    await caller.send()
    assert (await caller.send(queue_id=4)).code == ResponseCode.INVALID_PARAMETER
    answer = await caller.send(queue_id=-100)
    assert (answer.code, answer.ext["queueId"] in "0123") == (ResponseCode.SUCCESS, True)


@pytest.mark.feature("S9")
@pytest.mark.parametrize(
    ("code", "topic"),
    [*product(SENDS, ILLEGAL_TOPICS), (RequestCode.SEND_MESSAGE_V2, "%RETRY%" + "x" * 249)],
)
async def test_illegal_topic_name(code: int, topic: str, caller: Caller, nameserver: NameServer) -> None:
    """Blanks, other characters and too many of them are refused; neither broker nor name server has a new topic."""
    before = await known_topics(caller, nameserver)
    is_batch = code == RequestCode.SEND_BATCH_MESSAGE
    body = encode_batch([BatchPart(0, b"x", b"")]) if is_batch else b"x"
    answer = await caller.ask(code, send_header(topic, batch=is_batch), body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert await known_topics(caller, nameserver) == before


@pytest.mark.feature("S9")
@pytest.mark.parametrize("topic", ["x" * 127, "%|_-aZ09", "%DLQ%" + "x" * 250])
async def test_topic_name_that_is_just_legal(topic: str, caller: Caller, nameserver: NameServer) -> None:
    """A name has up to 127 characters, that of dead letters 255, of letters, digits and `%|_-`."""
    assert (await caller.send(topic)).code == ResponseCode.SUCCESS
    assert all(topic.encode() in known for known in await known_topics(caller, nameserver))


@pytest.mark.feature("S10")
@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"])
async def test_topic_of_the_system_is_forbidden(topic: str, caller: Caller) -> None:
    """Clients may not write to the broker's own topics."""
    answer = await caller.send(topic)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == f"Sending message to topic[{topic}] is forbidden."


@pytest.mark.feature("S25")
async def test_broker_without_write_permission(settings: dict[str, str], clock: ManualClock) -> None:
    """With brokerPermission=4 an ordered topic is refused, another is written all the same."""
    settings["brokerPermission"] = "4"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        for order, code in (("true", ResponseCode.NO_PERMISSION), ("false", ResponseCode.SUCCESS)):
            queues = {"readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
            header = {"topic": "T", "defaultTopic": "", "order": order, **queues}
            await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            assert (await caller.send()).code == code
        assert (await caller.send("Fresh")).code == ResponseCode.SUCCESS


async def test_full_disk_is_answered_14_and_keeps_nothing(caller: Caller) -> None:
    """What the disk refuses is answered after the write was tried; its place goes to the next message."""
    await caller.send(body=b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        answer = await caller.send(body=b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (answer.code, answer.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, SEND_FIELDS)
    assert (await caller.send(body=b"after")).ext["queueOffset"] == "1"
    assert [bytes(record.body) for record in iter_records((await caller.pull()).body)] == [b"before", b"after"]


@pytest.mark.parametrize(
    ("reads", "writes", "queue_id", "code"),
    [
        (8, 4, 7, ResponseCode.SUCCESS),
        (8, 4, 8, ResponseCode.INVALID_PARAMETER),
        (4, 8, 7, ResponseCode.SUCCESS),
        (4, 8, 8, ResponseCode.INVALID_PARAMETER),
        (4, 0, 0, ResponseCode.INVALID_PARAMETER),
        (1, 1, -1, ResponseCode.SUCCESS),
    ],
)
async def test_queue_of_a_send(reads: int, writes: int, queue_id: int, code: int, caller: Caller) -> None:
    """It exists when it can be read or written, of a topic that can be written at all; below 0 the broker chooses."""
    header = {"topic": "T", "defaultTopic": "", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    queues = {"readQueueNums": str(reads), "writeQueueNums": str(writes)}
    await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header | queues)
    answer = await caller.send(queue_id=queue_id)
    assert answer.code == code
    assert code != ResponseCode.SUCCESS or answer.ext["queueId"] == str(max(0, queue_id))


async def test_message_without_body_is_refused(caller: Caller) -> None:
    """A send without a body is illegal."""
    assert (await caller.send(body=b"")).code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.feature("S12", "S13")
@pytest.mark.parametrize(
    ("body_bytes", "property_bytes", "code"),
    [
        (4_194_304, 0, ResponseCode.SUCCESS),
        (4_194_305, 0, ResponseCode.MESSAGE_ILLEGAL),
        (1, 31_000, ResponseCode.SUCCESS),
        (1, 32_768, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_size_limits(body_bytes: int, property_bytes: int, code: int, caller: Caller) -> None:
    """A body may have 4 MiB, the properties just under 32 KiB."""
    answer = await caller.send(body=b"x" * body_bytes, properties=f"p\x01{'v' * property_bytes}\x02")
    assert answer.code == code


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
async def test_timer_message_without_a_timer_wheel_is_refused(name: str, settings: dict[str, str]) -> None:
    """It is answered 1 in Java's words and never becomes visible; its topic is there, as with Java."""
    settings["timerWheelEnable"] = "false"
    async with Broker(BrokerConfig.from_java(settings), ManualClock()) as broker, open_caller(broker.address) as caller:
        answer = await caller.send(properties=f"{name}\x015\x02")
        remark = "accurate timer message is not enabled, timerWheelEnable is false"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert broker.store.log_append_offset == 0
        assert (await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("properties", "sys_flag"),
    [("DELAY\x013\x02", 0), ("TIMER_DELAY_SEC\x015\x02", 0), ("", 0x4), ("", 0x8), ("", 0xC)],
)
async def test_batch_that_cannot_wait_is_refused(properties: str, sys_flag: int, caller: Caller) -> None:
    """A batch with a delay, a timer, or a flag of a transaction is answered 13 and is not stored."""
    header = send_header("T", properties=properties, batch=True, sys_flag=sys_flag)
    answer = await caller.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch([BatchPart(0, b"x", b"")]))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (await caller.pull()).code != ResponseCode.SUCCESS


async def test_messages_of_a_batch_neither_wait_nor_open_a_transaction(caller: Caller) -> None:
    """What a batch's messages say of delays, timers and transactions is of no account, as with Java."""
    texts = [b"DELAY\x013\x02", b"TIMER_DELAY_SEC\x015\x02", b"TRAN_MSG\x01true\x02PGROUP\x01g\x02"]
    header = send_header("T", properties="TRAN_MSG\x01true\x02", batch=True)
    body = encode_batch([BatchPart(0, b"x", text) for text in texts])
    assert (await caller.ask(RequestCode.SEND_BATCH_MESSAGE, header, body)).code == ResponseCode.SUCCESS
    assert [record.property_text for record in iter_records((await caller.pull()).body)] == texts


@pytest.mark.feature("L2")
@pytest.mark.parametrize("level", ["0", "-1"])
async def test_delay_level_of_nothing_is_immediate(level: str, caller: Caller) -> None:
    """Level 0 and negative levels mean no delay."""
    assert (await caller.send(properties=f"DELAY\x01{level}\x02")).code == ResponseCode.SUCCESS


async def test_message_with_properties_of_the_broker_is_delayed_like_any(caller: Caller) -> None:
    """Whoever writes what the broker puts in its place has the message delayed all the same."""
    assert (await caller.send(properties="DELAY\x013\x02CLUSTER\x01elsewhere\x02")).code == ResponseCode.SUCCESS
    assert (await caller.pull()).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.feature("S17")
async def test_batch_gets_an_id_for_each_message(caller: Caller) -> None:
    """Ten messages of a batch lie in one queue with offsets in a row; the answer lists their ids."""
    await caller.send(queue_id=1)
    parts = [BatchPart(number, b"b%d" % number, b"KEYS\x01k%d\x02" % number) for number in range(10)]
    answer = await caller.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("T", 1, batch=True), encode_batch(parts))
    assert (answer.code, answer.ext["queueOffset"], answer.ext["queueId"]) == (0, "1", "1")
    records = list(iter_records((await caller.pull(queue_id=1, queue_offset=1)).body))
    assert [(record.flag, bytes(record.body), record.property_text) for record in records] == parts
    assert [record.queue_offset for record in records] == list(range(1, 11))
    assert [parse_offset_id(text)[1] for text in answer.ext["msgId"].split(",")] == [
        record.log_offset for record in records
    ]


@pytest.mark.parametrize(
    ("topic", "body", "code"),
    [
        ("%RETRY%g", encode_batch([BatchPart(0, b"x", b"")]), ResponseCode.MESSAGE_ILLEGAL),
        ("T", encode_batch([BatchPart(0, b"x", b"")])[:-3], ResponseCode.SYSTEM_ERROR),
        ("T", b"garbage", ResponseCode.SYSTEM_ERROR),
        ("T", b"x" * 4_194_305, ResponseCode.SYSTEM_ERROR),
    ],
    ids=["retry topic", "torn", "garbage", "too large"],
)
async def test_bad_batch_is_refused_whole(topic: str, body: bytes, code: int, caller: Caller) -> None:
    """Nothing of a batch that cannot be taken is stored."""
    assert (await caller.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(topic, batch=True), body)).code == code
    assert (await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})).ext["offset"] == "0"


async def test_batch_that_is_too_large_as_a_whole(settings: dict[str, str], clock: ManualClock) -> None:
    """The limit of one message is one of a whole batch, too; nothing of it is stored."""
    settings["maxMessageSize"] = "1000"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        body = encode_batch([BatchPart(0, bytes(400), b"")] * 3)
        answer = await caller.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("T", batch=True), body)
        told = f"message body size is {len(body)} bytes, limit is 1000"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, told)
        assert broker.store.log_max_offset == 0


@pytest.mark.feature("C27")
async def test_retry_that_was_tried_too_often_becomes_a_dead_letter(caller: Caller) -> None:
    """Above maxReconsumeTimes a send to %RETRY%group lands in %DLQ%group, without its delay."""
    fields: dict[str, Any] = {"reconsume_times": 3, "max_reconsume_times": 2, "properties": "DELAY\x015\x02"}
    assert (await caller.send("%RETRY%g", **fields)).code == ResponseCode.SUCCESS
    record = decode_record((await caller.pull("%DLQ%g")).body)
    assert (record.reconsume_times, record.properties["DELAY"]) == (3, "-1")


@pytest.mark.feature("C27")
@pytest.mark.parametrize(("version", "times", "is_dead"), [(121, 3, True), (121, 2, False), (120, 3, False)])
async def test_limit_of_a_retry_is_that_of_clients_since_3_4_9(
    version: int, times: int, is_dead: bool, caller: Caller
) -> None:
    """As often as the limit says a message is tried again; for older clients that of the group counts."""
    header = send_header("%RETRY%g", reconsume_times=times, max_reconsume_times=2)
    assert (await caller.ask(RequestCode.SEND_MESSAGE_V2, header, b"x", version=version)).code == ResponseCode.SUCCESS
    found = {name: (await caller.pull(name)).code == ResponseCode.SUCCESS for name in ("%DLQ%g", "%RETRY%g")}
    assert found == {"%DLQ%g": is_dead, "%RETRY%g": not is_dead}


async def test_topics_of_retries_that_a_send_makes(caller: Caller) -> None:
    """Where no template hands anything down, retries have one queue, as dead letters always do."""
    fields: dict[str, Any] = {"reconsume_times": 3, "max_reconsume_times": 2, "default_topic": "nobody"}
    assert (await caller.send("%RETRY%g", **fields)).code == ResponseCode.SUCCESS
    for name in ("%RETRY%g", "%DLQ%g"):
        topic = json.loads((await caller.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": name})).body)
        assert (topic["readQueueNums"], topic["writeQueueNums"]) == (1, 1)


@pytest.mark.parametrize(("count", "code"), [(65_536, ResponseCode.SUCCESS), (65_537, ResponseCode.SYSTEM_ERROR)])
async def test_messages_of_a_batch_are_bounded(count: int, code: int, caller: Caller) -> None:
    """They are stored in one turn of the loop, during which nobody else is served."""
    body = encode_batch([BatchPart(0, b"x", b"")]) * count
    assert (await caller.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("T", batch=True), body)).code == code
    stored = await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    assert stored.ext["offset"] == str(count if code == ResponseCode.SUCCESS else 0)


@pytest.mark.feature("C27")
async def test_retry_of_an_ordered_group_becomes_a_dead_letter(caller: Caller) -> None:
    """A group that holds a queue lock gets its retries as dead letters."""
    body = b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}'
    await caller.ask(RequestCode.LOCK_BATCH_MQ, None, body)
    assert (await caller.send("%RETRY%g")).code == ResponseCode.SUCCESS
    assert (await caller.pull("%DLQ%g")).code == ResponseCode.SUCCESS


OWN = {"MSG_REGION": "here", "TRACE_ON": "false", "CLUSTER": "cluster"}
ENRICHER = PropertyEnricher(OWN, lambda: "made")


@pytest.mark.parametrize("text", ["a\x01b\x02", "DELAY\x011\x02a\x01b\x02", "a\x01b\x02DELAY\x011\x02a\x01c\x02"])
def test_text_of_the_sender_stays_in_front(text: str) -> None:
    """What it says is kept as it was written, also when the message is to wait; the rest stands behind it."""
    assert ENRICHER.enrich(text).text.decode() == f"{text}UNIQ_KEY\x01made\x02{encode_properties(OWN).decode()}"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("", {"UNIQ_KEY": "made"}),
        ("UNIQ_KEY\x01k\x02a\x01b\x02", {"UNIQ_KEY": "k", "a": "b"}),
        ("UNIQ_KEY\x01k\x02a\x01b", {"UNIQ_KEY": "k", "a": "b"}),
        ("UNIQ_KEY\x01k\x02CLUSTER\x01other\x02", {"UNIQ_KEY": "k"}),
        ("POP_CK\x01x\x02", {"UNIQ_KEY": "made"}),
    ],
)
def test_both_forms_hold_the_same(text: str, own: dict[str, str]) -> None:
    """Text and table agree: the sender's properties, a unique key, and the broker's own."""
    stored = ENRICHER.enrich(text)
    assert stored.properties == {**own, **OWN}
    assert parse_properties(stored.text) == stored.properties
    assert stored.text == encode_properties(stored.properties)


def test_text_without_properties_is_not_kept() -> None:
    """A text that holds no property takes no room in the record, however long it is."""
    assert ENRICHER.enrich("x" * 40_000).text == ENRICHER.enrich("").text


@pytest.mark.parametrize(
    ("properties", "is_plain"),
    [
        ("KEYS\x01DELAY\x02", True),
        ("DELAY\x014\x02", False),
        ("TIMER_DELAY_SEC\x011\x02", False),
        ("TIMER_DELAY_MS\x011\x02", False),
        ("TIMER_DELIVER_MS\x011\x02", False),
        ("TRAN_MSG\x01true\x02", False),
        ("INNER_NUM\x012\x02", False),
    ],
)
def test_what_needs_care_is_not_plain(properties: str, is_plain: bool) -> None:
    """Properties that decide where a message is stored are seen by their names."""
    assert ENRICHER.enrich(properties).is_plain is is_plain
