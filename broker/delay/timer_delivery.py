"""Timer messages on their way: from the timer topic into the wheel, and out of it when their time has come.

    enqueue    messages of rmq_sys_wheel_timer, in order; who is late already is delivered at once
    dequeue    one slot after the other, when it is over: deletions first, then messages, oldest first

Rules (``TimerMessageStore``; store.md §10.6, behaviour.md B.12)

    1. ``advance`` does one bounded piece of work. What waits for the disk it returns as a call for another thread,
       which is to be made before the next ``advance``.
    2. A slot is begun when all messages that had been stored by then are in the wheel: a deletion that was stored
       before its target was due is obeyed. After that the two take turns.
    3. A message is done with when it has been stored, when it was deleted, or when its record is gone. When the store
       takes none, the work stays where it is and is tried again; Java gives up after three times.
    4. A message that deletes is never delivered. One whose slot has been taken deletes nothing. (In Java, one that is
       put into the wheel too late neither: there only slots to come take messages.)
    5. When wheel and timer log turn out to be damaged, they are made anew from the timer topic.
    6. After a kill the log tells which messages of the slots since the last save were delivered; they are passed over.
    7. There is no work while nothing has arrived and no slot is over: ``due_at_ms`` says when the next one is.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import groupby

from ...common.errors import MessageIllegalError, RecordError, StoreNotWritableError
from ...common.names import TIMER_TOPIC
from ...common.record import NewRecord, Record, decode_record
from ...store.consumequeue.appended import Appended
from ...store.consumequeue.consume_queue import Entry
from ...store.message_store import MessageStore
from ...store.timer.timer_check import TimerCheck
from ...store.timer.timer_log import TimerUnit
from ...store.timer.timer_recovery import FoundTopic, open_timers
from ...store.timer.timers import DueMessage, DueSlot, TimedMessage, Timers
from .delay_progress import DeliveredCopies, find_copies, find_start
from .timer_messages import NEVER_PUT_MS, deletion_keys, delivered, rolled, timed

MOST_MESSAGES = 32
SlowWork = Callable[[], None]
_log = logging.getLogger(__name__)


class TimerDelivery:
    """The timer messages of a broker; ``commit`` writes what was appended to the store."""

    def __init__(
        self, store: MessageStore, timers: Timers, commit: Callable[[], None], now_ms: Callable[[], int]
    ) -> None:
        self.store = store
        self.timers = timers
        self._commit = commit
        self._now_ms = now_ms
        self._slot: DueSlot | None = None
        self._wanted_offset: int | None = None  # up to which messages are to be in the wheel before a slot is begun
        self._cold: _ColdBatch | None = None
        self._is_wheel_full = False
        self._is_slots_turn = False
        self._copies: DeliveredCopies | None = None  # of what was delivered before a kill, once it is known
        self._last_copied_tick = 0
        self._idle_check: TimerCheck | None = None
        self.taken_out = 0  # of the wheel, since the start
        self.has_arrivals = asyncio.Event()
        """Set when a message has come to the timer topic; whoever waits for it clears it."""

    def __repr__(self) -> str:
        return f"<TimerDelivery {self.timers!r}>"

    @property
    def check(self) -> TimerCheck | None:
        """How far timer messages have come for certain; ``None`` while that is being found out."""
        if self.timers.is_open and self.timers.saved.read_at_ms:
            return self.timers.saved
        if not self._has_messages:
            precision_ms = self.timers.config.precision_ms
            read_at_ms = self._now_ms() // precision_ms * precision_ms
            self._idle_check = TimerCheck(read_at_ms=read_at_ms, changed_at_ms=read_at_ms)
        return self._idle_check  # of when there was nothing to deliver

    @property
    def due_at_ms(self) -> int | None:
        """When there is work, if no message arrives; None when there is none at all."""
        tick = self.timers.next_tick if self.timers.is_open else None
        return None if tick is None else (tick + 1) * self.timers.config.precision_ms

    @property
    def wait_ms(self) -> int | None:
        """How long there is no work, if no message arrives; None when there is none at all."""
        due_at_ms = self.due_at_ms
        return None if due_at_ms is None else due_at_ms - self._now_ms()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do before ``due_at_ms``."""
        if not self.timers.is_open:
            return not self._has_messages
        return self._copies is not None and self._slot is None and not self._has_backlog and not self._is_slot_over

    def arrived(self, record: Appended) -> None:
        """Hear that a record of the timer topic has become readable."""
        if record.queue_id == 0:
            self.has_arrivals.set()

    def advance(self) -> SlowWork | None:
        """Do a piece of work, or return what is to be done in another thread before the next call.

        Raises:
            StoreNotWritableError: The store takes no messages; those that it did not take are tried again.
            OSError: A file cannot be read or written; the same.
        """
        timers = self.timers
        if not timers.is_open:
            return self._opening() if self._has_messages else None
        timers.move(self._now_ms())
        if self._copies is None and (slow := self._finding()) is not None:
            return slow
        slow = self._work()
        if timers.is_open and not self._has_backlog:
            timers.catch_up()
        return slow

    def put_rest(self) -> SlowWork | None:
        """Put a piece of what has arrived into the wheel, and deliver nothing that is due: the broker stops."""
        return self._enqueue() if self.has_rest else None

    @property
    def has_rest(self) -> bool:
        """Whether ``put_rest`` has something to do."""
        return self.timers.is_open and self._has_backlog and not self._is_wheel_full

    def _work(self) -> SlowWork | None:
        if self._slot is None:
            self._begin_slot()
        slot = self._slot
        if slot is not None and (self._is_slots_turn or self._is_wheel_full or not self._has_backlog):
            self._is_slots_turn = False
            return self._deliver(slot)
        self._is_slots_turn = True
        return self._enqueue() if self._has_backlog else None

    @property
    def _has_messages(self) -> bool:
        return self.store.max_offset(TIMER_TOPIC, 0) > 0 or self.store.has_timers

    @property
    def _has_backlog(self) -> bool:
        return self.timers.queue_offset < self.store.max_offset(TIMER_TOPIC, 0)

    @property
    def _is_slot_over(self) -> bool:
        timers, tick = self.timers, self.timers.next_tick
        return tick is not None and tick < max(timers.write_tick, self._now_ms() // timers.config.precision_ms)

    def _opening(self) -> SlowWork:
        store, entry = self.store, self._entry_from(0)
        first = store.log_max_offset if entry is None else max(entry[0], store.log_min_offset)
        found = FoundTopic(store.max_offset(TIMER_TOPIC, 0), first)
        return lambda: open_timers(self.timers, found, self._now_ms(), is_clean=store.was_closed_cleanly)

    def _finding(self) -> SlowWork | None:
        """Return what finds out which messages were delivered before the end, unless that was a clean one."""
        store, timers = self.store, self.timers
        if store.was_closed_cleanly:
            self._copies = DeliveredCopies()
            return None
        start = end = store.log_max_offset
        if first := self._entry_from(0):
            start = find_start(store, timers.saved.read_at_ms, first[0])
        if again := self._entry_from(timers.queue_offset):
            start = min(start, again[0])  # those who were late then have no slot
        self._last_copied_tick = timers.write_tick

        def find() -> None:
            self._copies = find_copies(store, start, end)

        return find

    def _entry_from(self, queue_offset: int) -> Entry | None:
        """Return the first entry of the timer topic from an offset on."""
        queue_offset = max(queue_offset, self.store.min_offset(TIMER_TOPIC, 0))
        return next(iter(self.store.entries(TIMER_TOPIC, 0, queue_offset, 1)), None)

    def _is_delivered(self, new: NewRecord) -> bool:
        return bool(self._copies) and self._copies.take(new)

    # --- in

    def _enqueue(self) -> SlowWork | None:
        batch, self._cold = self._cold, None
        if batch is None:
            start = max(self.timers.queue_offset, self.store.min_offset(TIMER_TOPIC, 0))
            entries = self.store.entries(TIMER_TOPIC, 0, start, MOST_MESSAGES)
            batch = _ColdBatch(self.store, start, entries)
            if not self.store.is_near(entries[0][0] if entries else 0):
                self._cold = batch
                return batch.load
            batch.records = [self.store.record_at(log_offset, size) for log_offset, size, _ in entries]
        self._put_all(batch)
        return None

    def _put_all(self, batch: "_ColdBatch") -> None:
        """Put messages into the wheel or deliver them, as far as that goes."""
        judged = ((offset, self._judge(offset, record)) for offset, record in enumerate(batch.records, batch.start))
        for kind, group in groupby(judged, lambda pair: type(pair[1])):
            members = list(group)
            if kind is TimedMessage:
                self._put([message for _, message in members if isinstance(message, TimedMessage)], members[0][0])
            else:
                self._store_late([(offset, new) for offset, new in members if not isinstance(new, TimedMessage)])
            if self._is_wheel_full:
                return
        self.timers.queue_offset = max(self.timers.queue_offset, batch.start + len(batch.records))

    def _judge(self, offset: int, data: bytes | memoryview | None) -> TimedMessage | NewRecord | None:
        """Return what is to be put into the wheel, or stored at once; None when neither."""
        timers = self.timers
        record = _decode(data)
        if record is None or (message := timed(record)) is None:
            if data is not None:
                _log.error(
                    "skipping the timer message at offset %d of %s: it has no delivery time", offset, TIMER_TOPIC
                )
            return None
        if timers.is_known(record.log_offset) or timers.is_done(message.out_ms, offset):
            return None
        if not timers.is_late(message.out_ms):
            return message
        return None if message.is_deleting else self._convert(record, NEVER_PUT_MS, is_rolling=False)

    def _put(self, messages: Sequence[TimedMessage], offset: int) -> None:
        self._is_wheel_full = False
        while messages and not self._is_wheel_full:
            count = self.timers.put(messages)
            messages, offset = messages[count:], offset + count
            self.timers.queue_offset = offset
            self._is_wheel_full = not count

    def _store_late(self, members: Sequence[tuple[int, NewRecord | None]]) -> None:
        """Store messages where they belong at once, and pass over those of which nothing is to be stored."""
        end, failure = members[0][0], None
        for offset, new in members:
            try:
                if new is not None:
                    self._append(new)
            except StoreNotWritableError as error:  # what was appended before is committed and done with
                failure = error
                break
            end = offset + 1
        self._commit()
        self.timers.queue_offset = end
        if failure is not None:
            raise failure

    # --- out

    def _begin_slot(self) -> None:
        """Begin the next slot if it is over and nothing that was stored before is missing in the wheel."""
        timers, tick = self.timers, self.timers.next_tick
        if tick is None or tick >= timers.write_tick:
            return
        if self._wanted_offset is None:
            self._wanted_offset = max(self.store.max_offset(TIMER_TOPIC, 0), timers.rebuilds_until)
        if timers.queue_offset < self._wanted_offset and not self._is_wheel_full:
            return
        self._wanted_offset = None
        self._is_wheel_full = False
        if self._copies and tick > self._last_copied_tick:
            self._copies = DeliveredCopies()  # nothing was delivered that was not due then
        self._slot = DueSlot(timers, tick)
        timers.take(tick)

    def _deliver(self, slot: DueSlot) -> SlowWork | None:
        if slot.damage:
            self._slot, self._cold, self.timers.is_open = None, None, False
            return lambda: self.timers.rebuild(slot.damage)
        if slot.is_finished:
            self.timers.finish(slot.tick)
            self._slot = None
            return None
        if not slot.batch:
            return slot.load
        done, failure = self._append_due(slot)
        self._commit()
        del slot.batch[:done]
        if failure is not None:
            raise failure
        return None

    def _append_due(self, slot: DueSlot) -> tuple[int, StoreNotWritableError | OSError | None]:
        """Append what was loaded of a slot; return how many messages are done with, and why it stopped early."""
        for done, due in enumerate(slot.batch):
            try:
                new = self._come_out(slot, due)
                if slot.damage:
                    return done, None
                if new is not None:
                    self._append(new)
                    self.taken_out += 1
            except (StoreNotWritableError, OSError) as error:  # what was appended before is committed and done with
                return done, error
        return len(slot.batch), None

    def _come_out(self, slot: DueSlot, due: DueMessage) -> NewRecord | None:
        """Return what is to be stored of a message that is due; None when nothing is."""
        unit, record = due.unit, _decode(due.record)
        if unit.log_offset < self.store.log_min_offset:
            return None
        if record is None or (message := timed(record)) is None or not self._belongs(unit, message):
            slot.damage = f"the timer log leads to {unit.log_offset} of the log, where its message does not stand"
            return None
        if unit.is_deleting or not slot.deleted.isdisjoint(deletion_keys(record)):
            return None
        return self._convert(record, unit.written_at_ms, is_rolling=unit.is_rolling)

    def _belongs(self, unit: TimerUnit, message: TimedMessage) -> bool:
        precision_ms = self.timers.config.precision_ms
        return unit.is_rolling or message.out_ms // precision_ms == unit.due_at_ms // precision_ms

    def _convert(self, record: Record, put_at_ms: int, *, is_rolling: bool) -> NewRecord | None:
        """Return what is to be stored of a message; None when it was before a kill, or never can be."""
        try:
            new = (rolled if is_rolling else delivered)(record, put_at_ms, self._now_ms())
        except MessageIllegalError as error:
            _log.error("dropping the timer message at log offset %d: %s", record.log_offset, error)
            return None
        return None if self._is_delivered(new) else new

    def _append(self, new: NewRecord) -> None:
        try:
            self.store.append(new)
        except MessageIllegalError as error:
            _log.error("dropping a timer message for topic %s, it cannot be stored: %s", new.topic, error)


class _ColdBatch:
    """Messages of the timer topic; ``load`` reads them in any thread."""

    def __init__(self, store: MessageStore, start: int, entries: Sequence[Entry]) -> None:
        self.store = store
        self._entries = entries
        self.start = start
        self.records: Sequence[bytes | memoryview | None] = ()

    def load(self) -> None:
        with self.store.cold_records() as records:
            self.records = [records.read(log_offset, size) for log_offset, size, _ in self._entries]


def _decode(data: bytes | memoryview | None) -> Record | None:
    """Return the record, None when there is none."""
    try:
        return None if data is None else decode_record(data)
    except RecordError:
        return None
