"""Tables and streams written to a broker by Spark."""

import json
import pathlib
import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from rocketlet.testing.broker_thread import RocketmqBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "topic string, body binary, keys array<string>, tags string, properties map<string,string>, shardingKey string, "
    "delayLevel int, flag int, queueId int"
)


def write(table: "DataFrame", broker: RocketmqBroker, **options: str) -> None:
    """Write a table."""
    options = {"nameserver": broker.nameserver, **options}
    table.write.format("rocketmq").options(**options).mode("append").save()


def cause_of(error: BaseException) -> str:
    """Return the line of the Python error in the text of one of Spark's."""
    found = re.findall(r"rocketlet\.common\.errors\.\w+: (.*)", str(error))
    assert found, str(error)
    return found[-1]


def test_every_column_arrives(spark: "SparkSession", rocketmq_broker: RocketmqBroker) -> None:
    """Messages have body, keys, tags, properties and flag of their rows; delayed ones wait, a key has one queue."""
    one, other = rocketmq_broker.topic(), rocketmq_broker.topic()
    rows: list[tuple[Any, ...]] = [
        (one, b"\x00full", ["a", "b"], "tag", {"p": "grün"}, None, None, 7, 99),
        (one, b"bare", None, None, None, None, None, None, None),
        (one, b"late", None, None, None, None, 18, None, None),
        *((other, b"%04d" % number, None, None, None, "the key", None, None, None) for number in range(300)),
    ]
    table = spark.createDataFrame(rows, COLUMNS)  # pyright: ignore[reportUnknownMemberType] # its types are partial
    write(table.coalesce(1), rocketmq_broker)
    found = {message.body: message for message in rocketmq_broker.messages(one)}
    assert found.keys() == {b"\x00full", b"bare"}
    full, bare = found[b"\x00full"], found[b"bare"]
    assert (full.keys, full.tags, full.flag, full.properties["p"]) == (("a", "b"), "tag", 7, "grün")
    assert (bare.keys, bare.tags, bare.flag) == ((), None, 0)
    waiting = rocketmq_broker.messages("SCHEDULE_TOPIC_XXXX")
    assert [message.properties["REAL_TOPIC"] for message in waiting if message.body == b"late"] == [one]
    ordered = rocketmq_broker.messages(other)
    assert [message.body for message in ordered] == [b"%04d" % number for number in range(300)]
    assert {message.queue for message in ordered} == {ordered[0].queue}
    assert ordered[0].properties["__SHARDINGKEY"] == "the key"


def test_each_row_is_there_once_with_a_key_of_its_own(spark: "SparkSession", rocketmq_broker: RocketmqBroker) -> None:
    """Rows of several tasks are all stored, and their keys name run, partition and row; a second write repeats them."""
    topic = rocketmq_broker.topic()
    table = spark.range(0, 5000, 1, 3).selectExpr("cast(id as string) body", "cast(id as string) keys")
    write(table, rocketmq_broker, topic=topic, runId="run-7", idempotenceProperty="ROW", inFlight="4")
    stored = rocketmq_broker.messages(topic)
    assert Counter(message.body for message in stored) == Counter(b"%d" % number for number in range(5000))
    keys = {message.body: message.properties["ROW"] for message in stored}
    assert len(set(keys.values())) == 5000
    assert {key.rpartition("/")[0] for key in keys.values()} == {"run-7/0", "run-7/1", "run-7/2"}

    write(table, rocketmq_broker, topic=topic, runId="run-7", idempotenceProperty="ROW", batchMessages="1")
    again = rocketmq_broker.messages(topic)
    assert len(again) == 10_000
    assert {message.body: message.properties["ROW"] for message in again} == keys


