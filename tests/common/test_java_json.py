import enum
import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from javastores import java_cases

from rocketlet.common.errors import JsonError
from rocketlet.common.java_json import read_json, read_json_as, write_json
from rocketlet.common.lenient_json import parse_lenient
from rocketlet.common.message import MessageQueue

CASES = java_cases("codec/json-reading.json")
HEADERS = [case for case in CASES if case["kind"] == "header"]
BODIES = [case for case in CASES if case["kind"] == "body"]
QUEUE = MessageQueue("T", "b", 0)
RAW_QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'


class Names(msgspec.Struct):
    """A list that is written as a whole."""

    names: list[str]


class ConsumeType(enum.Enum):
    """As Java's class of this name."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class ConsumeFromWhere(enum.StrEnum):
    """As Java's class of this name."""

    CONSUME_FROM_LAST_OFFSET = enum.auto()
    CONSUME_FROM_FIRST_OFFSET = enum.auto()


class MessageModel(enum.IntEnum):
    """As Java's class of this name."""

    BROADCASTING = 0
    CLUSTERING = 1


class Header(msgspec.Struct):
    """As Java's class of this name."""

    code: int = 0
    language: str | None = "JAVA"
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: dict[str, str] = msgspec.field(default_factory=dict[str, str], name="extFields")


class ResetOffsetBody(msgspec.Struct):
    """As Java's class of this name."""

    offset_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict[MessageQueue, int], name="offsetTable")


class OffsetWrapper(msgspec.Struct, rename="camel", omit_defaults=True):
    """As Java's class of this name."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int | None = None
    pull_offset: int | None = None


class ConsumeStats(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = {}


class TopicOffset(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    last_update_timestamp: int = 0
    max_offset: int = 0
    min_offset: int = 0


class TopicStatsTable(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class BrokerData(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    broker_addrs: dict[int, str] = {}
    broker_name: str | None = None
    cluster: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    queue_datas: list[dict[str, Any]] = []


class ClusterInfo(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class SubscriptionData(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    class_filter_mode: bool = False
    code_set: set[int] = set()
    expression_type: str = "TAG"
    sub_string: str | None = None
    sub_version: int = 0
    tags_set: set[str] = set()
    topic: str | None = None


class ConsumerData(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    group_name: str | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    client_id: str | None = msgspec.field(default=None, name="clientID")
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    producer_data_set: list[dict[str, str]] = []
    without_sub: bool = False


class LockBatchRequestBody(msgspec.Struct, rename="camel"):
    """As Java's class of this name."""

    client_id: str | None = None
    consumer_group: str | None = None
    mq_set: set[MessageQueue] = set()
    only_this_broker: bool = False


BODY_TYPES: dict[str, Any] = {
    "ResetOffsetBody": ResetOffsetBody,
    "ConsumeStats": ConsumeStats,
    "TopicStatsTable": TopicStatsTable,
    "TopicRouteData": TopicRouteData,
    "ClusterInfo": ClusterInfo,
    "HeartbeatData": HeartbeatData,
    "LockBatchRequestBody": LockBatchRequestBody,
}


@pytest.mark.parametrize("case", HEADERS, ids=lambda case: case["note"])
def test_header_is_read_as_java_does(case: dict[str, Any]) -> None:
    """Every recorded header is read or refused as in Java; unquoted keys, which only 5.4.0 refuses, are read."""
    expected: Any = case["result"]
    if case["note"] == "unquoted keys":
        expected = {"code": 105, "opaque": 7}
    if isinstance(expected, str):
        with pytest.raises(JsonError):
            read_json_as(case["text"], Header)
        return
    found = read_json_as(case["text"].encode(), Header)
    assert found == read_json_as(case["text"], Header)
    for name in {"code", "version", "flag", "remark"} & expected.keys():
        assert getattr(found, name) == expected[name]
    ext: dict[str, str | None] = expected.get("extFields") or {}
    assert found.ext == {name: value for name, value in ext.items() if value is not None}


def test_language_is_text_for_the_header_to_judge() -> None:
    """A language given as a number or an unknown name arrives as its text."""
    assert read_json_as('{"language":3}', Header).language == "3"
    assert read_json_as('{"language":"KLINGON"}', Header).language == "KLINGON"


