"""JSON as RocketMQ's Java side (fastjson) writes and reads it (remoting.md §1.2, §5).

Reading: msgspec first, with queues that are keys made texts before; what it rejects goes to the lenient reader
(``lenient_json``), which takes ten times as long. In what comes out,

- ``null`` and absent are the same, and so are a bare and a quoted integer key (the key is a text);
- an object as a key, or a text key that holds one, is a ``MessageQueue`` when it has ``topic``, ``brokerName`` and
  ``queueId``;
- ``{"$ref": path}`` is replaced by what the path names, or dropped with its entry.

``read_json_as`` also brings the tree into the shape of a type, with the conversions of Java's setters:

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

Writing: compact, keys sorted, ``None`` left out, enums by name, ``MessageQueue`` keys as raw objects, integer keys
quoted or bare. Nothing but ``JsonError`` is raised for what was read.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from .errors import JsonError
from .lenient_json import MAX_DEPTH, clean_tree, parse_lenient, to_message_queue
from .message import MessageQueue

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_T = TypeVar("_T")


def read_json(data: bytes | str, *, slow_bytes: int | None = None) -> Any:
    """Return the value of a JSON text in the dialect.

    A text for which msgspec is not enough takes some 6 µs a byte; ``slow_bytes`` is how long such a text may be.

    Raises:
        JsonError: The text is outside the dialect, too deep, too long or not a text.
    """
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        check_slow(data, slow_bytes)
        return clean_tree(*parse_lenient(data))
    if not _needs_cleaning(data):
        _check_depth(data, tree)
        return tree
    check_slow(data, slow_bytes)
    return clean_tree(tree, len(data))


def read_json_as(data: bytes | str, kind: type[_T], *, slow_bytes: int | None = None) -> _T:
    """Return the value of a JSON text as the given type (anything that msgspec can decode into).

    Raises:
        JsonError: The text is outside the dialect, does not fit the type, or is too long to find that out.
    """
    if not _has_references(data):
        try:
            return cast("_T", _decoder(kind).decode(data))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            found = _read_with_queues(data, kind)
            if found is not None:
                return found
            check_slow(data, slow_bytes, str(error))  # the slow way knows what Java accepts beyond this
    else:
        check_slow(data, slow_bytes)
    value = conform(read_json(data), kind)
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise JsonError(f"JSON is not a {getattr(kind, '__name__', kind)}: {error}") from error


_QUEUE_KEY: Final = re.compile(rb'\{"brokerName":"([^"\\]*+)","queueId":(0|-?[1-9][0-9]{0,9}),"topic":"([^"\\]*+)"\}:')
_MARK: Final = "\x01"


def _read_with_queues(data: bytes | str, kind: type[_T]) -> _T | None:
    """Return the value of a text that is strict JSON but for queues as keys, as Java writes them; else ``None``.

    In strict JSON, and nothing else gets through here, a bracket before a quote is no part of a text. A queue is read
    as a text with its number.
    """
    parts = _QUEUE_KEY.split(data if isinstance(data, bytes) else data.encode(errors="replace"))
    count = len(parts) // 4
    if not count:
        return None
    try:
        queues = [
            MessageQueue(topic.decode(), name.decode(), int(queue_id))
            for name, queue_id, topic in zip(parts[1::4], parts[2::4], parts[3::4], strict=True)
        ]
        parts[1::4] = [b'"\\u0001%d":' % number for number in range(count)]
        parts[2::4] = parts[3::4] = [b""] * count
        holder: list[Any] = [msgspec.json.decode(b"".join(parts))]
        return msgspec.convert(holder[0], kind, strict=False) if _restore_queues(holder, queues) == count else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _restore_queues(holder: list[Any], queues: list[MessageQueue]) -> int:
    """Put queues into the place of their numbers, in all tables beneath a list; return how many."""
    count = 0
    nodes: list[Any] = [holder]
    while nodes:
        node = nodes.pop()
        for place, item in _places(node):
            if isinstance(item, dict) and (found := _queues_of(cast("dict[Any, Any]", item), queues)):
                node[place] = dict(zip(found, cast("dict[Any, Any]", item).values(), strict=True))
                count += len(found)
            elif isinstance(item, dict | list):
                nodes.append(item)
    return count


def _places(node: Any) -> Iterable[tuple[Any, Any]]:
    return cast("dict[Any, Any]", node).items() if isinstance(node, dict) else enumerate(cast("list[Any]", node))


def _queues_of(table: dict[Any, Any], queues: list[MessageQueue]) -> list[MessageQueue]:
    """Return the queues of a table that has them for keys, one after the other."""
    first, last = next(iter(table), ""), next(reversed(table), "")
    if not first.startswith(_MARK) or not last.startswith(_MARK):
        return []
    found = queues[int(first[1:]) : int(last[1:]) + 1]
    return found if len(found) == len(table) else []


def read_table_as(text: str, kind: type[_T]) -> _T:
    """Return the content of a file of tables.

    Raises:
        JsonError: As ``read_json_as``; or an entry is ``null``, which would be missing in what is read.
    """
    content = read_json_as(text, kind)
    if "null" in text:
        try:
            tree = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            tree, _ = parse_lenient(text)
        _refuse_null_entries(tree, inspect.type_info(kind), getattr(kind, "__name__", str(kind)))
    return content


def _refuse_null_entries(value: Any, info: inspect.Type, where: str) -> None:
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        for field in info.fields:
            _refuse_null_entries(found.get(field.encode_name), field.type, f"{where}.{field.encode_name}")
    elif isinstance(info, inspect.DictType) and isinstance(value, dict):
        for name, entry in cast("dict[str, Any]", value).items():
            if entry is None:
                raise JsonError(f"{where} holds null for {name}")
            _refuse_null_entries(entry, info.value_type, f"{where}[{name}]")


def check_slow(data: bytes | str, most_bytes: int | None, problem: str = "") -> None:
    """Refuse a text that is too long for the slow way; ``problem`` is why the fast one did not do.

    Raises:
        JsonError: It is.
    """
    if most_bytes is not None and len(data) > most_bytes:
        reason = f"above {most_bytes} it must be strict and fit what is asked for"
        raise JsonError(f"JSON is {len(data)} bytes; {reason}{problem and f': {problem}'}")


def write_json(value: object, *, quotes_integer_keys: bool = True) -> bytes:
    """Return the text that fastjson would write for builtins, msgspec structs, enums and ``MessageQueue``."""
    return _Writer(quotes_integer_keys=quotes_integer_keys).format(value).encode()


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _check_depth(data: bytes | str, tree: Any) -> None:
    """Refuse what msgspec reads and nothing behind it could walk; a text with few brackets is not looked at."""
    brackets = (data.count("[") + data.count("{")) if isinstance(data, str) else (data.count(b"[") + data.count(b"{"))
    nodes: list[Any] = [tree] if brackets > MAX_DEPTH and isinstance(tree, dict | list) else []
    depth = 0
    while nodes:
        if depth == MAX_DEPTH:
            raise JsonError(f"nesting is deeper than {MAX_DEPTH}")
        depth += 1
        nodes = [item for node in nodes for item in _parts(node) if isinstance(item, dict | list)]


def _parts(node: Any) -> Iterable[Any]:
    return cast("dict[Any, Any]", node).values() if isinstance(node, dict) else cast("list[Any]", node)


def _has_references(data: bytes | str) -> bool:
    return "$ref" in data if isinstance(data, str) else b"$ref" in data


def _needs_cleaning(data: bytes | str) -> bool:
    if isinstance(data, str):
        return "null" in data or '"{' in data or "$ref" in data
    return b"null" in data or b'"{' in data or b"$ref" in data


@lru_cache(maxsize=256)
def _struct_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Return each field in the order of the text: what stands before its value, its name, whether msgspec writes it."""
    fields = sorted(msgspec.structs.fields(kind), key=attrgetter("encode_name"))
    return tuple((f"{_format_simple(one.encode_name)}:", one.name, _is_simple(one.type)) for one in fields)


