"""Bodies against what official servers and clients sent, and against what Java's reader takes."""

import json
import pathlib
import zlib
from collections.abc import Callable
from random import randbytes
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketlet.common.errors import DecodeError, JsonError
from rocketlet.common.message import MessageQueue
from rocketlet.common.metadata import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from rocketlet.common.properties import crc31
from rocketlet.common.subscriptions.subscription import parse_tag_expression
from rocketlet.remoting.bodies import client, route
from rocketlet.remoting.bodies.admin import GroupSubscription, ProducerTable
from rocketlet.remoting.bodies.body import decode_body, encode_body, encode_body_for
from rocketlet.remoting.bodies.client import (
    CheckClientBody,
    ConsumedDirectly,
    ConsumerList,
    ConsumerOffsets,
    HeartbeatData,
    LockBatchBody,
    LockedQueues,
    SubscriptionData,
)
from rocketlet.remoting.bodies.route import (
    BrokerMemberGroupBody,
    ClusterInfo,
    KVTable,
    QueueData,
    TopicList,
    TopicRouteData,
    decode_registration,
    encode_registration,
)
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import FrameParser

ReadFrames = Callable[[str], list[dict[str, Any]]]
TESTS = pathlib.Path(__file__).parent.parent.parent
SCENARIOS = sorted(path.name.removesuffix(".jsonl.gz") for path in (TESTS / "vectors" / "frames").glob("*.jsonl.gz"))
READING: list[dict[str, Any]] = json.loads((TESTS / "vectors" / "codec" / "json-reading.json").read_text())
REGISTRATIONS: list[dict[str, Any]] = [
    case
    for case in json.loads((TESTS / "vectors" / "codec" / "bodies.json").read_text())
    if case["kind"] == "RegisterBrokerBody"
]

REQUEST_BODIES: dict[int, type] = {34: HeartbeatData, 41: LockBatchBody, 42: LockBatchBody, 46: CheckClientBody}
ANSWER_BODIES: dict[int, type] = {
    21: TopicConfigTable,
    38: ConsumerList,
    41: LockedQueues,
    103: KVTable,
    105: TopicRouteData,
    106: ClusterInfo,
    201: SubscriptionGroupTable,
    206: TopicList,
    309: ConsumedDirectly,
    328: ProducerTable,
    345: GroupSubscription,
    351: TopicConfig,
    352: SubscriptionGroupConfig,
    901: BrokerMemberGroupBody,
}
NOT_OURS = {"mappingDataVersion", "topicQueueMappingDetailMap", "topicQueueMappingInfoMap", "mappingDetail"}
IN_ANY_ORDER = {"codeSet", "tagsSet", "topicList"}


