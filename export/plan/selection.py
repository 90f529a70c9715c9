"""Which messages of a log are wanted, and why the others are left out; and instants as users write them.

Rules:

- Reasons are tried in the order of ``Reason``; the first that fits is the one that counts.
- Copies that brokers make are left out unless they are asked for: system topics (``common.names``), and the messages
  that wait in retry topics (``%RETRY%…``) or ended in dead-letter topics (``%DLQ%…``), which stand in their own topic
  as well. ``includes_system`` asks for all of these, and naming a topic asks for that one.
- Records of unfinished or rolled back transactions of 4.x brokers (sysFlag 0x4, 0xC) are in no queue: no consumer can
  get them, and their queue offset means nothing.
- A time range holds the store times ``from_ms <= t < until_ms``, a range of queue offsets ``from_offset <= n <
  until_offset``. The messages of an inner batch have offsets, tags and keys of their own, and are judged one by one.
- ``among`` and ``queue_ids`` narrow what is wanted anyway: naming a topic there does not ask for a system topic.
- An instant is epoch milliseconds, or ISO 8601 where no zone means UTC (``parse_instant``).
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...common.errors import ConfigError
from ...common.message import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from ...common.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ...store.commitlog.record_blocks import Block

ReasonCodes = npt.NDArray[np.uint8]


class Reason(IntEnum):
    """Why a message is no row."""

    WANTED = 0
    NOT_QUEUED = 1
    TOPIC = 2
    SYSTEM_TOPIC = 3
    RETRY_TOPIC = 4
    DEAD_LETTER_TOPIC = 5
    QUEUE = 6
    OFFSET = 7
    TIME = 8
    TAG = 9
    KEY = 10

    @property
    def label(self) -> str:
        """The reason as reports print it."""
        return self.name.lower().replace("_", " ")


class MessageColumns(Protocol):
    """Messages by column, each with the row of its record."""

    @property
    def owners(self) -> npt.NDArray[np.int64]:
        """The row of the record of each message."""
        ...

    def column(self, name: str) -> pa.Array:
        """Return one column of ``schema``."""
        ...


@dataclass(frozen=True)
class Selection:
    """What is wanted; an empty set of topics, tags or keys wants them all, ``None`` wants every topic and queue."""

    topics: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    from_ms: int | None = None
    until_ms: int | None = None
    includes_system: bool = False
    among: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    from_offset: int | None = None
    until_offset: int | None = None

    def judge(self, block: Block, topic_codes: npt.NDArray[np.int64], topics: Sequence[str]) -> ReasonCodes:
        """Return the reason for each record, as far as its head and topic tell."""
        by_topic = np.array([self._judge_topic(topic) for topic in topics], np.uint8)
        codes = by_topic[topic_codes]
        if self.queue_ids is not None:
            is_other = ~np.isin(block.number("queue_id"), sorted(self.queue_ids))
            codes[(codes == Reason.WANTED) & is_other] = Reason.QUEUE
        is_single = block.number("sys_flag") & INNER_BATCH == 0
        is_other = _is_outside(block.number("queue_offset"), self.from_offset, self.until_offset)
        codes[(codes == Reason.WANTED) & is_single & is_other] = Reason.OFFSET
        is_other = _is_outside(block.number("stored_at_ms"), self.from_ms, self.until_ms)
        codes[(codes == Reason.WANTED) & is_other] = Reason.TIME
        states = block.number("sys_flag") & TRANSACTION_MASK
        codes[(states == TRANSACTION_PREPARED) | (states == TRANSACTION_ROLLBACK)] = Reason.NOT_QUEUED
        return codes

    def judge_rows(self, rows: MessageColumns) -> ReasonCodes | None:
        """Return the reason for each message, as far as only the message tells; ``None`` if all are wanted."""
        codes = np.zeros(len(rows.owners), np.uint8)
        if self.keys:
            keys, words = rows.column("keys"), pa.array(sorted(self.keys), pa.string())
            found = pc.list_parent_indices(keys).filter(pc.is_in(keys.flatten(), words))
            codes[~np.isin(np.arange(len(keys)), np.asarray(found))] = Reason.KEY
        if self.tags:
            is_wanted = pc.is_in(rows.column("tags"), pa.array(sorted(self.tags), pa.string()))
            codes[~np.asarray(is_wanted)] = Reason.TAG
        offsets = np.asarray(rows.column("queueOffset"))
        codes[_is_outside(offsets, self.from_offset, self.until_offset)] = Reason.OFFSET
        return codes if codes.any() else None

    def wants_topic(self, topic: str) -> bool:
        """Tell whether messages of a topic may be wanted."""
        return self._judge_topic(topic) == Reason.WANTED

    def _judge_topic(self, topic: str) -> Reason:
        if self.among is not None and topic not in self.among:
            return Reason.TOPIC
        if self.topics:
            return Reason.WANTED if topic in self.topics else Reason.TOPIC
        if self.includes_system:
            return Reason.WANTED
        if is_system_topic(topic):
            return Reason.SYSTEM_TOPIC
        if topic.startswith(RETRY_PREFIX):
            return Reason.RETRY_TOPIC
        return Reason.DEAD_LETTER_TOPIC if topic.startswith(DLQ_PREFIX) else Reason.WANTED


def _is_outside(numbers: npt.NDArray[np.int64], first: int | None, behind: int | None) -> npt.NDArray[np.bool_]:
    outside = np.zeros(len(numbers), np.bool_)
    if first is not None:
        outside |= numbers < first
    if behind is not None:
        outside |= numbers >= behind
    return outside


# Seconds from 1973 to 5138. As milliseconds they are days of 1970 to 1973, when there was no message.
_SECONDS: Final = range(100_000_000, 100_000_000_000)


def parse_instant(text: str, key: str) -> int:
    """Return epoch milliseconds.

    Raises:
        ConfigError: The text is neither, or seconds; the message names the option ``key``.
    """
    word = text.strip()
    if word.removeprefix("-").isdecimal():
        return _checked(int(word), key)
    try:
        at = datetime.datetime.fromisoformat(word)
    except ValueError:
        raise ConfigError(f"{key} is {text!r}, neither epoch milliseconds nor an ISO 8601 time", key=key) from None
    zoned = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
    return (zoned - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)


def _checked(at_ms: int, key: str) -> int:
    if at_ms in _SECONDS:
        day = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).date()
        raise ConfigError(f"{key} is {at_ms}, as epoch milliseconds {day}; of seconds it would be {at_ms}000", key=key)
    return at_ms
