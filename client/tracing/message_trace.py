"""The message trace: what became of each message, as messages of a topic that tools read (Java's ``enableTrace``).

    hook        record                         of
    send        Pub                            each attempt that was answered; a batch as one
    consume     SubBefore, SubAfter            each message that a listener got
    transaction EndTransaction                 each commit and rollback

Records wait until there are ten, or for 5 s, and go out together, as a message whose keys are the ids and keys of those
that it tells of: ``mqadmin queryMsgTraceById`` finds them so. They never hold anything up: when too many wait, new ones
are dropped; when a send fails, it is logged. Messages whose broker says ``TRACE_ON=false`` are left out. Recalls are
not recorded, as in Java unless a system property asks for it.

Records are text, as Java's ``TraceDataEncoder`` writes and reads them:

    record            fields after its name, separated by U+0001; U+0002 ends it
    Pub               time region group topic id tags keys storeHost bodyLength costMs kind offsetId success
    SubBefore         time region group request id retries keys
    SubAfter          request id costMs success keys end time group
    EndTransaction    time region group topic id tags keys storeHost kind transactionId state fromCheck
    Recall            time region group topic id success

What there is none of is written ``null``, as Java does: its reader drops empty fields at the end of a record and then
misses them. Such a text is read as None. Older writers left out the last fields of Pub and SubAfter.
"""

import asyncio
import enum
import itertools
import logging
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from ...common.errors import ConfigError
from ...common.message import Message
from ...common.names import MAX_GROUP_CHARACTERS, TRACE_TOPIC
from ...common.properties import (
    DELAY,
    KEYS,
    MSG_REGION,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRACE_ON,
    TRANSACTION_PREPARED,
)
from ...remoting.transport.event_loop import TaskScope, repeat
from ..producer.producer import Producer
from ..session.hooks import ConsumeContext, EndTransactionContext, SendContext, SentMessage
from ..session.lifecycle import TimerEvent
from ..session.results import SendResult, SendStatus
from ..session.session import HookOwner
from ..session.settings import ProducerSettings

_log = logging.getLogger(__name__)

MAX_WAITING = 2048
MAX_MESSAGE_BYTES = 128_000
SEND_TIMEOUT_MS = 5_000
DEFAULT_REGION = "DefaultRegion"

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
NULL: Final = "null"


