"""Filters and limits as a reader takes them, and what a session is asked and told; without Spark's Java process."""

import datetime
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rocketlet.common.errors import ConfigError
from rocketlet.export.columns.schema import SCHEMA
from rocketlet.export.plan.selection import Selection
from rocketlet.spark.options.filter_pushdown import (
    LimitReader,
    keeps_plans_apart,
    parse_pushing,
    push_filters,
    switch_on,
    warn_of_whole_reading,
)
from rocketlet.spark.options.option_values import OptionValues

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
KNOWN = ("topics", "subscribe", "subscribePattern", "columns", "pushFilters")


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (EqualTo(("topic",), "A"), "topic = A"),
        (In(("topic",), ("A", "B")), "topic in (A, B)"),
        (In(("queueId",), (1, 0)), "queueId in (1, 0)"),
        (EqualTo(("queueOffset",), 7), "queueOffset = 7"),
        (GreaterThan(("queueOffset",), 7), "queueOffset > 7"),
        (GreaterThanOrEqual(("queueOffset",), 7), "queueOffset >= 7"),
        (LessThan(("storeTimestamp",), NOON), "storeTimestamp < 2026-01-02 12:00:00+00:00"),
        (LessThanOrEqual(("queueOffset",), 7), "queueOffset <= 7"),
    ],
)
def test_filters_that_are_taken_are_told(one: Filter, text: str) -> None:
    """As reports show them."""
    assert push_filters(Selection(), [one])[1:] == ([], [text])


@pytest.mark.parametrize("name", SCHEMA.names)
def test_what_is_never_null_needs_no_look(name: str) -> None:
    """Of columns that may be null, Spark looks itself; as of those that are not there, and of parts of columns."""
    one = IsNotNull((name,))
    assert push_filters(Selection(), [one]) == (Selection(), [one] if SCHEMA.field(name).nullable else [], [])
    for other in (IsNotNull((f"{name}2",)), IsNotNull((name, "x"))):
        assert push_filters(Selection(), [other])[1] == [other]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("queueId",), "1"),
        EqualTo(("queueId",), True),
        In(("queueId",), (1, "2")),
        EqualTo(("topic",), 1),
        EqualTo(("tags",), None),
        GreaterThan(("queueOffset",), True),
        GreaterThan(("queueOffset",), "7"),
        GreaterThan(("queueOffset", "x"), 7),
        GreaterThan(("storeTimestamp",), 7),
        GreaterThan(("bornTimestamp",), NOON),
        LessThan(("logOffset",), 7),
    ],
)
def test_filters_on_other_values_are_left_to_spark(one: Filter) -> None:
    """Who compares a number with a text has Spark say what that means."""
    assert push_filters(Selection(), [one]) == (Selection(), [one], [])


