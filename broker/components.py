"""What a running broker consists of: the one place where its parts are built, each handed the few things that it uses.

What answers administrators and measures the broker is imported and built by ``admin_components.py``, when one asks.
Nothing runs yet: ``server.py`` opens the store before it and starts the jobs afterwards, in the order of a stop.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ..common.clock import Clock
from ..common.ids import UniqueIds, decode_host, format_address
from ..common.names import REVIVE_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_system_topic, retry_topic
from ..common.properties import CLUSTER
from ..remoting.bodies.client import ConsumerData
from ..remoting.codec.command import Command
from ..remoting.headers.send import SendReplies
from ..remoting.transport.connection import Connection, Handler, Reply, refuse_unknown
from ..remoting.transport.connections import ConnectionEvents
from ..remoting.transport.event_loop import TaskScope
from ..remoting.transport.server import handlers_of
from ..store.consumequeue.appended import Appended
from .admin.cleaning import CleaningJob
from .admin.statistics import BrokerStatistics, TrafficCounts
from .delay.delay_delivery import DelayedDelivery
from .delay.delayed_messages import DelayRouting, Delays
from .delay.timer_delivery import TimerDelivery
from .delay.timer_messages import TimerRequests
from .group.filters import FilterSelection
from .group.groups import GroupTable
from .group.handlers import ClientHandlers, LockHandlers, MemberNotifier, ProgressHandlers, SubscriptionHandlers
from .group.members import EveryMember, Members
from .group.queue_locks import QueueLocks
from .jobs import FlushJob, ScanJob, TimedJob
from .outcomes.scheduler import ArrivalNotices, LongPolling, Scheduler, by_topic
from .parts import AdminParts, StoredState
from .pop_answers import REVIVE_GROUP, PopAnswers
from .pull.fetch import FetchOperation, FetchValidator, Reads
from .pull.handlers import PullHandlers
from .replication.log_replication import LogReplication
from .send.handlers import ReplyPusher, SendHandlers
from .send.recall import RecallOperation
from .send.replies import ReplyOperation
from .send.send import UNIT_SUBSCRIPTION, PropertyEnricher, SendBackCounts, SendOperations, SendValidator
from .send.send_back import SendBackOperation
from .settings.config import BrokerConfig
from .settings.live import LiveSettings
from .topic.registration import Registration
from .topic.topics import TopicTable
from .transaction.check_jobs import CheckJob, CursorSaveJob, keep_given_up
from .transaction.checks import CheckRules, GiveUp, TransactionChecks
from .transaction.end_transaction import EndTransaction, ResumeCheck
from .transaction.handlers import TransactionCheckSender, TransactionHandlers
from .transaction.transactions import Transactions

if TYPE_CHECKING:
    from .admin.figures import Figures
    from .admin.guests import GuestLink
    from .operations import BrokerOperations
    from .pop.parts import PopNeeds
    from .replication.pre_online import MasterProgress
    from .replication.table_copy import TableCopy
    from .security.access import Access


class AdminAnswers:
    """Answers what nobody else does, by handlers that are imported and built with the first such request."""

    def __init__(self, build: Callable[[], Mapping[int, Handler]]) -> None:
        self._build = build
        self._handlers: Mapping[int, Handler] | None = None

    def __repr__(self) -> str:
        return f"<AdminAnswers {'not built' if self._handlers is None else len(self._handlers)}>"

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """Who answers which code."""
        if self._handlers is None:
            self._handlers = self._build()
        return self._handlers

    def answer(self, command: Command, connection: Connection) -> Reply:
        """Answer a request; one that nobody answers gets 3, not supported."""
        return self.handlers.get(command.code, refuse_unknown)(command, connection)


class SendNeeds(NamedTuple):
    """The tables that sends are checked by, and who stores, counts and names what is taken.

    ``consumes_in_order`` tells whether a group does at the moment; nobody sends to ``own_topics``.
    """

    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    scheduler: Scheduler
    routing: DelayRouting
    counts: SendBackCounts
    consumes_in_order: Callable[[str], bool]
    own_topics: frozenset[str]
    new_key: Callable[[], str]


class SendParts:
    """The operations on messages that come in; ``follow`` has them use settings that have changed."""

    def __init__(self, needs: SendNeeds) -> None:
        settings, scheduler, routing = needs.settings, needs.scheduler, needs.routing
        config = settings.config
        self._needs = needs
        self._cluster = config.cluster_name  # as long as the broker runs
        self._replies = SendReplies(config.region_id, traces=config.is_trace_on)
        self._enricher = PropertyEnricher(self._own_properties(), needs.new_key)
        self._validator = SendValidator(settings, needs.topics, needs.groups, needs.consumes_in_order, needs.own_topics)
        self.recalls = RecallOperation(settings, needs.topics, routing, scheduler)
        self.send_backs = SendBackOperation(settings, needs.groups, needs.topics, routing, scheduler, needs.counts)
        self.sends = SendOperations(scheduler, self._validator, self._enricher, routing, settings, needs.counts)

    def __repr__(self) -> str:
        return f"<SendParts of {self._needs.settings.config.broker_name}>"

    def handlers(self, pusher: ReplyPusher, tasks: TaskScope) -> SendHandlers:
        """Return who answers senders; replies go to their requesters by a pusher."""
        needs = self._needs
        replies = ReplyOperation(
            self._validator,
            pusher.prepare,
            needs.routing,
            needs.scheduler,
            tasks,
            needs.settings,
            self._replies.fields,
        )
        return SendHandlers(self.sends, self.send_backs, replies, self.recalls, self._replies)

    def follow(self) -> None:
        """Do what reading a changed setting at its use does not do."""
        config = self._needs.settings.config
        self._replies.name_region(config.region_id, traces=config.is_trace_on)
        self._enricher.set_own(self._own_properties())

    def _own_properties(self) -> dict[str, str]:
        return {**self._replies.fields(), CLUSTER: self._cluster}


class Components:
    """The parts of one broker; ``own_host`` stands in the unique keys that it makes, its ``files`` run in a thread."""

    def __init__(self, clock: Clock, state: StoredState, files: Executor, tasks: TaskScope, own_host: bytes) -> None:
        self.settings, config = state.settings, state.settings.config
        self._config = config  # for what is read at the start only
        self._clock = clock
        self._state = state
        self._tasks = tasks
        store = state.store
        self.registration = Registration(self.settings, state.topics, state.saving.run_once, tasks, clock)
        self.long_polling = LongPolling(clock)
        stalls = self.settings if config.fails_fast else None
        self.scheduler = Scheduler(store, clock, self.registration.make_known, stalls)
        self.replication = LogReplication(self.scheduler, self.settings, clock, self._own_address)
        self.cleaning = CleaningJob(store.cleaner, files, tasks, clock)
        self.table_copy = self._build_table_copy() if config.replication.is_slave else None
        self._members = Members[Connection](lambda: store.log_max_offset)
        self._guests: Members[GuestLink] = Members(lambda: store.log_max_offset)
        self._locks = QueueLocks()
        self._filters = FilterSelection(self.settings, state.filters)
        self._check_job: CheckJob | None = None
        may_be_asked = self._may_be_asked if config.security.authorizes else None
        self._check_sender = TransactionCheckSender(self._members, config.broker_name, self._guests, may_be_asked)
        self._transactions = Transactions(
            store, state.offsets, self.scheduler.join, clock.now_ms, most_op_bytes=config.most_op_bytes
        )
        self._routing, self.timer_delivery = self._build_timers()
        self.delay_delivery = DelayedDelivery(store, self.scheduler.commit, state.delays)
        self.connection_events = ConnectionEvents()
        self._traffic = TrafficCounts.begin(clock)
        self._statistics = BrokerStatistics(clock, self._traffic, self._count_timers_out, self._channel_activity)
        self._sending = SendParts(self._send_needs(own_host))
        self._transaction_ends = EndTransaction(self._transactions, self._check_rules, self._routing, self.scheduler)
        self.sends = self._sending.handlers(ReplyPusher(self._members, self._own_address, clock.now_ms), tasks)
        self.clients = self._build_clients()
        self.pop = PopAnswers(self._pop_needs, self._revive_topic, clock.now_ms)
        self.handlers = self._build_handlers()
        self.admin = AdminAnswers(self._build_admin_handlers)
        self.notices = self.scheduler.readers = self._build_notices()
        self.jobs = self._build_jobs(files)
        self.settings.subscribe(self._follow)

    def _follow(self, before: BrokerConfig) -> None:
        """Do what reading a changed setting at its use does not do."""
        config, topics = self.settings.config, self._state.topics
        self._state.store.reconfigure(config.store)
        self._sending.follow()
        if config.permission != before.permission:
            topics.renew_version()
        if config.auto_create_topics:
            topics.begin_auto_create()

    def _build_table_copy(self) -> "TableCopy":
        """Return who copies the tables of the master."""
        from .replication.table_copy import CopiedTables, CopyHelpers, TableCopy  # not for masters

        state = self._state
        assert state.kept is not None, "a slave keeps tables"
        tables = CopiedTables(state.topics, state.groups, state.offsets, state.delays, state.modes, state.kept)

        def make_known(names: Sequence[str]) -> None:
            self.registration.make_known(names, lambda: None)

        helpers = CopyHelpers(self._save_progress, self._forget_topics, self.cleaning.in_thread, make_known)
        return TableCopy(tables, state.store, self.replication.master, helpers, self._clock)

    async def _save_progress(self) -> None:
        await self._state.saving.run_once()
        await self._state.delay_saving.run_once()

    def master_progress(self) -> "MasterProgress":
        """Return how far consumers and delay levels have come, for a master that takes back what is further."""
        from .replication.pre_online import MasterProgress

        state = self._state
        return MasterProgress(
            state.store, state.topics, state.offsets, state.delays, self.delay_delivery, self._save_progress
        )

    def _forget_topics(self, topics: frozenset[str]) -> None:
        """Let go of topics that the master has no more."""
        gone = frozenset(topic for topic in topics if not is_system_topic(topic))

        def is_back(topic: str) -> bool:
            return self._state.topics.get(topic) is not None

        for topic in gone:
            self._statistics.drop_topic(topic)
            self.long_polling.wake_topic(topic)
        if gone:
            self.cleaning.start(lambda: self.cleaning.remove_queues(gone, is_back), "remove the queues of gone topics")

    def _check_rules(self) -> CheckRules:
        config = self.settings.config
        return CheckRules(config.transaction_timeout_ms, config.most_checks, config.store.cleaning.reserved_ms)

    def build_checks(self, give_up: GiveUp | None) -> tuple[CheckJob, CursorSaveJob]:
        """Return who checks open transactions and who saves how far; unless told otherwise, those given up are kept."""
        keep = give_up or keep_given_up(self._state.topics)
        checks = TransactionChecks(self._transactions, self.scheduler.commit, self._check_rules, keep)
        job = self._check_job = CheckJob(checks, self._check_sender, self._clock, self.settings)
        return job, CursorSaveJob(self._transactions, self.settings)

    @property
    def wait_ms(self) -> int | None:
        """How long nothing is due that has its instant: deliveries and checks; None when nothing waits for one."""
        waits_ms = [self.delay_delivery.wait_ms, self.pop.wait_ms]
        if self.timer_delivery is not None:
            waits_ms.append(self.timer_delivery.wait_ms)
        if self._check_job is not None:
            waits_ms.append(self._check_job.wait_ms)
        return min((wait_ms for wait_ms in waits_ms if wait_ms is not None), default=None)

    @property
    def checks_asked(self) -> int:
        """How often producers were asked about a transaction."""
        return self._check_sender.asked_count

    def _build_timers(self) -> tuple[DelayRouting, TimerDelivery | None]:
        store, commit = self._state.store, self.scheduler.commit
        timers = store.timers() if self._config.is_timer_wheel_enabled else None
        requests = timers and TimerRequests(timers.config, timers.count_at, timers.ahead_ms)
        routing = DelayRouting(self._clock.now_ms, Delays(store.config.delays_ms), requests)
        return routing, timers and TimerDelivery(store, timers, commit, timers.now_ms)

    def _send_needs(self, own_host: bytes) -> SendNeeds:
        state, clock = self._state, self._clock

        def consumes_in_order(group: str) -> bool:
            return self._locks.is_any_live(group, clock.monotonic_ms())

        return SendNeeds(
            self.settings,
            state.topics,
            state.groups,
            self.scheduler,
            self._routing,
            self._traffic.send_backs,
            consumes_in_order,
            frozenset({self._revive_topic}),
            UniqueIds(own_host[:-4], os.getpid(), clock.now_ms).next_id,
        )

    def _build_pulls(self) -> PullHandlers:
        settings, state = self.settings, self._state
        validator = FetchValidator(settings, state.topics, state.groups, self._members, self._filters)
        fetches = FetchOperation(
            Reads(state.store.read, state.store.read_newest),
            validator,
            state.offsets,
            self.long_polling,
            self._traffic.reads,
            settings,
        )
        return PullHandlers(fetches, settings)

    @property
    def _revive_topic(self) -> str:
        return REVIVE_TOPIC_PREFIX + self._config.cluster_name

    @property
    def has_unsettled_leases(self) -> bool:
        """Whether the log may speak of leases that are from before the start."""
        state, topic = self._state, self._revive_topic
        settled = state.offsets.of_topic(REVIVE_GROUP, topic)
        ends = {
            queue_id: state.store.max_offset(name, queue_id) for name, queue_id in state.store.queues() if name == topic
        }
        return any(end > settled.get(queue_id, -1) + 1 for queue_id, end in ends.items())

    def _pop_needs(self) -> "PopNeeds":
        from .pop.assignment_handlers import Saving
        from .pop.ordered_batches import make_ordered_batches
        from .pop.parts import PopNeeds
        from .pop.revival import PopTables
        from .topic.topic_routes import TopicRoutes

        state, config = self._state, self._config
        batches = state.batches
        if batches is None:
            batches = make_ordered_batches(state.topics, state.groups, self._clock.now_ms)
            state.saving.add(batches)
        routes = TopicRoutes(self.registration.find_route, state.topics, config.broker_name, self._clock)
        return PopNeeds(
            self._clock,
            self.settings,
            self.scheduler,
            self._routing,
            PopTables(state.topics, state.groups, state.offsets),
            self._filters,
            self.registration.make_known,
            self._revive_topic,
            self._is_timer_behind,
            batches,
            routes,
            self._members,
            state.modes,
            Saving(self._tasks, state.saving.run_once),
            self.pop.moved_at_ms,
        )

    def _is_timer_behind(self) -> bool:
        return self.timer_delivery is not None and not self.timer_delivery.is_idle

    def _build_clients(self) -> ClientHandlers:
        state = self._state
        return ClientHandlers(
            self._members,
            MemberNotifier(state.groups, state.filters, self.settings),
            partial(open_group, state.groups, state.topics),
            self.scheduler,
            self._clock.monotonic_ms,
            self._traffic.registers,
        )

    def _build_handlers(self) -> dict[int, Handler]:
        """Return who answers each request code that clients use all the time."""
        state, scheduler = self._state, self.scheduler
        return (
            handlers_of(
                self.sends,
                self.clients,
                self._build_pulls(),
                ProgressHandlers(state.store, state.offsets, state.topics, state.groups, self._members),
                SubscriptionHandlers(self._filters),
                LockHandlers(self._locks, self._clock.monotonic_ms),
                TransactionHandlers(self._transaction_ends, ResumeCheck(scheduler)),
            )
            | self.pop.handlers
        )

    def _build_admin_handlers(self) -> dict[int, Handler]:
        from .admin_components import build_admin_handlers

        return build_admin_handlers(self.admin_parts)

    @cached_property
    def figures(self) -> "Figures":
        """What measures the broker for whoever watches it."""
        from .admin_components import build_figures

        return build_figures(self.admin_parts)

    @cached_property
    def admin_parts(self) -> AdminParts:
        """What administrators look at and change."""
        return AdminParts(
            clock=self._clock,
            config=self._config,
            state=self._state,
            tasks=self._tasks,
            registration=self.registration,
            scheduler=self.scheduler,
            cleaning=self.cleaning,
            long_polling=self.long_polling,
            delay_delivery=self.delay_delivery,
            timer_delivery=self.timer_delivery,
            members=self._members,
            guests=self._guests,
            everybody=EveryMember(self._members, self._guests),
            statistics=self._statistics,
            own_address=self._own_address,
            replication=self.replication,
            transactions=self._transactions,
            pop=self.pop,
        )

    @cached_property
    def operations(self) -> "BrokerOperations":
        """What the broker does for clients that come by another protocol."""
        from .operations import BrokerOperations
        from .other_brokers import OtherBrokers

        state = self._state
        return BrokerOperations(
            clock=self._clock,
            settings=self.settings,
            store=state.store,
            scheduler=self.scheduler,
            topics=state.topics,
            groups=state.groups,
            offsets=state.offsets,
            make_known=self.registration.make_known,
            guests=self._guests,
            filters=self._filters,
            sends=self._sending.sends,
            send_backs=self._sending.send_backs,
            recalls=self._sending.recalls,
            transaction_ends=self._transaction_ends,
            pop=lambda: self.pop.pop,
            access=self.access,
            find_other_brokers=OtherBrokers(self.registration, self._tasks, self._config.broker_name).find,
        )

    @cached_property
    def access(self) -> "Access | None":
        """What tells who may do what, the same for every door; ``None`` where everybody is served."""
        if not self._config.security.authenticates:
            return None
        from .security.access import Access

        assert self._state.security is not None, "who asks for names knows users"
        return Access(self._config.security, self._state.security.security, self._clock)

    def _may_be_asked(self, producer: Connection, topic: str) -> bool:
        """Tell whether somebody who has signed on a connection may send to a topic."""
        from .security.guard import may_send

        assert self.access is not None, "who asks for rights knows users"
        return may_send(self.access, producer.remote_address, topic)

    def _own_address(self) -> str:
        return format_address(*decode_host(self._state.store.store_host))

    def _build_notices(self) -> ArrivalNotices:
        takers: dict[str, Callable[[Appended], object]] = {}
        if not self._config.replication.is_slave:
            takers[SCHEDULE_TOPIC] = self.delay_delivery.take
            if self.timer_delivery is not None:
                takers[TIMER_TOPIC] = self.timer_delivery.arrived
        return ArrivalNotices(self._traffic.puts, self.long_polling, self.pop.arrived, by_topic(takers))

    def _build_jobs(self, files: Executor) -> Sequence[TimedJob]:
        """Return the jobs that are begun one pause after the start."""
        state, scheduler = self._state, self.scheduler
        flushing = FlushJob(state.store, files, scheduler.tell_flushed if scheduler.flushes_first else None)
        scanning = ScanJob(self.clients, state.filters, self.settings)
        return flushing, state.saving, scanning, self._statistics

    def _channel_activity(self) -> dict[str, int]:
        """Return what the connections have been through, by Java's names."""
        events = self.connection_events
        return {"CONNECT": events.opened, "CLOSE": events.ended, "EXCEPTION": events.failed, "IDLE": events.idle}

    def _count_timers_out(self) -> int:
        return 0 if self.timer_delivery is None else self.timer_delivery.taken_out


def open_group(groups: GroupTable, topics: TopicTable, consumer: ConsumerData) -> Sequence[str] | None:
    """Find or create a group with its retry topic; return what topic changed, None if it may not be created.

    A retry topic is ordered when the group subscribes to an ordered topic (``ClientManageProcessor.heartBeat``).
    """
    group = groups.find(consumer.group_name)
    if group is None:
        return None
    topic, is_new = topics.ensure(retry_topic(group.group_name), group.retry_queue_nums)
    subscribed = [topics.get(data.topic) for data in consumer.subscription_data_set]
    wanted = replace(
        topic,
        order=any(other.order for other in subscribed if other is not None) if subscribed else topic.order,
        topic_sys_flag=UNIT_SUBSCRIPTION if is_new and consumer.unit_mode else topic.topic_sys_flag,
    )
    if wanted != topic:
        topics.put(wanted)
    return (topic.topic_name,) if is_new or wanted != topic else ()
