"""Bad use of a pull consumer: each mistake has a typed error with one clear sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from rocketlet.client import ConsumeFrom, Message, MessageQueue, Producer, PullConsumer, PullConsumerSettings
from rocketlet.common.errors import ClientStateError, ConfigError

NOWHERE = "127.0.0.1:1"
QUEUE = MessageQueue("T", "broker-a", 0)


async def test_use_before_the_start_is_refused() -> None:
    """Whatever needs a broker says that the consumer is not started; iteration does not just end."""
    consumer = PullConsumer("cg", NOWHERE)
    consumer.subscribe("T")
    calls: list[Callable[[], Any]] = [
        consumer.poll,
        consumer.__anext__,
        consumer.commit,
        lambda: consumer.assign([QUEUE]),
        lambda: consumer.seek(QUEUE, 0),
        lambda: consumer.committed(QUEUE),
        lambda: consumer.pull_once(QUEUE, 0),
    ]
    for call in calls:
        with pytest.raises(ClientStateError, match="pull consumer cg is not started yet"):
            await call()


async def test_consumer_without_anything_to_consume_says_so(address: str) -> None:
    """Polling would wait for ever; so would iterating."""
    async with PullConsumer("cg", address) as consumer:
        with pytest.raises(ClientStateError, match="nothing to consume: subscribe or assign first"):
            await consumer.poll()
        with pytest.raises(ClientStateError, match="nothing to consume: subscribe or assign first"):
            await anext(consumer)


async def test_wrong_values_are_refused(address: str) -> None:
    """Types and ranges are checked where the value comes in."""
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
    async with Producer("pg", address) as producer, PullConsumer("cg", address, settings=settings) as consumer:
        queue = (await producer.send(Message("T", b"0"))).queue
        with pytest.raises(TypeError, match="'T' is str, it must be a MessageQueue"):
            await consumer.assign("T")  # pyright: ignore[reportArgumentType] # on purpose
        with pytest.raises(TypeError, match="topic is int"):
            consumer.subscribe(7)  # pyright: ignore[reportArgumentType] # on purpose
        await consumer.assign([queue])
        with pytest.raises(ValueError, match="max_messages is 0"):
            await consumer.poll(max_messages=0)
        with pytest.raises(ValueError, match="timeout_ms is -1"):
            await consumer.poll(-1)
        with pytest.raises(TypeError, match="offset is str"):
            await consumer.seek(queue, "0")  # pyright: ignore[reportArgumentType] # on purpose
        with pytest.raises(ValueError, match="offset is -1"):
            await consumer.commit({queue: -1})
        with pytest.raises(ValueError, match="not owned"):
            await consumer.commit({queue._replace(queue_id=9): 0})
        assert [message.body for message in await consumer.poll()] == [b"0"]


async def test_second_start_is_refused(address: str) -> None:
    """An object lives once; a second one is cheap."""
    consumer = PullConsumer("cg", address)
    async with consumer:
        with pytest.raises(ClientStateError, match="cannot be started again: it is open"):
            await consumer.__aenter__()
    with pytest.raises(ClientStateError, match="cannot be started again: it is closed"):
        await consumer.__aenter__()


def test_wrong_settings_are_refused() -> None:
    """The error names the setting, the value and the range."""
    with pytest.raises(ConfigError, match="pull_messages is 0, allowed are 1 to 1024") as caught:
        PullConsumerSettings(pull_messages=0)
    assert caught.value.key == "pull_messages"
    with pytest.raises(ConfigError, match="reserved"):
        PullConsumer("DEFAULT_CONSUMER", NOWHERE)
