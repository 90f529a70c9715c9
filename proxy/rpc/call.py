"""What a service sees of one call of gRPC, and how it lists its methods.

    request    one message, handed to ``UnaryMethod.serve``; or many, handed to what ``StreamMethod.open`` returns
    answer     ``answer`` with all messages of it; or ``send`` each, then ``finish`` once

Rules

    1. A service answers when it can: within ``serve``, or later from any callback of the loop.
    2. What is sent behind the end of a call is dropped; nobody has to ask before. Who holds something for a call hears
       through ``on_over`` that it has ended without ``finish``: cancelled, beyond its deadline, or its peer is gone.
    3. What ``serve``, ``open`` or a ``RequestStream`` raises ends its call as INTERNAL, and no other one.
"""

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ...common.ids import Address


class GrpcStatus(enum.IntEnum):
    """The codes of ``grpc-status``."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class Call(Protocol):
    """One call, hashable by identity.

    ``metadata`` are its headers by their names in small letters; the values of one that came twice stand with a comma
    between them, and those whose names end in ``-bin`` as they came, in base 64.
    """

    @property
    def metadata(self) -> Mapping[str, str]:
        """The headers of the caller, without those of HTTP/2."""
        ...

    def values(self, names: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return some headers as they came, empty where there is none; of one that came twice, the last."""
        ...

    @property
    def remote_address(self) -> Address:
        """Whose call it is."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing that is sent reaches anybody."""
        ...

    def remaining_ms(self) -> int | None:
        """Return how long the caller still waits; None if it has not said."""
        ...

    def answer(self, *messages: bytes) -> None:
        """Send all messages of the answer, and end it well."""
        ...

    def send(self, message: bytes) -> None:
        """Send a message of the answer."""
        ...

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the answer."""
        ...

    def on_over(self, tell: Callable[[], None]) -> None:
        """Have it told, once, that the call ended without ``finish``; at once if it has."""
        ...

    def hang_up(self) -> None:
        """Close the connection of the caller at once, with all its calls."""
        ...


class RequestStream(Protocol):
    """Takes the messages of a request that is a stream."""

    def received(self, message: bytes) -> None:
        """Take the next message."""
        ...

    def ended(self) -> None:
        """Hear that no more will come; the call is still to be finished."""
        ...


class UnaryMethod(NamedTuple):
    """A method whose request is one message, whatever its answer is.

    One that ``is_long_poll`` may wait as long as its caller does: a server that stops ends its calls at once, while it
    gives others a moment to be answered.
    """

    serve: Callable[[bytes, Call], None]
    is_long_poll: bool = False


class StreamMethod(NamedTuple):
    """A method whose request is a stream."""

    open: Callable[[Call], RequestStream]


Methods = Mapping[str, UnaryMethod | StreamMethod]
"""The methods of a server by their paths, ``/<service>/<method>``."""
