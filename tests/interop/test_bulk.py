"""What Spark's sink and ``rocketlet load`` send, as the official consumer reads it, on our broker and the official."""

import asyncio
import pathlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from interop import clients
from interop.driver import Driver
from interop.servers import Server

from rocketlet.cli.main import main
from rocketlet.export.write.dump_file import DumpedMessage, DumpWriter
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.spark.sink.sink_options import parse_sink_options
from rocketlet.spark.sink.sink_rows import RowConverter, SinkColumns, SinkRow
from rocketlet.spark.sink.sink_writer import send_rows

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
TEXTS = pa.map_(pa.string(), pa.string())


@pytest.fixture
def topic(java: Driver, either: Server, new_name: Callable[[], str]) -> str:
    """Return a new topic with four queues."""
    name = new_name()
    with clients.Admin(java, namesrv=either.namesrv) as admin:
        admin.create_topic(either.broker, name, 4)
        admin.await_route(name)
    return name


def receive(java: Driver, server: Server, topic: str, count: int) -> list[clients.Received]:
    """Return what an official consumer gets of a topic."""
    about = {"namesrv": server.namesrv, "group": f"{topic}-readers", "subscriptions": {topic: "*"}, "settings": FIRST}
    with clients.PushConsumer(java, **about) as consumer:
        return consumer.received(count)


def test_java_consumer_gets_every_column(java: Driver, either: Server, topic: str) -> None:
    """Bodies, keys, tags, properties and flags are those of the rows, late rows come late, all keys are distinct.

    The official servers are written to under TLS.
    """
    due = datetime.now(UTC) + timedelta(seconds=1)
    columns = {
        "topic": [topic] * 204,
        "body": pa.array([b"\x00full", b"level", b"wait", b"instant", *(b"%04d" % row for row in range(200))]),
        "keys": [["a", "b"], *[None] * 203],
        "tags": ["tag", *[None] * 203],
        "properties": pa.array([[("p", "grün")], *[None] * 203], TEXTS),
        "shardingKey": [*[None] * 4, *["one"] * 200],
        "delayLevel": pa.array([None, 1, *[None] * 202], pa.int32()),
        "delayMs": pa.array([None, None, 1000, *[None] * 201], pa.int64()),
        "deliverAt": pa.array([None, None, None, due, *[None] * 200], pa.timestamp("us", "UTC")),
        "flag": pa.array([7, *[None] * 203], pa.int32()),
    }
    tls = {"tls": "true", "tlsVerify": "false"}
    options = parse_sink_options({"nameserver": either.namesrv, "timeoutMs": "10000", **tls})
    converter = RowConverter(
        SinkColumns({name: place for place, name in enumerate(SinkRow._fields)}), None, "ROW", "run/0/"
    )
    batch = pa.RecordBatch.from_pydict(columns)
    written = asyncio.run(send_rows(iter([batch]), converter, options, LoopClock()))
    assert written.messages == 204
    got = {message.body: message for message in receive(java, either, topic, 204)}
    full = got[b"\x00full"]
    assert (full.keys, full.tags, full.flag, full.properties["p"]) == ("a b", "tag", 7, "grün")
    for body in (b"level", b"wait", b"instant"):
        assert got[body].store_timestamp > got[body].born_timestamp
    ordered = sorted((got[b"%04d" % row] for row in range(200)), key=lambda message: message.queue_offset)
    assert [message.body for message in ordered] == [b"%04d" % row for row in range(200)]
    assert {message.properties["ROW"] for message in got.values()} == {f"run/0/{row}" for row in range(204)}


def test_java_consumer_gets_what_was_loaded(java: Driver, either: Server, topic: str, tmp_path: pathlib.Path) -> None:
    """Messages keep body, keys, tags, properties and unique key, and properties tell what they were."""
    writer = DumpWriter(str(tmp_path / "file.dump"))
    hosts, times = ("192.0.2.1:1", "192.0.2.2:2"), (1_700_000_000_000, 1_700_000_000_001)
    properties = {"TAGS": "t", "KEYS": "a b", "UNIQ_KEY": "0A" * 16, "mine": "grün"}
    message = DumpedMessage("Old", 3, 42, 0, "0A" * 16, "B0", properties, b"body", 7, 0, *times, *hosts, 0, 0, 9)
    writer.add([message])
    writer.close()
    with pytest.raises(SystemExit) as ended:
        main(["load", str(tmp_path / "file.dump"), "--namesrv", either.namesrv, "--topic-map", f"Old={topic}"])
    assert ended.value.code == 0
    (got,) = receive(java, either, topic, 1)
    assert (got.body, got.keys, got.tags, got.flag, got.properties["mine"]) == (b"body", "a b", "t", 7, "grün")
    assert got.properties["UNIQ_KEY"] == "0A" * 16
    assert {name: value for name, value in got.properties.items() if name.startswith("DUMPED_")} == {
        "DUMPED_TOPIC": "Old",
        "DUMPED_QUEUE_ID": "3",
        "DUMPED_QUEUE_OFFSET": "42",
        "DUMPED_MSG_ID": "0A" * 16,
        "DUMPED_OFFSET_MSG_ID": "B0",
        "DUMPED_BORN_TIMESTAMP": "1700000000000",
        "DUMPED_STORE_TIMESTAMP": "1700000000001",
        "DUMPED_BORN_HOST": "192.0.2.1:1",
    }
