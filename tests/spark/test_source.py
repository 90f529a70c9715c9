import pathlib
from typing import Any, Protocol

import pytest
from javastores import (
    STORES,
    JavaStores,
    Row,
    comparable,
    expected_row,
    is_inner_batch,
    load_truth,
    truth_messages,
)
from logbuilder import LogBuilder, make_place
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from rocketlet.export.columns.schema import FULL_SCHEMA, SCHEMA
from rocketlet.export.plan.read_plan import plan_stores


class Load(Protocol):
    """Loads stores with options."""

    def __call__(self, *stores: pathlib.Path | str, **options: Any) -> DataFrame:
        """Load them."""
        ...


@pytest.fixture
def load(spark: SparkSession) -> Load:
    """Return a function that loads stores with options."""

    def load_stores(*stores: pathlib.Path | str, **options: Any) -> DataFrame:
        paths = [str(store) for store in stores]
        return spark.read.format("rocketmq").options(**options).load(paths if len(paths) > 1 else paths[0])

    return load_stores


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows in a form that can be compared."""
    return comparable(row.asDict() for row in frame.collect())


@pytest.mark.parametrize("name", STORES)
def test_rows_equal_what_a_java_consumer_read(
    name: str, load: Load, java_stores: JavaStores, vectors: pathlib.Path
) -> None:
    """The table of a Java broker's store has every message that a Java consumer read, each field the same."""
    messages = truth_messages(load_truth(vectors, name))
    batches = {message["physicOffset"] for message in messages if is_inner_batch(message)}
    rows = rows_of(load(java_stores[name], includeSystemTopics=True).select(*SCHEMA.names))
    singles = [expected_row(message) for message in messages if not is_inner_batch(message)]
    assert [row for row in rows if row["logOffset"] not in batches] == singles
    assert {row["logOffset"] for row in rows} == {message["physicOffset"] for message in messages}


def test_schema_is_the_one_of_the_export(load: Load, java_stores: JavaStores) -> None:
    """Spark sees the documented columns and types, and hands them back to Arrow unchanged."""
    schema = load(java_stores["plain"]).schema
    assert schema == from_arrow_schema(SCHEMA)
    assert to_arrow_schema(schema, timezone="UTC").equals(SCHEMA)


def test_system_topics_bring_their_columns(load: Load, java_stores: JavaStores) -> None:
    """With system topics there are the columns that say what waits, for what and until when."""
    frame = load(java_stores["delay-retry"], includeSystemTopics=True, messageDelayLevel="1d 2d")
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(FULL_SCHEMA)
    waiting = frame.where("state = 'delayed' and realTopic = 'DelayTopic'")
    days = {row[0] for row in waiting.selectExpr("datediff(dueTimestamp, storeTimestamp)").distinct().collect()}
    assert days == {1, 2}


def test_several_stores_are_one_table(load: Load, java_stores: JavaStores) -> None:
    """A list, and a text with commas, read all stores; there is a partition per file."""
    stores = [java_stores["plain"], java_stores["killed"]]
    frame = load(*stores)
    assert frame.count() == load(",".join(map(str, stores))).count() == 413 + 653
    assert frame.rdd.getNumPartitions() == len(plan_stores(map(str, stores))) == 12


def test_options_select_rows(load: Load, java_stores: JavaStores, vectors: pathlib.Path) -> None:
    """Topics and times narrow the table as they say: from a time on, and before a time."""
    messages = truth_messages(load_truth(vectors, "plain"))
    times = sorted(message["storeTimestamp"] for message in messages)
    start, end = times[100], times[300]
    store = java_stores["plain"]
    assert load(store, topics="OneQueue,BatchTopic").count() == 248
    assert load(store, startingTimestamp=start, endingTimestamp=end).count() == sum(start <= at < end for at in times)


def test_system_topics_are_left_out_unless_asked_for(load: Load, java_stores: JavaStores) -> None:
    """Only with the option there are system, retry and dead-letter topics."""
    store = java_stores["delay-retry"]
    topics = {row.topic for row in load(store).select("topic").distinct().collect()}
    every = {row.topic for row in load(store, includeSystemTopics=True).select("topic").distinct().collect()}
    assert {topic for topic in every - topics if not topic.startswith(("%RETRY%", "%DLQ%"))} == {
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_REVIVE_LOG_GoldenCluster",
        "rmq_sys_wheel_timer",
    }
    assert not any(topic.startswith("%") for topic in topics)


