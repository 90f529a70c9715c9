import pathlib
from collections.abc import Iterator
from typing import Any, cast

import pytest
from pushing import fill
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from stores import StoreDirectory

from rocketlet.spark.options.spark_schemas import keep_options, kept_options, options_of_table, without_options
from rocketlet.spark.source import RocketMQDataSource


@pytest.fixture
def store(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a store in a directory whose name has a blank."""
    directory = StoreDirectory(tmp_path / "a store", segment_bytes=65_536)
    fill(directory)
    return directory.root


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[SparkSession]:
    """Return a session whose catalog has no table ``orders``, before and after."""
    spark.sql("DROP TABLE IF EXISTS orders")
    yield spark
    spark.sql("DROP TABLE IF EXISTS orders")


def test_table_of_the_catalog_reads_a_store(catalog: SparkSession, store: pathlib.Path) -> None:
    """Properties of Spark and of the user are no options; the options count when the table is read; the store stays."""
    catalog.sql(
        f"CREATE TABLE orders USING rocketmq OPTIONS (path '{store}', topics 'Orders') "
        "COMMENT 'orders' TBLPROPERTIES ('team' = 'billing')"
    )
    assert catalog.sql("SELECT DISTINCT topic FROM orders").collect() == [("Orders",)]
    assert catalog.table("orders").where("queueId = 1").count() == 46
    catalog.sql("DROP TABLE orders")
    assert (store / "commitlog").exists()


def test_table_at_a_location_reads_a_store(catalog: SparkSession, store: pathlib.Path) -> None:
    """A location names the store; an option that is none is refused, as everywhere."""
    catalog.sql(f"CREATE TABLE orders USING rocketmq LOCATION '{store}'")
    assert catalog.sql("SELECT count(topic) FROM orders").collect() == [(145,)]
    with pytest.raises(AnalysisException, match="has no option topiks; did you mean topics"):
        catalog.sql(f"CREATE TABLE others USING rocketmq OPTIONS (path '{store}', topiks 'Orders')")


def test_options_travel_with_the_columns(store: pathlib.Path) -> None:
    """Only those of a table that is being created; columns that are given elsewhere bring nothing along."""
    properties = {"owner": "root", "provider": "rocketmq", "Option.topics": "Rare", "path": f"file:{store}", "x": "y"}
    options = {"topics": "Rare", "path": str(store)}
    assert options_of_table(properties) == options
    assert options_of_table({"path": "a", "topics": "b"}) is None
    plain = RocketMQDataSource(options).schema()
    kept = RocketMQDataSource(properties).schema()
    assert kept_options(plain) == {}
    assert kept_options(kept) == options
    assert without_options(kept) == plain
    assert keep_options(plain, options) == kept
    other = cast("Any", RocketMQDataSource({"path": str(store)}).reader(kept))
    assert sum(batch.num_rows for part in other.partitions() for batch in other.read(part)) == 145