class Batches:
    """Reads batches of so many rows, and notes what was asked of it."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self.given: list[int] = []
        self.is_closed = False

    def partitions(self) -> list[InputPartition]:
        """Return one."""
        return [InputPartition("one")]

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 # Spark's name
        """Leave the last of them to Spark."""
        return filters[-1:]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        assert partition.value == "one"
        try:
            for size in self._sizes:
                self.given.append(size)
                yield pa.RecordBatch.from_pydict({"x": list(range(size))})
        finally:
            self.is_closed = True


@pytest.mark.parametrize(
    ("limit", "sizes", "asked"),
    [
        (None, [2, 3, 4], [2, 3, 4]),
        (1, [1], [2]),
        (2, [2], [2]),
        (4, [2, 2], [2, 3]),
        (5, [2, 3], [2, 3]),
        (6, [2, 3, 1], [2, 3, 4]),
        (9, [2, 3, 4], [2, 3, 4]),
        (10, [2, 3, 4], [2, 3, 4]),
    ],
)
def test_partition_ends_when_it_has_enough(limit: int | None, sizes: list[int], asked: list[int]) -> None:
    """No batch is read that Spark does not want, and the reading is closed."""
    inner = Batches(2, 3, 4)
    reader = LimitReader(inner)
    if limit is not None:
        assert reader.pushLimit(limit) is True
    (partition,) = reader.partitions()
    batches = list(reader.read(partition))
    assert [batch.num_rows for batch in batches] == sizes
    assert [batch.column("x").to_pylist() for batch in batches] == [list(range(size)) for size in sizes]
    assert (inner.given, inner.is_closed) == (asked, True)
    filters: list[Filter] = [EqualTo(("topic",), "A"), EqualTo(("body",), b"x")]
    assert list(reader.pushFilters(filters)) == filters[1:]


class Settings:
    """The settings of a session."""

    def __init__(self, **found: str) -> None:
        self.found = found

    def get(self, key: str, default: str) -> str:
        """Return a setting."""
        return self.found.get(key, default)

    def set(self, key: str, value: str) -> None:
        """Set it."""
        self.found[key] = value


@pytest.mark.parametrize(
    ("found", "is_on", "left"),
    [({}, True, {"k": "true"}), ({"k": "true"}, True, {"k": "true"}), ({"k": "false"}, False, {"k": "false"})],
)
def test_setting_is_switched_on_unless_its_user_has_set_it(
    found: Mapping[str, str], is_on: bool, left: Mapping[str, str]
) -> None:
    """And whether it is on is told."""
    session: Any = SimpleNamespace(conf=Settings(**found))
    assert switch_on(session, "k") is is_on
    assert session.conf.found == left


def session_with(*methods: str, fails: bool = False) -> Any:
    """Return a session whose class of Python sources has these methods."""

    def find(name: str) -> object:
        if fails:
            raise Py4JError(name)
        named = [SimpleNamespace(getName=lambda each=each: each) for each in methods]
        return SimpleNamespace(getMethods=lambda: named)

    java = SimpleNamespace(lang=SimpleNamespace(Class=SimpleNamespace(forName=find)))
    return SimpleNamespace(_jvm=SimpleNamespace(java=java))


@pytest.mark.parametrize(
    ("session", "is_apart"),
    [
        (session_with("getTable"), True),
        (session_with("getTable", "setReadInfo", "other"), False),
        (session_with(fails=True), False),
        (SimpleNamespace(_jvm=None), False),
        (SimpleNamespace(), False),
    ],
    ids=["apart", "shared", "other class", "no process", "client"],
)
def test_plans_are_apart_where_sources_keep_none(session: Any, is_apart: bool) -> None:
    """A Spark of which nobody knows is taken for one that shares them."""
    assert keeps_plans_apart(session) is is_apart


@pytest.mark.parametrize(
    ("options", "log_bytes", "missing"),
    [
        ({}, 7, "all topics and all columns of 7 bytes.*give options topics and columns to"),
        ({"columns": "tags"}, 7, "all topics of 7 bytes.*give options topics to"),
        ({"subscribe": "T"}, 7, "all columns of 7 bytes.*give options columns to"),
        ({"subscribePattern": "T"}, 1, "all columns of 1 bytes"),
        ({"subscribePattern": "T", "columns": "tags"}, 7, None),
        ({}, 0, None),
        ({"pushFilters": "true"}, 7, None),
        ({"pushFilters": "false"}, 7, "all topics and all columns"),
    ],
)
def test_reading_of_everything_is_told(
    caplog: pytest.LogCaptureFixture, options: dict[str, str], log_bytes: int, missing: str | None
) -> None:
    """With the options that would leave out something, unless filters do, or nothing is there."""
    given = OptionValues(options, KNOWN, "the source")
    with caplog.at_level(logging.WARNING):
        warn_of_whole_reading(given, log_bytes)
    assert len(caplog.messages) == (missing is not None)
    assert caplog.messages == [] or caplog.records[0].levelname == "WARNING"
    assert missing is None or re.search(missing, caplog.text)


def test_pushing_is_a_wish() -> None:
    """And is one or the other."""
    values = [parse_pushing(OptionValues(each, KNOWN, "the source")) for each in ({}, {"pushFilters": "true"})]
    assert values == [False, True]
    with pytest.raises(ConfigError, match="pushFilters"):
        parse_pushing(OptionValues({"pushFilters": "perhaps"}, KNOWN, "the source"))
