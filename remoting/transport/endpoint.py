"""What an end of a connection answers, and how much it takes.

Both ends serve: a broker answers clients, a client answers the broker's requests (``spec/remoting.md`` §4.12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...common.errors import ConfigError
from ...common.ids import format_address
from ...common.outcome import Outcome
from ..codec.command import Command
from ..codec.error_replies import unknown_code_reply
from ..codec.frames import MAX_FRAME_BYTES, Encoded

if TYPE_CHECKING:
    from .connection import Connection

Reply = Command | Encoded | Outcome[Any] | None
Handler = Callable[[Command, "Connection"], Reply]
"""A plain function on the event loop. ``None`` is for one-way requests; for others it is answered SYSTEM_ERROR."""


def refuse_unknown(command: Command, connection: Connection) -> Command:
    """Answer a request code that nobody handles."""
    return unknown_code_reply(command, format_address(*connection.remote_address), is_logged=connection.may_complain())


def _nothing() -> None:
    """Do nothing when a batch is over."""


@dataclass(frozen=True, slots=True)
class Service:
    """The handlers of one end.

    ``after_batch`` is called once when all frames of a read have gone through their handlers, before their answers are
    written; more often only when the answers of one read exceed the high-water mark. What it settles of the batch's
    outcomes goes out with them.
    """

    handlers: Mapping[int, Handler] = field(default_factory=dict[int, Handler])
    fallback: Handler = refuse_unknown
    after_batch: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one connection may hold, and all of a server together.

    Above ``high_water_bytes`` of unsent answers nothing more is read until they fell to ``low_water_bytes``; answers
    that were owed add to that, and above ``max_unsent_bytes`` the connection is closed. When all connections together
    hold more than ``max_held_bytes``, the one that holds most is closed (``MemoryBudget``).

    A client ``reads_on`` whatever is unsent: its requests wait there, and with neither end reading both would wait for
    ever.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    high_water_bytes: int = 1 << 18
    low_water_bytes: int = 1 << 16
    max_unsent_bytes: int = 64 << 20
    max_held_bytes: int = 1 << 30
    max_owed_answers: int = 16_384
    max_calls: int = 65_536
    idle_ms: int = 120_000
    reads_on: bool = False


CLIENT_LIMITS = Limits(max_unsent_bytes=1 << 30, reads_on=True)


def server_limits(idle_seconds: int, high_water_bytes: int, low_water_bytes: int) -> Limits:
    """Return the limits that settings ask for; as in Java, the marks count if both are given.

    Raises:
        ConfigError: the low mark is above the high one.
    """
    if low_water_bytes > high_water_bytes > 0:
        key = "writeBufferLowWaterMark"
        raise ConfigError(f"{key} is {low_water_bytes}, above writeBufferHighWaterMark={high_water_bytes}", key=key)
    if not (high_water_bytes and low_water_bytes):
        return Limits(idle_ms=1000 * idle_seconds)
    return Limits(high_water_bytes=high_water_bytes, low_water_bytes=low_water_bytes, idle_ms=1000 * idle_seconds)