def test_true_as_a_flag_is_one() -> None:
    """A boolean where an integer belongs counts as 1 or 0."""
    assert read_json_as('{"flag":true,"opaque":false}', Header) == Header(flag=1)


@pytest.mark.parametrize("case", BODIES, ids=lambda case: f"{case['class']}-{case['note']}")
def test_body_is_read_as_java_does(case: dict[str, Any]) -> None:
    """Every recorded body holds for us what it holds for Java, whose rewritten text is read for comparison."""
    kind = BODY_TYPES[case["class"]]
    if case["note"] == "array of pairs":
        with pytest.raises(JsonError):
            read_json_as(case["text"], kind)
        return
    found = read_json_as(case["text"], kind)
    if case["note"] == "string key":  # accepted by Java before 5.4.0
        assert list(found.offset_table) == [QUEUE]
        return
    assert found == read_json_as(case["rewritten"], kind)
    assert found == read_json_as(write_json(found), kind)
    assert found == read_json_as(write_json(found, quotes_integer_keys=False), kind)


@pytest.mark.parametrize("name", ["ResetOffsetBody", "ConsumeStats", "TopicStatsTable", "ClusterInfo"])
def test_body_is_written_as_java_does(name: str) -> None:
    """Bodies with queues or integers as keys are written byte by byte as fastjson writes them."""
    text = next(case["rewritten"] for case in BODIES if case["class"] == name)
    value = read_json_as(text, BODY_TYPES[name])
    assert write_json(value, quotes_integer_keys=False).decode() == text


def test_enums_are_read_by_name_or_ordinal() -> None:
    """Both forms of an enum name the same member; an unknown one is absent."""
    by_name = read_json_as(
        next(c["text"] for c in BODIES if c["note"] == "unknown keys, string numbers"), HeartbeatData
    )
    by_ordinal = read_json_as(next(c["text"] for c in BODIES if c["note"] == "enum ordinals"), HeartbeatData)
    unknown = read_json_as(next(c["text"] for c in BODIES if c["note"] == "unknown enum"), HeartbeatData)
    for data in (by_name, by_ordinal):
        assert data.consumer_data_set[0].consume_type is ConsumeType.CONSUME_PASSIVELY
        assert data.consumer_data_set[0].message_model is MessageModel.CLUSTERING
        assert data.consumer_data_set[0].consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert unknown.consumer_data_set[0].consume_type is None
    assert by_name.consumer_data_set[0].subscription_data_set[0].code_set == {65}


@pytest.mark.parametrize("case", [*BODIES, *HEADERS], ids=lambda case: case["note"])
def test_text_cut_at_every_length(case: dict[str, Any]) -> None:
    """A cut text is a JSON error; in some cuts it is a shorter value, and nothing else ever happens."""
    for end in range(len(case["text"])):
        try:
            read_json(case["text"][:end])
        except JsonError:
            continue
        assert case["text"][end:].isspace() or case["note"] == "trailing garbage"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": None, "c": [None, True, 1.5, "ü\n"]}, '{"b":1,"c":[null,true,1.5,"ü\\n"]}'),
        ({}, "{}"),
        ({1: "x", 0: "y", 10: "z"}, '{"0":"y","1":"x","10":"z"}'),
        ({MessageQueue("T", "b", 10): 6, QUEUE: 5}, f"{{{RAW_QUEUE}:5,{RAW_QUEUE.replace('0', '10')}:6}}"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ((1, "a"), '[1,"a"]'),
        (QUEUE, RAW_QUEUE),
        (
            {"t": ConsumeType.CONSUME_PASSIVELY, "m": MessageModel.CLUSTERING},
            '{"m":"CLUSTERING","t":"CONSUME_PASSIVELY"}',
        ),
        (b"\x01\x02", '"AQI="'),
        (float("nan"), "null"),
        (0.0, "0.0"),
        (None, "null"),
        ("\u2028", '"\u2028"'),
        (Names(["b\n", "\u2028", "a"]), '{"names":["b\\n","\u2028","a"]}'),
    ],
)
def test_values_are_written_compact_and_sorted(value: object, text: str) -> None:
    """Keys are sorted, nulls left out, queues raw and enums by name."""
    assert write_json(value).decode() == text


