"""Hooks at work: around attempts to send, calls of listeners and pulls.

Each class is made only where there are hooks, and takes the place of what it goes around, so that a producer or
consumer without hooks does nothing more than before.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import msgspec

from ...common.clock import Clock
from ...common.message import MessageQueue, ReceivedMessage
from ...common.properties import encode_properties, parse_properties
from ...common.record import BatchPart, decode_batch, encode_batch
from .hooks import (
    ConsumeContext,
    ConsumeEnd,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    FilterHook,
    ForbiddenHook,
    HookOwner,
    HookSource,
    PullContext,
    PullHook,
    Role,
    SendContext,
    SendHook,
    SentMessage,
    hooks_of,
    keeps_message,
    tell_hooks,
)
from .outgoing import Outgoing
from .results import ConsumeOutcome, ConsumeResult, SendResult
from .session import Session

Attempt = Callable[[Outgoing, MessageQueue, int], Awaitable[SendResult]]
Outcome = ConsumeOutcome | BaseException | None
"""How a call of a listener ended: what it returned, or what it raised."""


@asynccontextmanager
async def attach_hooks(owner: HookOwner, hooks: Iterable[object]) -> AsyncGenerator[tuple[object, ...]]:
    """Let sources make the hooks of a producer or consumer; yield all its hooks in their order."""
    async with AsyncExitStack() as stack:
        yield tuple(
            [
                await stack.enter_async_context(hook.attach(owner)) if isinstance(hook, HookSource) else hook
                for hook in hooks
            ]
        )


def sees_sends(hooks: Iterable[object]) -> bool:
    """Tell whether one of the hooks of a producer has to do with its sends, or may turn out to."""
    return any(isinstance(hook, SendHook | ForbiddenHook | EndTransactionHook | HookSource) for hook in hooks)


class SendObserver:
    """The hooks of one producer, around its attempts."""

    def __init__(self, session: Session, group: str, attempt: Attempt) -> None:
        self._session = session
        self._group = group
        self._attempt = attempt
        self._use(())

    def __repr__(self) -> str:
        return f"<SendObserver of {self._group}, {len(self._sends)} hooks>"

    @asynccontextmanager
    async def attached(self, hooks: Iterable[object]) -> AsyncGenerator[None]:
        """Use hooks while the producer is open."""
        async with attach_hooks(HookOwner(self._session, self._group, Role.PRODUCER), hooks) as attached:
            self._use(attached)
            yield

    def _use(self, hooks: tuple[object, ...]) -> None:
        self._sends = hooks_of(SendHook, hooks)
        self._checks = hooks_of(ForbiddenHook, hooks)
        self._ends = hooks_of(EndTransactionHook, hooks)

    async def attempt(self, outgoing: Outgoing, queue: MessageQueue, timeout_ms: int) -> SendResult:
        """Make an attempt.

        Raises:
            BaseException: what the attempt raises, or a hook that forbids it.
        """
        context = self._context(outgoing, queue, is_oneway=False)
        changed = self._begin(context, outgoing)
        try:
            context.result = await self._attempt(changed, queue, timeout_ms)
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._finish(context)
        return context.result

    async def send_oneway(
        self, outgoing: Outgoing, queue: MessageQueue, send: Callable[[Outgoing], Awaitable[None]]
    ) -> None:
        """Make an attempt that is not answered.

        Raises:
            BaseException: as ``attempt``.
        """
        context = self._context(outgoing, queue, is_oneway=True)
        changed = self._begin(context, outgoing)
        try:
            await send(changed)
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._finish(context)

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Tell that a transaction ends."""
        tell_hooks([hook.end_transaction for hook in self._ends], context)

    def _context(self, outgoing: Outgoing, queue: MessageQueue, *, is_oneway: bool) -> SendContext:
        return SendContext(
            group=self._group,
            messages=_messages_of(outgoing),
            message_id=outgoing.message_id,
            queue=queue,
            address=self._session.master_of(queue.broker_name),
            started_at_ms=self._session.clock.now_ms(),
            is_oneway=is_oneway,
        )

    def _finish(self, context: SendContext) -> None:
        context.ended_at_ms = self._session.clock.now_ms()
        tell_hooks([hook.after_send for hook in self._sends], context)

    def _begin(self, context: SendContext, outgoing: Outgoing) -> Outgoing:
        for check in self._checks:
            check.check_send(context)
        tell_hooks([hook.before_send for hook in self._sends], context)
        return _with_properties(outgoing, context.properties) if context.properties else outgoing


