"""The adapter of the wire for messages in: 10, 310, 320, 36, 324, 325 and 370 with their answers, and replies (326).

Each answer to a send carries ``MSG_REGION`` and ``TRACE_ON``, which Java's clients read unasked; its message id is made
of the store's host and the position in the log.
"""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import (
    BusyError,
    DiskFullError,
    FrameError,
    MessageIllegalError,
    MessageRefusedError,
    RemotingError,
    StoreError,
)
from ...common.ids import encode_host, format_address, format_offset_id, format_offset_ids
from ...common.outcome import Outcome
from ...common.properties import PUSH_REPLY_TIME, UNIQ_KEY, encode_properties, header_codecs
from ...common.record import NewRecord
from ...remoting.codec.command import JSON, ONEWAY, Command, decode_header
from ...remoting.codec.error_replies import describe_failure
from ...remoting.codec.frames import Encoded
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.message import RecallHeader, RecallReply, ReplyPushHeader, SendBackHeader
from ...remoting.headers.send import SendReplies, decode_send_header
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ...store.consumequeue.appended import Appended
from ..group.members import Members
from ..settings.refusal import Refusal
from .recall import RECALL_FAILED, RecallOperation
from .replies import ReplyOperation, ReplyRequest, ReplySent
from .send import Sender, SendOperations, SendReceipt, Sent
from .send_back import SendBackOperation

PUSH_LIMIT_MS = 10_000
_OFFSET_DIGITS = 16
_USUAL = int(Code.SEND_MESSAGE_V2)
_BATCH = int(Code.SEND_BATCH_MESSAGE)
_log = logging.getLogger(__name__)


class SendHandlers:
    """Answers producers, and consumers who send messages back or replies."""

    def __init__(
        self,
        sends: SendOperations,
        send_backs: SendBackOperation,
        replies: ReplyOperation,
        recalls: RecallOperation,
        answers: SendReplies,
    ) -> None:
        self._sends = sends
        self._send_backs = send_backs
        self._replies = replies
        self._recalls = recalls
        self._answers = answers
        self._encode = self._encode_sent  # bound once, and not for each send
        self._read_send = None if header_codecs is None else header_codecs.read_send

    @cached_property
    def _host_text(self) -> str:
        """The host in message ids, which is the one in the records; it is certain before the first message comes."""
        return format_offset_id(self._sends.store.store_host, 0)[:-_OFFSET_DIGITS]

    @answers(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE)
    def send(self, command: Command, connection: Connection) -> Outcome[Sent]:
        """Store a message, or the messages of a batch."""
        if command.code == _USUAL and command.ext_table is None and command.serialize == JSON:
            plain = self._send_plain(command, connection)
            if plain is not None:
                return plain
        header = decode_send_header(command)
        sender = Sender(connection.remote_address, command.version, not command.flag & ONEWAY)
        if header.batch or command.code == _BATCH:
            outcome = self._sends.send_batch(header, command.body, sender)
        else:
            outcome = self._sends.send(header, command.body, sender)
        outcome.encode = self._encode
        return outcome

    def _send_plain(self, command: Command, connection: Connection) -> Outcome[Sent] | None:
        """Store a message the short way; ``None`` if it is not plain, or there is no short way here."""
        if self._read_send is None:
            return None
        sends, host = self._sends, encode_host(*connection.remote_address)
        record = self._read_send(
            command.ext_text, command.body, host, sends.enricher.own_text, sends.enricher.careful_names, NewRecord
        )
        outcome = None if record is None else sends.send_plain(record, waits=not command.flag & ONEWAY)
        if outcome is not None:
            outcome.encode = self._encode
        return outcome

    @answers(Code.CONSUMER_SEND_MSG_BACK)
    def send_back(self, command: Command, _connection: Connection) -> Outcome[Refusal | None]:
        """Store the copy of a message that is to be consumed again, or of one that is given up."""
        outcome = self._send_backs.send_back(decode_header(SendBackHeader, command), command.version)
        outcome.encode = _encode_send_back
        return outcome

    @answers(Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2)
    def reply(self, command: Command, connection: Connection) -> Outcome[ReplySent | Refusal]:
        """Store a reply and pass it on to who asked."""
        sender = Sender(connection.remote_address, command.version, not command.flag & ONEWAY)
        outcome = self._replies.reply(decode_send_header(command), command.body, sender)
        outcome.encode = self._encode_reply
        return outcome

    @answers(Code.RECALL_MESSAGE)
    def recall(self, command: Command, connection: Connection) -> Outcome[str | Refusal]:
        """Keep a message from being delivered."""
        outcome = self._recalls.recall(decode_header(RecallHeader, command), connection.remote_address)
        outcome.encode = self._encode_recall
        return outcome

    def _encode_sent(self, command: Command, outcome: Outcome[Sent]) -> Command | Encoded:
        sent = outcome.answer
        if outcome.failure is not None:
            return self._encode_failure(outcome.failure)
        if type(sent) is Appended and not (outcome.is_late or outcome.lacks_replicas):
            return self._answers.stored_one(command, self._host_text, sent)
        return self._encode_unusual(command, outcome)

    def _encode_unusual(self, command: Command, outcome: Outcome[Sent]) -> Command | Encoded:
        sent, code = outcome.answer, ResponseCode.SUCCESS
        if outcome.is_late:
            code = ResponseCode.FLUSH_DISK_TIMEOUT
        if outcome.lacks_replicas:
            code = ResponseCode.FLUSH_SLAVE_TIMEOUT
        if isinstance(sent, Refusal):
            return Command.response(sent.code, sent.remark, self._answers.fields())
        if isinstance(sent, Appended):
            log_offsets, key = (sent.log_offset,), sent.properties.get(UNIQ_KEY)
            is_usual = code == ResponseCode.SUCCESS
        else:
            log_offsets, key = sent.log_offsets, sent.unique_key
            is_usual = code == ResponseCode.SUCCESS and not (sent.batch_key or sent.recall_handle)
        message_ids = format_offset_ids(self._host_text, log_offsets)
        if is_usual:
            return self._answers.stored(command, message_ids, sent.queue_id, sent.queue_offset, key)
        header = self._answers.describe(message_ids, sent.queue_id, sent.queue_offset, key)
        if isinstance(sent, SendReceipt):
            header.batch_uniq_id, header.recall_handle = sent.batch_key, sent.recall_handle
        return Command.response(code, ext=header)

    def _encode_failure(self, failure: Exception) -> Command:
        """Return the answer to a message that the store does not take; when the disk is full, in Java's words."""
        if isinstance(failure, BusyError):
            return Command.response(ResponseCode.SYSTEM_BUSY, str(failure))
        if not isinstance(failure, StoreError):
            return Command.response(ResponseCode.SYSTEM_ERROR, describe_failure(failure))
        remark = f"service not available now: {failure}"
        if isinstance(failure, DiskFullError):
            remark = (
                f"service not available now. It may be caused by one of the following reasons: {failure}, "
                "messages are put to the slave, message store has been shut down, etc."
            )
        return Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark, self._answers.fields())

    def _encode_reply(self, _command: Command, outcome: Outcome[ReplySent | Refusal]) -> Command:
        sent = outcome.answer
        if outcome.failure is not None:
            return self._encode_failure(outcome.failure)
        if isinstance(sent, Refusal):
            return Command.response(sent.code, sent.remark, self._answers.fields())
        fields = self._answers.fields()
        if sent.stored is not None or sent.failure is None:
            message_id = "0" if sent.stored is None else f"{self._host_text}{sent.stored.log_offset:016X}"
            queue_offset = 0 if sent.stored is None else sent.stored.queue_offset
            fields |= {"msgId": message_id, "queueId": str(sent.queue_id), "queueOffset": str(queue_offset)}
        code = ResponseCode.SUCCESS if sent.failure is None else ResponseCode.SYSTEM_ERROR
        return Command.response(code, sent.failure, fields)

    def _encode_recall(self, _command: Command, outcome: Outcome[str | Refusal]) -> Command:
        done = outcome.answer if outcome.failure is None else RECALL_FAILED
        region = self._answers.fields()["MSG_REGION"]
        if isinstance(done, Refusal):
            return Command.response(done.code, done.remark, {"MSG_REGION": region})
        return Command.response(ResponseCode.SUCCESS, ext=RecallReply(msg_id=done, region=region))


