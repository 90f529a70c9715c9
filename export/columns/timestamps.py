"""Milliseconds as the timestamps of columns: instants of the years 1 to 9999, others null."""

from typing import Final

import pyarrow as pa

from ...store.commitlog.record_blocks import Longs, Mask
from .schema import TIMESTAMP

FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999


def make_timestamps(at_ms: Longs, is_known: Mask | None = None) -> pa.Array:
    """Return the timestamps, null for what is not known."""
    absent = (at_ms < FIRST_MS) | (at_ms > LAST_MS)
    if is_known is not None:
        absent |= ~is_known
    return pa.array(at_ms * 1000, pa.int64(), mask=absent if absent.any() else None).view(TIMESTAMP)
