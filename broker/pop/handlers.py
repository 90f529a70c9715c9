"""The adapter of the wire for POP: requests 200050 to 200055 and 200151, and their answers."""

import base64
import binascii
from collections.abc import Callable
from typing import Final

from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...common.outcome import Outcome
from ...common.pop_texts import NORMAL, RETRY_V1, RETRY_V2, format_offsets, format_start_offsets, read_topic
from ...remoting.bodies.body import decode_body_if_any
from ...remoting.bodies.pop import BatchAckBody, BatchAckEntry
from ...remoting.codec.command import Command, header_reader
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.pop import (
    AckHeader,
    ChangeLeaseHeader,
    LeaseReply,
    NotificationHeader,
    NotificationReply,
    PeekHeader,
    PollingInfoHeader,
    PollingInfoReply,
    PopHeader,
    PopReply,
)
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ..settings.refusal import Refusal
from .acks import AckOperation, BatchAck, Changed
from .check_points import LeaseKey
from .handing_out import ORDERED, PopOperation, Popped
from .peeking import PeekOperation
from .waiting import PopWaiting, WaitKey

_NOTHING: Final = "NO_MESSAGE_IN_QUEUE"
_FOUND: Final = "FOUND"
_UNSET: Final = "not set any response code"
"""What Java's answer says that nobody has given a remark."""
_MOST_BITS: Final = 1 << 12
_MOST_ACKS: Final = 16_384
"""Messages of one request; each may become a record."""

_read_pop = header_reader(PopHeader)
_read_ack = header_reader(AckHeader)
_read_change = header_reader(ChangeLeaseHeader)
_read_notification = header_reader(NotificationHeader)
_read_peek = header_reader(PeekHeader)
_read_polling = header_reader(PollingInfoHeader)


class PopHandlers:
    """Answers consumers that pop; ``own_name`` is the broker's."""

    def __init__(
        self,
        pops: PopOperation,
        peeks: PeekOperation,
        acks: AckOperation,
        waiting: PopWaiting,
        own_name: Callable[[], str],
    ) -> None:
        self._pops = pops
        self._peeks = peeks
        self._acks = acks
        self._waiting = waiting
        self._own_name = own_name

    @answers(Code.POP_MESSAGE)
    def pop(self, command: Command, connection: Connection) -> Outcome[Popped | Refusal]:
        """Hand messages out, or wait for some."""
        outcome = self._pops.pop(_read_pop(command), connection.remote_address)
        outcome.encode = _encode_popped
        return outcome

    @answers(Code.PEEK_MESSAGE)
    def peek(self, command: Command, connection: Connection) -> Command:
        """Show messages that stay where they are."""
        peeked = self._peeks.peek(_read_peek(command), connection.remote_address)
        if isinstance(peeked, Refusal):
            return Command.response(peeked.code, peeked.remark, PopReply())
        reply = PopReply(rest=peeked.rest)
        if not peeked.records:
            return Command.response(ResponseCode.PULL_NOT_FOUND, _NOTHING, reply)
        return Command.response(ResponseCode.SUCCESS, _FOUND, reply, b"".join(peeked.records))

    @answers(Code.ACK_MESSAGE)
    def acknowledge(self, command: Command, connection: Connection) -> Outcome[Refusal | None]:
        """Be done with a message."""
        outcome = self._acks.acknowledge(_read_ack(command), connection.remote_address)
        outcome.encode = _encode_ack
        return outcome

    @answers(Code.BATCH_ACK_MESSAGE)
    def acknowledge_batches(self, command: Command, _connection: Connection) -> Command | Outcome[Refusal | None]:
        """Be done with messages of several leases."""
        body = decode_body_if_any(BatchAckBody, command.body)
        if body is None or not body.acks:
            return Command.response(ResponseCode.NO_MESSAGE)
        try:
            batches = [self._batch_of(entry) for entry in body.acks]
            _check_count(sum(len(batch.queue_offsets) for batch in batches))
        except DecodeError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
        outcome = self._acks.acknowledge_batches(batches)
        outcome.encode = _encode_ack
        return outcome

    def _batch_of(self, entry: BatchAckEntry) -> BatchAck:
        if entry.r not in (NORMAL, RETRY_V1, RETRY_V2):
            raise DecodeError(f"an acknowledgement has the kind of topic {entry.r!r}, which is none of 0, 1 and 2")
        topic = read_topic(entry.t, entry.c, entry.r)
        key = LeaseKey(topic, entry.c, entry.q, entry.so, entry.pt, self._own_name())
        return BatchAck(key, entry.it, entry.rq, [entry.so + distance for distance in _read_bits(entry.b)])

    @answers(Code.CHANGE_MESSAGE_INVISIBLETIME)
    def change(self, command: Command, connection: Connection) -> Outcome[Refusal | Changed | None]:
        """Give a message another lease."""
        header = _read_change(command)
        outcome = self._acks.change(header, header.invisible_ms, connection.remote_address)
        outcome.encode = _encode_change
        return outcome

    @answers(Code.NOTIFICATION)
    def notify(self, command: Command, connection: Connection) -> Outcome[bool | Refusal | None]:
        """Tell whether there is something to pop, or wait for it."""
        outcome = self._pops.notify(_read_notification(command), connection.remote_address)
        outcome.encode = _encode_notification
        return outcome

    @answers(Code.POLLING_INFO)
    def count_waiting(self, command: Command, connection: Connection) -> Command:
        """Tell how many requests wait."""
        header = _read_polling(command)
        refusal = self._pops.refuse_look(header, connection.remote_address)
        if refusal is not None:
            return Command.response(refusal.code, refusal.remark, PollingInfoReply(polling_num=0))
        count = self._waiting.count(WaitKey(header.topic, header.consumer_group, header.queue_id))
        return Command.response(ResponseCode.SUCCESS, _UNSET, PollingInfoReply(polling_num=count))


