"""Checks of open transactions (``TransactionalMessageServiceImpl.check``; behaviour.md B.11, store.md §11.4).

Rules

    1. A round goes through the open half messages from the half cursor on, in order, until one is too young or the
       queue ends, for a minute at most. Settled ones cost nothing. What is done with an open one, ``checkrules`` says.
    2. An open half message that is passed is copied to the end of its queue, with the number of checks, and producers
       are asked about the copy; or a copy goes to those that were given up. So the cursor moves on, and an old open
       message never stands before younger ones.
    3. A turn of the loop looks at ``MOST_MESSAGES`` half messages, and copies ``MOST_BYTES`` or one message. Copies and
       the op message for what they replace are written together; the cursor moves when that was done.
    4. Producers are asked when the copy can be read: they answer at once.
    5. A half message that cannot be read, or says not where it belongs, is passed and named in the log; one that
       cannot be copied is given up.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from ...common.errors import MessageIllegalError, RecordError, StoreNotWritableError
from ...common.names import HALF_TOPIC
from ...common.properties import PRODUCER_GROUP, REAL_TOPIC, UNIQ_KEY
from ...common.record import NewRecord, Record, decode_record
from ...store.message_store import MessageStore
from .checkback import Question
from .checkrules import CheckRules, Verdict, check_times, judge
from .halfmessages import asked_again, real_place, spared
from .transactions import Transactions

MOST_MESSAGES = 32
MOST_BYTES = 1 << 20
MOST_ROUND_MS = 60_000
_log = logging.getLogger(__name__)

GiveUp = Callable[[Record], NewRecord | None]
"""What is kept of a half message that nobody has decided about; ``None``: nothing."""


class Step(NamedTuple):
    """What one turn has done; ``questions`` are to be asked when its records can be read."""

    questions: list[Question]
    is_last: bool
    failure: StoreNotWritableError | OSError | None = None


class TransactionChecks:
    """The rounds of one broker; ``commit`` writes what was appended to the store."""

    def __init__(
        self,
        store: MessageStore,
        commit: Callable[[], None],
        transactions: Transactions,
        rules: CheckRules,
        give_up: GiveUp,
    ) -> None:
        self._store = store
        self._commit = commit
        self._transactions = transactions
        self._rules = rules
        self._give_up = give_up

    def step(self, began_at_ms: int, now_ms: int) -> Step:
        """Look at some half messages in the round that began then.

        Raises:
            StoreNotWritableError: Nothing of it could be written; it comes next again.
        """
        turn = _Turn(self._transactions.cursors.half, self._store.log_append_offset)
        failure: StoreNotWritableError | OSError | None = None
        is_last = now_ms - began_at_ms > MOST_ROUND_MS
        try:
            while not is_last and self._has_room(turn):
                is_last = not self._pass_next(turn, began_at_ms, now_ms)
        except (StoreNotWritableError, OSError) as error:  # what was appended before is committed and done with
            failure = error
        self._commit()
        self._transactions.pass_to(turn.position)
        return Step(turn.questions, is_last, failure)

    def _has_room(self, turn: "_Turn") -> bool:
        return turn.count < MOST_MESSAGES and self._store.log_append_offset - turn.log_offset < MOST_BYTES

    def _pass_next(self, turn: "_Turn", began_at_ms: int, now_ms: int) -> bool:
        """Pass one open half message; tell whether there was one that may be passed."""
        store = self._store
        end = store.max_offset(HALF_TOPIC, 0)
        turn.position = self._transactions.next_open(max(turn.position, store.min_offset(HALF_TOPIC, 0)), end)
        if turn.position >= end:
            return False
        turn.count += 1
        half = self._read(turn.position)
        if half is not None:
            verdict = judge(half, self._rules, began_at_ms, now_ms)
            if verdict is Verdict.STOP:
                return False
            self._copy(half, verdict, turn)
            self._transactions.settle(turn.position)
        turn.position += 1
        return True

    def _copy(self, half: Record, verdict: Verdict, turn: "_Turn") -> None:
        """Append the copy that stands for a half message from now on, or what is kept of it."""
        try:
            if verdict is Verdict.GIVE_UP:
                self._keep(half)
                return
            times = check_times(half.properties) + 1
            copy = spared(half) if verdict is Verdict.SPARE else asked_again(half, times)
            placed = self._store.append(copy)
            self._transactions.note_copy(half.queue_offset, placed.queue_offset)
            if verdict is Verdict.ASK:
                turn.questions.append(Question(copy, placed, half.stored_at_ms))
        except MessageIllegalError as error:
            text = "giving up the transaction of the half message at offset %d, it cannot be copied: %s"
            _log.error(text, half.queue_offset, error)
            if verdict is not Verdict.GIVE_UP:
                self._copy(half, Verdict.GIVE_UP, turn)

    def _keep(self, half: Record) -> None:
        about = half.properties
        _log.error(
            "giving up transaction %s of producer group %s after %d checks; its message was for topic %s",
            about.get(UNIQ_KEY),
            about.get(PRODUCER_GROUP),
            check_times(about),
            about[REAL_TOPIC],
        )
        kept = self._give_up(half)
        if kept is not None:
            self._store.append(kept)

    def _read(self, half_offset: int) -> Record | None:
        """Return a half message, None when there is none that can be checked."""
        entries = self._store.entries(HALF_TOPIC, 0, half_offset, 1)
        data = self._store.record_at(*entries[0][:2]) if entries else None
        if data is None:
            return None  # gone, or the filling before a queue's first entry
        try:
            half = decode_record(data)
            real_place(half)
        except (RecordError, MessageIllegalError) as error:
            _log.error("skipping the check of the half message at offset %d: %s", half_offset, error)
            return None
        return half


class _Turn:
    """What one turn of the loop has come to: the next half message, and the questions about those before it."""

    def __init__(self, position: int, log_offset: int) -> None:
        self.position = position
        self.log_offset = log_offset
        self.count = 0
        self.questions: list[Question] = []
