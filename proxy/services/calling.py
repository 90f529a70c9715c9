"""From a call to the function that serves it, and back: messages decoded and encoded, and who calls.

Rules

    1. Each answer has a status. A call without a client id is answered CLIENT_ID_REQUIRED, whatever it asks.
    2. Bytes that are no message end the call as UNKNOWN.
    3. The language, the date and the namespace of a caller are what it says; nothing depends on them.
    4. Who is admitted is decided once, before a request is served (``Admit``): by anybody's word, or as
       ``authorization.py`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError

from ...common.ids import Address, format_address
from ...common.outcome import Outcome
from ..messages import v2
from ..messages.enums import Code
from ..messages.statuses import status
from ..rpc.call import Call, GrpcStatus, UnaryMethod

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
_NAMES: Final = (b"x-mq-client-id", b"x-mq-language", b"x-mq-client-version")
NO_CLIENT_ID: Final = "client id cannot be empty"
A = TypeVar("A")


class Caller(NamedTuple):
    """Who calls, as its metadata say."""

    client_id: str
    language: str
    version: str
    address: Address
    user: str | None = None
    """The user who has signed the call, ``None`` where nobody is asked to, or need not have."""

    @property
    def host(self) -> str:
        """The address of its connection."""
        return format_address(*self.address)


class Answer(Protocol):
    """An answer that has a status."""

    @property
    def status(self) -> v2.Status:
        """What has become of the request."""
        ...

    def SerializeToString(self) -> bytes:  # noqa: N802 # protobuf's name
        """Return its bytes."""
        ...


class Request(Protocol):
    """A message that can be read."""

    @classmethod
    def FromString(cls, s: bytes, /) -> Self:  # noqa: N802 # protobuf's name
        """Return what the bytes say."""
        ...


Admit = Callable[[Any, Call], Caller | v2.Status]
"""Returns who calls with a request, or what a caller is told who is not served."""
RequestT = TypeVar("RequestT", bound=Request)
AnswerT = TypeVar("AnswerT", bound=Answer)


def caller_of(call: Call) -> Caller:
    """Return who calls, by its own word."""
    return _caller(call.values(_NAMES), call.remote_address)


@lru_cache(maxsize=256)  # the same clients call again and again
def _caller(values: tuple[bytes, ...], address: Address) -> Caller:
    client_id, language, version = [value.decode(errors="replace") for value in values]
    return Caller(client_id.strip(), language, version, address)


def admit_anybody(_request: object, call: Call) -> Caller | v2.Status:
    """Return who calls, if it says so."""
    caller = caller_of(call)
    return caller if caller.client_id else status(Code.CLIENT_ID_REQUIRED, NO_CLIENT_ID)


def unary(
    request_type: type[RequestT],
    refusal_type: Callable[..., AnswerT],
    serve: Callable[[RequestT, Caller, Call], AnswerT | None],
    admit: Admit = admit_anybody,
) -> UnaryMethod:
    """Return a method that is served by a function, which returns the answer or gives it later (``answer``).

    ``refusal_type`` makes an answer of the status of a request that is not served.
    """

    def serve_bytes(data: bytes, call: Call) -> None:
        try:
            request = request_type.FromString(data)
        except ProtobufDecodeError:
            call.finish(GrpcStatus.UNKNOWN)
            return
        caller = admit(request, call)
        made = serve(request, caller, call) if isinstance(caller, Caller) else refusal_type(status=caller)
        if made is not None:
            answer(call, made)

    return UnaryMethod(serve_bytes)


def answer(call: Call, made: Answer) -> None:
    """Give the one answer of a call."""
    call.answer(made.SerializeToString())


def when_settled(outcome: Outcome[A], then: Callable[[Outcome[A]], object]) -> None:
    """Call with an outcome when it is settled, at once if it is."""
    if outcome.is_settled:
        then(outcome)
    else:
        outcome.on_settled = then


def when_all(outcomes: Sequence[Outcome[A]], tell: Callable[[], object]) -> None:
    """Call when all outcomes are settled, at once if they are."""
    missing = [outcome for outcome in outcomes if not outcome.is_settled]
    if not missing:
        tell()
        return
    if len(missing) == 1:
        missing[0].on_settled = lambda _: tell()
        return
    left = len(missing)

    def settled(_outcome: Outcome[A]) -> None:
        nonlocal left
        left -= 1
        if not left:
            tell()

    for outcome in missing:
        outcome.on_settled = settled
