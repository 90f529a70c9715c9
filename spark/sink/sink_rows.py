"""Turns rows into messages: which columns the sink takes, of which types, and what a row becomes.

    column        type                                      meaning
    topic         string                                    not needed with the option of this name, which counts
    body          binary, string                            required; text travels as UTF-8
    keys          array of strings, string                  a string holds keys with blanks between them
    tags          string
    properties    map of strings                            RocketMQ's own among them are left out (``common.replay``)
    shardingKey   string                                    rows with the same go to the same queue, in order
    delayLevel    byte, short, int, long                    a broker's step of delay; 0 is none
    delayMs       byte, short, int, long                    milliseconds to wait
    deliverAt     timestamp; long (epoch milliseconds)      when to deliver
    flag          byte, short, int, long                    the application's number

Rules:

- What the source reads can be written as it is: its other columns are known here, and not used.
- Any other column is an error that names the nearest one, since a misspelt one would be lost; but those of which keys
  are made.
- Without the column ``shardingKey``, the property of that meaning among ``properties`` is one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ...client.producer.bulk_sender import OutboundMessage
from ...common.errors import ConfigError, nearest
from ...common.message import Message, carried, split_keys
from ...common.properties import SHARDING_KEY
from ...export.columns.schema import SCHEMA

BODY: Final = "body"
TOPIC: Final = "topic"
_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_KEY_TYPES: Final = (StringType, *_INTEGERS, DateType, TimestampType, DecimalType, BooleanType)
COLUMNS: Final = {
    TOPIC: "string",
    BODY: "binary or string",
    "keys": "array<string> or string",
    "tags": "string",
    "properties": "map<string,string>",
    "shardingKey": "string",
    "delayLevel": "int",
    "delayMs": "int or bigint",
    "deliverAt": "timestamp or bigint (epoch milliseconds)",
    "flag": "int",
}
# Columns of the source that are not among those of every reading.
_READ_ONLY: Final = frozenset({"brokerName", "realTopic", "realQueueId", "dueTimestamp", "state"})


class SinkRow(NamedTuple):
    """A row as the sink sees it: None for what is null, or no column of the table."""

    topic: str | None
    body: bytes | None
    keys: Sequence[str] | None
    tags: str | None
    properties: Sequence[tuple[str, str | None]] | None
    shardingKey: str | None  # noqa: N815 # the names of the columns
    delayLevel: int | None  # noqa: N815 # as a column
    delayMs: int | None  # noqa: N815 # as a column
    deliverAt: int | None  # noqa: N815 # as a column
    flag: int | None


@dataclass(frozen=True)
class SinkColumns:
    """Where the columns of the sink stand among those of a table, and those of keys by name; travels to the tasks."""

    places: Mapping[str, int]
    keys: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def find(cls, schema: StructType, topic: str | None, key_columns: Sequence[str] = ()) -> "SinkColumns":
        """Return the columns of a table.

        Raises:
            ConfigError: One is missing, unknown, named twice or of a type that cannot be written.
        """
        places: dict[str, int] = {}
        keys = _find_keys(schema, key_columns)
        for number, each in enumerate(schema.fields):
            name = _known_name(each.name, is_key=number in keys.values())
            if name is None:
                continue
            if name in places:
                raise ConfigError(f"column {name} is there twice", key=name)
            _check_type(name, each.dataType)
            places[name] = number
        if BODY not in places:
            raise ConfigError("the sink needs a column body of type binary or string", key=BODY)
        if topic is None and TOPIC not in places:
            raise ConfigError('the sink needs a column topic, or .option("topic", "NAME") for all rows', key=TOPIC)
        return cls(places, keys)


class RowConverter:
    """Makes messages of the rows of one task.

    The idempotence key of a row is made of the values of the key columns, without any of ``key_prefix`` and its number.
    """

    def __init__(self, columns: SinkColumns, topic: str | None, key_property: str | None, key_prefix: str) -> None:
        self._places = columns.places
        self._key_places = columns.keys
        self._topic = topic
        self._key_property = key_property
        self._key_prefix = key_prefix
        self._next_row = 0

    def of(self, batch: pa.RecordBatch) -> list[OutboundMessage]:
        """Return the messages of the next rows.

        Raises:
            ConfigError: A row has no topic or no body.
        """
        columns = [self._values(name, batch) for name in SinkRow._fields]
        keys = self._keys(batch)
        rows = zip(keys, *columns, strict=False)  # missing columns never end
        return [self._outbound(SinkRow(*values), key) for key, *values in rows]

    def _keys(self, batch: pa.RecordBatch) -> list[str]:
        """Return the idempotence key of each row."""
        numbers = range(self._next_row, self._next_row + batch.num_rows)
        if not self._key_places:
            return [f"{self._key_prefix}{number}" for number in numbers]
        columns: list[list[str | None]] = []
        for name, place in self._key_places.items():
            values: list[str | None] = batch.column(place).cast(pa.string()).to_pylist()
            if None in values:
                number = numbers[values.index(None)]
                raise ConfigError(f"row {number} of its task has no {name}, of which its key is made", key=name)
            columns.append([quote(value, safe="") for value in values if value is not None])
        return list(map("/".join, zip(*columns, strict=True)))

    def _values(self, name: str, batch: pa.RecordBatch) -> Iterable[Any]:
        if name == TOPIC and self._topic is not None:
            return repeat(self._topic)
        return _values_of(name, batch.column(self._places[name])) if name in self._places else repeat(None)

    def _outbound(self, row: SinkRow, key: str) -> OutboundMessage:
        number = self._next_row
        self._next_row += 1
        if row.topic is None or row.body is None:
            name = TOPIC if row.topic is None else BODY
            raise ConfigError(f"row {number} of its task has no {name}: the column is null", key=name)
        given = {name: value for name, value in row.properties or () if value is not None}
        properties = carried(given) if given else {}
        sharding_key = row.shardingKey or properties.get(SHARDING_KEY)
        if sharding_key:
            properties[SHARDING_KEY] = sharding_key
        if self._key_property is not None:
            properties[self._key_property] = key
        message = Message(
            row.topic,
            row.body,
            tags=row.tags,
            keys=row.keys or (),
            properties=properties,
            flag=row.flag or 0,
            delay_level=row.delayLevel or 0,
            delay_ms=row.delayMs,
            deliver_at_ms=row.deliverAt,
        )
        return OutboundMessage(message, number, sharding_key or None)


def _values_of(name: str, column: pa.Array) -> Iterable[Any]:
    """Return the values of a column as ``SinkRow`` has them."""
    if name == BODY:
        return column.cast(pa.binary()).to_pylist()
    if name == "deliverAt":
        is_instant = column.type != pa.int64()
        numbers = column.cast(pa.int64()).to_pylist()  # of an instant: microseconds, as all of Spark's are
        return [None if at is None else at // 1000 for at in numbers] if is_instant else numbers
    if name == "keys":
        return [_words(keys) for keys in column.to_pylist()]
    return column.to_pylist()


def _words(keys: Sequence[str | None] | None) -> Sequence[str] | None:
    if keys is None or isinstance(keys, str):
        return split_keys(keys)
    return [key for key in keys if key]


def _find_keys(schema: StructType, names: Sequence[str]) -> dict[str, int]:
    """Return where the columns stand of which keys are made.

    Raises:
        ConfigError: One is missing, or of a type without a text of its own.
    """
    there = {each.name.lower(): number for number, each in enumerate(schema.fields)}
    found: dict[str, int] = {}
    for name in names:
        if name.lower() not in there:
            known = ", ".join(schema.names)
            raise ConfigError(f"there is no column {name} to make keys of, but {known}", key=name)
        found[name] = there[name.lower()]
        kind = schema.fields[found[name]].dataType
        if not isinstance(kind, _KEY_TYPES):
            raise ConfigError(f"keys cannot be made of column {name} of type {kind.simpleString()}", key=name)
    return found


def _known_name(name: str, *, is_key: bool = False) -> str | None:
    """Return the sink's name of a column, or None for one that is not written."""
    own = {known.lower(): known for known in COLUMNS}
    if name.lower() in own:
        return own[name.lower()]
    if is_key or name in SCHEMA.names or name in _READ_ONLY:
        return None
    hint = nearest(name, own.values())
    raise ConfigError(f"the rocketmq sink has no column {name}{hint}", key=name)


def _check_type(name: str, kind: DataType) -> None:
    fits = {
        BODY: isinstance(kind, BinaryType | StringType),
        "keys": isinstance(kind, StringType) or _is_list_of_texts(kind),
        "properties": _is_map_of_texts(kind),
        "deliverAt": isinstance(kind, TimestampType | LongType),
        "delayLevel": isinstance(kind, _INTEGERS),
        "delayMs": isinstance(kind, _INTEGERS),
        "flag": isinstance(kind, _INTEGERS),
    }
    if not fits.get(name, isinstance(kind, StringType)):
        raise ConfigError(f"column {name} is of type {kind.simpleString()}, not {COLUMNS[name]}", key=name)


def _is_list_of_texts(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)


def _is_map_of_texts(kind: DataType) -> bool:
    return isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
