"""What a request has come to, or will: its answer, and what that depends on.

    made      by whoever serves the request: an operation of the broker, a handler
    bound     by the adapter, which says how the answer is written, and by the connection that owes it
    kept      by whoever knows when what it depends on has happened: the broker's scheduler, a task
    settled   once, with the answer or a failure; what comes later is ignored
    dropped   when nobody is left to take the answer

It knows neither wire nor store, so that a connection, another protocol and a test may wait for the same one.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, final

import msgspec

A = TypeVar("A")
_NO_ANSWER_YET: Any = None  # nor beside a failure


@final
class Outcome(msgspec.Struct, Generic[A], eq=False):
    """An answer of one request; settled from the start if it depends on nothing."""

    answer: A = _NO_ANSWER_YET
    is_settled: bool = False
    failure: Exception | None = None
    """Why there is no answer: what it depended on has failed."""
    is_late: bool = False
    """Whether the message is stored, but the disk took longer to say so than its sender waits."""
    lacks_replicas: bool = False
    """Whether the message is stored, but slaves took longer to say so than its sender waits."""
    waits_for_store: bool = True
    """Whether its sender wants the message on disk and copied first, where the broker is set to do so."""
    conditions: int = 1
    """How many things of the store it still depends on."""
    new_topics: tuple[str, ...] = ()
    """Topics that were made for it and have to be known before it is answered."""
    encode: Callable[[Any, "Outcome[A]"], Any] | None = None
    """Writes the answer to the request; ``None``: the answer is written already."""
    request: Any = None
    on_settled: Callable[["Outcome[A]"], object] | None = None
    """Called, once, with this when it is settled; the connection that owes the answer sets it."""
    on_drop: Callable[[], object] | None = None
    """Called, once, if nobody is left to take the answer before there is one."""
    extra_bytes: int = 0
    """What is kept for the answer beside the request, about."""
    is_dropped: bool = False
    goes_at_once: bool = False
    """Whether its answer does not wait for others of the same turn of the loop."""

    def __repr__(self) -> str:
        state = "dropped" if self.is_dropped else "settled" if self.is_settled else "owed"
        return f"<Outcome {state} for {self.request!r}>"

    def settle(self) -> None:
        """Have the answer given: what it depends on has happened."""
        if not self.is_settled:
            self.is_settled = True
            self.on_drop = None  # it holds what holds this: without it nobody waits for the collector
            if self.on_settled is not None:
                self.on_settled(self)

    def answer_with(self, answer: A) -> None:
        """Settle with this answer; from the second time on nothing happens."""
        if not self.is_settled:
            self.answer = answer
            self.settle()

    def fail(self, failure: Exception) -> None:
        """Settle without an answer."""
        if not self.is_settled:
            self.failure = failure
            self.settle()

    def drop(self) -> None:
        """Settle without telling anybody: nobody is left, or no answer is wanted."""
        if not self.is_settled:
            self.is_settled = self.is_dropped = True
            on_drop, self.on_drop = self.on_drop, None
            if on_drop is not None:
                on_drop()

    def follow(self, other: "Outcome[A]") -> None:
        """Settle as another does, which stands for this one from now on."""
        if other.is_settled:
            self._take_from(other)
        else:
            self.on_drop = other.drop
            other.on_settled = self._take_from

    def _take_from(self, other: "Outcome[A]") -> None:
        if not self.is_settled:
            self.answer, self.failure = other.answer, other.failure
            self.is_late, self.lacks_replicas = other.is_late, other.lacks_replicas
            self.settle()


NO_ANSWER_WANTED: Outcome[Any] = Outcome(is_settled=True, is_dropped=True)
"""What comes of a request that gets no answer by the protocol."""
