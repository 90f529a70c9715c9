"""Hooks: what an application may look at, change or forbid on the way (Java's ``client.hook`` and ``RPCHook``).

    protocol             methods                             when
    SendHook             before_send, after_send             around each attempt to send, a batch counting as one
    ForbiddenHook        check_send                          before each attempt; what it raises ends the send
    ConsumeHook          before_consume, after_consume       around each call of a listener
    PullHook             after_pull                          after each answer to a pull
    FilterHook           keeps                               for each pulled message, after the tags were compared
    EndTransactionHook   end_transaction                     when a transaction is committed or rolled back
    RpcHook              before_request, after_response      around each request to brokers and name servers
    HookSource           attach                              when a producer or consumer opens; gives one of the above

An object may be several of them; those in ``settings.hooks`` are called in their order, on the event loop, and must not
block. What a hook raises is logged and ends nothing, but for ``check_send`` and the methods of ``RpcHook``, which may
refuse: their errors are those of the call.
"""

import enum
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from ...common.errors import ConfigError
from ...common.message import Message, MessageQueue, ReceivedMessage
from ...common.properties import KEYS, TAGS, UNIQ_KEY
from ...remoting.codec.command import Command
from .results import SendResult

_log = logging.getLogger(__name__)
T = TypeVar("T")


class ConsumeEnd(enum.IntEnum):
    """How a listener's call ended (Java's ``ConsumeReturnType``, whose ordinals travel in traces)."""

    SUCCESS = 0
    TIME_OUT = 1  # it took longer than the consume time-out
    EXCEPTION = 2
    RETURNED_NULL = 3  # of Java's listeners; ours succeed when they return None
    FAILED = 4  # it asked to have the messages again


class Role(enum.Enum):
    """What a hook was attached to."""

    PRODUCER = "PRODUCE"
    CONSUMER = "CONSUME"


class SentMessage(NamedTuple):
    """A message as it travels: with all its properties, and compressed if it is to be."""

    topic: str
    body: bytes
    properties: dict[str, str]

    @property
    def message_id(self) -> str:
        """The unique key."""
        return self.properties.get(UNIQ_KEY, "")

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        """The keys, joined by blanks."""
        return self.properties.get(KEYS)


@dataclass(slots=True, kw_only=True, eq=False)
class SendContext:
    """One attempt to send a message, or a batch.

    ``properties`` are added to each message as it is sent; those that it has already stay. ``notes`` is for what a hook
    wants to find again after the send.
    """

    group: str
    messages: Sequence[SentMessage]
    message_id: str
    queue: MessageQueue
    address: str
    started_at_ms: int
    is_oneway: bool = False
    properties: dict[str, str] = field(default_factory=dict[str, str])
    ended_at_ms: int = 0
    result: SendResult | None = None
    error: BaseException | None = None
    notes: dict[object, object] = field(default_factory=dict[object, object])


@dataclass(slots=True, kw_only=True, eq=False)
class ConsumeContext:
    """One call of a listener; ``end`` is None before it. ``has_succeeded`` says whether the messages are finished.

    A pull consumer has none: ``is_polled`` says that messages were handed out, which ends as it begins.
    """

    group: str
    messages: Sequence[ReceivedMessage]
    queue: MessageQueue
    started_at_ms: int
    is_polled: bool = False
    ended_at_ms: int = 0
    end: ConsumeEnd | None = None
    error: BaseException | None = None
    has_succeeded: bool = False
    notes: dict[object, object] = field(default_factory=dict[object, object])


@dataclass(slots=True, kw_only=True, eq=False, frozen=True)
class EndTransactionContext:
    """The end of a transaction; ``state`` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, in Java's spelling."""

    group: str
    message: Message | ReceivedMessage
    message_id: str
    transaction_id: str | None
    address: str
    state: str
    is_from_check: bool
    ended_at_ms: int


