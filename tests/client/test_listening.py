"""Listeners at work."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Sequence

import pytest
from received import received

from rocketlet.client.listening import Batch, Handler, Listener, ListenerPool, cut_batches
from rocketlet.client.offsets import OffsetTable
from rocketlet.client.process_queue import FlowLimits
from rocketlet.client.push_queue import PushQueue
from rocketlet.client.results import ConsumeResult
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.remoting.tasks import TaskScope


def owned_queue() -> PushQueue:
    """Return a queue that nothing is pulled from."""

    def submit(_source: PushQueue, _messages: Sequence[ReceivedMessage]) -> None:
        raise AssertionError

    return PushQueue(MessageQueue("T", "broker-a", 0), OffsetTable(), FlowLimits(), submit)


class Bench:
    """A pool of two workers that remembers how batches ended."""

    def __init__(self) -> None:
        self.source = owned_queue()
        self.ended: asyncio.Queue[tuple[int, ConsumeResult]] = asyncio.Queue()
        self.pool = ListenerPool(2, self._finish)

    def submit(self, listener: Listener, number: int = 0) -> None:
        """Submit one message."""
        self.pool.submit(Batch(Handler.of(listener), [received(number)], self.source))

    async def _finish(self, batch: Batch, result: ConsumeResult) -> None:
        self.ended.put_nowait((batch.messages[0].queue_offset, result))


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    """Yield a running pool."""
    async with TaskScope() as scope:
        running = Bench()
        running.pool.start(scope)
        yield running
        running.pool.close()


async def async_none(_: list[ReceivedMessage]) -> None:
    """Succeed."""


async def async_retry(_: list[ReceivedMessage]) -> ConsumeResult:
    """Fail politely."""
    return ConsumeResult.RETRY


async def async_error(_: list[ReceivedMessage]) -> None:
    """Fail."""
    raise RuntimeError


async def async_cancelled(_: list[ReceivedMessage]) -> None:
    """Fail as code does whose inner task was cancelled."""
    raise asyncio.CancelledError


async def async_nonsense(_: list[ReceivedMessage]) -> ConsumeResult:
    """Return what no listener may return."""
    return 42  # pyright: ignore[reportReturnType] # the mistake


def blocking_none(_: list[ReceivedMessage]) -> None:
    """Succeed in a thread."""


def blocking_retry(_: list[ReceivedMessage]) -> ConsumeResult:
    """Fail politely in a thread."""
    return ConsumeResult.RETRY


def blocking_error(_: list[ReceivedMessage]) -> None:
    """Fail in a thread."""
    raise RuntimeError


def blocking_then_async(messages: list[ReceivedMessage]) -> Awaitable[ConsumeResult]:
    """Return something to await from a thread."""
    return async_retry(messages)


class AsyncObject:
    """A callable object whose call is a coroutine function."""

    async def __call__(self, _: list[ReceivedMessage]) -> None:
        """Succeed."""


@pytest.mark.parametrize(
    ("listener", "result"),
    [
        (async_none, ConsumeResult.SUCCESS),
        (async_retry, ConsumeResult.RETRY),
        (async_error, ConsumeResult.RETRY),
        (async_cancelled, ConsumeResult.RETRY),
        (async_nonsense, ConsumeResult.RETRY),
        (AsyncObject(), ConsumeResult.SUCCESS),
        (blocking_none, ConsumeResult.SUCCESS),
        (blocking_retry, ConsumeResult.RETRY),
        (blocking_error, ConsumeResult.RETRY),
        (blocking_then_async, ConsumeResult.RETRY),
    ],
)
async def test_outcome_of_a_listener(bench: Bench, listener: Listener, result: ConsumeResult) -> None:
    """Ending is success, RETRY and any exception are failures; the pool outlives them all."""
    bench.submit(listener)
    assert await bench.ended.get() == (0, result)

    bench.submit(async_none)
    assert await bench.ended.get() == (0, ConsumeResult.SUCCESS)


async def test_synchronous_listener_does_not_run_on_the_loop(bench: Bench) -> None:
    """It may block: it has a thread of its own, an asynchronous one runs on the loop."""
    threads: list[int] = []

    def blocking(_: list[ReceivedMessage]) -> None:
        threads.append(threading.get_ident())

    async def waiting(_: list[ReceivedMessage]) -> None:
        threads.append(threading.get_ident())

    for listener in (blocking, waiting):
        bench.submit(listener)
        await bench.ended.get()

    assert [thread == threading.get_ident() for thread in threads] == [False, True]


async def test_concurrency_is_limited(bench: Bench) -> None:
    """Two of three run, the third waits until one has ended."""
    running, may_end = 0, asyncio.Event()
    begun: asyncio.Queue[int] = asyncio.Queue()

    async def slow(messages: list[ReceivedMessage]) -> None:
        nonlocal running
        running += 1
        begun.put_nowait(messages[0].queue_offset)
        await may_end.wait()
        running -= 1

    for number in range(3):
        bench.submit(slow, number)
    assert [await begun.get(), await begun.get()] == [0, 1]
    assert running == 2
    assert begun.empty()

    may_end.set()
    assert await begun.get() == 2


async def test_batch_of_a_dropped_queue_is_not_run(bench: Bench) -> None:
    """Another member has the queue now and will get the message."""
    calls: list[int] = []
    bench.source.drop()
    bench.submit(lambda messages: calls.append(len(messages)))
    bench.pool.submit(Batch(Handler.of(async_none), [received(9)], owned_queue()))

    assert await bench.ended.get() == (9, ConsumeResult.SUCCESS)
    assert calls == []


async def test_drain_waits_for_what_runs_and_drops_the_rest(bench: Bench) -> None:
    """Running listeners end, waiting batches do not begin."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_: list[ReceivedMessage]) -> None:
        begun.set()
        await may_end.wait()

    bench.submit(slow, 1)
    await begun.wait()
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(bench.pool.drain())
        await asyncio.sleep(0)
        bench.submit(async_none, 2)
        assert not draining.done()
        may_end.set()
    assert await bench.ended.get() == (1, ConsumeResult.SUCCESS)
    assert bench.ended.empty()


async def test_close_does_not_wait_for_a_stuck_thread() -> None:
    """A blocking listener that never ends keeps its thread, not the loop."""
    may_end, has_begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stuck(_: list[ReceivedMessage]) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        may_end.wait()

    async with TaskScope() as scope:
        bench = Bench()
        bench.pool.start(scope)
        bench.submit(stuck)
        await has_begun.wait()
    bench.pool.close()
    may_end.set()
    assert bench.ended.empty()


@pytest.mark.parametrize(
    ("topics", "size", "cut"), [("AAAAA", 2, [2, 2, 1]), ("AAABBA", 2, [2, 1, 2, 1]), ("AA", 1, [1, 1]), ("", 3, [])]
)
def test_batches_have_one_topic_and_a_limited_size(topics: str, size: int, cut: list[int]) -> None:
    """Retry messages of several topics never meet in one call."""
    messages = [received(number, topic=topic) for number, topic in enumerate(topics)]
    batches = cut_batches(messages, size)

    assert [len(batch) for batch in batches] == cut
    assert [message for batch in batches for message in batch] == messages
