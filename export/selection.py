"""Which messages of a log are wanted, and why the others are left out.

Rules:

- Reasons are tried in the order of ``Reason``; the first that fits is the one that counts.
- Copies that brokers make are left out unless they are asked for: system topics (``common.names``), and the messages
  that wait in retry topics (``%RETRY%…``) or ended in dead-letter topics (``%DLQ%…``), which stand in their own topic
  as well. ``includes_system`` asks for all of these, and naming a topic asks for that one.
- Records of unfinished or rolled back transactions of 4.x brokers (sysFlag 0x4, 0xC) are in no queue: no consumer can
  get them, and their queue offset means nothing.
- A time range holds the store times ``from_ms <= t < until_ms``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..common.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ..common.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from ..store.block import Block

Codes = npt.NDArray[np.uint8]


class Reason(IntEnum):
    """Why a message is no row."""

    WANTED = 0
    NOT_QUEUED = 1
    TOPIC = 2
    SYSTEM_TOPIC = 3
    RETRY_TOPIC = 4
    DEAD_LETTER_TOPIC = 5
    TIME = 6
    TAG = 7
    KEY = 8

    @property
    def label(self) -> str:
        """The reason as reports print it."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Selection:
    """What is wanted; an empty set of topics, tags or keys wants them all."""

    topics: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    from_ms: int | None = None
    until_ms: int | None = None
    includes_system: bool = False

    def judge(self, block: Block, topic_codes: npt.NDArray[np.int64], topics: Sequence[str]) -> Codes:
        """Return the reason for each record, as far as its head and topic tell."""
        by_topic = np.array([self._judge_topic(topic) for topic in topics], np.uint8)
        codes = by_topic[topic_codes]
        if self.from_ms is not None or self.until_ms is not None:
            codes[(codes == Reason.WANTED) & self._is_outside(block.number("stored_at_ms"))] = Reason.TIME
        states = block.number("sys_flag") & TRANSACTION_MASK
        codes[(states == TRANSACTION_PREPARED) | (states == TRANSACTION_ROLLBACK)] = Reason.NOT_QUEUED
        return codes

    def judge_words(self, tags: pa.Array, keys: pa.Array) -> Codes:
        """Return the reason for each message, by its tags and keys."""
        codes = np.zeros(len(tags), np.uint8)
        if self.keys:
            words = pa.array(sorted(self.keys), pa.string())
            rows = pc.list_parent_indices(keys).filter(pc.is_in(keys.flatten(), words))
            codes[~np.isin(np.arange(len(keys)), np.asarray(rows))] = Reason.KEY
        if self.tags:
            is_wanted = pc.is_in(tags, pa.array(sorted(self.tags), pa.string()))
            codes[~np.asarray(is_wanted)] = Reason.TAG
        return codes

    def _judge_topic(self, topic: str) -> Reason:
        if self.topics:
            return Reason.WANTED if topic in self.topics else Reason.TOPIC
        if self.includes_system:
            return Reason.WANTED
        if is_system_topic(topic):
            return Reason.SYSTEM_TOPIC
        if topic.startswith(RETRY_PREFIX):
            return Reason.RETRY_TOPIC
        return Reason.DEAD_LETTER_TOPIC if topic.startswith(DLQ_PREFIX) else Reason.WANTED

    def _is_outside(self, stored_at_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        outside = np.zeros(len(stored_at_ms), np.bool_)
        if self.from_ms is not None:
            outside |= stored_at_ms < self.from_ms
        if self.until_ms is not None:
            outside |= stored_at_ms >= self.until_ms
        return outside
