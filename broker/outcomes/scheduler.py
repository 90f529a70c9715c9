"""The scheduler: keeps outcomes until what they depend on has happened, and settles them in order.

commit    the records of one turn of the loop are written together when it ends (``end_turn``). Every record that is
appended for a request has an outcome, which ``append`` returns: nobody can answer before it is written
flush     under SYNC_FLUSH those who want to wait are settled when the log is on disk (``group_commit``)
topic     topics that were made for a request are saved and made known before it is answered, whatever it came to
disk      while no flush ends, requests that would wait for one are not begun (``disk_stall``)

1. A commit that fails fails every outcome of its turn; nobody else is told anything.
2. Whoever appends without a request (deliveries, checks) appends to the store and commits here.
3. A participant adds records to a commit, behind all others: what was planned decides which.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...common.clock import Clock
from ...common.errors import StoreError
from ...common.outcome import A, Outcome
from ...common.record import NewRecord
from ...store.consumequeue.appended import Appended
from ...store.message_store import MessageStore
from .disk_stall import DiskStall, StallLimits
from .group_commit import GroupCommit

MakeKnown = Callable[[Sequence[str], Callable[[], object]], object]
"""Save topics and tell name servers, then call; disk and name servers get a second."""


class CommitParticipant(Protocol):
    """Somebody who adds records to a commit."""

    def join(self) -> None:
        """Append them to the store."""
        ...

    def undo(self) -> None:
        """Take note that nothing of the commit was kept."""
        ...


class Scheduler:
    """All outcomes of a broker that depend on its store; lives on the event loop."""

    def __init__(
        self, store: MessageStore, clock: Clock, make_known: MakeKnown, stall_limits: StallLimits | None = None
    ) -> None:
        self.store = store
        self._make_known = make_known
        self._turn: list[Outcome[Any]] = []
        self._participant: CommitParticipant | None = None
        self._group: GroupCommit | None = None
        self._stall: DiskStall | None = None
        self.failed_puts = 0
        """How many outcomes a failed commit has failed."""
        if store.config.is_sync_flush:
            if stall_limits is not None:
                self._stall = DiskStall(stall_limits, clock, self.end_turn)
            self._group = GroupCommit(store, clock, self.settle, self._stall)

    def __repr__(self) -> str:
        return f"<Scheduler {len(self._turn)} in this turn, {self._group!r}, {self._stall!r}>"

    # --- for operations

    @property
    def flushes_first(self) -> bool:
        """Whether senders who want that wait for the disk."""
        return self._group is not None

    @property
    def stall(self) -> DiskStall | None:
        """Keeps requests from being begun while the disk stalls; ``None`` where nobody waits for it."""
        return self._stall

    def append(self, new: NewRecord) -> Outcome[Appended]:
        """Plan a record; what comes of it depends on its commit (raises as ``MessageStore.append`` does)."""
        outcome: Outcome[Appended] = Outcome(self.store.append(new))
        self._turn.append(outcome)
        return outcome

    def append_batch(self, head: NewRecord, parts: Sequence[NewRecord]) -> Outcome[list[Appended]]:
        """Plan the records of a batch (raises as ``MessageStore.append_batch`` does)."""
        outcome: Outcome[list[Appended]] = Outcome(self.store.append_batch(head, parts))
        self._turn.append(outcome)
        return outcome

    def after_commit(self, answer: A) -> Outcome[A]:
        """Return an outcome that depends on what this turn commits, though it has appended nothing itself."""
        outcome: Outcome[A] = Outcome(answer)
        self._turn.append(outcome)
        return outcome

    def when_known(self, answer: A, topics: Sequence[str]) -> Outcome[A]:
        """Return an outcome that depends on topics being known, if any, and on nothing else."""
        outcome: Outcome[A] = Outcome(answer, new_topics=tuple(topics))
        self.settle(outcome)
        return outcome

    def failed(self, failure: Exception, topics: Sequence[str] = ()) -> Outcome[Any]:
        """Return an outcome that has failed, once topics are known, if any."""
        outcome: Outcome[Any] = Outcome(failure=failure, new_topics=tuple(topics))
        self.settle(outcome)
        return outcome

    def settle(self, outcome: Outcome[Any]) -> None:
        """Settle an outcome that waits for nothing else than its topics being known."""
        if outcome.new_topics:
            self._make_known(outcome.new_topics, outcome.settle)
        else:
            outcome.settle()

    def join(self, participant: CommitParticipant) -> None:
        """Let somebody add records to the next commit."""
        self._participant = participant

    # --- for those who end a turn

    def end_turn(self) -> None:
        """Commit what this turn has planned, and settle what depended on it."""
        if self._turn or self._participant is not None:
            try:
                self.commit()
            except StoreError:
                return  # all who depended on it have been told

    def commit(self) -> None:
        """Commit what is planned, and settle what depended on it.

        Raises:
            StoreError: It could not be written; all who depended on it have been told.
        """
        turn, self._turn = self._turn, []
        participant, self._participant = self._participant, None
        try:
            if participant is not None:
                participant.join()
            self.store.commit()
        except StoreError as error:
            if participant is not None:
                participant.undo()
            self.failed_puts += len(turn)
            for outcome in turn:
                outcome.failure = error
                self.settle(outcome)
            raise
        if self._group is not None:
            turn = self._group.take(turn)
        for outcome in turn:
            if outcome.new_topics or outcome.on_settled is not None:
                self.settle(outcome)
            else:
                outcome.is_settled = True  # what ``settle`` does when nobody waits yet

    # --- for the broker's life

    def tell_flushed(self, failure: object) -> None:
        """Say that a flush is over; on the flusher's thread."""
        if self._group is not None:
            self._group.tell_flushed(failure)

    async def drain(self) -> None:
        """Wait until those who wait for the disk now are answered."""
        if self._group is not None:
            await self._group.drain()

    def stop_parking(self) -> None:
        """Answer all requests that have not been begun; none is kept from it any more."""
        if self._stall is not None:
            self._stall.close()

    def close(self) -> None:
        """Leave the store alone from now on."""
        if self._group is not None:
            self._group.close()
