"""What an application may do when queues come and go."""

import asyncio
from collections.abc import Callable

import pytest

from rocketlet.client import ConsumeFrom, Message, MessageQueue, Producer, PullConsumer, PullConsumerSettings
from rocketlet.client.session.callbacks import as_awaitable

FIRST = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
BY_HAND = PullConsumerSettings(consume_from=ConsumeFrom.FIRST, commits_itself=False)


class Diary:
    """What happened to the queues of one member, and a wait for it."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.lines: list[tuple[str, int]] = []
        self._happened = asyncio.Event()
        consumer.on_queues_assigned(lambda queues: self._note("assigned", queues))
        consumer.on_queues_revoked(lambda queues: self._note("revoked", queues))

    async def wait_for(self, *lines: tuple[str, int]) -> None:
        """Return when just this has happened."""
        while len(self.lines) < len(lines):
            self._happened.clear()
            await self._happened.wait()
        assert self.lines == list(lines)

    def _note(self, what: str, queues: tuple[MessageQueue, ...]) -> None:
        self.lines.append((what, len(queues)))
        self._happened.set()


def subscribed(address: str, settings: PullConsumerSettings) -> PullConsumer:
    """Return a member that has subscribed and not begun."""
    consumer = PullConsumer("cg", address, settings=settings)
    consumer.subscribe("T")
    return consumer


async def fill(producer: Producer, per_queue: int) -> None:
    """Send as many messages to each of four queues."""
    await producer.send(Message("T", b"0"))
    for number in range(1, 4 * per_queue):
        await producer.send(Message("T", b"%d" % number))


@pytest.mark.feature("B26")
async def test_callbacks_follow_the_members(address: str) -> None:
    """Queues come at the start, go when a member joins, come back when it leaves, and go at the end."""
    async with Producer("pg", address) as producer:
        await producer.send(Message("T", b"makes the topic"))
        first, second = subscribed(address, FIRST), subscribed(address, FIRST)
        diary, other = Diary(first), Diary(second)
        async with first:
            await diary.wait_for(("assigned", 4))
            async with second:
                await other.wait_for(("assigned", 2))
                await diary.wait_for(("assigned", 4), ("revoked", 2))
            await other.wait_for(("assigned", 2), ("revoked", 2))
            await diary.wait_for(("assigned", 4), ("revoked", 2), ("assigned", 2))
        await diary.wait_for(("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 4))


@pytest.mark.feature("B26")
async def test_application_commits_before_queues_go(own_address: str) -> None:
    """What was handled when a member joins does not come again to the member that gets the queues.

    As long as it asks later; the official broker serves two members at once, and may tell the second first.
    """
    async with Producer("pg", own_address) as producer:
        await fill(producer, 2)
        first = subscribed(own_address, BY_HAND)
        first.on_queues_revoked(lambda _: first.commit())
        async with first:
            got = 0
            while got < 8:
                got += len(await first.poll())
            async with subscribed(own_address, BY_HAND) as second:
                while len(second.queues) < 2:
                    assert await second.poll(timeout_ms=100) == []
                committed = [await second.committed(queue) for queue in second.queues]
                assert committed == [2, 2]


@pytest.mark.feature("B26")
async def test_application_seeks_before_queues_are_read(address: str) -> None:
    """A seek in the callback decides where reading begins: nothing before it is handed out."""
    async with Producer("pg", address) as producer:
        await fill(producer, 3)
        consumer = subscribed(address, FIRST)

        async def begin_at_two(queues: tuple[MessageQueue, ...]) -> None:
            for queue in queues:
                await consumer.seek(queue, 2)

        consumer.on_queues_assigned(begin_at_two)
        async with consumer:
            offsets: list[int] = []
            while len(offsets) < 4:
                offsets += [message.queue_offset for message in await consumer.poll()]
        assert offsets == [2, 2, 2, 2]


@pytest.mark.feature("B26")
async def test_callback_that_raises_changes_nothing(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """The queues are read all the same, and the log has what was raised."""
    async with Producer("pg", address) as producer:
        await fill(producer, 1)
        consumer = subscribed(address, FIRST)
        consumer.on_queues_assigned(_fail)
        async with consumer:
            got = 0
            while got < 4:
                got += len(await consumer.poll())
    assert "no such luck" in caplog.text


def _fail(_queues: tuple[MessageQueue, ...]) -> None:
    raise LookupError("no such luck")


def test_callback_must_be_a_function() -> None:
    """Anything else is refused where it is given."""
    not_callable: Callable[[tuple[MessageQueue, ...]], object] = "T"  # pyright: ignore[reportAssignmentType] # on purpose
    with pytest.raises(TypeError, match="callback is str"):
        as_awaitable(not_callable)
