"""What comes back: leases that go to the log, messages of leases that have ended, and check points out of the timer.

Rules (``PopReviveService``; pop.md §6, §17)

    1. A lease goes to the log with what is acknowledged of it, in one commit; one record an acknowledgement, or one for
       all (``enablePopBatchAck``). Only when they are on disk where that is asked for, the group's offset moves.
    2. When a lease ends, each message that is not acknowledged goes to the retry topic of its group, with one attempt
       more and the time at which it was handed out first; one that is gone is done with. The retry topic is made when
       it is missing, and the group begins at its start.
    3. A lease whose topic or group is gone ends without that.
    4. A check point that comes out of the timer is one that is known here, or it is from before a start. The latter
       is taken up: its acknowledgements come out of the timer as well, so it waits ``GUARD_MS`` behind its end, and
       for as long as the timer has not delivered all that is due.
    5. The revive group's offset is the last record of a revive queue up to which everything is settled. A start reads
       on behind it.
    6. What the store does not take is tried again.

Java waits the 2 s for each lease; leases in memory need none.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ...common.clock import Clock
from ...common.errors import DecodeError, MessageRefusedError, RecordError, StoreError
from ...common.names import is_system_topic
from ...common.outcome import Outcome
from ...common.pop_texts import NORMAL, RETRY_V1, RETRY_V2, read_topic, retry_kind
from ...common.properties import FIRST_POP_TIME, ORIGIN_GROUP, encode_properties
from ...common.record import NewRecord, Record, decode_record
from ...remoting.transport.event_loop import wait_until_due
from ...store.consumequeue.appended import Appended
from ..delay.delayed_messages import DelayRouting
from ..group.groups import GroupTable, OffsetTable
from ..outcomes.scheduler import Scheduler
from ..settings.pop import PopConfig
from ..topic.topics import TopicTable
from .check_points import (
    Acknowledgement,
    CheckPoint,
    ReviveTopic,
    ack_record,
    batch_ack_record,
    check_point_record,
    parse_revive_record,
)
from .leases import RETRY_MS, Lease, LeaseKeeper, LeaseQueue, Leases

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
GUARD_MS: Final = 2_000
_MOST_LEASES: Final = 64
_MOST_BYTES: Final = 1 << 20
_READ_AT_ONCE: Final = 32
_log = logging.getLogger(__name__)


class PopTables(NamedTuple):
    """What a broker knows of topics and groups."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable


class PopLog:
    """Writes of POP into the log of a broker."""

    def __init__(
        self, scheduler: Scheduler, routing: DelayRouting, place: ReviveTopic, config: Callable[[], PopConfig]
    ) -> None:
        self._scheduler = scheduler
        self._store = scheduler.store
        self._routing = routing
        self.place = place
        self._config = config
        self.now_ms = routing.now_ms

    def __repr__(self) -> str:
        return f"<PopLog {self.place.name}>"

    @property
    def end_offset(self) -> int:
        """Where the log ends with what was appended in this turn."""
        return self._store.log_append_offset

    def commit(self) -> None:
        """Write what was appended in this turn; what depends on it hears of a failure."""
        with suppress(StoreError):
            self._scheduler.commit()

    def put_lease(self, lease: Lease) -> None:
        """Append a check point, and what is acknowledged of it (raises as ``MessageStore.append`` does)."""
        self.append(check_point_record(lease.check_point(), self.place, lease.revive_queue_id, self.now_ms()))
        self.put_acks(lease, lease.acked_offsets)

    def put_acks(self, lease: Lease, queue_offsets: Sequence[int]) -> None:
        """Append that messages of a lease are done with (raises as ``MessageStore.append`` does)."""
        key, ends_at_ms, queue_id, now_ms = lease.key, lease.ends_at_ms, lease.revive_queue_id, self.now_ms()
        if len(queue_offsets) > 1 and self._config().joins_acks:
            self.append(batch_ack_record(key, queue_offsets, ends_at_ms, self.place, queue_id, now_ms))
            return
        for queue_offset in queue_offsets:
            self.append(ack_record(key, queue_offset, ends_at_ms, self.place, queue_id, now_ms))

    def append(self, new: NewRecord) -> Appended:
        """Append a record, or what keeps it until it is due (raises as ``MessageStore.append`` does)."""
        return self._store.append(self._routing.place(new))

    def append_plain(self, new: NewRecord) -> Appended:
        """Append a message that is to be seen at once, whatever its properties ask for."""
        return self._store.append(new)

    def when_written(self, done: Callable[[Outcome[None]], object]) -> None:
        """Have told what becomes of all that was appended in this turn."""
        self._scheduler.after_commit(None).on_settled = done

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> Record | None:
        """Return a message, None when it is gone."""
        for log_offset, size, _ in self._store.entries(topic, queue_id, queue_offset, 1):
            try:
                data = self._store.record_at(log_offset, size)
                record = None if data is None else decode_record(data)
            except RecordError:
                return None
            return record if record is not None and record.queue_offset == queue_offset else None
        return None


