"""A task of the sink while its broker is killed and comes back."""

import asyncio
import pathlib
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
from interop.servers import RocketletServer

from rocketlet.export.plan.plan import plan_stores
from rocketlet.export.write.read import SplitReader
from rocketlet.remoting.transport.clock import LoopClock
from rocketlet.spark.sink.sink import send_rows
from rocketlet.spark.sink.sinkoptions import parse_sink_options
from rocketlet.spark.sink.sinkrows import SinkColumns, SinkMessages

SMALL = {"mappedFileSizeCommitLog": "16777216", "mappedFileSizeConsumeQueue": "600000"}


def test_rows_are_stored_over_a_kill_of_the_broker(tmp_path: pathlib.Path) -> None:
    """Every row is there; those that are there twice have one key, so that the copies are known as such."""
    servers = [RocketletServer(tmp_path / "store", SMALL)]

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"body": [f"{row}" for row in range(5_000)]})
        servers[0].kill()  # while requests are under way, and before any of them has been waited for
        servers.append(RocketletServer(tmp_path / "store", SMALL, servers[0]))
        yield pa.RecordBatch.from_pydict({"body": [f"{row}" for row in range(5_000, 10_000)]})

    options = parse_sink_options({"nameserver": servers[0].namesrv, "topic": "Rows", "runId": "run"})
    messages = SinkMessages(SinkColumns({"body": 0}), "Rows", "ROW", "run/0/")
    try:
        written = asyncio.run(send_rows(batches(), messages, options, LoopClock()))
        servers[-1].stop()
    finally:
        for server in servers:
            server.kill()
    keys: dict[str, set[str]] = defaultdict(set)
    for split in plan_stores([str(tmp_path / "store")]):
        for batch in SplitReader().read(split):
            for row in batch.to_pylist():
                keys[row["body"].decode()].add(dict(row["properties"])["ROW"])
    assert written.messages == 10_000
    assert keys == {f"{row}": {f"run/0/{row}"} for row in range(10_000)}
