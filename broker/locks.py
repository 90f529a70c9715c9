"""Queue locks of ordered consumers (``RebalanceLockManager``; spec behaviour.md B.8).

A lock belongs to a client id for one queue of one group; it ends 60 s after it was last taken, or when its owner
gives it back. Pure: time is an argument.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..common.message import MessageQueue

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

    def take(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock or renew what is free, expired or the client's own; return what the client holds of the queues now."""
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

    def is_any_live(self, group: str, now_ms: int) -> bool:
        """Tell whether the group consumes some queue in order at the moment."""
        return any(lock.is_live(now_ms) for lock in self._groups.get(group, {}).values())
