"""The asyncio client: producers and consumers.

    from rocketlet.client import Message, Producer, PushConsumer

What is listed in ``__all__`` is the public interface; the rest may change.
"""

from ..common.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueuePinnedToIp,
    AllocateMessageQueueStrategy,
    MetaqConsisHashStrategy,
    MetaqDefaultLoadBalanceStrategy,
)
from ..common.compression import CompressionKind
from ..common.errors import (
    ClientError,
    ClientStateError,
    ConfigError,
    ConnectFailedError,
    ConnectionClosedError,
    RemotingError,
    ReplyTimeoutError,
    RequestTimeoutError,
    ResponseError,
    RocketletError,
    RouteNotFoundError,
)
from ..common.message import Message, MessageQueue, ReceivedMessage
from .admin.admin import Admin
from .admin.admin_values import (
    BrokerNode,
    GroupConnection,
    GroupProgress,
    GroupSettings,
    QueueProgress,
    TopicSettings,
)
from .admin.member_inspection import DirectConsumption, MemberInfo, MemberQueue, Track
from .consumer.listeners import Listener
from .consumer.pull_consumer import PullConsumer
from .consumer.push_consumer import PushConsumer
from .group.queue_fetcher import PullResult, PullStatus
from .group.subscriptions import Sql
from .producer.outgoing_message import reply_to, split_batch
from .producer.producer import Producer
from .producer.queue_selection import SelectByMachineRoom, Selector, select_at_random, select_by_hash, select_by_key
from .producer.transactions import (
    TransactionFunctions,
    TransactionListener,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from .session.callbacks import HandoverCallback
from .session.hooks import (
    ConsumeContext,
    ConsumeEnd,
    ConsumeHook,
    EndTransactionContext,
    EndTransactionHook,
    FilterHook,
    ForbiddenHook,
    HookSource,
    PullContext,
    PullHook,
    Role,
    RpcHook,
    SendContext,
    SendHook,
    SentMessage,
)
from .session.results import ConsumeResult, Retry, SendResult, SendStatus
from .session.session import HookOwner, Session
from .session.settings import (
    ClientSettings,
    ConsumeFrom,
    Credentials,
    FlowLimits,
    ProducerSettings,
    PullConsumerSettings,
    PushConsumerSettings,
    Tls,
    TransactionProducerSettings,
)
from .tracing.message_trace import (
    EndTransactionRecord,
    MessageTrace,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TracedKind,
    TraceRecord,
    parse_records,
)
from .tracing.statistics import LastMinute, Statistics, Tally, TopicStatistics

__all__ = [
    "Admin",
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AllocateMessageQueuePinnedToIp",
    "AllocateMessageQueueStrategy",
    "BrokerNode",
    "ClientError",
    "ClientSettings",
    "ClientStateError",
    "CompressionKind",
    "ConfigError",
    "ConnectFailedError",
    "ConnectionClosedError",
    "ConsumeContext",
    "ConsumeEnd",
    "ConsumeFrom",
    "ConsumeHook",
    "ConsumeResult",
    "Credentials",
    "DirectConsumption",
    "EndTransactionContext",
    "EndTransactionHook",
    "EndTransactionRecord",
    "FilterHook",
    "FlowLimits",
    "ForbiddenHook",
    "GroupConnection",
    "GroupProgress",
    "GroupSettings",
    "HandoverCallback",
    "HookOwner",
    "HookSource",
    "LastMinute",
    "Listener",
    "MemberInfo",
    "MemberQueue",
    "Message",
    "MessageQueue",
    "MessageTrace",
    "MetaqConsisHashStrategy",
    "MetaqDefaultLoadBalanceStrategy",
    "Producer",
    "ProducerSettings",
    "PubRecord",
    "PullConsumer",
    "PullConsumerSettings",
    "PullContext",
    "PullHook",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerSettings",
    "QueueProgress",
    "RecallRecord",
    "ReceivedMessage",
    "RemotingError",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "ResponseError",
    "Retry",
    "RocketletError",
    "Role",
    "RouteNotFoundError",
    "RpcHook",
    "SelectByMachineRoom",
    "Selector",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "SentMessage",
    "Session",
    "Sql",
    "Statistics",
    "SubAfterRecord",
    "SubBeforeRecord",
    "Tally",
    "Tls",
    "TopicSettings",
    "TopicStatistics",
    "TraceRecord",
    "TracedKind",
    "Track",
    "TransactionFunctions",
    "TransactionListener",
    "TransactionProducer",
    "TransactionProducerSettings",
    "TransactionResult",
    "TransactionState",
    "parse_records",
    "reply_to",
    "select_at_random",
    "select_by_hash",
    "select_by_key",
    "split_batch",
]