def _encode_send_back(_command: Command, outcome: Outcome[Refusal | None]) -> Command:
    failure = outcome.failure
    if isinstance(failure, MessageRefusedError):
        return Command.response(ResponseCode.SYSTEM_ERROR, failure.status)
    if failure is not None:
        status = "MESSAGE_ILLEGAL" if isinstance(failure, MessageIllegalError) else "SERVICE_NOT_AVAILABLE"
        return Command.response(ResponseCode.SYSTEM_ERROR, status)
    refusal = outcome.answer
    return Command.response(ResponseCode.SUCCESS) if refusal is None else Command.response(refusal.code, refusal.remark)


class ReplyPusher:
    """Brings replies to who asked, as they were sent, with PUSH_REPLY_TIME among their properties (326).

    A requester is a producer, found by its client id; it has 10 s to take a reply
    (``ReplyMessageProcessor.pushReplyMessage``, ``Broker2Client.callClient``; spec remoting.md §4.12).
    """

    def __init__(
        self, members: Members[Connection], store_address: Callable[[], str], now_ms: Callable[[], int]
    ) -> None:
        self._members = members
        self._store_address = store_address
        self._now_ms = now_ms

    def prepare(
        self, client_id: str, message: ReplyRequest, body: bytes, properties: dict[str, str], born_host: str
    ) -> "EncodedPush | None":
        """Return a reply that is ready for a producer, None if it is not connected."""
        connection = self._members.producer_link(client_id)
        if connection is None:
            return None
        now_ms = self._now_ms()
        properties = {**properties, PUSH_REPLY_TIME: str(now_ms)}
        header = ReplyPushHeader(
            producer_group=message.producer_group,
            topic=message.topic,
            default_topic=message.default_topic,
            default_topic_queue_nums=message.default_topic_queue_nums,
            queue_id=message.queue_id,
            sys_flag=message.sys_flag,
            born_at_ms=message.born_at_ms,
            flag=message.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=message.reconsume_times,
            unit_mode=bool(message.unit_mode),
            born_host=born_host,
            store_host=self._store_address(),
            stored_at_ms=now_ms,
        )
        push = Command.request(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body)
        return EncodedPush(connection, client_id, push, properties)


class EncodedPush(NamedTuple):
    """A reply on its way to a producer."""

    connection: Connection
    client_id: str
    push: Command
    properties: dict[str, str]

    def send_oneway(self) -> None:
        """Hand the reply over without asking whether it is taken."""
        self.connection.send_oneway(self.push)

    async def send(self) -> bool:
        """Hand the reply over; tell whether it was taken."""
        peer = f"{self.client_id} at {format_address(*self.connection.remote_address)}"
        try:
            answer = await self.connection.request(self.push, PUSH_LIMIT_MS)
        except (RemotingError, FrameError) as error:
            _log.info("pushing a reply to client %s failed: %s", peer, error)
            return False
        if answer.code != ResponseCode.SUCCESS:
            _log.info("pushing a reply to client %s failed: it answered %d: %s", peer, answer.code, answer.remark)
        return answer.code == ResponseCode.SUCCESS
