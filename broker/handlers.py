"""What a broker answers: request codes and who answers them (spec remoting.md §3).

A code that is missing here is answered 3, " request type <n> not supported".
"""

from typing import NamedTuple

from ..remoting.codec.codes import RequestCode as Code
from ..remoting.transport.connection import Handler
from .admin.handlers import AdminHandlers, CleaningHandlers, RuntimeInfoHandlers
from .group.handlers import ClientHandlers, LockHandlers, ProgressHandlers
from .pull.handlers import PullHandlers, QueryHandlers
from .send.handlers import SendHandlers
from .transaction.handlers import TransactionHandlers


class BrokerParts(NamedTuple):
    """Those who answer."""

    sends: SendHandlers
    pulls: PullHandlers
    progress: ProgressHandlers
    queries: QueryHandlers
    clients: ClientHandlers
    locks: LockHandlers
    transactions: TransactionHandlers
    admin: AdminHandlers
    cleaning: CleaningHandlers
    runtime: RuntimeInfoHandlers


def broker_handlers(parts: BrokerParts) -> dict[int, Handler]:
    """Return the handler of each request code."""
    return {
        # messages in
        Code.SEND_MESSAGE: parts.sends.send,
        Code.SEND_MESSAGE_V2: parts.sends.send,
        Code.SEND_BATCH_MESSAGE: parts.sends.send,
        Code.CONSUMER_SEND_MSG_BACK: parts.sends.send_back,
        Code.END_TRANSACTION: parts.transactions.end,
        Code.RESUME_CHECK_HALF_MESSAGE: parts.transactions.resume,
        Code.RECALL_MESSAGE: parts.sends.recall,
        Code.SEND_REPLY_MESSAGE: parts.sends.reply,
        Code.SEND_REPLY_MESSAGE_V2: parts.sends.reply,
        # messages out
        Code.PULL_MESSAGE: parts.pulls.pull,
        Code.LITE_PULL_MESSAGE: parts.pulls.lite_pull,
        Code.QUERY_MESSAGE: parts.queries.query,
        Code.VIEW_MESSAGE_BY_ID: parts.queries.view,
        # offsets
        Code.QUERY_CONSUMER_OFFSET: parts.progress.find_committed,
        Code.UPDATE_CONSUMER_OFFSET: parts.progress.commit,
        Code.SEARCH_OFFSET_BY_TIMESTAMP: parts.progress.find_by_time,
        Code.GET_MAX_OFFSET: parts.progress.find_max,
        Code.GET_MIN_OFFSET: parts.progress.find_min,
        Code.GET_EARLIEST_MSG_STORETIME: parts.progress.find_first_time,
        # clients
        Code.HEART_BEAT: parts.clients.heartbeat,
        Code.UNREGISTER_CLIENT: parts.clients.unregister,
        Code.GET_CONSUMER_LIST_BY_GROUP: parts.clients.list_consumers,
        Code.CHECK_CLIENT_CONFIG: parts.clients.check_client,
        Code.LOCK_BATCH_MQ: parts.locks.lock,
        Code.UNLOCK_BATCH_MQ: parts.locks.unlock,
        # topics and groups
        Code.UPDATE_AND_CREATE_TOPIC: parts.admin.put_topic,
        Code.GET_TOPIC_CONFIG: parts.admin.get_topic,
        Code.GET_ALL_TOPIC_CONFIG: parts.admin.list_topics,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: parts.admin.put_group,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: parts.admin.get_group,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: parts.admin.list_groups,
        # how it is doing
        Code.GET_BROKER_RUNTIME_INFO: parts.runtime.answer,
        # files
        Code.CLEAN_EXPIRED_CONSUMEQUEUE: parts.cleaning.clean_expired_queues,
        Code.CLEAN_UNUSED_TOPIC: parts.cleaning.clean_unused_topics,
        Code.DELETE_EXPIRED_COMMITLOG: parts.cleaning.delete_expired_log,
    }