def test_given_schema_picks_columns(spark: SparkSession, java_stores: JavaStores) -> None:
    """A schema reads only its columns, in its order, also with other nullability."""
    reader = spark.read.format("rocketmq").schema("keys array<string>, topic string, properties map<string,string>")
    frame = reader.load(str(java_stores["batchcrc"])).where(sf.array_contains("keys", "ck0"))
    (row,) = frame.collect()
    assert row.__fields__ == ["keys", "topic", "properties"]
    assert (row.topic, row.properties["p"]) == ("CrcTopic", "v0")


def test_sql_reads_a_view(spark: SparkSession, java_stores: JavaStores) -> None:
    """The source works from SQL with its path as an option."""
    spark.sql(f"CREATE TEMPORARY VIEW plain USING rocketmq OPTIONS (path '{java_stores['plain']}')")
    (row,) = spark.sql("SELECT count(*), max(storeTimestamp) FROM plain WHERE tags = 'TagA'").collect()
    assert row[0] == 10
    spark.catalog.dropTempView("plain")


def test_parquet_of_spark_holds_the_rows(
    load: Load, java_stores: JavaStores, tmp_path: pathlib.Path, spark: SparkSession
) -> None:
    """What Spark writes to Parquet and reads again is what the source gave."""
    frame = load(java_stores["killed"])
    frame.write.parquet(str(tmp_path / "out"))
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == rows_of(frame)


def test_store_without_messages_is_an_empty_table(load: Load, log: LogBuilder) -> None:
    """A broker that stored nothing yet gives no rows."""
    log.save()
    assert load(log.root).count() == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "A"}, "the rocketmq source has no option topic; did you mean topics?"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon', neither epoch milliseconds"),
    ],
)
def test_wrong_options_fail_when_loading(
    load: Load, java_stores: JavaStores, options: dict[str, str], sentence: str
) -> None:
    """The error comes from ``load``, before there is a task."""
    with pytest.raises(AnalysisException) as caught:
        load(java_stores["plain"], **options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ("nothing", "it does not exist"),
        ("directory", "it has no directory commitlog"),
        ("empty log", "holds no commit log file"),
    ],
)
def test_missing_store_fails_when_loading(load: Load, tmp_path: pathlib.Path, made: str, sentence: str) -> None:
    """What is no store is said in one sentence by ``load``."""
    make_place(tmp_path / "place", made)
    with pytest.raises(AnalysisException) as caught:
        load(tmp_path / "place")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("topic string, boddy binary", "there is no column boddy; did you mean body?"),
        ("topic string, body string", "column body is of type binary, not string"),
    ],
)
def test_schema_that_does_not_fit_fails_before_the_first_task(
    spark: SparkSession, java_stores: JavaStores, schema: str, sentence: str
) -> None:
    """Unknown columns and other types are refused while planning."""
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("rocketmq").schema(schema).load(str(java_stores["plain"])).count()
    assert sentence in str(caught.value)


def test_wrong_segment_size_fails_before_the_first_task(load: Load, java_stores: JavaStores) -> None:
    """A size key that the files contradict is refused while planning."""
    with pytest.raises(AnalysisException) as caught:
        load(java_stores["plain"], mappedFileSizeCommitLog=1_073_741_824).count()
    assert "has 65536 bytes, mappedFileSizeCommitLog is 1073741824" in str(caught.value)


def test_damage_fails_the_task_with_file_and_position(load: Load, log: LogBuilder) -> None:
    """A body that lost its checksum stops the job; with the check off it is read as it is."""
    for _ in range(3):
        log.add(b"body")
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"body", b"bodY", 1))
    with pytest.raises(PythonException) as caught:
        load(log.root).count()
    assert f"{path} at position 0: the body does not have its checksum" in str(caught.value)
    assert load(log.root, verifyBodyCrc=False).count() == 3


def test_damage_that_planning_meets_fails_before_the_first_task(load: Load, log: LogBuilder) -> None:
    """Sound records behind a bad one at the end of the log fail the job, naming file, position and reason."""
    for _ in range(3):
        log.add(b"body")
    path = log.save() / "commitlog" / f"{0:020d}"
    content = path.read_bytes()
    path.write_bytes(content[: log.offsets[1]] + bytes(8) + content[log.offsets[1] + 8 :])
    with pytest.raises(AnalysisException) as caught:
        load(log.root).count()
    assert f"{path} at position {log.offsets[1]}: nothing was written, but a sound record follows" in str(caught.value)


def test_torn_tail_gives_what_comes_before_it(load: Load, log: LogBuilder) -> None:
    """A last record that was not written whole is no part of the table."""
    for _ in range(3):
        log.add(b"body")
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: log.offsets[2] + 40].ljust(4096, b"\0"))
    assert [row["logOffset"] for row in rows_of(load(log.root))] == log.offsets[:2]