def _plain(value: object) -> object:
    """Return a JSON tree without what we leave out on purpose, and with sets in order."""
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        kept = {name: _plain(item) for name, item in entries.items() if name not in NOT_OURS}
        if kept.get("enableActingMaster") is False:
            del kept["enableActingMaster"]
        return {name: _in_order(item) if name in IN_ANY_ORDER else item for name, item in kept.items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    return value


def _in_order(items: object) -> list[str]:
    return sorted(str(item) for item in cast("list[object]", items))


def _tree(kind: type, body: bytes) -> object:
    value = cast("object", decode_body(kind, body))
    return _plain(msgspec.json.decode(encode_body(value)))


def _assert_holds(ours: object, theirs: object) -> None:
    """Assert that a tree has all of another; what it has beyond are defaults of fields that were not sent."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, item in cast("dict[str, object]", theirs).items():
            _assert_holds(cast("dict[str, object]", ours)[name], item)
    elif isinstance(ours, list) and isinstance(theirs, list):
        for mine, item in zip(cast("list[object]", ours), cast("list[object]", theirs), strict=True):
            _assert_holds(mine, item)
    else:
        assert ours == theirs


def _bodies(read_frames: ReadFrames, scenario: str) -> list[tuple[type, bytes]]:
    asked: dict[tuple[int, str, int], int] = {}
    bodies: list[tuple[type, bytes]] = []
    for frame in read_frames(scenario):
        [command] = FrameParser().feed(bytes.fromhex(frame["hex"]))
        if not command.is_response:
            asked[frame["conn"], frame["dir"], command.opaque] = command.code
            kind = None if scenario.startswith("errors") else REQUEST_BODIES.get(command.code)
        else:
            other_way = "s2c" if frame["dir"] == "c2s" else "c2s"
            kind = ANSWER_BODIES.get(asked[frame["conn"], other_way, command.opaque])
        if kind is not None and command.body:
            bodies.append((kind, command.body))
    return bodies


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_bodies_survive_their_struct(scenario: str, read_frames: ReadFrames):
    """Every body of a kind we know is read, and written again with the same content."""
    for kind, body in _bodies(read_frames, scenario):
        _assert_holds(_tree(kind, body), _tree(dict, body))


def test_recordings_show_every_body(read_frames: ReadFrames):
    """The recordings hold every kind of body that the test above shall show."""
    seen = {kind for scenario in SCENARIOS for kind, _ in _bodies(read_frames, scenario)}
    assert seen == {*REQUEST_BODIES.values(), *ANSWER_BODIES.values()}


@pytest.mark.feature("N23")
def test_route_is_written_by_the_readers_version(read_frames: ReadFrames):
    """Integer keys are bare for versions below 4.9.4 without the strict flag, else quoted; as the Java name server."""
    frames = [FrameParser().feed(bytes.fromhex(frame["hex"]))[0] for frame in read_frames("route-versions-5.4.0")]
    answers = {command.opaque: command.body for command in frames if command.is_response}
    questions = [command for command in frames if command.code == 105 and not command.is_response]
    for question in questions:
        body = answers[question.opaque]
        route = decode_body(TopicRouteData, body)
        route.broker_datas[0].enable_acting_master = None
        strict = question.ext.get("acceptStandardJsonOnly") == "true"
        assert encode_body_for(question, route, accepts_strict=strict) == body.replace(
            b',"enableActingMaster":false', b""
        )
    assert len(questions) == 21


@pytest.mark.feature("N23")
def test_strict_json_is_ascii():
    """A strict reader gets characters beyond ASCII escaped, by UTF-16 units; others get UTF-8."""
    topics = TopicList(topic_list=["主😀\x7f"])
    assert encode_body_for(Command(version=401), topics, accepts_strict=None) == (
        b'{"topicList":["\\u4e3b\\ud83d\\ude00\\u007f"]}'
    )
    assert encode_body_for(Command(version=400), topics, accepts_strict=None).decode() == ('{"topicList":["主😀\x7f"]}')


def test_route_without_anything_has_its_arrays():
    """Go and Node read both arrays of a route unasked; nothing that is a default boolean or null is written."""
    assert encode_body(TopicRouteData()) == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'


def test_old_spelling_of_a_sys_flag_is_read():
    """Name servers of 4.x spell it topicSynFlag."""
    queue = decode_body(QueueData, b'{"brokerName":"b","perm":6,"topicSynFlag":3}')
    assert queue.topic_sys_flag == 3
    assert b"topicSynFlag" not in encode_body(queue)


@pytest.mark.parametrize("case", REGISTRATIONS, ids=[f"{c['compressed']}-{c['topics']}" for c in REGISTRATIONS])
def test_registration_is_read_plain_and_compressed(case: dict[str, Any]):
    """Both forms of a registration hold the same, and the checksum is that of the bytes as they travel."""
    body = bytes.fromhex(case["hex"])
    assert crc31(body) == case["crc32"]
    version, topics = decode_registration(body, unnamed)
    assert version == DataVersion(counter=5, state_version=0, timestamp=1_700_000_000_000)
    assert sorted(topics) == [f"Topic{number}" for number in range(case["topics"])]
    plain = next(c for c in REGISTRATIONS if c["topics"] == case["topics"] and not c["compressed"])
    _, expected = decode_registration(bytes.fromhex(plain["hex"]), unnamed)
    for topic in expected.values():
        topic.order = topic.order and not case["compressed"]  # the compressed text has no place for it
    assert topics == expected


def unnamed(topic: TopicConfig) -> TopicConfig:
    """Return what a registration says of a topic beside its name."""
    return replace(topic, topic_name="")


def test_registration_of_few_topics_is_plain():
    """What our broker writes, a name server of any version reads: plain JSON without mapping tables."""
    version = DataVersion(counter=1, timestamp=2)
    encoded = encode_registration([TopicConfig(topic_name="T")], version)
    assert encoded is not None
    assert not encoded.is_compressed
    assert encoded.body == (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,'
        b'"timestamp":2},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":16,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}}}}'
    )
    assert decode_registration(encoded.body, unnamed) == (version, {"T": TopicConfig()})


def many_topics(count: int, name_characters: int = 1, **about: Any) -> list[TopicConfig]:
    """Return topics, every other one with other queues."""
    return [
        TopicConfig(topic_name=f"{number:0{name_characters}}", write_queue_nums=1 + number % 2, **about)
        for number in range(count)
    ]


@pytest.mark.parametrize(("count", "is_compressed"), [(10_000, False), (10_001, True), (100_000, True)])
def test_registration_of_many_topics_is_compressed(count: int, is_compressed: bool):
    """From 10,001 topics on a registration is compressed, and read again with all that Java's text has room for."""
    version, topics = DataVersion(counter=7), many_topics(count, attributes={"+message.type": "FIFO", "a": "b c"})
    encoded = encode_registration(topics, version)
    assert encoded is not None
    assert encoded.is_compressed is is_compressed
    assert decode_registration(encoded.body, unnamed) == (version, {t.topic_name: unnamed(t) for t in topics})


def test_compressed_registration_is_written_as_java_writes_it():
    """Inflated, our registration is byte for byte that of RocketMQ 5.4.0 with the same topics."""
    java = zlib.decompress(bytes.fromhex(next(c["hex"] for c in REGISTRATIONS if c["compressed"] and c["topics"] == 0)))
    version = DataVersion(counter=5, timestamp=1_700_000_000_000)
    encoded = encode_registration(many_topics(10_001), version)
    assert encoded is not None
    data = zlib.decompress(encoded.body)
    text = b"0 16 1 6 SINGLE_TAG {}"
    head, tail = java[:-14], java[-10:]  # between them Java has the number of its topics, 0
    assert data.startswith(head + (10_001).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text)
    assert data.endswith(tail)


def test_registration_that_no_frame_holds():
    """More than 100,000 topics, and what even compressed is larger than a frame, is not one registration."""
    assert encode_registration(many_topics(100_001), DataVersion()) is None
    unlike = [TopicConfig(topic_name=str(n), attributes={"a": randbytes(1_000).hex()}) for n in range(20_000)]
    assert encode_registration(unlike, DataVersion()) is None


@pytest.mark.parametrize(("spare_bytes", "is_taken"), [(0, True), (-1, False)])
def test_registration_inflates_to_what_its_reader_takes(
    spare_bytes: int, is_taken: bool, monkeypatch: pytest.MonkeyPatch
):
    """A compressed registration may be as long as those who inflate it allow; a longer one is not sent."""
    topics = many_topics(10_001)
    whole = encode_registration(topics, DataVersion())
    assert whole is not None
    monkeypatch.setattr(route, "MAX_INFLATED_BYTES", len(zlib.decompress(whole.body)) + spare_bytes)
    assert encode_registration(topics, DataVersion()) == (whole if is_taken else None)


def test_long_registration_of_few_topics_is_compressed():
    """10,000 topics that are longer than a frame as JSON go compressed."""
    encoded = encode_registration(many_topics(10_000, attributes={"a": "b" * 2_000}), DataVersion())
    assert encoded is not None
    assert encoded.is_compressed


@pytest.mark.parametrize("beyond", [0, 1])
def test_plain_registration_leaves_room_for_the_header_of_its_frame(beyond: int):
    """A registration that fills a frame but for 64 KiB goes plain, one byte more and it is compressed."""
    empty = encode_registration([TopicConfig(topic_name="T", attributes={"a": ""})], DataVersion())
    assert empty is not None
    room = (16 << 20) - (1 << 16) - len(empty.body)
    topic = TopicConfig(topic_name="T", attributes={"a": "b" * (room + beyond)})
    encoded = encode_registration([topic], DataVersion())
    assert encoded is not None
    assert encoded.is_compressed is bool(beyond)


def test_registration_keeps_the_flags_of_topics_while_a_frame_holds_it():
    """A system flag has no place in the compressed text, so topics with one go plain, however many fit a frame."""
    plain = encode_registration(many_topics(20_000, topic_sys_flag=1), DataVersion())
    assert plain is not None
    assert not plain.is_compressed
    long = encode_registration(many_topics(60_000, 120, topic_sys_flag=1), DataVersion())
    assert long is not None
    assert long.is_compressed


INFLATED = zlib.decompress(bytes.fromhex(next(c["hex"] for c in REGISTRATIONS if c["compressed"] and c["topics"] == 3)))


def test_registration_of_4_9_has_five_fields_a_topic():
    """Without attributes, and without the mapping tail, a compressed registration is read all the same."""
    topic = b"T 4 4 6 SINGLE_TAG"
    for filters in (b"\0\0\0\2[]", bytes(4)):
        data = INFLATED[:60] + b"\0\0\0\1" + len(topic).to_bytes(4, "big") + topic + filters
        _, topics = decode_registration(zlib.compress(data), unnamed)
        assert topics == {"T": TopicConfig(read_queue_nums=4, write_queue_nums=4)}


@pytest.mark.parametrize("size", range(len(INFLATED) - 4))
def test_cut_registration_is_an_error(size: int):
    """A compressed registration that ends early is refused, wherever it ends."""
    with pytest.raises(DecodeError):
        decode_registration(zlib.compress(INFLATED[:size]), unnamed)


def test_registration_of_too_many_topics_is_an_error():
    """More topics than one turn of the loop can take are refused in both forms; of the compressed one, unread."""
    table = ",".join(f'"{number}":{{}}' for number in range(100_001))
    plain = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{table}}}}}}}'.encode()
    compressed = zlib.compress(INFLATED[:60] + (100_001).to_bytes(4, "big"))
    for body in (plain, compressed):
        with pytest.raises(DecodeError, match=r"^the registration has 100001 topics, limit is 100000$"):
            decode_registration(body, unnamed)


