import importlib.util
import logging
import pathlib
import pkgutil
import sys

import pytest
from pushing import fill
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from stores import StoreDirectory

from rocketlet.export.reportparts import load_report
from rocketlet.spark import register
from rocketlet.spark.filters import PUSH_KEY
from rocketlet.spark.optionvalues import Given
from rocketlet.spark.pushing import keeps_plans_apart, parse_pushing

SOURCES = pathlib.Path(__file__).parents[2] / "src"
WANTED = (
    "topic = 'Orders' and queueId in (0, 1) and queueOffset >= 3 and storeTimestamp > timestamp'2020-01-01' "
    "and tags = 'Aa' and size(keys) = 2"
)


def test_rows_are_the_same_whether_spark_pushes_filters_or_not(
    spark: SparkSession, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Registering turns pushing on, and the report shows what was pushed; who turns it off is warned."""
    assert spark.conf.get(PUSH_KEY) == "true"
    directory = StoreDirectory(tmp_path / "store", segment_bytes=65_536)
    fill(directory)
    report = tmp_path / "report"
    reader = spark.read.format("rocketmq").options(
        pushFilters="true", columns="topic,queueId,queueOffset,storeTimestamp,tags,keys"
    )
    reader = reader.option("reportPath", str(report))
    pushed = reader.load(str(directory.root)).where(WANTED).collect()
    (tally,) = load_report(str(report)).stores
    assert len(tally.pushed) == 6
    assert not tally.faults()
    assert tally.records == tally.messages < 60
    try:
        spark.conf.set(PUSH_KEY, "false")
        with caplog.at_level(logging.WARNING):
            register(spark)
        assert f"{PUSH_KEY} is false" in caplog.text
        assert spark.conf.get(PUSH_KEY) == "false"
        assert sorted(reader.load(str(directory.root)).where(WANTED).collect()) == sorted(pushed)
    finally:
        spark.conf.set(PUSH_KEY, "true")
    (tally,) = load_report(str(report)).stores
    assert (tally.pushed, tally.records, len(pushed)) == ([], 160, 22)


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


def test_filters_are_taken_where_it_is_safe_or_asked_for() -> None:
    """Up to 4.3, Spark gives all scans of one load the plan that was made last."""
    versions = ("4.2.0", "4.3.0", "5.0.0", "5.1.0.dev1", "10.0.0")
    assert [keeps_plans_apart(version) for version in versions] == [False, False, True, True, True]
    assert parse_pushing(Given({"pushfilters": "true"}, ["pushFilters"], "the source"))
    assert not parse_pushing(Given({"pushFilters": "false"}, ["pushFilters"], "the source"))
