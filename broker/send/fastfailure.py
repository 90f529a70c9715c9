"""Fast failure: sends that a stalled disk would keep waiting are not begun (``BrokerFastFailure``; behaviour.md B.1).

Java keeps requests in queues before its threads; who waits there longer than ``waitTimeMillsInSendQueue`` is answered
SYSTEM_BUSY and never begun. What a thread has begun is never failed so. Here a request is begun in the turn of the loop
that reads it, and the only thing that it may have to wait for is the disk, under SYNC_FLUSH.

Rules

    1. Never failed: a message that has its place in the log. It will be durable, and a client that is told "busy" sends
       it again: it would be there twice. So sends that wait for their flush are paid by ``groupcommit`` (after
       syncFlushTimeout: FLUSH_DISK_TIMEOUT), and those that wait for their topic's file by ``announcing``.
    2. The disk stalls when a flush is owed and none has ended for ``osPageCacheBusyTimeOutMills``.
    3. While it stalls, sends that would wait for it are parked: nothing of them is in the log. When a flush ends they
       are begun, in order. Those parked for ``waitTimeMillsInSendQueue`` are answered 2, [TIMEOUT_CLEAN_QUEUE]; above
       ``sendThreadPoolQueueCapacity`` of them, further ones 2, [OVERLOAD]. Of both, nothing is stored.
    4. Sends that would not wait are begun as ever: one-way ones, those with WAIT=false, send-backs; and so is all that
       does not send.
    5. ``brokerFastFailureEnable=false`` turns it off. A stop answers all who are parked.

What Java has beside it does not occur: a request that found the page cache busy ([PCBUSY_CLEAN_QUEUE],
[REJECTREQUEST]) is parked here, since the disk may come back in time; and pulls, heartbeats or administration never
wait before they are begun. A write that stalls the loop itself, also under ASYNC_FLUSH, is over when the next request
is read; that one is served, since nobody knows how long it lay in its socket.

The hot path pays nothing: in the table of handlers the entries for sends are exchanged when the disk stalls.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from ...common.clock import Clock, TimerHandle
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import ONEWAY, Command
from ...remoting.codec.failures import OVERLOAD
from ...remoting.codec.later import Later
from ...remoting.headers.send import decode_send_header
from ...remoting.transport.connection import Connection
from ...remoting.transport.service import Handler, Reply
from ..settings.config import BrokerConfig
from .groupcommit import GroupCommit, wants_to_wait
from .send import SEND_CODES

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """When the disk counts as stalled, how long sends wait then, and how many may."""

    stall_ms: int
    wait_ms: int
    most_parked: int


def fast_failure(config: BrokerConfig, group: GroupCommit | None, clock: Clock) -> "FastFailure | None":
    """Return who parks sends, if they wait for the disk at all and the settings want it."""
    if group is None or not config.fails_fast:
        return None
    return FastFailure(group, Patience(config.disk_stall_ms, config.send_wait_ms, config.most_waiting_sends), clock)


class _Parked(NamedTuple):
    later: Later
    connection: Connection
    since_ms: int


class FastFailure:
    """The sends that a stalled disk keeps from being begun."""

    def __init__(self, group: GroupCommit, patience: Patience, clock: Clock) -> None:
        self._group = group
        self._patience = patience
        self._clock = clock
        self._handlers: dict[int, Handler] = {}
        self._begin: dict[int, Handler] = {}
        self._parked: deque[_Parked] = deque()
        self._failed = 0
        self._owed_since_ms = 0  # by the disk, a flush
        self._is_owed = False
        self._is_closed = False
        self._look_timer: TimerHandle | None = None
        self._fail_timer: TimerHandle | None = None
        self.is_stalled = False
        group.watch = self

    def __repr__(self) -> str:
        return f"<FastFailure {'stalled' if self.is_stalled else 'idle'}, {len(self._parked)} parked>"

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def most_parked(self) -> int:
        """How many sends may be parked."""
        return self._patience.most_parked

    @property
    def head_wait_ms(self) -> int:
        """How long the send that was parked first has been waiting."""
        return self._clock.monotonic_ms() - self._parked[0].since_ms if self._parked else 0

    def guard(self, handlers: dict[int, Handler]) -> None:
        """Take the sends of this table while the disk stalls."""
        self._handlers = handlers
        self._begin = {code: handlers[code] for code in map(int, SEND_CODES)}

    def asked(self) -> None:
        """Look after a while whether the disk has done something."""
        if not self._is_owed:
            self._is_owed = True
            self._owed_since_ms = self._clock.monotonic_ms()
            self._plan_look()

    def ended(self) -> None:
        """Begin what is parked: the disk moves."""
        self._is_owed = self._group.is_flush_owed
        if self._is_owed:  # the next one has just begun
            self._owed_since_ms = self._clock.monotonic_ms()
        if self.is_stalled:
            self.is_stalled = False
            self._handlers.update(self._begin)
            _log.warning("flush no longer stalled; %d sends were answered busy meanwhile", self._failed)
            self._begin_parked()
            self._plan_look()

    def close(self) -> None:
        """Answer all who are parked, and let nobody wait any more."""
        self._is_closed = True
        for timer in (self._look_timer, self._fail_timer):
            if timer is not None:
                timer.cancel()
        while self._parked:
            self._fail(self._parked.popleft())

    def _plan_look(self) -> None:
        if self._look_timer is None and self._is_owed and not self._is_closed:
            self._look_timer = self._clock.call_at(self._owed_since_ms + self._patience.stall_ms, self._look)

    def _look(self) -> None:
        self._look_timer = None
        if not self._is_owed or self._clock.monotonic_ms() - self._owed_since_ms < self._patience.stall_ms:
            self._plan_look()
            return
        self.is_stalled, self._failed = True, 0
        self._handlers.update(dict.fromkeys(self._begin, self._park))
        _log.warning(
            "flush stalled for %d ms: sends wait, and are answered busy after waitTimeMillsInSendQueue",
            self._patience.stall_ms,
        )

    def _park(self, command: Command, connection: Connection) -> Reply:
        if command.flag & ONEWAY or not wants_to_wait(decode_send_header(command).properties or ""):
            return self._begin[command.code](command, connection)
        if self._is_closed or len(self._parked) >= self._patience.most_parked:
            self._failed += 1
            return Command.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        later = Later(command)
        self._parked.append(_Parked(later, connection, self._clock.monotonic_ms()))
        self._set_timer()
        return later

    def _begin_parked(self) -> None:
        parked, self._parked = self._parked, deque()
        by_connection: dict[Connection, list[Later]] = {}
        for later, connection, _ in parked:
            if not later.is_settled:  # its connection may have ended
                by_connection.setdefault(connection, []).append(later)
        for connection, laters in by_connection.items():
            connection.begin_again(laters)

    def _set_timer(self) -> None:
        if self._fail_timer is None and self._parked:
            at_ms = self._parked[0].since_ms + self._patience.wait_ms
            self._fail_timer = self._clock.call_at(at_ms, self._fail_late)

    def _fail_late(self) -> None:
        self._fail_timer = None
        while self._parked and self.head_wait_ms >= self._patience.wait_ms:
            self._fail(self._parked.popleft())
        self._set_timer()

    def _fail(self, parked: _Parked) -> None:
        self._failed += 1
        waited_ms = self._clock.monotonic_ms() - parked.since_ms
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {waited_ms}ms, size of queue: {len(self._parked)}"
        )
        parked.later.answer(Command.response(ResponseCode.SYSTEM_BUSY, remark))
