"""SEND_MESSAGE and RECALL_MESSAGE (``SendMessageActivity``, ``RecallMessageActivity``).

Rules

    1. All messages of a request go to one topic, and each is checked before the first is stored. They are stored one
       by one, and each has its entry in the answer. (Upstream stores several as a batch and answers one entry.)
    2. The topic must take messages of this kind: MIXED takes all, one without an attribute those that are NORMAL. One
       that does not exist takes none.
    3. The queue is the server's choice: that of its group for a message that has one, else the next; a priority has
       its queue in any case (``broker/send/send.py``). The group's is found as upstream's proxy finds it, so that a
       group keeps its queue whichever of them its messages pass.
    4. An answer that comes late, or copies that are missing, are failures to a client, which sends again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from ...broker.operations import BrokerOperations
from ...broker.send.send import Sender, SendReceipt, Sent
from ...broker.settings.refusal import Refusal
from ...common.codes import VERSION
from ...common.errors import BusyError, StoreError
from ...common.metadata import TopicConfig
from ...common.names import DLQ_PREFIX, PERM_WRITE, RETRY_PREFIX
from ...common.outcome import Outcome
from ...common.properties import SHARDING_KEY, format_properties, java_hash
from ...store.consumequeue.appended import Appended
from ..http2.compiled import codecs
from ..messages import v2
from ..messages.brief import encode_sent
from ..messages.enums import Code, MessageType
from ..messages.names import is_usable_topic, topic_fault
from ..messages.publishing import MAX_PROPERTY_BYTES, PlainMessage, Publication, PublishRules, publish
from ..messages.statuses import OK, common_status, refused, status
from ..rpc.call import Call
from .calling import Caller, answer, caller_of, unary, when_all, when_settled
from .clients import ClientRegistry
from .routes import AUTO_CREATED_TYPE, topic_type
from .transactions import TransactionIds

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_PLAIN_TYPES: Final = frozenset({AUTO_CREATED_TYPE, MessageType.NORMAL.name})
_MASK: Final = (1 << 64) - 1


class GrpcSend(msgspec.Struct, gc=False):
    """A message without its body, in the words of the broker's operation."""

    topic: str
    queue_id: int
    born_at_ms: int
    properties: str | None
    reconsume_times: int | None
    sys_flag: int = 0
    flag: int = 0
    default_topic: str = ""
    default_topic_queue_nums: int = 0
    max_reconsume_times: int | None = None


class GrpcRecall(msgspec.Struct):
    """A recall, in the words of the broker's operation."""

    topic: str
    recall_handle: str
    producer_group: str | None


