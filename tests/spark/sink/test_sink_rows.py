"""Which tables the sink takes, and what becomes of their rows; without Spark's Java process."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketlet.client.producer.bulk_sender import OutboundMessage
from rocketlet.common.errors import ConfigError
from rocketlet.common.message import Message
from rocketlet.export.columns.schema import SCHEMA
from rocketlet.spark.sink.sink_rows import RowConverter, SinkColumns

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "array<int>": ArrayType(IntegerType()),
    "map<string,string>": MapType(StringType(), StringType()),
    "struct<a:string>": StructType([StructField("a", StringType())]),
}
ALL = (
    "topic string, body binary, keys array<string>, tags string, properties map<string,string>, shardingKey string, "
    "delayLevel int, delayMs bigint, deliverAt timestamp, flag int"
)


def table(columns: str) -> StructType:
    """Return a schema; Spark's own parser of such texts needs its Java process."""
    pairs = [column.split(" ") for column in columns.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def letters_of(schema: str, batch: pa.RecordBatch, topic: str | None = None) -> list[OutboundMessage]:
    """Return the messages of rows, which get no key."""
    columns = SinkColumns.find(table(schema), topic)
    return RowConverter(columns, topic, None, "").of(batch)


def messages(schema: str, option: str, **columns: Any) -> list[Message]:
    """Return the messages of rows given by column."""
    return [letter.message for letter in letters_of(schema, pa.RecordBatch.from_pydict(columns), option)]


def test_every_column_is_in_the_message() -> None:
    """Texts, numbers, times and maps arrive as what they are."""
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    row = {
        "topic": ["T", "T", "T"],
        "body": pa.array([b"\x00", b"\x01", b"\x02"]),
        "keys": [["a", "b"], None, []],
        "tags": ["t", None, None],
        "properties": pa.array([[("p", "v"), ("none", None)], None, []], pa.map_(pa.string(), pa.string())),
        "shardingKey": ["s", None, ""],
        "delayLevel": pa.array([3, None, 0], pa.int32()),
        "delayMs": pa.array([None, 7, None], pa.int64()),
        "deliverAt": pa.array([None, None, at], pa.timestamp("us", "UTC")),
        "flag": pa.array([5, None, 0], pa.int32()),
    }
    full, other, last = letters_of(ALL, pa.RecordBatch.from_pydict(row))
    properties = {"p": "v", "__SHARDINGKEY": "s"}
    assert full.message == Message(
        "T", b"\x00", tags="t", keys=["a", "b"], properties=properties, flag=5, delay_level=3
    )
    assert (full.sharding_key, other.sharding_key, last.sharding_key) == ("s", None, None)
    assert (other.message.delay_ms, other.message.properties) == (7, {})
    assert last.message.deliver_at_ms == 1_767_323_045_678


def test_texts_will_do() -> None:
    """A body may be text, keys one text, a time a number, and the topic an option, which counts more than a column."""
    schema = "topic string, body string, keys string, deliverAt bigint"
    columns = {"topic": ["U"], "body": ["grün"], "keys": [" a  b"], "deliverAt": pa.array([99], pa.int64())}
    assert messages(schema, "T", **columns) == [
        Message("T", "grün".encode(), keys=("a", "b"), deliver_at_ms=99),
    ]


def test_key_of_columns_does_not_depend_on_the_order_of_rows() -> None:
    """Columns that are not written may make it, and values that hold the mark between them are told apart."""
    columns = SinkColumns.find(table("body string, orderId bigint, part string"), "T", ["orderId", "PART"])

    def keys_of(prefix: str, *rows: tuple[str, int, str | None]) -> dict[bytes, str]:
        bodies, ids, parts = map(list, zip(*rows, strict=True))
        batch = pa.RecordBatch.from_pydict({"body": bodies, "orderId": ids, "part": parts})
        converter = RowConverter(columns, "T", "KEY", prefix).of(batch)
        return {letter.message.body: letter.message.properties["KEY"] for letter in converter}

    one, other = ("x", 1, "a/b"), ("y", 2, "ü")
    assert keys_of("run/0/", one, other) == keys_of("run/1/", other, one) == {b"x": "1/a%2Fb", b"y": "2/%C3%BC"}
    with pytest.raises(ConfigError, match="row 0 of its task has no PART, of which its key is made"):
        keys_of("", ("x", 1, None))


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("orderID2", "there is no column orderID2 to make keys of, but body, tags, keys"),
        ("keys", "keys cannot be made of column keys of type array<string>"),
    ],
)
def test_key_column_that_cannot_be_used_is_named(key: str, sentence: str) -> None:
    """Before the first row is sent."""
    with pytest.raises(ConfigError, match=sentence):
        SinkColumns.find(table("body string, tags string, keys array<string>"), "T", [key])


def test_row_has_the_same_key_each_time() -> None:
    """The key is that of the task and the number of the row, over several batches; it replaces one that was there."""
    columns = SinkColumns.find(table("body string, properties map<string,string>"), "T")
    old = pa.array([[("KEY", "old")]] * 2, pa.map_(pa.string(), pa.string()))
    converter = RowConverter(columns, "T", "KEY", "run/4/")
    batch = pa.RecordBatch.from_pydict({"body": ["x", "y"], "properties": old})
    keys = [letter.message.properties["KEY"] for _ in range(2) for letter in converter.of(batch)]
    assert keys == ["run/4/0", "run/4/1", "run/4/2", "run/4/3"]


