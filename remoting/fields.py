"""Typed headers: structs on our side, a table of texts (``extFields``) on the wire.

A header is a ``msgspec.Struct`` with ``rename="camel"``: its attributes are our names, its encoded names Java's.

    wire                                   struct
    field missing                          the default; without one "the custom field <name> is null"
    empty text for a number or boolean     as missing
    empty text for a text                  the empty text (Java passes it on; its checks speak of blanks)
    text that is no number                 an error that names the field
    unknown field                          ignored
    None in the struct                     not sent

Upstream: ``RemotingCommand.makeCustomHeaderToNet`` and ``decodeCommandCustomHeader``, ``spec/remoting.md`` §1.6, §4.1.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from ..common.errors import HeaderError, JsonError
from ..common.javajson import read_json, write_json

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
HeaderT = TypeVar("HeaderT", bound=msgspec.Struct)

_read_texts = msgspec.json.Decoder(dict[str, str]).decode


def parse_texts(text: msgspec.Raw | bytes) -> dict[str, str]:
    """Return the field table that JSON text holds; numbers, booleans and nested values become text as in Java.

    Raises:
        HeaderError: the text holds no object.
    """
    try:
        return _read_texts(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
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
            fields[name] = value if value.__class__ is str else format_text(value)
    return fields


def decode_fields(kind: type[HeaderT], fields: Mapping[str, str]) -> HeaderT:
    """Return the typed header that a field table holds.

    Raises:
        HeaderError: a field is missing or not of its type; the text names the field.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError:
        return _decode_one_by_one(kind, fields)


def decode_fields_text(kind: type[HeaderT], text: msgspec.Raw | bytes) -> HeaderT:
    """Return the typed header that a field table in JSON text holds; the short way of ``decode_fields``.

    Raises:
        HeaderError: as ``decode_fields``.
    """
    try:
        return _decoder(kind).decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _decode_one_by_one(kind, parse_texts(text))


@cache
def _decoder(kind: type[HeaderT]) -> "msgspec.json.Decoder[HeaderT]":
    return msgspec.json.Decoder(kind, strict=False)


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def _parse_any_texts(text: bytes) -> dict[str, str]:
    try:
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
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        text = fields.get(name)
        if text is not None and (text or _takes_text(field.type)):
            values[field.name] = _decode_one(name, text, field.type)
        elif field.required:
            raise HeaderError(f"the custom field <{name}> is null")
    return kind(**values)


def _takes_text(kind: Any) -> bool:
    return kind is str or kind == (str | None)


def _decode_one(name: str, text: str, kind: Any) -> Any:
    if kind is bool or kind == (bool | None):
        return text.lower() == "true"  # Java's parseBoolean: whatever else is false
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"the custom field <{name}> is not a valid number: {text[:64]!r}") from error
