"""When the delayed messages of a block are due: the codes of their queue entries, for all rows at once.

The level is looked for in the properties of each record. One that is not written as one or two digits, or that
``parse_properties`` has to judge, leaves its row not plain. ``duetimes`` holds the rules.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...common.names import SCHEDULE_TOPIC
from ..commitlog.block_tags import TagCodes, find_last
from ..commitlog.record_blocks import Block, Longs, Mask
from ..consumequeue.entry_rules import UNKNOWN_LEVEL_MS

_DELAY: Final = b"DELAY\x01"
_END: Final = 2


def with_due_times(block: Block, codes: TagCodes, delays_ms: Sequence[int]) -> TagCodes:
    """Return the codes, with due times in the rows of delayed messages; ``codes`` is changed."""
    rows = np.flatnonzero(block.topic_bytes == len(SCHEDULE_TOPIC))
    rows = rows[block.segment.gather(block.topic_at[rows], f"S{len(SCHEDULE_TOPIC)}") == SCHEDULE_TOPIC.encode()]
    if len(rows):
        levels = _levels(block, rows)
        delays = np.array(delays_ms or (UNKNOWN_LEVEL_MS,))
        codes.values[rows] = block.number("stored_at_ms")[rows] + delays[np.clip(levels, 1, len(delays)) - 1]
        codes.is_plain[rows] = levels > 0
    return codes


def _levels(block: Block, rows: Longs) -> Longs:
    """Return the level of each row, 0 where it cannot be told."""
    starts, bytes_at = block.properties_at[rows], block.segment.numbers
    ends = starts + block.properties_bytes[rows]
    at = find_last(block.segment.view, _DELAY, starts, ends)
    is_name = at >= 0
    is_name[is_name] = (at[is_name] == starts[is_name]) | (bytes_at[at[is_name] - 1] == _END)
    levels = np.zeros(len(rows), np.int64)
    levels[is_name] = _numbers(bytes_at, at[is_name] + len(_DELAY), ends[is_name])
    return levels


def _numbers(bytes_at: npt.NDArray[np.uint8], at: Longs, ends: Longs) -> Longs:
    """Return the numbers of one or two digits that stand there and end as values do, 0 where there is none."""

    def is_end(places: Longs) -> Mask:
        return (places >= ends) | (bytes_at[np.minimum(places, ends - 1)] == _END)

    first, second = (bytes_at[np.minimum(at + place, ends - 1)].astype(np.int64) - ord("0") for place in range(2))
    is_first = (first >= 0) & (first <= 9) & ~is_end(at)
    is_second = (second >= 0) & (second <= 9) & ~is_end(at + 1)
    one, two = is_first & is_end(at + 1), is_first & is_second & is_end(at + 2)
    return np.where(one, first, np.where(two, 10 * first + second, 0))
