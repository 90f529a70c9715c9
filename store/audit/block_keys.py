"""What queue entries and index entries of the records of a block must hold: tag codes and key hashes, with numpy.

Rules are those of ``dispatcher.entry_code`` for a record, and of ``index.property_keys``.
"""

import numpy as np

from ...common.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from ...common.names import SCHEDULE_TOPIC
from ...common.properties import DELAY, TAGS, UNIQ_KEY
from ..commitlog.record_blocks import Block, Longs
from ..index.property_keys import KeyEntries, PropertyKeys, TopicNumbers, number_names
from ..recovery.dispatcher import entry_code


class BlockKeys:
    """Tag codes, index hashes and unique keys of a block."""

    def __init__(self, block: Block, topics: TopicNumbers, delays_ms: tuple[int, ...]) -> None:
        self._block = block
        self._topics = topics
        self._delays_ms = delays_ms
        view = block.segment.view
        ends = (block.properties_at + block.properties_bytes).tolist()
        texts = [view[start:end] for start, end in zip(block.properties_at.tolist(), ends, strict=True)]
        self._properties = PropertyKeys(texts, block.properties_bytes)
        self._tags, self._unique_keys = self._properties.find(TAGS), self._properties.find(UNIQ_KEY)

    def unique_key(self, row: int) -> str | None:
        """Return the unique key of a record."""
        return self._properties.text_of(self._unique_keys, row)

    def topic(self, row: int) -> str:
        """Return the topic of a record."""
        return self._topics.names[int(self._topics.numbers[row])]

    def tags_codes(self) -> Longs:
        """Return what the queue entry of each record holds as its code."""
        codes = np.zeros(len(self._block), np.int64)
        codes[self._tags.rows] = self._properties.hashes(self._tags).astype(np.int32)
        if SCHEDULE_TOPIC in self._topics.names:
            stored_at, delays = self._block.number("stored_at_ms"), self._properties.find(DELAY)
            number = self._topics.names.index(SCHEDULE_TOPIC)
            for row in np.flatnonzero(self._topics.numbers == number).tolist():
                properties = {DELAY: self._properties.text_of(delays, row) or ""}
                properties[TAGS] = self._properties.text_of(self._tags, row) or ""
                codes[row] = entry_code(SCHEDULE_TOPIC, properties, int(stored_at[row]), self._delays_ms)
        return codes

    def key_entries(self) -> KeyEntries:
        """Return the index entries of all records."""
        found = self._properties.entries(self._topics)
        is_kept = self._block.number("sys_flag")[found.rows] & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        return KeyEntries(found.rows[is_kept], found.hashes[is_kept], found.is_tag[is_kept])


def name_topics(block: Block) -> TopicNumbers:
    """Return the topics of a block."""
    view = block.segment.view
    ends = (block.topic_at + block.topic_bytes).tolist()
    numbers, names = number_names(
        [view[start:end].tobytes() for start, end in zip(block.topic_at.tolist(), ends, strict=True)]
    )
    return TopicNumbers(numbers, [str(name, "utf-8", "replace") for name in names])
