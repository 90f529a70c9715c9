"""Measure Spark over a cluster of very many queues (`python bench/manyqueues.py`).

- A batch reads all of them: how many tasks, how long, and whether each message is there once; so does a reading of the
  store of the broker.
- An idle stream, beside one over 8 queues: CPU seconds a minute of Java, of the Python of the driver and of the broker,
  without what a stream costs before it is idle. It stores its progress (`commitGroup`), which is asked for in the end.

Every hundredth queue has many messages, the others one.
"""

import asyncio
import os
import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any, Final, NamedTuple

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "support"))

from interop.servers import RocketletServer
from local_spark import cpu_ticks_of_family, start_spark

from rocketlet.client import Admin, Message, MessageQueue, Producer, TopicSettings
from rocketlet.remoting.transport.event_loop import TaskScope

TOPIC_QUEUES: Final = 250
MANY: Final = 1_000
FEW: Final = "Few"
FEW_QUEUES: Final = 8
AT_ONCE: Final = 64
GROUP: Final = "spark_many"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cpu(NamedTuple):
    """CPU seconds of Java, of each Python process that it has started, and of the broker."""

    java: float
    python: dict[int, float]
    broker: float

    def per_minute(self, before: "Cpu", seconds: float) -> str:
        """Return what was used since, as text; without processes that have ended, which idle ones do."""
        python = sum(used - before.python.get(pid, 0) for pid, used in self.python.items())
        used = {"java": self.java - before.java, "python": python, "broker": self.broker - before.broker}
        return ", ".join(f"{name} {each * 60 / seconds:.2f} s" for name, each in used.items())


def topics_of(queues: int) -> dict[str, int]:
    """Return how many queues each topic has."""
    starts = range(0, queues, TOPIC_QUEUES)
    return {f"Many{number}": min(TOPIC_QUEUES, queues - start) for number, start in enumerate(starts)}


async def fill(nameserver: str, queues: int) -> int:
    """Make the topics, send, and return how many messages there are."""
    topics = topics_of(queues)
    async with Admin(nameserver) as admin:
        for topic, count in {**topics, FEW: FEW_QUEUES}.items():
            await admin.create_topic(topic, TopicSettings(read_queues=count, write_queues=count))
    wanted = [
        MessageQueue(topic, "broker-a", number)
        for topic, count in topics.items()
        for number in range(count)
        for _ in range(1 if number % 100 else MANY)
    ]
    async with Producer("bench", nameserver) as producer:
        await producer.send(Message(FEW, b"one"))
        for start in range(0, len(wanted), AT_ONCE):
            async with TaskScope() as scope:
                chunk = [Message(queue.topic, b"x" * 200) for queue in wanted[start : start + AT_ONCE]]
                pairs = zip(chunk, wanted[start : start + AT_ONCE], strict=True)
                for task in [scope.start(producer.send(one, queue=queue), name="send") for one, queue in pairs]:
                    await task
    return len(wanted)


async def ask_progress(nameserver: str, queues: int) -> tuple[int, int]:
    """Return of how many queues the group has progress, and its lag."""
    async with Admin(nameserver) as admin:
        found = [await admin.progress(GROUP, topic) for topic in topics_of(queues)]
    return sum(each.committed is not None for one in found for each in one.queues), sum(one.lag for one in found)


def cpu_of(java: int, broker: int) -> Cpu:
    """Return what the processes have used so far."""
    used = {pid: (user + system) / _TICKS for pid, (user, system, *_) in cpu_ticks_of_family(java).items()}
    (user, system, *_) = cpu_ticks_of_family(broker)[broker]
    return Cpu(used.pop(java), used, (user + system) / _TICKS)


def read(name: str, frame: DataFrame, expected: int) -> None:
    """Read a table whole, and print what it cost."""
    started = time.perf_counter()
    tasks = frame.rdd.getNumPartitions()
    rows = frame.select("topic", "queueId", "queueOffset").collect()
    seconds = time.perf_counter() - started
    click.echo(f"{name}: {tasks} tasks, {len(rows)} rows, {len(set(rows))} different of {expected}, {seconds:.1f} s")


def watch(spark: SparkSession, options: dict[str, str], folder: pathlib.Path) -> StreamingQuery:
    """Start a stream, and return when it is idle."""
    stream = spark.readStream.format("rocketmq").options(**options).option("startingOffsets", "earliest").load()
    shutil.rmtree(folder, ignore_errors=True)
    query = stream.writeStream.format("noop").option("checkpointLocation", str(folder)).start()
    query.processAllAvailable()
    return query


def measure_idle(name: str, query: StreamingQuery, pids: tuple[int, int], seconds: int) -> None:
    """Print what an idle stream costs."""
    before = cpu_of(*pids)
    query.awaitTermination(seconds)
    click.echo(f"idle stream over {name}, a minute: {cpu_of(*pids).per_minute(before, seconds)}")
    query.stop()


@click.command()
@click.option("--queues", default=5_000, show_default=True)
@click.option("--idle-seconds", default=60, show_default=True)
def main(queues: int, idle_seconds: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        with RocketletServer(place / "store", {}) as server:
            started = time.perf_counter()
            expected = asyncio.run(fill(server.namesrv, queues))
            click.echo(f"{queues} queues with {expected} messages, made in {time.perf_counter() - started:.1f} s")
            os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
            spark = start_spark(place, 2, {})
            jvm: Any = getattr(spark, "_jvm")  # noqa: B009 # not in the public interface
            java = int(jvm.java.lang.ProcessHandle.current().pid())
            pids = java, server.pid
            many = {"nameserver": server.namesrv, "subscribePattern": "Many.*"}
            read("batch of the cluster", spark.read.format("rocketmq").options(**many).load(), expected)
            few = {"nameserver": server.namesrv, "subscribe": FEW}
            measure_idle(f"{FEW_QUEUES} queues", watch(spark, few, place / "few"), pids, idle_seconds)
            started = time.perf_counter()
            query = watch(spark, {**many, "commitGroup": GROUP}, place / "many")
            click.echo(f"stream up to the end: {time.perf_counter() - started:.1f} s")
            measure_idle(f"{queues} queues", query, pids, idle_seconds)
            known, lag = asyncio.run(ask_progress(server.namesrv, queues))
            click.echo(f"progress of {known} queues, lag {lag}")
            server.stop()
        stored = spark.read.format("rocketmq").option("includeSystemTopics", "false").load(str(place / "store"))
        read("store", stored.where(f"topic <> '{FEW}'"), expected)
        spark.stop()


if __name__ == "__main__":
    main()
