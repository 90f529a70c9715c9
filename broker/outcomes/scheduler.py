"""The scheduler: keeps outcomes until what they depend on has happened, and settles them in order.

commit    the records of one turn of the loop are written together when it ends (``commit_turn``). Every record that is
appended for a request has an outcome, which ``append`` returns: nobody can answer before it is written
queues    their entries are written behind the answers (``make_readable``), before anything else is read
flush     under SYNC_FLUSH those who want to wait are settled when the log is on disk (``group_commit``)
replicas  under SYNC_MASTER the same are settled when slaves have it as well (``replica_acks``). Slaves are told of a
commit at once; behind a fetch that stands at a queue of its messages, which is answered first then
topic     topics that were made for a request are saved and made known before it is answered, whatever it came to
disk      while no flush ends, requests that would wait for one are not begun (``disk_stall``)
arrival   fetches wait for a message, at most for a time (``LongPolling``); told by ``ArrivalNotices``

1. A commit that fails fails every outcome of its turn; nobody else is told anything.
2. Whoever appends without a request (deliveries, checks) appends to the store and commits here.
3. A participant adds records to a commit, behind all others: what was planned decides which.

Fetches that wait (``PullRequestHoldService``; spec behaviour.md B.4.7):

4. A fetch stands under each queue that it wants; an arrival looks at the fetches of its queue and at no others.
5. An arrival that its filter may accept wakes it at once; so does one that the filter fails on. One that it does not
   accept wakes it within 5 s, so that its offset moves on over what was skipped. Its time limit wakes it too.
6. Whoever is woken is run again and answered whatever comes, also when that fails; it never waits twice, and is woken
   once or dropped once, never both.
7. A commit only counts and collects what has arrived. It is handed out behind the answers to the producers: by whoever
   has served a read, else by the loop. Who is woken is answered at once, not with others of the turn.
8. A fetch that wants just the last message of its queue, and can tell by its tags, is answered before the entry of that
   is written. Should that fail, the store takes nothing more, and a consumer that asks on is told where the queue ends.
9. Whoever is told is a boundary of its own: what it raises is logged, the others are told all the same, and neither the
   producer nor the store notices.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import field

from ...common.clock import Clock, TimerHandle
from ...common.errors import StoreError
from ...common.ids import Address, format_address
from ...common.message import INNER_BATCH
from ...common.outcome import A, Outcome
from ...common.record import NewRecord, PlainPart
from ...store.consumequeue.appended import Appended, AppendedRun, Placed
from ...store.consumequeue.batch_queue import count_of
from ...store.message_store import MessageStore
from ...store.recovery.dispatcher import Arrivals
from ..settings.live import LiveSettings
from .disk_stall import DiskStall
from .group_commit import GroupCommit
from .queue_counts import QueueCounts, count_by_queue

if TYPE_CHECKING:
    from .replica_acks import ReplicaAcks

RECHECK_MS = 5000
_log = logging.getLogger(__name__)

Accepts = Callable[[Appended], bool]
MakeKnown = Callable[[Sequence[str], Callable[[], object]], object]
"""Save topics and tell name servers, then call; disk and name servers get a second."""


class CommitParticipant(Protocol):
    """Somebody who adds records to a commit."""

    def join(self) -> None:
        """Append them to the store."""
        ...

    def undo(self) -> None:
        """Take note that nothing of the commit was kept."""
        ...


class Follower(Protocol):
    """Somebody who copies the log."""

    def end_moved(self) -> object:
        """Take note that something has been written to it."""
        ...


class Scheduler:
    """All outcomes of a broker that depend on its store; lives on the event loop."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        make_known: MakeKnown,
        stall_settings: LiveSettings | None = None,
    ) -> None:
        self.store = store
        self._make_known = make_known
        self._turn: list[Outcome[Any]] = []
        self._participant: CommitParticipant | None = None
        self._group: GroupCommit | None = None
        self._replicas: ReplicaAcks | None = None
        self._followers: Sequence[Follower] = ()
        self._stall: DiskStall | None = None
        self._has_left = False  # queue entries of a commit
        self.readers: ArrivalNotices | None = None
        """Who is served before slaves, where senders wait for these."""
        self.failed_puts = 0
        """How many outcomes a failed commit has failed."""
        if store.config.is_sync_flush:
            if stall_settings is not None:
                self._stall = DiskStall(stall_settings, clock, self.end_turn)
            self._group = GroupCommit(store, clock, self.settle, self._stall)

    def __repr__(self) -> str:
        return f"<Scheduler {len(self._turn)} in this turn, {self._group!r}, {self._stall!r}>"

    # --- for operations

    @property
    def flushes_first(self) -> bool:
        """Whether senders who want that wait for the disk."""
        return self._group is not None

    @property
    def may_wait(self) -> bool:
        """Whether senders who want that wait for the disk or for slaves."""
        return self._group is not None or self._replicas is not None

    @property
    def replicas(self) -> "ReplicaAcks | None":
        """Who keeps those who wait for slaves; ``None`` where nobody does."""
        return self._replicas

    @property
    def stall(self) -> DiskStall | None:
        """Keeps requests from being begun while the disk stalls; ``None`` where nobody waits for it."""
        return self._stall

    def append(self, new: NewRecord) -> Outcome[Appended]:
        """Plan a record; what comes of it depends on its commit (raises as ``MessageStore.append`` does)."""
        outcome: Outcome[Appended] = Outcome(self.store.append(new))
        self._turn.append(outcome)
        return outcome

    def append_batch(self, head: NewRecord, parts: list[PlainPart]) -> Outcome[AppendedRun]:
        """Plan the records of a batch (raises as ``MessageStore.append_batch`` does)."""
        outcome: Outcome[AppendedRun] = Outcome(self.store.append_batch(head, parts))
        self._turn.append(outcome)
        return outcome

    def after_commit(self, answer: A) -> Outcome[A]:
        """Return an outcome that depends on what this turn commits, though it has appended nothing itself."""
        outcome: Outcome[A] = Outcome(answer)
        self._turn.append(outcome)
        return outcome

    def when_known(self, answer: A, topics: Sequence[str]) -> Outcome[A]:
        """Return an outcome that depends on topics being known, if any, and on nothing else."""
        outcome: Outcome[A] = Outcome(answer, new_topics=tuple(topics))
        self.settle(outcome)
        return outcome

    def failed(self, failure: Exception, topics: Sequence[str] = ()) -> Outcome[Any]:
        """Return an outcome that has failed, once topics are known, if any."""
        outcome: Outcome[Any] = Outcome(failure=failure, new_topics=tuple(topics))
        self.settle(outcome)
        return outcome

    def settle(self, outcome: Outcome[Any]) -> None:
        """Take one condition from an outcome; settle it if that was the last, when its topics are known."""
        outcome.conditions -= 1
        if outcome.conditions > 0:
            return
        if outcome.new_topics:
            self._make_known(outcome.new_topics, outcome.settle)
        else:
            outcome.settle()

    def join(self, participant: CommitParticipant) -> None:
        """Let somebody add records to the next commit."""
        self._participant = participant

    # --- for those who end a turn

    def end_turn(self) -> None:
        """Commit what this turn has planned, settle what depended on it, and let readers see it."""
        self.commit_turn()
        self.make_readable()

    def commit_turn(self) -> None:
        """Commit what this turn has planned, and settle what depended on it; ``make_readable`` follows."""
        if self._turn or self._participant is not None:
            try:
                self.commit(leaves_queues=True)
            except StoreError:
                return  # all who depended on it have been told

    def make_readable(self) -> None:
        """Let readers see what ``commit_turn`` has committed: its senders are answered, and go on meanwhile."""
        if self._has_left:
            self._has_left = False
            self.store.advance()

    def commit(self, *, leaves_queues: bool = False) -> None:
        """Commit what is planned, and settle what depended on it; ``leaves_queues`` to ``make_readable`` the queues.

        Raises:
            StoreError: It could not be written; all who depended on it have been told.
        """
        turn, self._turn = self._turn, []
        readers = self._waiting_readers() if leaves_queues and self._replicas is not None else None
        participant, self._participant = self._participant, None
        try:
            if participant is not None:
                participant.join()
            self.store.commit(leaves_queues=leaves_queues)
        except StoreError as error:
            if participant is not None:
                participant.undo()
            self.failed_puts += len(turn)
            for outcome in turn:
                outcome.failure = error
                self.settle(outcome)
            raise
        self._has_left |= leaves_queues and self._group is None  # a commit of nothing takes nothing from it
        if self._group is not None or self._replicas is not None:
            turn = self._keep_waiting(turn)
        if readers is not None:
            readers.hand_out_behind(self.make_readable)
        if self._followers:
            self.tell_followers()
        for outcome in turn:
            if outcome.new_topics or outcome.on_settled is not None:
                self.settle(outcome)
            else:
                outcome.is_settled = True  # what ``settle`` does when nobody waits yet

    def _waiting_readers(self) -> "ArrivalNotices | None":
        """Return whom ``make_readable`` will wake, fetches that wait for what is planned; ``None`` if nobody waits."""
        readers = None if self._group is not None else self.readers
        return readers if readers is not None and readers.are_waiting(self.store.planned) else None

    def _keep_waiting(self, turn: list[Outcome[Any]]) -> list[Outcome[Any]]:
        """Keep who waits for the disk or for slaves; return the others."""
        waiting = [outcome for outcome in turn if outcome.waits_for_store]
        conditions = 0
        if self._replicas is not None and waiting and (needed := self._replicas.needed) > 0:
            self._replicas.take(waiting, self.store.log_max_offset, needed)
            conditions += 1
        if self._group is not None:
            self._group.take(waiting)
            conditions += 1
        if not conditions:
            return turn
        if conditions > 1:
            for outcome in waiting:
                outcome.conditions = conditions
        return [outcome for outcome in turn if not outcome.waits_for_store] if waiting else turn

    # --- for the broker's life

    def replicate(self, followers: Sequence[Follower], replicas: "ReplicaAcks | None") -> None:
        """Tell ``followers``, who come and go, of each commit; senders wait for them where ``replicas`` says so."""
        self._followers, self._replicas = followers, replicas

    def tell_followers(self) -> None:
        """Say that something has been written to the log."""
        for follower in self._followers:
            follower.end_moved()

    def tell_flushed(self, failure: object) -> None:
        """Say that a flush is over; on the flusher's thread."""
        if self._group is not None:
            self._group.tell_flushed(failure)

    async def drain(self) -> None:
        """Wait until those who wait for the disk or for slaves now are answered."""
        if self._group is not None:
            await self._group.drain()
        if self._replicas is not None:
            await self._replicas.drain()

    def stop_parking(self) -> None:
        """Answer all requests that have not been begun; none is kept from it any more."""
        if self._stall is not None:
            self._stall.close()

    def close(self) -> None:
        """Leave the store alone from now on."""
        if self._group is not None:
            self._group.close()
        if self._replicas is not None:
            self._replicas.close()


