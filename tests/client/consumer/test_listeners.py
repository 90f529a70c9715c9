"""Listeners at work."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Sequence

import pytest
from received import received

from rocketlet.client.consumer.listeners import (
    Handler,
    Listener,
    ListenerBatch,
    ListenerCalls,
    ListenerPool,
    cut_batches,
)
from rocketlet.client.group.consumer_hooks import ListenerOutcome
from rocketlet.client.group.process_queue import PushQueue, QueueOffsets
from rocketlet.client.session.results import ConsumeResult, Retry
from rocketlet.client.session.settings import PushConsumerSettings
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.remoting.transport.event_loop import TaskScope
from rocketlet.testing import ManualClock


class Finishing(PushQueue):
    """A queue that remembers what was finished."""

    def __init__(self, ended: "asyncio.Queue[tuple[int, ListenerOutcome]]") -> None:
        queue = MessageQueue("T", "broker-a", 0)
        super().__init__(queue, QueueOffsets(), PushConsumerSettings(), lambda _source, _messages: None, ManualClock())
        self._ended = ended

    def finish(self, messages: Sequence[ReceivedMessage]) -> None:
        """Remember a success."""
        self._ended.put_nowait((messages[0].queue_offset, None))


class Bench:
    """A pool of two workers that remembers how batches ended: with None, or with what is not a success."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[tuple[int, ListenerOutcome]] = asyncio.Queue()
        self.source = Finishing(self.ended)
        self.calls = ListenerCalls("cg", 2)
        self.pool = ListenerPool(2, self.calls, self.fail)

    def submit(self, listener: Listener, number: int = 0) -> None:
        """Submit one message."""
        self.pool.submit([ListenerBatch(Handler.of(listener), [received(number)], self.source)])

    async def fail(self, batch: ListenerBatch, outcome: ListenerOutcome) -> None:
        """Remember what is not a success."""
        self.ended.put_nowait((batch.messages[0].queue_offset, outcome))


@pytest.fixture
async def bench() -> AsyncGenerator[Bench]:
    """Yield a running pool."""
    async with TaskScope() as scope:
        running = Bench()
        running.pool.start(scope)
        yield running
        running.calls.close()


async def async_none(_: list[ReceivedMessage]) -> None:
    """Succeed."""


async def async_retry(_: list[ReceivedMessage]) -> ConsumeResult:
    """Fail politely."""
    return ConsumeResult.RETRY


async def async_tail(_: list[ReceivedMessage]) -> Retry:
    """Fail from the second message on."""
    return Retry(from_index=1)


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
    ("listener", "outcome"),
    [
        (async_none, None),
        (async_retry, ConsumeResult.RETRY),
        (async_tail, Retry(from_index=1)),
        (async_error, RuntimeError),
        (async_cancelled, asyncio.CancelledError),
        (async_nonsense, TypeError),
        (AsyncObject(), None),
        (blocking_none, None),
        (blocking_retry, ConsumeResult.RETRY),
        (blocking_error, RuntimeError),
        (blocking_then_async, ConsumeResult.RETRY),
    ],
)
async def test_outcome_of_a_listener(
    bench: Bench, listener: Listener, outcome: ListenerOutcome | type[BaseException]
) -> None:
    """Ending is success; what else is returned or raised is a failure with its reason, and the pool outlives it."""
    bench.submit(listener)
    place, ended = await bench.ended.get()
    assert place == 0
    assert isinstance(ended, outcome) if isinstance(outcome, type) else ended == outcome, ended

    bench.submit(async_none)
    assert await bench.ended.get() == (0, None)


async def test_failed_message_is_named_in_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """By its group, its id, its place and its attempt, so that an operator finds it."""
    bench.submit(async_error, 7)
    await bench.ended.get()
    message = received(7)
    assert caplog.messages == [
        f"group cg: the listener failed at message {message.message_id} ({message.queue} offset 7, attempt 1)"
    ]


def _takes_nothing() -> None:
    """Cannot be called with messages."""


def _takes_two(_messages: object, _context: object) -> None:
    """Wants a context as Java's listeners do."""


@pytest.mark.parametrize(
    ("listener", "sentence"),
    [
        (None, "the listener is NoneType, it must be callable"),
        (_takes_nothing, "a listener takes one argument, the list of messages: too many positional arguments"),
        (_takes_two, "a listener takes one argument, the list of messages: missing a required argument: '_context'"),
    ],
)
def test_listener_that_cannot_get_messages_is_refused(listener: Listener, sentence: str) -> None:
    """The mistake is told where it is made, not with the first message."""
    with pytest.raises(TypeError, match=sentence):
        Handler.of(listener)


def test_listener_without_a_signature_is_taken() -> None:
    """Some built-in functions cannot be asked what they take."""
    assert not Handler.of(list[ReceivedMessage]().extend).is_async
    assert not Handler.of(print).is_async


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
    bench.pool.submit([ListenerBatch(Handler.of(async_none), [received(9)], Finishing(bench.ended))])

    assert await bench.ended.get() == (9, None)
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
    assert await bench.ended.get() == (1, None)
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
    bench.calls.close()
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


async def test_listeners_run_after_what_was_planned_for_the_same_turn(bench: Bench) -> None:
    """Who submits messages and plans something at once, as a puller its next request, has that done first."""
    order: list[str] = []

    async def note(_messages: list[ReceivedMessage]) -> None:
        order.append("listener")

    await asyncio.sleep(0)  # the workers have begun and wait
    bench.submit(note)
    asyncio.get_running_loop().call_soon(order.append, "next request")
    await bench.ended.get()

    assert order == ["next request", "listener"]


async def test_listener_that_never_waits_leaves_the_loop_to_others() -> None:
    """After 64 calls everybody else has a turn, and not after each, which would cost as much as the calls."""
    bench, turns = Bench(), 0
    pool = ListenerPool(1, bench.calls, bench.fail)
    turns_at_calls: list[int] = []

    async def note(_messages: list[ReceivedMessage]) -> None:
        turns_at_calls.append(turns)

    async with TaskScope() as scope:
        pool.start(scope)
        pool.submit([ListenerBatch(Handler.of(note), [received(number)], bench.source) for number in range(200)])
        while len(turns_at_calls) < 200:
            await asyncio.sleep(0)
            turns += 1
    assert sorted(Counter(turns_at_calls).values()) == [8, 64, 64, 64]
