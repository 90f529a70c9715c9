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

from collections.abc import Callable
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
from ..messages import v2
from ..messages.enums import Code, MessageType
from ..messages.names import topic_fault
from ..messages.publishing import Publication, PublishRules, publish
from ..messages.statuses import common_status, refused, status
from ..rpc.call import Call
from .calling import Caller, answer, when_settled
from .clients import ClientRegistry
from .routes import AUTO_CREATED_TYPE, topic_type
from .transactions import TransactionIds

_MULTIPLIER: Final = 2_862_933_555_777_941_757
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

    def send(self, request: v2.SendMessageRequest, caller: Caller, call: Call) -> v2.SendMessageResponse | None:
        """Store messages."""
        checked = self._check(request, caller)
        if isinstance(checked, v2.Status):
            return v2.SendMessageResponse(status=checked)
        topic, publications = checked
        client = self._clients.hear(caller)
        if topic.topic_name not in client.topics:
            self._clients.produces(client, topic.topic_name)
        sender = Sender(caller.address, VERSION, waits=True)
        entries: list[v2.SendResultEntry | None] = [None] * len(publications)

        def settle(number: int, outcome: Outcome[Sent]) -> None:
            entries[number] = self._entry(publications[number], outcome)
            if None not in entries:
                found = [entry for entry in entries if entry is not None]
                told = common_status(entry.status for entry in found)
                if len(found) == 1 and told.code != Code.OK:
                    told = found[0].status
                answer(call, v2.SendMessageResponse(status=told, entries=found))

        for number, publication in enumerate(publications):
            message = GrpcSend(
                publication.topic,
                self._queue(topic, publication),
                publication.born_at_ms,
                format_properties(publication.properties),
                publication.reconsume_times,
            )
            outcome = self._operations.sends.send(message, publication.body, sender)
            when_settled(outcome, _with(settle, number))
        return None

    def recall(self, request: v2.RecallMessageRequest, caller: Caller, call: Call) -> v2.RecallMessageResponse | None:
        """Keep a message from being delivered."""
        fault = topic_fault(request.topic) or self._type_fault(request.topic.name, MessageType.DELAY)
        if fault is not None:
            return v2.RecallMessageResponse(status=fault)
        name = request.topic.name
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
        for publication in publications:
            if (fault := self._type_fault(first.name, publication.kind)) is not None:
                return fault
        topic = self._operations.topics.get(first.name)
        if topic is None or not topic.perm & PERM_WRITE or topic.write_queue_nums <= 0:
            return status(Code.FORBIDDEN, "no writable queue")
        return topic, publications

    def _type_fault(self, name: str, kind: MessageType) -> v2.Status | None:
        expected = topic_type(self._operations.topics.get(name))
        if expected in (AUTO_CREATED_TYPE, kind.name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return None
        remark = f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {kind.name}"
        return status(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, remark)

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
        told = status(Code.OK)
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


def _with(settle: Callable[[int, Outcome[Sent]], None], number: int) -> Callable[[Outcome[Sent]], None]:
    return lambda outcome: settle(number, outcome)
