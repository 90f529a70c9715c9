"""Which half messages are settled, and how far the topics of transactions are done with (store.md §11.3, §11.4).

Rules

    1. Op messages are the truth, half messages that none of them names are open. At the start those from the op cursor
       on are read, a few in each turn of the loop; from then on memory knows what is settled.
    2. What is settled in one read of a connection is named by one op message, in the same commit as the messages that
       were committed, and behind them: a crash leaves neither out, or the op message only. (Java collects op messages
       for three seconds, in memory.) When that commit fails, nothing has been settled.
    3. Half messages below the half cursor have been looked at by a check. They are settled or were copied further on.
    4. The op cursor moves when the half cursor has passed all half messages that were there when the op messages
       before it were: those name no later ones. Two numbers for each check are enough to know that.
    5. The cursors are those of the group CID_RMQ_SYS_TRANS in ``consumerOffset.json``. They move there when the log up
       to them is on disk: after a crash a check starts again at what may have lost its copy.
    6. Nearly all messages are settled soon after they came, so memory has a bit for each, from the first that is of
       interest on: a million half messages that nobody has settled take 125 kB. Runs of settled ones are passed eight
       at a time by a search in C.
"""

import logging
import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...common.errors import RecordError, StoreError
from ...common.names import HALF_TOPIC, OP_HALF_TOPIC
from ...common.record import decode_record
from ...store.message_store import MessageStore
from ..group.groups import OffsetTable
from ..outcomes.scheduler import CommitParticipant
from .half_messages import op_messages, settled_offsets

_HAS_OPEN = re.compile(rb"[^\xff]")
_BITS = 8


class SettledOffsets:
    """Which queue offsets are settled, from one on."""

    def __init__(self, first: int) -> None:
        self._base = first - first % _BITS  # the number of the first bit
        self._bits = bytearray()

    def __repr__(self) -> str:
        return f"<SettledOffsets from {self._base}, {len(self._bits)} bytes>"

    def __contains__(self, number: int) -> bool:
        byte, bit = divmod(number - self._base, _BITS)
        return 0 <= byte < len(self._bits) and bool(self._bits[byte] & 1 << bit)

    def add(self, number: int) -> None:
        """Put a number in."""
        byte, bit = divmod(number - self._base, _BITS)
        if byte < 0:
            return
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << bit

    def discard(self, number: int) -> None:
        """Take a number out."""
        byte, bit = divmod(number - self._base, _BITS)
        if 0 <= byte < len(self._bits):
            self._bits[byte] &= ~(1 << bit)

    def next_open(self, number: int, end: int) -> int:
        """Return the first number from ``number`` on that is not in the set; ``end`` when all below it are."""
        byte, bit = divmod(number - self._base, _BITS)
        while number < end and byte < len(self._bits):
            missing = ~self._bits[byte] & 0xFF << bit & 0xFF
            if missing:
                number = self._base + byte * _BITS + (missing & -missing).bit_length() - 1
                return min(number, end)
            found = _HAS_OPEN.search(self._bits, byte + 1)
            byte, bit = found.start() if found else len(self._bits), 0
            number = self._base + byte * _BITS
        return min(number, end)

    def forget_below(self, number: int) -> None:
        """Drop the numbers below one, or a few less."""
        count = (number - self._base) // _BITS
        if count > 0:
            del self._bits[:count]
            self._base += count * _BITS


TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
OPS_A_TURN = 128
_MOST_MARKS = 64
_TOPICS = (HALF_TOPIC, OP_HALF_TOPIC)
_log = logging.getLogger(__name__)


class Cursors(NamedTuple):
    """The first half message that is not done with, and the first op message that names one."""

    half: int
    op: int


