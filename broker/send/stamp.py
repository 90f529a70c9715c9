"""The properties of a sent message as they are stored (spec behaviour.md B.3.5).

The broker sets ``MSG_REGION``, ``TRACE_ON`` and ``CLUSTER``, gives a message without ``UNIQ_KEY`` one, and drops
``POP_CK``. A text that names none of these is stored as it came, with the additions behind it.
"""

from collections.abc import Callable, Mapping

import msgspec

from ...common.properties import (
    DELAY,
    INNER_NUM,
    POP_CK,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    encode_properties,
    parse_properties,
)
from ..delay.delay import TIMER_NAMES


class Stamped(msgspec.Struct, gc=False):
    """Properties in both forms; ``is_plain`` when none of them needs care."""

    text: bytes
    properties: dict[str, str]
    is_plain: bool = False


class PropertyStamp:
    """Adds what this broker adds: ``own`` properties, and a unique key."""

    def __init__(self, own: Mapping[str, str], new_key: Callable[[], str]) -> None:
        self._own = dict(own)
        self._own_text = encode_properties(self._own)
        self._replaced = frozenset({*self._own, POP_CK})
        self._needs_care = self._replaced | TIMER_NAMES | {TRANSACTION_PREPARED, DELAY, INNER_NUM}
        self._new_key = new_key

    def stamp(self, text: str) -> Stamped:
        """Return what shall be stored of the properties that a request carries."""
        properties = parse_properties(text)
        is_plain = self._needs_care.isdisjoint(properties)
        if not is_plain and not self._replaced.isdisjoint(properties):
            return self.stamp_parsed(properties)
        if text and text[-1] != "\x02":
            text = f"{text}\x02" if properties else ""  # what holds no property is not kept
        if UNIQ_KEY not in properties:
            properties[UNIQ_KEY] = key = self._new_key()
            text = f"{text}{UNIQ_KEY}\x01{key}\x02"
        properties.update(self._own)
        return Stamped(text.encode() + self._own_text, properties, is_plain)

    def stamp_parsed(self, properties: dict[str, str]) -> Stamped:
        """Return what shall be stored of properties that are parsed already."""
        stamped = {**properties, **self._own}
        stamped.pop(POP_CK, None)
        if UNIQ_KEY not in stamped:
            stamped[UNIQ_KEY] = self._new_key()
        return Stamped(encode_properties(stamped), stamped)
