"""Puts a broker's parts together: each is handed the few things that it uses."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from ..common.clock import Clock
from ..common.ids import UniqueIds, decode_host
from ..common.names import retry_topic
from ..remoting.bodies_client import ConsumerData
from ..remoting.connection import Connection
from ..store.message_store import MessageStore
from .admin import AdminHandlers
from .announcing import Announce
from .cleaning import CleaningHandlers, CleaningJob
from .clients import ClientHandlers
from .config import BrokerConfig
from .deadletters import UNIT_SUBSCRIPTION
from .filtergate import FilterGate
from .filtertable import FilterTable
from .groupcommit import GroupCommit
from .groups import GroupTable
from .handlers import BrokerParts
from .hold import PullWaiters
from .locks import QueueLocks
from .membernews import MemberNews
from .members import Members
from .offsets import OffsetTable
from .ordering import LockHandlers
from .progress import ProgressHandlers
from .pull import Puller
from .pullgate import PullGate
from .queries import QueryHandlers
from .send import Paying, Sender
from .sendanswers import SendAnswers
from .sendback import SendBackGate, SendBackHandler
from .sendgate import SendGate
from .stamp import PropertyStamp
from .topics import TopicTable, boot_topics


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
    waiters: PullWaiters
    answers: SendAnswers
    announce: Announce
    cleaning: CleaningJob
    group: GroupCommit | None


def build_parts(base: Foundation, own_address: bytes) -> BrokerParts:
    """Return who answers requests; ``own_address`` stands in the unique keys that the broker makes."""
    config, now_ms = base.config, base.clock.now_ms
    members, locks = Members[Connection](), QueueLocks()
    news = MemberNews(base.groups, base.filters, is_on=config.notifies_members)
    filters = FilterGate(config, base.filters)
    return BrokerParts(
        sender=_build_sender(base, locks, UniqueIds(own_address, os.getpid(), now_ms)),
        puller=Puller(
            base.store,
            PullGate(config, base.topics, base.groups, members, filters),
            base.offsets,
            base.waiters,
            short_polling_ms=None if config.is_long_polling_enabled else config.short_polling_ms,
        ),
        progress=ProgressHandlers(base.store, base.offsets, base.topics, base.groups),
        queries=QueryHandlers(base.store, unique_key_count=config.default_query_count),
        clients=ClientHandlers(members, news, partial(open_group, base.groups, base.topics), base.announce, now_ms),
        filters=filters,
        locks=LockHandlers(locks, now_ms),
        send_back=_build_send_back(base, own_address),
        cleaning=CleaningHandlers(
            base.cleaning, base.topics, frozenset(topic.topic_name for topic in boot_topics(config))
        ),
        admin=AdminHandlers(base.topics, base.groups, base.announce, base.store.set_batch_topic),
    )


def _build_sender(base: Foundation, locks: QueueLocks, keys: UniqueIds) -> Sender:
    config = base.config
    gate = SendGate(config, base.topics, base.groups, locks, base.clock.now_ms)
    trace = "true" if config.is_trace_on else "false"
    stamp = PropertyStamp(config.region_id, trace, config.cluster_name, keys.next_id)
    return Sender(base.store, gate, stamp, base.answers, Paying(base.announce, base.group))


def _build_send_back(base: Foundation, own_address: bytes) -> SendBackHandler:
    own_ip, _ = decode_host(own_address + bytes(4))
    gate = SendBackGate(own_ip, base.config.permission, base.groups, base.topics)
    return SendBackHandler(base.store, gate, Paying(base.announce, base.group))


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