def test_table_of_a_store_can_be_sent_to_another_topic(spark: "SparkSession", rocketmq_broker: RocketmqBroker) -> None:
    """What was read from files is written as it is: body, keys, tags, flag and properties of the application stay."""
    one, other = rocketmq_broker.topic(), rocketmq_broker.topic()
    columns = ["string(id) body", "array('a', 'b') keys", "'tag' tags", "map('p', 'grün') properties", "7 flag"]
    write(spark.range(20).selectExpr(*columns), rocketmq_broker, topic=one, idempotenceProperty="")
    table = spark.read.format("rocketmq").option("topics", one).load(str(rocketmq_broker.store))
    write(table, rocketmq_broker, topic=other)
    before, after = rocketmq_broker.messages(one), rocketmq_broker.messages(other)
    assert sorted(message.body for message in after) == sorted(message.body for message in before)
    assert {(each.keys, each.tags, each.flag, each.properties["p"]) for each in after} == {
        (("a", "b"), "tag", 7, "grün"),
    }
    assert {each.message_id for each in after} == {each.message_id for each in before}
    assert "IDEMPOTENCE_KEY" not in before[0].properties
    assert "IDEMPOTENCE_KEY" in after[0].properties


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["id body"], {"topic": "T"}, "column body is of type bigint, not binary or string"),
        (["string(id) body"], {"topic": "T", "nameserver": "127.0.0.1:1"}, "no name server at 127.0.0.1:1 answers"),
    ],
    ids=["schema", "nobody there"],
)
def test_mistake_shows_before_the_first_task(
    spark: "SparkSession", rocketmq_broker: RocketmqBroker, columns: list[str], options: dict[str, str], text: str
) -> None:
    """One sentence says what is wrong, and no job was started."""
    table = spark.range(1).selectExpr(*columns)
    before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(Exception, match="rocketlet") as error:
        write(table, rocketmq_broker, **options)
    assert cause_of(error.value).startswith(text)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == before


def test_overwriting_is_refused(spark: "SparkSession", rocketmq_broker: RocketmqBroker) -> None:
    """A cluster takes nothing back."""
    table = spark.range(1).selectExpr("string(id) body")
    options = {"nameserver": rocketmq_broker.nameserver, "topic": "T"}
    with pytest.raises(Exception, match="rocketlet") as error:
        table.write.format("rocketmq").options(**options).mode("overwrite").save()
    assert cause_of(error.value) == 'the rocketmq sink cannot overwrite; use mode("append")'


def test_row_that_nobody_can_send_fails_its_task(spark: "SparkSession", rocketmq_broker: RocketmqBroker) -> None:
    """The error names partition and row."""
    table = spark.range(5).selectExpr("if(id = 3, '', 'x') body").coalesce(1)
    with pytest.raises(Exception, match="rocketlet") as error:
        write(table, rocketmq_broker, topic=rocketmq_broker.topic())
    assert cause_of(error.value) == "task of partition 0: message 3 cannot be sent: body is empty"


def test_stream_goes_on_from_its_checkpoint(
    spark: "SparkSession", rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path
) -> None:
    """Each row is sent once; a batch whose end was not noted is sent again, with the keys that it had."""
    topic, source, checkpoint = rocketmq_broker.topic(), tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def run(number: int | None) -> Counter[bytes]:
        if number is not None:
            lines = [json.dumps({"body": f"{number}-{row}"}) for row in range(50)]
            (source / f"{number}.json").write_text("\n".join(lines))
        stream = spark.readStream.schema("body string").json(str(source))
        query = (
            stream.writeStream.format("rocketmq")
            .option("nameserver", rocketmq_broker.nameserver)
            .option("topic", topic)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return Counter(message.body for message in rocketmq_broker.messages(topic))

    assert run(0) == Counter(b"0-%d" % row for row in range(50))
    assert run(1) == Counter(b"%d-%d" % (number, row) for number in (0, 1) for row in range(50))
    keys = {message.body: message.properties["IDEMPOTENCE_KEY"] for message in rocketmq_broker.messages(topic)}
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    assert set(keys.values()) == {f"{query_id}/{batch}/0/{row}" for batch in (0, 1) for row in range(50)}

    for path in (checkpoint / "commits").glob("*1*"):
        path.unlink()
    doubled = run(None)
    assert {body for body, count in doubled.items() if count == 2} == {b"1-%d" % row for row in range(50)}
    again = {message.body: message.properties["IDEMPOTENCE_KEY"] for message in rocketmq_broker.messages(topic)}
    assert again == keys
    shutil.rmtree(checkpoint)