class Transactions:
    """The half messages of a broker.

    ``join`` lets them add op messages to a commit; the body of one has about ``most_op_bytes`` at most.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: OffsetTable,
        join: Callable[[CommitParticipant], None],
        now_ms: Callable[[], int],
        *,
        most_op_bytes: int,
    ) -> None:
        self.store = store
        self._join = join
        self._now_ms = now_ms
        self._offsets = offsets
        self._most_op_bytes = most_op_bytes
        self.cursors = Cursors(self._committed(HALF_TOPIC), self._committed(OP_HALF_TOPIC))
        self._next_op = self.cursors.op
        self._settled = SettledOffsets(self.cursors.half)
        self._late: set[int] = set()
        self._copies: dict[int, int] = {}
        self._unnamed: list[int] = []
        self._joined: list[int] = []
        self._marks: deque[Cursors] = deque()

    def __repr__(self) -> str:
        return f"<Transactions at {self.cursors}, {self._settled!r}>"

    # --- what is settled

    def is_settled(self, half_offset: int) -> bool:
        """Tell whether a half message is known to be settled; of those below the cursor, only since the last round."""
        return half_offset in (self._late if self.is_passed(half_offset) else self._settled)

    def is_passed(self, half_offset: int) -> bool:
        """Tell whether a half message has been looked at by a check: it has a copy, or is done with."""
        return half_offset < self.cursors.half

    def next_open(self, half_offset: int, end: int) -> int:
        """Return the next half message from one on that is open; ``end`` if there is none."""
        return self._settled.next_open(half_offset, end)

    @property
    def open_offsets(self) -> list[int]:
        """The half messages that nobody has decided about; copies that a check has made stand for their originals."""
        end = self.store.max_offset(HALF_TOPIC, 0)
        found: list[int] = []
        half_offset = self.next_open(self.cursors.half, end)
        while half_offset < end:
            found.append(half_offset)
            half_offset = self.next_open(half_offset + 1, end)
        return found

    @property
    def has_open(self) -> bool:
        """Whether there is a half message that nobody has decided about."""
        end = self.store.max_offset(HALF_TOPIC, 0)
        return self.next_open(self.cursors.half, end) < end

    def settle(self, half_offset: int) -> None:
        """Note that a half message is settled, as soon as what is planned has been written."""
        (self._late if self.is_passed(half_offset) else self._settled).add(half_offset)
        self._unnamed.append(half_offset)
        self._join(self)

    def note_copy(self, half_offset: int, copy_offset: int) -> None:
        """Note where the copy of a half message is that is about to be passed."""
        self._copies[half_offset] = copy_offset

    @property
    def has_copies(self) -> bool:
        """Whether there are copies that have not been forgotten."""
        return bool(self._copies)

    def unreadable_copy(self, half_offset: int) -> int | None:
        """Return where the copy of a half message is, as long as it cannot be read."""
        return self._copies.get(half_offset)

    def forget_copies(self) -> None:
        """Forget the copies: all of them can be read, and are found by the index."""
        self._copies.clear()

    def join(self) -> None:
        """Add the op messages to a commit; the scheduler calls this."""
        self._joined, self._unnamed = self._unnamed, []
        try:
            for new in op_messages(self._joined, self._most_op_bytes, self._now_ms(), self.store.store_host):
                self.store.append(new)
        except StoreError as error:  # known to memory all the same: only after a restart they are checked again
            _log.warning(
                "writing op messages failed, settled transactions are checked again after a restart: %s", error
            )

    def undo(self) -> None:
        """Take back what that commit would have settled; the scheduler calls this when nothing of it was kept."""
        for half_offset in self._joined:
            self._settled.discard(half_offset)
            self._late.discard(half_offset)
            self._copies.pop(half_offset, None)

    # --- reading op messages at the start

    def read_ops(self) -> bool:
        """Read some of the op messages that were there at the start; tell whether there are more."""
        end = self.store.max_offset(OP_HALF_TOPIC, 0)
        entries = self.store.entries(OP_HALF_TOPIC, 0, self._next_op, OPS_A_TURN)
        for log_offset, size, _ in entries:
            self._read_op(log_offset, size)
        self._next_op += len(entries)
        return bool(entries) and self._next_op < end

    def _read_op(self, log_offset: int, size: int) -> None:
        data = self.store.record_at(log_offset, size)
        try:
            op = None if data is None else decode_record(data)
        except RecordError as error:
            _log.error("skipping the op message at log offset %d, which cannot be read: %s", log_offset, error)
            return
        if op is None:
            return  # gone, or the filling before a queue's first entry
        end = self.store.max_offset(HALF_TOPIC, 0)
        for half_offset in settled_offsets(op):
            if self.cursors.half <= half_offset < end:
                self._settled.add(half_offset)

    # --- the cursors

    def mark(self) -> None:
        """Note at the beginning of a round what is there: when it has been passed, its op messages are done with."""
        self._late.clear()
        mark = Cursors(self.store.max_offset(HALF_TOPIC, 0), self.store.max_offset(OP_HALF_TOPIC, 0))
        if len(self._marks) == _MOST_MARKS:
            self._marks.pop()
        if not self._marks or self._marks[-1] != mark:
            self._marks.append(mark)

    def pass_to(self, half_offset: int) -> None:
        """Move the half cursor, and the op cursor as far as that allows."""
        op_offset = self.cursors.op
        while self._marks and self._marks[0].half <= half_offset:
            op_offset = self._marks.popleft().op
        self.cursors = Cursors(half_offset, op_offset)
        self._settled.forget_below(half_offset)

    def is_saved(self, cursors: Cursors) -> bool:
        """Tell whether the table holds these cursors; one that has not left the beginning need not be in it."""
        return cursors == tuple(self._offsets.committed(TRANSACTION_GROUP, topic, 0) or 0 for topic in _TOPICS)

    def save(self, cursors: Cursors) -> None:
        """Put cursors into the table; the log that was there when they were asked for is on disk."""
        for topic, queue_offset in zip(_TOPICS, cursors, strict=True):
            self._offsets.commit(TRANSACTION_GROUP, topic, 0, queue_offset)

    def _committed(self, topic: str) -> int:
        """Return the saved cursor, moved into its queue."""
        saved = self._offsets.committed(TRANSACTION_GROUP, topic, 0) or 0
        return min(max(saved, self.store.min_offset(topic, 0)), self.store.max_offset(topic, 0))
