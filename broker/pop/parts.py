"""POP as a whole: what one broker has of it, built when somebody asks for it or when the log speaks of it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...common.clock import Clock
from ...common.errors import RecordError
from ...common.record import Record, decode_record
from ...remoting.transport.connection import Connection, Handler
from ...remoting.transport.event_loop import TaskScope, repeat
from ...remoting.transport.server import handlers_of
from ...store.consumequeue.appended import Placed
from ..delay.delayed_messages import DelayRouting
from ..group.filters import FilterSelection
from ..group.groups import RequestModeTable
from ..group.members import Members
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..topic.topic_routes import TopicRoutes
from .acks import AckOperation, OrderedAcks
from .assignment_handlers import AssignmentHandlers, Saving
from .check_points import ReviveTopic
from .giving_up import GivingUp
from .group_queues import GroupQueues
from .handing_out import PopOperation, PopValidator
from .handlers import PopHandlers
from .leases import InHand, LeaseKeeper, LeaseQueue, LeaseRules, Leases
from .ordered_batches import OrderedBatches, OrderedPlace
from .peeking import PeekOperation
from .revival import PopLog, PopTables, Revival, RevivalJob, ReviveReader
from .waiting import ALL_QUEUES, PopWaiting, WaitKey, WaitLimits


class PopNeeds(NamedTuple):
    """What POP uses of a broker."""

    clock: Clock
    settings: LiveSettings
    scheduler: Scheduler
    routing: DelayRouting
    tables: PopTables
    filters: FilterSelection
    make_known: Callable[[Sequence[str], Callable[[], object]], object]
    revive_topic: str
    is_timer_behind: Callable[[], bool]
    batches: OrderedBatches
    routes: TopicRoutes
    members: Members[Connection]
    modes: RequestModeTable
    saving: Saving
    moved_at_ms: dict[tuple[str, str, int], int]
    """By group, topic and queue: when a group was set elsewhere, or one of them deleted."""


class Pop:
    """The leases of a broker, and who hands out, takes back and waits."""

    def __init__(self, needs: PopNeeds) -> None:
        settings, tables, clock = needs.settings, needs.tables, needs.clock
        store = needs.scheduler.store
        self._needs = needs
        self.leases = Leases(self._rules, tables.offsets.commit)
        place = ReviveTopic(needs.revive_topic, store.store_host)
        self._log = PopLog(needs.scheduler, needs.routing, place, lambda: settings.config.pop)
        self.revival = Revival(
            self.leases, self._log, tables, lambda: settings.config.pop, needs.make_known, needs.is_timer_behind
        )
        name = settings.config.broker_name
        self._reader = ReviveReader(self.leases, self.revival, self._log, tables.offsets, name, needs.moved_at_ms)
        self._job = RevivalJob(self.revival, self._reader, self._log, clock)
        self.waiting = PopWaiting(clock, self._limits)
        self.ordered = needs.batches
        validator = PopValidator(settings, tables, needs.filters, clock.now_ms)
        queues = GroupQueues(store, tables, self.leases)
        self.pops = PopOperation(
            store,
            settings,
            validator,
            tables,
            self.leases,
            queues,
            self.revival,
            self.ordered,
            self.waiting,
            clock.now_ms,
        )
        peeks = PeekOperation(queues, settings, validator)
        ordered_acks = OrderedAcks(self.ordered, tables.offsets, self.waiting, clock.now_ms)
        self.acks = AckOperation(
            needs.scheduler,
            tables,
            self.leases,
            self.revival,
            ordered_acks,
            self._log,
            lambda: (name, self._revive_queues),
        )
        self.giving_up = GivingUp(needs.scheduler, tables.topics, self._log, self.acks)
        self.handlers = self._build_handlers(peeks)

    def _build_handlers(self, peeks: PeekOperation) -> dict[int, Handler]:
        needs, settings = self._needs, self._needs.settings
        name = settings.config.broker_name
        return handlers_of(
            PopHandlers(self.pops, peeks, self.acks, self.waiting, lambda: name),
            AssignmentHandlers(
                needs.routes, needs.members, needs.modes, needs.tables, lambda: settings.config.pop, needs.saving
            ),
        )

    def __repr__(self) -> str:
        return f"<Pop {self.leases!r}>"

    @property
    def _revive_queues(self) -> int:
        return self._needs.settings.config.revive_queues

    def begin(self, tasks: TaskScope) -> None:
        """Read on in the revive topic, and do from now on what is due."""
        topic = self._needs.tables.topics.get(self._needs.revive_topic)
        self._reader.read_behind(range(topic.read_queue_nums if topic is not None else 0), self._read_entries)
        tasks.start(repeat(self._job.run, self._needs.clock), "revival")

    def stop(self) -> None:
        """Do nothing more; the log has all that is handed out, and who waits is answered."""
        self._job.stop()
        self.waiting.wake_all()
        self.revival.store_kept()
        self._log.commit()
        self._reader.save_positions()

    def arrived(self, records: Sequence[Placed]) -> None:
        """Look at messages that have become readable."""
        self.waiting.arrived(records)
        for placed in records:
            if placed.topic == self._needs.revive_topic and placed.queue is not None:
                for record in placed.records():
                    self._reader.arrived(record)

    def release(self, keeper: LeaseKeeper, delay_ms: int) -> None:
        """Have what a consumer has come again after a while, at the latest: it is gone."""
        at_ms = self._log.now_ms() + delay_ms
        self.revival.release(keeper, at_ms)
        for place in self.ordered.release(keeper, at_ms):
            for queue_id in (ALL_QUEUES, place.queue_id):
                self.waiting.wake_later(WaitKey(place.topic, place.group, queue_id), delay_ms)

    def in_hand(self, group: str, topic: str, queue_id: int) -> InHand | None:
        """Return what consumers of a group have of a queue; None where nobody has popped."""
        queue = LeaseQueue(group, topic, queue_id)
        if queue not in self.pops.queues:
            return None
        committed = self._needs.tables.offsets.committed(group, topic, queue_id) or 0
        batch = self.ordered.find(OrderedPlace(topic, group, queue_id))
        if batch is None or committed > batch.queue_offsets[-1]:
            return InHand(self.leases.in_flight(queue), self.leases.next_offset(queue, committed))
        open_offsets = [offset for number, offset in enumerate(batch.queue_offsets) if not batch.is_acked(number)]
        return InHand(open_offsets, batch.queue_offsets[-1] + 1)

    def forget_gone(self) -> None:
        """Forget the leases of topics and groups that are gone, and answer who waits there."""
        tables = self._needs.tables

        def is_gone(queue: LeaseQueue) -> bool:
            return tables.groups.get(queue.group) is None or tables.topics.get(queue.topic) is None

        for queue in self.leases.queues():
            if is_gone(queue):
                self._needs.moved_at_ms[queue] = self._log.now_ms()
                self.revival.forget(queue)
        self.pops.queues -= set(filter(is_gone, self.pops.queues))
        self._log.commit()
        self.waiting.wake_gone(lambda topic: tables.topics.get(topic) is None)

    def forget_queue(self, group: str, topic: str, queue_id: int) -> None:
        """Forget what is handed out of a queue, since its group is set elsewhere; who waits there looks again."""
        queue = LeaseQueue(group, topic, queue_id)
        self.revival.forget(queue)
        self.ordered.forget(OrderedPlace(queue.topic, queue.group, queue.queue_id))
        self._log.commit()
        self.waiting.wake_queue(queue.topic, queue.group, queue.queue_id)

    def _rules(self) -> LeaseRules:
        config = self._needs.settings.config.pop
        return LeaseRules(
            config.keeps_leases, config.stay_ms, config.hurry_ms, config.most_kept, config.most_kept_in_queue
        )

    def _limits(self) -> WaitLimits:
        config = self._needs.settings.config.pop
        return WaitLimits(config.most_waiting, config.most_waiting_in_queue, config.unasked_every)

    def _read_entries(self, queue_id: int, queue_offset: int, most: int) -> list[tuple[int, Record | None]]:
        store, topic = self._needs.scheduler.store, self._needs.revive_topic
        start = max(queue_offset, store.min_offset(topic, queue_id))
        found: list[tuple[int, Record | None]] = []
        for number, (log_offset, size, _) in enumerate(store.entries(topic, queue_id, start, most)):
            try:
                data = store.record_at(log_offset, size)
                found.append((start + number, None if data is None else decode_record(data)))
            except RecordError:
                found.append((start + number, None))
        return found