class SendService:
    """Takes messages of producers, and takes them back."""

    def __init__(self, operations: BrokerOperations, clients: ClientRegistry, transactions: TransactionIds) -> None:
        self._operations = operations
        self._clients = clients
        self._transactions = transactions
        self._rules = PublishRules(operations.store.config.max_message_bytes, operations.clock.now_ms)
        self._next_queue = 0
        self._serve = unary(v2.SendMessageRequest, v2.SendMessageResponse, self.send).serve

    def serve(self, data: bytes, call: Call) -> None:
        """Answer a request to send."""
        plain = None if codecs is None else codecs.read_send(data)
        if plain is None or not self._send_plain(PlainMessage(*plain), call):
            self._serve(data, call)

    def _send_plain(self, message: PlainMessage, call: Call) -> bool:
        """Store one common message; False when something about it asks for the way of all others."""
        name, body = message.topic, message.body
        caller, topic = caller_of(call), self._operations.topics.get(name)
        if not caller.client_id or topic is None or not is_usable_topic(name) or not message.is_common:
            return False
        if not topic.perm & PERM_WRITE or topic.write_queue_nums <= 0 or topic_type(topic) not in _PLAIN_TYPES:
            return False
        text = message.property_text
        if not 0 < len(body) <= self._rules.max_body_bytes or len(text) > MAX_PROPERTY_BYTES:
            return False
        self._next_queue += 1
        send = GrpcSend(name, self._next_queue % topic.write_queue_nums, message.born_at_ms, text, 0)
        self._hear(caller, name)
        sender = Sender(caller.address, VERSION, waits=True)
        outcome = self._operations.sends.send(send, body, sender, message.properties)
        if outcome.is_settled:
            self._answer_plain(call, message, outcome)
        else:
            outcome.on_settled = partial(self._answer_plain, call, message)
        return True

    def _answer_plain(self, call: Call, message: PlainMessage, outcome: Outcome[Sent]) -> None:
        if (
            type(outcome.answer) is Appended
            and outcome.failure is None
            and not (outcome.is_late or outcome.lacks_replicas)
        ):
            call.answer(encode_sent(message.message_id, outcome.answer.queue_offset))
            return
        publication = Publication(
            message.topic, message.body, {}, message.born_at_ms, MessageType.NORMAL, message.message_id, 0
        )
        self._answer(call, (publication,), (outcome,))

    def _hear(self, caller: Caller, topic_name: str) -> None:
        client = self._clients.hear(caller)
        if topic_name not in client.topics:
            self._clients.produces(client, topic_name)

    def send(self, request: v2.SendMessageRequest, caller: Caller, call: Call) -> v2.SendMessageResponse | None:
        """Store messages."""
        checked = self._check(request, caller)
        if isinstance(checked, v2.Status):
            return v2.SendMessageResponse(status=checked)
        topic, publications = checked
        self._hear(caller, topic.topic_name)
        sender = Sender(caller.address, VERSION, waits=True)
        outcomes = [self._store(topic, publication, sender) for publication in publications]
        when_all(outcomes, partial(self._answer, call, publications, outcomes))
        return None

    def _store(self, topic: TopicConfig, publication: Publication, sender: Sender) -> Outcome[Sent]:
        message = GrpcSend(
            publication.topic,
            self._queue(topic, publication),
            publication.born_at_ms,
            format_properties(publication.properties),
            publication.reconsume_times,
        )
        return self._operations.sends.send(message, publication.body, sender)

    def _answer(self, call: Call, publications: Sequence[Publication], outcomes: Sequence[Outcome[Sent]]) -> None:
        entries = [self._entry(publication, sent) for publication, sent in zip(publications, outcomes, strict=True)]
        told = common_status(entry.status for entry in entries)
        if len(entries) == 1 and told.code != Code.OK:
            told = entries[0].status
        answer(call, v2.SendMessageResponse(status=told, entries=entries))

    def recall(self, request: v2.RecallMessageRequest, caller: Caller, call: Call) -> v2.RecallMessageResponse | None:
        """Keep a message from being delivered."""
        fault = topic_fault(request.topic)
        name = request.topic.name
        if fault is None:
            fault = _type_fault(self._operations.topics.get(name), name, MessageType.DELAY)
        if fault is not None:
            return v2.RecallMessageResponse(status=fault)
        outcome = self._operations.recalls.recall(GrpcRecall(name, request.recall_handle, name), caller.address)

        def settle(outcome: Outcome[str | Refusal]) -> None:
            done = outcome.answer
            if outcome.failure is not None:
                made = v2.RecallMessageResponse(status=failed(outcome.failure))
            elif isinstance(done, Refusal):
                made = v2.RecallMessageResponse(status=refused(done))
            else:
                made = v2.RecallMessageResponse(status=status(Code.OK), message_id=done)
            answer(call, made)

        when_settled(outcome, settle)
        return None

    def _check(
        self, request: v2.SendMessageRequest, caller: Caller
    ) -> tuple[TopicConfig, list[Publication]] | v2.Status:
        if not request.messages:
            return status(Code.MESSAGE_CORRUPTED, "no message to send")
        first = request.messages[0].topic
        fault = topic_fault(first)
        if fault is not None:
            return fault
        publications: list[Publication] = []
        for message in request.messages:
            if message.topic != first:
                return status(Code.MESSAGE_CORRUPTED, "topic in message is not same")
            publication = publish(message, caller.host, self._rules)
            if isinstance(publication, v2.Status):
                return publication
            publications.append(publication)
        topic = self._operations.topics.get(first.name)
        for publication in publications:
            if (fault := _type_fault(topic, first.name, publication.kind)) is not None:
                return fault
        if topic is None or not topic.perm & PERM_WRITE or topic.write_queue_nums <= 0:
            return status(Code.FORBIDDEN, "no writable queue")
        return topic, publications

    def _queue(self, topic: TopicConfig, publication: Publication) -> int:
        count, properties = topic.write_queue_nums, publication.properties
        if (group := properties.get(SHARDING_KEY)) is not None:
            return group_queue(group, count)
        self._next_queue += 1
        return self._next_queue % count

    def _entry(self, publication: Publication, outcome: Outcome[Sent]) -> v2.SendResultEntry:
        sent = outcome.answer
        if outcome.failure is not None:
            return v2.SendResultEntry(status=failed(outcome.failure))
        if isinstance(sent, Refusal):
            return v2.SendResultEntry(status=refused(sent))
        message_id = publication.message_id
        told = OK
        if outcome.is_late:
            told = status(Code.MASTER_PERSISTENCE_TIMEOUT, "send message failed, sendStatus=FLUSH_DISK_TIMEOUT")
        if outcome.lacks_replicas:
            told = status(Code.SLAVE_PERSISTENCE_TIMEOUT, "send message failed, sendStatus=FLUSH_SLAVE_TIMEOUT")
        entry = v2.SendResultEntry(
            status=told, message_id=message_id, transaction_id=message_id, offset=sent.queue_offset
        )
        if isinstance(sent, SendReceipt):
            if sent.recall_handle is not None:
                entry.recall_handle = sent.recall_handle
            if publication.kind is MessageType.TRANSACTION:
                self._transactions.note(publication.topic, message_id, (sent.queue_offset, sent.log_offsets[0]))
        return entry


def _type_fault(topic: TopicConfig | None, name: str, kind: MessageType) -> v2.Status | None:
    expected = topic_type(topic)
    if expected in (AUTO_CREATED_TYPE, kind.name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return None
    remark = f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {kind.name}"
    return status(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, remark)


def failed(failure: Exception) -> v2.Status:
    """Return what a client is told whose message the store has not taken."""
    if isinstance(failure, BusyError):
        return status(Code.TOO_MANY_REQUESTS, str(failure))
    if isinstance(failure, StoreError):
        return status(Code.INTERNAL_SERVER_ERROR, f"service not available now: {failure}")
    return status(Code.INTERNAL_SERVER_ERROR, str(failure))


def group_queue(group: str, count: int) -> int:
    """Return the queue of a message group, by Guava's consistent hash of Java's hash code (``MessageQueueSelector``).

    Few groups move when there are more queues.
    """
    state, bucket = java_hash(group) & _MASK, 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        following = int((bucket + 1) / (((state >> 33) + 1) / (1 << 31)))
        if following >= count:
            return bucket
        bucket = following
