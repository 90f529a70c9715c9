"""The broker's time in the hands of a test, with clients of our own on the test's loop."""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from rocketlet.client import (
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
    TransactionFunctions,
    TransactionProducer,
    TransactionState,
)
from rocketlet.testing import RocketmqBroker

ALL = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)
SMALL_FILES = {"mappedFileSizeCommitLog": "65536", "maxMessageSize": "16384", "deleteWhen": "04"}


@pytest.fixture
def broker(rocketmq_broker: RocketmqBroker) -> Iterator[RocketmqBroker]:
    """Return the broker of the session; its time runs again afterwards."""
    yield rocketmq_broker
    rocketmq_broker.clock.resume()


@pytest.fixture
async def producer(broker: RocketmqBroker) -> AsyncIterator[Producer]:
    """Return a producer."""
    async with Producer("shop", broker.nameserver) as producer:
        yield producer


@asynccontextmanager
async def consuming(
    broker: RocketmqBroker, topic: str, group: str, *, refuses: bool = False
) -> AsyncGenerator[list[int]]:
    """Consume, and yield how often each message that came had been consumed before."""
    seen: list[int] = []

    async def listen(messages: list[ReceivedMessage]) -> None:
        seen.extend(message.reconsume_times for message in messages)
        if refuses:
            raise ConnectionError("the stock service is gone")

    consumer = PushConsumer(group, broker.nameserver, settings=ALL)
    consumer.subscribe(topic, "*", listen)
    async with consumer:
        yield seen


async def test_delayed_messages_come_in_order(broker: RocketmqBroker, producer: Producer) -> None:
    """Each message comes at its instant: what waits shortest is stored first, whatever its level."""
    topic = await broker.create_topic(queues=1)
    for level in (5, 1, 18, 3):
        await producer.send(Message(topic, b"%d" % level, delay_level=level))
    assert broker.messages(topic) == []
    broker.clock.advance(seconds=11)
    assert [message.body for message in broker.messages(topic)] == [b"1", b"3"]
    broker.clock.advance(hours=2)
    came = broker.messages(topic)
    assert [message.body for message in came] == [b"1", b"3", b"5", b"18"]
    assert came[-1].stored_at_ms - came[-2].stored_at_ms == pytest.approx(7_140_000, abs=5_000)


async def test_timers_come_at_their_instant(broker: RocketmqBroker, producer: Producer) -> None:
    """A message for a time comes when the broker's clock shows that time."""
    topic = await broker.create_topic(queues=1)
    at = broker.clock.now() + timedelta(hours=30)
    await producer.send(Message(topic, b"late", deliver_at_ms=round(at.timestamp() * 1_000)))
    broker.clock.advance(hours=29, minutes=59)
    assert broker.messages(topic) == []
    broker.clock.advance(minutes=2)
    (message,) = broker.messages(topic)
    assert message.stored_at_ms >= at.timestamp() * 1_000


async def test_refused_message_becomes_a_dead_letter(
    broker: RocketmqBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    """In one step of five hours a message is refused sixteen times more, each at its time, and given up."""
    caplog.set_level(logging.CRITICAL)
    topic, group = await broker.create_topic(queues=1), broker.group()
    async with consuming(broker, topic, group, refuses=True) as seen:
        await producer.send(Message(topic, b"42"))
        await broker.consumed(group)
        assert seen == [0]
        assert broker.dead_letters(group) == []
        await broker.clock.elapse(seconds=9)
        assert seen == [0]
        await broker.clock.elapse(hours=5)
    assert seen == [*range(17)]
    (dead,) = broker.dead_letters(group)
    assert dead.body == b"42"


async def test_open_transaction_is_asked_about(broker: RocketmqBroker) -> None:
    """A minute later the producer has been asked, and has committed."""
    asked = asyncio.Event()

    async def execute(message: Message, argument: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async def check(message: object) -> TransactionState:
        asked.set()
        return TransactionState.COMMIT

    topic, group = await broker.create_topic(), broker.group()
    functions = TransactionFunctions(execute, check)
    async with TransactionProducer(group, broker.nameserver, listener=functions) as producer:
        await producer.send_in_transaction(Message(topic, b"42"))
        (open_one,) = broker.transactions()
        assert (open_one.message.body, open_one.message.topic, open_one.producer_group) == (b"42", topic, group)
        await broker.clock.elapse(minutes=2)
        assert asked.is_set()
        await broker.arrived(topic)
    assert broker.transactions() == []


async def test_time_that_is_frozen_stands_still(broker: RocketmqBroker, producer: Producer) -> None:
    """Frozen, the clock moves by what it is moved on and by nothing else; afterwards it goes on from there."""
    broker.clock.freeze()
    before = broker.clock.now()
    assert broker.clock.now() == before
    broker.clock.advance(days=1)
    assert broker.clock.now() - before == timedelta(days=1)
    topic = await broker.create_topic()
    result = await producer.send(Message(topic, b"1"))
    assert result is not None
    (message,) = broker.messages(topic)
    assert datetime.fromtimestamp(message.stored_at_ms / 1_000, UTC) == before + timedelta(days=1)
    broker.clock.resume()
    assert broker.clock.now() >= before + timedelta(days=1)


async def test_clients_stay_however_far_time_is_moved(broker: RocketmqBroker, producer: Producer) -> None:
    """A consumer is still connected after a year, and gets what is sent then."""
    topic, group = await broker.create_topic(), broker.group()
    async with consuming(broker, topic, group) as seen:
        await producer.send(Message(topic, b"1"))
        await broker.consumed(group)
        known = broker.connections()
        broker.clock.advance(days=365)
        assert broker.connections() == known
        await producer.send(Message(topic, b"2"))
        await broker.consumed(group)
    assert seen == [0, 0]


def test_old_files_go_at_their_hour() -> None:
    """After four days the files of the log that nobody has written to for three are gone."""
    with RocketmqBroker(SMALL_FILES) as broker:
        topic = broker.topic(queues=1)

        async def fill() -> None:
            async with Producer("shop", broker.nameserver) as producer:
                for _ in range(12):
                    await producer.send(Message(topic, secrets.token_bytes(16_000)))

        asyncio.run(fill())
        files = sorted(path.name for path in (broker.store / "commitlog").iterdir())
        assert len(files) >= 3
        broker.clock.advance(days=4)
        left = sorted(path.name for path in (broker.store / "commitlog").iterdir())
        assert not {*files[:-1]} & {*left}
        assert [message.queue_offset for message in broker.messages(topic)][-1] == 11


def test_time_does_not_go_back(broker: RocketmqBroker) -> None:
    """A span below zero is refused."""
    with pytest.raises(ValueError, match="time only moves on"):
        broker.clock.advance(seconds=-1)


def test_clock_tells_its_time(broker: RocketmqBroker) -> None:
    """The clock's repr has the time, and says if it stands still."""
    broker.clock.freeze()
    assert repr(broker.clock) == f"<BrokerClock at {broker.clock.now().isoformat()}, frozen>"
    broker.clock.resume()
    assert "frozen" not in repr(broker.clock)
