"""Pulls that wait for a message (``PullRequestHoldService``; spec behaviour.md B.4.7).

Rules
    1. A waiter stands under its queue; an arrival looks at the waiters of that queue and at no others.
    2. An arrival that a waiter's filter may accept wakes it at once; so does one that the filter fails on.
    3. An arrival that it does not accept wakes it within 5 s, so that its offset moves on over what was skipped.
    4. Its time limit wakes it too. Whoever is woken reads again and is answered whatever comes; it never waits twice.
    5. A waiter is woken once or dropped once, never both.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...common.clock import Clock, TimerHandle
from ...remoting.transport.addresses import Address, format_address
from ...store.consumequeue.appended import Appended

RECHECK_MS = 5000
_log = logging.getLogger(__name__)

Accepts = Callable[[Appended], bool]


class QueueKey(NamedTuple):
    """One queue of this broker."""

    topic: str
    queue_id: int


class Waiter:
    """One parked pull; ``accepts`` tells whether a message that arrives may be wanted, None takes all."""

    __slots__ = ("accepts", "key", "peer", "timer", "until_ms", "wake", "wanted_offset")

    def __init__(
        self,
        key: QueueKey,
        wanted_offset: int,
        accepts: Accepts | None,
        wake: Callable[[], None],
        peer: Address = ("", 0),
    ) -> None:
        self.key = key
        self.peer = peer
        self.wanted_offset = wanted_offset
        self.accepts = accepts
        self.wake = wake
        self.until_ms = 0
        self.timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Waiter for {self.key.topic}@{self.key.queue_id} from {self.wanted_offset}>"


class PullWaiters:
    """All parked pulls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[tuple[str, int], dict[Waiter, None]] = {}  # by QueueKey

    def __repr__(self) -> str:
        return f"<PullWaiters {len(self)} at {len(self._queues)} queues>"

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, waiter: Waiter, delay_ms: int) -> None:
        """Park a pull for at most so long."""
        self._queues.setdefault(waiter.key, {})[waiter] = None
        self._wake_at(waiter, self._clock.monotonic_ms() + delay_ms)

    def drop(self, waiter: Waiter) -> None:
        """Forget a parked pull, whose connection has closed; harmless when it has been woken."""
        self._take(waiter)

    def arrived(self, records: Sequence[Appended]) -> None:
        """Wake who waits for a message that has become readable."""
        queues = self._queues
        if not queues:
            return
        for record in records:
            waiters = queues.get((record.topic, record.queue_id))
            if waiters is not None and record.queue is not None:
                self._offer(record, waiters)

    def _offer(self, record: Appended, waiters: dict[Waiter, None]) -> None:
        for waiter in list(waiters):
            if record.queue_offset < waiter.wanted_offset:
                continue
            if _may_want(waiter, record):
                self._wake(waiter)
            else:
                self._wake_at(waiter, self._clock.monotonic_ms() + RECHECK_MS)

    def wake_all(self) -> None:
        """Wake everybody: the broker stops."""
        for waiters in list(self._queues.values()):
            for waiter in list(waiters):
                self._wake(waiter)

    def _wake_at(self, waiter: Waiter, at_ms: int) -> None:
        if waiter.timer is not None:
            if waiter.until_ms <= at_ms:
                return
            waiter.timer.cancel()
        waiter.until_ms = at_ms
        waiter.timer = self._clock.call_at(at_ms, self._wake, waiter)

    def _wake(self, waiter: Waiter) -> None:
        if self._take(waiter):
            waiter.wake()

    def _take(self, waiter: Waiter) -> bool:
        waiters = self._queues.get(waiter.key)
        if waiters is None or waiter not in waiters:
            return False
        del waiters[waiter]
        if not waiters:
            del self._queues[waiter.key]
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        return True


def _may_want(waiter: Waiter, record: Appended) -> bool:
    """Tell whether a waiter may want a message; one whose filter fails reads, and fails by itself."""
    try:
        return waiter.accepts is None or waiter.accepts(record)
    except Exception:  # the fault boundary of a held request
        _log.exception(
            "filtering for the long poll from %s failed at topic %s, queueId %d, offset %d: running the pull again now",
            format_address(*waiter.peer),
            *waiter.key,
            record.queue_offset,
        )
        return True