class Revival:
    """Does with leases what is due."""

    def __init__(
        self,
        leases: Leases,
        log: PopLog,
        tables: PopTables,
        config: Callable[[], PopConfig],
        make_known: Callable[[Sequence[str], Callable[[], object]], object],
        is_timer_behind: Callable[[], bool],
    ) -> None:
        self._leases = leases
        self._log = log
        self._tables = tables
        self._config = config
        self._make_known = make_known
        self._is_timer_behind = is_timer_behind
        self.armed = asyncio.Event()
        """Set when something is planned; whoever waits for it clears it."""

    def __repr__(self) -> str:
        return f"<Revival of {self._leases!r}>"

    @property
    def wait_ms(self) -> int | None:
        """How long nothing is due; None when nothing is planned."""
        due_at_ms = self._leases.due_at_ms
        return None if due_at_ms is None else due_at_ms - self._log.now_ms()

    def release(self, keeper: LeaseKeeper, at_ms: int) -> None:
        """End the leases of a keeper at an instant, unless they end before."""
        self._leases.release(keeper, at_ms)
        self.armed.set()

    def hand_out(self, lease: Lease) -> None:
        """Take a lease that was just given to a consumer."""
        if self._leases.add(lease, self._log.now_ms()):
            self._store([lease])
        self.armed.set()

    def replace(self, old: Lease, new: Lease, done: Callable[[bool], object]) -> None:
        """Give a message a lease of its own instead of the one that it had; say whether the log has taken it."""
        try:
            self._log.put_lease(new)
        except (StoreError, MessageRefusedError) as error:
            _log.warning("a lease could not be changed: %s", error)
            done(False)
            return

        def written(outcome: Outcome[None]) -> None:
            if outcome.failure is None:
                self._leases.add_changed(new)
                self._release(old, new.queue_offsets)
                self.armed.set()
            done(outcome.failure is None)

        self._log.when_written(written)

    def _release(self, old: Lease, queue_offsets: Sequence[int]) -> None:
        if not self._leases.acknowledge(old.key, queue_offsets):
            return
        try:
            self._log.put_acks(old, queue_offsets)
        except (StoreError, MessageRefusedError) as error:
            _log.warning("after a kill a message whose lease was changed may come twice: %s", error)
        self._log.commit()

    def forget(self, queue: LeaseQueue) -> None:
        """Forget the leases of a queue, and have the log do so: the group goes on elsewhere."""
        try:
            for lease in self._leases.drop_queue(queue):
                self._log.put_acks(lease, lease.open_offsets)
        except (StoreError, MessageRefusedError) as error:
            _log.warning("after a kill some messages of %s come again to group %s: %s", queue.topic, queue.group, error)
        self._log.when_written(lambda _: None)

    def do_due(self) -> int:
        """Append what is due, as much as one turn may; return how many leases that were."""
        now_ms = self._log.now_ms()
        to_store, ended = self._leases.take_due(now_ms, _MOST_LEASES)
        self._store(to_store)
        early = [lease for lease in ended if lease.is_of_earlier_life and self._is_timer_behind()]
        self._leases.plan_again(early, now_ms + RETRY_MS)
        self._revive([lease for lease in ended if lease not in early])
        return len(to_store) + len(ended)

    def store_kept(self) -> None:
        """Append all that the log does not know: the broker stops."""
        self._store(self._leases.take_kept())

    def _store(self, leases: Sequence[Lease]) -> None:
        appended: list[Lease] = []
        try:
            for lease in leases:
                self._log.put_lease(lease)
                appended.append(lease)
        except (StoreError, MessageRefusedError) as error:
            self._fail(leases[len(appended) :], error)
        if appended:
            acked = [lease.acked for lease in appended]
            self._log.when_written(lambda outcome: self._stored(appended, acked, outcome.failure))

    def _stored(self, leases: Sequence[Lease], acked: Sequence[int], failure: Exception | None) -> None:
        if failure is not None:
            self._fail(leases, failure)
            return
        self._leases.stored(leases)
        start = self._log.end_offset
        for lease, before in zip(leases, acked, strict=True):
            later = lease.acked & ~before  # while the disk was awaited
            offsets = [offset for number, offset in enumerate(lease.queue_offsets) if later >> number & 1]
            try:
                self._log.put_acks(lease, offsets)
            except (StoreError, MessageRefusedError) as error:
                _log.warning(
                    "what is acknowledged of %r is not in the log, it comes again after a kill: %s", lease, error
                )
        if self._log.end_offset > start:
            self._log.commit()
        self.armed.set()

    def _revive(self, leases: Sequence[Lease]) -> None:
        appended: list[Lease] = []
        topics: set[str] = set()
        start = self._log.end_offset
        try:
            for lease in leases:
                topics |= self._put_again(lease)
                appended.append(lease)
                if self._log.end_offset - start >= _MOST_BYTES:
                    break
        except (StoreError, MessageRefusedError) as error:
            self._fail(leases[len(appended) :], error)
        else:
            self._leases.plan_again(leases[len(appended) :], self._log.now_ms())
        if topics:
            self._make_known(sorted(topics), lambda: None)
        if appended:
            self._log.when_written(lambda outcome: self._revived(appended, outcome.failure))

    def _revived(self, leases: Sequence[Lease], failure: Exception | None) -> None:
        if failure is not None:
            self._fail(leases, failure)
            return
        for lease in leases:
            self._leases.end(lease)

    def _fail(self, leases: Sequence[Lease], error: Exception) -> None:
        _log.warning("%d leases have to wait, the store takes no records: %s", len(leases), error)
        self._leases.plan_again(leases, self._log.now_ms() + RETRY_MS)
        self.armed.set()

    def _put_again(self, lease: Lease) -> set[str]:
        """Append what is not acknowledged to the retry topic; return the topics that were made for it."""
        key, tables = lease.key, self._tables
        if tables.groups.get(key.group) is None or tables.topics.get(key.topic) is None:
            return set()
        retry, is_new = self._retry_topic(lease.queue)
        for queue_offset in lease.open_offsets:
            message = self._log.message_at(key.topic, key.queue_id, queue_offset)
            if message is not None:
                self._log.append_plain(_next_attempt(message, retry, lease, self._log.place.host))
        if lease.is_stored and lease.over_at_ms < lease.ends_at_ms:
            self._log.put_acks(lease, lease.open_offsets)  # its check point is still to come out of the timer
        return {retry} if is_new else set()

    def _retry_topic(self, queue: LeaseQueue) -> tuple[str, bool]:
        """Return where messages of a queue come again, and whether it was made now."""
        kind = RETRY_V2 if self._config().writes_retry_v2 else RETRY_V1
        is_retry = retry_kind(queue.topic) != NORMAL
        name = queue.topic if is_retry else read_topic(queue.topic, queue.group, kind)
        _, is_new = self._tables.topics.ensure(name, 1)
        if is_new and self._tables.offsets.committed(queue.group, name, 0) is None:
            self._tables.offsets.commit(queue.group, name, 0, 0)
        return name, is_new


