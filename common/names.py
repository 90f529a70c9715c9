"""Names of topics and groups: what is valid, what is reserved, what is derived (``TopicValidator``, ``Validators``).

The broker and the official client word the same refusals differently; both texts are kept, since tools show them.
A remark of ``None`` means that the name is valid.
"""

import re
from typing import Final

MAX_TOPIC_CHARACTERS: Final = 127
MAX_DERIVED_TOPIC_CHARACTERS: Final = 255
MAX_GROUP_CHARACTERS: Final = 120

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
REPLY_TOPIC_SUFFIX: Final = "REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_DISCARD_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
BROKER_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRACE_TOPIC,
        TRANSACTION_DISCARD_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
NOT_SENDABLE_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANSACTION_DISCARD_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    }
)
RESERVED_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
)

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

# permission bits of a topic (``PermName``)
PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_PRIORITY: Final = 8

_VALID: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_RULE: Final = "allowing only ^[%|a-zA-Z0-9_-]+$"


def retry_topic(group: str) -> str:
    """Return the topic of a group's messages that are to be consumed again."""
    return RETRY_PREFIX + group


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Return the topics of what POP consumers are to consume again: of RocketMQ from 5.2 on, and before."""
    return f"{RETRY_PREFIX}{group}+{topic}", f"{RETRY_PREFIX}{group}_{topic}"


def dlq_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic of a cluster's replies to requests."""
    return f"{cluster}_{REPLY_TOPIC_SUFFIX}"


def is_system_topic(topic: str) -> bool:
    """Tell whether the name is a system topic everywhere; a broker adds topics of its own and its cluster's name."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_sendable_topic(topic: str) -> bool:
    """Tell whether clients may send to the topic."""
    return topic not in NOT_SENDABLE_TOPICS


def is_system_group(group: str) -> bool:
    """Tell whether the name is a system consumer group (``MixAll.isSysConsumerGroup``)."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def broker_topic_remark(topic: str) -> str | None:
    """Return the broker's refusal of a topic name (``TopicValidator.validateTopic``)."""
    if _is_blank(topic):
        return "The specified topic is blank."
    if not _VALID.fullmatch(topic):
        return f"The specified topic: {topic}, contains illegal characters, {_RULE}"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > MAX_DERIVED_TOPIC_CHARACTERS:
            limit = f"longer than topic max length: {MAX_DERIVED_TOPIC_CHARACTERS}"
            return f"The specified topic is DLQ or Retry topic: {topic}, and it's {limit}"
    elif len(topic) > MAX_TOPIC_CHARACTERS:
        return f"The specified topic: {topic}, is longer than topic max length: {MAX_TOPIC_CHARACTERS}"
    return None


def broker_group_remark(group: str) -> str | None:
    """Return the broker's refusal of a group name (``TopicValidator.validateGroup``)."""
    if _is_blank(group):
        return "The specified group is blank."
    if not _VALID.fullmatch(group):
        return f"The specified group: {group}, contains illegal characters, {_RULE}"
    if len(group) > MAX_GROUP_CHARACTERS:
        return f"The specified group: {group}, is longer than group max length: {MAX_GROUP_CHARACTERS}"
    return None


def client_topic_remark(topic: str | None) -> str | None:
    """Return the client's refusal of a topic name (``Validators.checkTopic``)."""
    if topic is None or _is_blank(topic):
        return "The specified topic is blank"
    if len(topic) > MAX_TOPIC_CHARACTERS:
        return f"The specified topic is longer than topic max length {MAX_TOPIC_CHARACTERS}."
    if not _VALID.fullmatch(topic):
        return f"The specified topic[{topic}] contains illegal characters, {_RULE}"
    return None


def client_group_remark(group: str | None) -> str | None:
    """Return the client's refusal of a group name (``Validators.checkGroup``)."""
    if group is None or _is_blank(group):
        return "the specified group is blank"
    if len(group) > MAX_GROUP_CHARACTERS:
        return f"the specified group[{group}] is longer than group max length: {MAX_GROUP_CHARACTERS}."
    if not _VALID.fullmatch(group):
        return f"the specified group[{group}] contains illegal characters, {_RULE}"
    return None


def _is_blank(text: str) -> bool:
    return not text.strip()
