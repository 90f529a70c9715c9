"""Listeners at work: how the user's code is called, and what becomes of what it does.

    listener ...                  is run
    an async function             on the event loop
    any other callable            in a thread, so that it may block; what it returns is awaited if it can be

    it ends with ...              the messages are
    None, ConsumeResult.SUCCESS   finished
    ConsumeResult.RETRY, Retry    failed, and come again later
    any exception                 failed; logged with its traceback. This is the fault boundary of the user's code

(Java's listeners take null for a failure; in Python a function that just ends has succeeded.)
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self

from ...common.clock import Clock
from ...common.message import ReceivedMessage, describe_messages
from ..group.broker_requests import PullObserver
from ..group.offsets import QueueOffsets
from ..session.callbacks import CallbackRunner, is_async
from ..session.hooks import (
    ConsumeContext,
    ConsumeEnd,
    ConsumeHook,
    FilterHook,
    HookOwner,
    PullHook,
    Role,
    attach_hooks,
    hooks_of,
    tell_hooks,
)
from ..session.results import ConsumeOutcome, ConsumeResult, Retry
from ..session.session import Session
from ..session.settings import PushConsumerSettings
from .send_back import MessageReturner

ListenerOutcome = ConsumeOutcome | BaseException | None
"""How a call of a listener ended: what it returned, or what it raised."""


class ConsumeObserver:
    """The hooks of one consumer, around the calls of its listeners."""

    def __init__(self, clock: Clock, group: str, hooks: Iterable[object], timeout_ms: int) -> None:
        self._clock = clock
        self._group = group
        self._hooks = hooks_of(ConsumeHook, hooks)
        self._timeout_ms = timeout_ms

    def __repr__(self) -> str:
        return f"<ConsumeObserver of {self._group}, {len(self._hooks)} hooks>"

    async def attempt(
        self, messages: Sequence[ReceivedMessage], calling: Awaitable[ListenerOutcome]
    ) -> ListenerOutcome:
        """Wait for a call of a listener and return how it ended."""
        now_ms = self._clock.now_ms
        context = ConsumeContext(group=self._group, messages=messages, queue=messages[0].queue, started_at_ms=now_ms())
        tell_hooks([hook.before_consume for hook in self._hooks], context)
        outcome: ListenerOutcome = None
        try:
            outcome = await calling
        except BaseException as error:
            outcome = error
            raise
        finally:
            self._note(context, outcome)
            tell_hooks([hook.after_consume for hook in self._hooks], context)
        return outcome

    def hand_out(self, messages: Sequence[ReceivedMessage]) -> None:
        """Tell that messages were handed out, of which it is not known what becomes of them (as Java's ``poll``)."""
        now_ms, queue = self._clock.now_ms(), messages[0].queue
        context = ConsumeContext(
            group=self._group, messages=messages, queue=queue, started_at_ms=now_ms, is_polled=True
        )
        tell_hooks([hook.before_consume for hook in self._hooks], context)
        context.ended_at_ms, context.has_succeeded, context.end = now_ms, True, ConsumeEnd.SUCCESS
        tell_hooks([hook.after_consume for hook in self._hooks], context)

    def _note(self, context: ConsumeContext, outcome: ListenerOutcome) -> None:
        context.ended_at_ms = self._clock.now_ms()
        context.has_succeeded = outcome in (None, ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
        if isinstance(outcome, BaseException):
            context.error, context.end = outcome, ConsumeEnd.EXCEPTION
        elif context.ended_at_ms - context.started_at_ms >= self._timeout_ms:
            context.end = ConsumeEnd.TIME_OUT
        else:
            context.end = ConsumeEnd.SUCCESS if context.has_succeeded else ConsumeEnd.FAILED


class ConsumerObservers(NamedTuple):
    """What looks on at a consumer, where there is something that does."""

    calls: ConsumeObserver | None
    pulls: PullObserver | None


@asynccontextmanager
async def observe_consumer(
    session: Session, group: str, hooks: Iterable[object], timeout_ms: int
) -> AsyncGenerator[ConsumerObservers]:
    """Use the hooks of a consumer while it is open."""
    async with attach_hooks(HookOwner(session, group, Role.CONSUMER), hooks) as attached:
        sees_calls = any(isinstance(hook, ConsumeHook) for hook in attached)
        sees_pulls = any(isinstance(hook, PullHook | FilterHook) for hook in attached)
        yield ConsumerObservers(
            ConsumeObserver(session.clock, group, attached, timeout_ms) if sees_calls else None,
            PullObserver(session.clock, group, attached) if sees_pulls else None,
        )


_log = logging.getLogger(__name__)

Listener = Callable[[list[ReceivedMessage]], Awaitable[ConsumeOutcome | None] | ConsumeOutcome | None]


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
    _log.warning("no listener for topic %s any more, retrying %s", messages[0].topic, describe_messages(messages))
    return ConsumeResult.RETRY


NO_HANDLER = Handler.of(_refuse_unknown)


Call = Callable[[Handler, list[ReceivedMessage]], Awaitable[ListenerOutcome]]


class ListenerCalls:
    """Calls a group's listeners, blocking ones in at most so many threads; ``attempt`` never raises what they raise."""

    def __init__(self, group: str, max_threads: int) -> None:
        self._group = group
        self.attempt: Call = self._attempt
        self._calls = CallbackRunner(max_threads, "rocketlet-listener")

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
            _log.warning(
                "group %s: the listener was cancelled from within at %s", self._group, describe_messages(messages)
            )
            return error
        except Exception as error:  # fault boundary of the user's code: the messages come again
            _log.exception("group %s: the listener failed at %s", self._group, describe_messages(messages))
            return error
        if result is None or isinstance(result, (ConsumeResult, Retry)):  # pyright: ignore[reportUnnecessaryIsInstance] # user code
            return result
        text = "group %s: the listener returned %r, not a ConsumeResult, for %s"
        _log.error(text, self._group, result, describe_messages(messages))
        return TypeError(f"the listener returned {type(result).__name__}, not a ConsumeResult")

    def close(self) -> None:
        """End the threads; one that is stuck in a listener is let go and ends with it."""
        self._calls.close()


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


class ConsumeEnvironment(NamedTuple):
    """What a way of consuming works with; ``returns`` is None for broadcasting."""

    settings: PushConsumerSettings
    clock: Clock
    handlers: Mapping[str, Handler]
    calls: ListenerCalls
    returner: MessageReturner | None
    offsets: QueueOffsets
