"""Brings a JSON tree into the shape of a type, with the conversions of Java's setters (remoting.md §1.2, §5.1).

    wanted            found                            result
    text              number, bool, object, array      its JSON text
    integer           bool, number with fraction       1 or 0, the whole part
    list              object; text, number for scalars  the list of it alone
    integer, number   empty text, "null"               absent
    enum              ordinal                          the member in that place
    enum, literal     unknown name                     absent
    MessageQueue      object                           the queue, its id 0 if there is none
    key: MessageQueue anything else                    the entry is dropped

What fits none of this stays as it is; ``msgspec.convert`` then judges it.
"""

import math
from enum import Enum
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from ..message import MessageQueue
from .reader import to_message_queue

_ABSENT: Final = object()
_LISTS: Final = (
    inspect.ListType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.VarTupleType,
    inspect.CollectionType,
)
_TEXT: Final = inspect.StrType()
_SCALARS: Final = (inspect.IntType, inspect.StrType)
_RECORDS: Final = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)


def conform(value: Any, kind: Any) -> Any:
    """Return the tree in the shape of the type as far as the table above goes."""
    result = _conform(value, _type_info(kind))
    return None if result is _ABSENT else result


@lru_cache(maxsize=256)
def _type_info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _conform(value: Any, info: inspect.Type) -> Any:
    if value is None:
        return _ABSENT
    if isinstance(info, inspect.UnionType):
        return _conform_union(value, info)
    if isinstance(info, inspect.StrType):
        return value if isinstance(value, str) else _as_text(value)
    if isinstance(info, inspect.IntType):
        return _as_integer(value)
    if isinstance(info, inspect.FloatType | inspect.BoolType):
        return _ABSENT if value in ("", "null") else value
    if isinstance(info, inspect.EnumType):
        return _as_member(value, info.cls)
    if isinstance(info, inspect.LiteralType):
        return value if value in info.values else _ABSENT
    return _conform_container(value, info)


def _conform_union(value: Any, info: inspect.UnionType) -> Any:
    choices = [choice for choice in info.types if not isinstance(choice, inspect.NoneType)]
    return _conform(value, choices[0]) if len(choices) == 1 else value


def _conform_container(value: Any, info: inspect.Type) -> Any:
    if isinstance(info, _LISTS) and (found := _items(value, info.item_type)) is not None:
        items = [_conform(item, info.item_type) for item in found]
        return [item for item in items if item is not _ABSENT]
    if not isinstance(value, dict):
        return value
    entries = cast("dict[Any, Any]", value)
    if isinstance(info, inspect.NamedTupleType) and info.cls is MessageQueue:
        return _as_queue(entries) or entries
    if isinstance(info, inspect.DictType):
        return _conform_dict(entries, info)
    if isinstance(info, _RECORDS):
        shaped = {
            field.encode_name: _conform(entries[field.encode_name], field.type)
            for field in info.fields
            if field.encode_name in entries
        }
        return {name: item for name, item in shaped.items() if item is not _ABSENT}
    return entries


def _items(value: Any, kind: inspect.Type) -> list[Any] | None:
    """Return the items of a list, or what fastjson2 takes for the only item of one."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    is_number = isinstance(kind, inspect.IntType) and isinstance(value, int)
    is_text = isinstance(kind, _SCALARS) and isinstance(value, str)
    return [value] if is_number or is_text or isinstance(value, dict) else None


def _conform_dict(entries: dict[Any, Any], info: inspect.DictType) -> dict[Any, Any]:
    wants_queues = isinstance(info.key_type, inspect.NamedTupleType) and info.key_type.cls is MessageQueue
    if wants_queues:
        entries = {key: item for key, item in entries.items() if isinstance(key, MessageQueue)}
    shaped = {key: _conform(item, info.value_type) for key, item in entries.items()}
    return {key: item for key, item in shaped.items() if item is not _ABSENT}


def _as_queue(entries: dict[Any, Any]) -> MessageQueue | None:
    names = {name: _conform(entries[name], _TEXT) for name in ("topic", "brokerName") if name in entries}
    queue_id = _as_integer(entries.get("queueId"))
    queue = to_message_queue({**names, "queueId": 0 if queue_id in (_ABSENT, None) else queue_id})
    return queue if queue is not None and -(2**31) <= queue.queue_id < 2**31 else None


def _as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _as_integer(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else value
    return _ABSENT if value in ("", "null") else value


def _as_member(value: Any, kind: type[Enum]) -> Any:
    members = list(kind)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return value
    if isinstance(value, int):
        return members[value].value if 0 <= value < len(members) else value
    found = [member.value for member in members if value in (member.name, member.value)]
    return found[0] if found else _ABSENT
