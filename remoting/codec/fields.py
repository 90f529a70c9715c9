"""Typed headers: structs on our side, a table of texts (``extFields``) on the wire.

A header is a ``msgspec.Struct`` with ``rename="camel"``: its attributes are our names, its encoded names Java's.

    wire                                   struct
    field missing                          the default; without one "the custom field <name> is null"
    empty text for a number or boolean     as missing
    empty text for a text                  the empty text (Java passes it on; its checks speak of blanks)
    text that is no number                 the default; without one an error that names the field
    any text but "true" for a boolean      false
    unknown field                          ignored
    None in the struct                     not sent

A default is what Java goes on with: its reader logs a field that it cannot read and leaves it null, and only what needs
the field fails. ``NULL`` stands for the text that Java looks for in vain then. In the headers that Java reads itself
(``FastCodesHeader``) a number that is none ends the request; they say so with ``is_strict``.

Upstream: ``RemotingCommand.makeCustomHeaderToNet`` and ``decodeCommandCustomHeader``, ``spec/remoting.md`` §1.6, §4.1.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import msgspec

from ...common.errors import HeaderError, JsonError
from ...common.java_json import check_slow, read_json, write_json

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
HeaderT = TypeVar("HeaderT", bound=msgspec.Struct)
FieldsReader = Callable[[msgspec.Raw | bytes], HeaderT]
NULL: Final = "null"
"""The default of a name that Java looks up although it is missing, and then calls so in its answer."""

SLOW_BYTES: Final = 1 << 15
"""Up to here a peer's JSON may be what only the slow reader understands, about a fifth of a second."""

ANSWER_SLOW_BYTES: Final = 1 << 18
"""The same for what a server says to a client: queues, of which there may be a thousand, are read so."""

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What msgspec raises for what it cannot read."""

_NUMBER: Final = re.compile(r"[+-]?\d+")

_read_texts = msgspec.json.Decoder(dict[str, str]).decode


def parse_texts(text: msgspec.Raw | bytes) -> dict[str, str]:
    """Return the field table that JSON text holds; numbers, booleans and nested values become text as in Java.

    Raises:
        HeaderError: the text holds no object.
    """
    try:
        return _read_texts(text)
    except UNREADABLE:
        return _parse_any_texts(bytes(text))


def format_text(value: object) -> str:
    """Return a field's value as Java's ``String.valueOf`` writes it."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # half a surrogate pair cannot be sent: Java writes "?" too
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return write_json(value).decode()  # pyright: ignore[reportUnknownArgumentType] # any JSON value
    return str(value)


def encode_fields(header: msgspec.Struct | Mapping[str, str] | None) -> dict[str, str]:
    """Return the field table of a typed header, without the fields that are ``None``."""
    if header is None:
        return {}
    if isinstance(header, Mapping):
        return dict(header)
    fields: dict[str, str] = {}
    for attribute, name in _names(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            kind = value.__class__
            fields[name] = value if kind is str else str(value) if kind is int else format_text(value)
    return fields


def decode_fields(kind: type[HeaderT], fields: Mapping[str, str]) -> HeaderT:
    """Return the typed header that a field table holds.

    Raises:
        HeaderError: a field is missing or not of its type; the text names the field.
    """
    try:
        header = msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError:
        return _decode_one_by_one(kind, fields)
    flags = _flags(kind)
    return _decode_one_by_one(kind, fields) if flags and _has_flag(header, flags) else header


def fields_readers(kind: type[HeaderT]) -> tuple[FieldsReader[HeaderT], FieldsReader[HeaderT]]:
    """Return what reads the typed header that a field table in JSON text holds: the short way, and the way with care.

    The short way raises ``UNREADABLE`` where the other is needed, which raises as ``decode_fields`` does.
    """
    decode: FieldsReader[HeaderT] = msgspec.json.Decoder(kind, strict=False).decode
    flags = _flags(kind)

    def decode_flags(text: msgspec.Raw | bytes) -> HeaderT:
        header = decode(text)
        return decode_with_care(text) if _has_flag(header, flags) else header

    def decode_with_care(text: msgspec.Raw | bytes) -> HeaderT:
        return _decode_one_by_one(kind, parse_texts(text))

    return decode_flags if flags else decode, decode_with_care


@cache
def _flags(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the booleans of a header that is not strict; msgspec takes 1 for true."""
    if _is_strict(kind):
        return ()
    return tuple(field.name for field in _fields_of(kind) if _is_flag(field.type))


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _has_flag(header: msgspec.Struct, flags: tuple[str, ...]) -> bool:
    return any(getattr(header, flag) for flag in flags)


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def _parse_any_texts(text: bytes) -> dict[str, str]:
    try:
        check_slow(text, SLOW_BYTES)
        table = read_json(text)
    except JsonError as error:
        raise HeaderError(f"the header fields are no JSON: {error}") from error
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise HeaderError("the header fields are no JSON object")
    return texts_of(table)  # pyright: ignore[reportUnknownArgumentType] # any JSON object


def texts_of(table: Mapping[Any, Any]) -> dict[str, str]:
    """Return a table of JSON values as texts, without its nulls."""
    return {format_text(name): format_text(value) for name, value in table.items() if value is not None}


def _decode_one_by_one(kind: type[HeaderT], fields: Mapping[str, str]) -> HeaderT:
    values: dict[str, Any] = {}
    is_strict = _is_strict(kind)
    for field in _fields_of(kind):
        name = field.encode_name
        text = fields.get(name)
        if text is not None and (text or is_strict or _takes_text(field.type)):
            try:
                values[field.name] = _decode_one(name, text, field.type)
            except HeaderError:
                if field.required or is_strict:
                    raise
        elif field.required:
            raise HeaderError(f"the custom field <{name}> is null")
    return kind(**values)


def _is_strict(kind: type[msgspec.Struct]) -> bool:
    return getattr(kind, "is_strict", False)


def _is_flag(kind: Any) -> bool:
    return kind is bool or kind == (bool | None)


def _takes_text(kind: Any) -> bool:
    return kind is str or kind == (str | None)


def _decode_one(name: str, text: str, kind: Any) -> Any:
    if _is_flag(kind):
        return text.lower() == "true"  # Java's parseBoolean: whatever else is false
    try:
        return msgspec.convert(_read_number(text) if not _takes_text(kind) else text, kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise HeaderError(f"the custom field <{name}> is not a valid number: {text[:64]!r}") from error


def _read_number(text: str) -> int:
    """Return the number that Java's ``parseInt`` and ``parseLong`` read: a sign and digits, also those of others."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)