def _check_count(count: int) -> None:
    if count > _MOST_ACKS:
        raise DecodeError(f"the request acknowledges {count} messages, limit is {_MOST_ACKS}")


def _read_bits(text: str) -> list[int]:
    """Return the numbers of the bits that are set.

    Raises:
        DecodeError: It is no base64, or longer than any lease.
    """
    if not text:
        raise DecodeError("an acknowledgement has no bits")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DecodeError(f"an acknowledgement has the bits {text!r}, which are no base64") from error
    if len(data) * 8 > _MOST_BITS:
        raise DecodeError(f"an acknowledgement has {len(data) * 8} bits, the most are {_MOST_BITS}")
    bits = int.from_bytes(data, "little")
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _encode_popped(_command: Command, outcome: Outcome[Popped | Refusal]) -> Command:
    popped = outcome.answer
    if isinstance(popped, Refusal):
        return Command.response(popped.code, popped.remark, PopReply())
    reply = PopReply(
        popped_at_ms=popped.popped_at_ms,
        invisible_ms=popped.invisible_ms,
        revive_queue_id=popped.revive_queue_id,
        rest=popped.rest,
        start_offset_info=format_start_offsets(popped.queues),
        msg_offset_info=format_offsets(popped.queues),
        order_count_info=";".join(popped.order_counts) if popped.revive_queue_id == ORDERED else None,
    )
    if popped.records:
        return Command.response(ResponseCode.SUCCESS, _FOUND, reply, b"".join(popped.records))
    code = ResponseCode.POLLING_FULL if popped.is_polling_full else ResponseCode.POLLING_TIMEOUT
    return Command.response(code, _NOTHING, reply)


def _encode_ack(_command: Command, outcome: Outcome[Refusal | None]) -> Command:
    refusal = outcome.answer
    return Command.response(ResponseCode.SUCCESS) if refusal is None else Command.response(refusal.code, refusal.remark)


def _encode_change(_command: Command, outcome: Outcome[Refusal | Changed | None]) -> Command:
    changed = outcome.answer
    if changed is None:
        return Command.response(ResponseCode.SYSTEM_ERROR, _UNSET, LeaseReply())
    if isinstance(changed, Refusal):
        return Command.response(changed.code, changed.remark, LeaseReply())
    reply = LeaseReply(
        popped_at_ms=changed.popped_at_ms,
        invisible_ms=changed.invisible_ms,
        revive_queue_id=changed.revive_queue_id,
    )
    return Command.response(ResponseCode.SUCCESS, _UNSET, reply)


def _encode_notification(_command: Command, outcome: Outcome[bool | Refusal | None]) -> Command:
    found = outcome.answer
    if isinstance(found, Refusal):
        return Command.response(found.code, found.remark)
    reply = NotificationReply(has_message=bool(found), is_polling_full=found is None)
    return Command.response(ResponseCode.SUCCESS, _UNSET, reply)
