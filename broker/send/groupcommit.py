"""Sends that wait for the disk under SYNC_FLUSH (``GroupCommitService``, ``FlushDiskWatcher``; behaviour.md B.3).

Rules

    1. A send is answered when its bytes are on disk. One flush serves all who wait; what comes while it runs is served
       by the next, which the flusher begins at once.
    2. When a flush is over: records become readable, the sends are answered, in order, and then the pulls that wait.
    3. A send that waits longer than syncFlushTimeout is answered FLUSH_DISK_TIMEOUT with the place of its message,
       which is stored and becomes readable when the disk is done.
    4. With the property WAIT=false, and for one-way requests, nobody waits; the next flush takes the message along.
    5. When a flush fails, all who wait are answered SERVICE_NOT_AVAILABLE; nobody is told that a message is stored.
    6. Somebody may watch how the flushes go (``FlushWatch``): ``fastfailure`` does.

It does not know what a send is; the answers are built before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...common.clock import Clock, TimerHandle
from ...common.errors import StoreError, StoreNotWritableError
from ...common.properties import WAIT, parse_properties
from ...remoting.codec.command import ONEWAY, Command
from ...remoting.codec.later import Encoded, Later
from ...store.message_store import MessageStore
from .sendanswers import SendAnswers

Pay = Callable[[Command | Encoded], object]
_WAITS = f"\x02{WAIT}\x01true\x02"


class FlushWatch(Protocol):
    """Who is told when flushes begin and end."""

    def asked(self) -> None:
        """Hear that a flush has been asked for."""
        ...

    def ended(self) -> None:
        """Hear that a flush is over, and that who waited for it has been answered."""
        ...


class _Waiter(NamedTuple):
    pay: Pay
    reply: Command | Encoded


class _Group(NamedTuple):
    """Those whose messages were written together."""

    log_end: int
    until_ms: int
    waiters: list[_Waiter]


class GroupCommit:
    """All sends of a broker that wait for the disk; lives on the event loop."""

    def __init__(self, store: MessageStore, answers: SendAnswers, clock: Clock) -> None:
        self._store = store
        self._answers = answers
        self._clock = clock
        self._timeout_ms = store.config.sync_flush_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._uncommitted: list[_Waiter] = []
        self._waiting: deque[_Group] = deque()
        self._seen_end = self._requested_end = store.log_max_offset
        self._timer: TimerHandle | None = None
        self._is_told = False
        self._is_closed = False
        self._progress = asyncio.Event()
        self.watch: FlushWatch | None = None

    def __repr__(self) -> str:
        waiting = sum(len(group.waiters) for group in self._waiting)
        return f"<GroupCommit {waiting} waiting, log at {self._store.flushed_offset}>"

    @property
    def is_flush_owed(self) -> bool:
        """Whether a flush that was asked for is still to end."""
        return self._store.flushed_offset < self._requested_end and self._store.flush_failure is None

    def hold(self, command: Command, properties: str, reply: Command | Encoded) -> Command | Encoded | Later:
        """Return what to answer now to a send that was served: a debt if it stored something and wants to wait."""
        end = self._store.log_append_offset
        if end == self._seen_end:
            return reply
        self._seen_end = end
        if command.flag & ONEWAY or not wants_to_wait(properties):
            return reply
        later = Later(command)
        self._uncommitted.append(_Waiter(later.answer, reply))
        return later

    def pay_last_by(self, pay: Pay) -> None:
        """Have the answer to the send that was held last given to this call."""
        self._uncommitted[-1] = self._uncommitted[-1]._replace(pay=pay)

    def commit(self) -> None:
        """Write what is planned and have it flushed.

        Raises:
            StoreError: It could not be written; all who would have waited are told.
        """
        added, self._uncommitted = self._uncommitted, []
        try:
            self._store.commit()
        except StoreError as error:
            self._seen_end = self._store.log_append_offset
            self._refuse(added, error)
            raise
        self._seen_end = end = self._store.log_max_offset
        if added:
            self._waiting.append(_Group(end, self._clock.monotonic_ms() + self._timeout_ms, added))
            self._set_timer()
        if self._requested_end != end:
            self._requested_end = end
            self._store.request_flush(self.tell_flushed)
            if self.watch is not None:
                self.watch.asked()

    def tell_flushed(self, _failure: StoreNotWritableError | None) -> None:
        """Say that a flush is over; on the flusher's thread."""
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._settle)

    async def drain(self) -> None:
        """Wait until those who wait now are answered."""
        end = self._store.log_max_offset
        while self._waiting and self._waiting[0].log_end <= end:
            self._progress.clear()
            await self._progress.wait()

    def close(self) -> None:
        """Leave the store alone from now on."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _settle(self) -> None:
        self._is_told = False  # before the offset is read: a flush that ends after that tells again
        if self._is_closed:
            return
        if (failure := self._store.flush_failure) is not None:
            refused, self._waiting = self._waiting, deque()
            self._refuse([waiter for group in refused for waiter in group.waiters], failure)
        flushed, waiting = self._store.flushed_offset, self._waiting
        while waiting and waiting[0].log_end <= flushed:
            for pay, reply in waiting.popleft().waiters:
                pay(reply)
        self._store.advance()
        self._progress.set()
        if self.watch is not None:
            self.watch.ended()

    def _refuse(self, waiters: list[_Waiter], error: StoreError) -> None:
        for waiter in waiters:
            waiter.pay(self._answers.unavailable(error))

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = self._clock.call_at(self._waiting[0].until_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._waiting[0].until_ms <= now_ms:
            for pay, reply in self._waiting.popleft().waiters:
                pay(self._answers.late(reply))
        self._set_timer()
        self._progress.set()


def wants_to_wait(properties: str) -> bool:
    """Tell what ``WAIT`` says; without it, a send waits (``Message.isWaitStoreMsgOK``)."""
    if WAIT not in properties or _WAITS in f"\x02{properties}":
        return True
    return parse_properties(properties).get(WAIT, "true").lower() == "true"
