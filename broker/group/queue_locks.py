"""Which client holds which queue of a group that consumes in order (``RebalanceLockManager``; spec behaviour.md B.8).

A lock belongs to a client id for one queue of one group; it ends 60 s after it was last taken, or when its owner
gives it back. Pure: time is an argument.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...common.message import MessageQueue

LEASE_MS = 60_000


class _Lock(NamedTuple):
    client_id: str
    taken_at_ms: int

    def is_live(self, now_ms: int) -> bool:
        return now_ms - self.taken_at_ms <= LEASE_MS


class QueueLocks:
    """Who may consume which queue in order."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._swept_at_ms = 0

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def take(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock or renew what is free, expired or the client's own; return what the client holds of the queues now."""
        self._sweep(now_ms)
        locks = self._groups.setdefault(group, {})
        held: list[MessageQueue] = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or not lock.is_live(now_ms):
                locks[queue] = _Lock(client_id, now_ms)
                held.append(queue)
        return held

    def give_back(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock what the client holds of the queues."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def is_any_live(self, group: str, now_ms: int) -> bool:
        """Tell whether the group consumes some queue in order at the moment."""
        return any(lock.is_live(now_ms) for lock in self._groups.get(group, {}).values())

    def _sweep(self, now_ms: int) -> None:
        """Forget the locks that have ended, once in the time that one lasts: nobody gives back what a client lost."""
        if now_ms - self._swept_at_ms <= LEASE_MS:
            return
        self._swept_at_ms = now_ms
        for group, locks in list(self._groups.items()):
            live = {queue: lock for queue, lock in locks.items() if lock.is_live(now_ms)}
            if live:
                self._groups[group] = live
            else:
                del self._groups[group]
