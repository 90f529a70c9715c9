"""What the broker asks clients of other protocols than remoting, in words of neither."""

import enum
from typing import Protocol

from ...common.outcome import Outcome
from ...common.record import Record
from ..transaction.checks import ProducerLink

CALL_LIMIT_MS = 10_000
"""How long a member may take for its answer, over whatever protocol."""


class Consumed(enum.Enum):
    """How a client took a message out of turn."""

    SUCCEEDED = enum.auto()
    FAILED = enum.auto()
    CORRUPTED = enum.auto()
    UNSUPPORTED = enum.auto()
    """It has no listener, or its library does not do that."""


class GuestLink(ProducerLink, Protocol):
    """A client that is asked by another protocol than remoting.

    An outcome without an answer has a ``RequestTimeoutError`` when the client has had its time.
    """

    @property
    def version(self) -> str:
        """Which release of its library it is."""
        ...

    @property
    def came_at_ms(self) -> int:
        """When it was first heard of."""
        ...

    def ask_stacks(self) -> Outcome[str]:
        """Ask where its threads are."""
        ...

    def ask_consumption(self, record: Record) -> Outcome[Consumed]:
        """Have its listener consume a message."""
        ...