def test_cut_zlib_stream_is_an_error():
    """A zlib stream that ends early, or is none, is refused."""
    whole = zlib.compress(INFLATED)
    for body in (whole[:-5], b"\x78\x9cgarbage", b"x", b"\x78"):
        with pytest.raises(DecodeError):
            decode_registration(body, unnamed)


def test_registration_that_inflates_too_far_is_an_error():
    """A small body that inflates beyond the limit is refused before it is all in memory."""
    stream = zlib.compressobj(1)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(80)) + stream.flush()
    assert len(bomb) < 1 << 20
    with pytest.raises(DecodeError, match="inflates to more than 67108864 bytes"):
        decode_registration(bomb, unnamed)


@given(data=st.binary(max_size=200))
def test_random_registration_raises_nothing_else(data: bytes):
    """Whatever a registration holds, it is read or a DecodeError."""
    for body in (data, zlib.compress(data), zlib.compress(INFLATED[:70] + data)):
        try:
            decode_registration(body, unnamed)
        except DecodeError:
            continue


KINDS: dict[str, type] = {
    "TopicRouteData": TopicRouteData,
    "ClusterInfo": ClusterInfo,
    "HeartbeatData": HeartbeatData,
    "LockBatchRequestBody": LockBatchBody,
}
BODY_CASES = [case for case in READING if case["kind"] == "body" and case["class"] in KINDS]


