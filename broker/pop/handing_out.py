"""Handing messages out for a time (``PopMessageProcessor``; pop.md §2).

Rules

    1. The checks, in their order (§2.1). No filter of the request may be beyond understanding.
    2. Queues are looked at in turn until there are enough messages: one that is named, or all from a chance one on,
       downwards. The group's retry topic comes behind them, in a share of the requests before. A topic for priorities
       is read from its highest queue on.
    3. A queue is read from the group's offset on, or behind what is handed out already. A group without an offset
       begins at the start (initMode 0, retry topics) or with the newest message; that is stored at once. Where an
       administrator has set the group elsewhere, its leases are forgotten, and it goes on there.
    4. An offset outside of the queue is set right, and the queue read once more.
    5. What is found is a lease (``leases.py``); where nothing was wanted, the group goes on behind it.
    6. A message of a retry topic is handed out under the name of the topic that was asked for, with its handle in
       POP_CK; nobody could tell whose queue it is from else.
    7. A request that was born more than a minute ago, or will be, has another clock: it was born now. (Java refuses
       it, or has it wait for as long as the clocks differ.)
    8. A request that finds nothing waits, if it may (``waiting.py``).
    9. Who reads in order reads from the group's offset on and no retry topic; a queue of which a message is out is
       passed over (``ordered_batches.py``). Such a request waits until that is over, too.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Final, Protocol

import msgspec

from ...common.codes import ResponseCode
from ...common.java_numbers import parse_int64
from ...common.names import PERM_READ, RETRY_PREFIX, pop_retry_topics
from ...common.outcome import Outcome
from ...common.pop_texts import NORMAL, PopHandle, PoppedQueue, format_order_counts, retry_kind
from ...common.properties import POP_CK, encode_properties
from ...common.record import NewRecord, Record, decode_record, encode_record
from ...store.consumequeue.queue_reader import ReadResult, ReadStatus
from ...store.message_store import MessageStore
from ..group.filters import FilterSelection, PullFilter
from ..settings.live import LiveSettings
from ..settings.refusal import FAQ, Refusal
from ..topic.topics import MESSAGE_TYPE
from .check_points import LeaseKey
from .group_queues import GroupQueues
from .leases import Lease, LeaseKeeper, LeaseQueue, Leases
from .ordered_batches import Attempt, OrderedBatches, OrderedPlace
from .revival import PopTables, Revival
from .waiting import EARLY_MS, PopWaiting, Waiting, WaitKey

MOST_MESSAGES: Final = 32
FROM_FIRST: Final = 0
ORDERED: Final = 999
"""What stands for a revive queue where none is needed."""
_LATE_MS: Final = 500
_SKEW_MS: Final = 60_000
_NO_TIME_MS: Final = 10 * 365 * 86_400_000
"""Before so long it is no clock that is wrong."""
_OUTSIDE: Final = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL)
_NOT_WANTED: Final = (ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.OFFSET_FOUND_NULL, ReadStatus.MESSAGE_WAS_REMOVING)
_CHANCES: Final = 100
_PRIORITY: Final = "PRIORITY"
_PRIORITY_FACTOR: Final = "priority.factor"
"""How many percent of the requests of a group go by priority; all, unless it says otherwise."""


class PopRequest(Protocol):
    """What a consumer asks for."""

    consumer_group: str
    topic: str
    queue_id: int
    max_messages: int
    invisible_ms: int
    poll_ms: int
    born_at_ms: int
    init_mode: int
    expression_type: str | None
    expression: str | None
    is_ordered: bool
    attempt_id: str | None


class NotificationRequest(Protocol):
    """Where a consumer wants to know if there is anything."""

    consumer_group: str
    topic: str
    queue_id: int
    poll_ms: int
    born_at_ms: int
    is_ordered: bool
    attempt_id: str | None


class Place(Protocol):
    """What either asks about."""

    consumer_group: str
    topic: str
    queue_id: int


class OrderedLook(Place, Protocol):
    """The same, and whether in order."""

    is_ordered: bool
    attempt_id: str | None


class Popped(msgspec.Struct):
    """What was handed out; ``records`` are in the order of ``queues``, ``rest`` is what their queues still have."""

    popped_at_ms: int
    invisible_ms: int
    revive_queue_id: int
    rest: int = 0
    queues: list[PoppedQueue] = msgspec.field(default_factory=list[PoppedQueue])
    records: list[bytes | memoryview] = msgspec.field(default_factory=list[bytes | memoryview])
    is_polling_full: bool = False
    order_counts: list[str] = msgspec.field(default_factory=list[str])
    """How often what is read in order was handed out before, by queue."""
    blocked_until_ms: int | None = None
    """When the first queue that was passed over can be read."""

    @property
    def message_count(self) -> int:
        """How many messages that are."""
        return sum(len(each.queue_offsets) for each in self.queues)


class PopValidator:
    """Admits requests."""

    def __init__(
        self, settings: LiveSettings, tables: PopTables, filters: FilterSelection, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._filters = filters
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<PopValidator for {self._tables.topics!r}>"

    def validate(self, request: PopRequest, consumer: tuple[str, int]) -> PullFilter | Refusal:
        """Return what the consumer wants of a queue, or why it gets nothing."""
        refusal = self._refuse_request(request) or self.refuse_place(request, consumer)
        if refusal is not None:
            return refusal
        return self._filters.pop_filter(request.expression_type, request.expression)

    def _refuse_request(self, request: PopRequest) -> Refusal | None:
        broker, now_ms = f"the broker[{self._settings.ip}] pop message", self._now_ms()
        if now_ms - (request.born_at_ms or now_ms) - request.poll_ms > _LATE_MS:
            return Refusal(ResponseCode.POLLING_TIMEOUT, f"{broker} is timeout too much")
        if not self._settings.config.permission & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, f"{broker} is forbidden")
        if request.max_messages > MOST_MESSAGES:
            return Refusal(ResponseCode.INVALID_PARAMETER, f"{broker}'s num is greater than {MOST_MESSAGES}")
        if not self._settings.config.is_timer_wheel_enabled:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{broker} is forbidden because timerWheelEnable is false")
        return None

    def refuse_look(self, request: Place, consumer: tuple[str, int]) -> Refusal | None:
        """Return why a group may not look at a topic or a queue, None if it may."""
        if not self._settings.config.permission & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, self._settings.forbids("peeking message"))
        return self.refuse_place(request, consumer)

    def refuse_place(self, request: Place, consumer: tuple[str, int]) -> Refusal | None:
        """Return why a group may not have anything of a topic or a queue, None if it may."""
        name, group = request.topic, request.consumer_group
        topic = self._tables.topics.get(name)
        if topic is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}")
        if not topic.perm & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if request.queue_id >= topic.read_queue_nums:
            remark = (
                f"queueId[{request.queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{consumer[0]}:{consumer[1]}]"
            )
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        settings = self._tables.groups.find(group)
        if settings is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not settings.consume_enable:
            return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        return None


class _Taking:
    """What one request has been given so far."""

    def __init__(self, request: PopRequest, wanted: PullFilter, popped: Popped, keeper: LeaseKeeper | None) -> None:
        self.request = request
        self.wanted = wanted
        self.popped = popped
        self.keeper = keeper

    @property
    def room(self) -> int:
        """How many messages it may still be given."""
        return self.request.max_messages - self.popped.message_count

    def lease(self, queue: LeaseQueue, start_offset: int, result: ReadResult, broker_name: str) -> Lease:
        """Return what holds the messages of a queue for the consumer."""
        popped = self.popped
        offsets = tuple(int.from_bytes(record[20:28], "big") for record in _split(result.records))
        return Lease(
            key=LeaseKey(queue.topic, queue.group, queue.queue_id, start_offset, popped.popped_at_ms, broker_name),
            invisible_ms=popped.invisible_ms,
            queue_offsets=offsets,
            end_offset=result.next_offset,
            revive_queue_id=popped.revive_queue_id,
            keeper=self.keeper,
        )


class PopOperation:
    """Hands messages out; ``chance`` returns a number below the one that it is given."""

    def __init__(
        self,
        store: MessageStore,
        settings: LiveSettings,
        validator: PopValidator,
        tables: PopTables,
        leases: Leases,
        queues: GroupQueues,
        revival: Revival,
        ordered: OrderedBatches,
        waiting: PopWaiting,
        now_ms: Callable[[], int],
        chance: Callable[[int], int] = random.randrange,
    ) -> None:
        self._store = store
        self._settings = settings
        self._validator = validator
        self._tables = tables
        self._leases = leases
        self._queues = queues
        self._revival = revival
        self._ordered = ordered
        self._waiting = waiting
        self._now_ms = now_ms
        self._chance = chance
        self._next_revive_queue = 0
        self.queues: set[LeaseQueue] = set()
        """Those that groups have read."""

    def __repr__(self) -> str:
        return f"<PopOperation {self._leases!r}>"

    def pop(
        self, request: PopRequest, consumer: tuple[str, int], keeper: LeaseKeeper | None = None
    ) -> Outcome[Popped | Refusal]:
        """Hand out what there is, or wait for it; ``keeper`` keeps what is handed out."""
        request.born_at_ms = self._born_at(request.born_at_ms)
        wanted = self._validator.validate(request, consumer)
        if isinstance(wanted, Refusal):
            return Outcome(wanted, is_settled=True)
        popped = self._take(request, wanted, keeper)
        key = WaitKey(request.topic, request.consumer_group, request.queue_id)
        if popped.records or request.poll_ms <= 0:
            self._wake_next(key, popped)
            return Outcome(popped, is_settled=True)
        again = partial(self._pop_again, request, consumer, keeper)
        held = Waiting(key, again, wanted.accepts_arrival)
        delay_ms = request.born_at_ms + request.poll_ms - EARLY_MS - self._now_ms()
        outcome = self._waiting.hold(held, delay_ms)
        self._wake_when_free(key, popped)
        if popped.rest > 0:
            self._waiting.wake_one(key)
        if outcome is None:
            popped.is_polling_full = True
            return Outcome(popped, is_settled=True)
        return outcome

    def notify(self, request: NotificationRequest, consumer: tuple[str, int]) -> Outcome[bool | Refusal | None]:
        """Tell whether there is something for a group, or wait for it; None says that there is no room to wait."""
        refusal = self._validator.refuse_look(request, consumer)
        if refusal is not None:
            return Outcome(refusal, is_settled=True)
        has_message = self._has_message(request)
        if has_message or request.poll_ms <= 0:
            return Outcome(has_message, is_settled=True)

        def look_again(*, is_last: bool) -> bool | None:
            return self._has_message(request) or (False if is_last else None)

        now_ms = self._now_ms()
        delay_ms = self._born_at(request.born_at_ms) + request.poll_ms - EARLY_MS - now_ms
        key = WaitKey(request.topic, request.consumer_group, request.queue_id)
        return self._waiting.hold(Waiting(key, look_again, None), delay_ms) or Outcome(None, is_settled=True)

    def refuse_look(self, request: Place, consumer: tuple[str, int]) -> Refusal | None:
        """Return why a group may not know how a topic or a queue stands, None if it may."""
        return self._validator.refuse_look(request, consumer)

    def _born_at(self, said_ms: int) -> int:
        """Return when a request was born, of which its client says so."""
        late_ms = self._now_ms() - said_ms
        is_believed = 0 <= late_ms <= _SKEW_MS or (said_ms and late_ms > _NO_TIME_MS)
        return said_ms if is_believed else self._now_ms()

    def _has_message(self, request: OrderedLook) -> bool:
        group = request.consumer_group
        retries = (self._queues.every(group, name) for name in pop_retry_topics(request.topic, group))
        for queue in chain(self._queues.chosen(group, request.topic, request.queue_id), *retries):
            if request.is_ordered and self._is_blocked(request, queue):
                continue
            if self._queues.rest(queue, self._queues.next_offset(queue)) > 0:
                return True
        return False

    def _is_blocked(self, request: OrderedLook, queue: LeaseQueue) -> bool:
        attempt = Attempt(request.attempt_id, 0)
        return self._ordered.blocked_until_ms(_ordered_place(queue), attempt) is not None

    def _pop_again(
        self, request: PopRequest, consumer: tuple[str, int], keeper: LeaseKeeper | None, *, is_last: bool
    ) -> Popped | Refusal | None:
        wanted = self._validator.validate(request, consumer)
        if isinstance(wanted, Refusal):
            return wanted
        popped = self._take(request, wanted, keeper)
        key = WaitKey(request.topic, request.consumer_group, request.queue_id)
        if not popped.records and not is_last:
            self._wake_when_free(key, popped)
            return None
        self._wake_next(key, popped)
        return popped

    def _wake_when_free(self, key: WaitKey, popped: Popped) -> None:
        if popped.blocked_until_ms is not None:
            self._waiting.wake_later(key, popped.blocked_until_ms - self._now_ms())

    def _wake_next(self, key: WaitKey, popped: Popped) -> None:
        if popped.records and popped.rest > 0:
            self._waiting.wake_one(key)

    def _take(self, request: PopRequest, wanted: PullFilter, keeper: LeaseKeeper | None) -> Popped:
        revive_queue = ORDERED
        if not request.is_ordered:
            revive_queue = self._next_revive_queue % self._settings.config.revive_queues
            self._next_revive_queue += 1
        taking = _Taking(request, wanted, Popped(self._now_ms(), request.invisible_ms, revive_queue), keeper)
        read = self._read_ordered if request.is_ordered else self._read
        for queue in self._order(request):
            read(taking, queue)
        return taking.popped

    def _order(self, request: PopRequest) -> Iterator[LeaseQueue]:
        """Yield the queues in the order in which they are looked at."""
        config, start = self._settings.config.pop, self._chance(_CHANCES)
        is_by_priority = not request.is_ordered and self._is_by_priority(request, start)
        retries = [] if request.is_ordered else list(self._retry_queues(request, start))
        is_retry_first = start < (config.priority_retry_percent if is_by_priority else config.retry_percent)
        start = 0 if is_by_priority else start
        if is_retry_first:
            yield from retries
        group, topic = request.consumer_group, request.topic
        if request.queue_id < 0 and config.reads_queues_downwards:
            yield from reversed(list(self._queues.every(group, topic, start)))
        else:
            yield from self._queues.chosen(group, topic, request.queue_id, start)
        if not is_retry_first:
            yield from retries

    def _is_by_priority(self, request: PopRequest, chance: int) -> bool:
        """Tell whether the highest queues come first: in a topic of that type, in the share that its group wants."""
        topic, group = self._tables.topics.get(request.topic), self._tables.groups.get(request.consumer_group)
        if topic is None or topic.attributes.get(MESSAGE_TYPE) != _PRIORITY:
            return False
        share = None if group is None else parse_int64(group.attributes.get(_PRIORITY_FACTOR, ""))
        return chance < (_CHANCES if share is None else share)

    def _retry_queues(self, request: PopRequest, start: int) -> Iterator[LeaseQueue]:
        config = self._settings.config.pop
        since_v2, before = pop_retry_topics(request.topic, request.consumer_group)
        name = since_v2 if config.writes_retry_v2 else before
        if config.writes_retry_v2 and config.reads_retry_v1 and start % 2 == 0:
            name = before
        return self._queues.every(request.consumer_group, name, start)

    def _read(self, taking: _Taking, queue: LeaseQueue) -> None:
        popped, config = taking.popped, self._settings.config
        start_offset = self._start_offset(queue, taking.request.init_mode)
        if taking.room <= 0 or self._has_enough_in_flight(queue):
            popped.rest += max(0, self._queues.rest(queue, start_offset))
            return
        start_offset, result = self._read_inside(queue, start_offset, taking)
        if result.records:
            lease = taking.lease(queue, start_offset, result, config.broker_name)
            self._revival.hand_out(lease)
            popped.queues.append(
                PoppedQueue(retry_kind(queue.topic), queue.queue_id, start_offset, list(lease.queue_offsets))
            )
            popped.records += self._named(taking, queue, start_offset, result)
        elif result.status in _NOT_WANTED and result.next_offset > start_offset:
            self._leases.skip(queue, popped.popped_at_ms, result.next_offset)
        popped.rest += max(0, result.max_offset - result.next_offset)

    def _read_ordered(self, taking: _Taking, queue: LeaseQueue) -> None:
        popped, request = taking.popped, taking.request
        place = _ordered_place(queue)
        attempt = Attempt(request.attempt_id, request.invisible_ms, popped.popped_at_ms)
        start_offset = self._start_offset(queue, request.init_mode)
        until_ms = self._ordered.blocked_until_ms(place, attempt)
        if until_ms is not None:
            popped.blocked_until_ms = min(until_ms, popped.blocked_until_ms or until_ms)
            return
        if taking.room <= 0:
            popped.rest += max(0, self._queues.rest(queue, start_offset))
            return
        start_offset, result = self._read_inside(queue, start_offset, taking)
        if result.records:
            offsets = [int.from_bytes(record[20:28], "big") for record in _split(result.records)]
            counts = self._ordered.hand_out(place, offsets, attempt, taking.keeper)
            self._tables.offsets.commit(*queue, start_offset)
            kind = retry_kind(queue.topic)
            popped.queues.append(PoppedQueue(kind, queue.queue_id, start_offset, offsets))
            popped.order_counts.append(format_order_counts(kind, queue.queue_id, counts))
            popped.records += result.records
        elif result.status in _NOT_WANTED and result.next_offset > start_offset:
            self._tables.offsets.commit(*queue, result.next_offset)
        popped.rest += max(0, result.max_offset - result.next_offset)

    def _read_inside(self, queue: LeaseQueue, start_offset: int, taking: _Taking) -> tuple[int, ReadResult]:
        """Read a queue; if the offset is outside of it, from where it is right."""
        result = self._queues.read(queue, start_offset, taking.room, taking.wanted)
        if result.status in _OUTSIDE and result.next_offset != start_offset:
            start_offset = result.next_offset
            self._tables.offsets.commit(*queue, start_offset)
            result = self._queues.read(queue, start_offset, taking.room, taking.wanted)
        return start_offset, result

    def _has_enough_in_flight(self, queue: LeaseQueue) -> bool:
        config = self._settings.config.pop
        return config.limits_in_flight and len(self._leases.in_flight(queue)) > config.most_in_flight

    def _start_offset(self, queue: LeaseQueue, init_mode: int) -> int:
        """Return where reading goes on."""
        self.queues.add(queue)
        offsets = self._tables.offsets
        if offsets.resets and (reset_to := offsets.take_reset(*queue)) is not None:
            self._revival.forget(queue)
            self._ordered.forget(_ordered_place(queue))
            offsets.commit(*queue, reset_to)
            return reset_to
        committed = offsets.committed(*queue)
        if committed is None:
            committed = self._first_offset(queue, init_mode)
            offsets.commit(*queue, committed)
        return self._leases.next_offset(queue, committed)

    def _first_offset(self, queue: LeaseQueue, init_mode: int) -> int:
        """Return where a group begins that has never read the queue."""
        place = queue.topic, queue.queue_id
        least = self._store.min_offset(*place)
        if init_mode == FROM_FIRST or queue.topic.startswith(RETRY_PREFIX):
            return max(0, least)
        if self._settings.config.pop.begins_with_queue_in_memory and least <= 0 and self._store.is_in_memory(*place, 0):
            return 0
        return max(0, self._store.max_offset(*place) - 1)

    def _named(
        self, taking: _Taking, queue: LeaseQueue, start_offset: int, result: ReadResult
    ) -> list[bytes | memoryview]:
        """Return the records as the consumer shall see them."""
        kind = retry_kind(queue.topic)
        if kind == NORMAL or queue.topic == taking.request.topic or self._settings.config.pop.names_retry_topic:
            return list(result.records)
        popped, broker_name = taking.popped, self._settings.config.broker_name
        records: list[bytes | memoryview] = []
        for data in _split(result.records):
            record = decode_record(data)
            handle = PopHandle(
                start_offset,
                popped.popped_at_ms,
                popped.invisible_ms,
                popped.revive_queue_id,
                kind,
                broker_name,
                queue.queue_id,
                record.queue_offset,
            )
            records.append(_renamed(record, taking.request.topic, handle))
        return records


def _ordered_place(queue: LeaseQueue) -> OrderedPlace:
    return OrderedPlace(queue.topic, queue.group, queue.queue_id)


def _split(runs: Iterable[memoryview]) -> Iterator[memoryview]:
    """Yield the records of slices of the log, of which each may hold several."""
    for run in runs:
        position = 0
        while position < len(run):
            size = int.from_bytes(run[position : position + 4], "big")
            yield run[position : position + size]
            position += size


def _renamed(record: Record, topic: str, handle: PopHandle) -> bytes:
    """Return a record under another topic, with the handle of its message."""
    properties = {POP_CK: handle.text(), **record.properties}
    new = NewRecord(
        topic,
        record.queue_id,
        bytes(record.body),
        encode_properties(properties),
        properties,
        record.flag,
        record.sys_flag,
        record.born_at_ms,
        record.born_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )
    return encode_record(new, record.queue_offset, record.log_offset, record.stored_at_ms, record.store_host)
