"""What the control port answers, in JSON."""

import enum
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from ...client import SendResult
from ...common.message import ReceivedMessage
from ...testing.broker_clock import BrokerClock
from ...testing.views.client_requests import ClientRequest
from ...testing.views.inspection import GroupLag, OpenTransaction


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing came of a request."""

    error: str


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """What is controlled, and where clients find it."""

    name: Annotated[str, Meta(description="The name of the broker")]
    nameserver: str
    broker: str
    grpc: Annotated[str, Meta(description="Where clients of RocketMQ 5 connect")]
    version: Annotated[str, Meta(description="That of rocketlet")]


class BegunTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that has begun."""

    name: str
    left_behind: Annotated[list[str], Meta(description="What was wrong with a test before that nobody has ended")]


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What was made."""

    name: str


class SentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is that was sent."""

    status: Annotated[str, Meta(description="SEND_OK, or what the broker could not wait for")]
    message_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int

    @classmethod
    def of(cls, result: SendResult) -> Self:
        """Return it as it is said."""
        topic, broker, queue_id = result.queue
        return cls(
            status=result.status.name,
            message_id=result.message_id,
            topic=topic,
            broker=broker,
            queue_id=queue_id,
            queue_offset=result.queue_offset,
        )


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is stored."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    body: Annotated[str | None, Meta(description="As text; null where it is not UTF-8")]
    body_base64: bytes
    tags: str | None
    keys: list[str]
    properties: dict[str, str]
    born_at_ms: int
    stored_at_ms: int
    reconsume_times: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> Self:
        """Return it as it is said."""
        return cls(
            topic=message.topic,
            queue_id=message.queue.queue_id,
            queue_offset=message.queue_offset,
            message_id=message.message_id,
            body=_text_of(message.body),
            body_base64=message.body,
            tags=message.tags,
            keys=[*message.keys],
            properties=message.properties,
            born_at_ms=message.born_at_ms,
            stored_at_ms=message.stored_at_ms,
            reconsume_times=message.reconsume_times,
        )


def _text_of(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of a queue a consumer group is not done with."""

    topic: str
    queue_id: int
    messages: int


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages a consumer group is not done with, in queues where there are any."""

    total: int
    queues: list[QueueLag]

    @classmethod
    def of(cls, lag: GroupLag) -> Self:
        """Return it as it is said."""
        queues = [
            QueueLag(topic=queue.topic, queue_id=queue.queue_id, messages=count) for queue, count in lag.queues.items()
        ]
        return cls(total=lag.total, queues=queues)


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that nobody has decided about."""

    message: StoredMessage
    producer_group: str
    check_count: int

    @classmethod
    def of(cls, transaction: OpenTransaction) -> Self:
        """Return it as it is said."""
        message = StoredMessage.of(transaction.message)
        return cls(message=message, producer_group=transaction.producer_group, check_count=transaction.check_count)


class SeenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has asked, and what came of it."""

    operation: str
    code: int
    server: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    client: str | None
    peer: str
    fields: Annotated[dict[str, str], Meta(description="Those of its header")]
    body_base64: bytes
    at_ms: int
    state: Annotated[str, Meta(description="answered, one-way, no answer yet, dropped, answer lost, …")]
    answer: Annotated[int | None, Meta(description="The response code; to a client of RocketMQ 5 that of its protocol")]
    answer_name: str | None
    remark: str | None

    @classmethod
    def of(cls, request: ClientRequest) -> Self:
        """Return it as it is said."""
        answer = request.answer
        return cls(
            operation=request.operation,
            code=request.code,
            server=request.server,
            topics=request.topics,
            groups=request.groups,
            client=request.client,
            peer=request.peer,
            fields=dict(request.fields),
            body_base64=request.body,
            at_ms=request.at_ms,
            state=request.state,
            answer=None if answer is None else int(answer),
            answer_name=answer.name if isinstance(answer, enum.IntEnum) else None,
            remark=request.remark,
        )


class SeenRequests(msgspec.Struct, frozen=True, kw_only=True):
    """What clients have asked since the test began; of very many, older ones are forgotten."""

    requests: list[SeenRequest]
    forgotten: int


class ClockState(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker's clock shows."""

    now: Annotated[str, Meta(description="In UTC, as ISO 8601 has it")]
    now_ms: int
    is_frozen: bool

    @classmethod
    def of(cls, clock: BrokerClock) -> Self:
        """Return it as it is said."""
        now = clock.now()
        return cls(
            now=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            now_ms=round(now.timestamp() * 1_000),
            is_frozen=clock.is_frozen,
        )


class FaultState(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was added."""

    id: int
    fault: Annotated[str, Meta(description="The fault in words")]
    hits: Annotated[int, Meta(description="How often it was met")]
    optional: bool


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A client that is cut off."""

    id: int
    client: str
