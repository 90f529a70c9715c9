"""A cluster of a thousand queues, as a batch, as a store and as a stream whose progress is stored."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from interop.servers import RocketletServer
from live_clusters import Clients
from stream_run import StreamRun

from rocketlet.client import Admin, Message, Producer
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.write.log_reader import LogReader
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA
from rocketlet.spark.cluster.queue_ranges import USUAL_TASKS
from rocketlet.spark.hybrid.read_modes import reading_options
from rocketlet.spark.source import RocketMQDataSource
from rocketlet.spark.stream.stream_options import parse_stream
from rocketlet.spark.stream.stream_reader import ClusterStreamReader

QUEUES, TOPICS = 200, 5
LARGE, MANY = 100, 50


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketletServer]:
    """Run a broker whose queues have a message each, and every hundredth many."""
    with RocketletServer(tmp_path_factory.mktemp("many") / "store", {}) as running:
        clients = Clients(running.namesrv)
        for number in range(TOPICS):
            clients.create(f"Many{number}", queues=QUEUES)
        asyncio.run(_send(running.namesrv))
        yield running


async def _send(namesrv: str) -> None:
    async with Admin(namesrv) as admin, Producer("pg", namesrv) as producer:
        for number in range(TOPICS):
            for queue in await admin.queues(f"Many{number}"):
                count = 1 if queue.queue_id % LARGE else MANY
                await producer.send_batch([Message(queue.topic, b"body")] * count, queue=queue)


def every_place() -> list[tuple[str, int, int]]:
    """Return topic, queue and offset of each message."""
    return sorted(
        (f"Many{number}", queue_id, offset)
        for number in range(TOPICS)
        for queue_id in range(QUEUES)
        for offset in range(1 if queue_id % LARGE else MANY)
    )


def places(batches: Iterable[pa.RecordBatch]) -> list[tuple[str, int, int]]:
    """Return topic, queue and offset of all rows, sorted."""
    rows = [row for batch in batches for row in batch.select(["topic", "queueId", "queueOffset"]).to_pylist()]
    return sorted(tuple(row.values()) for row in rows)


def test_batch_reads_each_message_once_in_some_dozens_of_tasks(server: RocketletServer) -> None:
    """Small queues share tasks, whoever asks for more gets them, and the store of the broker has the same messages."""
    for asked, least in (({}, USUAL_TASKS), ({"minPartitions": "150"}, 150)):
        source = RocketMQDataSource({"nameserver": server.namesrv, "subscribePattern": "Many.*", **asked})
        reader: Any = source.reader(source.schema())
        partitions = reader.partitions()
        assert least <= len(partitions) <= 2 * least
        assert places(batch for part in partitions for batch in reader.read(part)) == every_place()
    assert places(LogReader(plan_stores([str(server.store)]))) == every_place()


def test_progress_of_all_queues_is_stored(server: RocketletServer) -> None:
    """Also of those that nothing new is in, after the first batch."""
    given = {"nameserver": server.namesrv, "subscribePattern": "Many.*", "commitGroup": "spark_many"}
    stream = StreamRun(lambda options: ClusterStreamReader(parse_stream(reading_options(options)), LIVE_SCHEMA), given)
    assert stream.plan()
    assert not stream.plan()

    async def ask() -> list[int | None]:
        async with Admin(server.namesrv) as admin:
            found = [await admin.progress("spark_many", f"Many{number}") for number in range(TOPICS)]
        return [queue.committed for topic in found for queue in topic.queues]

    assert asyncio.run(ask()) == [1 if number % LARGE else MANY for _ in range(TOPICS) for number in range(QUEUES)]
