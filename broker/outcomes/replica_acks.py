"""Sends that wait until slaves have their message (``GroupTransferService``; spec replication.md §6).

1. Under SYNC_MASTER a send is answered when so many slaves as are needed have acknowledged the end of its record;
   one acknowledgement serves all who wait for something before it. The number is that of its commit.
2. Whoever waits longer than slaveTimeout is told so (FLUSH_SLAVE_TIMEOUT): its message is stored and can be read.
3. With the property WAIT=false, and for one-way requests, nobody waits.
4. Where slaves may act as master (``count_in_sync``), a message is not written at all while fewer are in sync than it
   needs; with ``enableAutoInSyncReplicas`` it needs no more than are in sync, but ``minInSyncReplicas``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...common.clock import Clock, TimerHandle
from ...common.outcome import Outcome
from ..settings.live import LiveSettings


class _Group(NamedTuple):
    """Those whose messages were written together."""

    log_end: int
    until_ms: int
    needed: int
    outcomes: list[Outcome[Any]]


class ReplicaAcks:
    """All outcomes of a broker that wait for slaves; ``settle`` is called with each when that is over."""

    def __init__(
        self,
        settings: LiveSettings,
        clock: Clock,
        settle: Callable[[Outcome[Any]], None],
        count_in_sync: Callable[[], int] | None = None,
    ) -> None:
        self._settings = settings
        self._count_in_sync = count_in_sync
        self._clock = clock
        self._settle = settle
        self._waiting: deque[_Group] = deque()
        self._timer: TimerHandle | None = None
        self._progress = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ReplicaAcks {sum(len(group.outcomes) for group in self._waiting)} waiting>"

    @property
    def may_lack(self) -> bool:
        """Whether messages may be refused for want of slaves."""
        return self._count_in_sync is not None

    @property
    def lacks_slaves(self) -> bool:
        """Whether fewer are in sync than a message needs."""
        if self._count_in_sync is None:
            return False
        in_sync = self._count_in_sync()
        return self._settings.config.replication.replicas_for(in_sync) > in_sync

    @property
    def needed(self) -> int:
        """How many slaves are to acknowledge what is committed now."""
        config = self._settings.config.replication
        return config.needed_acks if self._count_in_sync is None else config.replicas_for(self._count_in_sync()) - 1

    def take(self, waiting: list[Outcome[Any]], log_end: int, needed: int) -> None:
        """Keep those who wait for so many slaves to have the log up to there."""
        until_ms = self._clock.monotonic_ms() + self._settings.config.replication.slave_timeout_ms
        self._waiting.append(_Group(log_end, until_ms, needed, waiting))
        self._set_timer()

    def acknowledged(self, log_ends: Sequence[int]) -> None:
        """Settle what is copied: ``log_ends`` is how far each slave has come, the farthest first."""
        waiting = self._waiting
        while waiting and waiting[0].needed <= len(log_ends) and waiting[0].log_end <= log_ends[waiting[0].needed - 1]:
            for outcome in waiting.popleft().outcomes:
                self._settle(outcome)
            self._progress.set()

    async def drain(self) -> None:
        """Wait until those who wait now are answered."""
        end = self._waiting[-1].log_end if self._waiting else 0
        while self._waiting and self._waiting[0].log_end <= end:
            self._progress.clear()
            await self._progress.wait()

    def close(self) -> None:
        """Let nobody wait any longer."""
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._fail(self._waiting.popleft())

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = self._clock.call_at(self._waiting[0].until_ms, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._waiting[0].until_ms <= now_ms:
            self._fail(self._waiting.popleft())
        self._set_timer()

    def _fail(self, group: _Group) -> None:
        for outcome in group.outcomes:
            outcome.lacks_replicas = True
            self._settle(outcome)
        self._progress.set()
