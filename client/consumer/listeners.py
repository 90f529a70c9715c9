"""Listeners at work: how the user's code is called, and what becomes of what it does.

    listener ...                  is run
    an async function             on the event loop
    any other callable            in a thread, so that it may block; what it returns is awaited if it can be

    it ends with ...              the messages are
    None, ConsumeResult.SUCCESS   finished
    ConsumeResult.RETRY, Retry    failed, and come again later
    any exception                 failed; logged with its traceback. This is the fault boundary of the user's code

(Java's listeners take null for a failure; in Python a function that just ends has succeeded.)

``ListenerPool`` runs ``concurrency`` batches at a time, in no order. What waits here is bounded by the flow control of
the queues.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Self

import msgspec

from ...common.message import ReceivedMessage, describe_messages
from ...remoting.transport.tasks import TaskScope
from ..session.callbacks import UserCalls, is_async
from ..session.results import ConsumeOutcome, ConsumeResult, Retry
from .consume_hooks import ConsumeObserver, ListenerOutcome
from .process_queue import PushQueue

log = logging.getLogger(__name__)

Listener = Callable[[list[ReceivedMessage]], Awaitable[ConsumeOutcome | None] | ConsumeOutcome | None]

_BATCHES_BETWEEN_TURNS = 64  # a listener that never waits must not keep the loop for itself


class Handler(NamedTuple):
    """A listener, and whether calling it gives something to await and does not block."""

    listener: Listener
    is_async: bool

    @classmethod
    def of(cls, listener: Listener) -> Self:
        """Look at a listener once, not at every call.

        Raises:
            TypeError: it cannot be called, or not with one argument.
        """
        if not callable(listener):
            raise TypeError(f"the listener is {type(listener).__name__}, it must be callable")
        _check_signature(listener)
        return cls(listener, is_async(listener))


def _check_signature(listener: Listener) -> None:
    try:
        signature = inspect.signature(listener)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind([])
    except TypeError as error:
        raise TypeError(f"a listener takes one argument, the list of messages: {error}") from None


async def _refuse_unknown(messages: list[ReceivedMessage]) -> ConsumeResult:
    """Send back messages of a topic that nobody listens to any more, so that they are not lost."""
    log.warning("no listener for topic %s any more, retrying %s", messages[0].topic, describe_messages(messages))
    return ConsumeResult.RETRY


NO_HANDLER = Handler.of(_refuse_unknown)


Call = Callable[[Handler, list[ReceivedMessage]], Awaitable[ListenerOutcome]]


class ListenerCalls:
    """Calls a group's listeners, blocking ones in at most so many threads; ``attempt`` never raises what they raise."""

    def __init__(self, group: str, max_threads: int) -> None:
        self._group = group
        self.attempt: Call = self._attempt
        self._calls = UserCalls(max_threads, "rocketlet-listener")

    def __repr__(self) -> str:
        return f"<ListenerCalls {self._calls!r}>"

    def observe(self, observer: ConsumeObserver) -> None:
        """Let hooks see the calls from now on."""

        async def attempt(handler: Handler, messages: list[ReceivedMessage]) -> ListenerOutcome:
            return await observer.attempt(messages, self._attempt(handler, messages))

        self.attempt = attempt

    async def _attempt(self, handler: Handler, messages: list[ReceivedMessage]) -> ListenerOutcome:
        """Call a listener and return what it returned or raised; nothing it does is raised here."""
        try:
            if handler.is_async:
                answering: Any = handler.listener(messages)
                result: ConsumeOutcome | None = await answering
            else:
                result = await self._calls.call_in_thread(handler.listener, messages)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.warning(
                "group %s: the listener was cancelled from within at %s", self._group, describe_messages(messages)
            )
            return error
        except Exception as error:  # fault boundary of the user's code: the messages come again
            log.exception("group %s: the listener failed at %s", self._group, describe_messages(messages))
            return error
        if result is None or isinstance(result, (ConsumeResult, Retry)):  # pyright: ignore[reportUnnecessaryIsInstance] # user code
            return result
        text = "group %s: the listener returned %r, not a ConsumeResult, for %s"
        log.error(text, self._group, result, describe_messages(messages))
        return TypeError(f"the listener returned {type(result).__name__}, not a ConsumeResult")

    def close(self) -> None:
        """End the threads; one that is stuck in a listener is let go and ends with it."""
        self._calls.close()


