"""An answer that is owed: what a handler returns when it cannot answer yet.

    made         by the handler, for its command
    handed over  when the handler returns it; an answer given before waits until then
    settled      by the first ``answer``, or by the end of the connection; later answers are ignored

Every request gets exactly one answer, whoever pays twice.
"""

from collections.abc import Callable
from typing import Protocol

from .command import Command

Buffer = bytes | memoryview
Encoded = bytes | list[Buffer]
"""A whole frame that a fast path has built, with the opaque of its request: one buffer, or several in order."""


class AnswerSink(Protocol):
    """Where an owed answer goes; a connection."""

    def settle_later(self, later: "Later", reply: Command | Encoded) -> None:
        """Send the answer and forget the debt."""
        ...


class Later:
    """An answer owed to one request."""

    __slots__ = ("_early_reply", "_on_drop", "_sink", "command", "extra_bytes", "is_dropped", "is_settled")

    def __init__(self, command: Command, *, extra_bytes: int = 0) -> None:
        self.command = command
        self.extra_bytes = extra_bytes
        """What is kept for the answer beside the request, about."""
        self.is_settled = False
        self.is_dropped = False
        self._sink: AnswerSink | None = None
        self._early_reply: Command | Encoded | None = None
        self._on_drop: Callable[[], object] | None = None

    def __repr__(self) -> str:
        state = "dropped" if self.is_dropped else "settled" if self.is_settled else "owed"
        return f"<Later {state} for {self.command!r}>"

    @property
    def connection_closed(self) -> bool:
        """Whether nobody is left to take the answer."""
        return self.is_dropped

    def answer(self, reply: Command | Encoded) -> None:
        """Pay; from the second time on, and after the connection has ended, nothing happens."""
        if self.is_settled or self._early_reply is not None:
            return
        if self._sink is None:
            self._early_reply = reply
            return
        self.is_settled = True
        self._on_drop = None  # it holds what holds this: without it nobody waits for the collector
        self._sink.settle_later(self, reply)

    def on_drop(self, callback: Callable[[], object]) -> None:
        """Be told, once, if the connection ends before the answer; the last callback given counts."""
        self._on_drop = callback

    def hand_over(self, sink: AnswerSink) -> Command | Encoded | None:
        """Bind the debt to its connection; return the answer if it was given already. Connections call this."""
        self._sink = sink
        if self._early_reply is not None:
            self.is_settled = True
        return self._early_reply

    def write_off(self) -> None:
        """Settle without paying: nobody waits for this answer.

        Connections call this for one-way requests, a handler for a request that gets no answer by the protocol.
        """
        self.is_settled = True

    def drop(self) -> None:
        """Settle without paying: the connection has ended. Connections call this."""
        if not self.is_settled:
            self.is_settled = self.is_dropped = True
            on_drop, self._on_drop = self._on_drop, None
            if on_drop is not None:
                on_drop()
