"""What a running broker consists of: the one place where its parts are built, each handed the few things that it uses.

Nothing runs yet: ``server.py`` opens the store before it and starts the jobs afterwards, in the order of a stop.
"""

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from ..common.clock import Clock
from ..common.ids import UniqueIds, decode_host, format_address
from ..common.names import SCHEDULE_TOPIC, SYSTEM_TOPICS, TIMER_TOPIC, retry_topic
from ..common.properties import CLUSTER
from ..remoting.bodies.client import ConsumerData
from ..remoting.headers.send import SendReplies
from ..remoting.transport.connection import Connection, Handler
from ..remoting.transport.connections import ConnectionEvents
from ..remoting.transport.event_loop import TaskScope
from ..remoting.transport.server import handlers_of
from ..store.consumequeue.appended import Appended
from ..store.message_store import MessageStore
from .admin.absent_handlers import OtherFeatures, OtherRoles, OtherStorage
from .admin.change_handlers import GroupDeletion, OffsetResets, TopicDeletion
from .admin.cleaning import CleaningJob
from .admin.client_handlers import DirectConsumption, MemberCalls, MemberQuestions
from .admin.client_resets import ClientResets
from .admin.figures import Figures
from .admin.group_handlers import ClientResetPush, GroupForbidding, GroupReports
from .admin.handlers import AdminHandlers, CleaningHandlers, RuntimeInfoHandlers
from .admin.named_statistics import NamedStatistics
from .admin.offset_handlers import OffsetCopies, OffsetReports, OffsetTables, QueueEntryReports
from .admin.progress import Progress
from .admin.report_handlers import ConnectionReports, ProgressReports, StatisticsReports
from .admin.runtime_info import RuntimeInfo
from .admin.setting_handlers import SettingHandlers
from .admin.statistics import BrokerStatistics, TrafficCounts
from .admin.topic_figures import TopicLooks, WatchedTables
from .delay.delay_delivery import DelayedDelivery
from .delay.delay_progress import DelayProgress, DelaySaveJob
from .delay.delayed_messages import DelayRouting, Delays
from .delay.timer_delivery import TimerDelivery
from .delay.timer_messages import TimerRequests
from .group.filters import FilterSelection, FilterTable
from .group.groups import GroupTable, OffsetTable
from .group.handlers import ClientHandlers, LockHandlers, MemberNotifier, ProgressHandlers, SubscriptionHandlers
from .group.members import Members, RegisterCounts
from .group.queue_locks import QueueLocks
from .jobs import FlushJob, SaveJob, ScanJob, TimedJob
from .outcomes.scheduler import ArrivalNotices, LongPolling, PutCounts, Scheduler, by_topic
from .pull.fetch import FetchOperation, FetchValidator, ReadCounts
from .pull.handlers import PullHandlers
from .pull.query_handlers import QueryHandlers
from .send.handlers import ReplyPusher, SendHandlers
from .send.recall import RecallOperation
from .send.replies import ReplyOperation
from .send.send import UNIT_SUBSCRIPTION, PropertyEnricher, SendBackCounts, SendOperations, SendValidator
from .send.send_back import SendBackOperation
from .settings.config import BrokerConfig
from .settings.live import LiveSettings
from .settings.saved import SettingsFile
from .topic.registration import Registration
from .topic.topics import TopicTable, boot_topics
from .transaction.check_jobs import CheckJob, CursorSaveJob, keep_given_up
from .transaction.checks import CheckRules, GiveUp, TransactionChecks
from .transaction.end_transaction import EndTransaction, ResumeCheck
from .transaction.handlers import TransactionCheckSender, TransactionHandlers
from .transaction.transactions import Transactions


class StoredState(NamedTuple):
    """What a broker has found on its disk: the store, settings, the tables of ``config/``, and who saves these."""

    store: MessageStore
    settings: LiveSettings
    settings_file: SettingsFile
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: FilterTable
    delays: DelayProgress
    saving: SaveJob
    delay_saving: DelaySaveJob


