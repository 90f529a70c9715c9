"""Orderly consumption: one call at a time for each queue, in the order of its offsets.

Java's ``ConsumeMessageOrderlyService``.

    the listener ends with ...      the messages are, when the consumer commits by itself (the default)
    None, SUCCESS                   finished; the next ones follow
    RETRY, Retry, any exception     put back, and the queue rests: 1 s, or as long as ``Retry.pause_ms`` says. Whoever
                                    has failed ``max_retries`` times goes to the dead letters instead (never, if unset)
    COMMIT, ROLLBACK                finished, as in Java, with a warning

                                    ... and when it does not (``commits_itself=False``)
    None, SUCCESS                   taken, not finished: after a restart they come again
    COMMIT                          finished, with all that were taken before
    ROLLBACK                        put back, with all that were taken before, and the queue rests
    RETRY, Retry, any exception     put back alone, as above

A queue runs only under its lock (``HeldQueueLocks``). One that is given up keeps its lock until its listener has ended,
and what that listener finished counts; then the offset is stored and the lock given back. How often a message has
failed is known here only: after a restart or a change of owner the count begins anew.

The locks of queues (LOCK_BATCH_MQ and UNLOCK_BATCH_MQ; Java's ``RebalanceImpl``) are

    asked for      before a queue is taken; from the master of its broker, which keeps a lock for 60 s
    confirmed      every 20 s; without a confirmation it counts for 30 s here, so it ends here before it ends there
    refused        another member has it: the lock is lost at once
    given back     when nothing of the queue runs any more, one-way

A member that is killed leaves its queues locked for up to 60 s.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from ...common.clock import TimerHandle
from ...common.codes import ResponseCode
from ...common.errors import ResponseError, RocketletError
from ...common.message import MessageQueue, ReceivedMessage, describe_messages
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import LockBatchBody, LockedQueues
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.transport.event_loop import TaskScope, repeat
from ..group.consumer_hooks import ListenerOutcome
from ..group.process_queue import PushQueue, QueueOffsets, Submit
from ..session.results import ConsumeResult, Retry
from ..session.session import Session
from ..session.settings import FlowLimits
from .listeners import NO_HANDLER, ConsumeEnvironment, cut_batches, retry_of

_log = logging.getLogger(__name__)

LEAST_PAUSE_MS = 10
LONGEST_PAUSE_MS = 30_000
LOCK_AGAIN_MS = 100
LOCK_REFUSED_PAUSE_MS = 3_000

LOCK_TIMEOUT_MS = 1_000
LOCK_INTERVAL_MS = 20_000
LOCK_LIFE_MS = 30_000
NO_LIMIT = sys.maxsize


class HeldQueueLocks:
    """The queues that are locked for one member of a group."""

    def __init__(self, group: str, session: Session) -> None:
        self._group = group
        self._session = session
        self._asked: set[MessageQueue] = set()  # may be locked at their broker, whatever has been answered
        self._is_closed = False
        self._confirmed_at_ms: dict[MessageQueue, int] = {}  # by the monotonic clock
        self._waiters: dict[MessageQueue, asyncio.Event] = {}

    def __repr__(self) -> str:
        return f"<HeldQueueLocks of {self._group}, {len(self._confirmed_at_ms)} queues>"

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
        """Ask for locks, or for their confirmation; return those that are held now: none after ``unlock_all``.

        A broker that does not answer neither grants nor takes a lock.
        """
        held: set[MessageQueue] = set()
        for broker_name, asked in _by_broker(queues).items():
            if self._is_closed:
                break
            self._asked.update(asked)
            try:
                granted = await self._lock_at(broker_name, asked)
            except RocketletError as error:
                _log.warning("group %s: locking queues of broker %s failed: %s", self._group, broker_name, error)
                continue
            self._note(asked, granted)
            held |= granted
        return frozenset(held)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back; who cannot be told learns it when the lock ends."""
        for broker_name, queues_there in _by_broker(queues).items():
            for queue in queues_there:
                self._asked.discard(queue)
                self._confirmed_at_ms.pop(queue, None)
                self._waiters.pop(queue, None)
            command = self._command(RequestCode.UNLOCK_BATCH_MQ, queues_there)
            try:
                await self._session.call_oneway(self._session.master_of(broker_name), command, LOCK_TIMEOUT_MS)
            except RocketletError as error:
                _log.warning(
                    "group %s: unlocking %d queues of broker %s failed, they stay locked until the lock expires: %s",
                    self._group,
                    len(queues_there),
                    broker_name,
                    error,
                )

    async def unlock_all(self) -> None:
        """Give back all that may be locked, also by a request whose answer nobody awaits; lock nothing more."""
        self._is_closed = True
        await self.unlock(tuple(self._asked))

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
            self._asked.discard(queue)
            if self._confirmed_at_ms.pop(queue, None) is not None:
                _log.warning("group %s: lost the lock of %s to another member", self._group, queue)

    async def _lock_at(self, broker_name: str, queues: Sequence[MessageQueue]) -> frozenset[MessageQueue]:
        command = self._command(RequestCode.LOCK_BATCH_MQ, queues)
        answer = await self._session.call(self._session.master_of(broker_name), command, LOCK_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, broker_name, RequestCode.LOCK_BATCH_MQ.name)
        return frozenset(decode_answer(LockedQueues, answer.body).queues).intersection(queues)

    def _command(self, code: RequestCode, queues: Sequence[MessageQueue]) -> Command:
        body = LockBatchBody(client_id=self._session.client_id, consumer_group=self._group, mq_set=list(queues))
        return Command.request(code, body=encode_body(body))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


