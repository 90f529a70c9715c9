"""Acknowledging messages, and changing how long they stay invisible (``AckMessageProcessor``; pop.md §4).

Rules

    1. The topic must be there (17), the queue (13), and the offset inside of what is stored (208): one may be
       acknowledged that is just behind the end, none may be changed there. A handle that says nothing is 1.
    2. Then all is answered 0, also what was never handed out, or ended, or is acknowledged already; that has no effect.
    3. A change makes a lease of the message alone, which begins at its own offset, and acknowledges it in the old one.
       The log has it before the old one lets go of it, since the group's offset may be behind it already.
    4. A lease that is over takes no change: its messages are on their way to the retry topic. One that nobody knows
       here does if it is from before the start, as the log pairs what belongs together; else it is another group's, or
       all of it is acknowledged.
    5. A handle of an ordered read speaks of the queue's batch (``ordered_batches.py``); the group's offset follows it.
       What lies before that offset is done already. A change there tells how long the message stays invisible since it
       was handed out.
    6. The broker of a handle is not looked at: brokers of one name have followed each other.
"""

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, MessageRefusedError, StoreError
from ...common.outcome import Outcome
from ...common.pop_texts import PopHandle, parse_handle
from ...store.message_store import MessageStore
from ..group.groups import OffsetTable
from ..outcomes.scheduler import Scheduler
from ..settings.refusal import FAQ, Refusal
from .check_points import LeaseKey
from .handing_out import ORDERED
from .leases import Lease, Leases
from .ordered_batches import NOTHING, REFUSED, Attempt, OrderedBatches, OrderedPlace
from .revival import PopLog, PopTables, Revival
from .waiting import PopWaiting


class AckRequest(Protocol):
    """Which message is meant; ``topic`` is the one that was really read."""

    consumer_group: str
    topic: str
    queue_id: int
    handle: str
    queue_offset: int


class BatchAck(NamedTuple):
    """Messages of one lease that are acknowledged together."""

    key: LeaseKey
    invisible_ms: int
    revive_queue_id: int
    queue_offsets: list[int]


class Changed(NamedTuple):
    """The lease that a message has now; without effect, its old one was over."""

    popped_at_ms: int
    invisible_ms: int
    revive_queue_id: int
    has_effect: bool = True


class HandleState(enum.Enum):
    """What a handle is worth."""

    RUNNING = enum.auto()
    """Its message is with the consumer."""
    DONE = enum.auto()
    """Its message is acknowledged already, as far as anybody knows."""
    OVER = enum.auto()
    """Its message comes again, or has."""
    NOTHING = enum.auto()
    """It speaks of no message that was handed out."""


class OrderedAcks:
    """The same for messages that were handed out in order."""

    def __init__(
        self, batches: OrderedBatches, offsets: OffsetTable, waiting: PopWaiting, now_ms: Callable[[], int]
    ) -> None:
        self._batches = batches
        self._offsets = offsets
        self._waiting = waiting
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<OrderedAcks {self._batches!r}>"

    def acknowledge(self, ack: AckRequest, popped_at_ms: int, consumer: tuple[str, int]) -> Refusal | None:
        """Be done with a message; return why not, if it is none of its batch."""
        place = OrderedPlace(ack.topic, ack.consumer_group, ack.queue_id)
        committed = self._committed(place)
        if self.acknowledge_at(place, ack.queue_offset, popped_at_ms) != REFUSED:
            return None
        remark = (
            f"offset is illegal, key:{place.topic}@{place.group}@{place.queue_id}, old:{committed}, "
            f"commit:{ack.queue_offset}, next:-1, /{consumer[0]}:{consumer[1]}"
        )
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)

    def acknowledge_at(self, place: OrderedPlace, queue_offset: int, popped_at_ms: int) -> int:
        """Be done with a message, and move the group; return what ``OrderedBatches.acknowledge`` does."""
        if queue_offset < self._committed(place):
            return NOTHING
        next_offset = self._batches.acknowledge(place, queue_offset, popped_at_ms)
        if next_offset >= 0:
            self._offsets.commit(place.group, place.topic, place.queue_id, next_offset)
            self._wake_if_free(place)
        return next_offset

    def change(self, ack: AckRequest, popped_at_ms: int, invisible_ms: int) -> Changed:
        """Have a message visible again at another time."""
        place, now_ms = OrderedPlace(ack.topic, ack.consumer_group, ack.queue_id), self._now_ms()
        if ack.queue_offset < self._committed(place):
            return Changed(0, 0, 0, has_effect=False)
        self._batches.change(place, ack.queue_offset, popped_at_ms, now_ms + invisible_ms)
        self._wake_if_free(place)
        return Changed(popped_at_ms, now_ms + invisible_ms - popped_at_ms, ORDERED)

    def state(self, place: OrderedPlace, handle: PopHandle) -> HandleState:
        """Tell what a handle is worth."""
        batch = self._batches.find(place)
        if handle.queue_offset < self._committed(place):
            return HandleState.DONE
        if batch is None or batch.popped_at_ms != handle.popped_at_ms:
            return HandleState.OVER
        if handle.queue_offset not in batch.queue_offsets:
            return HandleState.NOTHING
        if batch.is_acked(batch.queue_offsets.index(handle.queue_offset)):
            return HandleState.DONE
        until_ms = batch.visible_at_ms.get(handle.queue_offset, handle.ends_at_ms)
        is_running = until_ms > self._now_ms() or self._batches.keeper_ms(place, batch) > 0
        return HandleState.RUNNING if is_running else HandleState.OVER

    def _committed(self, place: OrderedPlace) -> int:
        return self._offsets.committed(place.group, place.topic, place.queue_id) or 0

    def _wake_if_free(self, place: OrderedPlace) -> None:
        until_ms = self._batches.blocked_until_ms(place, Attempt(None, 0))
        if until_ms is None:
            self._waiting.wake_queue(place.topic, place.group, place.queue_id)


