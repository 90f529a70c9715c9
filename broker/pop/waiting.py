"""Requests that wait for a message: pops, and notifications (``PopLongPollingService``; pop.md §10).

Rules

    1. A request waits under its topic, group and queue; queue -1 stands for all. So many may wait under each, and so
       many at all; one more is told that there is no room.
    2. A message wakes one request of each group that waits at its queue, and one that waits for all queues: the one
       whose time ends first and whose filter takes it. A message of so many wakes without asking the filter, so that
       what a filter leaves out is passed at some time.
    3. A message of a retry topic says for whom it is (ORIGIN_GROUP); it wakes who waits at the normal topic, unasked.
    4. Who is woken is run again from the start. If there is nothing for it after all, it goes on waiting, for no longer
       than it would have.
    5. When its time is over, ``EARLY_MS`` before the client's is, it is run once more and answered whatever comes.
    6. Who has found something while there is more wakes one more of the same kind.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import field

from ...common.clock import Clock, TimerHandle
from ...common.names import RETRY_PREFIX
from ...common.outcome import Outcome
from ...common.pop_texts import normal_topic
from ...common.properties import ORIGIN_GROUP
from ...store.consumequeue.appended import Appended, Placed

EARLY_MS: Final = 50
ALL_QUEUES: Final = -1


class WaitKey(NamedTuple):
    """Under what a request waits."""

    topic: str
    group: str
    queue_id: int


class WaitLimits(NamedTuple):
    """How many may wait, and how often filters are not asked."""

    most: int
    most_under_key: int
    unasked_every: int


class RunAgain(Protocol):
    """Runs a request once more; None says that there is nothing and that it may wait on."""

    def __call__(self, *, is_last: bool) -> Any | None:
        """Return its answer, whatever it is if this is the last time."""
        ...


class Waiting(msgspec.Struct, eq=False):
    """One request that waits; ``accepts`` tells whether it may want a message (None takes all)."""

    key: WaitKey
    again: RunAgain
    accepts: Callable[[Appended], bool] | None
    outcome: Outcome[Any] = field(default_factory=Outcome[Any])
    until_ms: int = 0
    timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Waiting at {self.key}>"


class PopWaiting:
    """All requests that wait; times are of the monotonic clock."""

    def __init__(self, clock: Clock, limits: Callable[[], WaitLimits]) -> None:
        self._clock = clock
        self._limits = limits
        self._by_key: dict[WaitKey, list[tuple[int, int, Waiting]]] = {}  # heaps, with those that wait no longer
        self._counts: dict[WaitKey, int] = {}
        self._groups: dict[str, dict[WaitKey, None]] = {}  # keys by topic
        self._numbers = itertools.count()
        self._total = 0

    def __repr__(self) -> str:
        return f"<PopWaiting {self._total} at {len(self._by_key)} keys>"

    def __len__(self) -> int:
        return self._total

    def count(self, key: WaitKey) -> int:
        """Return how many wait under a key."""
        return self._counts.get(key, 0)

    def hold(self, waiting: Waiting, delay_ms: int) -> Outcome[Any] | None:
        """Keep a request for so long; return what will come of it, None when there is no room."""
        limits = self._limits()
        if self._total >= limits.most or self.count(waiting.key) > limits.most_under_key:
            return None
        waiting.until_ms = self._clock.monotonic_ms() + max(0, delay_ms)
        waiting.outcome.on_drop = partial(self._take, waiting)
        self._put(waiting)
        return waiting.outcome

    def arrived(self, records: Sequence[Placed]) -> None:
        """Wake who waits for a message that has become readable."""
        if not self._total:
            return
        for placed in records:
            if placed.queue is None:
                continue
            if placed.topic in self._groups:
                for record in placed.records():
                    self._offer(record)
            elif placed.topic.startswith(RETRY_PREFIX):
                for record in placed.records():
                    self._offer_retry(record)

    def wake_one(self, key: WaitKey) -> None:
        """Wake the first under a key: there is more than another one has taken."""
        self._wake_first(key, None)

    def wake_later(self, key: WaitKey, delay_ms: int) -> None:
        """Wake the first under a key after a while: what blocks a queue is over then."""
        self._clock.call_at(self._clock.monotonic_ms() + max(0, delay_ms), self.wake_one, key)

    def wake_queue(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one of a group that waits at a queue, and one that waits for all: the queue can be read again."""
        for each in (ALL_QUEUES, queue_id):
            self.wake_one(WaitKey(topic, group, each))

    def wake_gone(self, is_gone: Callable[[str], bool]) -> None:
        """Answer everybody who waits for messages of topics that are gone."""
        for topic in [topic for topic in self._groups if is_gone(topic)]:
            for key in list(self._groups[topic]):
                for _, _, waiting in list(self._by_key[key]):
                    self._finish(waiting)

    def wake_all(self) -> None:
        """Answer everybody: the broker stops."""
        for heap in list(self._by_key.values()):
            for _, _, waiting in list(heap):
                self._finish(waiting)

    def _offer(self, record: Appended) -> None:
        unasked = record.queue_offset % self._limits().unasked_every == 0 and record.queue_offset > 0
        for key in list(self._groups.get(record.topic, ())):
            if key.queue_id in (ALL_QUEUES, record.queue_id):
                self._wake_first(key, None if unasked else record)

    def _offer_retry(self, record: Appended) -> None:
        group = record.properties.get(ORIGIN_GROUP)
        if group is None:
            return
        topic = normal_topic(record.topic, group)
        for queue_id in (ALL_QUEUES, record.queue_id):
            self._wake_first(WaitKey(topic, group, queue_id), None)

    def _wake_first(self, key: WaitKey, record: Appended | None) -> None:
        for _, _, waiting in sorted(self._by_key.get(key, ())):
            if waiting.timer is not None and (record is None or waiting.accepts is None or waiting.accepts(record)):
                self._wake(waiting)
                return

    def _put(self, waiting: Waiting) -> None:
        key = waiting.key
        heapq.heappush(self._by_key.setdefault(key, []), (waiting.until_ms, next(self._numbers), waiting))
        self._counts[key] = self._counts.get(key, 0) + 1
        self._groups.setdefault(key.topic, {})[key] = None
        self._total += 1
        waiting.timer = self._clock.call_at(waiting.until_ms, self._finish, waiting)

    def _take(self, waiting: Waiting) -> bool:
        """Let a request wait no longer; tell whether it did."""
        if waiting.timer is None:
            return False
        waiting.timer.cancel()
        waiting.timer = None
        key = waiting.key
        self._total -= 1
        self._counts[key] -= 1
        heap = self._by_key[key]
        while heap and heap[0][2].timer is None:
            heapq.heappop(heap)
        if not self._counts[key]:
            del self._counts[key], self._by_key[key]
            keys = self._groups[key.topic]
            del keys[key]
            if not keys:
                del self._groups[key.topic]
        return True

    def _wake(self, waiting: Waiting) -> None:
        self._run(waiting, is_last=False)

    def _finish(self, waiting: Waiting) -> None:
        self._run(waiting, is_last=True)

    def _run(self, waiting: Waiting, *, is_last: bool) -> None:
        if not self._take(waiting):
            return
        try:
            answer = waiting.again(is_last=is_last)
        except Exception as error:  # the fault boundary of a held request
            waiting.outcome.fail(error)
            return
        if answer is None:
            self._put(waiting)
        else:
            waiting.outcome.answer_with(answer)