def _next_attempt(message: Record, topic: str, lease: Lease, host: bytes) -> NewRecord:
    properties = {**message.properties, ORIGIN_GROUP: lease.key.group}
    if not message.reconsume_times or FIRST_POP_TIME not in properties:
        properties[FIRST_POP_TIME] = str(lease.key.popped_at_ms)
    return NewRecord(
        topic,
        0,
        bytes(message.body),
        encode_properties(properties),
        properties,
        message.flag,
        message.sys_flag,
        message.born_at_ms,
        host,
        message.reconsume_times + 1,
    )


class _Position:
    """One revive queue: what was read of it and is not settled yet, in order."""

    def __init__(self, settled: int) -> None:
        self.settled = settled
        self.unsettled: deque[tuple[int, Lease | None]] = deque()

    @property
    def read_until(self) -> int:
        """The offset of the next record."""
        return (self.unsettled[-1][0] if self.unsettled else self.settled) + 1

    def add(self, queue_offset: int, lease: Lease | None) -> None:
        self.unsettled.append((queue_offset, lease))

    def advance(self) -> bool:
        """Move behind what is settled; tell if anything was."""
        start = self.settled
        while self.unsettled and ((lease := self.unsettled[0][1]) is None or lease.is_over):
            self.settled = self.unsettled.popleft()[0]
        return self.settled != start