def test_what_was_read_can_be_written() -> None:
    """Columns of the source that the sink does not have are known, and properties that brokers set do not travel."""
    schema = table("brokerName string, topic string, queueId int, msgId string, body binary, state string")
    assert SinkColumns.find(schema, None).places == {"topic": 1, "body": 4}
    stored = [("TAGS", "t"), ("KEYS", "k"), ("UNIQ_KEY", "u"), ("DELAY", "3"), ("PGROUP", "g"), ("mine", "m")]
    column = pa.array([[*stored, ("__SHARDINGKEY", "s")]], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_pydict({"body": ["x"], "properties": column})
    (letter,) = letters_of("body string, properties map<string,string>", batch, "T")
    assert letter.message.properties == {"UNIQ_KEY": "u", "mine": "m", "__SHARDINGKEY": "s"}
    assert letter.sharding_key == "s"


def test_every_column_of_the_source_is_known() -> None:
    """None of the schema that is read is called unknown."""
    names = [name for name in SCHEMA.names if name not in ("keys", "properties", "flag", "bornTimestamp")]
    ddl = ", ".join(f"{name} string" for name in names)
    assert SinkColumns.find(table(ddl), None).places.keys() == {"topic", "tags", "body"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("topic string, value binary", "the rocketmq sink has no column value; did you mean"),
        ("topic string, bodi binary", "the rocketmq sink has no column bodi; did you mean body?"),
        ("topic string, tags string", "the sink needs a column body of type binary or string"),
        ("body binary", "the sink needs a column topic, or"),
        ("topic string, body int", "column body is of type int, not binary or string"),
        ("topic int, body string", "column topic is of type int, not string"),
        (
            "topic string, body string, keys array<int>",
            "column keys is of type array<int>, not array<string> or string",
        ),
        ("topic string, body string, properties struct<a:string>", "column properties is of type struct<a:string>"),
        ("topic string, body string, deliverAt string", "column deliverAt is of type string, not timestamp or bigint"),
        ("topic string, body string, delayLevel double", "column delayLevel is of type double, not int"),
        ("topic string, body string, BODY string", "column body is there twice"),
    ],
)
def test_table_that_does_not_fit_is_refused(schema: str, text: str) -> None:
    """One sentence names the column."""
    with pytest.raises(ConfigError, match=text.replace("?", r"\?")):
        SinkColumns.find(table(schema), None)


@pytest.mark.parametrize(("topic", "body", "name"), [(None, "x", "topic"), ("T", None, "body")])
def test_row_without_topic_or_body_is_named(topic: str | None, body: str | None, name: str) -> None:
    """The number of the row in its task is in the error."""
    batch = pa.RecordBatch.from_pydict({"topic": pa.array(["T", topic]), "body": pa.array(["x", body])})
    with pytest.raises(ConfigError, match=f"row 1 of its task has no {name}: the column is null"):
        letters_of("topic string, body string", batch)


def test_numbers_of_any_width_will_do() -> None:
    """Of flags and delays; nothing and 0 are the same."""
    schema = "body string, flag bigint, delayLevel bigint, delayMs int"
    columns = {"body": ["x", "y"], "flag": [7, None], "delayLevel": [None, None], "delayMs": [5, None]}
    assert messages(schema, "T", **columns) == [Message("T", b"x", flag=7, delay_ms=5), Message("T", b"y")]


def test_empty_keys_are_none() -> None:
    """Those of an array are taken one by one, those of a text between blanks."""
    keys = pa.array([["a", None, "", "b c"], None], pa.list_(pa.string()))
    listed = messages("body string, keys array<string>", "T", body=["x", "y"], keys=keys)
    assert [list(message.keys) for message in listed] == [["a", "b c"], []]
    texts = messages("body string, keys string", "T", body=["x", "y"], keys=pa.array([" a ", None], pa.string()))
    assert [list(message.keys) for message in texts] == [["a"], []]


def test_rows_are_numbered_over_batches() -> None:
    """In their messages, in their keys and in errors."""
    columns = SinkColumns.find(table("body string, id bigint"), "T", ["id"])
    converter = RowConverter(columns, "T", "KEY", "")
    first = converter.of(pa.RecordBatch.from_pydict({"body": ["x", "y"], "id": [5, 6]}))
    second = converter.of(pa.RecordBatch.from_pydict({"body": ["z"], "id": [7]}))
    assert [letter.number for letter in (*first, *second)] == [0, 1, 2]
    assert [letter.message.properties["KEY"] for letter in (*first, *second)] == ["5", "6", "7"]
    with pytest.raises(ConfigError, match="row 4 of its task has no id, of which its key is made") as caught:
        converter.of(pa.RecordBatch.from_pydict({"body": ["u", "v"], "id": pa.array([8, None], pa.int64())}))
    assert caught.value.key == "id"


def test_columns_of_keys_may_be_of_any_name() -> None:
    """One that the sink writes is written as well; others must be known."""
    assert SinkColumns.find(table("body string, x int"), "T", ["X"]) == SinkColumns({"body": 0}, {"X": 1})
    assert SinkColumns.find(table("body string, tags string"), "T", ["tags"]) == SinkColumns(
        {"body": 0, "tags": 1}, {"tags": 1}
    )
    with pytest.raises(ConfigError, match="no column x") as caught:
        SinkColumns.find(table("body string, y int, x int"), "T", ["y"])
    assert caught.value.key == "x"


def test_columns_are_found_in_any_case() -> None:
    """Under the sink's own names; a topic may come from the option and the column."""
    assert SinkColumns.find(table("Topic string, BODY binary, ShardingKEY string"), "T").places == {
        "topic": 0,
        "body": 1,
        "shardingKey": 2,
    }
    both = messages("topic string, body string", "T", topic=["U"], body=["x"])
    assert both == [Message("T", b"x")]