class AckOperation:
    """Takes acknowledgements and changes."""

    def __init__(
        self,
        scheduler: Scheduler,
        tables: PopTables,
        leases: Leases,
        revival: Revival,
        ordered: OrderedAcks,
        log: PopLog,
        own: Callable[[], tuple[str, int]],
    ) -> None:
        self._scheduler = scheduler
        self._store: MessageStore = scheduler.store
        self._topics = tables.topics
        self._leases = leases
        self._revival = revival
        self._ordered = ordered
        self._log = log
        self._own = own  # the broker's name, and how many revive queues it has
        self._began_at_ms = log.now_ms()

    def __repr__(self) -> str:
        return f"<AckOperation {self._leases!r}>"

    def acknowledge(self, ack: AckRequest, consumer: tuple[str, int]) -> Outcome[Refusal | None]:
        """Be done with a message."""
        handle = self._check(ack, consumer, past_end=1)
        if isinstance(handle, Refusal):
            return Outcome(handle, is_settled=True)
        if handle.revive_queue_id == ORDERED:
            return Outcome(self._ordered.acknowledge(ack, handle.popped_at_ms, consumer), is_settled=True)
        return self._acknowledge([self._named(ack, handle)])

    def acknowledge_running(self, ack: AckRequest, consumer: tuple[str, int]) -> HandleState | Outcome[Refusal | None]:
        """Be done with a message that is with its consumer; else return what its handle is worth."""
        handle = self._check(ack, consumer, past_end=0)
        if isinstance(handle, Refusal):
            return HandleState.NOTHING
        named = self._named(ack, handle)
        state = self._state(ack, handle, named.key)
        if state is not HandleState.RUNNING:
            return state
        if handle.revive_queue_id == ORDERED:
            return Outcome(self._ordered.acknowledge(ack, handle.popped_at_ms, consumer), is_settled=True)
        return self._acknowledge([named])

    def acknowledge_batches(self, batches: Iterable[BatchAck]) -> Outcome[Refusal | None]:
        """Be done with messages of several leases; what is not stored here is passed over."""
        found: list[BatchAck] = []
        for batch in batches:
            place = batch.key.topic, batch.key.queue_id
            least, end = self._store.min_offset(*place), self._store.max_offset(*place)
            offsets = [offset for offset in batch.queue_offsets if least <= offset < end]
            if batch.revive_queue_id == ORDERED:
                for offset in offsets:
                    self._ordered.acknowledge_at(OrderedPlace(*batch.key[:3]), offset, batch.key.popped_at_ms)
            elif offsets:
                found.append(batch._replace(queue_offsets=offsets))
        return self._acknowledge(found)

    def change(
        self, ack: AckRequest, invisible_ms: int, consumer: tuple[str, int]
    ) -> Outcome[Refusal | Changed | None]:
        """Give a message another lease, from now on; None stands for one that could not be stored."""
        handle = self._check(ack, consumer, past_end=0)
        if isinstance(handle, Refusal):
            return Outcome(handle, is_settled=True)
        if handle.revive_queue_id == ORDERED:
            return Outcome(self._ordered.change(ack, handle.popped_at_ms, invisible_ms), is_settled=True)
        old, now_ms = self._make_lease(self._named(ack, handle)), self._log.now_ms()
        known = self._leases.find(old.key)
        key = old.key._replace(start_offset=ack.queue_offset, popped_at_ms=now_ms)
        while self._leases.find(key) is not None:  # the log would take them for one
            key = key._replace(popped_at_ms=key.popped_at_ms + 1)
        changed = Changed(key.popped_at_ms, invisible_ms, handle.revive_queue_id)
        if not self._may_change(known, old, ack.queue_offset):
            return Outcome(changed._replace(has_effect=False), is_settled=True)
        new = Lease(
            key=key,
            invisible_ms=invisible_ms,
            queue_offsets=(ack.queue_offset,),
            end_offset=ack.queue_offset + 1,
            revive_queue_id=old.revive_queue_id,
        )
        outcome: Outcome[Refusal | Changed | None] = Outcome()
        self._revival.replace(old, new, lambda is_stored: outcome.answer_with(changed if is_stored else None))
        return outcome

    def state(self, ack: AckRequest) -> HandleState:
        """Tell what a handle is worth, for who has to say more than Java does."""
        handle = self._check(ack, ("", 0), past_end=0)
        if isinstance(handle, Refusal):
            return HandleState.NOTHING
        return self._state(ack, handle, self._named(ack, handle).key)

    def _state(self, ack: AckRequest, handle: PopHandle, key: LeaseKey) -> HandleState:
        if handle.queue_offset != ack.queue_offset:
            return HandleState.NOTHING
        if handle.revive_queue_id == ORDERED:
            return self._ordered.state(OrderedPlace(ack.topic, ack.consumer_group, ack.queue_id), handle)
        lease = self._leases.find(key)
        if lease is None:
            is_over = handle.ends_at_ms <= self._log.now_ms()
            is_of_this_life = handle.popped_at_ms >= self._began_at_ms
            return HandleState.OVER if is_over else HandleState.DONE if is_of_this_life else HandleState.RUNNING
        if ack.queue_offset not in lease.queue_offsets:
            return HandleState.NOTHING
        if lease.acked >> lease.queue_offsets.index(ack.queue_offset) & 1:
            return HandleState.DONE
        return HandleState.OVER if lease.is_over else HandleState.RUNNING

    def _may_change(self, known: Lease | None, named: Lease, queue_offset: int) -> bool:
        if known is None:
            return named.key.popped_at_ms < self._began_at_ms
        return not known.is_over and queue_offset in known.open_offsets

    def _acknowledge(self, acks: Iterable[BatchAck]) -> Outcome[Refusal | None]:
        has_appended = False
        for ack in acks:
            if self._leases.acknowledge(ack.key, ack.queue_offsets):
                try:
                    self._log.put_acks(self._make_lease(ack), ack.queue_offsets)
                    has_appended = True
                except (StoreError, MessageRefusedError):
                    continue  # the message comes again; Java answers the same
        return self._scheduler.after_commit(None) if has_appended else Outcome(None, is_settled=True)

    def _check(self, ack: AckRequest, consumer: tuple[str, int], *, past_end: int) -> PopHandle | Refusal:
        topic = self._topics.get(ack.topic)
        if topic is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{ack.topic}] not exist, apply first please! {FAQ}")
        if not 0 <= ack.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{ack.queue_id}] is illegal, topic:[{ack.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{consumer[0]}:{consumer[1]}]"
            )
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        least, end = self._store.min_offset(ack.topic, ack.queue_id), self._store.max_offset(ack.topic, ack.queue_id)
        if not least <= ack.queue_offset < end + past_end:
            remark = (
                f"offset is illegal, key:{ack.topic}@{ack.queue_id}, commit:{ack.queue_offset}, store:{least}~{end}"
            )
            return Refusal(ResponseCode.NO_MESSAGE, remark if past_end else "not set any response code")
        try:
            return parse_handle(ack.handle)
        except DecodeError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(error))

    def _named(self, ack: AckRequest, handle: PopHandle) -> BatchAck:
        name, _ = self._own()
        key = LeaseKey(ack.topic, ack.consumer_group, ack.queue_id, handle.start_offset, handle.popped_at_ms, name)
        return BatchAck(key, handle.invisible_ms, handle.revive_queue_id, [ack.queue_offset])

    def _make_lease(self, batch: BatchAck) -> Lease:
        """Return what a lease looks like that consumers name; it may be none."""
        _, revive_queues = self._own()
        return Lease(
            key=batch.key,
            invisible_ms=batch.invisible_ms,
            queue_offsets=tuple(batch.queue_offsets),
            end_offset=0,
            revive_queue_id=batch.revive_queue_id % revive_queues,
        )