@pytest.mark.parametrize("case", BODY_CASES, ids=[f"{case['class']} {case['note']}" for case in BODY_CASES])
def test_body_text_is_read_as_java_reads_it(case: dict[str, Any]):
    """Odd texts of bodies mean what they mean to Java; a set that Java empties of doubles may keep them here."""
    kind = KINDS[case["class"]]
    read = cast("object", decode_body(kind, case["text"].encode()))
    if isinstance(read, LockBatchBody):
        read.mq_set = list(dict.fromkeys(read.mq_set))
    assert _plain(msgspec.json.decode(encode_body(read))) == _tree(kind, case["rewritten"].encode())


SUBSCRIPTION: dict[str, object] = {
    "class_filter_mode": False,
    "expression_type": "TAG",
    "sub_string": "*",
    "sub_version": 0,
}
LEFT_OUT: dict[str, dict[str, object]] = {
    "SubscriptionData": SUBSCRIPTION,
    "CheckedSubscription": {**SUBSCRIPTION, "topic": ""},
    "ConsumerData": {"unit_mode": False},
    "HeartbeatData": {"heartbeat_fingerprint": 0, "without_sub": False},
    "LockBatchBody": {"only_this_broker": False},
    "_PlainLockBatchBody": {"only_this_broker": False},
    "OwnedQueue": {
        "commit_offset": 0,
        "cached_msg_min_offset": 0,
        "cached_msg_max_offset": 0,
        "cached_msg_count": 0,
        "cached_msg_size": 0,
        "transaction_msg_min_offset": 0,
        "transaction_msg_max_offset": 0,
        "transaction_msg_count": 0,
        "locked": False,
        "try_unlock_times": 0,
        "last_lock_timestamp": 0,
        "is_dropped": False,
        "last_pull_timestamp": 0,
        "last_consume_timestamp": 0,
    },
    "TopicFigures": {
        "pull_ms": 0,
        "pulled_per_second": 0,
        "consume_ms": 0,
        "succeeded_per_second": 0,
        "failed_per_second": 0,
        "failed_in_hour": 0,
    },
    "ConsumedDirectly": {"order": False, "auto_commit": True, "spent_ms": 0},
    "ClientConnection": {"client_addr": "", "client_id": "", "language": "", "version": 0},
    "BrokerData": {"broker_name": ""},
    "QueueData": {"broker_name": "", "read_queue_nums": 0, "write_queue_nums": 0, "perm": 0, "topic_sys_flag": 0},
}


