"""Counts of what producers and consumers did."""

import asyncio

import pytest
from scripted_cluster import ScriptedCluster, refused
from subscribed import push_consumer

from rocketlet.client import (
    ConsumeResult,
    Message,
    Producer,
    ProducerSettings,
    ReceivedMessage,
    Statistics,
    Tally,
)
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError
from rocketlet.remoting.bodies.client import TopicFigures
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import ManualClock


def test_tally_counts_from_the_beginning_and_over_the_last_minute() -> None:
    """Calls, messages, times; what is a minute old counts no more in the rates."""
    tally = Tally()
    tally.add(32, 40, at_ms=5_000)
    tally.add(1, 20, at_ms=35_000)
    tally.add(27, 30, at_ms=59_000)
    assert (tally.messages, tally.calls, tally.took_ms, tally.longest_ms) == (60, 3, 90, 40)
    minute = tally.last_minute(59_999)
    assert (minute.messages, minute.per_second, minute.average_ms) == (60, 1.0, 30.0)
    minute = tally.last_minute(60_000)
    assert (minute.messages, minute.calls, minute.average_ms) == (28, 2, 25.0)
    assert tally.last_minute(10_000_000).average_ms == 0
    assert (tally.in_last_hour(3_600_000), tally.in_last_hour(3_660_000)) == (28, 0)


async def test_figures_are_those_of_a_consumer_that_is_asked() -> None:
    """Rates of a minute, average times, and the failures of an hour."""
    clock = ManualClock()
    statistics = Statistics(clock)
    topic, now_ms = statistics.of("cg", "T"), clock.now_ms()
    topic.pulled.add(60, 12, now_ms)
    topic.consumed.add(30, 10, now_ms)
    topic.failed_consumes.add(2, 1, now_ms - 3_600_000)
    topic.failed_consumes.add(3, 1, now_ms - 600_000)
    topic.failed_consumes.add(6, 30, now_ms)
    assert Statistics.among([object(), statistics]) is statistics
    assert statistics.figures_of("cg", "T") == TopicFigures(
        pull_ms=12.0,
        pulled_per_second=1.0,
        consume_ms=20.0,
        succeeded_per_second=0.5,
        failed_per_second=0.1,
        failed_in_hour=9,
    )
    assert statistics.figures_of("cg", "other") == TopicFigures()


async def test_sends_are_counted_by_group_and_topic(cluster: ScriptedCluster) -> None:
    """Each attempt, with the messages of a batch; failures apart."""
    clock = ManualClock()
    cluster.routes["T"] = cluster.routes["U"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    broker.answers[RequestCode.SEND_BATCH_MESSAGE] = broker.answers[RequestCode.SEND_MESSAGE_V2]
    statistics = Statistics(clock)
    settings = ProducerSettings(hooks=(statistics,))
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        await producer.send(Message("T", b"x"))
        await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        broker.answers[RequestCode.SEND_MESSAGE_V2] = refused(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(ResponseError):
            await producer.send(Message("U", b"x"))
    first, second = statistics.of("pg", "T"), statistics.of("pg", "U")
    assert (first.sent.messages, first.sent.calls, first.failed_sends.calls) == (3, 2, 0)
    assert (second.sent.calls, second.failed_sends.messages) == (0, 1)
    assert first.last_minute(first.sent).per_second == 3 / 60
    assert set(statistics.topics) == {("pg", "T"), ("pg", "U")}


async def test_consumption_is_counted(address: str) -> None:
    """Messages that were pulled, finished and failed; the retry topic's messages count for their own topic."""
    statistics, done = Statistics(), asyncio.Event()

    async def on_messages(messages: list[ReceivedMessage]) -> ConsumeResult:
        if messages[0].body == b"last":
            done.set()
        return ConsumeResult.RETRY if messages[0].body == b"bad" else ConsumeResult.SUCCESS

    async with Producer("pg", address) as producer:
        queue = (await producer.send(Message("T", b"first of its topic"))).queue
        consumer = push_consumer(
            address, on_messages, expression="wanted", hooks=(statistics,), concurrency=1, max_retries=0
        )
        async with consumer:
            for body in (b"good", b"bad", b"last"):
                await producer.send(Message("T", body, tags="wanted"), queue=queue)
            await done.wait()
    counted = statistics.of("cg", "T")
    assert counted.pulled.messages == 3
    assert (counted.consumed.messages, counted.failed_consumes.messages) == (2, 1)
    assert counted.pulled.calls >= 1
