"""Which properties of a stored message go with it when it is sent again, to the same or another cluster.

carried      those of the application, UNIQ_KEY, the sharding key, and where a retried message came from
as fields    TAGS, KEYS
not carried  what servers and clients write for themselves: a copy that kept it would be taken for a transaction's
half, a reply, a message that is popped or due later
"""

from collections.abc import Mapping
from typing import Final

from . import properties as names
from .message import Message, split_keys

NOT_CARRIED: Final = frozenset(
    {
        names.WAIT,
        names.DELAY,
        names.INSTANCE_ID,
        names.START_DELIVER_TIME,
        names.BUYER_ID,
        names.TIMER_DELAY_SEC,
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
        names.TIMER_OUT_MS,
        names.TIMER_ENQUEUE_MS,
        names.TIMER_DEQUEUE_MS,
        names.TIMER_ROLL_TIMES,
        names.TIMER_DEL_UNIQKEY,
        names.TIMER_DELAY_LEVEL,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.RETRY_TOPIC,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.CONSUME_START_TIME,
        names.TRANSACTION_PREPARED,
        names.PRODUCER_GROUP,
        names.TRANSACTION_ID,
        names.CHECK_IMMUNITY_TIME,
        names.TRANSACTION_CHECK_TIMES,
        names.TRANSACTION_PREPARED_QUEUE_OFFSET,
        names.MSG_REGION,
        names.TRACE_ON,
        names.CLUSTER,
        names.BORN_HOST,
        names.BORN_TIMESTAMP,
        names.CRC32,
        names.CORRELATION_ID,
        names.REPLY_TO_CLIENT,
        names.TTL,
        names.MSG_TYPE,
        names.ARRIVE_TIME,
        names.PUSH_REPLY_TIME,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.POP_CK,
        names.POP_CK_OFFSET,
        names.FIRST_POP_TIME,
        names.INNER_MULTI_DISPATCH,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.INNER_NUM,
        names.INNER_BASE,
    }
)
_FIELDS: Final = frozenset({names.TAGS, names.KEYS})


def carried(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that go with a message, without those that are fields of it."""
    return {name: value for name, value in properties.items() if name not in NOT_CARRIED and name not in _FIELDS}


def replayed(topic: str, body: bytes, properties: Mapping[str, str], flag: int = 0) -> Message:
    """Return a stored message as one to send."""
    keys = split_keys(properties.get(names.KEYS))
    return Message(topic, body, tags=properties.get(names.TAGS), keys=keys, properties=carried(properties), flag=flag)
