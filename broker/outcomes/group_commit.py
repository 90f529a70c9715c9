"""Who waits for the disk under SYNC_FLUSH, and for how long (behaviour.md B.3).

Rules (``GroupCommitService``, ``FlushDiskWatcher``)
    1. A send is answered when its bytes are on disk. One flush serves all who wait. The next one begins when those
       whom it answered have sent again, or after ``GATHER_S``: a flush for few costs as much as one for all, and a
       sender who misses it waits for two. Where they do not come, the next ``_REST`` flushes wait for nobody. This is
       time of the loop: senders to a broker whose clock stands are answered.
    2. When a flush is over: the sends are answered, in order, their records become readable, and the pulls that wait
       for them are answered. Answers go out before the entries of queues are written: behind them, 16 senders had 0.87
       of their rate. Nothing is read in between.
    3. Whoever waits longer than syncFlushTimeout is late: its message is stored and becomes readable when the disk is
       done (FLUSH_DISK_TIMEOUT).
    4. With the property WAIT=false, and for one-way requests, nobody waits; the next flush takes the message along.
    5. When a flush fails, all who wait are told; nobody learns that a message is stored.
    6. Somebody may watch how the flushes go (``FlushWatch``): ``disk_stall`` does.
    7. Jobs that save what depends on the log wait by themselves, whatever the store's setting (``wait_flushed``).
    8. Jobs whose messages the store does not take try again; that is logged once until it takes them (``WriteRetry``).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

from ...common.clock import Clock, TimerHandle
from ...common.errors import StoreNotWritableError
from ...common.outcome import Outcome
from ...common.properties import WAIT, parse_properties
from ...store.message_store import MessageStore

GATHER_S = 0.003
_log = logging.getLogger(__name__)
_REST: Final = 100
_WAITS = f"\x02{WAIT}\x01true\x02"


class FlushWatch(Protocol):
    """Who is told when flushes begin and end."""

    def asked(self) -> None:
        """Hear that a flush has been asked for."""
        ...

    def ended(self, *, is_owed: bool) -> None:
        """Hear that a flush is over and who waited for it is answered, and whether another one has been asked for."""
        ...


class _Group(NamedTuple):
    """Those whose messages were written together."""

    log_end: int
    until_ms: int
    outcomes: list[Outcome[Any]]


class GroupCommit:
    """All outcomes of a broker that wait for the disk; ``settle`` is called with each when that is over."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        settle: Callable[[Outcome[Any]], None],
        watch: FlushWatch | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settle = settle
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Group] = deque()
        self._requested_end = store.log_max_offset
        self._is_requested = False  # a flush that is not over
        self._missing = 0  # of those whom the last flush answered
        self._gather_until = 0.0
        self._resting = 0
        self._gather_timer: asyncio.TimerHandle | None = None
        self._timer: TimerHandle | None = None
        self._is_told = False
        self._is_closed = False
        self._progress = asyncio.Event()

    def __repr__(self) -> str:
        waiting = sum(len(group.outcomes) for group in self._waiting)
        return f"<GroupCommit {waiting} waiting, log at {self._store.flushed_offset}>"

    def take(self, waiting: list[Outcome[Any]]) -> None:
        """Have what was committed flushed, at once or soon, and keep who waits for that."""
        if waiting:
            until_ms = self._clock.monotonic_ms() + self._store.config.sync_flush_timeout_ms
            self._waiting.append(_Group(self._store.log_max_offset, until_ms, waiting))
            self._missing -= len(waiting)
            self._set_timer()
        self._plan_flush()

    def tell_flushed(self, _failure: object) -> None:
        """Say that a flush is over; on the flusher's thread."""
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._look)

    async def drain(self) -> None:
        """Wait until those who wait now are answered."""
        end = self._store.log_max_offset
        self._resting = _REST
        self._plan_flush()
        while self._waiting and self._waiting[0].log_end <= end:
            self._progress.clear()
            await self._progress.wait()

    def close(self) -> None:
        """Leave the store alone from now on."""
        self._is_closed = True
        for timer in (self._timer, self._gather_timer):
            if timer is not None:
                timer.cancel()

    def _plan_flush(self) -> None:
        """Have what was committed flushed, at once or when those are there who are missing."""
        if self._is_requested or self._requested_end == self._store.log_max_offset:
            return  # a flush that is not over ends with a look at what is left
        if self._resting or not self._is_gathering():
            self._request_flush()
        elif self._gather_timer is None:
            self._gather_timer = self._loop.call_at(self._gather_until, self._stop_gathering)

    def _is_gathering(self) -> bool:
        return self._missing > 0 and self._loop.time() < self._gather_until

    def _stop_gathering(self) -> None:
        self._gather_timer = None
        if self._requested_end != self._store.log_max_offset:
            self._resting = _REST
            self._request_flush()

    def _request_flush(self) -> None:
        if self._gather_timer is not None:
            self._gather_timer.cancel()
            self._gather_timer = None
        self._resting = max(0, self._resting - 1)
        self._requested_end, self._is_requested = self._store.log_max_offset, True
        self._store.request_flush(self.tell_flushed)
        if self._watch is not None:
            self._watch.asked()

    def _look(self) -> None:
        self._is_told = False  # before the offset is read: when another flush ends after that, it is told once more
        if self._is_closed:
            return
        if (failure := self._store.flush_failure) is not None:
            refused, self._waiting = self._waiting, deque()
            for group in refused:
                for outcome in group.outcomes:
                    outcome.failure = failure
                    self._settle(outcome)
        flushed = self._store.flushed_offset
        answered: list[Outcome[Any]] = []
        while self._waiting and self._waiting[0].log_end <= flushed:
            answered += self._waiting.popleft().outcomes
        for outcome in {outcome.on_settled: outcome for outcome in answered}.values():
            outcome.goes_at_once = True  # and takes the others of its connection along
        for outcome in answered:
            self._settle(outcome)
        self._store.advance()
        self._progress.set()
        self._is_requested = flushed < self._requested_end and failure is None
        if answered:
            self._missing, self._gather_until = len(answered), self._loop.time() + GATHER_S
        self._plan_flush()
        if self._watch is not None:
            self._watch.ended(is_owed=self._is_requested)

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = self._clock.call_at(self._waiting[0].until_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._waiting[0].until_ms <= now_ms:
            for outcome in self._waiting.popleft().outcomes:
                outcome.is_late = True
                self._settle(outcome)
        self._set_timer()
        self._progress.set()


def wants_to_wait(properties: str) -> bool:
    """Tell what ``WAIT`` says; without it, a send waits (``Message.isWaitStoreMsgOK``)."""
    if WAIT not in properties or _WAITS in f"\x02{properties}":
        return True
    return parse_properties(properties).get(WAIT, "true").lower() == "true"


async def wait_flushed(store: MessageStore) -> None:
    """Wait until everything that is committed now is on disk.

    Raises:
        StoreNotWritableError: The flush failed.
    """
    if store.flushed_offset >= store.log_max_offset:
        return
    loop = asyncio.get_running_loop()
    flushed = loop.create_future()

    def tell(failure: StoreNotWritableError | None) -> None:
        loop.call_soon_threadsafe(_settle, flushed, failure)

    store.request_flush(tell)
    failure: StoreNotWritableError | None = await flushed
    if failure is not None:
        raise failure


def _settle(flushed: asyncio.Future[StoreNotWritableError | None], failure: StoreNotWritableError | None) -> None:
    if not flushed.done():
        flushed.set_result(failure)


class WriteRetry:
    """Runs the rounds of a job that writes to the store; ``what`` is paused when the store does not take it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_refused = False

    async def run(self, work: Callable[[], Awaitable[int]], pause_ms: int) -> int:
        """Do some work and return the pause that it asks for, or the one before it is tried again."""
        try:
            pause_ms = await work()
        except (StoreNotWritableError, OSError) as error:
            if not self._is_refused:
                text = "%s paused, retrying every %d ms: the store rejects writes: %s"
                _log.warning(text, self._what, pause_ms, error)
            self._is_refused = True
            return pause_ms
        self._is_refused = False
        return pause_ms
