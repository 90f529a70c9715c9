"""END_TRANSACTION, and the broker's questions about transactions that nobody has ended.

Rules

    1. A transaction is known by its topic and the unique key of its message, as long as its half message is there:
       those of this run by a table of the newest, all others by the index of the store, also after a restart. (Upstream
       forgets them after half a minute.)
    2. An end that is not known yet, UNSPECIFIED, is taken for granted: the broker will ask. One that was taken before
       is answered OK again, and nothing happens.
    3. The question is the half message as its consumers would get it, with the id of its transaction. It goes to
       clients only whose users may send to its topic now: it may be the message of somebody else.
"""

import logging
from collections import OrderedDict
from typing import Final

import msgspec

from ...broker.operations import BrokerOperations
from ...broker.security.needs import topic_need
from ...broker.settings.refusal import Refusal
from ...broker.transaction.checks import CheckRequest, asked_record
from ...common.access import Action
from ...common.errors import ConfigError, DecodeError, RecordError
from ...common.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from ...common.names import HALF_TOPIC
from ...common.outcome import Outcome
from ...common.properties import REAL_TOPIC, UNIQ_KEY
from ...common.record import Record, decode_record
from ...store.message_store import MessageStore
from ..messages import v2
from ..messages.delivery import deliver
from ..messages.enums import Code, TransactionResolution, TransactionSource
from ..messages.names import topic_fault
from ..messages.statuses import refused, status
from ..rpc.call import Call
from .calling import Caller, answer, when_settled
from .clients import GrpcClient

MOST_KEPT: Final = 16_384
_MOST_COPIES: Final = 64
_NO_END_MS: Final = 2**62
_OUTCOMES: Final = {
    int(TransactionResolution.COMMIT): TRANSACTION_COMMIT,
    int(TransactionResolution.ROLLBACK): TRANSACTION_ROLLBACK,
}
_SENDS: Final = v2.SendMessageRequest.DESCRIPTOR.full_name
_log = logging.getLogger(__name__)
HalfPlace = tuple[int, int]
"""Where a half message is: its offset in its queue, and in the log."""


class GrpcTransactionEnd(msgspec.Struct):
    """The end of a transaction, in the words of the broker's operation."""

    producer_group: str
    half_offset: int
    log_offset: int
    outcome: int
    is_from_check: bool | None


class TransactionIds:
    """Finds half messages by the ids of their transactions."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._places: OrderedDict[tuple[str, str], HalfPlace] = OrderedDict()

    def __repr__(self) -> str:
        return f"<TransactionIds {len(self._places)} kept>"

    def note(self, topic: str, transaction_id: str, place: HalfPlace) -> None:
        """Note where a half message is."""
        self._places[topic, transaction_id] = place
        if len(self._places) > MOST_KEPT:
            self._places.popitem(last=False)

    def find(self, topic: str, transaction_id: str) -> HalfPlace | None:
        """Return where a half message is, or the newest copy that a check has made of it."""
        place = self._places.get((topic, transaction_id))
        if place is not None and self._store.record_at(place[1]) is not None:
            return place
        found = self._store.query(HALF_TOPIC, transaction_id, _MOST_COPIES, 0, _NO_END_MS, kind="U").records
        halves = [half for data in found if (half := _decode(data)) is not None]
        places = [
            (half.queue_offset, half.log_offset)
            for half in halves
            if half.topic == HALF_TOPIC
            and half.properties.get(UNIQ_KEY) == transaction_id
            and half.properties.get(REAL_TOPIC) == topic
        ]
        return max(places, default=None)


class TransactionService:
    """Ends transactions, and asks about those that nobody ends."""

    def __init__(self, operations: BrokerOperations, ids: TransactionIds) -> None:
        self._operations = operations
        self._ids = ids

    def may_ask(self, client: GrpcClient, topic: str) -> bool:
        """Tell whether a client may see the messages of a topic that are not committed."""
        access = self._operations.access
        if access is None or access.is_free(_SENDS):
            return True
        return client.user is not None and access.may(client.user, topic_need(topic, Action.PUB), client.address[0])

    def end(self, request: v2.EndTransactionRequest, _caller: Caller, call: Call) -> v2.EndTransactionResponse | None:
        """Commit or roll back."""
        fault = topic_fault(request.topic)
        if fault is None and not request.transaction_id.strip():
            fault = status(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        if fault is not None:
            return v2.EndTransactionResponse(status=fault)
        outcome_code = _OUTCOMES.get(request.resolution)
        if outcome_code is None:
            return v2.EndTransactionResponse(status=status(Code.OK))
        topic = request.topic.name
        place = self._ids.find(topic, request.transaction_id)
        if place is None:
            return v2.EndTransactionResponse(status=status(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data"))
        is_from_check = request.source == TransactionSource.SOURCE_SERVER_CHECK
        end = GrpcTransactionEnd(topic, *place, outcome_code, is_from_check)
        when_settled(self._operations.transaction_ends.end(end, waits=True), lambda ended: _answer_end(call, ended))
        return None

    def ask(self, client: GrpcClient, request: CheckRequest, store_host: bytes) -> None:
        """Ask a producer what has become of a transaction."""
        if client.stream is None:
            return
        record = decode_record(asked_record(request, store_host))
        transaction_id = record.properties.get(UNIQ_KEY, "")
        try:
            message = deliver(v2.Message(), record, record.topic)
        except (DecodeError, ConfigError) as error:
            _log.warning("nobody is asked about transaction %s: %s", transaction_id, error)
            return
        question = v2.RecoverOrphanedTransactionCommand(message=message, transaction_id=transaction_id)
        client.stream.write(v2.TelemetryCommand(status=status(Code.OK), recover_orphaned_transaction_command=question))


def _answer_end(call: Call, outcome: Outcome[Refusal | None]) -> None:
    if outcome.failure is not None:
        told = status(Code.INTERNAL_SERVER_ERROR, f"service not available now: {outcome.failure}")
    else:
        told = status(Code.OK) if outcome.answer is None else refused(outcome.answer)
    answer(call, v2.EndTransactionResponse(status=told))


def _decode(data: memoryview) -> Record | None:
    try:
        return decode_record(data)
    except RecordError:
        return None
