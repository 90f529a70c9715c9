"""Our own requests on one connection that wait for their answers, each with a time limit.

Rule 1: Each direction of a connection counts its requests for itself, from 1; an answer is matched against ours only.
Rule 2: An answer that nobody waits for any more is ignored.
Rule 3: A wait that was cancelled is forgotten with its answer, its time limit or its connection.
Rule 4: There is one timer for all limits, for the earliest. It is not moved when that wait is over, which is what
        nearly always happens: it finds nothing to do then and waits for the limit that is the earliest by then. With
        the last wait it is dropped. (``asyncio.timeout`` around each wait took a third of the time of a request.)
"""

import asyncio
from collections.abc import Callable

from ...common.clock import Clock, TimerHandle
from ...common.errors import ConnectionClosedError, RemotingError, RequestTimeoutError
from ..codec.command import Command


class Deadlines:
    """PendingRequests ``expire(key)`` when the time of a wait is over; keys are unique."""

    __slots__ = ("_clock", "_expire", "_timer", "_timer_at_ms", "_waits")

    def __init__(self, clock: Clock, expire: Callable[[int], object]) -> None:
        self._clock = clock
        self._expire = expire
        self._waits: dict[int, set[int]] = {}
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0

    def __repr__(self) -> str:
        return f"<Deadlines {sum(map(len, self._waits.values()))} waits{'' if self._timer is None else ', a timer'}>"

    def add(self, key: int, timeout_ms: int) -> int:
        """Limit a wait; return the instant at which it ends, for ``discard``."""
        until_ms = self._clock.monotonic_ms() + timeout_ms
        keys = self._waits.get(until_ms)
        if keys is None:
            self._waits[until_ms] = {key}
            if self._timer is None or until_ms < self._timer_at_ms:
                self._set_timer(until_ms)
        else:
            keys.add(key)
        return until_ms

    def discard(self, key: int, until_ms: int) -> None:
        """Forget a wait that is over."""
        keys = self._waits.get(until_ms)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._waits[until_ms]
                if not self._waits and self._timer is not None:
                    self._timer.cancel()
                    self._timer = None

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at_ms = self._clock.call_at(at_ms, self._wake), at_ms

    def _wake(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for until_ms in [each for each in self._waits if each <= now_ms]:
            for key in self._waits.pop(until_ms, ()):
                self._expire(key)
        if self._waits and self._timer is None:
            self._set_timer(min(self._waits))


_MAX_OPAQUE = 2**31 - 1

Answer = asyncio.Future[Command]


class PendingRequests:
    """The requests in flight, by opaque."""

    __slots__ = ("_deadlines", "_last_opaque", "_max_calls", "_waiting", "peer")

    def __init__(self, clock: Clock, max_calls: int, last_opaque: int = 0) -> None:
        self.peer = "nobody"
        self._max_calls = max_calls
        self._last_opaque = last_opaque
        self._waiting: dict[int, tuple[Answer, int, int, int]] = {}  # with its deadline, request code and time limit
        self._deadlines = Deadlines(clock, self._expire)

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """Return a number that no request in flight has."""
        opaque = self._last_opaque
        while True:
            opaque = opaque + 1 if opaque < _MAX_OPAQUE else 1
            if opaque not in self._waiting:
                self._last_opaque = opaque
                return opaque

    def start(self, opaque: int, timeout_ms: int, code: int) -> Answer:
        """Return what will hold the answer to a request that is about to be sent.

        Raises:
            RemotingError: too many requests are in flight.
        """
        if len(self._waiting) >= self._max_calls:
            raise RemotingError(f"{len(self._waiting)} requests are in flight, limit is {self._max_calls}")
        answer = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = (answer, self._deadlines.add(opaque, timeout_ms), code, timeout_ms)
        return answer

    def forget(self, opaque: int) -> None:
        """Wait no longer for an answer."""
        call = self._waiting.pop(opaque, None)
        if call is not None:
            self._deadlines.discard(opaque, call[1])

    def settle(self, answer: Command) -> None:
        """Hand an answer to who waits for it."""
        opaque = answer.opaque
        call = self._waiting.pop(opaque, None)
        if call is not None:
            self._deadlines.discard(opaque, call[1])
            if not call[0].done():
                call[0].set_result(answer)

    def fail_all(self, reason: str) -> None:
        """Tell everybody that no answer will come."""
        waiting, self._waiting = self._waiting, {}
        for opaque, (answer, until_ms, _, _) in waiting.items():
            self._deadlines.discard(opaque, until_ms)
            if not answer.done():
                answer.set_exception(ConnectionClosedError(reason))

    def _expire(self, opaque: int) -> None:
        answer, _, code, timeout_ms = self._waiting.pop(opaque)
        if not answer.done():
            answer.set_exception(RequestTimeoutError(f"{self.peer} did not answer {code} in {timeout_ms} ms"))