class ReviveReader:
    """Reads what comes out of the timer into the revive topic."""

    def __init__(
        self,
        leases: Leases,
        revival: Revival,
        log: PopLog,
        offsets: OffsetTable,
        broker_name: str,
        moved_at_ms: Mapping[tuple[str, str, int], int],
    ) -> None:
        self._leases = leases
        self._revival = revival
        self._log = log
        self._offsets = offsets
        self._broker_name = broker_name
        self._positions: dict[int, _Position] = {}
        self._moved_at_ms = moved_at_ms

    def __repr__(self) -> str:
        return f"<ReviveReader at { ({queue: position.settled for queue, position in self._positions.items()}) }>"

    def read_behind(self, queue_ids: Iterable[int], entries: "ReadEntries") -> None:
        """Read on where the broker stood before."""
        for queue_id in queue_ids:
            position = self._position(queue_id)
            while records := entries(queue_id, position.read_until, _READ_AT_ONCE):
                for queue_offset, record in records:
                    self._take(queue_id, queue_offset, record)
        self.save_positions()

    def arrived(self, placed: Appended) -> None:
        """Read a record that has just come there."""
        position = self._position(placed.queue_id)
        record = self._log.message_at(self._log.place.name, placed.queue_id, placed.queue_offset)
        if placed.queue_offset >= position.read_until:
            self._take(placed.queue_id, placed.queue_offset, record)
            self.save_positions()

    def save_positions(self) -> None:
        """Have the offsets of the revive group say what is settled."""
        for queue_id, position in self._positions.items():
            if position.advance():
                self._offsets.commit(REVIVE_GROUP, self._log.place.name, queue_id, position.settled)

    def _position(self, queue_id: int) -> _Position:
        position = self._positions.get(queue_id)
        if position is None:
            settled = self._offsets.committed(REVIVE_GROUP, self._log.place.name, queue_id)
            position = self._positions[queue_id] = _Position(-1 if settled is None else settled)
        return position

    def _take(self, queue_id: int, queue_offset: int, record: Record | None) -> None:
        self._position(queue_id).add(queue_offset, None if record is None else self._lease_of(record))

    def _lease_of(self, record: Record) -> Lease | None:
        """Return the lease that has to end before a record is settled; None when that has happened."""
        try:
            said = parse_revive_record(record, self._broker_name)
        except DecodeError as error:
            _log.error("passing over %s", error)
            return None
        if isinstance(said, Acknowledgement):
            if self._leases.find(said.key) is not None:
                self._leases.acknowledge(said.key, said.queue_offsets)
            return None
        return None if said is None else self._take_up(said, record.queue_id)

    def _is_of_before(self, point: CheckPoint) -> bool:
        """Tell whether the group has been set elsewhere since, or the topic made anew."""
        key = point.key
        return key.popped_at_ms <= self._moved_at_ms.get((key.group, key.topic, key.queue_id), 0)

    def _take_up(self, point: CheckPoint, queue_id: int) -> Lease | None:
        known = self._leases.find(point.key)
        if self._leases.pass_over(point.key):
            return known
        if not point.queue_offsets or is_system_topic(point.key.topic) or self._is_of_before(point):
            return None
        lease = Lease(
            key=point.key,
            invisible_ms=point.invisible_ms,
            queue_offsets=point.queue_offsets,
            end_offset=point.queue_offsets[-1] + 1,
            revive_queue_id=queue_id,
        )
        self._leases.add_stored(lease, max(lease.ends_at_ms, self._log.now_ms()) + GUARD_MS)
        self._revival.armed.set()
        return lease


ReadEntries = Callable[[int, int, int], Sequence[tuple[int, Record | None]]]
"""Returns records of a revive queue from an offset on, at most so many; none at its end."""


class RevivalJob:
    """Waits until something is due, and does it."""

    def __init__(self, revival: Revival, reader: ReviveReader, log: PopLog, clock: Clock) -> None:
        self._revival = revival
        self._reader = reader
        self._log = log
        self._clock = clock
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<RevivalJob {self._revival!r}>"

    async def run(self) -> int | None:
        """Wait until something is due, or do it; return the pause."""
        if self._is_stopped:
            return None
        wait_ms = self._revival.wait_ms
        if wait_ms is None or wait_ms > 0:
            self._revival.armed.clear()
            await wait_until_due(self._revival.armed, lambda: self._revival.wait_ms, self._clock)
            return 0
        self._revival.do_due()
        self._log.commit()
        self._reader.save_positions()
        await asyncio.sleep(0)  # others have their turn
        return 0

    def stop(self) -> None:
        """Do nothing more."""
        self._is_stopped = True
        self._revival.armed.set()
