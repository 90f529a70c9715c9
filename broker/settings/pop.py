"""The settings of POP, by Java's keys (spec pop.md §15)."""

from typing import Annotated, Final

from msgspec import Struct

from ...common.errors import ConfigError
from ...common.settings import Key

_MODES: Final = ("PULL", "POP")


class PopConfig(Struct, frozen=True, kw_only=True):
    """How messages are handed out for a time; fields in the order of ``--print-config``."""

    keeps_leases: Annotated[
        bool,
        Key(
            "enablePopBufferMerge",
            "write what is handed out only if it is not acknowledged soon; false: at once, as Java's default is",
        ),
    ] = True
    joins_acks: Annotated[bool, Key("enablePopBatchAck", "write several acknowledgements as one record")] = False
    stay_ms: Annotated[int, Key("popCkStayBufferTime", "age at which it is written", least=1)] = 10_000
    hurry_ms: Annotated[int, Key("popCkStayBufferTimeOut", "or how long before its lease ends", least=1)] = 3_000
    most_kept: Annotated[int, Key("popCkMaxBufferSize", "how many leases are kept unwritten", least=0)] = 200_000
    most_kept_in_queue: Annotated[int, Key("popCkOffsetMaxQueueSize", "and of one queue and group", least=0)] = 20_000
    retry_percent: Annotated[
        int,
        Key("popFromRetryProbability", "share of requests that look at the retry topic first, in percent", most=100),
    ] = 20
    priority_retry_percent: Annotated[
        int,
        Key("popFromRetryProbabilityForPriority", "and of those that read a topic by priority", most=100),
    ] = 0
    reads_queues_downwards: Annotated[
        bool, Key("priorityOrderAsc", "look at queues from the highest to the lowest")
    ] = True
    writes_retry_v2: Annotated[
        bool, Key("enableRetryTopicV2", "retry in %RETRY%group+topic instead of %RETRY%group_topic")
    ] = False
    reads_retry_v1: Annotated[bool, Key("retrieveMessageFromPopRetryTopicV1", "then still read the other one, too")] = (
        True
    )
    names_retry_topic: Annotated[
        bool, Key("popResponseReturnActualRetryTopic", "hand out retried messages under the name of the retry topic")
    ] = False
    most_waiting_in_queue: Annotated[
        int, Key("popPollingSize", "requests of one group and queue that may wait", least=0)
    ] = 1_024
    most_waiting: Annotated[int, Key("maxPopPollingSize", "requests that may wait at all", least=0)] = 100_000
    unasked_every: Annotated[
        int,
        Key("popLongPollingForceNotifyInterval", "a message of so many wakes a request without its filter", least=1),
    ] = 800
    begins_with_queue_in_memory: Annotated[
        bool, Key("initPopOffsetByCheckMsgInMem", "a new group begins at the start of a queue that is in memory")
    ] = True
    limits_in_flight: Annotated[
        bool, Key("enablePopMessageThreshold", "hand out no more of a queue while too much is in flight")
    ] = False
    most_in_flight: Annotated[int, Key("popInflightMessageThreshold", "that is, more than so many", least=0)] = 10_000
    assigns_queues: Annotated[
        bool,
        Key(
            "serverLoadBalancerEnable",
            "share queues among members that ask the broker for theirs; false: each gets all",
        ),
    ] = True
    default_mode: Annotated[
        str,
        Key(
            "defaultMessageRequestMode",
            "PULL or POP: how members that ask the broker get messages unless said otherwise",
        ),
    ] = "PULL"
    default_share: Annotated[
        int, Key("defaultPopShareQueueNum", "how many other members' queues each reads then; 0 or less: all", least=-1)
    ] = -1

    def __post_init__(self) -> None:
        if self.default_mode not in _MODES:
            key = "defaultMessageRequestMode"
            raise ConfigError(f"{key} is {self.default_mode!r}, it can be {' or '.join(_MODES)}", key=key)


LIVE_POP_KEYS: Final = frozenset(
    [
        *("enablePopBufferMerge", "enablePopBatchAck", "popCkStayBufferTime", "popCkStayBufferTimeOut"),
        *("popCkMaxBufferSize", "popCkOffsetMaxQueueSize", "popFromRetryProbability", "priorityOrderAsc"),
        *("popFromRetryProbabilityForPriority", "enableRetryTopicV2", "retrieveMessageFromPopRetryTopicV1"),
        *("popResponseReturnActualRetryTopic", "popPollingSize", "maxPopPollingSize"),
        *("popLongPollingForceNotifyInterval", "initPopOffsetByCheckMsgInMem", "enablePopMessageThreshold"),
        *("popInflightMessageThreshold", "serverLoadBalancerEnable", "defaultMessageRequestMode"),
        "defaultPopShareQueueNum",
    ]
)
"""The settings that may become others while a broker runs: all, they are read where they are used."""