class Components:
    """The parts of one broker; ``own_host`` stands in the unique keys that it makes, its ``files`` run in a thread."""

    def __init__(self, clock: Clock, state: StoredState, files: Executor, tasks: TaskScope, own_host: bytes) -> None:
        self._settings, config = state.settings, state.settings.config
        self._config = config  # for what is read at the start only
        self._clock = clock
        self._state = state
        self._tasks = tasks
        self._unique_ids = UniqueIds(own_host[:-4], os.getpid(), clock.now_ms)
        store = state.store
        self.registration = Registration(self._settings, state.topics, state.saving.run_once, tasks, clock)
        self.scheduler = Scheduler(
            store, clock, self.registration.make_known, self._settings if config.fails_fast else None
        )
        self.cleaning = CleaningJob(store.cleaner, files, tasks, clock)
        self.long_polling = LongPolling(clock)
        self._members = Members[Connection](lambda: store.log_max_offset)
        self._locks = QueueLocks()
        self._filters = FilterSelection(self._settings, state.filters)
        self._transactions = Transactions(
            store, state.offsets, self.scheduler.join, clock.now_ms, most_op_bytes=config.most_op_bytes
        )
        self._routing, self.timer_delivery = self._build_timers()
        self.delay_delivery = DelayedDelivery(store, self.scheduler.commit, state.delays)
        self.connection_events = ConnectionEvents()
        self._traffic = TrafficCounts(
            PutCounts(clock.now_ms), ReadCounts(clock.monotonic_ms), SendBackCounts(), RegisterCounts()
        )
        self._statistics = BrokerStatistics(clock, self._traffic, self._count_timers_out, self._channel_activity)
        self._info = RuntimeInfo(
            self._statistics, self.cleaning, self.scheduler, self.delay_delivery, self.timer_delivery
        )
        self.figures = self._build_figures()
        self._replies = SendReplies(config.region_id, traces=config.is_trace_on)
        self._enricher = PropertyEnricher(self._own_properties(), self._unique_ids.next_id)
        self.sends = self._build_sends()
        self.clients = self._build_clients()
        self.handlers = self._build_handlers()
        self.notices = self._build_notices()
        self.jobs = self._build_jobs(files)
        self._settings.subscribe(self._follow)

    def _follow(self, before: BrokerConfig) -> None:
        """Do what reading a changed setting at its use does not do."""
        config, topics = self._settings.config, self._state.topics
        self._state.store.reconfigure(config.store)
        self._replies.name_region(config.region_id, traces=config.is_trace_on)
        self._enricher.set_own(self._own_properties())
        if config.permission != before.permission:
            topics.renew_version()
        if config.auto_create_topics:
            topics.begin_auto_create()

    def _check_rules(self) -> CheckRules:
        config = self._settings.config
        return CheckRules(config.transaction_timeout_ms, config.most_checks, config.store.cleaning.reserved_ms)

    def _own_properties(self) -> dict[str, str]:
        return {**self._replies.fields(), CLUSTER: self._config.cluster_name}

    def build_checks(self, give_up: GiveUp | None) -> tuple[CheckJob, CursorSaveJob]:
        """Return who checks open transactions and who saves how far; unless told otherwise, those given up are kept."""
        keep = give_up or keep_given_up(self._state.topics)
        checks = TransactionChecks(self._transactions, self.scheduler.commit, self._check_rules, keep)
        sender = TransactionCheckSender(self._members, self._config.broker_name)
        job = CheckJob(checks, sender, self._clock, self._settings)
        return job, CursorSaveJob(self._transactions, self._settings)

    def _build_timers(self) -> tuple[DelayRouting, TimerDelivery | None]:
        store, commit = self._state.store, self.scheduler.commit
        timers = store.timers() if self._config.is_timer_wheel_enabled else None
        requests = timers and TimerRequests(timers.config, timers.count_at, timers.ahead_ms)
        routing = DelayRouting(self._clock.now_ms, Delays(store.config.delays_ms), requests)
        return routing, timers and TimerDelivery(store, timers, commit, timers.now_ms)

    def _build_figures(self) -> Figures:
        state = self._state
        tables = WatchedTables(state.topics, state.groups, state.offsets, self._members)
        looks = TopicLooks(tables, state.store, self._statistics)
        return Figures(self._info, self._settings, tables, self.long_polling, self._own_address, looks)

    def _build_sends(self) -> SendHandlers:
        settings, state, scheduler, routing = self._settings, self._state, self.scheduler, self._routing
        validator = SendValidator(
            settings,
            state.topics,
            state.groups,
            lambda group: self._locks.is_any_live(group, self._clock.monotonic_ms()),
        )
        sends = SendOperations(scheduler, validator, self._enricher, routing, settings, self._traffic.send_backs)
        pusher = ReplyPusher(self._members, self._own_address, self._clock.now_ms)
        replies = ReplyOperation(
            validator, pusher.prepare, routing, scheduler, self._tasks, settings, self._replies.fields
        )
        send_backs = SendBackOperation(
            settings, state.groups, state.topics, routing, scheduler, self._traffic.send_backs
        )
        recalls = RecallOperation(settings, state.topics, routing, scheduler)
        return SendHandlers(sends, send_backs, replies, recalls, self._replies)

    def _build_pulls(self) -> PullHandlers:
        settings, state = self._settings, self._state
        validator = FetchValidator(settings, state.topics, state.groups, self._members, self._filters)
        fetches = FetchOperation(
            state.store.read,
            validator,
            state.offsets,
            self.long_polling,
            self._traffic.reads,
            settings,
        )
        return PullHandlers(fetches, settings)

    def _build_clients(self) -> ClientHandlers:
        state = self._state
        return ClientHandlers(
            self._members,
            MemberNotifier(state.groups, state.filters, self._settings),
            partial(open_group, state.groups, state.topics),
            self.scheduler,
            self._clock.monotonic_ms,
            self._traffic.registers,
        )

    def _build_handlers(self) -> dict[int, Handler]:
        """Return who answers each request code; one that is missing is answered 3, not supported."""
        state, scheduler, settings = self._state, self.scheduler, self._settings
        own_topics = frozenset(topic.topic_name for topic in boot_topics(self._config))
        ends = EndTransaction(self._transactions, self._check_rules, self._routing, scheduler)
        return handlers_of(
            self.sends,
            self.clients,
            self._build_pulls(),
            QueryHandlers(state.store, settings),
            ProgressHandlers(state.store, state.offsets, state.topics, state.groups, self._members),
            SubscriptionHandlers(self._filters),
            LockHandlers(self._locks, self._clock.monotonic_ms),
            TransactionHandlers(ends, ResumeCheck(scheduler)),
            AdminHandlers(state.topics, state.groups, scheduler, own_topics, self.cleaning, state.saving.run_once),
            CleaningHandlers(self.cleaning, state.topics, own_topics),
            RuntimeInfoHandlers(self._info),
            SettingHandlers(settings, state.settings_file, state.topics, self.registration, self.cleaning, self._clock),
            *self._build_reports({*SYSTEM_TOPICS, *own_topics}),
            *self._build_changes(own_topics),
            *self._build_offset_reports(),
            *self._build_member_questions(),
            OtherStorage(self.cleaning, state.saving.run_once),
            OtherRoles(state.store),
            OtherFeatures(),
        )

    def _build_offset_reports(self) -> tuple[OffsetTables, OffsetReports, OffsetCopies, QueueEntryReports]:
        state, name = self._state, self._config.broker_name
        save = state.saving.run_once
        return (
            OffsetTables(state.offsets, state.delays),
            OffsetReports(state.store, state.topics, state.offsets, name, self._clock.now_ms),
            OffsetCopies(state.topics, state.groups, state.offsets, self._members, self.cleaning, save),
            QueueEntryReports(state.store, self._members, state.filters),
        )

    def _build_member_questions(self) -> tuple[MemberQuestions, DirectConsumption, GroupReports, GroupForbidding]:
        state, members, name = self._state, self._members, self._config.broker_name
        calls = MemberCalls(members, self._tasks)
        return (
            MemberQuestions(calls, members),
            DirectConsumption(calls, state.store, state.topics, state.groups, name),
            GroupReports(members, state.offsets, self._clock, self._own_address),
            GroupForbidding(state.groups, self.cleaning, state.saving.run_once),
        )

    def _own_address(self) -> str:
        return format_address(*decode_host(self._state.store.store_host))

    def _build_changes(self, own_topics: Collection[str]) -> tuple[TopicDeletion, GroupDeletion, OffsetResets]:
        state, cleaning, save = self._state, self.cleaning, self._state.saving.run_once
        topics, groups, offsets = state.topics, state.groups, state.offsets
        push = ClientResetPush(ClientResets(state.store, offsets), topics, self._members, self._config.broker_name)
        return (
            TopicDeletion(topics, offsets, self._statistics, self.long_polling, cleaning, save, own_topics),
            GroupDeletion(groups, offsets, self._statistics, cleaning, save),
            OffsetResets(
                state.store, topics, groups, offsets, self.long_polling, cleaning, save, self._settings, push.reset
            ),
        )

    def _build_reports(
        self, system_topics: Collection[str]
    ) -> tuple[ProgressReports, ConnectionReports, StatisticsReports]:
        state = self._state
        reports = ProgressReports(
            Progress(state.store, state.topics, state.offsets),
            self._statistics,
            self._config.broker_name,
            state.topics,
            state.groups,
            state.offsets,
            self._members,
            self._own_address,
        )
        named = NamedStatistics(self._statistics, self._config.cluster_name)
        return reports, ConnectionReports(self._members, system_topics), StatisticsReports(named)

    def _build_notices(self) -> ArrivalNotices:
        takers: dict[str, Callable[[Appended], object]] = {SCHEDULE_TOPIC: self.delay_delivery.take}
        if self.timer_delivery is not None:
            takers[TIMER_TOPIC] = self.timer_delivery.arrived
        return ArrivalNotices(self._traffic.puts, self.long_polling.arrived, by_topic(takers))

    def _build_jobs(self, files: Executor) -> Sequence[TimedJob]:
        """Return the jobs that are begun one pause after the start."""
        state, scheduler = self._state, self.scheduler
        flushing = FlushJob(state.store, files, scheduler.tell_flushed if scheduler.flushes_first else None)
        scanning = ScanJob(self.clients, state.filters, self._settings)
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
