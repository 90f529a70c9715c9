"""What answers administrators and measures a broker for those who watch it, built as ``components.py`` builds the rest.

It is imported with the first request of an administrator, or for metrics, since most brokers get neither.
"""

from ..common.names import SYSTEM_TOPICS
from ..remoting.transport.connection import Handler
from ..remoting.transport.server import handlers_of
from ..store.files.files import OS_FILES
from .admin.absent_handlers import OtherFeatures, OtherRoles, OtherStorage
from .admin.change_handlers import GroupDeletion, OffsetResets, TopicDeletion
from .admin.client_handlers import DirectConsumption, MemberCalls, MemberQuestions
from .admin.client_resets import ClientResets
from .admin.figures import Figures
from .admin.group_handlers import ClientResetPush, GroupForbidding, GroupReports
from .admin.handlers import AdminHandlers, CleaningHandlers, RuntimeInfoHandlers
from .admin.named_statistics import NamedStatistics
from .admin.offset_handlers import OffsetCopies, OffsetReports, QueueEntryReports
from .admin.progress import Progress
from .admin.report_handlers import ConnectionReports, ProgressReports, StatisticsReports
from .admin.runtime_info import RuntimeInfo
from .admin.setting_handlers import SettingHandlers
from .admin.table_handlers import OffsetTables, SettingTables
from .admin.topic_figures import TopicLooks, WatchedTables
from .parts import AdminParts
from .pull.query_handlers import QueryHandlers
from .replication.kept_tables import keep_tables
from .replication.peer_handlers import KeptTableHandlers, PeerHandlers
from .security.handlers import AclHandlers, SecurityChanges, UserHandlers
from .security.storage import make_security
from .topic.topics import boot_topics


def build_admin_handlers(parts: AdminParts) -> dict[int, Handler]:
    """Return who answers each request code of administrators."""
    state, cleaning, save = parts.state, parts.cleaning, parts.state.saving.run_once
    settings, topics = state.settings, state.topics
    own_topics = frozenset(topic.topic_name for topic in boot_topics(parts.config))
    return handlers_of(
        QueryHandlers(state.store, settings),
        AdminHandlers(topics, state.groups, parts.scheduler, own_topics, cleaning, save),
        CleaningHandlers(cleaning, topics, own_topics),
        RuntimeInfoHandlers(_runtime_info(parts)),
        SettingHandlers(settings, state.settings_file, topics, parts.registration, cleaning, parts.clock),
        *_build_reports(parts, frozenset({*SYSTEM_TOPICS, *own_topics})),
        *_build_changes(parts, own_topics),
        *_build_offset_reports(parts),
        *_build_member_questions(parts),
        OtherStorage(cleaning, save),
        OtherRoles(),
        OtherFeatures(),
        *_build_peer_answers(parts),
        *_build_security(parts),
    )


def build_figures(parts: AdminParts) -> Figures:
    """Return what measures the broker."""
    state = parts.state
    tables = WatchedTables(state.topics, state.groups, state.offsets, parts.everybody)
    looks = TopicLooks(tables, state.store, parts.statistics)
    return Figures(_runtime_info(parts), state.settings, tables, parts.long_polling, parts.own_address, looks)


def _runtime_info(parts: AdminParts) -> RuntimeInfo:
    return RuntimeInfo(parts.statistics, parts.cleaning, parts.scheduler, parts.delay_delivery, parts.timer_delivery)


def _build_reports(
    parts: AdminParts, system_topics: frozenset[str]
) -> tuple[ProgressReports, ConnectionReports, StatisticsReports]:
    state = parts.state
    reports = ProgressReports(
        Progress(state.store, state.topics, state.offsets),
        parts.statistics,
        parts.config.broker_name,
        state.topics,
        state.groups,
        state.offsets,
        parts.everybody,
        parts.own_address,
    )
    named = NamedStatistics(parts.statistics, parts.config.cluster_name)
    return reports, ConnectionReports(parts.everybody, system_topics), StatisticsReports(named)


def _build_changes(parts: AdminParts, own_topics: frozenset[str]) -> tuple[TopicDeletion, GroupDeletion, OffsetResets]:
    state, cleaning, polling, save = parts.state, parts.cleaning, parts.long_polling, parts.state.saving.run_once
    store, topics, groups, offsets, pop = state.store, state.topics, state.groups, state.offsets, parts.pop
    push = ClientResetPush(ClientResets(store, offsets), topics, parts.members, parts.config.broker_name)
    return (
        TopicDeletion(topics, offsets, parts.statistics, polling, cleaning, save, own_topics, pop.forget_gone),
        GroupDeletion(groups, offsets, parts.statistics, cleaning, save, pop.forget_gone),
        OffsetResets(
            store, topics, groups, offsets, polling, cleaning, save, state.settings, push.reset, pop.forget_queue
        ),
    )


def _build_security(parts: AdminParts) -> tuple[UserHandlers, AclHandlers]:
    store = parts.state.security or make_security(parts.config.store.root, parts.cleaning.in_thread, parts.state.files)
    changes = SecurityChanges(store, parts.config.security, parts.cleaning)
    return UserHandlers(changes), AclHandlers(changes)


def _build_peer_answers(parts: AdminParts) -> tuple[SettingTables, OffsetTables, KeptTableHandlers, PeerHandlers]:
    state, replication, delivery = parts.state, parts.replication, parts.timer_delivery
    config = parts.config.replication
    kept = state.kept or keep_tables(parts.config.store.root, parts.clock.now_ms(), OS_FILES, is_slave=False)
    check = delivery and (lambda: kept.timer_check.check if config.is_slave else delivery.check)
    return (
        SettingTables(state.topics, state.groups, parts.clock.now_ms()),
        OffsetTables(state.offsets, state.delays),
        KeptTableHandlers(state.modes, kept, check),
        PeerHandlers(replication, state.store, parts.clock),
    )


def _build_offset_reports(parts: AdminParts) -> tuple[OffsetReports, OffsetCopies, QueueEntryReports]:
    state, name = parts.state, parts.config.broker_name
    save = state.saving.run_once
    return (
        OffsetReports(state.store, state.topics, state.offsets, name, parts.clock.now_ms),
        OffsetCopies(
            state.topics, state.groups, state.offsets, parts.members, parts.cleaning, save, parts.pop.forget_queue
        ),
        QueueEntryReports(state.store, parts.everybody, state.filters),
    )


def _build_member_questions(
    parts: AdminParts,
) -> tuple[MemberQuestions, DirectConsumption, GroupReports, GroupForbidding]:
    state, members, name = parts.state, parts.members, parts.config.broker_name
    calls = MemberCalls(members, parts.tasks, parts.guests)
    return (
        MemberQuestions(calls, members),
        DirectConsumption(calls, state.store, state.topics, state.groups, name),
        GroupReports(parts.everybody, state.offsets, parts.clock, parts.own_address),
        GroupForbidding(state.groups, parts.cleaning, state.saving.run_once),
    )
