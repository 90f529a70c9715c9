"""What a message costs in the client: calls of its functions, on its own thread; the broker has another one."""

import asyncio
import pathlib
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

import rocketlet
from rocketlet.client import ConsumeFrom, Message, Producer, PushConsumer, PushConsumerSettings, ReceivedMessage
from rocketlet.testing import RocketmqBroker

PARTS = tuple(f"{pathlib.Path(rocketlet.__file__).parent}/{part}/" for part in ("client", "common", "remoting"))
IN_FLIGHT = 64
ROUNDS = 20
BACKLOG = 3_200
MOST_PER_SEND = 20
"""Two of them are the continuations of ``send`` when the answer is there."""
MOST_PER_CONSUMED = 4.0
"""Three for the message, and its part of the 31 that a pull of 32 takes."""


@contextmanager
def counting_calls() -> Generator[Callable[[], int]]:
    """Give what tells how often functions of the client have been called or continued since."""
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(PARTS):
            calls += 1

    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(None)


async def test_calls_of_a_send(rocketmq_broker: RocketmqBroker) -> None:
    """However many are in flight, a send takes twenty calls at most."""
    topic = await rocketmq_broker.create_topic()
    messages = [Message(topic, b"body") for _ in range(IN_FLIGHT * ROUNDS)]
    async with Producer("cost", nameserver=rocketmq_broker.nameserver) as producer:

        async def send_some(first: int) -> None:
            for message in messages[first::IN_FLIGHT]:
                await producer.send(message)

        await producer.send(messages[0])  # learns the route and connects
        with counting_calls() as calls:
            async with asyncio.TaskGroup() as tasks:
                for first in range(IN_FLIGHT):
                    tasks.create_task(send_some(first))
        assert calls() / len(messages) <= MOST_PER_SEND


async def test_calls_of_a_consumed_message(rocketmq_broker: RocketmqBroker) -> None:
    """A message of a backlog takes about four calls, those of its pull included."""
    topic = await rocketmq_broker.create_topic()
    async with Producer("cost", nameserver=rocketmq_broker.nameserver) as producer:
        for _ in range(BACKLOG // 32):
            await producer.send_batch([Message(topic, b"body") for _ in range(32)])
    settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)
    left, first, done = BACKLOG, asyncio.Event(), asyncio.Event()

    async def count_down(messages: list[ReceivedMessage]) -> None:
        nonlocal left
        first.set()
        left -= len(messages)
        if left <= 0:
            done.set()

    consumer = PushConsumer("cost-push", nameserver=rocketmq_broker.nameserver, settings=settings)
    consumer.subscribe(topic, "*", count_down)
    async with consumer:
        await first.wait()
        with counting_calls() as calls:
            begun = left
            await done.wait()
            assert begun > BACKLOG / 2, "the backlog was consumed before it was counted"
            assert calls() / begun <= MOST_PER_CONSUMED
