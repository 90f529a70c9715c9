"""JSON as RocketMQ's Java side (fastjson) writes and reads it (remoting.md §5).

Reading: msgspec first; what it rejects goes to the lenient reader (``jsonreader``). In what comes out,

- ``null`` and absent are the same, and so are a bare and a quoted integer key (the key is a text);
- an object as a key, or a text key that holds one, is a ``MessageQueue`` when it has ``topic``, ``brokerName`` and
  ``queueId``;
- ``{"$ref": path}`` is replaced by what the path names, or dropped with its entry (``jsontree``).

``read_json_as`` also converts scalars as Java's setters do (``jsonshape``).

Writing: compact, keys sorted, ``None`` left out, enums by name, ``MessageQueue`` keys as raw objects, integer keys
quoted or bare. Nothing but ``JsonError`` is raised for what was read.
"""

import base64
import math
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from types import NoneType
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from ..errors import JsonError
from ..message import MessageQueue
from .reader import MAX_DEPTH, parse_lenient
from .shape import conform
from .tree import clean_tree

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
            check_slow(data, slow_bytes, str(error))  # the slow way knows what Java accepts beyond this
    else:
        check_slow(data, slow_bytes)
    value = conform(read_json(data), kind)
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise JsonError(f"JSON is not a {getattr(kind, '__name__', kind)}: {error}") from error


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
def _struct_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field.encode_name, field.name) for field in msgspec.structs.fields(kind))


class _Writer:
    __slots__ = ("_quotes_integer_keys",)

    def __init__(self, *, quotes_integer_keys: bool) -> None:
        self._quotes_integer_keys = quotes_integer_keys

    def format(self, value: Any) -> str:
        for kinds, form in _FORMS:
            if isinstance(value, kinds):
                return form(self, value)
        raise TypeError(f"{type(value).__name__} has no form in JSON")

    def format_simple(self, value: str | bool | None) -> str:  # noqa: FBT001  a value, not a switch
        return msgspec.json.encode(value).decode()

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
        return self.format_object({"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic})

    def format_struct(self, value: msgspec.Struct) -> str:
        return self.format_object({name: getattr(value, field) for name, field in _struct_fields(type(value))})

    def format_object(self, value: dict[Any, Any]) -> str:
        entries = [(key, item) for key, item in value.items() if item is not None]
        entries.sort(key=lambda entry: (isinstance(entry[0], str), entry[0]))
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
