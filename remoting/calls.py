"""Our own requests on one connection that wait for their answers.

Rule 1: Each direction of a connection counts its requests for itself, from 1; an answer is matched against ours only.
Rule 2: An answer that nobody waits for any more is ignored.
"""

import asyncio

from ..common.errors import ConnectionClosedError, RemotingError
from .command import Command

_MAX_OPAQUE = 2**31 - 1


class Calls:
    """The requests in flight, by opaque."""

    __slots__ = ("_last_opaque", "_max_calls", "_waiting")

    def __init__(self, max_calls: int, last_opaque: int = 0) -> None:
        self._max_calls = max_calls
        self._last_opaque = last_opaque
        self._waiting: dict[int, asyncio.Future[Command]] = {}

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

    def start(self, opaque: int) -> asyncio.Future[Command]:
        """Return what will hold the answer to a request that is about to be sent.

        Raises:
            RemotingError: too many requests are in flight.
        """
        if len(self._waiting) >= self._max_calls:
            raise RemotingError(f"{len(self._waiting)} requests are in flight, limit is {self._max_calls}")
        answer = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        return answer

    def forget(self, opaque: int) -> None:
        """Wait no longer for an answer."""
        self._waiting.pop(opaque, None)

    def settle(self, answer: Command) -> None:
        """Hand an answer to who waits for it."""
        waiting = self._waiting.pop(answer.opaque, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def fail_all(self, reason: str) -> None:
        """Tell everybody that no answer will come."""
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionClosedError(reason))
