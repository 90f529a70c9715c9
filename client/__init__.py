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
    AllocateMessageQueueStrategy,
)
from ..common.message import Message, MessageQueue, ReceivedMessage
from .listening import Listener
from .outgoing import split_batch
from .process_queue import FlowLimits
from .producer import Producer
from .pull_consumer import PullConsumer
from .push_consumer import PushConsumer
from .results import ConsumeFrom, ConsumeResult, SendResult, SendStatus
from .selection import Selector, select_at_random, select_by_hash
from .session import Session
from .settings import ClientSettings, ProducerSettings, PullConsumerSettings, PushConsumerSettings

__all__ = [
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AllocateMessageQueueStrategy",
    "ClientSettings",
    "ConsumeFrom",
    "ConsumeResult",
    "FlowLimits",
    "Listener",
    "Message",
    "MessageQueue",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullConsumerSettings",
    "PushConsumer",
    "PushConsumerSettings",
    "ReceivedMessage",
    "Selector",
    "SendResult",
    "SendStatus",
    "Session",
    "select_at_random",
    "select_by_hash",
    "split_batch",
]
