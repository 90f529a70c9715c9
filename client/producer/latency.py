"""Which brokers are passed over because they were slow or failed (Java's ``MQFaultStrategy``, off by default).

    an attempt took, or failed     its broker is passed over for
    less than 550 ms               no time
    from 550 ms on                 2 s
    from 1.8 s on                  5 s
    from 3 s on                    6 s
    from 5 s on, or failed         10 s
    from 15 s on                   30 s

A later instant wins over an earlier one, and a quick answer does not shorten the time. A broker that answered with an
error is unreachable besides, until it takes a message; the choice then prefers others that are passed over. The round
takes the first queue that will do, all but the last choice on another broker than the one that just failed:

    1. of a broker that is not passed over    2. of one that is reachable    3. the next one

Example: A and B take messages in 5 ms until A takes 2 s for one. The next 5 s all messages go to B.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ...common.errors import RemotingError, ResponseError
from ...common.message import MessageQueue
from ..session.results import SendResult
from .selection import QueueRound

LATENCY_MS = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)  # latencyMax
PASSED_OVER_MS = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)  # notAvailableDuration
FAILED_AS_IF_MS = 10_000  # how long a failed attempt counts as having taken


class Fault(NamedTuple):
    """What the attempts so far say about a broker."""

    until_ms: int
    is_reachable: bool


class SlowBrokers:
    """The brokers that are passed over, and until when."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._faults: dict[str, Fault] = {}

    def __repr__(self) -> str:
        return f"<SlowBrokers {sorted(name for name in self._faults if not self.is_available(name))}>"

    def is_available(self, broker_name: str) -> bool:
        """Tell whether a broker is not passed over now."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.until_ms <= self._monotonic_ms()

    def is_reachable(self, broker_name: str) -> bool:
        """Tell whether the last word on a broker is not that it answered with an error."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    async def watch(self, broker_name: str, attempt: Awaitable[SendResult]) -> SendResult:
        """Wait for an attempt to send and note how long its broker took."""
        begun_at_ms = self._monotonic_ms()
        try:
            result = await attempt
        except (RemotingError, ResponseError) as error:
            self.note(broker_name, FAILED_AS_IF_MS, is_reachable=isinstance(error, RemotingError))
            raise
        self.note(broker_name, self._monotonic_ms() - begun_at_ms)
        return result

    def note(self, broker_name: str, took_ms: int, *, is_reachable: bool = True) -> None:
        """Note how long an attempt took."""
        step = bisect_right(LATENCY_MS, took_ms) - 1
        until_ms = self._monotonic_ms() + PASSED_OVER_MS[step] if step >= 0 else 0
        before = self._faults.get(broker_name)
        if before is not None or until_ms > self._monotonic_ms() or not is_reachable:
            self._faults[broker_name] = Fault(max(until_ms, before.until_ms if before else 0), is_reachable)


class WaryRound(QueueRound):
    """The round robin of one topic that passes over slow brokers."""

    __slots__ = ("_slow",)

    def __init__(self, queues: Sequence[MessageQueue], slow: SlowBrokers, start: int | None = None) -> None:
        super().__init__(queues, start)
        self._slow = slow

    def next_queue(self, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue of a broker that will do."""
        slow = self._slow
        return (
            self.next_where(lambda name: name != failed_broker and slow.is_available(name))
            or self.next_where(lambda name: name != failed_broker and slow.is_reachable(name))
            or super().next_queue()
        )
