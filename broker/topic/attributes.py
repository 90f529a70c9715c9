"""Attributes of a topic: ``+name=value,-name`` (``AttributeParser``, ``AttributeUtil``, ``TopicAttributes``).

    queue.type      BatchCQ, SimpleCQ          only when the topic is made
    cleanup.policy  DELETE, COMPACTION         only when the topic is made; compaction is not built
    message.type    UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, MIXED
    reserve.time    a number from -1 on

Rules: a new topic takes additions only; what does not exist cannot be deleted; no name twice; no other names.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...store.consumequeue.queue_table import BATCH_TYPE, QUEUE_TYPE

CLEANUP_POLICY: Final = "cleanup.policy"
MESSAGE_TYPE: Final = "message.type"
_COMPACTION: Final = "COMPACTION"
_MOST_TIME: Final = 2**63 - 1


_MESSAGE_TYPES: Final = ("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "NORMAL")


class _Kind(NamedTuple):
    is_changeable: bool
    values: Sequence[str] | None


_KINDS: Final = {
    QUEUE_TYPE: _Kind(False, (BATCH_TYPE, "SimpleCQ")),
    CLEANUP_POLICY: _Kind(False, ("DELETE", _COMPACTION)),
    MESSAGE_TYPE: _Kind(True, _MESSAGE_TYPES),
    "reserve.time": _Kind(True, None),
}


def is_batch_topic(attributes: Mapping[str, str]) -> bool:
    """Tell whether the queues of a topic count by messages and keep batches whole."""
    return attributes.get(QUEUE_TYPE) == BATCH_TYPE


def change_attributes(known: Mapping[str, str] | None, changes: str) -> dict[str, str]:
    """Return the attributes after changes; ``known`` is ``None`` for a topic that is being made.

    Raises:
        ValueError: A change that cannot be made.
    """
    attributes = dict(known or {})
    seen: dict[str, str] = {}
    for change in _split(changes):
        sign, name, value = _parse_change(change)
        if name in seen:
            is_same = seen[name] == sign
            raise ValueError(f"key duplication: {sign}{name}" if is_same else f"alter duplication key. key: {name}")
        seen[name] = sign
        _check_change(known, sign, name)
        if sign == "+":
            _check_value(name, value)
            attributes[name] = value
        else:
            del attributes[name]
    return attributes


def _split(changes: str) -> list[str]:
    """Return what stands between the commas, as Java's ``split`` does: nothing is left of empty texts at the end."""
    wanted = changes.rstrip(",")
    return wanted.split(",") if wanted else []


def _parse_change(change: str) -> tuple[str, str, str]:
    key, equals, value = change.partition("=")
    if ("+" if equals else "-") not in key:
        raise ValueError(f"{'add/alter' if equals else 'delete'} attribute format is wrong: {key}")
    sign, name = key[0], key[1:]
    if not name or set("+-") & set(name):
        raise ValueError("kv string format wrong.")
    return sign, name, value


def _check_change(known: Mapping[str, str] | None, sign: str, name: str) -> None:
    if known is None and sign == "-":
        raise ValueError(f"only add attribute is supported while creating topic. key: {name}")
    if known is not None and sign == "-" and name not in known:
        raise ValueError(f"attempt to delete a nonexistent key: {name}")
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"unsupported key: {name}")
    if known is not None and not kind.is_changeable:
        raise ValueError(f"attempt to update an unchangeable attribute. key: {name}")


def _check_value(name: str, value: str) -> None:
    values = _KINDS[name].values
    if values is not None and value not in values:
        raise ValueError(f"value is not in set: [{', '.join(values)}]")
    if values is None and not (value.lstrip("+-").isdecimal() and -1 <= int(value) <= _MOST_TIME):
        raise ValueError(f"value is not in range(-1, {_MOST_TIME})")
    if value == _COMPACTION:
        raise ValueError(f"{CLEANUP_POLICY}={value} cannot be used: compaction is not built")
