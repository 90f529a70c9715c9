"""Sending: SEND_MESSAGE(10), SEND_MESSAGE_V2(310) and SEND_BATCH_MESSAGE(320) (``SendMessageProcessor``; B.3).

A send is plain function calls: header, gate, properties, append, answer. The answer is built before the record is
written; ``Service.end_of_read`` commits all records of a read at once, and takes the answers back if that fails.

A send that created its topic is answered when the topic is on disk and at the name servers (``announcing``), whether
its message was stored or refused.
"""

from collections.abc import Sequence

from ..common.errors import MessageIllegalError, StoreError
from ..common.ids import encode_host
from ..common.names import RETRY_PREFIX
from ..common.properties import DELAY, UNIQ_KEY, parse_properties
from ..common.record import BatchPart, NewRecord, decode_batch
from ..common.sysflag import MULTI_TAGS, TRANSACTION_MASK
from ..remoting.codes import RequestCode, ResponseCode
from ..remoting.command import Command
from ..remoting.connection import Connection
from ..remoting.headers_send import SendHeader, decode_send_header
from ..remoting.later import Encoded, Later
from ..remoting.service import Reply
from ..store.message_store import MessageStore
from .announcing import Announce
from .sendanswers import SendAnswers
from .sendgate import Admission, Refusal, SendGate
from .stamp import PropertyStamp, Stamped
from .unbuilt import unbuilt_batch_remark, unbuilt_remark

SEND_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_MULTI_TAG = "MULTI_TAG"
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


class Sender:
    """Stores what producers send."""

    def __init__(
        self, store: MessageStore, gate: SendGate, stamp: PropertyStamp, answers: SendAnswers, announce: Announce
    ) -> None:
        self._store = store
        self._gate = gate
        self._stamp = stamp
        self._answers = answers
        self._announce = announce
        self._most_bytes = store.config.max_message_bytes

    def send(self, command: Command, connection: Connection) -> Reply:
        """Store a message, or the messages of a batch."""
        reply = self._send(command, connection)
        return self._answer_when_known(command, reply) if self._gate.created else reply

    def refuse_uncommitted(self, _command: Command, error: StoreError) -> Command:
        """Return the answer to a message that had its place but could not be written."""
        return self._answers.refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")

    def _send(self, command: Command, connection: Connection) -> Command | Encoded:
        header = decode_send_header(command)
        if not command.body:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, "the message has no body")
        try:
            if header.batch or command.code == _BATCH:
                return self._send_batch(command, header, connection)
            return self._send_one(command, header, connection)
        except MessageIllegalError:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, _illegal_remark(self._most_bytes))
        except StoreError as error:
            return self._answers.refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")

    def _send_one(self, command: Command, header: SendHeader, connection: Connection) -> Command | Encoded:
        stamped = self._stamp.stamp(header.properties or "")
        remark = None
        if not stamped.is_plain or header.sys_flag & TRANSACTION_MASK:
            remark = unbuilt_remark(stamped.properties, header.sys_flag)
            if remark is not None and not header.topic.startswith(RETRY_PREFIX):
                return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        admission = self._gate.admit(header, command.version, connection.remote_address)
        if isinstance(admission, Refusal):
            return self._answers.refused(*admission)
        if remark is not None:
            stamped, remark = self._stamp_dead_letter(stamped, header, admission)
            if remark is not None:
                return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        record = _new_record(command.body, stamped, header, admission, connection)
        stored = self._store.append(record)
        unique_key = stamped.properties[UNIQ_KEY]
        return self._answers.stored(command, stored.log_offset, record.queue_id, stored.queue_offset, unique_key)

    def _stamp_dead_letter(
        self, stamped: Stamped, header: SendHeader, admission: Admission
    ) -> tuple[Stamped, str | None]:
        """A dead letter is not delayed any more; another retry that is to be delayed is refused."""
        properties = dict(stamped.properties)
        if admission.is_dead_letter:
            properties.pop(DELAY, None)
        return self._stamp.stamp_parsed(properties), unbuilt_remark(properties, header.sys_flag)

    def _send_batch(self, command: Command, header: SendHeader, connection: Connection) -> Command | Encoded:
        if header.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if len(command.body) > self._most_bytes:
            remark = f"message body size is {len(command.body)} bytes, limit is {self._most_bytes}"
            return self._answers.refused(ResponseCode.SYSTEM_ERROR, remark)
        parts = decode_batch(command.body)
        properties = parse_properties(header.properties or "")
        parsed = [parse_properties(part.property_text) for part in parts]
        if (remark := unbuilt_batch_remark((properties, *parsed), header.sys_flag)) is not None:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        admission = self._gate.admit(header, command.version, connection.remote_address)
        if isinstance(admission, Refusal):
            return self._answers.refused(*admission)
        head = _new_record(b"", Stamped(b"", {}), header, admission, connection)
        stored = self._store.append_batch(head, _batch_records(head, parts, parsed))
        log_offsets, first = [one.log_offset for one in stored], stored[0].queue_offset
        return self._answers.stored_batch(command, log_offsets, admission.queue_id, first, properties.get(UNIQ_KEY))

    def _answer_when_known(self, command: Command, reply: Command | Encoded) -> Later:
        created, self._gate.created = self._gate.created, []
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
