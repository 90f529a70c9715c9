"""Puts a broker's parts together: each is handed the few things that it uses."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from ..common.clock import Clock
from ..common.ids import UniqueIds, decode_host, format_address
from ..common.names import retry_topic
from ..common.properties import CLUSTER
from ..remoting.bodies.client import ConsumerData
from ..remoting.headers.send import SendReplies
from ..remoting.transport.connection import Connection
from ..remoting.transport.event_loop import TaskScope
from ..store.message_store import MessageStore
from .admin.cleaning import CleaningJob
from .admin.handlers import AdminHandlers, CleaningHandlers, RuntimeInfoHandlers
from .admin.runtime_info import RuntimeInfo
from .delay.delayed_messages import DelayRouting
from .group.filters import FilterSelection, FilterTable
from .group.groups import GroupTable, OffsetTable
from .group.handlers import ClientHandlers, LockHandlers, MemberNotifier, ProgressHandlers
from .group.members import Members
from .group.queue_locks import QueueLocks
from .handlers import BrokerParts
from .outcomes.scheduler import MakeKnown, Scheduler
from .pull.fetch import FetchOperation, FetchValidator
from .pull.handlers import PullHandlers, QueryHandlers
from .pull.long_polling import LongPolling
from .send.handlers import ReplyPusher, SendHandlers
from .send.recall import RecallOperation
from .send.replies import ReplyOperation
from .send.send import UNIT_SUBSCRIPTION, PropertyEnricher, SendOperations, SendValidator
from .send.send_back import SendBackOperation
from .settings.config import BrokerConfig
from .settings.refusal import OwnBroker
from .topic.topics import TopicTable, boot_topics
from .transaction.check_jobs import CheckJob, CheckTiming, CursorSaveJob, keep_given_up
from .transaction.checks import CheckRules, GiveUp, TransactionChecks
from .transaction.end_transaction import EndTransaction, ResumeCheck
from .transaction.handlers import TransactionCheckSender, TransactionHandlers
from .transaction.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Foundation:
    """What is there before the parts: settings, time, store, tables, and who makes topics known."""

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: FilterTable
    long_polling: LongPolling
    scheduler: Scheduler
    make_known: MakeKnown
    cleaning: CleaningJob
    routing: DelayRouting
    runtime: RuntimeInfo
    tasks: TaskScope
    transactions: Transactions
    members: Members[Connection]


def build_parts(base: Foundation, own_address: bytes) -> BrokerParts:
    """Return who answers requests; ``own_address`` stands in the unique keys that the broker makes."""
    config, now_ms, monotonic_ms = base.config, base.clock.now_ms, base.clock.monotonic_ms
    members, locks = base.members, QueueLocks()
    news = MemberNotifier(base.groups, base.filters, is_on=config.notifies_members)
    filters = FilterSelection(config, base.filters)
    own_topics = frozenset(topic.topic_name for topic in boot_topics(config))
    own = OwnBroker(config, decode_host(own_address + bytes(4))[0])
    return BrokerParts(
        sends=_build_sends(base, locks, UniqueIds(own_address, os.getpid(), now_ms), own),
        pulls=PullHandlers(
            FetchOperation(
                base.store.read,
                FetchValidator(own, base.topics, base.groups, members, filters),
                base.offsets,
                base.long_polling,
                counts=base.runtime.statistics.reads,
                monotonic_ms=monotonic_ms,
                short_polling_ms=None if config.is_long_polling_enabled else config.short_polling_ms,
            ),
            own,
        ),
        progress=ProgressHandlers(base.store, base.offsets, base.topics, base.groups, members),
        queries=QueryHandlers(base.store, unique_key_count=config.default_query_count),
        clients=ClientHandlers(
            members, news, filters, partial(open_group, base.groups, base.topics), base.make_known, monotonic_ms
        ),
        locks=LockHandlers(locks, monotonic_ms),
        transactions=TransactionHandlers(
            EndTransaction(base.transactions, _check_rules(config), base.routing, base.scheduler, now_ms),
            ResumeCheck(base.scheduler),
        ),
        cleaning=CleaningHandlers(base.cleaning, base.topics, own_topics),
        runtime=RuntimeInfoHandlers(base.runtime, base.cleaning),
        admin=AdminHandlers(base.topics, base.groups, base.make_known, base.store.set_batch_topic, own_topics),
    )


def build_checks(
    base: Foundation, commit: Callable[[], None], give_up: GiveUp | None
) -> tuple[CheckJob, CursorSaveJob]:
    """Return who checks open transactions and who saves how far; unless told otherwise, those given up are kept."""
    config, store, transactions = base.config, base.store, base.transactions
    keep = give_up or keep_given_up(base.topics)
    checks = TransactionChecks(store, commit, transactions, _check_rules(config), keep)
    check_back = TransactionCheckSender(base.members, config.broker_name)
    timing = CheckTiming(base.clock, config.check_period_ms)
    job = CheckJob(store, transactions, checks, check_back, timing)
    return job, CursorSaveJob(store, transactions, config.flush_offsets_ms)


def _check_rules(config: BrokerConfig) -> CheckRules:
    return CheckRules(config.transaction_timeout_ms, config.most_checks, config.store.cleaning.reserved_ms)


def _build_sends(base: Foundation, locks: QueueLocks, keys: UniqueIds, own: OwnBroker) -> SendHandlers:
    config, store, scheduler, routing = base.config, base.store, base.scheduler, base.routing
    validator = SendValidator(own, base.topics, base.groups, locks, base.clock.monotonic_ms)
    answers = SendReplies(config.region_id, traces=config.is_trace_on)
    fields = answers.fields()
    sends = SendOperations(
        scheduler,
        validator,
        PropertyEnricher({**fields, CLUSTER: config.cluster_name}, keys.next_id),
        routing,
        broker_name=config.broker_name,
        max_message_bytes=store.config.max_message_bytes,
        refuses_transactions=own.forbids("sending transaction message") if config.refuses_transactions else None,
    )
    send_backs = SendBackOperation(own, base.groups, base.topics, routing, scheduler)
    pusher = ReplyPusher(base.members, lambda: format_address(*decode_host(store.store_host)), base.clock.now_ms)
    replies = ReplyOperation(
        validator, pusher.prepare, routing, scheduler, base.tasks, is_stored=config.stores_replies, fields=fields
    )
    recalls = RecallOperation(config, base.topics, routing, scheduler, base.clock.now_ms)
    return SendHandlers(sends, send_backs, replies, recalls, answers)


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