def test_integer_keys_are_written_bare_where_asked() -> None:
    """Old clients get unquoted integer keys at every level; texts stay quoted."""
    value = {"addrs": {0: "h:1", 1: "h:2"}, "1": {2: True}}
    assert write_json(value, quotes_integer_keys=False) == b'{"1":{2:true},"addrs":{0:"h:1",1:"h:2"}}'
    assert json.loads(write_json(value)) == {"addrs": {"0": "h:1", "1": "h:2"}, "1": {"2": True}}


def test_value_without_a_form_is_a_type_error() -> None:
    """Writing something that JSON has no form for is the caller's mistake."""
    with pytest.raises(TypeError, match="object"):
        write_json({"a": object()})


JSON_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab{$\"'\\", max_size=4), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_ordinary_values_round_trip(value: Any) -> None:
    """What is written reads back, by the quick and by the lenient way."""
    data = write_json(value)
    tree, _ = parse_lenient(data)
    assert read_json(data) == value
    assert tree == value


@given(st.text() | st.text("{}[]:,\"'$ref.@0a1-e\\untrlfs \n") | st.binary(max_size=100))
def test_arbitrary_text_is_read_or_refused(data: str | bytes) -> None:
    """Arbitrary texts and bytes are a value or a JSON error, whatever the type asked for."""
    for kind in (Any, Header, HeartbeatData, ResetOffsetBody):
        try:
            read_json_as(data, kind)
        except JsonError:
            continue


@given(st.sampled_from(CASES), st.lists(st.tuples(st.integers(0, 400), st.characters()), min_size=1, max_size=4))
def test_mutated_text_is_read_or_refused(case: dict[str, Any], changes: list[tuple[int, str]]) -> None:
    """A recorded text with changed characters is a value or a JSON error."""
    text = list(case["text"] or " ")
    for position, character in changes:
        text[position % len(text)] = character
    for kind in (Any, BODY_TYPES.get(case.get("class", ""), Header)):
        try:
            read_json_as("".join(text), kind)
        except JsonError:
            continue


class QueueTables(msgspec.Struct):
    """Tables of queues at several depths, and a text."""

    note: str = ""
    offsets: dict[MessageQueue, int] = {}
    lists: list[dict[MessageQueue, TopicOffset]] = []
    groups: dict[str, dict[MessageQueue, int]] = {}


NAMES = st.text('ab%|ü"\\{}:,\x01', max_size=6)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=3)
EXTENTS = OFFSETS.map(lambda table: {queue: TopicOffset(max_offset=end) for queue, end in table.items()})
NOTES = NAMES.map((RAW_QUEUE + ":1").__add__)
TABLES = st.builds(
    QueueTables, NOTES, OFFSETS, st.lists(EXTENTS, max_size=2), st.dictionaries(NAMES, OFFSETS, max_size=2)
)


@given(TABLES)
def test_tables_of_queues_round_trip(value: QueueTables) -> None:
    """Whatever the names hold, and whatever a text looks like."""
    assert read_json_as(write_json(value), QueueTables) == value


def test_long_table_of_queues_is_read_the_short_way() -> None:
    """What Java writes of queues is not too long for those who take little of what needs the slow way."""
    queues = [MessageQueue(f"T{number % 9}", "b", number) for number in range(1000)]
    stats = TopicStatsTable({queue: TopicOffset(1, 2, 3) for queue in queues}, 0.5)
    assert read_json_as(write_json(stats), TopicStatsTable, slow_bytes=9) == stats
    with pytest.raises(JsonError, match="above 9"):
        read_json_as(write_json(stats).replace(b'"queueId":', b'"queueId": '), TopicStatsTable, slow_bytes=9)


@pytest.mark.parametrize(
    "text",
    [
        f'{{"offsetTable":{{{RAW_QUEUE}:1,{RAW_QUEUE}:2}}}}',
        f'{{"offsetTable":{{"\\u00010":1,{RAW_QUEUE}:2}}}}',
        f'{{"offsetTable":{{"\\u0001x":1,{RAW_QUEUE}:2}}}}',
        f'{{"offsetTable":{{{RAW_QUEUE}:2,"\\u00011":1}}}}',
        f'{{"offsetTable":{{{RAW_QUEUE}:2}},"other":{{"\\u00010":1}}}}',
        f"{{'offsetTable':{{{RAW_QUEUE}:2}}}}",
        f'{{"offsetTable":{{{RAW_QUEUE}:2,}}}}',
    ],
)
def test_odd_tables_of_queues_are_read_the_slow_way(text: str) -> None:
    """Queues twice, keys that look like ours for queues, and texts that are no strict JSON."""
    assert read_json_as(text, ResetOffsetBody) == ResetOffsetBody({QUEUE: 2})