class ConsumeObserver:
    """The hooks of one consumer, around the calls of its listeners."""

    def __init__(self, clock: Clock, group: str, hooks: Iterable[object], timeout_ms: int) -> None:
        self._clock = clock
        self._group = group
        self._hooks = hooks_of(ConsumeHook, hooks)
        self._timeout_ms = timeout_ms

    def __repr__(self) -> str:
        return f"<ConsumeObserver of {self._group}, {len(self._hooks)} hooks>"

    async def attempt(self, messages: Sequence[ReceivedMessage], calling: Awaitable[Outcome]) -> Outcome:
        """Wait for a call of a listener and return how it ended."""
        now_ms = self._clock.now_ms
        context = ConsumeContext(group=self._group, messages=messages, queue=messages[0].queue, started_at_ms=now_ms())
        tell_hooks([hook.before_consume for hook in self._hooks], context)
        outcome: Outcome = None
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

    def _note(self, context: ConsumeContext, outcome: Outcome) -> None:
        context.ended_at_ms = self._clock.now_ms()
        context.has_succeeded = outcome in (None, ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
        if isinstance(outcome, BaseException):
            context.error, context.end = outcome, ConsumeEnd.EXCEPTION
        elif context.ended_at_ms - context.started_at_ms >= self._timeout_ms:
            context.end = ConsumeEnd.TIME_OUT
        else:
            context.end = ConsumeEnd.SUCCESS if context.has_succeeded else ConsumeEnd.FAILED


class PullObserver:
    """The hooks of one consumer that see or choose what is pulled."""

    def __init__(self, clock: Clock, group: str, hooks: Iterable[object]) -> None:
        hooks = tuple(hooks)
        self._clock = clock
        self._group = group
        self._pulls = hooks_of(PullHook, hooks)
        self._filters = hooks_of(FilterHook, hooks)

    def __repr__(self) -> str:
        return f"<PullObserver of {self._group}, {len(self._filters)} filters>"

    def take(self, queue: MessageQueue, messages: list[ReceivedMessage], started_at_ms: int) -> list[ReceivedMessage]:
        """Return the messages that are wanted."""
        context = PullContext(self._group, queue, messages, started_at_ms, self._clock.now_ms())
        tell_hooks([hook.after_pull for hook in self._pulls], context)
        if not self._filters:
            return messages
        return [message for message in messages if keeps_message(self._filters, self._group, message)]


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


def _messages_of(outgoing: Outgoing) -> list[SentMessage]:
    if not outgoing.is_batch:
        return [SentMessage(outgoing.topic, outgoing.body, parse_properties(outgoing.property_text))]
    parts = decode_batch(outgoing.body)
    return [SentMessage(outgoing.topic, part.body, parse_properties(part.property_text)) for part in parts]


def _with_properties(outgoing: Outgoing, added: dict[str, str]) -> Outgoing:
    text = encode_properties(added | parse_properties(outgoing.property_text)).decode()
    if not outgoing.is_batch:
        return msgspec.structs.replace(outgoing, property_text=text)
    parts = [
        BatchPart(part.flag, part.body, encode_properties(added | parse_properties(part.property_text)))
        for part in decode_batch(outgoing.body)
    ]
    return msgspec.structs.replace(outgoing, property_text=text, body=encode_batch(parts))
