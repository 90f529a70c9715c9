"""Pulling: PULL_MESSAGE(11) and LITE_PULL_MESSAGE(361) (``PullMessageProcessor``; spec behaviour.md B.4).

A pull that finds nothing new and may wait is parked (``PullWaiters``). When it is woken it is run again from the start
and answered whatever comes, also when that fails: it commits no offset then and never waits twice.
"""

from collections.abc import Callable, Sequence
from sys import getsizeof

from ...common.outcome import Outcome
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.failures import failure_reply
from ...remoting.codec.frames import Buffer, Encoded
from ...remoting.headers.pull import PULL_COMMIT_OFFSET, PULL_SUSPEND, PullHeader, PullReply
from ...remoting.headers.replies import encode_pull_reply
from ...remoting.transport.addresses import format_address
from ...remoting.transport.connection import Connection
from ...remoting.transport.service import Reply
from ...store.consumequeue.queue_reader import AcceptsCode, AcceptsRecord, ReadLimits, ReadResult, ReadStatus
from ..group.filters import PullFilter
from ..group.offsets import OffsetTable
from ..outcomes.long_polling import PullWaiters, QueueKey, Waiter
from ..settings.refusal import Refusal
from .pullgate import PullGate

MOST_BYTES = 128 << 20
_JOIN_RECORD_BYTES = 1024  # records that average no more are cheaper to send as one copy
_SHORTEST_WAIT_MS = 1

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


Read = Callable[[str, int, int, ReadLimits, AcceptsCode | None, AcceptsRecord | None], ReadResult]
"""``MessageStore.read``, counted."""


class Puller:
    """Hands out what consumers pull."""

    def __init__(
        self,
        read: Read,
        gate: PullGate,
        offsets: OffsetTable,
        waiters: PullWaiters,
        *,
        short_polling_ms: int | None = None,
    ) -> None:
        self._read_store = read
        self._gate = gate
        self._offsets = offsets
        self._waiters = waiters
        self._short_polling_ms = short_polling_ms

    def pull(self, command: Command, connection: Connection) -> Reply:
        """Answer a pull, or park it."""
        header = decode_header(PullHeader, command)
        wanted = self._gate.admit(command.code, header, connection.remote_address)
        if isinstance(wanted, Refusal):
            return Command.response(wanted.code, wanted.remark)
        if header.sys_flag & PULL_COMMIT_OFFSET and header.commit_offset >= 0:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        result = self._read(header, wanted)
        if header.sys_flag & PULL_SUSPEND and _code(header, result) == ResponseCode.PULL_NOT_FOUND:
            return self._park(command, connection, header, wanted)
        return self._answer(command, header, result)

    def _park(
        self, command: Command, connection: Connection, header: PullHeader, wanted: PullFilter
    ) -> Outcome[Command | Encoded]:
        command.forget_content()
        outcome: Outcome[Command | Encoded] = Outcome(extra_bytes=wanted.kept_bytes + _kept_bytes(header))
        waiter = Waiter(
            QueueKey(header.topic, header.queue_id),
            header.queue_offset,
            wanted.accepts_arrival,
            lambda: outcome.answer_with(self._run_again(command, connection, header)),
            connection.remote_address,
        )
        outcome.on_drop = lambda: self._waiters.drop(waiter)
        delay_ms = header.suspend_ms if self._short_polling_ms is None else self._short_polling_ms
        self._waiters.add(waiter, max(delay_ms, _SHORTEST_WAIT_MS))
        return outcome

    def _run_again(self, command: Command, connection: Connection, header: PullHeader) -> Command | Encoded:
        try:
            wanted = self._gate.admit(command.code, header, connection.remote_address)
            if isinstance(wanted, Refusal):
                return Command.response(wanted.code, wanted.remark)
            return self._answer(command, header, self._read(header, wanted))
        except Exception as error:  # the fault boundary of a held request
            place = f"consumerGroup {header.consumer_group}, topic {header.topic}, queueId {header.queue_id}"
            peer = f"{format_address(*connection.remote_address)}, {place}"  # the command has forgotten its fields
            return failure_reply(command, error, peer, is_logged=connection.may_complain())

    def _read(self, header: PullHeader, wanted: PullFilter) -> ReadResult:
        most_bytes = MOST_BYTES if header.max_bytes is None else header.max_bytes
        limits = ReadLimits(header.max_messages if header.max_messages > 0 else 1, most_bytes)
        accepts, accepts_record = wanted[:2]
        return self._read_store(header.topic, header.queue_id, header.queue_offset, limits, accepts, accepts_record)

    def _answer(self, command: Command, header: PullHeader, result: ReadResult) -> Encoded:
        reply = PullReply(
            suggest_which_broker_id=self._gate.suggest_broker(
                header.consumer_group, is_far_behind=result.is_far_behind
            ),
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        return encode_pull_reply(command, _code(header, result), result.status.value, reply, _buffers(result))


def _kept_bytes(header: PullHeader) -> int:
    texts = (header.consumer_group, header.topic, header.subscription, header.expression_type, header.broker_name)
    return sum(map(getsizeof, texts))


def _code(header: PullHeader, result: ReadResult) -> int:
    """Return the code of an answer (B.4.4); in a queue without messages it depends on what was asked for."""
    code = _CODES.get(result.status)
    if code is None:
        return ResponseCode.PULL_NOT_FOUND if header.queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return code


def _buffers(result: ReadResult) -> Sequence[Buffer]:
    records = result.records
    if len(records) > 1 and result.size <= _JOIN_RECORD_BYTES * len(records):
        return (b"".join(records),)
    return records