def test_field_that_a_body_leaves_out_is_read_as_by_java():
    """What older servers and other clients do not write is nothing, no, or 0, as for Java's reader of JSON."""
    filled: dict[str, dict[str, object]] = {}
    for module in (client, route):
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__:
                optional = [each for each in msgspec.structs.fields(kind) if each.default is not msgspec.NODEFAULT]
                filled[name] = {each.name: each.default for each in optional if each.default is not None}
    assert {name: fields for name, fields in filled.items() if fields} == LEFT_OUT


def test_heartbeats_of_other_languages_are_read():
    """Go writes codes as texts, Node leaves the expression type out, and nulls stand for defaults."""
    text = (
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_ACTIVELY",'
        b'"messageModel":0,"consumeFromWhere":null,"unitMode":false,"subscriptionDataSet":[{"topic":"T",'
        b'"subString":"A","codeSet":["65"],"tagsSet":["A"],"subVersion":1700000000000000000,"expressionType":null}]}]}'
    )
    heartbeat = decode_body(HeartbeatData, text)
    [consumer] = heartbeat.consumer_data_set
    [subscription] = consumer.subscription_data_set
    assert (consumer.message_model, consumer.consume_from_where) == ("BROADCASTING", None)
    assert heartbeat.producer_data_set == []
    assert subscription.to_subscription() == parse_tag_expression("T", "A", version=1_700_000_000_000_000_000)


def test_subscription_is_written_in_order():
    """Equal subscriptions are equal bytes, however their sets are ordered: brokers compare heartbeats by them."""
    names = [f"Tag{number}" for number in range(40)]
    data = SubscriptionData.from_subscription(parse_tag_expression("T", " || ".join(names), version=5))
    assert data.tags_set == sorted(names)
    assert data.code_set == sorted(data.code_set)
    assert len(data.code_set) == 40


def test_subscription_survives_its_wire_form():
    """A subscription made from an expression is the same after its way through a heartbeat."""
    subscription = parse_tag_expression("T", "TagA || TagB", version=5)
    data = SubscriptionData.from_subscription(subscription)
    assert decode_body(SubscriptionData, encode_body(data)).to_subscription() == subscription


def test_offsets_of_consumers_are_read_at_once():
    """What Java writes, which is no strict JSON, takes no slow reading however long it is; anything else does."""
    for count in (0, 1, 2_000):
        offsets = {MessageQueue("T-1", "broker-a", number): number - 1 for number in range(count)}
        body = encode_body(ConsumerOffsets(message_queue_table=offsets))
        assert decode_body(ConsumerOffsets, body, slow_bytes=0).message_queue_table == offsets
    spaced = body.replace(b"}:", b"} :")
    assert decode_body(ConsumerOffsets, spaced, slow_bytes=1 << 20).message_queue_table == offsets
    for bad in (spaced, body[:-1], body[:-2] + b",}}", body.replace(b",{", b"{"), b"", body[:3] + b"\xe9" + body[3:]):
        with pytest.raises(JsonError):
            decode_body(ConsumerOffsets, bad, slow_bytes=0)


def test_lock_bodies_hold_queues():
    """Queues stand in lists as objects with Java's names."""
    queues = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
    body = LockBatchBody(client_id="c", consumer_group="g", mq_set=queues)
    assert decode_body(LockBatchBody, encode_body(body)) == body
    assert encode_body(LockedQueues(queues=queues[:1])) == (
        b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'
    )


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b"5", b"{}", b'{"clientID":5,"consumerDataSet":{}}'])
def test_broken_heartbeat_is_an_error(body: bytes):
    """A heartbeat that is no JSON, or has no client id, is a JsonError."""
    with pytest.raises(JsonError):
        decode_body(HeartbeatData, body)
