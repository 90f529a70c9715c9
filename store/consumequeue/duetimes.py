"""When a delayed message is due, as its queue entry says in the place of a tags code (store.md §3.2, §10.1).

Rules

- It is the store time plus the delay of its level (``messageDelayLevel``); a level above the highest is the highest.
- An entry keeps the time that it was given, when the levels are others after a restart; Java's broker leaves it alone,
  too. Delays are whole seconds, so the old time and the one that the levels give now are whole seconds apart: that
  tells other levels from damage, a single wrong bit always.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from ...common.names import SCHEDULE_TOPIC
from ...common.properties import DELAY

UNKNOWN_LEVEL_MS: Final = 1_000
_CODE: Final = struct.Struct(">12xq")


def due_at(properties: Mapping[str, str], stored_at_ms: int, delays_ms: Sequence[int]) -> int | None:
    """Return when a message of the schedule topic is due, None when it is not delayed."""
    text = properties.get(DELAY, "").removeprefix("+")
    if not text.isdecimal() or not (level := int(text)):
        return None
    return stored_at_ms + (delays_ms[min(level, len(delays_ms)) - 1] if delays_ms else UNKNOWN_LEVEL_MS)


def is_entry_of_other_levels(topic: str, known: bytes, wanted: bytes) -> bool:
    """Tell whether an entry is right but for a time that other levels gave its message."""
    if topic != SCHEDULE_TOPIC or known[:12] != wanted[:12]:
        return False
    (known_code,), (wanted_code,) = _CODE.unpack(known), _CODE.unpack(wanted)
    return known_code > 0 and wanted_code > 0 and (known_code - wanted_code) % 1_000 == 0
