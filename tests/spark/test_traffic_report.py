"""The example that draws messages per minute and the lag of groups."""

import asyncio
import contextlib
import importlib
import pathlib
import sys
from collections import Counter
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image
from pyspark.sql import SparkSession

from rocketlet.client import Admin, Message, Producer
from rocketlet.testing import RocketmqBroker

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
MINUTE_MS = 60_000


async def send_and_consume(nameserver: str, topic: str) -> None:
    """Send 50 messages, of which a group is done with 20."""
    async with Producer("shop", nameserver) as producer, Admin(nameserver) as admin:
        for number in range(50):
            await producer.send(Message(topic, b"%d" % number))
        await admin.create_group("billing")
        offsets = await admin.offsets(topic)
        await admin.reset("billing", dict.fromkeys(offsets, 10))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example as a module; it finds its neighbours."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    return importlib.import_module("traffic_report")


def test_report_counts_and_draws(
    example: Any,
    spark: SparkSession,
    rocketmq_broker: RocketmqBroker,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It prints the messages of the busiest minute and those that the group has to do, and writes a picture."""
    monkeypatch.setattr(example, "spark_session", lambda: contextlib.nullcontext(spark))  # the one of all tests
    topic = rocketmq_broker.topic(queues=2)
    asyncio.run(send_and_consume(rocketmq_broker.nameserver, topic))
    minutes = Counter(message.stored_at_ms // MINUTE_MS for message in rocketmq_broker.messages(topic))

    target = tmp_path / "traffic.png"
    options = ["--nameserver", rocketmq_broker.nameserver, "--topic", topic, "--group", "billing", "--to", str(target)]
    result = CliRunner().invoke(example.report, options, catch_exceptions=False)
    assert result.output.splitlines() == [
        f"{topic}: 50 messages, {max(minutes.values())} in the busiest of {max(minutes) - min(minutes) + 1} minutes",
        f"billing has 30 messages of {topic} to do",
        f"{target} shows it",
    ]
    with Image.open(target) as picture:
        assert (picture.format, picture.size) == ("PNG", (1000, 600))
        shades = picture.convert("L").getextrema()
    assert shades == (0, 255)


def test_minutes_without_messages_are_zeros(example: Any) -> None:
    """A line that is drawn falls to zero where nothing came."""
    first = example.datetime.datetime(2026, 1, 31, 23, 59, tzinfo=example.datetime.UTC)
    rate = example.fill_gaps({first: 5, first + 3 * example.MINUTE: 7})
    assert rate.counts == [5, 0, 0, 7]
    assert [minute.minute for minute in rate.minutes] == [59, 0, 1, 2]
