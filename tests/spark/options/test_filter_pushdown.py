import datetime
import importlib.util
import logging
import pathlib
import pickle
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from pushing import fill
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
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
from pyspark.sql.types import StructType
from stores import StoreDirectory

from rocketlet.export.columns.schema import FIRST_MS, LAST_MS, SCHEMA
from rocketlet.export.plan.selection import Selection
from rocketlet.export.report.report import load_report
from rocketlet.spark import register, source
from rocketlet.spark.hybrid.store_reader import StoreReader
from rocketlet.spark.options.filter_pushdown import LIMIT_KEY, PUSH_KEY, keeps_plans_apart, push_filters
from rocketlet.spark.options.store_options import StoreOptions
from rocketlet.spark.source import LimitingDataSource, PushingDataSource, RocketMQDataSource

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


SOURCES = pathlib.Path(__file__).parents[3] / "spark" / "toplevel"


WANTED = (
    "topic = 'Orders' and queueId in (0, 1) and queueOffset >= 3 and storeTimestamp > timestamp'2020-01-01' "
    "and tags = 'Aa' and size(keys) = 2"
)


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """Return a session that hands filters to Python sources, as its user has asked."""
    spark.conf.set(PUSH_KEY, "true")
    yield spark
    spark.conf.unset(PUSH_KEY)


def test_rows_are_the_same_whether_spark_pushes_filters_or_not(pushing: SparkSession, tmp_path: pathlib.Path) -> None:
    """The report shows what was pushed; with pushing off in the session, option ``pushFilters`` does no harm."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=65_536)
    fill(directory)
    report = tmp_path / "report"
    reader = pushing.read.format("rocketmq").options(
        pushFilters="true", columns="topic,queueId,queueOffset,storeTimestamp,tags,keys"
    )
    reader = reader.option("reportPath", str(report))
    pushed = reader.load(str(directory.root)).where(WANTED).collect()
    (counters,) = load_report(str(report)).stores
    assert len(counters.pushed) == 6
    assert not counters.faults()
    assert counters.records == counters.messages < 60
    pushing.conf.set(PUSH_KEY, "false")
    assert sorted(reader.load(str(directory.root)).where(WANTED).collect()) == sorted(pushed)
    (counters,) = load_report(str(report)).stores
    assert (counters.pushed, counters.records, len(pushed)) == ([], 160, 22)


def test_registering_changes_no_setting_that_it_need_not(spark: SparkSession) -> None:
    """Where all scans of a load share one plan, filters are not wanted, and Spark's setting stays as it was."""
    before = spark.conf.get(PUSH_KEY)
    assert not keeps_plans_apart(spark)
    register(spark)
    assert spark.conf.get(PUSH_KEY) == before == "false"


