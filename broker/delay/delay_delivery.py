"""Delivering delayed messages when their time has come (``ScheduleMessageService``; spec behaviour.md B.12).

Rules

    1. Of each level only the first waiting message is looked at: a queue of SCHEDULE_TOPIC_XXXX is in order of time.
       What is behind it costs nothing; nor is there work while nothing is due.
    2. There is one deadline, that of the earliest first message. An arrival moves it only at a level that was empty.
       While there is one, the clock is looked at each second: somebody may set it forward, or the machine has slept.
    3. Time is that of the store (``commit_log.py: StoreTime``): a clock that is set back delivers neither early nor
       late. An entry that is due later than a message stored now would be is due now, as in Java: its delay was
       another one.
    4. A turn of the loop delivers messages of one level, the one that is due for longest, and not more than
       ``MOST_MESSAGES``; the first of them is taken whatever its size.
    5. A level moves on behind a message that was stored, and behind one that is gone or can never be delivered. When
       the store takes none it stays where it is, and the delivery is tried again.
    6. Queues behind the last level, which settings with more levels have left, are delivered as well.

Java looks at all levels every 100 ms.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from ...common.clock import Clock
from ...common.errors import MessageIllegalError, RecordError, StoreNotWritableError
from ...common.names import SCHEDULE_TOPIC
from ...common.record import decode_record
from ...remoting.transport.event_loop import TaskScope, repeat, wait_until_due
from ...store.consumequeue.appended import Appended
from ...store.consumequeue.consume_queue import Entry
from ...store.message_store import MessageStore
from ..outcomes.group_commit import WriteRetry
from .delay_progress import DelayProgress, DelaySaveJob, DeliveredCopies, find_copies, find_start
from .delayed_messages import deliverable

MOST_MESSAGES = 32
MOST_BYTES = 1 << 20
RETRY_MS = 1_000
_log = logging.getLogger(__name__)


class _Level:
    """One level: the offset of its first waiting message, and when that is due; None while there is none."""

    __slots__ = ("due_at_ms", "next_offset", "number")

    def __init__(self, number: int, next_offset: int) -> None:
        self.number = number
        self.next_offset = next_offset
        self.due_at_ms: int | None = None


class DelayedDelivery:
    """The waiting messages of all levels; ``commit`` writes what was appended to the store."""

    def __init__(self, store: MessageStore, commit: Callable[[], None], progress: DelayProgress) -> None:
        self._store = store
        self._commit = commit
        self._progress = progress
        self._time = store.time
        self._levels: dict[int, _Level] = {}  # by queue id
        self.armed = asyncio.Event()
        """Set when a message has come to a level where none was waiting; whoever waits for it clears it."""
        queues = {queue_id for topic, queue_id in store.queues() if topic == SCHEDULE_TOPIC}
        for queue_id in queues | {number - 1 for number in progress.latest()}:
            self._arm(self._level(queue_id))

    def __repr__(self) -> str:
        return f"<DelayedDelivery next at {self.due_at_ms}>"

    @property
    def due_at_ms(self) -> int | None:
        """When the earliest waiting message is due, by what ``elapsed_ms`` of the store's time says."""
        return min((level.due_at_ms for level in self._levels.values() if level.due_at_ms is not None), default=None)

    @property
    def wait_ms(self) -> int | None:
        """How long nothing is due, None when nothing waits."""
        due_at_ms = self.due_at_ms
        return None if due_at_ms is None else due_at_ms - self._time.elapsed_ms()

    @property
    def progress(self) -> Mapping[int, int]:
        """The next offset of each level in use."""
        return {level.number: level.next_offset for level in self._levels.values()}

    def pass_delivered(self, copies: DeliveredCopies) -> None:
        """Move each level behind what the log shows as delivered; before the first delivery."""
        for level in self._levels.values():
            start = level.next_offset
            while (entry := self._next_entry(level)) is not None and self._is_done_with(entry, copies):
                level.next_offset += 1
            if level.next_offset > start:
                _log.info(
                    "delay level %d: skipping %d messages that were delivered before the restart",
                    level.number,
                    level.next_offset - start,
                )
                self._arm(level)

    def _next_entry(self, level: _Level) -> Entry | None:
        return next(iter(self._store.entries(SCHEDULE_TOPIC, level.number - 1, level.next_offset, 1)), None)

    def _is_done_with(self, entry: Entry, copies: DeliveredCopies) -> bool:
        """Tell whether a message was delivered, is gone, or can never be delivered."""
        data = self._store.record_at(*entry[:2])
        try:
            return data is None or copies.take(deliverable(decode_record(data)))
        except (RecordError, MessageIllegalError):
            return True

    def pass_until(self, offsets: Mapping[int, int]) -> None:
        """Move levels behind what another broker has delivered; before the first delivery."""
        for level in self._levels.values():
            offset = offsets.get(level.number, 0)
            if offset > level.next_offset:
                level.next_offset = offset
                self._arm(level)

    def find_delivered(self) -> DeliveredCopies:
        """Return the copies of waiting messages that the log may show as delivered; slow (raises ``OSError``)."""
        store, now_ms = self._store, self._time.elapsed_ms()
        starts: list[int] = []
        for level in self._levels.values():
            entry = self._next_entry(level)
            if entry is not None and level.due_at_ms is not None and level.due_at_ms <= now_ms:
                starts.append(find_start(store, level.due_at_ms, entry[0]))
        return find_copies(store, min(starts), store.log_max_offset) if starts else DeliveredCopies()

    def deliver_due(self) -> int:
        """Store messages that are due, as many as one turn may; return how many are done with.

        Raises:
            StoreNotWritableError: The store takes no messages; those that it did not take are tried again.
            OSError: A file of the store cannot be read; the same.
        """
        now_ms = self._time.elapsed_ms()
        level = self._longest_due(now_ms)
        if level is None:
            return 0
        done, failure = self._plan(level, now_ms)
        self._commit()
        self._move(level, done)
        if failure is not None:
            raise failure
        return done

    def _longest_due(self, now_ms: int) -> _Level | None:
        found, found_at_ms = None, now_ms
        for level in self._levels.values():
            if level.due_at_ms is not None and level.due_at_ms <= found_at_ms:
                found, found_at_ms = level, level.due_at_ms
        return found

    def _plan(self, level: _Level, now_ms: int) -> tuple[int, StoreNotWritableError | OSError | None]:
        """Append what is due of a level; return how many of its messages are done with, and why it stopped early."""
        start = self._store.log_append_offset
        entries = self._store.entries(SCHEDULE_TOPIC, level.number - 1, level.next_offset, MOST_MESSAGES)
        for done, entry in enumerate(entries):
            if self._store.log_append_offset - start >= MOST_BYTES:
                return done, None
            try:
                if self._due_at(level, level.next_offset + done, entry) > now_ms:
                    return done, None
                self._deliver(entry)
            except (StoreNotWritableError, OSError) as error:  # what was appended before is committed and done with
                return done, error
        return len(entries), None

    def _deliver(self, entry: Entry) -> None:
        log_offset, size, _ = entry
        record = self._store.record_at(log_offset, size)
        if record is None:
            return  # gone, or the filling before a queue's first entry
        try:
            self._store.append(deliverable(decode_record(record)))
        except (RecordError, MessageIllegalError) as error:
            _log.error(
                "dropping the delayed message at log offset %d, which cannot be delivered: %s", log_offset, error
            )

    def _move(self, level: _Level, count: int) -> None:
        level.next_offset += count
        self._arm(level)

    def take(self, record: Appended) -> None:
        """Look at a record that has become readable in a queue of delayed messages."""
        level = self._level(record.queue_id)
        if level.due_at_ms is None:
            self._set_next(level, record.queue_offset)
            entry = record.log_offset, record.size, record.tags_code
            level.due_at_ms = self._due_at(level, record.queue_offset, entry)
            self.armed.set()

    def _level(self, queue_id: int) -> _Level:
        level = self._levels.get(queue_id)
        if level is None:
            level = self._levels[queue_id] = _Level(queue_id + 1, self._progress.next_offset(queue_id + 1))
        return level

    def _arm(self, level: _Level) -> None:
        """Find out when the level's first waiting message is due; its offset is moved into the queue."""
        store, queue_id = self._store, level.number - 1
        end = store.max_offset(SCHEDULE_TOPIC, queue_id)
        self._set_next(level, min(max(level.next_offset, store.min_offset(SCHEDULE_TOPIC, queue_id)), end))
        entries = store.entries(SCHEDULE_TOPIC, queue_id, level.next_offset, 1)
        level.due_at_ms = self._due_at(level, level.next_offset, entries[0]) if entries else None

    def _set_next(self, level: _Level, offset: int) -> None:
        level.next_offset = offset
        self._progress.move(level.number, offset)

    def _due_at(self, level: _Level, offset: int, entry: Entry) -> int:
        delays_ms, time = self._store.config.delays_ms, self._time
        delay_ms = delays_ms[min(level.number, len(delays_ms)) - 1]
        due_at_ms = entry[2]
        if due_at_ms < 0:  # the address of an extended entry, which a Java broker wrote
            due_at_ms = self._store.stored_at(SCHEDULE_TOPIC, level.number - 1, offset) + delay_ms
        stored_at_ms = due_at_ms - delay_ms
        if level.number <= len(delays_ms) and stored_at_ms > time.stamp_ms():
            return time.elapsed_ms()
        return time.elapsed_at(stored_at_ms) + delay_ms


