"""What is handed out now: the leases in memory, which of them the log must know, and how far groups have come.

A lease is what one request was handed of one queue (a check point, in Java). In memory it is the authority; the log is
for what comes after a kill, and for the Java broker that opens the store next. (``PopBufferMergeService``; pop.md §7
and §17)

Rules

    1. A lease that is acknowledged in time costs no record. It goes to the log when it is ``STAY_MS`` old, or
       ``HURRY_MS`` before it ends, or at a stop; with what was acknowledged so far, in the same commit.
    2. It goes there at once when leases are not kept (``enablePopBufferMerge``), when it ends soon, when too many are
       kept, or when the log would take it for another one (the same start in the same millisecond). Nobody waits for
       that: until it is there, rule 3 holds.
    3. Leases of a group and queue stand in line. The group's offset moves behind the first when all of it is done, or
       when the log has it: so the offset is never ahead of what a kill leaves.
    4. Reading goes on behind the last in line. A read that found nothing it wanted stands there as well, done.
    5. An acknowledgement sets a bit. Of a lease that the log has, it is written to the log, too; so is one of a lease
       that nobody knows here: it may be from before a restart.
    6. What is not acknowledged when a lease ends is handed out by the retry topic. The log's check point comes out of
       the timer at about the same time; it is known then, and passed over.
    7. A lease of which everything is acknowledged is forgotten at once. If the log has it, its check point comes out of
       the timer as that of a stranger, and meets its acknowledgements there.
    8. Leases of a queue end without a word when the group is set elsewhere in it.
    9. A lease with a keeper does not end as long as that one wants it: its consumer lives and works. The log is not
       told: after a kill, what was handed out comes again when its first time is over.

It knows no store and no loop: who calls it does what it says.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from .check_points import CheckPoint, LeaseKey

STAY_MS: Final = 10_000
HURRY_MS: Final = 3_000
_MARGIN_MS: Final = 1_500
RETRY_MS: Final = 1_000
_NEVER_MS: Final = -1


class LeaseRules(NamedTuple):
    """Which leases are kept in memory alone (``enablePopBufferMerge``, ``popCkMaxBufferSize``, …)."""

    keeps: bool = True
    stay_ms: int = STAY_MS
    hurry_ms: int = HURRY_MS
    most: int = 200_000
    most_in_queue: int = 20_000


class LeaseQueue(NamedTuple):
    """A queue that a group reads; the topic is the one that is really read."""

    group: str
    topic: str
    queue_id: int


class LeaseKeeper(Protocol):
    """Keeps leases for a consumer while it lives."""

    def extend_ms(self, popped_at_ms: int) -> int:
        """Return how much longer something handed out at an instant stays with its consumer; 0 when it comes again."""
        ...


class InHand(NamedTuple):
    """What consumers of a group have of a queue, and where reading goes on."""

    queue_offsets: list[int]
    next_offset: int


class Lease(msgspec.Struct, eq=False, kw_only=True):
    """Messages of one queue that were handed out together; ``end_offset`` is where the next read begins."""

    key: LeaseKey
    invisible_ms: int
    queue_offsets: tuple[int, ...]
    end_offset: int
    revive_queue_id: int
    acked: int = 0
    """A bit for each of the messages."""
    is_stored: bool = False
    """Whether the log has its check point, and what was acknowledged before that."""
    is_seen: bool = False
    """Whether its check point has come out of the timer."""
    is_of_earlier_life: bool = False
    """Whether a broker handed it out that has ended since."""
    is_over: bool = False
    """Whether nothing of it will be handed out again."""
    planned_at_ms: int = _NEVER_MS
    """When something is to be done with it."""
    shifted_to_ms: int | None = None
    """When it ends instead of at ``ends_at_ms``."""
    keeper: LeaseKeeper | None = None

    def __repr__(self) -> str:
        state = "over" if self.is_over else f"{self.acked.bit_count()} of {len(self.queue_offsets)} acknowledged"
        return (
            f"<Lease of {self.key.group} at {self.key.topic}@{self.key.queue_id} from {self.key.start_offset}, {state}>"
        )

    @property
    def ends_at_ms(self) -> int:
        """When what is not acknowledged is handed out again, by its records in the log."""
        return self.key.popped_at_ms + self.invisible_ms

    @property
    def over_at_ms(self) -> int:
        """When what is not acknowledged is handed out again."""
        return self.ends_at_ms if self.shifted_to_ms is None else self.shifted_to_ms

    @property
    def queue(self) -> LeaseQueue:
        """The queue, for the group."""
        return LeaseQueue(self.key.group, self.key.topic, self.key.queue_id)

    @property
    def open_offsets(self) -> list[int]:
        """The messages that are not acknowledged."""
        return [offset for number, offset in enumerate(self.queue_offsets) if not self.acked >> number & 1]

    @property
    def acked_offsets(self) -> list[int]:
        """The messages that are acknowledged."""
        return [offset for number, offset in enumerate(self.queue_offsets) if self.acked >> number & 1]

    @property
    def is_acked(self) -> bool:
        """Whether all of it is acknowledged."""
        return self.acked == (1 << len(self.queue_offsets)) - 1

    def check_point(self) -> CheckPoint:
        """Return what the log keeps of it."""
        return CheckPoint(key=self.key, invisible_ms=self.invisible_ms, queue_offsets=self.queue_offsets)


class MovesOffset(Protocol):
    """Stores how far a group has come in a queue."""

    def __call__(self, group: str, topic: str, queue_id: int, queue_offset: int, /) -> object:
        """Do it."""
        ...


class _Event(NamedTuple):
    at_ms: int
    number: int
    lease: Lease

    @property
    def counts(self) -> bool:
        """Whether nothing else is planned for the lease meanwhile."""
        return self.at_ms == self.lease.planned_at_ms and not self.lease.is_over


class Leases:
    """All leases of a broker; times are of its wall clock."""

    def __init__(self, rules: Callable[[], LeaseRules], move_offset: MovesOffset) -> None:
        self._rules = rules
        self._move_offset = move_offset
        self._by_key: dict[LeaseKey, Lease] = {}  # with those that have ended and whose check points are still to come
        self._lines: dict[LeaseQueue, deque[Lease]] = {}
        self._events: list[_Event] = []
        self._numbers = itertools.count()
        self.kept = 0
        """How many of them the log knows nothing of."""

    def __repr__(self) -> str:
        return f"<Leases {len(self)}, {self.kept} in memory alone>"

    def __len__(self) -> int:
        return sum(not lease.is_over for lease in self._by_key.values())

    # --- handing out

    def next_offset(self, queue: LeaseQueue, committed: int) -> int:
        """Return where reading goes on."""
        line = self._lines.get(queue)
        return max(committed, line[-1].end_offset) if line else committed

    def in_flight(self, queue: LeaseQueue) -> list[int]:
        """Return the offsets of what is handed out of a queue and not acknowledged."""
        leases = (lease for lease in self._by_key.values() if lease.queue == queue and not lease.is_over)
        return sorted(itertools.chain.from_iterable(lease.open_offsets for lease in leases))

    def add(self, lease: Lease, now_ms: int) -> bool:
        """Take a lease; tell whether the log has to know of it at once."""
        rules = self._rules()
        goes_at_once = self._is_bound_for_log(lease, rules, now_ms)
        self._by_key.setdefault(lease.key, lease)
        self.kept += 1
        self._stand_in_line(lease)
        stays_until_ms = min(lease.key.popped_at_ms + rules.stay_ms, lease.ends_at_ms - rules.hurry_ms)
        self._plan(lease, now_ms + RETRY_MS if goes_at_once else stays_until_ms)
        return goes_at_once

    def _is_bound_for_log(self, lease: Lease, rules: LeaseRules, now_ms: int) -> bool:
        return (
            not rules.keeps
            or lease.ends_at_ms - now_ms <= rules.hurry_ms + _MARGIN_MS
            or self.kept >= rules.most
            or len(self._lines.get(lease.queue, ())) >= rules.most_in_queue
            or lease.key in self._by_key
        )

    def add_stored(self, lease: Lease, at_ms: int) -> None:
        """Take a lease from the log that nobody knew; what is not acknowledged is handed out again at an instant."""
        lease.is_stored = lease.is_seen = lease.is_of_earlier_life = True
        self._by_key[lease.key] = lease
        self._plan(lease, at_ms)

    def add_changed(self, lease: Lease) -> None:
        """Take a lease that the log has instead of another one, in whose place its message stands in line."""
        lease.is_stored = True
        self._by_key[lease.key] = lease
        self._plan(lease, lease.ends_at_ms)

    def skip(self, queue: LeaseQueue, popped_at_ms: int, end_offset: int) -> None:
        """Go on behind messages of which none was wanted."""
        key = LeaseKey(queue.topic, queue.group, queue.queue_id, end_offset, popped_at_ms, "")
        nothing = Lease(
            key=key, invisible_ms=0, queue_offsets=(), end_offset=end_offset, revive_queue_id=0, is_over=True
        )
        self._stand_in_line(nothing)

    # --- acknowledging

    def find(self, key: LeaseKey) -> Lease | None:
        """Return a lease that runs or that the log may still speak of."""
        return self._by_key.get(key)

    def acknowledge(self, key: LeaseKey, queue_offsets: Iterable[int]) -> bool:
        """Be done with messages; tell whether the log has to know of it."""
        lease = self._by_key.get(key)
        if lease is None:
            return True
        if lease.is_over:
            return False
        for queue_offset in queue_offsets:
            if queue_offset in lease.queue_offsets:
                lease.acked |= 1 << lease.queue_offsets.index(queue_offset)
        if lease.is_acked:
            self.end(lease)
        return lease.is_stored

    # --- what is due

    @property
    def due_at_ms(self) -> int | None:
        """When there is something to do; None while there is nothing."""
        events = self._events
        while events and not events[0].counts:
            heapq.heappop(events)
        return events[0].at_ms if events else None

    def take_due(self, now_ms: int, most: int) -> tuple[list[Lease], list[Lease]]:
        """Return leases that the log has to know now, and leases that have ended."""
        to_store: list[Lease] = []
        ended: list[Lease] = []
        while len(to_store) + len(ended) < most and (due_at_ms := self.due_at_ms) is not None and due_at_ms <= now_ms:
            lease = heapq.heappop(self._events).lease
            lease.planned_at_ms = _NEVER_MS
            if lease.over_at_ms > now_ms:
                to_store.append(lease)
            elif lease.keeper is not None and (more_ms := lease.keeper.extend_ms(lease.key.popped_at_ms)) > 0:
                lease.shifted_to_ms = now_ms + more_ms
                self._plan(lease, lease.over_at_ms)
            else:
                ended.append(lease)
        return to_store, ended

    def release(self, keeper: LeaseKeeper, at_ms: int) -> None:
        """End the leases of a keeper at an instant, unless they end before."""
        for lease in self._by_key.values():
            if lease.keeper is keeper:
                lease.keeper = None
                if not lease.is_over and at_ms < lease.over_at_ms:
                    lease.shifted_to_ms = at_ms
                    self._plan(lease, at_ms)

    def take_kept(self) -> list[Lease]:
        """Return the leases of which the log knows nothing: the broker stops."""
        return [lease for lease in self._by_key.values() if not lease.is_stored and not lease.is_over]

    def stored(self, leases: Sequence[Lease]) -> None:
        """Take note that the log has leases, and what was acknowledged of them."""
        for lease in leases:
            if not lease.is_stored and not lease.is_over:
                lease.is_stored = True
                self.kept -= 1
                self._plan(lease, lease.over_at_ms)
                self._move_on(lease.queue)

    def plan_again(self, leases: Iterable[Lease], at_ms: int) -> None:
        """Come back to leases with which nothing could be done."""
        for lease in leases:
            self._plan(lease, at_ms)

    def end(self, lease: Lease) -> None:
        """Hand out nothing more of a lease."""
        if lease.is_over:
            return
        lease.is_over = True
        if not lease.is_stored:
            self.kept -= 1
        if not lease.is_stored or lease.is_seen or lease.is_acked:
            self._forget(lease)
        self._move_on(lease.queue)

    # --- what the log says

    def pass_over(self, key: LeaseKey) -> bool:
        """Tell whether a check point that has come out of the timer is known here."""
        lease = self._by_key.get(key)
        if lease is None:
            return False
        lease.is_seen = True
        if lease.is_over:
            self._forget(lease)
        return True

    # --- what ends leases

    def drop_queue(self, queue: LeaseQueue) -> list[Lease]:
        """Forget the leases of a queue, where its group goes on elsewhere; return those that the log speaks of."""
        dropped = [lease for lease in self._by_key.values() if lease.queue == queue]
        self._lines.pop(queue, None)
        for lease in dropped:
            if not lease.is_over:
                self.kept -= not lease.is_stored
                lease.is_over = True
            self._forget(lease)
        return [lease for lease in dropped if lease.is_stored]

    def queues(self) -> set[LeaseQueue]:
        """Return the queues that have leases, or have been read by a group that has not been moved yet."""
        return {*self._lines, *(lease.queue for lease in self._by_key.values())}

    # --- lines

    def _stand_in_line(self, lease: Lease) -> None:
        self._lines.setdefault(lease.queue, deque()).append(lease)
        self._move_on(lease.queue)

    def _move_on(self, queue: LeaseQueue) -> None:
        line = self._lines.get(queue)
        if not line:
            return
        end_offset = -1
        while line and (line[0].is_over or line[0].is_stored):
            end_offset = line.popleft().end_offset
        if not line:
            del self._lines[queue]
        if end_offset >= 0:
            self._move_offset(*queue, end_offset)

    def _plan(self, lease: Lease, at_ms: int) -> None:
        lease.planned_at_ms = at_ms
        heapq.heappush(self._events, _Event(at_ms, next(self._numbers), lease))

    def _forget(self, lease: Lease) -> None:
        if self._by_key.get(lease.key) is lease:
            del self._by_key[lease.key]