class NumberedModel(enum.IntEnum):
    """An enum with numbers of its own."""

    BROADCASTING = 10
    CLUSTERING = 11


class Everything(msgspec.Struct):
    """One field of each kind."""

    number: int = -1
    real: float = -1.0
    switch: bool = False
    text: str = "none"
    maybe: int | str = 0
    texts: list[str] = []
    table: dict[str, str] = {}
    model: NumberedModel = NumberedModel.BROADCASTING
    queue: MessageQueue | None = None
    pair: tuple[int, ...] = ()
    where: Literal["FIRST", "LAST"] | None = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"number":"5"}', Everything(number=5)),
        ('{"number":5.9}', Everything(number=5)),
        ('{"number":""}', Everything()),
        ('{"number":"null"}', Everything()),
        ('{"number":null,"text":null,"switch":null}', Everything()),
        ('{"real":"1.5"}', Everything(real=1.5)),
        ('{"real":""}', Everything()),
        ('{"switch":"true"}', Everything(switch=True)),
        ('{"switch":1}', Everything(switch=True)),
        ('{"text":5,"number":true}', Everything(text="5", number=1)),
        ('{"text":1.5}', Everything(text="1.5")),
        ('{"text":{"x":[1,true]}}', Everything(text='{"x":[1,true]}')),
        ('{"maybe":"x"}', Everything(maybe="x")),
        (
            '{"texts":[1,null,"a",{"x":{"$ref":"$.text"}}],"text":"t"}',
            Everything(texts=["1", "a", '{"x":"t"}'], text="t"),
        ),
        ('{"table":{"a":true,"b":null,"c":{}}}', Everything(table={"a": "true", "c": "{}"})),
        ('{"model":"CLUSTERING"}', Everything(model=NumberedModel.CLUSTERING)),
        ('{"model":1}', Everything(model=NumberedModel.CLUSTERING)),
        ('{"model":"NONE","number":1}', Everything(number=1)),
        (f'{{"queue":{RAW_QUEUE}}}', Everything(queue=QUEUE)),
        ('{"queue":{"brokerName":5,"topic":true}}', Everything(queue=MessageQueue("true", "5", 0))),
        ('{"queue":{"brokerName":"b","queueId":"","topic":"T"}}', Everything(queue=QUEUE)),
        ('{"queue":{"brokerName":"b","queueId":0.5,"topic":"T"}}', Everything(queue=QUEUE)),
        ('{"pair":["1",2]}', Everything(pair=(1, 2))),
        ('{"pair":5}', Everything(pair=(5,))),
        ('{"texts":"a"}', Everything(texts=["a"])),
        ('{"texts":{"x":1}}', Everything(texts=['{"x":1}'])),
        ('{"where":"LAST"}', Everything(where="LAST")),
        ('{"where":"NOWHERE","number":1}', Everything(number=1)),
        ('{"unknown":{"a":[1]}}', Everything()),
    ],
)
def test_scalars_are_converted_as_javas_setters_do(text: str, expected: Everything) -> None:
    """Numbers, booleans, texts and enums in each other's place are taken as Java takes them."""
    assert read_json_as(text, Everything) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "5",
        "null",
        '{"number":"x"}',
        '{"number":[1]}',
        '{"switch":"maybe"}',
        '{"texts":5}',
        '{"model":7}',
        '{"model":true}',
        '{"model":["CLUSTERING"]}',
        '{"queue":{"topic":"T"}}',
        '{"queue":{"brokerName":"b","queueId":2147483648,"topic":"T"}}',
        '{"queue":{"brokerName":"b","queueId":[1],"topic":"T"}}',
    ],
)
def test_value_of_another_shape_is_refused(text: str) -> None:
    """A value that Java could not assign is a JSON error."""
    with pytest.raises(JsonError, match="is not a Everything"):
        read_json_as(text, Everything)


def test_keys_that_are_no_queues_drop_their_entry() -> None:
    """A table of queues keeps the entries whose key can be read."""
    text = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"x":1}:6,"y":7}}'
    assert read_json_as(text, dict[str, dict[MessageQueue, int]]) == {"offsetTable": {QUEUE: 5}}