class OrderlyQueue(PushQueue):
    """The sink of a queue that runs in order: pulled only under its lock, and with no limit to the span.

    What a listener finishes after the queue was given up still moves the offset: the lock is kept so long.
    """

    def __init__(
        self,
        queue: MessageQueue,
        offsets: QueueOffsets,
        environment: ConsumeEnvironment,
        locks: HeldQueueLocks | None,
        submit: Submit,
    ) -> None:
        super().__init__(queue, offsets, environment.settings, submit, environment.clock)
        self.limits = self.limits._replace(max_span=NO_LIMIT)
        self._locks = locks

    def limit(self, limits: FlowLimits) -> None:
        """Set other limits, but none to the span."""
        super().limit(limits._replace(max_span=NO_LIMIT))

    def drop(self) -> None:
        """Let nothing begin any more."""
        self.is_dropped = True

    async def wait_for_room(self) -> int:
        """Return when more may be pulled and the queue is locked: the offset to store with that pull."""
        while True:
            commit_offset = await super().wait_for_room()
            if self._locks is None or self._locks.holds(self.queue):
                return commit_offset
            await self._locks.wait_held(self.queue)


class OrderlyBacklog:
    """What waits in one queue, and what was taken and is not finished."""

    def __init__(self, source: PushQueue) -> None:
        self.source = source
        self.is_planned = False  # waits for its turn, is at work, or rests
        self._waiting: deque[ReceivedMessage] = deque()
        self._taken: list[ReceivedMessage] = []

    def __repr__(self) -> str:
        return f"<OrderlyBacklog {self.source.queue} {len(self._waiting)} waiting, {len(self._taken)} taken>"

    @property
    def taken(self) -> Sequence[ReceivedMessage]:
        """The messages that a listener has had and that are not finished."""
        return self._taken

    def add(self, messages: Iterable[ReceivedMessage]) -> None:
        """Let pulled messages wait."""
        self._waiting.extend(messages)

    def take(self, most: int) -> list[ReceivedMessage]:
        """Take the next messages, which have one topic; an empty list when none waits."""
        batches = cut_batches((self._waiting[index] for index in range(min(most, len(self._waiting)))), most)
        batch = batches[0] if batches else []
        for _ in batch:
            self._waiting.popleft()
        self._taken += batch
        return batch

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Let taken messages wait again, before all others."""
        offsets = {message.queue_offset for message in messages}
        self._taken = [message for message in self._taken if message.queue_offset not in offsets]
        self._waiting.extendleft(reversed(messages))

    def finish(self, messages: Sequence[ReceivedMessage]) -> None:
        """Be done with taken messages; the offset moves."""
        offsets = {message.queue_offset for message in messages}
        self._taken = [message for message in self._taken if message.queue_offset not in offsets]
        self.source.finish(messages)


class OrderlyConsumer:
    """Runs the messages of all queues, so many queues at a time; without locks for broadcasting."""

    def __init__(self, environment: ConsumeEnvironment, locks: HeldQueueLocks | None) -> None:
        self._environment = environment
        self.locks = locks
        self._runs: dict[PushQueue, OrderlyBacklog] = {}
        self._ready: asyncio.Queue[OrderlyBacklog] = asyncio.Queue()
        self._at_work: dict[MessageQueue, OrderlyBacklog] = {}
        self._ended = asyncio.Event()
        self._planned: set[TimerHandle] = set()
        self._is_closing = False
        self._scope: TaskScope | None = None

    def __repr__(self) -> str:
        return f"<OrderlyConsumer {len(self._at_work)} at work, {self._ready.qsize()} ready, {self.locks!r}>"

    def start(self, scope: TaskScope) -> None:
        """Start the workers and the renewal of the locks."""
        self._scope = scope
        settings, clock = self._environment.settings, self._environment.clock
        for number in range(settings.concurrency):
            scope.start(self._work(), name=f"listener-{number}")
        if self.locks is not None:
            locks = self.locks
            renewal = repeat(lambda: locks.renew(self._locked_queues), clock, first_ms=LOCK_INTERVAL_MS)
            scope.start(renewal, name="queue locks")

    def make_queue(self, queue: MessageQueue, offsets: QueueOffsets) -> PushQueue:
        """Return the sink of a queue that was taken."""
        source = OrderlyQueue(queue, offsets, self._environment, self.locks, self._submit)
        for gone in [each for each in self._runs if each.is_dropped]:
            del self._runs[gone]
        self._runs[source] = OrderlyBacklog(source)
        return source

    async def drain(self) -> None:
        """Begin nothing more, and return when nothing runs."""
        self._is_closing = True
        while self._at_work:
            await self._wait_for_an_end()

    def close(self) -> None:
        """Plan nothing more; to be called when no listener runs."""
        for planned in self._planned:
            planned.cancel()

    # ``QueueKeeper``

    async def hold(self, queues: Sequence[MessageQueue]) -> Collection[MessageQueue]:
        """Lock queues; return those that may be taken."""
        free = [queue for queue in queues if queue not in self._at_work]
        return free if self.locks is None or not free else await self.locks.lock(free)

    async def wait_unused(self, queue: MessageQueue) -> None:
        """Return when no listener has messages of a queue that was given up."""
        while queue in self._at_work:
            await self._wait_for_an_end()

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Give the locks of queues back."""
        if self.locks is not None:
            await self.locks.unlock(queues)

    async def release_all(self) -> None:
        """Give all locks back, and take none any more."""
        if self.locks is not None:
            await self.locks.unlock_all()

    # the work

    def _locked_queues(self) -> set[MessageQueue]:
        return {source.queue for source in self._runs if not source.is_dropped}.union(self._at_work)

    async def _wait_for_an_end(self) -> None:
        self._ended.clear()
        await self._ended.wait()

    def _submit(self, source: PushQueue, messages: Sequence[ReceivedMessage]) -> None:
        run = self._runs.get(source)
        if run is not None:
            run.add(messages)
            if not run.is_planned:
                run.is_planned = True
                self._ready.put_nowait(run)

    async def _work(self) -> None:
        while True:
            run = await self._ready.get()
            if self._is_closing or run.source.is_dropped:
                continue
            if self.locks is not None and not self.locks.holds(run.source.queue):
                self._later(LOCK_AGAIN_MS, run, must_lock=True)
                continue
            await self._run(run)
            await asyncio.sleep(0)  # a listener that never waits must not keep the loop for itself

    async def _run(self, run: OrderlyBacklog) -> None:
        messages = run.take(self._environment.settings.batch_messages)
        if not messages:
            run.is_planned = False
            return
        queue = run.source.queue
        self._at_work[queue] = run
        try:
            handler = self._environment.handlers.get(messages[0].topic, NO_HANDLER)
            pause_ms = await self._settle(run, messages, await self._environment.calls.attempt(handler, messages))
        finally:
            del self._at_work[queue]
            self._ended.set()
        if pause_ms is None:
            self._ready.put_nowait(run)
        else:
            self._later(pause_ms, run)

    def _later(self, delay_ms: int, run: OrderlyBacklog, *, must_lock: bool = False) -> None:
        def go_on() -> None:
            self._planned.discard(planned)
            if must_lock and self._scope is not None:
                self._scope.start(self._lock_again(run), name=f"lock {run.source.queue}")
            else:
                self._ready.put_nowait(run)

        clock = self._environment.clock
        planned = clock.call_at(clock.monotonic_ms() + delay_ms, go_on)
        self._planned.add(planned)

    async def _lock_again(self, run: OrderlyBacklog) -> None:
        queue = run.source.queue
        if self.locks is not None and not self.locks.holds(queue) and queue not in await self.locks.lock([queue]):
            self._later(LOCK_REFUSED_PAUSE_MS, run)
        else:
            self._ready.put_nowait(run)

    # what becomes of messages

    async def _settle(
        self, run: OrderlyBacklog, messages: list[ReceivedMessage], outcome: ListenerOutcome
    ) -> int | None:
        """Put away what a listener has had; return how long the queue rests, or None."""
        commits_itself = self._environment.settings.commits_itself
        if outcome is None or outcome is ConsumeResult.SUCCESS:
            if commits_itself:
                run.finish(messages)
            return None
        if outcome is ConsumeResult.COMMIT or outcome is ConsumeResult.ROLLBACK:
            if commits_itself:
                _log.warning(
                    "the listener returned %s for %s, but this consumer commits by itself: taken as SUCCESS",
                    outcome,
                    describe_messages(messages),
                )
                run.finish(messages)
                return None
            return self._commit_or_roll_back(run, outcome)
        return await self._put_back(run, messages, retry_of(outcome))

    def _commit_or_roll_back(self, run: OrderlyBacklog, outcome: ConsumeResult) -> int | None:
        if outcome is ConsumeResult.COMMIT:
            run.finish(run.taken)
            return None
        run.put_back(run.taken)
        return self._pause_of(Retry())

    async def _put_back(self, run: OrderlyBacklog, messages: list[ReceivedMessage], failure: Retry) -> int | None:
        succeeded, failed = messages[: failure.from_index], messages[failure.from_index :]
        again = [message for each in failed if (message := await self._count_failure(each)) is not None]
        left = {message.queue_offset for message in again}
        run.put_back(again)
        if self._environment.settings.commits_itself:
            run.finish(succeeded)
            run.finish([message for message in failed if message.queue_offset not in left])
        return self._pause_of(failure) if again else None

    async def _count_failure(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """Return the message with one failure more, or None when it has gone to the dead letters."""
        returner = self._environment.returner
        if (
            returner is not None
            and message.reconsume_times >= returner.max_retries
            and await returner.send_to_retry_topic(message)
        ):
            return None
        return replace(message, reconsume_times=message.reconsume_times + 1)

    def _pause_of(self, failure: Retry) -> int:
        pause_ms = self._environment.settings.pause_ms if failure.pause_ms is None else failure.pause_ms
        return min(max(pause_ms, LEAST_PAUSE_MS), LONGEST_PAUSE_MS)