@runtime_checkable
class SendHook(Protocol):
    """Sees what is sent."""

    def before_send(self, context: SendContext, /) -> object:
        """Learn that an attempt begins; may add properties."""
        ...

    def after_send(self, context: SendContext, /) -> object:
        """Learn its result, or its error; a one-way send has neither."""
        ...


@runtime_checkable
class ForbiddenHook(Protocol):
    """May forbid to send."""

    def check_send(self, context: SendContext, /) -> object:
        """Raise when the messages must not be sent."""
        ...


@runtime_checkable
class ConsumeHook(Protocol):
    """Sees what listeners do."""

    def before_consume(self, context: ConsumeContext, /) -> object:
        """Learn that a listener will be called."""
        ...

    def after_consume(self, context: ConsumeContext, /) -> object:
        """Learn how it ended."""
        ...


class PullContext(NamedTuple):
    """One answer to a pull; the broker may have held the request while it had no messages."""

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    started_at_ms: int
    ended_at_ms: int


@runtime_checkable
class PullHook(Protocol):
    """Sees what is pulled."""

    def after_pull(self, context: PullContext, /) -> object:
        """Learn what a pull brought."""
        ...


@runtime_checkable
class FilterHook(Protocol):
    """Chooses among pulled messages."""

    def keeps(self, group: str, message: ReceivedMessage, /) -> bool:
        """Tell whether a message is handed out; one that is not counts as finished."""
        ...


@runtime_checkable
class EndTransactionHook(Protocol):
    """Sees how transactions end."""

    def end_transaction(self, context: EndTransactionContext, /) -> object:
        """Learn that the broker is told the end of a transaction."""
        ...


@runtime_checkable
class RpcHook(Protocol):
    """Sees every request and answer; ``request.ext`` holds the header fields, which may be changed."""

    def before_request(self, address: str, request: Command, /) -> object:
        """Learn that a request leaves."""
        ...

    def after_response(self, address: str, request: Command, answer: Command, /) -> object:
        """Learn the answer."""
        ...


@runtime_checkable
class HookSource(Protocol):
    """Makes a hook for each producer or consumer, which is entered when that opens and left when it closes."""

    def attach(self, owner: Any, /) -> "AbstractAsyncContextManager[Hook]":
        """Return what to enter; ``owner`` is a ``HookOwner``, which settings cannot name: it has a session."""
        ...


Hook = SendHook | ForbiddenHook | ConsumeHook | PullHook | FilterHook | EndTransactionHook | RpcHook
_KINDS = (SendHook, ForbiddenHook, ConsumeHook, PullHook, FilterHook, EndTransactionHook, RpcHook, HookSource)


def check_hooks(hooks: Iterable[object]) -> None:
    """Refuse an object that is no hook.

    Raises:
        ConfigError: it has none of the methods.
    """
    for index, hook in enumerate(hooks):
        if isinstance(hook, type) or not isinstance(hook, _KINDS):
            raise ConfigError(f"{hook!r} is no hook: it lacks the methods of every kind of hook", key=f"hooks[{index}]")


def hooks_of(kind: type[T], hooks: Iterable[object]) -> tuple[T, ...]:
    """Return the hooks of one kind, in their order."""
    return tuple(hook for hook in hooks if isinstance(hook, kind))


def tell_hooks(methods: Iterable[Callable[[T], object]], context: T) -> None:
    """Call hooks that only look on."""
    for method in methods:
        try:
            method(context)
        except Exception:  # fault boundary of the application's hooks: what they look at goes on
            _log.exception("the hook %r failed", method)


def keeps_message(hooks: Iterable[FilterHook], group: str, message: ReceivedMessage) -> bool:
    """Ask filters; one that fails keeps the message."""
    try:
        return all(hook.keeps(group, message) for hook in hooks)
    except Exception:  # fault boundary of the application's hooks: nothing is lost by a faulty filter
        _log.exception("a filter of group %s failed at message %s, which is kept", group, message.message_id)
        return True