class HeldFetch(msgspec.Struct, eq=False):
    """One fetch that waits.

    ``wanted`` maps its queues to the offsets that it waits for, ``accepts`` tells whether a message that arrives may be
    wanted (None takes all), ``again`` runs it once more, for the message that has woken it if one has, and returns its
    answer.
    """

    wanted: Mapping[tuple[str, int], int]
    accepts: Accepts | None
    again: Callable[[Appended | None], Any]
    peer: Address
    takes_newest: bool = False
    """Whether ``again`` can answer with the last message of a queue whose entry is not there yet."""
    outcome: Outcome[Any] = field(default_factory=Outcome[Any])
    until_ms: int = 0
    timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<HeldFetch of {', '.join(f'{key[0]}@{key[1]} from {offset}' for key, offset in self.wanted.items())}>"


class LongPolling:
    """All fetches that wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[tuple[str, int], dict[HeldFetch, None]] = {}

    def __repr__(self) -> str:
        return f"<LongPolling {len(self)} at {len(self._queues)} queues>"

    def __len__(self) -> int:
        return len(self._held())

    def hold(self, fetch: HeldFetch, delay_ms: int) -> Outcome[Any]:
        """Keep a fetch for at most so long; return what will come of it."""
        for key in fetch.wanted:
            self._queues.setdefault(key, {})[fetch] = None
        fetch.until_ms = self._clock.monotonic_ms() + delay_ms
        fetch.timer = self._clock.call_at(fetch.until_ms, self._wake, fetch)
        fetch.outcome.goes_at_once = True
        fetch.outcome.on_drop = partial(self._take, fetch)
        return fetch.outcome

    def is_awaited(self, records: Sequence[Placed]) -> bool:
        """Tell whether a fetch stands at the queue of any of these."""
        queues = self._queues
        return bool(queues) and any((placed.topic, placed.queue_id) in queues for placed in records)

    def arrived(self, records: Sequence[Placed]) -> None:
        """Wake who waits for a message that has become readable."""
        queues = self._queues
        if not queues:
            return
        for placed in records:
            key = placed.topic, placed.queue_id
            if placed.queue is not None and key in queues:
                for record in placed.records():
                    self._offer(key, record)

    def coming(self, records: Sequence[Placed]) -> None:
        """Wake who waits for the last message of a queue and does not need its entry, which is about to be written."""
        queues = self._queues
        if not queues:
            return
        for placed in records:
            key = placed.topic, placed.queue_id
            if key in queues and type(placed) is Appended and placed.is_newest:
                for fetch in list(queues[key]):
                    is_next = fetch.takes_newest and fetch.wanted[key] == placed.queue_offset
                    if is_next and (fetch.accepts is None or _may_want(fetch, fetch.accepts, placed)):
                        self._wake(fetch, placed)

    def _offer(self, key: tuple[str, int], record: Appended) -> None:
        for fetch in list(self._queues.get(key, ())):
            if record.queue_offset < fetch.wanted[key]:
                continue
            if fetch.accepts is None or _may_want(fetch, fetch.accepts, record):
                self._wake(fetch, record)
            else:
                self._recheck_soon(fetch)

    def wake_topic(self, topic: str) -> None:
        """Wake who waits for messages of a topic: it is gone, or readers shall go on elsewhere."""
        for fetch in self._held():
            if any(name == topic for name, _ in fetch.wanted):
                self._wake(fetch)

    def wake_all(self) -> None:
        """Wake everybody: the broker stops."""
        for fetch in self._held():
            self._wake(fetch)

    def _held(self) -> dict[HeldFetch, None]:
        return dict.fromkeys(fetch for fetches in self._queues.values() for fetch in fetches)

    def _recheck_soon(self, fetch: HeldFetch) -> None:
        at_ms = self._clock.monotonic_ms() + RECHECK_MS
        assert fetch.timer is not None, "who stands at a queue has one"
        if at_ms < fetch.until_ms:
            fetch.timer.cancel()
            fetch.until_ms = at_ms
            fetch.timer = self._clock.call_at(at_ms, self._wake, fetch)

    def _wake(self, fetch: HeldFetch, arrived: Appended | None = None) -> None:
        if self._take(fetch):
            try:
                answer = fetch.again(arrived)
            except Exception as error:  # the fault boundary of a held request
                fetch.outcome.fail(error)
            else:
                fetch.outcome.answer_with(answer)

    def _take(self, fetch: HeldFetch) -> bool:
        """Let a fetch wait no longer; tell whether it did."""
        if fetch.timer is None:
            return False
        fetch.timer.cancel()
        fetch.timer = None
        for key in fetch.wanted:
            fetches = self._queues[key]
            del fetches[fetch]
            if not fetches:
                del self._queues[key]
        return True


def _may_want(fetch: HeldFetch, accepts: Accepts, record: Appended) -> bool:
    """Tell whether a fetch may want a message; one whose filter fails reads, and fails by itself."""
    try:
        return accepts(record)
    except Exception:  # the fault boundary of a held request
        _log.exception(
            "filtering for the long poll from %s failed at topic %s, queueId %d, offset %d: running the pull again now",
            format_address(*fetch.peer),
            record.topic,
            record.queue_id,
            record.queue_offset,
        )
        return True


class PutCounts:
    """What has become readable since the start of the broker, whoever had it stored; a batch counts its messages."""

    MESSAGES, BYTES, MILLISECONDS = range(3)

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.queues: QueueCounts[str] = count_by_queue(3)
        """By topic: messages, their bytes, and the milliseconds from their store time on."""
        self.messages = 0
        self.bytes = 0
        self.times: defaultdict[int, int] = defaultdict(int)
        """How many messages took how many milliseconds from their store time on; whoever samples it begins anew."""
        self._now_ms = now_ms

    def add(self, records: Sequence[Placed]) -> None:
        """Count records that have become readable together."""
        queues, count, size = self.queues, 0, 0
        took_ms = self._now_ms() - records[0].stored_at_ms
        spent_ms = max(0, took_ms)
        topic, queue_id, row = "", -1, [0, 0, 0]
        for record in records:
            if type(record) is AppendedRun:
                held = len(record.sizes)
            elif record.sys_flag & INNER_BATCH:
                held = count_of(record.sys_flag, record.properties)
            else:
                held = 1
            if record.queue_id != queue_id or record.topic != topic:
                topic, queue_id = record.topic, record.queue_id
                row = queues[topic][queue_id]
            row[0] += held
            row[1] += record.size
            row[2] += spent_ms * held
            count += held
            size += record.size
        self.messages += count
        self.bytes += size
        self.times[took_ms] += count


class ArrivalNotices:
    """Hands out what the store says has become readable; lives on the event loop."""

    def __init__(self, counts: PutCounts, long_polling: LongPolling, *told: Arrivals) -> None:
        self._counts = counts
        self._coming = long_polling.coming
        self._told = long_polling.arrived, *told
        self.are_waiting = long_polling.is_awaited
        self._loop = asyncio.get_running_loop()
        self._collected: list[Sequence[Placed]] = []
        self._is_expected = False  # by who hands it out

    def __repr__(self) -> str:
        return f"<ArrivalNotices {sum(map(len, self._collected))} to be told to {len(self._told)}>"

    def collect(self, records: Sequence[Placed]) -> None:
        """Take records that one commit has made readable."""
        if not self._collected and not self._is_expected:
            self._loop.call_soon(self.hand_out)
        self._counts.add(records)
        self._collected.append(records)

    def coming(self, records: Sequence[Placed]) -> None:
        """Tell who need not wait until records are readable."""
        try:
            self._coming(records)
        except Exception:  # the fault boundary of a notice
            _log_failed_notice(records)

    def hand_out_behind(self, step: Callable[[], object]) -> None:
        """Take a step that makes records readable, and hand them out at once."""
        self._is_expected = True
        try:
            step()
        finally:
            self._is_expected = False
            self.hand_out()

    def hand_out(self) -> None:
        """Tell what is collected; the loop does so in any case."""
        collected, self._collected = self._collected, []
        for records in collected:
            for tell in self._told:
                try:
                    tell(records)
                except Exception:  # the fault boundary of a notice
                    _log_failed_notice(records)


def _log_failed_notice(records: Sequence[Placed]) -> None:
    _log.exception(
        "notifying long polls and deliveries of %d messages from log offset %d on failed; "
        "the messages are stored, long polls find them when they time out",
        sum(len(placed.records()) for placed in records),
        records[0].log_offset,
    )


def by_topic(takers: Mapping[str, Callable[[Appended], object]]) -> Arrivals:
    """Return a call that hands records in the queues of a topic to whoever takes them; others cost nothing."""

    def hand_out(records: Sequence[Placed]) -> None:
        for placed in records:
            if placed.topic in takers and placed.queue is not None:
                for record in placed.records():
                    takers[record.topic](record)

    return hand_out