class TracedKind(enum.IntEnum):
    """What kind of message was sent (Java's ``MessageType``, whose ordinals travel)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_END = 2
    DELAY = 3
    ORDER = 4
    PRIORITY = 5


class _TraceHead(msgspec.Struct, frozen=True, array_like=True):
    """What records begin with."""

    time_ms: int
    region: str | None
    group: str


class PubRecord(_TraceHead, frozen=True, tag="Pub", array_like=True):
    """A message was sent, or a batch as one."""

    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_bytes: int
    took_ms: int
    kind: TracedKind
    offset_message_id: str | None = None
    has_succeeded: bool = True


class SubBeforeRecord(_TraceHead, frozen=True, tag="SubBefore", array_like=True):
    """A listener is called with a message; ``request_id`` tells which ``SubAfterRecord`` belongs to it."""

    request_id: str
    message_id: str
    retries: int
    keys: str | None = None


class SubAfterRecord(msgspec.Struct, frozen=True, tag="SubAfter", array_like=True):
    """The listener has ended; ``end`` is a ``ConsumeEnd``."""

    request_id: str
    message_id: str
    took_ms: int
    has_succeeded: bool
    keys: str | None = None
    end: int = 0
    time_ms: int = 0
    group: str | None = None


class EndTransactionRecord(_TraceHead, frozen=True, tag="EndTransaction", array_like=True):
    """The broker was told how a transaction ended."""

    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    kind: TracedKind
    transaction_id: str | None
    state: str
    is_from_check: bool = False


class RecallRecord(_TraceHead, frozen=True, tag="Recall", array_like=True):
    """A message was taken back before it was due."""

    topic: str
    message_id: str | None
    has_succeeded: bool


TraceRecord = PubRecord | SubBeforeRecord | SubAfterRecord | EndTransactionRecord | RecallRecord
_NAMES: Final = frozenset({"Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"})
_OLD_PUB_FIELDS: Final = 13


def encode_record(record: TraceRecord) -> str:
    """Return the text of a record."""
    return FIELD_END.join(map(_text_of, msgspec.to_builtins(record))) + RECORD_END


def keys_of(record: TraceRecord) -> list[str]:
    """Return the keys by which the record is to be found: those of the message, its id first."""
    ids = [] if record.message_id is None else record.message_id.split(",")
    return ids + ((getattr(record, "keys", None) or "").split())


def parse_records(text: str) -> Iterator[TraceRecord]:
    """Yield the records of a trace message; one that cannot be read is logged and left out."""
    for part in text.split(RECORD_END):
        fields = part.split(FIELD_END)
        if fields[0] not in _NAMES:
            continue
        if fields[0] == "Pub" and len(fields) == _OLD_PUB_FIELDS:
            fields.insert(-1, NULL)  # without the offset id
        values = [None if field == NULL else field for field in fields]
        try:
            yield msgspec.convert(values, TraceRecord, strict=False)
        except msgspec.ValidationError as error:
            _log.warning("a %s record of a trace cannot be read: %s", fields[0], error)


def _text_of(value: object) -> str:
    if value is None or value == "":
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_DELAYS = frozenset({DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS})
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """Traces the messages of every producer and consumer whose ``settings.hooks`` it is in.

    ProducerSettings(hooks=(MessageTrace(),))
    """

    topic: str = TRACE_TOPIC  # traceTopic; one of your own is not put into a namespace
    batch_records: int = 10  # traceMsgBatchNum
    flush_ms: int = 5_000

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 1 <= self.batch_records <= 20:
            raise ConfigError(f"batch_records is {self.batch_records}, allowed are 1 to 20", key="batch_records")
        if self.flush_ms < 1:
            raise ConfigError(f"flush_ms is {self.flush_ms}, it must be at least 1", key="flush_ms")

    def attach(self, owner: HookOwner) -> "AbstractAsyncContextManager[TraceHook]":
        """Return the hook of one producer or consumer, which sends what is left when it is left."""
        return _tracing(self, owner)


class TraceHook:
    """Makes the records of one producer or consumer."""

    def __init__(self, sender: "TraceSender") -> None:
        self._sender = sender

    def __repr__(self) -> str:
        return f"<TraceHook {self._sender!r}>"

    def before_send(self, context: SendContext) -> None:
        """Do nothing: a record tells of the result."""

    def after_send(self, context: SendContext) -> None:
        """Record a send that was answered."""
        result, first = context.result, context.messages[0]
        if result is None or not result.is_traced or first.topic == self._sender.topic:
            return
        is_batch = len(context.messages) > 1
        self._sender.add(
            PubRecord(
                time_ms=context.started_at_ms,
                region=result.region_id or DEFAULT_REGION,
                group=context.group,
                topic=first.topic,
                message_id=context.message_id,
                tags=None if is_batch else first.tags,
                keys=" ".join(filter(None, [each.keys for each in context.messages])) or None,
                store_host=context.address,
                body_bytes=sum(len(each.body) for each in context.messages),
                took_ms=context.ended_at_ms - context.started_at_ms,
                kind=_kind_of(first),
                offset_message_id=result.offset_message_id,
                has_succeeded=result.status is SendStatus.SEND_OK,
            )
        )

    def before_consume(self, context: ConsumeContext) -> None:
        """Record that a listener gets messages."""
        request_id = uuid.uuid4().hex.upper()
        context.notes[self] = request_id
        for message in context.messages:
            if message.properties.get(TRACE_ON) != "false":
                self._sender.add(
                    SubBeforeRecord(
                        time_ms=context.started_at_ms,
                        region=message.properties.get(MSG_REGION) or DEFAULT_REGION,
                        group=context.group,
                        request_id=request_id,
                        message_id=message.message_id,
                        retries=message.reconsume_times,
                        keys=message.properties.get(KEYS),
                    )
                )

    def after_consume(self, context: ConsumeContext) -> None:
        """Record how the listener ended."""
        took_ms = (context.ended_at_ms - context.started_at_ms) // len(context.messages)
        for message in context.messages:
            if message.properties.get(TRACE_ON) != "false":
                self._sender.add(
                    SubAfterRecord(
                        request_id=str(context.notes[self]),
                        message_id=message.message_id,
                        took_ms=took_ms,
                        has_succeeded=context.has_succeeded,
                        keys=message.properties.get(KEYS),
                        end=0 if context.end is None else context.end,
                        time_ms=context.ended_at_ms,
                        group=context.group,
                    )
                )

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Record how a transaction ended."""
        message = context.message
        self._sender.add(
            EndTransactionRecord(
                time_ms=context.ended_at_ms,
                region=message.properties.get(MSG_REGION) or DEFAULT_REGION,
                group=context.group,
                topic=message.topic,
                message_id=context.message_id,
                tags=message.tags,
                keys=" ".join([message.keys] if isinstance(message.keys, str) else message.keys) or None,
                store_host=context.address,
                kind=TracedKind.TRANSACTION_END,
                transaction_id=context.transaction_id,
                state=context.state,
                is_from_check=context.is_from_check,
            )
        )


