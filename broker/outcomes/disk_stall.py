"""Fast failure: sends that a stalled disk would keep waiting are not begun (``BrokerFastFailure``; behaviour.md B.1).

Java keeps requests in queues before its threads; who waits there longer than ``waitTimeMillsInSendQueue`` is answered
SYSTEM_BUSY and never begun. What a thread has begun is never failed so. Here a request is begun in the turn of the loop
that reads it, and the only thing that it may have to wait for is the disk, under SYNC_FLUSH.

Rules

    1. Never failed: a message that has its place in the log. It will be durable, and a client that is told "busy" sends
       it again: it would be there twice. So sends that wait for their flush are settled by ``group_commit`` (after
       syncFlushTimeout: late), and those that wait for their topic's file when that has had its second.
    2. The disk stalls when a flush is owed and none has ended for ``osPageCacheBusyTimeOutMills``.
    3. While it stalls, sends that would wait for it are parked: nothing of them is in the log. When a flush ends they
       are begun, in order. Those parked for ``waitTimeMillsInSendQueue`` fail, [TIMEOUT_CLEAN_QUEUE]; above
       ``sendThreadPoolQueueCapacity`` of them, further ones do, [OVERLOAD]. Of both, nothing is stored.
    4. Sends that would not wait are begun as ever: one-way ones, those with WAIT=false, send-backs; and so is all that
       does not send.
    5. ``brokerFastFailureEnable=false`` turns it off. A stop fails all who are parked.

What Java has beside it does not occur: a request that found the page cache busy ([PCBUSY_CLEAN_QUEUE],
[REJECTREQUEST]) is parked here, since the disk may come back in time; and pulls, heartbeats or administration never
wait before they are begun. A write that stalls the loop itself, also under ASYNC_FLUSH, is over when the next request
is read; that one is served, since nobody knows how long it lay in its socket.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ...common.clock import Clock, TimerHandle
from ...common.errors import BusyError
from ...common.outcome import Outcome
from ..settings.live import LiveSettings

_OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_log = logging.getLogger(__name__)


class _Parked(NamedTuple):
    outcome: Outcome[Any]
    begin: Callable[[], Outcome[Any]]
    since_ms: int


class DiskStall:
    """The requests that a stalled disk keeps from being begun; ``end_turn`` commits those that were begun together."""

    def __init__(self, settings: LiveSettings, clock: Clock, end_turn: Callable[[], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._end_turn = end_turn
        self._parked: deque[_Parked] = deque()
        self._failed = 0
        self._owed_since_ms = 0  # by the disk, a flush
        self._is_owed = False
        self._is_closed = False
        self._look_timer: TimerHandle | None = None
        self._fail_timer: TimerHandle | None = None
        self.is_stalled = False

    def __repr__(self) -> str:
        return f"<DiskStall {'stalled' if self.is_stalled else 'idle'}, {len(self._parked)} parked>"

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def most_parked(self) -> int:
        """How many requests may be parked."""
        return self._settings.config.most_waiting_sends

    @property
    def head_wait_ms(self) -> int:
        """How long the request that was parked first has been waiting."""
        return self._clock.monotonic_ms() - self._parked[0].since_ms if self._parked else 0

    def park(self, begin: Callable[[], Outcome[Any]]) -> Outcome[Any]:
        """Keep a request from being begun; return what will come of it, perhaps a ``BusyError``."""
        if self._is_closed or len(self._parked) >= self.most_parked:
            self._failed += 1
            return Outcome(failure=BusyError(_OVERLOAD), is_settled=True)
        outcome: Outcome[Any] = Outcome()
        self._parked.append(_Parked(outcome, begin, self._clock.monotonic_ms()))
        self._set_timer()
        return outcome

    def asked(self) -> None:
        """Look after a while whether the disk has done something."""
        if not self._is_owed:
            self._is_owed = True
            self._owed_since_ms = self._clock.monotonic_ms()
            self._plan_look()

    def ended(self, *, is_owed: bool) -> None:
        """Begin what is parked: the disk moves."""
        self._is_owed = is_owed
        if is_owed:  # the next one has just begun
            self._owed_since_ms = self._clock.monotonic_ms()
        if self.is_stalled:
            self.is_stalled = False
            _log.warning("flush no longer stalled; %d sends were answered busy meanwhile", self._failed)
            self._begin_parked()
            self._plan_look()

    def close(self) -> None:
        """Fail all who are parked, and let nobody wait any more."""
        self._is_closed = True
        for timer in (self._look_timer, self._fail_timer):
            if timer is not None:
                timer.cancel()
        while self._parked:
            self._fail(self._parked.popleft())

    def _plan_look(self) -> None:
        if self._look_timer is None and self._is_owed and not self._is_closed:
            stalled_at_ms = self._owed_since_ms + self._settings.config.disk_stall_ms
            self._look_timer = self._clock.call_at(stalled_at_ms, self._look)

    def _look(self) -> None:
        self._look_timer = None
        stall_ms = self._settings.config.disk_stall_ms
        if not self._is_owed or self._clock.monotonic_ms() - self._owed_since_ms < stall_ms:
            self._plan_look()
            return
        self.is_stalled, self._failed = True, 0
        _log.warning(
            "flush stalled for %d ms: sends wait, and are answered busy after waitTimeMillsInSendQueue",
            stall_ms,
        )

    def _begin_parked(self) -> None:
        parked, self._parked = self._parked, deque()
        for outcome, begin, _ in parked:
            if outcome.is_settled:  # its connection has ended
                continue
            try:
                begun = begin()
            except Exception as error:  # the fault boundary of a request that was put off
                outcome.fail(error)
            else:
                outcome.follow(begun)
        self._end_turn()

    def _set_timer(self) -> None:
        if self._fail_timer is None and self._parked:
            at_ms = self._parked[0].since_ms + self._settings.config.send_wait_ms
            self._fail_timer = self._clock.call_at(at_ms, self._fail_late)

    def _fail_late(self) -> None:
        self._fail_timer = None
        while self._parked and self.head_wait_ms >= self._settings.config.send_wait_ms:
            self._fail(self._parked.popleft())
        self._set_timer()

    def _fail(self, parked: _Parked) -> None:
        self._failed += 1
        waited_ms = self._clock.monotonic_ms() - parked.since_ms
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {waited_ms}ms, size of queue: {len(self._parked)}"
        )
        parked.outcome.fail(BusyError(remark))
