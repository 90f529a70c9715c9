"""How a transaction ends: by its producer (37), or by nobody, so that an administrator has it asked about again (323).

Rules of END_TRANSACTION, in this order (``EndTransactionProcessor``; behaviour.md B.11)
    1. An unknown outcome is not answered: a check will ask again.
    2. There is no half message at the position: 1. Its own immunity is over, and this is no answer to a check: 604.
    3. Another producer group, queue offset or log offset than those of the half message: 1.
    4. Committed: the message goes where it belongs, or waits for its delay or timer. The answer waits for the disk as
       that of a send does; a disk that takes too long counts as success, since the message is stored.
    5. Committed or rolled back: an op message says so, in the same commit.
    6. What is known to be settled is answered 0, and nothing happens: a message is not delivered again. (Java delivers
       it for each request.) A copy that a check has made meanwhile is settled along with the message.

RESUME_CHECK_HALF_MESSAGE names a message by its offset id: the half message, or what is kept of it. A copy becomes the
newest half message, as if nobody had ever been asked. What is no message of a transaction is refused; Java would put it
there (``AdminBrokerProcessor``).
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, HeaderError, MessageIllegalError, MessageRefusedError, RecordError, StoreError
from ...common.ids import parse_offset_id
from ...common.message import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from ...common.names import HALF_TOPIC
from ...common.outcome import NO_ANSWER_WANTED, Outcome
from ...common.properties import PRODUCER_GROUP
from ...common.record import Record, decode_record
from ..delay.delayed_messages import DelayRouting
from ..outcomes.group_commit import wants_to_wait
from ..outcomes.scheduler import Scheduler
from ..settings.refusal import Refusal
from .checks import CheckRules, is_too_late
from .half_messages import HalfCopies, committed, is_transactional, real_place, resumed
from .transactions import Transactions

TRANSACTION_UNAVAILABLE: Final = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
_ENDS = (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK)


class TransactionEnd(Protocol):
    """What a producer says has become of its transaction."""

    producer_group: str
    half_offset: int
    log_offset: int
    outcome: int
    is_from_check: bool | None


class EndTransaction:
    """Commits and rolls back."""

    def __init__(
        self, transactions: Transactions, rules: Callable[[], CheckRules], routing: DelayRouting, scheduler: Scheduler
    ) -> None:
        self._transactions = transactions
        self._rules = rules
        self._routing = routing
        self._store, self._scheduler, self._now_ms = scheduler.store, scheduler, routing.now_ms
        self._copies = HalfCopies(scheduler.store)

    def end(self, end: TransactionEnd, *, waits: bool) -> Outcome[Refusal | None]:
        """Take in what has become of a transaction; the producer may wait for the disk."""
        if end.outcome == TRANSACTION_NONE:
            return NO_ANSWER_WANTED
        if end.outcome not in _ENDS:
            raise HeaderError("commitOrRollback field wrong")
        half = self._find(end.log_offset)
        if half is None:
            return _refuse(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if not end.is_from_check and is_too_late(half, self._rules(), self._now_ms()):
            return _refuse(ResponseCode.ILLEGAL_OPERATION)
        if (remark := _mismatch(half, end)) is not None:
            return _refuse(ResponseCode.SYSTEM_ERROR, remark)
        if end.outcome == TRANSACTION_ROLLBACK:
            self._settle(self._open(self._offsets(half)))
            rolled_back: Outcome[Refusal | None] = self._scheduler.after_commit(None)
            rolled_back.waits_for_store = False
            return rolled_back
        outcome = self._commit(half)
        outcome.waits_for_store = waits and wants_to_wait(str(half.property_text, "utf-8", "replace"))
        return outcome

    def _commit(self, half: Record) -> Outcome[Refusal | None]:
        offsets = self._offsets(half)
        is_known = any(self._transactions.is_settled(offset) for offset in offsets)
        still_open = self._open(offsets)
        if not still_open and (is_known or self._copies.is_delivered(half)):
            return Outcome(None, is_settled=True)
        try:
            outcome: Outcome[Any] = self._scheduler.append(self._routing.place(committed(half)))
        except MessageIllegalError:
            return _refuse(ResponseCode.MESSAGE_ILLEGAL, _illegal_remark(self._store.config.max_message_bytes))
        except MessageRefusedError as error:
            return _refuse(error.code, error.remark)
        except StoreError as error:
            return self._scheduler.failed(error)
        outcome.answer = None
        self._settle(still_open or [half.queue_offset])
        return outcome

    def _find(self, log_offset: int) -> Record | None:
        data = self._store.record_at(log_offset)
        try:
            half = None if data is None else decode_record(data)
        except RecordError:
            return None
        return half if half is not None and half.topic == HALF_TOPIC else None

    def _offsets(self, half: Record) -> list[int]:
        """Return the offset of a half message and, unless it is open itself, those of its copies.

        One that was copied is settled. Its copies count although the cursor has not passed it, as after a crash.
        """
        offset = half.queue_offset
        if not self._transactions.is_passed(offset) and not self._transactions.is_settled(offset):
            return [offset]
        readable = [offset, *self._copies.half_offsets(half)]
        unreadable = map(self._transactions.unreadable_copy, readable)
        return readable + [copy for copy in unreadable if copy is not None]

    def _open(self, offsets: list[int]) -> list[int]:
        transactions = self._transactions
        return [
            offset for offset in offsets if not transactions.is_passed(offset) and not transactions.is_settled(offset)
        ]

    def _settle(self, half_offsets: list[int]) -> None:
        for half_offset in half_offsets:
            self._transactions.settle(half_offset)


def _mismatch(half: Record, end: TransactionEnd) -> str | None:
    if half.properties.get(PRODUCER_GROUP) != end.producer_group:
        return "The producer group wrong"
    if half.queue_offset != end.half_offset:
        return "The transaction state table offset wrong"
    return None  # the log offset is that by which it was found


def _refuse(code: int, remark: str | None = None) -> Outcome[Refusal | None]:
    return Outcome(Refusal(code, remark), is_settled=True)


def _illegal_remark(most_bytes: int) -> str:
    return (
        "The message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {most_bytes}B, msg properties length limit 32KB."
    )


RESUME_FAILED = Refusal(ResponseCode.SYSTEM_ERROR, f"Put message back to {HALF_TOPIC} failed.")
UNREADABLE = Refusal(ResponseCode.SYSTEM_ERROR, f"Exception was thrown when putting message back to {HALF_TOPIC}.")


class ResumeCheck:
    """Puts messages back among those that are checked."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._store, self._scheduler = scheduler.store, scheduler

    def resume(self, message_id: str | None) -> Outcome[Refusal | None]:
        """Put a message back."""
        try:
            half = self._find(message_id)
        except (DecodeError, ValueError, MessageIllegalError):
            half = None
        if half is None:
            return Outcome(UNREADABLE, is_settled=True)
        try:
            outcome: Outcome[Any] = self._scheduler.append(resumed(half))
        except StoreError as error:
            return self._scheduler.failed(error)
        outcome.answer, outcome.waits_for_store = None, False
        return outcome

    def _find(self, message_id: str | None) -> Record | None:
        data = self._store.record_at(parse_offset_id(message_id or "")[1])
        half = None if data is None else decode_record(data)
        if half is None or not is_transactional(half.properties, is_delayed_retry=False):
            return None
        real_place(half)
        return half