class TraceSender:
    """Collects records and sends them."""

    def __init__(self, settings: MessageTrace, producer: Producer, timer_event: TimerEvent) -> None:
        self.topic = settings.topic
        self._settings = settings
        self._producer = producer
        self._timer_event = timer_event
        self._waiting: deque[TraceRecord] = deque()
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<TraceSender to {self.topic}, {len(self._waiting)} waiting, {self._dropped} dropped>"

    def add(self, record: TraceRecord) -> None:
        """Let a record wait to be sent."""
        if len(self._waiting) >= MAX_WAITING:
            if self._dropped == 0:
                _log.warning("%r: trace queue is full, dropping records above %d", self, MAX_WAITING)
            self._dropped += 1
            return
        self._waiting.append(record)
        if len(self._waiting) >= self._settings.batch_records:
            self._timer_event.wake()

    async def step(self) -> int:
        """Wait until there is enough to send, or for long enough, and send it: a job."""
        await self._timer_event.wait(self._settings.flush_ms)
        await self.flush()
        return 0

    async def flush(self) -> None:
        """Send all records that wait now."""
        outcomes = [self._producer.send_nowait(message) for message in self._take_messages()]
        for outcome in outcomes:
            outcome.add_done_callback(_note_failure)
        if outcomes:
            await asyncio.wait(outcomes)

    def _take_messages(self) -> list[Message]:
        messages: list[Message] = []
        while self._waiting:
            texts: list[bytes] = []
            keys: dict[str, None] = {}
            while self._waiting and len(texts) < self._settings.batch_records:
                text = encode_record(self._waiting[0]).encode()
                if texts and sum(map(len, texts)) + len(text) > MAX_MESSAGE_BYTES:
                    break
                texts.append(text)
                keys |= dict.fromkeys(keys_of(self._waiting.popleft()))
            messages.append(Message(self.topic, b"".join(texts), keys=tuple(keys)))
        return messages


@asynccontextmanager
async def _tracing(settings: MessageTrace, owner: HookOwner) -> AsyncGenerator[TraceHook]:
    session = owner.session
    session.namespace.leave_out(settings.topic)
    name = f"_INNER_TRACE_PRODUCER-{owner.group}-{owner.role.value}-{next(_numbers)}"
    own = ProducerSettings(send_timeout_ms=SEND_TIMEOUT_MS)
    async with Producer(name[-MAX_GROUP_CHARACTERS:], settings=own, session=session) as producer:
        sender = TraceSender(settings, producer, TimerEvent(session.clock))
        async with TaskScope() as tasks:
            tasks.start(repeat(sender.step, session.clock), name="message trace")
            yield TraceHook(sender)
        await sender.flush()


def _note_failure(outcome: asyncio.Future[SendResult]) -> None:
    if not outcome.cancelled() and outcome.exception() is not None:
        _log.warning("sending trace records failed, dropping them: %s", outcome.exception())


def _kind_of(message: SentMessage) -> TracedKind:
    if message.properties.get(TRANSACTION_PREPARED) == "true":
        return TracedKind.TRANSACTION_HALF
    return TracedKind.NORMAL if _DELAYS.isdisjoint(message.properties) else TracedKind.DELAY