def note_registered(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[type[DataSource]]:
    """Have this Spark taken for one that keeps plans apart, and return where what is registered is noted."""
    registered: list[type[DataSource]] = []

    def is_apart(_: SparkSession) -> bool:
        return True

    def note(_: object, each: type[DataSource]) -> None:
        registered.append(each)

    monkeypatch.setattr(source, "keeps_plans_apart", is_apart)
    monkeypatch.setattr(type(spark.dataSource), "register", note)
    return registered


def test_registering_switches_pushing_on_where_plans_are_kept_apart(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What Spark's class can do decides; who has switched pushing off keeps that, and is warned."""
    assert keeps_plans_apart(spark, "java.lang.String")
    assert not keeps_plans_apart(spark, "no.such.Class")
    registered = note_registered(spark, monkeypatch)
    try:
        register(spark)
        assert spark.conf.get(PUSH_KEY) == "true"
        spark.conf.set(PUSH_KEY, "false")
        with caplog.at_level(logging.WARNING):
            register(spark)
        assert f"{PUSH_KEY} is false" in caplog.text
        assert spark.conf.get(PUSH_KEY) == "false"
    finally:
        spark.conf.unset(PUSH_KEY)
    assert registered == [PushingDataSource, PushingDataSource]


def test_registering_switches_limits_on_where_spark_has_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 5 refuses a reader that takes limits while they are off, so who has switched them off gets another one."""
    registered = note_registered(spark, monkeypatch)
    monkeypatch.setattr(DataSourceReader, "pushLimit", DataSourceReader.pushFilters, raising=False)
    try:
        register(spark)
        assert spark.conf.get(LIMIT_KEY) == "true"
        spark.conf.set(LIMIT_KEY, "false")
        register(spark)
        assert spark.conf.get(LIMIT_KEY) == "false"
    finally:
        spark.conf.unset(PUSH_KEY)
        spark.conf.unset(LIMIT_KEY)
    assert registered == [LimitingDataSource, PushingDataSource]


def test_one_load_keeps_its_end(pushing: SparkSession, tmp_path: pathlib.Path) -> None:
    """However often Spark plans it, and with whatever filters, while a broker goes on writing."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=65_536)
    fill(directory)
    messages = pushing.read.format("rocketmq").options(topics="Orders", columns="queueId").load(str(directory.root))
    before = messages.where("queueId >= 0").count()
    fill(directory)
    assert messages.where("queueId >= 0").count() == messages.count() == before
    again = pushing.read.format("rocketmq").options(topics="Orders", columns="queueId").load(str(directory.root))
    assert again.where("queueId >= 0").count() == 2 * before


def test_log_that_grew_is_read_to_where_it_ended(tmp_path: pathlib.Path) -> None:
    """Damage that came later does not matter, and the report says where the reading ends."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=65_536)
    fill(directory)
    report = tmp_path / "report"
    found = RocketMQDataSource({"path": str(directory.root), "reportPath": str(report)})
    schema = found.schema()
    before = read_all(found, schema)
    fill(directory, messages=200)
    directory.segment().write_bytes(directory.segment().read_bytes().replace(b"000190", b"damage"))
    found = pickle.loads(pickle.dumps(found))  # noqa: S301 # our own
    assert isinstance(found, RocketMQDataSource)
    assert read_all(found, schema) == before
    (counters,) = load_report(str(report)).stores
    assert counters.end is not None
    assert counters.end.reason == "the log has grown since"


def read_all(found: DataSource, schema: StructType) -> list[int]:
    """Return the log offsets of all rows that a source reads."""
    reader = cast("Any", found.reader(schema))
    return [at for part in reader.partitions() for batch in reader.read(part) for at in batch["logOffset"].to_pylist()]


def test_source_that_takes_limits_takes_filters(tmp_path: pathlib.Path) -> None:
    """Each partition ends after so many rows; where scans share a plan, neither is taken."""
    directory = StoreDirectory(tmp_path / "store")
    fill(directory)
    for kind, count in ((LimitingDataSource, 3), (RocketMQDataSource, 160)):
        found = kind({"path": str(directory.root), "includeSystemTopics": "true"})
        reader = cast("Any", found.reader(found.schema()))
        assert list(reader.pushFilters([EqualTo(("topic",), "Orders")])) == (
            [] if count == 3 else [EqualTo(("topic",), "Orders")]
        )
        assert hasattr(reader, "pushLimit") == (count == 3)
        assert count != 3 or reader.pushLimit(3)
        parts = reader.partitions()
        assert all(sum(batch.num_rows for batch in reader.read(part)) <= count for part in parts)


def test_options_that_would_save_are_named(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where filters cannot be taken, loading says once what is read, and which options leave out something."""
    directory = StoreDirectory(tmp_path / "store")
    fill(directory)
    for options, words in (
        ({}, "all topics and all columns of [0-9]+ bytes.*give options topics and columns"),
        ({"topics": "Orders"}, "all columns of [0-9]+ bytes.*give options columns"),
        ({"topics": "Orders", "columns": "tags"}, None),
        ({"pushFilters": "true"}, None),
    ):
        caplog.clear()
        RocketMQDataSource({"path": str(directory.root), **options}).schema()
        assert len(caplog.messages) == (words is not None)
        assert re.search(words or "", caplog.text)
    PushingDataSource({"path": str(directory.root)}).schema()
    assert len(caplog.messages) == 0


def test_spark_finds_the_source_in_what_is_installed() -> None:
    """As Spark looks for sources: in modules whose names say so, on the path, by the name ``DefaultSource``."""
    assert "pyspark_rocketmq" in {info.name for info in pkgutil.iter_modules([str(SOURCES)])}
    spec = importlib.util.spec_from_file_location("pyspark_rocketmq", SOURCES / "pyspark_rocketmq.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert issubclass(module.DefaultSource, DataSource)
    assert module.DefaultSource.name() == "rocketmq"


def test_search_of_spark_survives_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages that reading needs, the module is there and offers nothing."""
    monkeypatch.setitem(sys.modules, "rocketlet.spark.source", None)
    spec = importlib.util.spec_from_file_location("pyspark_rocketmq", SOURCES / "pyspark_rocketmq.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not hasattr(module, "DefaultSource")


def test_scans_of_one_load_do_not_share_filters(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """What one query, or one branch of a query, filters out is there for the others of the same table."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=65_536)
    fill(directory)
    messages = (
        spark.read.format("rocketmq").options(topics="Orders", columns="queueId,queueOffset").load(str(directory.root))
    )
    first, second = messages.where("queueId = 0"), messages.where("queueId = 1")
    ids = {row.queueId for row in first.union(second).collect()}
    assert ids == {0, 1}
    assert {row.queueId for row in messages.collect()} == {0, 1, 2}
