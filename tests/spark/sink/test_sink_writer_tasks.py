"""What a task of the sink does, asked as Spark asks it; Spark itself runs in ``test_sink_writer``."""

import logging
import pathlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from threaded_cluster import ThreadedCluster

from rocketlet.common.errors import ClientError, ConfigError
from rocketlet.spark.sink.sink_writer import BatchSink, SinkWriter, StreamSink, WriteResult, plan_batch, plan_stream
from rocketlet.testing.broker_thread import RocketmqBroker

SCHEMA = StructType([StructField("body", BinaryType())])
TOPIC_SCHEMA = StructType([StructField("topic", StringType()), StructField("body", BinaryType())])
NOBODY = "127.0.0.1:1"


class Task:
    """What Spark tells a task of itself."""

    def __init__(self, partition: int, **properties: str) -> None:
        self._partition = partition
        self._properties = properties

    def partitionId(self) -> int:  # noqa: N802 # Spark's name
        """Return the number of the partition."""
        return self._partition

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 # Spark's name
        """Return a property of the job."""
        return self._properties.get(key)


def run_as(monkeypatch: pytest.MonkeyPatch, task: Task | None) -> None:
    """Have the code run in a task."""
    monkeypatch.setattr(TaskContext, "get", staticmethod(lambda: task))


def rows(*bodies: bytes | None) -> Iterator[pa.RecordBatch]:
    """Yield rows, one in each batch."""
    for body in bodies:
        yield pa.RecordBatch.from_pydict({"body": pa.array([body], pa.binary())})


def keys_of(broker: RocketmqBroker, topic: str) -> dict[bytes, str]:
    """Return the key of each message."""
    return {message.body: message.properties["IDEMPOTENCE_KEY"] for message in broker.messages(topic)}


@pytest.mark.parametrize(
    ("task", "prefix"),
    [
        (None, "run-7/0"),
        (Task(3), "run-7/3"),
        (Task(3, **{"streaming.sql.batchId": "5"}), "run-7/3"),
        (Task(2, **{"sql.streaming.queryId": "query", "streaming.sql.batchId": "5"}), "query/5/2"),
    ],
    ids=["no task", "task", "batch of no query", "query"],
)
def test_keys_name_run_partition_and_row(
    monkeypatch: pytest.MonkeyPatch, rocketmq_broker: RocketmqBroker, task: Task | None, prefix: str
) -> None:
    """Of a stream, query and batch instead of the run; rows count over all batches of the task."""
    run_as(monkeypatch, task)
    topic = rocketmq_broker.topic()
    options = {"nameserver": rocketmq_broker.nameserver, "topic": topic, "runId": "run-7"}
    sink = plan_batch(options, SCHEMA, overwrites=False)
    assert sink.write(rows(b"a", b"b", b"c")) == WriteResult(3, 0)
    assert keys_of(rocketmq_broker, topic) == {b"a": f"{prefix}/0", b"b": f"{prefix}/1", b"c": f"{prefix}/2"}
    assert sink.write(rows()) == WriteResult(0, 0)


def test_rate_holds_for_each_task(monkeypatch: pytest.MonkeyPatch, rocketmq_broker: RocketmqBroker) -> None:
    """Where one is wished; all rows are sent."""
    limits: list[float] = []

    def note(rate: float, _: Any) -> None:
        limits.append(rate)

    run_as(monkeypatch, None)
    monkeypatch.setattr("rocketlet.spark.sink.sink_writer.RateLimiter", note)
    options = {"nameserver": rocketmq_broker.nameserver, "topic": rocketmq_broker.topic()}
    assert plan_batch(options, SCHEMA, overwrites=False).write(rows(b"a")) == WriteResult(1, 0)
    assert limits == []
    options |= {"rateLimit": "100000", "rateLimitTasks": "4"}
    assert plan_batch(options, SCHEMA, overwrites=False).write(rows(b"a")) == WriteResult(1, 0)
    assert limits == [25_000]


