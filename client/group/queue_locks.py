"""The locks that an orderly consumer has on its queues (LOCK_BATCH_MQ and UNLOCK_BATCH_MQ; Java's ``RebalanceImpl``).

    asked for      before a queue is taken; from the master of its broker, which keeps a lock for 60 s
    confirmed      every 20 s; without a confirmation it counts for 30 s here, so it ends here before it ends there
    refused        another member has it: the lock is lost at once
    given back     when nothing of the queue runs any more, one-way

A member that is killed leaves its queues locked for up to 60 s.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from ...common.errors import ResponseError, RocketletError
from ...common.message import MessageQueue
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import LockBatchBody, LockedQueues
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ..session.session import Session

log = logging.getLogger(__name__)

LOCK_TIMEOUT_MS = 1_000
LOCK_INTERVAL_MS = 20_000
LOCK_LIFE_MS = 30_000


class QueueLocks:
    """The queues that are locked for one member of a group."""

    def __init__(self, group: str, session: Session) -> None:
        self._group = group
        self._session = session
        self._confirmed_at_ms: dict[MessageQueue, int] = {}  # by the monotonic clock
        self._waiters: dict[MessageQueue, asyncio.Event] = {}

    def __repr__(self) -> str:
        return f"<QueueLocks of {self._group}, {len(self._confirmed_at_ms)} queues>"

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues whose lock was confirmed and neither refused nor given back since."""
        return tuple(self._confirmed_at_ms)

    def confirmed_at_ms(self, queue: MessageQueue) -> int | None:
        """Return when a lock was confirmed last, None when there is none."""
        at_ms, clock = self._confirmed_at_ms.get(queue), self._session.clock
        return None if at_ms is None else clock.now_ms() - (clock.monotonic_ms() - at_ms)

    def holds(self, queue: MessageQueue) -> bool:
        """Tell whether messages of a queue may run now."""
        confirmed_at_ms = self._confirmed_at_ms.get(queue)
        return confirmed_at_ms is not None and self._session.clock.monotonic_ms() - confirmed_at_ms <= LOCK_LIFE_MS

    async def wait_held(self, queue: MessageQueue) -> None:
        """Return when the lock of a queue is held."""
        while not self.holds(queue):
            waiter = self._waiters.setdefault(queue, asyncio.Event())
            waiter.clear()
            await waiter.wait()

    async def lock(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        """Ask for locks, or for their confirmation; return those that are held now.

        A broker that does not answer neither grants nor takes a lock.
        """
        held: set[MessageQueue] = set()
        for broker_name, asked in _by_broker(queues).items():
            try:
                granted = await self._lock_at(broker_name, asked)
            except RocketletError as error:
                log.warning("group %s: locking queues of broker %s failed: %s", self._group, broker_name, error)
                continue
            self._note(asked, granted)
            held |= granted
        return frozenset(held)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; who cannot be told learns it when the lock ends."""
        for broker_name, queues_there in _by_broker(queues).items():
            for queue in queues_there:
                self._confirmed_at_ms.pop(queue, None)
                self._waiters.pop(queue, None)
            command = self._command(RequestCode.UNLOCK_BATCH_MQ, queues_there)
            try:
                await self._session.call_oneway(self._session.master_of(broker_name), command, LOCK_TIMEOUT_MS)
            except RocketletError as error:
                log.warning(
                    "group %s: unlocking %d queues of broker %s failed, they stay locked until the lock expires: %s",
                    self._group,
                    len(queues_there),
                    broker_name,
                    error,
                )

    async def renew(self, wanted: Callable[[], Iterable[MessageQueue]]) -> int:
        """Have the locks of all wanted queues confirmed, also those that were lost: a job."""
        await self.lock(wanted())
        return LOCK_INTERVAL_MS

    def _note(self, asked: Sequence[MessageQueue], granted: Iterable[MessageQueue]) -> None:
        now_ms = self._session.clock.monotonic_ms()
        for queue in granted:
            self._confirmed_at_ms[queue] = now_ms
            if (waiter := self._waiters.get(queue)) is not None:
                waiter.set()
        for queue in set(asked).difference(granted):
            if self._confirmed_at_ms.pop(queue, None) is not None:
                log.warning("group %s: lost the lock of %s to another member", self._group, queue)

    async def _lock_at(self, broker_name: str, queues: Sequence[MessageQueue]) -> frozenset[MessageQueue]:
        command = self._command(RequestCode.LOCK_BATCH_MQ, queues)
        answer = await self._session.call(self._session.master_of(broker_name), command, LOCK_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark)
        return frozenset(decode_answer(LockedQueues, answer.body).queues).intersection(queues)

    def _command(self, code: RequestCode, queues: Sequence[MessageQueue]) -> Command:
        body = LockBatchBody(client_id=self._session.client_id, consumer_group=self._group, mq_set=list(queues))
        return Command.request(code, body=encode_body(body))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
