r"""Messages as an application sees them.

``Message`` is what a producer hands over, ``ReceivedMessage`` what a consumer or a query gets, ``MessageQueue`` the
address of one queue. None of them knows a connection or a file.

Rules for the properties of a sent message:

- ``tags``, ``keys`` and ``waits_for_store`` travel as the properties ``TAGS``, ``KEYS`` (joined by one blank) and
  ``WAIT``; these three names are therefore refused in ``properties``.
- Names and values are not blank and do not hold ``\x01`` or ``\x02``, which separate them on the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

import msgspec

from .properties import KEYS, TAGS, WAIT

_SEPARATORS = frozenset("\x01\x02")
_OWN_FIELD = {TAGS: "tags", KEYS: "keys", WAIT: "waits_for_store"}


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker; sorts as Java's ``MessageQueue.compareTo`` does."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class Message:
    """A message to send (``org.apache.rocketmq.common.message.Message``).

    A lone text as ``keys`` counts as one key. ``flag`` belongs to the application and is carried as it is.
    """

    topic: str
    body: bytes
    _: KW_ONLY
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = field(default_factory=dict[str, str])
    flag: int = 0
    waits_for_store: bool = True

    def to_properties(self) -> dict[str, str]:
        """Return all properties as they travel.

        Raises:
            ValueError: A name or value is blank, reserved or holds a separator.
        """
        result = dict(self.properties)
        _check_user_properties(result)
        if self.tags:
            result[TAGS] = _checked(TAGS, self.tags)
        if self.keys:
            result[KEYS] = _checked(KEYS, _join_keys(self.keys))
        result[WAIT] = "true" if self.waits_for_store else "false"
        return result


class ReceivedMessage(msgspec.Struct, frozen=True, gc=False):
    """A stored message (``MessageExt``); ``body`` is inflated, hosts are (address, port).

    ``message_id`` is the producer's unique key, or the offset id where there is none; ``offset_message_id`` names
    broker and log position.
    """

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    flag: int
    sys_flag: int
    queue: MessageQueue
    queue_offset: int
    log_offset: int
    message_id: str
    offset_message_id: str
    born_at_ms: int
    stored_at_ms: int
    born_host: tuple[str, int]
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int


def split_keys(text: str | None) -> tuple[str, ...]:
    """Return the non-empty words of a ``KEYS`` value."""
    return tuple(filter(None, text.split(" "))) if text else ()


def _join_keys(keys: Sequence[str]) -> str:
    words = (keys,) if isinstance(keys, str) else tuple(keys)
    for word in words:
        if not word or " " in word:
            raise ValueError(f"key {word!r} is empty or holds a blank, which separates keys")
    return " ".join(words)


def _check_user_properties(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if name in _OWN_FIELD:
            raise ValueError(f"property {name} is set through {_OWN_FIELD[name]}")
        if not name.strip() or not value.strip():
            raise ValueError(f"property {name!r} with value {value!r}: neither may be blank")
        _checked(name, name)
        _checked(name, value)


def _checked(name: str, text: str) -> str:
    if not _SEPARATORS.isdisjoint(text):
        raise ValueError(f"property {name!r} holds \\x01 or \\x02, which separate properties")
    return text
