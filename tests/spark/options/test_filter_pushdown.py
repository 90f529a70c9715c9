import datetime
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rocketlet.export.columns.schema import FIRST_MS, LAST_MS, SCHEMA
from rocketlet.export.plan.selection import Selection
from rocketlet.spark.hybrid.store_reader import StoreReader
from rocketlet.spark.options.filter_pushdown import push_filters
from rocketlet.spark.options.store_options import StoreOptions

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
NOON_MS = 1_767_355_200_000
HALF = datetime.timedelta(microseconds=500)
TOPIC, QUEUE, OFFSET, STORED, TAGS = ("topic",), ("queueId",), ("queueOffset",), ("storeTimestamp",), ("tags",)


@pytest.mark.parametrize(
    ("filters", "selection"),
    [
        ([EqualTo(TOPIC, "A")], Selection(among=frozenset({"A"}))),
        ([In(TOPIC, ("A", "B")), In(TOPIC, ("B", "C"))], Selection(among=frozenset({"B"}))),
        ([In(TOPIC, ("A", None))], Selection(among=frozenset({"A"}))),
        ([EqualTo(TOPIC, "A"), EqualTo(TOPIC, "B")], Selection(among=frozenset())),
        ([In(QUEUE, (0, 1)), EqualTo(QUEUE, 1)], Selection(queue_ids=frozenset({1}))),
        ([EqualTo(TAGS, "a")], Selection(tags=frozenset({"a"}))),
        ([EqualTo(OFFSET, 7)], Selection(from_offset=7, until_offset=8)),
        ([GreaterThan(OFFSET, 7), LessThanOrEqual(OFFSET, 9)], Selection(from_offset=8, until_offset=10)),
        ([GreaterThanOrEqual(OFFSET, 7), GreaterThan(OFFSET, 3)], Selection(from_offset=7)),
        ([LessThan(OFFSET, 7), LessThan(OFFSET, 9)], Selection(until_offset=7)),
        ([GreaterThanOrEqual(STORED, NOON)], Selection(from_ms=NOON_MS, until_ms=LAST_MS + 1)),
        ([GreaterThan(STORED, NOON)], Selection(from_ms=NOON_MS + 1, until_ms=LAST_MS + 1)),
        ([GreaterThan(STORED, NOON + HALF)], Selection(from_ms=NOON_MS + 1, until_ms=LAST_MS + 1)),
        ([LessThan(STORED, NOON)], Selection(from_ms=FIRST_MS, until_ms=NOON_MS)),
        ([LessThan(STORED, NOON + HALF)], Selection(from_ms=FIRST_MS, until_ms=NOON_MS + 1)),
        ([LessThanOrEqual(STORED, NOON)], Selection(from_ms=FIRST_MS, until_ms=NOON_MS + 1)),
        ([EqualTo(STORED, NOON)], Selection(from_ms=NOON_MS, until_ms=NOON_MS + 1)),
        ([EqualTo(STORED, NOON + HALF)], Selection(from_ms=NOON_MS + 1, until_ms=NOON_MS + 1)),
        ([IsNotNull(TOPIC)], Selection()),
    ],
)
def test_filters_narrow_the_selection(filters: Sequence[Filter], selection: Selection) -> None:
    """What a selection can say is taken, and all filters hold together."""
    narrowed, left, texts = push_filters(Selection(), filters)
    assert (narrowed, left) == (selection, [])
    assert len(texts) == sum(not isinstance(one, IsNotNull) for one in filters)


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(TOPIC, "A")),
        StringStartsWith(TOPIC, "A"),
        GreaterThan(QUEUE, 1),
        GreaterThan(TOPIC, "A"),
        EqualTo(("body",), b"x"),
        EqualTo(("keys",), ["k"]),
        EqualTo(("properties", "a"), "b"),
        EqualTo(STORED, datetime.datetime(2026, 1, 2)),  # noqa: DTZ001 # as Spark gives times without a zone
        EqualTo(OFFSET, 1.5),
        IsNotNull(TAGS),
        In(TAGS, (None,)),
    ],
)
def test_other_filters_are_left_to_spark(one: Filter) -> None:
    """What a selection cannot say exactly is handed back, the very object."""
    narrowed, left, texts = push_filters(Selection(), [one])
    assert (narrowed, texts) == (Selection(), [])
    assert left[0] is one


def test_options_and_filters_hold_together() -> None:
    """A filter narrows what options ask for; of two sets of tags Spark compares the second."""
    asked = Selection(frozenset({"A"}), frozenset({"a"}), from_ms=NOON_MS, until_ms=NOON_MS + 1000)
    second = EqualTo(TAGS, "b")
    filters = [EqualTo(TOPIC, "B"), second, LessThan(STORED, NOON + 10 * HALF * 1000)]
    narrowed, left, _ = push_filters(asked, filters)
    assert narrowed == replace(asked, among=frozenset({"B"}), until_ms=NOON_MS + 5000 - 4000)
    assert left == [second]


def test_spark_takes_the_reader_while_pushing_is_off() -> None:
    """Spark, which refuses readers that push filters while that is off, sees one that does not; yet it can push."""
    reader = StoreReader(StoreOptions(("/a",), pushes_filters=True), SCHEMA)
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    one = Not(EqualTo(TOPIC, "A"))
    assert list(reader.pushFilters([EqualTo(TOPIC, "A"), one])) == [one]
