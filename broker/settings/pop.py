"""The settings of POP, by Java's keys (spec pop.md §15)."""

from typing import Annotated

from msgspec import Struct

from ...common.settings import Key


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
