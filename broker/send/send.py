"""Sending: SEND_MESSAGE(10), SEND_MESSAGE_V2(310) and SEND_BATCH_MESSAGE(320) (``SendMessageProcessor``; B.3).

A send is plain function calls: header, gate, properties, append, answer. The answer is built before the record is
written; ``Service.end_of_read`` commits all records of a read at once, and takes the answers back if that fails.

A send that created its topic is answered when the topic is on disk and at the name servers (``announcing``), whether
its message was stored or refused.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ...common.errors import MessageIllegalError, MessageRefusedError, StoreError
from ...common.ids import encode_host
from ...common.names import RETRY_PREFIX, TIMER_TOPIC
from ...common.properties import DELAY, INNER_NUM, UNIQ_KEY, parse_properties
from ...common.record import BatchPart, NewRecord, decode_batch
from ...common.sysflag import INNER_BATCH, MULTI_TAGS, TRANSACTION_MASK
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ...remoting.codec.later import Encoded, Later
from ...remoting.headers.send import SendHeader, decode_send_header
from ...remoting.transport.connection import Connection
from ...remoting.transport.service import Reply
from ...store.consumequeue.innerbatch import INNER_BATCH_FLAGS
from ...store.message_store import MessageStore
from ..delay.parking import Parking
from ..topic.announcing import Announce
from ..topic.attributes import is_batch_topic
from ..transaction.halfmessages import half_of, is_transactional
from .groupcommit import GroupCommit
from .sendanswers import Place, SendAnswers
from .sendgate import Admission, Refusal, SendGate
from .stamp import PropertyStamp, Stamped

SEND_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_MULTI_TAG = "MULTI_TAG"
MAX_BATCH_MESSAGES: Final = 65_536
"""Of one request: they are stored in one turn of the loop."""
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_INNER_NUM = INNER_NUM.encode()
_NO_BATCH = f"the message has the property {INNER_NUM} but is no inner batch"


class Paying(NamedTuple):
    """Who pays answers that are owed: after a topic has become known; under SYNC_FLUSH, after the flush."""

    announce: Announce
    group: GroupCommit | None


class Shaping(NamedTuple):
    """What makes a stored message of a sent one: its properties, and where it waits."""

    stamp: PropertyStamp
    parking: Parking
    now_ms: Callable[[], int]


class Sender:
    """Stores what producers send; ``refuses_transactions`` is the remark for their messages, if they are refused."""

    def __init__(
        self,
        store: MessageStore,
        gate: SendGate,
        shaping: Shaping,
        answers: SendAnswers,
        paying: Paying,
        *,
        refuses_transactions: str | None = None,
    ) -> None:
        self._store = store
        self._gate = gate
        self._stamp, self._parking, self._now_ms = shaping
        self._answers = answers
        self._announce, self._group = paying
        self._most_bytes = store.config.max_message_bytes
        self._refuses_transactions = refuses_transactions

    def send(self, command: Command, connection: Connection) -> Reply:
        """Store a message, or the messages of a batch."""
        reply = self._send(command, connection)
        return self._answer_when_known(command, reply) if self._gate.created else reply

    def refuse_uncommitted(self, _command: Command, error: StoreError) -> Command:
        """Return the answer to a message that had its place but could not be written."""
        return self._answers.unavailable(error)

    def _send(self, command: Command, connection: Connection) -> Command | Encoded | Later:
        header = decode_send_header(command)
        if not command.body:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, "the message has no body")
        try:
            if header.batch or command.code == _BATCH:
                reply = self._send_batch(command, header, connection)
            else:
                reply = self._send_one(command, header, connection)
        except MessageIllegalError:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, _illegal_remark(self._most_bytes))
        except MessageRefusedError as error:
            return self._answers.refused(error.code, error.remark)
        except StoreError as error:
            return self._answers.unavailable(error)

        return reply if self._group is None else self._group.hold(command, header.properties or "", reply)

    def _send_one(self, command: Command, header: SendHeader, connection: Connection) -> Command | Encoded:
        stamped = self._stamp.stamp(header.properties or "")
        if not stamped.is_plain and INNER_NUM in stamped.properties and not header.sys_flag & INNER_BATCH:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, _NO_BATCH)
        admission = self._gate.admit(header, command.version, connection.remote_address)
        if isinstance(admission, Refusal):
            return self._answers.refused(*admission)
        if admission.is_dead_letter:  # it is not delayed any more (store.md §10.2)
            stamped = self._stamp.stamp_parsed({**stamped.properties, DELAY: "-1"})
        record = _new_record(command.body, stamped, header, admission, connection)
        placed = record if stamped.is_plain else self._place(record)
        stored = self._store.append(placed)
        if placed.topic == TIMER_TOPIC:
            return self._answers.stored_timer(Place(stored.log_offset, stored.queue_offset), record.queue_id, placed)
        unique_key = stamped.properties[UNIQ_KEY]
        return self._answers.stored(command, stored.log_offset, record.queue_id, stored.queue_offset, unique_key)

    def _place(self, new: NewRecord) -> NewRecord:
        """Return what is stored of a message that is not to be seen at once, perhaps.

        Raises:
            MessageRefusedError: It may not be stored.
            DecodeError: Its delay level is no number.
        """
        is_delayed_retry = new.reconsume_times > 0 and self._parking.is_delayed(new.properties)
        if not is_transactional(new.properties, is_delayed_retry=is_delayed_retry):
            return self._parking.place(new, self._now_ms())
        if self._refuses_transactions is not None:
            raise MessageRefusedError(ResponseCode.NO_PERMISSION, self._refuses_transactions)
        return half_of(new)

    def _send_batch(self, command: Command, header: SendHeader, connection: Connection) -> Command | Encoded:
        if header.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if len(command.body) > self._most_bytes:
            remark = f"message body size is {len(command.body)} bytes, limit is {self._most_bytes}"
            return self._answers.refused(ResponseCode.SYSTEM_ERROR, remark)
        parts = decode_batch(command.body, MAX_BATCH_MESSAGES)
        properties = parse_properties(header.properties or "")
        parsed = [parse_properties(part.property_text) for part in parts]
        admission = self._gate.admit(header, command.version, connection.remote_address)
        if isinstance(admission, Refusal):
            return self._answers.refused(*admission)
        if self._parking.is_to_wait(header.topic, properties) or header.sys_flag & TRANSACTION_MASK:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, _illegal_remark(self._most_bytes))
        if is_batch_topic(admission.topic.attributes) and UNIQ_KEY in properties:
            return self._send_inner_batch(command, header, connection, admission)
        if INNER_NUM in properties or (_INNER_NUM in command.body and any(INNER_NUM in one for one in parsed)):
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, _NO_BATCH)
        head = _new_record(b"", Stamped(b"", {}), header, admission, connection)
        stored = self._store.append_batch(head, _batch_records(head, parts, parsed))
        log_offsets, first = [one.log_offset for one in stored], stored[0].queue_offset
        return self._answers.stored_batch(command, log_offsets, admission.queue_id, first, properties.get(UNIQ_KEY))

    def _send_inner_batch(
        self, command: Command, header: SendHeader, connection: Connection, admission: Admission
    ) -> Command | Encoded:
        """Store a batch as one record, for a topic whose queues count by messages."""
        stamped = self._stamp.stamp(header.properties or "")
        record = _new_record(command.body, stamped, header, admission, connection)
        record.sys_flag |= INNER_BATCH_FLAGS
        stored = self._store.append(record)
        unique_key = stamped.properties[UNIQ_KEY]
        return self._answers.stored_inner_batch(stored.log_offset, record.queue_id, stored.queue_offset, unique_key)

    def _answer_when_known(self, command: Command, reply: Command | Encoded | Later) -> Later:
        created, self._gate.created = self._gate.created, []
        if isinstance(reply, Later):
            assert self._group is not None, "nobody else owes the answer to a send"
            self._group.pay_last_by(partial(self._announce, created, reply))
            return reply
        later = Later(command)
        self._announce(created, later, reply)
        return later


def _new_record(
    body: bytes, stamped: Stamped, header: SendHeader, admission: Admission, connection: Connection
) -> NewRecord:
    topic = admission.topic
    return NewRecord(
        topic.topic_name,
        admission.queue_id,
        body,
        stamped.text,
        stamped.properties,
        header.flag,
        header.sys_flag | MULTI_TAGS if topic.topic_filter_type == _MULTI_TAG else header.sys_flag,
        header.born_at_ms,
        encode_host(*connection.remote_address),
        header.reconsume_times or 0,
    )


def _batch_records(head: NewRecord, parts: Sequence[BatchPart], parsed: Sequence[dict[str, str]]) -> list[NewRecord]:
    """Return the records of a batch; its messages are stored as their sender wrote them."""
    topic, queue_id, sys_flag, born_host = head.topic, head.queue_id, head.sys_flag, head.born_host
    born_at_ms, reconsume_times = head.born_at_ms, head.reconsume_times
    return [
        NewRecord(topic, queue_id, body, text, properties, flag, sys_flag, born_at_ms, born_host, reconsume_times)
        for (flag, body, text), properties in zip(parts, parsed, strict=True)
    ]


def _illegal_remark(most_bytes: int) -> str:
    return (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {most_bytes}B, msg properties length limit 32KB."
    )
