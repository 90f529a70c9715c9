"""Counts of what producers and consumers did."""

import asyncio

import pytest
from received import received
from scripted_cluster import QUEUE, ScriptedCluster, refused, stored
from subscribed import push_consumer

from rocketlet.client import (
    ConsumeContext,
    ConsumeResult,
    Message,
    Producer,
    ProducerSettings,
    PullContext,
    ReceivedMessage,
    Statistics,
    Tally,
)
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError
from rocketlet.remoting.bodies.client import TopicFigures
from rocketlet.remoting.codec.command import Command
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

    def stored_after_7_ms(command: Command) -> Command:
        clock.advance(7)
        return stored(command)

    broker.answers[RequestCode.SEND_BATCH_MESSAGE] = broker.answers[RequestCode.SEND_MESSAGE_V2] = stored_after_7_ms
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
    assert (first.sent.took_ms, first.sent.longest_ms) == (14, 7)
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


def test_tally_keeps_steps_of_ten_seconds_for_an_hour() -> None:
    """A step counts until its end is a minute, or an hour, ago; a clock that is set back counts in the last step."""
    tally = Tally()
    tally.add(1, 5, at_ms=9_999)
    tally.add(2, 7, at_ms=10_000)
    tally.add(4, 0, at_ms=9_000)
    assert tally.last_minute(59_999) == (7, 3, 12)
    assert tally.last_minute(60_000) == tally.last_minute(69_999) == (6, 2, 7)
    assert tally.last_minute(70_000) == (0, 0, 0)
    assert [tally.in_last_hour(at_ms) for at_ms in (3_599_999, 3_600_000, 3_609_999, 3_610_000)] == [7, 6, 6, 0]
    assert (tally.messages, tally.calls, tally.took_ms, tally.longest_ms) == (7, 3, 12, 7)
    assert repr(tally) == "<Tally 7 messages in 3 calls>"

    for step in range(1_000):
        tally.add(1, 1, at_ms=100_000_000 + 10_000 * step)
    assert tally.in_last_hour(100_000_000 + 9_999_999) == 360
    assert (Tally().messages, Tally().calls, Tally().took_ms, Tally().longest_ms) == (0, 0, 0, 0)


def test_topics_are_kept_apart_and_first_made_when_asked_for() -> None:
    """Each group and topic has its own; asked again, it is the same; pulls without messages are none."""
    clock = ManualClock()
    statistics = Statistics(clock)
    first = statistics.of("cg", "T")
    assert statistics.of("cg", "T") is first
    assert statistics.of("cg", "U") is not first
    for messages in ([received(1), received(2)], []):
        statistics.after_pull(PullContext("cg", QUEUE, messages, clock.now_ms() - 5, clock.now_ms()))
    for has_succeeded in (True, False, False):
        context = ConsumeContext(
            group="cg",
            messages=[received(1)],
            queue=QUEUE,
            started_at_ms=clock.now_ms() - 8,
            ended_at_ms=clock.now_ms(),
        )
        context.has_succeeded = has_succeeded
        statistics.before_consume(context)
        statistics.after_consume(context)
    assert first.last_minute(first.pulled) == (2, 1, 5)
    assert first.last_minute(first.consumed) == (1, 1, 8)
    assert first.last_minute(first.failed_consumes) == (2, 2, 16)
    assert statistics.figures_of("cg", "T").consume_ms == 8.0
    assert Statistics.among([object()]) is None
