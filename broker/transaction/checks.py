"""Which open transactions a round of checks asks about, spares or gives up (behaviour.md B.11, store.md §11.4).

Upstream: ``TransactionalMessageServiceImpl.check``.

Rules
    1. A round goes through the open half messages from the half cursor on, in order, until one is too young or the
       queue ends, for a minute at most. Settled ones cost nothing.
    2. An open half message that is passed is copied to the end of its queue, with the number of checks, and producers
       are asked about the copy; or a copy goes to those that were given up. So the cursor moves on, and an old open
       message never stands before younger ones.
    3. A turn of the loop looks at ``MOST_MESSAGES`` half messages, and copies ``MOST_BYTES`` or one message. Copies and
       the op message for what they replace are written together; the cursor moves when that was done.
    4. Producers are asked when the copy can be read: they answer at once.
    5. A half message that cannot be read, or says not where it belongs, is passed and named in the log; one that
       cannot be copied is given up.

What ``judge`` says of an open half message, the first line that fits:

    asked about often enough, or older than files are kept                    GIVE_UP
    stored since the round began                                              STOP: a later round
    with an immunity of its own that is not over, from its born time on       SPARE
    without one, born less than the time-out ago                              STOP: those behind it are younger
    otherwise, also if it was born in the future                              ASK

Java's loop also waits for op messages that are on their way; here none is, memory knows what is settled.
"""

import enum
import logging
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ...common.errors import MessageIllegalError, RecordError, StoreNotWritableError
from ...common.names import HALF_TOPIC
from ...common.properties import (
    CHECK_IMMUNITY_TIME,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)
from ...common.record import NewRecord, Record, decode_record, encode_record
from ...store.consumequeue.appended import Appended
from .half_messages import asked_again, real_place, spared
from .transactions import Transactions


class CheckRequest(NamedTuple):
    """A half message that somebody is to be asked about: the copy that was made for it, and where it is."""

    copy: NewRecord
    place: Appended
    stored_at_ms: int


class ProducerLink(Protocol):
    """A producer that is asked by another protocol than remoting."""

    @property
    def peer(self) -> str:
        """Its address."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """How much it has not taken of what it was sent."""
        ...

    def ask_transaction(self, request: CheckRequest, store_host: bytes) -> None:
        """Ask what has become of a transaction."""
        ...

    def may_be_asked(self, topic: str) -> bool:
        """Tell whether it may see messages of a topic that are not committed."""
        ...


class CheckSender(Protocol):
    """Who asks producers."""

    def begin(self) -> None:
        """Begin a round."""
        ...

    def ask(self, request: CheckRequest, store_host: bytes) -> None:
        """Ask a producer of the message's group, if there is one."""
        ...


def asked_record(request: CheckRequest, store_host: bytes) -> bytes:
    """Return the half message that somebody is asked about, as a record of its own topic and queue."""
    copy, place = request.copy, request.place
    own = NewRecord(
        copy.properties[REAL_TOPIC],
        int(copy.properties[REAL_QUEUE_ID]),
        copy.body,
        copy.property_text,
        copy.properties,
        copy.flag,
        copy.sys_flag,
        copy.born_at_ms,
        copy.born_host,
        copy.reconsume_times,
    )
    return encode_record(own, place.queue_offset, place.log_offset, request.stored_at_ms, store_host)


_NUMBER = re.compile(r"[+-]?\d{1,18}")
_UNREADABLE = -1


class CheckRules(NamedTuple):
    """How long nobody is asked, how often somebody is, and how long files are kept."""

    timeout_ms: int
    most_checks: int
    reserved_ms: int


class CheckVerdict(enum.Enum):
    """What to do with a half message."""

    GIVE_UP = enum.auto()
    STOP = enum.auto()
    SPARE = enum.auto()
    ASK = enum.auto()


def judge(half: Record, rules: CheckRules, began_at_ms: int, now_ms: int) -> CheckVerdict:
    """Return what a round that began then does with an open half message now."""
    properties, age_ms = half.properties, now_ms - half.born_at_ms
    if check_times(properties) >= rules.most_checks or age_ms > rules.reserved_ms:
        return CheckVerdict.GIVE_UP
    if half.stored_at_ms >= began_at_ms:
        return CheckVerdict.STOP
    immunity = properties.get(CHECK_IMMUNITY_TIME)
    if immunity is not None:
        return CheckVerdict.SPARE if age_ms <= _immunity_ms(immunity, rules.timeout_ms) else CheckVerdict.ASK
    return CheckVerdict.STOP if 0 <= age_ms <= rules.timeout_ms else CheckVerdict.ASK


