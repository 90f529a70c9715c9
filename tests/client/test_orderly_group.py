"""Orderly consumers of one group against a real broker."""

import asyncio
import contextlib
import pathlib
from collections import defaultdict
from collections.abc import AsyncGenerator

from inbox import Inbox, Shares
from real_broker import restartable_broker
from subscribed import consume, push_consumer

from rocketlet.client import (
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Retry,
    select_by_hash,
)
from rocketlet.common.names import dlq_topic
from rocketlet.namesrv.server import NameServer

KEYS = 6


class Steps:
    """A listener that takes its time and notes the steps of each key, and whether two of one queue ran at a time."""

    def __init__(self) -> None:
        self.steps: defaultdict[str, list[int]] = defaultdict(list)
        self.overlaps = 0
        self._running: set[object] = set()
        self._noted = asyncio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        """Note a message."""
        [message] = messages
        self.overlaps += message.queue in self._running
        self._running.add(message.queue)
        for _ in range(3):
            await asyncio.sleep(0)
        key, step = message.body.decode().split()
        self.steps[key].append(int(step))
        self._running.discard(message.queue)
        self._noted.set()

    async def wait_last(self, step: int) -> None:
        """Return when every key has come to its last step."""
        while len(self.steps) < KEYS or any(steps[-1] != step for steps in self.steps.values()):
            self._noted.clear()
            await self._noted.wait()


async def send_steps(producer: Producer, count: int) -> None:
    """Send numbered messages of each key to the key's queue."""
    for step in range(count):
        for key in range(KEYS):
            await producer.send(Message("T", f"{key} {step}".encode()), selector=select_by_hash, arg=str(key))


async def test_order_holds_while_members_join_and_leave(address: str, producer: Producer) -> None:
    """Each key's messages come in order and one at a time; a queue that changes hands may repeat, never skip."""
    await send_steps(producer, 1)
    steps, shares = Steps(), Shares()

    @contextlib.asynccontextmanager
    async def member() -> AsyncGenerator[PushConsumer]:
        consumer = push_consumer(address, steps, is_orderly=True)
        shares.watch(consumer)
        async with consumer:
            yield consumer
        shares.forget(consumer)

    async with member():
        await shares.wait_until(4)
        async with asyncio.TaskGroup() as group, member():
            group.create_task(send_steps(producer, 30))
            await shares.wait_until(2, 2)
        await shares.wait_until(4)
        await steps.wait_last(29)
    assert steps.overlaps == 0
    for seen in steps.steps.values():
        firsts = list(dict.fromkeys(seen[1:]))
        assert firsts == sorted(firsts) == list(range(30)), seen


async def test_failing_message_goes_to_the_dead_letters_and_its_queue_goes_on(address: str, producer: Producer) -> None:
    """After its retries the broker has it under the group's dead-letter topic; what is behind it follows."""
    queue = (await producer.send(Message("T", b"bad", keys=["k"], properties={"p": "v"}))).queue
    await producer.send(Message("T", b"good"), queue=queue)
    inbox = Inbox()

    async def refuse_bad(messages: list[ReceivedMessage]) -> Retry | None:
        await inbox(messages)
        return Retry(pause_ms=10) if messages[0].body == b"bad" else None

    async with push_consumer(address, refuse_bad, is_orderly=True, max_retries=1):
        await inbox.wait_for(3)
    assert [message.body for message in inbox.messages] == [b"bad", b"bad", b"good"]

    [letter] = (await consume(address, 1, group="undertaker", topic=dlq_topic("cg"))).messages
    assert (letter.body, letter.keys, letter.properties["p"]) == (b"bad", ("k",), "v")


async def test_offset_follows_the_commits(address: str, producer: Producer) -> None:
    """A consumer that does not commit by itself gets everything behind its last COMMIT again."""
    queue = (await producer.send(Message("T", b"0"))).queue
    for number in range(1, 4):
        await producer.send(Message("T", str(number).encode()), queue=queue)
    inbox, answers = Inbox(), iter([ConsumeResult.SUCCESS, ConsumeResult.COMMIT])

    async def commit_two(messages: list[ReceivedMessage]) -> ConsumeResult:
        await inbox(messages)
        return next(answers, ConsumeResult.SUCCESS)

    consumer = push_consumer(address, commit_two, is_orderly=True, commits_itself=False)
    async with consumer:
        await inbox.wait_for(4)

    again = Inbox()
    async with push_consumer(address, again, is_orderly=True):
        await again.wait_for(2)
    assert [message.body for message in again.messages] == [b"2", b"3"]


async def test_locks_are_given_back_at_the_end(address: str, producer: Producer) -> None:
    """The next member need not wait until they expire, which takes a minute."""
    await send_steps(producer, 1)
    for _ in range(2):
        consumer = push_consumer(address, Inbox(), is_orderly=True)
        async with consumer:
            assert len(consumer.queues) == 4


async def test_orderly_consumer_goes_on_after_a_restart_of_the_broker(
    nameserver: NameServer, tmp_path: pathlib.Path
) -> None:
    """The broker has forgotten its locks; the consumer has not, and nothing is lost."""
    steps = Steps()
    consumer = push_consumer(nameserver.address, steps, is_orderly=True)
    async with (
        restartable_broker(nameserver, tmp_path / "store") as restart,
        Producer("pg", nameserver.address) as producer,
    ):
        await send_steps(producer, 3)
        async with consumer:
            await steps.wait_last(2)
            await restart()
            await send_steps(producer, 5)
            await steps.wait_last(4)
    assert steps.overlaps == 0