def test_task_that_fails_names_its_partition(monkeypatch: pytest.MonkeyPatch, rocketmq_broker: RocketmqBroker) -> None:
    """A row that makes no message is a wrong argument; one that nobody takes, and a silent cluster, are none."""
    run_as(monkeypatch, Task(3))
    options = {"nameserver": rocketmq_broker.nameserver, "topic": rocketmq_broker.topic()}
    sink = plan_batch(options, SCHEMA, overwrites=False)
    with pytest.raises(ConfigError, match=r"^task of partition 3: row 1 of its task has no body") as refused:
        sink.write(rows(b"a", None))
    assert isinstance(refused.value.__cause__, ConfigError)
    with pytest.raises(ClientError, match=r"^task of partition 3: message 1 cannot be sent: body is empty") as failed:
        sink.write(rows(b"a", b""))
    assert not isinstance(failed.value, ConfigError)
    gone = {"nameserver": NOBODY, "topic": "T", "deliveryTimeoutMs": "1", "timeoutMs": "1"}
    silent = plan_stream(gone, SCHEMA, overwrites=False)
    with pytest.raises(ClientError, match=r"^task of partition 3: ") as failed:
        silent.write(rows(b"a"))
    assert not isinstance(failed.value, ConfigError)


DONE: list[WriterCommitMessage | None] = [WriteResult(3, 1), None, WriteResult(4, 2)]


@pytest.mark.parametrize("is_stream", [True, False])
def test_counts_of_all_tasks_are_logged(caplog: pytest.LogCaptureFixture, *, is_stream: bool) -> None:
    """Of those that have ended; a failure says what stays."""
    caplog.set_level(logging.INFO)
    options = {"nameserver": NOBODY, "topic": "T"}
    planned = plan_stream(options, SCHEMA, overwrites=False)
    batch = BatchSink(planned.options, planned.columns)
    if is_stream:
        planned.commit(DONE, 9)
        planned.abort(DONE, 9)
    else:
        batch.commit(DONE)
        batch.abort(DONE)
    name = "batch 9" if is_stream else f"write {batch.options.run_id}"
    counts = f"{name}: 7 messages stored by 2 tasks, 3 requests repeated"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", counts),
        ("WARNING", f"write failed, its stored messages stay: {counts}"),
    ]


def test_modes_that_take_something_back_are_refused(rocketmq_broker: RocketmqBroker) -> None:
    """Of tables and streams; columns are looked at before."""
    options = {"nameserver": rocketmq_broker.nameserver, "topic": "T"}
    with pytest.raises(ConfigError, match=r'cannot overwrite; use mode\("append"\)$') as refused:
        plan_batch(options, SCHEMA, overwrites=True)
    assert refused.value.key == "mode"
    with pytest.raises(ConfigError, match=r'cannot overwrite; use outputMode\("append"\) or "update"$') as refused:
        plan_stream(options, SCHEMA, overwrites=True)
    assert refused.value.key == "outputMode"
    for plan in (plan_batch, plan_stream):
        with pytest.raises(ConfigError, match="has no column text"):
            plan(options, StructType([StructField("text", StringType())]), overwrites=False)
        with pytest.raises(ConfigError, match="needs a column topic"):
            plan({"nameserver": rocketmq_broker.nameserver}, SCHEMA, overwrites=False)


def test_stream_is_planned_without_a_cluster() -> None:
    """Its tasks see whether there is one; its keys have no run."""
    planned = plan_stream({"nameserver": NOBODY, "topic": "T"}, SCHEMA, overwrites=False)
    assert isinstance(planned, StreamSink)
    assert isinstance(planned, SinkWriter)
    with pytest.raises(ConfigError, match="runId does not fit"):
        plan_stream({"nameserver": NOBODY, "topic": "T", "runId": "x"}, SCHEMA, overwrites=False)


@pytest.fixture
def strict(tmp_path: pathlib.Path) -> Iterator[ThreadedCluster]:
    """Yield a cluster whose broker makes no topic that is not there."""
    with ThreadedCluster(tmp_path) as running:
        running.start_broker(settings={"autoCreateTopicEnable": "false"})
        running.create_topic("T", 1)
        yield running


def test_what_is_wrong_with_the_cluster_shows_in_planning(strict: ThreadedCluster) -> None:
    """A name server that does not answer, a topic that is not there; topics of rows are for the tasks."""
    options = {"nameserver": strict.nameserver, "topic": "T"}
    assert isinstance(plan_batch(options, SCHEMA, overwrites=False), BatchSink)
    assert plan_batch({"nameserver": strict.nameserver}, TOPIC_SCHEMA, overwrites=False).options.topic is None
    with pytest.raises(ConfigError, match=r"^topic TT takes no messages: ") as refused:
        plan_batch(options | {"topic": "TT"}, SCHEMA, overwrites=False)
    assert refused.value.key == "topic"
    with pytest.raises(ConfigError, match=f"^no name server at {NOBODY} answers: ") as refused:
        plan_batch(options | {"nameserver": NOBODY}, SCHEMA, overwrites=False)
    assert refused.value.key == "nameserver"
