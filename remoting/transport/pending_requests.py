"""The requests of one end that have no answer yet: their numbers, who waits for them, and how long."""

import asyncio

from ...common.clock import Clock, TimerHandle
from ...common.errors import ConnectionClosedError, RemotingError, RequestTimeoutError
from ..codec.command import Command

_MAX_OPAQUE = 2**31 - 1
_WAITS_PER_MS = 1_000  # that are looked at

Answer = asyncio.Future[Command]


class PendingRequests:
    """The requests in flight, by opaque."""

    __slots__ = ("_clock", "_last_opaque", "_max_calls", "_timer", "_timer_at_ms", "_waiting", "peer")

    def __init__(self, clock: Clock, max_calls: int, last_opaque: int = 0) -> None:
        self.peer = "nobody"
        self._clock = clock
        self._max_calls = max_calls
        self._last_opaque = last_opaque
        self._waiting: dict[int, tuple[Answer, int, int, int]] = {}  # with its deadline, request code and time limit
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<PendingRequests {len(self._waiting)}{'' if self._timer is None else ', a timer'}>"

    def next_opaque(self) -> int:
        """Return a number that no request in flight has."""
        opaque = self._last_opaque
        while True:
            opaque = opaque + 1 if opaque < _MAX_OPAQUE else 1
            if opaque not in self._waiting:
                self._last_opaque = opaque
                return opaque

    def start(self, opaque: int, timeout_ms: int, code: int, now_ms: int | None = None) -> Answer:
        """Return what will hold the answer to a request that is about to be sent, now or at ``now_ms``.

        Raises:
            RemotingError: too many requests are in flight.
        """
        if len(self._waiting) >= self._max_calls:
            raise RemotingError(f"{len(self._waiting)} requests are in flight, limit is {self._max_calls}")
        answer = asyncio.get_running_loop().create_future()
        until_ms = (self._clock.monotonic_ms() if now_ms is None else now_ms) + timeout_ms
        self._waiting[opaque] = (answer, until_ms, code, timeout_ms)
        if self._timer is None or until_ms < self._timer_at_ms:
            self._arm(until_ms)
        return answer

    def forget(self, opaque: int) -> None:
        """Wait no longer for an answer."""
        self._waiting.pop(opaque, None)

    def settle(self, answer: Command) -> None:
        """Hand an answer to who waits for it."""
        call = self._waiting.pop(answer.opaque, None)
        if call is not None and not call[0].done():
            call[0].set_result(answer)

    def fail_all(self, reason: str) -> None:
        """Tell everybody that no answer will come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for answer, _, _, _ in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionClosedError(reason))

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at_ms = self._clock.call_at(at_ms, self._expire), at_ms

    def _expire(self) -> None:
        """End the waits whose time is over, and arm the timer for the others."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for opaque in [opaque for opaque, call in self._waiting.items() if call[1] <= now_ms]:
            answer, _, code, timeout_ms = self._waiting.pop(opaque)
            if not answer.done():
                answer.set_exception(RequestTimeoutError(f"{self.peer} did not answer {code} in {timeout_ms} ms"))
        if self._waiting:
            earliest_ms = min(call[1] for call in self._waiting.values())
            self._arm(max(earliest_ms, now_ms + len(self._waiting) // _WAITS_PER_MS))
