"""What hooks see of a consumer: each answer to a pull, and each call of a listener.

    PullHook       learns what a pull brought
    FilterHook     chooses among pulled messages
    ConsumeHook    before and after each call of a listener; of a pull consumer when messages are handed out

A consumer without hooks has no ``ConsumerHooks``. They look on from when the consumer opens until it closes.
"""

from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager

from ...common.message import MessageQueue, ReceivedMessage
from ..session.hooks import (
    ConsumeContext,
    ConsumeEnd,
    ConsumeHook,
    FilterHook,
    PullContext,
    PullHook,
    Role,
    hooks_of,
    keeps_message,
    tell_hooks,
)
from ..session.results import ConsumeOutcome, ConsumeResult
from ..session.session import HookOwner, Session, attach_hooks

ListenerOutcome = ConsumeOutcome | BaseException | None
"""How a call of a listener ended: what it returned, or what it raised."""


class ConsumerHooks:
    """The hooks of one consumer; a call that lasts ``timeout_ms`` or longer counts as timed out."""

    def __init__(self, session: Session, group: str, hooks: Iterable[object], timeout_ms: int) -> None:
        self._session = session
        self._group = group
        self._hooks = tuple(hooks)
        self._timeout_ms = timeout_ms
        self._use(())

    def __repr__(self) -> str:
        return f"<ConsumerHooks of {self._group}, {len(self._calls)} of calls, {len(self._filters)} filters>"

    @asynccontextmanager
    async def attached(self) -> AsyncGenerator[None]:
        """Look on while the consumer is open."""
        async with attach_hooks(HookOwner(self._session, self._group, Role.CONSUMER), self._hooks) as attached:
            self._use(attached)
            yield

    def _use(self, hooks: Iterable[object]) -> None:
        self._pulls = hooks_of(PullHook, hooks)
        self._filters = hooks_of(FilterHook, hooks)
        self._calls = hooks_of(ConsumeHook, hooks)

    def take(self, queue: MessageQueue, messages: list[ReceivedMessage], started_at_ms: int) -> list[ReceivedMessage]:
        """Return those of the messages of a pull that are wanted."""
        if self._pulls:
            context = PullContext(self._group, queue, messages, started_at_ms, self._session.clock.now_ms())
            tell_hooks([hook.after_pull for hook in self._pulls], context)
        if not self._filters:
            return messages
        return [message for message in messages if keeps_message(self._filters, self._group, message)]

    async def attempt(
        self, messages: Sequence[ReceivedMessage], calling: Awaitable[ListenerOutcome]
    ) -> ListenerOutcome:
        """Wait for a call of a listener and return how it ended."""
        if not self._calls:
            return await calling
        context = self._context(messages)
        tell_hooks([hook.before_consume for hook in self._calls], context)
        outcome: ListenerOutcome = None
        try:
            outcome = await calling
        except BaseException as error:
            outcome = error
            raise
        finally:
            self._note(context, outcome)
            tell_hooks([hook.after_consume for hook in self._calls], context)
        return outcome

    def hand_out(self, messages: Sequence[ReceivedMessage]) -> None:
        """Tell that messages were handed out, of which it is not known what becomes of them (as Java's ``poll``)."""
        if self._calls:
            context = self._context(messages, is_polled=True)
            tell_hooks([hook.before_consume for hook in self._calls], context)
            context.ended_at_ms, context.has_succeeded = context.started_at_ms, True
            context.end = ConsumeEnd.SUCCESS
            tell_hooks([hook.after_consume for hook in self._calls], context)

    def _context(self, messages: Sequence[ReceivedMessage], *, is_polled: bool = False) -> ConsumeContext:
        return ConsumeContext(
            group=self._group,
            messages=messages,
            queue=messages[0].queue,
            started_at_ms=self._session.clock.now_ms(),
            is_polled=is_polled,
        )

    def _note(self, context: ConsumeContext, outcome: ListenerOutcome) -> None:
        context.ended_at_ms = self._session.clock.now_ms()
        context.has_succeeded = outcome in (None, ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
        if isinstance(outcome, BaseException):
            context.error, context.end = outcome, ConsumeEnd.EXCEPTION
        elif context.ended_at_ms - context.started_at_ms >= self._timeout_ms:
            context.end = ConsumeEnd.TIME_OUT
        else:
            context.end = ConsumeEnd.SUCCESS if context.has_succeeded else ConsumeEnd.FAILED
