"""Bodies of POP: acknowledgements of many messages, and which queues a member reads (spec pop.md §4.2, §11).

    200151  BatchAckBody          -
    400     AssignmentQuestion    AssignedQueues
    401     RequestModeBody       -

Names in acknowledgements are short, as the official client writes them; long ones are read as well.
"""

from typing import Annotated, Final, Literal

import msgspec

from ...common.java_json import Int32, Int64
from ...common.message import MessageQueue


class BatchAckEntry(msgspec.Struct, kw_only=True):
    """Messages of one lease; ``b`` is base64 of a little-endian bit set of their distances from ``so``."""

    c: str = ""
    t: str = ""
    r: str = ""
    so: Int64 = 0
    q: Int32 = 0
    rq: Int32 = 0
    pt: Int64 = 0
    it: Int64 = 0
    b: str = ""


MAX_BATCHES: Final = 1_024
"""Of acknowledgements in one request, each of one lease."""


class BatchAckBody(msgspec.Struct, rename="camel", kw_only=True):
    """What a consumer is done with at one broker."""

    broker_name: str | None = None
    acks: Annotated[list[BatchAckEntry], msgspec.Meta(max_length=MAX_BATCHES)] = msgspec.field(
        default_factory=list[BatchAckEntry]
    )


class AssignmentQuestion(msgspec.Struct, rename="camel", kw_only=True):
    """Who wants to know which queues of a topic it reads (``QueryAssignmentRequestBody``)."""

    topic: str
    consumer_group: str
    message_model: Literal["CLUSTERING", "BROADCASTING"]
    client_id: str | None = None
    strategy_name: str | None = None


class AssignedQueue(msgspec.Struct, rename="camel", kw_only=True):
    """One of them, and whether it is pulled or popped."""

    message_queue: MessageQueue
    mode: str


class AssignedQueues(msgspec.Struct, rename="camel", kw_only=True):
    """The answer; without a list members keep what they have."""

    message_queue_assignments: list[AssignedQueue] | None = None


class RequestModeBody(msgspec.Struct, rename="camel", kw_only=True):
    """How the members of a group shall get the messages of a topic (``SetMessageRequestModeRequestBody``)."""

    topic: str
    consumer_group: str
    mode: Literal["PULL", "POP"] | None = None
    pop_share_queue_num: Int32 = 0
