"""Listeners and watchers for the tests of consumers; each has a wait for the fact that a test is about."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from rocketlet.client import ConsumeResult, MessageQueue, PushConsumer, ReceivedMessage


class Inbox:
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self._arrived = asyncio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        """Take messages."""
        self.messages += messages
        self._arrived.set()

    @property
    def bodies(self) -> Counter[bytes]:
        """How often each body came."""
        return Counter(message.body for message in self.messages)

    async def wait_for(self, count: int) -> list[ReceivedMessage]:
        """Return the messages once there are so many."""
        while len(self.messages) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.messages

    async def wait_body(self, body: bytes) -> ReceivedMessage:
        """Return the first message with a body."""
        while not (found := [message for message in self.messages if message.body == body]):
            await self.wait_for(len(self.messages) + 1)
        return found[0]


class HeldListener:
    """A listener that does not end before it may, and then gives its result."""

    def __init__(self, result: ConsumeResult = ConsumeResult.SUCCESS) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self._result = result

    async def __call__(self, _messages: list[ReceivedMessage]) -> ConsumeResult:
        """Wait until it may end."""
        self.begun.set()
        await self.may_end.wait()
        return self._result


async def give_up(consumer: PushConsumer, topic: str = "T") -> None:
    """Unsubscribe a consumer from its only topic and return when it owns no queue of it any more."""
    given_up = asyncio.Event()
    consumer.on_queues_changed(lambda queues: None if queues else given_up.set())
    consumer.unsubscribe(topic)
    await given_up.wait()


class Shares:
    """Watches which member of a group has which queues."""

    def __init__(self) -> None:
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._changed = asyncio.Event()

    def watch(self, consumer: PushConsumer) -> None:
        """Watch a member."""

        def note(queues: tuple[MessageQueue, ...]) -> None:
            self._queues[consumer.client_id] = queues
            self._changed.set()

        consumer.on_queues_changed(note)

    def forget(self, consumer: PushConsumer) -> None:
        """A member has left."""
        del self._queues[consumer.client_id]

    async def wait_until(self, *sizes: int) -> None:
        """Return when the members have so many queues each, in any order, and no queue has two owners."""
        while not self._is_shared(sizes):
            self._changed.clear()
            await self._changed.wait()

    def _is_shared(self, sizes: Sequence[int]) -> bool:
        owned = [queue for queues in self._queues.values() for queue in queues]
        held = sorted(len(queues) for queues in self._queues.values() if queues)
        return held == sorted(sizes) and len(owned) == len(set(owned))
