"""What hooks see of a send, and what they change in it: each attempt, from before it leaves until its end is known.

    ForbiddenHook        asked before each attempt; what it raises ends the send
    SendHook             before: may add properties, to each message of a batch; after: the result, or the error
    EndTransactionHook   told when a transaction ends

A producer whose hooks have nothing to do with sends has no observer.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec

from ...common.message import MessageQueue
from ...common.properties import encode_properties, parse_properties
from ...common.record import BatchPart, decode_batch, encode_batch
from ..session.hooks import (
    EndTransactionContext,
    EndTransactionHook,
    ForbiddenHook,
    HookSource,
    Role,
    SendContext,
    SendHook,
    SentMessage,
    hooks_of,
    tell_hooks,
)
from ..session.results import SendResult
from ..session.session import HookOwner, Session, attach_hooks
from .outgoing_message import OutgoingMessage

Attempt = Callable[[OutgoingMessage, MessageQueue, int], Awaitable[SendResult]]


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

    async def attempt(self, outgoing: OutgoingMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
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
        self, outgoing: OutgoingMessage, queue: MessageQueue, send: Callable[[OutgoingMessage], Awaitable[None]]
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

    def _context(self, outgoing: OutgoingMessage, queue: MessageQueue, *, is_oneway: bool) -> SendContext:
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

    def _begin(self, context: SendContext, outgoing: OutgoingMessage) -> OutgoingMessage:
        for check in self._checks:
            check.check_send(context)
        tell_hooks([hook.before_send for hook in self._sends], context)
        return _with_properties(outgoing, context.properties) if context.properties else outgoing


def _messages_of(outgoing: OutgoingMessage) -> list[SentMessage]:
    if not outgoing.is_batch:
        return [SentMessage(outgoing.topic, outgoing.body, parse_properties(outgoing.property_text))]
    parts = decode_batch(outgoing.body)
    return [SentMessage(outgoing.topic, part.body, parse_properties(part.property_text)) for part in parts]


def _with_properties(outgoing: OutgoingMessage, added: dict[str, str]) -> OutgoingMessage:
    text = encode_properties(added | parse_properties(outgoing.property_text)).decode()
    if not outgoing.is_batch:
        return msgspec.structs.replace(outgoing, property_text=text)
    parts = [
        BatchPart(part.flag, part.body, encode_properties(added | parse_properties(part.property_text)))
        for part in decode_batch(outgoing.body)
    ]
    return msgspec.structs.replace(outgoing, property_text=text, body=encode_batch(parts))
