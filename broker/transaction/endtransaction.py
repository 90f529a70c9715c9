"""The end of a transaction: END_TRANSACTION(37) (``EndTransactionProcessor``; behaviour.md B.11).

Rules, in this order

    1. An unknown outcome is not answered: a check will ask again.
    2. There is no half message at the position: 1. Its own immunity is over, and this is no answer to a check: 604.
    3. Another producer group, queue offset or log offset than those of the half message: 1.
    4. Committed: the message goes where it belongs, or waits for its delay or timer. The answer waits for the disk as
       that of a send does; a disk that takes too long counts as success, since the message is stored.
    5. Committed or rolled back: an op message says so, in the same commit.
    6. What is known to be settled is answered 0, and nothing happens: a message is not delivered again. (Java delivers
       it for each request.) A copy that a check has made meanwhile is settled along with the message.
"""

from collections.abc import Callable
from typing import NamedTuple

from ...common.errors import HeaderError, MessageIllegalError, MessageRefusedError, RecordError, StoreError
from ...common.names import HALF_TOPIC
from ...common.properties import PRODUCER_GROUP
from ...common.record import Record, decode_record
from ...common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.later import Encoded, Later
from ...remoting.headers.transaction import EndTransactionHeader
from ...remoting.transport.connection import Connection
from ...store.message_store import MessageStore
from ..delay.parking import Parking
from ..send.groupcommit import GroupCommit
from .checkrules import CheckRules, is_too_late
from .halfcopies import HalfCopies
from .halfmessages import committed
from .transactions import Transactions

END_CODES = frozenset({RequestCode.END_TRANSACTION})
_ENDS = (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK)


class Committing(NamedTuple):
    """What makes a message of a committed half message: where it waits, and who waits for the disk."""

    parking: Parking
    group: GroupCommit | None
    now_ms: Callable[[], int]


class EndTransactionHandler:
    """Commits and rolls back."""

    def __init__(
        self, store: MessageStore, transactions: Transactions, rules: CheckRules, committing: Committing
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._rules = rules
        self._parking, self._group, self._now_ms = committing
        self._copies = HalfCopies(store)

    def end(self, command: Command, connection: Connection) -> Command | Encoded | Later:
        """Take in what has become of a transaction."""
        header = decode_header(EndTransactionHeader, command)
        if header.outcome == TRANSACTION_NONE:
            return _no_answer(command)
        if header.outcome not in _ENDS:
            raise HeaderError("commitOrRollback field wrong")
        half = self._find(header.log_offset)
        if half is None:
            return _refused("Find prepared transaction message failed")
        if not header.is_from_check and is_too_late(half, self._rules, self._now_ms()):
            return Command.response(ResponseCode.ILLEGAL_OPERATION)
        if (remark := _mismatch(half, header)) is not None:
            return _refused(remark)
        if header.outcome == TRANSACTION_ROLLBACK:
            self._settle(self._open(self._offsets(half)))
            return Command.response(ResponseCode.SUCCESS)
        return self._commit(command, half)

    def refuse_uncommitted(self, _command: Command, _error: StoreError) -> Command:
        """Return the answer to a transaction whose end could not be written."""
        return _unavailable()

    def _commit(self, command: Command, half: Record) -> Command | Encoded | Later:
        offsets, done = self._offsets(half), Command.response(ResponseCode.SUCCESS)
        is_known = any(self._transactions.is_settled(offset) for offset in offsets)
        still_open = self._open(offsets)
        if not still_open and (is_known or self._copies.is_delivered(half)):
            return done
        try:
            self._store.append(self._parking.place(committed(half), self._now_ms()))
        except MessageIllegalError:
            return Command.response(ResponseCode.MESSAGE_ILLEGAL, _illegal_remark(self._store.config.max_message_bytes))
        except MessageRefusedError as error:
            return Command.response(error.code, error.remark)
        except StoreError:
            return _unavailable()
        self._settle(still_open or [half.queue_offset])
        return self._hold(command, half, done)

    def _hold(self, command: Command, half: Record, done: Command) -> Command | Encoded | Later:
        if self._group is None:
            return done
        reply = self._group.hold(command, str(half.property_text, "utf-8", "replace"), done)
        if isinstance(reply, Later):
            later = reply
            self._group.pay_last_by(lambda paid: later.answer(_as_ended(paid)))
        return reply

    def _find(self, log_offset: int) -> Record | None:
        data = self._store.record_at(log_offset)
        try:
            half = None if data is None else decode_record(data)
        except RecordError:
            return None
        return half if half is not None and half.topic == HALF_TOPIC else None

    def _offsets(self, half: Record) -> list[int]:
        """Return the offsets of a half message that has not been passed by a check, or of all of its copies."""
        offset = half.queue_offset
        if not self._transactions.is_passed(offset):
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


def _mismatch(half: Record, header: EndTransactionHeader) -> str | None:
    if half.properties.get(PRODUCER_GROUP) != header.producer_group:
        return "The producer group wrong"
    if half.queue_offset != header.half_offset:
        return "The transaction state table offset wrong"
    return None if half.log_offset == header.log_offset else "The commit log offset wrong"


def _no_answer(command: Command) -> Later:
    later = Later(command)
    later.write_off()
    return later


def _as_ended(paid: Command | Encoded) -> Command | Encoded:
    """Return what is answered when a send would be answered so."""
    code = paid.code if isinstance(paid, Command) else ResponseCode.SUCCESS
    if code == ResponseCode.FLUSH_DISK_TIMEOUT:
        return Command.response(ResponseCode.SUCCESS)
    return _unavailable() if code == ResponseCode.SERVICE_NOT_AVAILABLE else paid


def _refused(remark: str) -> Command:
    return Command.response(ResponseCode.SYSTEM_ERROR, remark)


def _unavailable() -> Command:
    return Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")


def _illegal_remark(most_bytes: int) -> str:
    return (
        "The message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {most_bytes}B, msg properties length limit 32KB."
    )
