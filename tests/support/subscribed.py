"""Consumers of our client that have subscribed and begin at the first message, as most tests of consumers want them."""

from dataclasses import replace
from typing import Any

from inbox import Inbox

from rocketlet.client import (
    ConsumeFrom,
    Listener,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    Sql,
)

PUSH_FROM_FIRST = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)
PULL_FROM_FIRST = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)


def push_consumer(
    address: str,
    listener: Listener,
    *,
    group: str = "cg",
    topic: str = "T",
    expression: str | Sql = "*",
    **settings: Any,
) -> PushConsumer:
    """Return a push consumer with a listener of a topic; the settings are those of ``PushConsumerSettings``."""
    consumer = PushConsumer(group, address, settings=replace(PUSH_FROM_FIRST, **settings))
    consumer.subscribe(topic, expression, listener)
    return consumer


def pull_consumer(address: str, *, group: str = "cg", topic: str = "T", **settings: Any) -> PullConsumer:
    """Return a pull consumer of a topic; the settings are those of ``PullConsumerSettings``."""
    consumer = PullConsumer(group, address, settings=replace(PULL_FROM_FIRST, **settings))
    consumer.subscribe(topic)
    return consumer


async def consume(address: str, count: int, *, group: str = "cg", topic: str = "T", expression: str = "*") -> Inbox:
    """Return what a member that joins and leaves has got, once it is so many messages."""
    inbox = Inbox()
    async with push_consumer(address, inbox, group=group, topic=topic, expression=expression):
        await inbox.wait_for(count)
    return inbox
