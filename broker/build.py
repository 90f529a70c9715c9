"""Puts a broker's parts together: each is handed the few things that it uses."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..common.clock import Clock
from ..common.ids import UniqueIds
from ..common.names import retry_topic
from ..remoting.connection import Connection
from ..store.message_store import MessageStore
from .admin import AdminHandlers
from .announcing import Announce
from .clients import ClientHandlers
from .config import BrokerConfig
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
from .send import Sender
from .sendanswers import SendAnswers
from .sendback import SendBackHandler
from .sendgate import SendGate
from .stamp import PropertyStamp
from .topics import TopicTable


@dataclass(frozen=True, slots=True)
class Foundation:
    """What is there before the parts: settings, time, store, tables, and who makes topics known."""

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    waiters: PullWaiters
    answers: SendAnswers
    announce: Announce


def build_parts(base: Foundation, own_address: bytes) -> BrokerParts:
    """Return who answers requests; ``own_address`` stands in the unique keys that the broker makes."""
    config, now_ms = base.config, base.clock.now_ms
    members, locks = Members[Connection](), QueueLocks()
    news = MemberNews(base.groups, is_on=config.notifies_members)
    return BrokerParts(
        sender=_build_sender(base, locks, UniqueIds(own_address, os.getpid(), now_ms)),
        puller=Puller(
            base.store,
            PullGate(config, base.topics, base.groups, members),
            base.offsets,
            base.waiters,
            short_polling_ms=None if config.is_long_polling_enabled else config.short_polling_ms,
        ),
        progress=ProgressHandlers(base.store, base.offsets, base.topics, base.groups),
        queries=QueryHandlers(base.store, unique_key_count=config.default_query_count),
        clients=ClientHandlers(members, news, partial(open_group, base.groups, base.topics), base.announce, now_ms),
        locks=LockHandlers(locks, now_ms),
        send_back=SendBackHandler(base.clock),
        admin=AdminHandlers(base.topics, base.groups, base.announce),
    )


def _build_sender(base: Foundation, locks: QueueLocks, keys: UniqueIds) -> Sender:
    config = base.config
    gate = SendGate(config, base.topics, base.groups, locks, base.clock.now_ms)
    trace = "true" if config.is_trace_on else "false"
    stamp = PropertyStamp(config.region_id, trace, config.cluster_name, keys.next_id)
    return Sender(base.store, gate, stamp, base.answers, base.announce)


def open_group(groups: GroupTable, topics: TopicTable, name: str) -> Sequence[str] | None:
    """Find or create a group with its retry topic; return the topics that are new, None if it may not be created."""
    group = groups.find(name)
    if group is None:
        return None
    topic, is_new = topics.ensure(retry_topic(name), group.retry_queue_nums)
    return (topic.topic_name,) if is_new else ()