class Batch(msgspec.Struct, frozen=True, eq=False):
    """Messages of one topic that a listener gets in one call."""

    handler: Handler
    messages: list[ReceivedMessage]
    source: PushQueue


Fail = Callable[[Batch, ListenerOutcome], Awaitable[None]]


class ListenerPool:
    """Runs batches, a fixed number at a time; ``fail`` gets those that did not simply succeed.

    A batch whose queue was given up before its turn is not run at all. Workers are woken one after the other, each by
    the one before while there is work: listeners that never wait keep one worker busy, others get them all.
    """

    def __init__(self, concurrency: int, calls: ListenerCalls, fail: Fail) -> None:
        self._calls = calls
        self._fail = fail
        self._waiting: deque[Batch] = deque()
        self._at_work: list[Batch | None] = [None] * concurrency
        self._sleepers: deque[asyncio.Future[None]] = deque()
        self._is_waking = False
        self._idle = asyncio.Event()
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<ListenerPool {len(self.running())} running, {len(self._waiting)} waiting>"

    def start(self, scope: TaskScope) -> None:
        """Start the workers."""
        for number in range(len(self._at_work)):
            scope.start(self._work(number), name=f"listener-{number}")

    def submit(self, *batches: Batch) -> None:
        """Let batches wait for their turn."""
        self._waiting.extend(batches)
        if self._sleepers and not self._is_waking:  # soon: the next pull is to be on its way before listeners run
            asyncio.get_running_loop().call_soon(self._wake_one)

    def running(self) -> list[Batch]:
        """Return the batches whose listeners run now."""
        return [batch for batch in self._at_work if batch is not None]

    async def drain(self) -> None:
        """Drop what has not begun and wait until nothing runs."""
        self._is_closing = True
        if self.running():
            await self._idle.wait()

    def _wake_one(self) -> None:
        while self._sleepers and not self._is_waking:
            awoken = self._sleepers.popleft()
            if not awoken.done():  # else its worker was cancelled
                self._is_waking = True
                awoken.set_result(None)

    async def _sleep(self) -> None:
        awoken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append(awoken)
        try:
            await awoken
        finally:
            self._is_waking = False

    async def _work(self, number: int) -> None:
        calls, waiting, at_work, turns = self._calls, self._waiting, self._at_work, 0
        while True:
            while not waiting:
                await self._sleep()
            batch = waiting.popleft()
            if waiting and self._sleepers and not self._is_waking:
                self._wake_one()
            if self._is_closing or batch.source.is_dropped:
                continue
            at_work[number] = batch
            outcome = await calls.attempt(batch.handler, batch.messages)
            if outcome is None or outcome is ConsumeResult.SUCCESS:
                batch.source.finish(batch.messages)
            else:
                await self._fail(batch, outcome)
            at_work[number] = None
            if self._is_closing and not self.running():
                self._idle.set()
            turns += 1
            if turns % _BATCHES_BETWEEN_TURNS == 0:
                await asyncio.sleep(0)


def cut_batches(messages: Iterable[ReceivedMessage], size: int) -> list[list[ReceivedMessage]]:
    """Cut messages into lists of at most ``size`` that each have one topic."""
    if size == 1:
        return [[message] for message in messages]
    batches: list[list[ReceivedMessage]] = []
    for message in messages:
        if not batches or len(batches[-1]) == size or batches[-1][0].topic != message.topic:
            batches.append([])
        batches[-1].append(message)
    return batches


def retry_of(outcome: ListenerOutcome) -> Retry:
    """Return what a failure says about the messages; any but a ``Retry`` is about all of them."""
    return outcome if isinstance(outcome, Retry) else Retry()