def check_times(properties: Mapping[str, str]) -> int:
    """Return how often producers have been asked; a number that cannot be read counts as -1, as with Java."""
    text = properties.get(TRANSACTION_CHECK_TIMES)
    return 0 if text is None else _read(text)


def is_too_late(half: Record, rules: CheckRules, now_ms: int) -> bool:
    """Tell whether only the answer to a check may end the transaction: its own immunity is over."""
    immunity = half.properties.get(CHECK_IMMUNITY_TIME)
    if immunity is None:
        return False
    seconds = _read(immunity) if _NUMBER.fullmatch(immunity) else 0
    return now_ms - half.born_at_ms > max(1_000 * seconds, rules.timeout_ms)


def _immunity_ms(text: str, timeout_ms: int) -> int:
    seconds = _read(text)
    return timeout_ms if seconds == _UNREADABLE else 1_000 * seconds


def _read(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else _UNREADABLE


MOST_MESSAGES = 32
MOST_BYTES = 1 << 20
MOST_ROUND_MS = 60_000
_log = logging.getLogger(__name__)

GiveUp = Callable[[Record], NewRecord | None]
"""What is kept of a half message that nobody has decided about; ``None``: nothing."""


class Step(NamedTuple):
    """What one turn has done; ``questions`` are to be asked when its records can be read."""

    questions: list[CheckRequest]
    is_last: bool
    failure: StoreNotWritableError | OSError | None


class TransactionChecks:
    """The rounds of one broker; ``commit`` writes what was appended to the store."""

    def __init__(
        self, transactions: Transactions, commit: Callable[[], None], rules: Callable[[], CheckRules], give_up: GiveUp
    ) -> None:
        self.store = transactions.store
        self.transactions = transactions
        self._commit = commit
        self._rules = rules
        self._give_up = give_up

    def step(self, began_at_ms: int, now_ms: int) -> Step:
        """Look at some half messages in the round that began then.

        Raises:
            StoreNotWritableError: Nothing of it could be written; it comes next again.
        """
        turn = _Turn(self.transactions.cursors.half, self.store.log_append_offset)
        failure: StoreNotWritableError | OSError | None = None
        is_last = now_ms - began_at_ms > MOST_ROUND_MS
        try:
            while not is_last and self._has_room(turn):
                is_last = not self._pass_next(turn, began_at_ms, now_ms)
        except (StoreNotWritableError, OSError) as error:  # what was appended before is committed and done with
            failure = error
        self._commit()
        self.transactions.pass_to(turn.position)
        return Step(turn.questions, is_last, failure)

    def _has_room(self, turn: "_Turn") -> bool:
        return turn.count < MOST_MESSAGES and self.store.log_append_offset - turn.log_offset < MOST_BYTES

    def _pass_next(self, turn: "_Turn", began_at_ms: int, now_ms: int) -> bool:
        """Pass one open half message; tell whether there was one that may be passed."""
        store = self.store
        end = store.max_offset(HALF_TOPIC, 0)
        turn.position = self.transactions.next_open(max(turn.position, store.min_offset(HALF_TOPIC, 0)), end)
        if turn.position >= end:
            return False
        turn.count += 1
        half = self._read(turn.position)
        if half is not None:
            verdict = judge(half, self._rules(), began_at_ms, now_ms)
            if verdict is CheckVerdict.STOP:
                return False
            self._copy(half, verdict, turn)
            self.transactions.settle(turn.position)
        turn.position += 1
        return True

    def _copy(self, half: Record, verdict: CheckVerdict, turn: "_Turn") -> None:
        """Append the copy that stands for a half message from now on, or what is kept of it."""
        try:
            if verdict is CheckVerdict.GIVE_UP:
                self._keep(half)
                return
            times = check_times(half.properties) + 1
            copy = spared(half) if verdict is CheckVerdict.SPARE else asked_again(half, times)
            placed = self.store.append(copy)
            self.transactions.note_copy(half.queue_offset, placed.queue_offset)
            if verdict is CheckVerdict.ASK:
                turn.questions.append(CheckRequest(copy, placed, half.stored_at_ms))
        except MessageIllegalError as error:
            text = "giving up the transaction of the half message at offset %d, it cannot be copied: %s"
            _log.error(text, half.queue_offset, error)
            if verdict is not CheckVerdict.GIVE_UP:
                self._copy(half, CheckVerdict.GIVE_UP, turn)

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
            self.store.append(kept)

    def _read(self, half_offset: int) -> Record | None:
        """Return a half message, None when there is none that can be checked."""
        entries = self.store.entries(HALF_TOPIC, 0, half_offset, 1)
        data = self.store.record_at(*entries[0][:2]) if entries else None
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
        self.questions: list[CheckRequest] = []
