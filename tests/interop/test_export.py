"""What is exported from a store equals, row by row, what the official Java client reads from its broker."""

import hashlib
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from interop.clients import Received
from interop.driver import Driver
from interop.servers import Server
from interop.traffic import COUNTS, SMALL_FILES, read_topic, write_traffic
from javastores import comparable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
COMPRESSION = 0x701  # the flag and the kind of compression, which the Java client clears when it has inflated a body
ADDED_BY_CLIENT = {"MIN_OFFSET", "MAX_OFFSET"}


@dataclass
class Traffic:
    """A store that a broker has open, and what the Java client read from that broker."""

    store: pathlib.Path
    expected: list[Row]


def expected_row(message: Received) -> Row:
    """Return the row of a message, its body as a digest and its times as milliseconds."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "logOffset": message.log_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": (message.keys or "").split(),
        "properties": {name: value for name, value in message.properties.items() if name not in ADDED_BY_CLIENT},
        "body": hashlib.sha256(message.body).hexdigest(),
        "flag": message.flag,
        "sysFlag": message.sys_flag & ~COMPRESSION,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCrc": message.body_crc,
    }


def exported_rows(rows: list[Row]) -> list[Row]:
    """Return exported rows in the form of ``expected_row``."""
    return [row | {"sysFlag": row["sysFlag"] & ~COMPRESSION} for row in comparable(rows)]


@pytest.fixture(scope="module")
def traffic(java: Driver, fresh_server: Callable[..., Server]) -> Iterator[Traffic]:
    """Send through `rocketlet up`, read everything with the Java client, and leave the broker running."""
    with fresh_server(**SMALL_FILES) as server:
        write_traffic(java, server.namesrv)
        messages = [message for topic in COUNTS for message in read_topic(java, server.namesrv, topic)]
        messages.sort(key=lambda message: message.log_offset)
        yield Traffic(server.store, [expected_row(message) for message in messages])


def test_java_client_read_all_that_was_sent(traffic: Traffic) -> None:
    """The rows that the following tests compare with are complete."""
    assert len(traffic.expected) == sum(COUNTS.values())


def test_export_equals_what_java_read(traffic: Traffic, tmp_path: pathlib.Path) -> None:
    """`rocketlet export` of the store that the broker has open gives every message once, each field the same."""
    target = tmp_path / "export.parquet"
    command = [sys.executable, "-m", "rocketlet", "export", traffic.store, "--to", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert exported_rows(pq.read_table(target).to_pylist()) == traffic.expected


def test_spark_equals_what_java_read(traffic: Traffic, spark: "SparkSession") -> None:
    """The Spark table of that store has the same rows."""
    table = spark.read.format("rocketmq").load(str(traffic.store))
    assert exported_rows([row.asDict() for row in table.collect()]) == traffic.expected