def _is_simple(kind: Any) -> bool:
    """Tell whether msgspec writes such a value as Java does: a simple one, or a list of those."""
    info = _type_info(kind)
    return isinstance(info.item_type if isinstance(info, inspect.ListType) else info, _SIMPLE)


@lru_cache(maxsize=256)
def _is_plain(kind: type[msgspec.Struct]) -> bool:
    """Tell whether msgspec writes a struct as Java does: simple values and lists of them, in the order of names."""
    fields, config = msgspec.structs.fields(kind), kind.__struct_config__
    names = [field.encode_name for field in fields]
    is_whole = not (config.omit_defaults or config.array_like or config.tag)
    return is_whole and names == sorted(names) and all(_is_simple(one.type) for one in fields)


def _format_simple(value: str | int | None) -> str:  # a value, not a switch
    return msgspec.json.encode(value).decode()


_format_name = lru_cache(maxsize=1024)(_format_simple)
"""A table of queues says the same names again and again."""


class _Writer:
    __slots__ = ("_quotes_integer_keys",)

    def __init__(self, *, quotes_integer_keys: bool) -> None:
        self._quotes_integer_keys = quotes_integer_keys

    def format(self, value: Any) -> str:
        return _form_of(value.__class__)(self, value)

    def format_simple(self, value: str | bool | None) -> str:  # noqa: FBT001 # a value, not a switch
        return _format_simple(value)

    def format_enum(self, value: Enum) -> str:
        return f'"{value.name}"'

    def format_number(self, value: float) -> str:
        return repr(value) if math.isfinite(value) else "null"

    def format_bytes(self, value: bytes) -> str:
        return f'"{base64.b64encode(value).decode()}"'

    def format_array(self, value: Iterable[Any]) -> str:
        return f"[{','.join([self.format(item) for item in value])}]"

    def format_set(self, value: Iterable[Any]) -> str:
        return self.format_array(sorted(value))

    def format_queue(self, value: MessageQueue) -> str:
        topic, broker_name, queue_id = value
        return f'{{"brokerName":{_format_name(broker_name)},"queueId":{queue_id},"topic":{_format_name(topic)}}}'

    def format_struct(self, value: msgspec.Struct) -> str:
        kind = type(value)
        if _is_plain(kind):
            return msgspec.json.encode(value).decode()
        texts = [
            start + (_format_simple(item) if is_simple else self.format(item))
            for start, name, is_simple in _struct_fields(kind)
            if (item := getattr(value, name)) is not None
        ]
        return f"{{{','.join(texts)}}}"

    def format_object(self, value: dict[Any, Any]) -> str:
        entries = [(key, item) for key, item in value.items() if item is not None]
        is_mixed = len({isinstance(key, str) for key in value}) > 1
        entries.sort(key=(lambda entry: (isinstance(entry[0], str), entry[0])) if is_mixed else itemgetter(0))
        return f"{{{','.join([f'{self._format_key(key)}:{self.format(item)}' for key, item in entries])}}}"

    def _format_key(self, key: Any) -> str:
        text = self.format(key)
        return f'"{text}"' if self._quotes_integer_keys and type(key) is int else text


_FORMS: Final[tuple[tuple[type | tuple[type, ...], Callable[[_Writer, Any], str]], ...]] = (
    (Enum, _Writer.format_enum),
    ((str, bool, NoneType), _Writer.format_simple),
    ((int, float), _Writer.format_number),
    (dict, _Writer.format_object),
    (MessageQueue, _Writer.format_queue),
    ((list, tuple), _Writer.format_array),
    ((set, frozenset), _Writer.format_set),
    (msgspec.Struct, _Writer.format_struct),
    (bytes, _Writer.format_bytes),
)


@lru_cache(maxsize=256)
def _form_of(kind: type) -> Callable[[_Writer, Any], str]:
    for kinds, form in _FORMS:
        if issubclass(kind, kinds):
            return form
    raise TypeError(f"{kind.__name__} has no form in JSON")


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
_SIMPLE: Final = (*_SCALARS, inspect.BoolType)
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
