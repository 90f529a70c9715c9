"""Hooks around the calls of listeners, and what a consumer has of all its hooks while it is open."""

from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from ...common.clock import Clock
from ...common.message import ReceivedMessage
from ..group.broker_requests import PullObserver
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
from ..session.results import ConsumeOutcome, ConsumeResult
from ..session.session import Session

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
