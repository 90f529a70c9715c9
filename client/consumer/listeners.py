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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

from ...common.clock import Clock
from ...common.message import ReceivedMessage, describe_messages
from ..group.consumer_hooks import ConsumerHooks, ListenerOutcome
from ..session.callbacks import CallbackRunner, is_async
from ..session.results import ConsumeOutcome, ConsumeResult, Retry
from ..session.settings import PushConsumerSettings
from .send_back import MessageReturner

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


class ListenerCalls:
    """Calls a group's listeners, blocking ones in at most so many threads; ``attempt`` never raises what they raise."""

    def __init__(self, group: str, max_threads: int, hooks: ConsumerHooks | None = None) -> None:
        self._group = group
        self._hooks = hooks
        self.attempt = self._attempt if hooks is None else self._attempt_seen
        self._calls = CallbackRunner(max_threads, "rocketlet-listener")

    def __repr__(self) -> str:
        return f"<ListenerCalls {self._calls!r}>"

    async def _attempt_seen(self, handler: Handler, messages: list[ReceivedMessage]) -> ListenerOutcome:
        assert self._hooks is not None, "chosen when there are some"
        return await self._hooks.attempt(messages, self._attempt(handler, messages))

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
    """What a way of consuming works with; ``returner`` is None for broadcasting."""

    settings: PushConsumerSettings
    clock: Clock
    handlers: Mapping[str, Handler]
    calls: ListenerCalls
    returner: MessageReturner | None