class DelayJob:
    """Waits for the deadline, and delivers."""

    def __init__(self, delivery: DelayedDelivery, clock: Clock) -> None:
        self._delivery = delivery
        self._clock = clock
        self._woken = delivery.armed
        self._retry = WriteRetry("delivery of delayed messages is")
        self._is_stopped = False

    async def run(self) -> int | None:
        """Wait for the deadline, or deliver if it has passed; return the pause."""
        wait_ms = self._delivery.wait_ms
        if self._is_stopped:
            return None
        if wait_ms is None or wait_ms > 0:
            self._woken.clear()
            await wait_until_due(self._woken, lambda: self._delivery.wait_ms, self._clock)
            return 0
        return await self._retry.run(self._deliver, RETRY_MS)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._is_stopped = True
        self._woken.set()

    async def _deliver(self) -> int:
        self._delivery.deliver_due()
        await asyncio.sleep(0)  # others have their turn
        return 0


def start_delivery(
    stack: AsyncExitStack, tasks: TaskScope, clock: Clock, delivery: DelayedDelivery, saving: DelaySaveJob
) -> None:
    """Deliver and save from now on; leaving the stack stops that and saves for the last time."""
    job = DelayJob(delivery, clock)
    stack.push_async_callback(saving.run_once)
    stack.callback(job.stop)
    tasks.start(repeat(job.run, clock), "deliver delayed messages")
    tasks.start(repeat(saving.run, clock, first_ms=saving.period_ms), "save the progress of delayed messages")
