"""The JSON form of a command's header (serialise type 0).

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":9,"remark":"…",
     "serializeTypeCurrentRPC":"JSON","version":479}

Written as Java writes it: compact, keys in this order, every field value a text, no nulls. Answers always have
``extFields``, even empty: Java's clients read them unasked. Read by msgspec straight into a ``Command``; what that
refuses (single quotes, numbers as texts, languages as numbers) goes through the lenient reader of ``common``.

``spec/remoting.md`` §1.2; upstream ``RemotingSerializable``.
"""

from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from ...common.errors import FrameError, JsonError
from ...common.java_json import read_json
from .command import JSON, LANGUAGE_NAMES, RESPONSE, Command, LanguageName, language_name
from .fields import SLOW_BYTES, UNREADABLE, format_text, texts_of

_decode = msgspec.json.Decoder(Command).decode
_encode = msgspec.json.Encoder().encode


class _WrittenHeader(msgspec.Struct, gc=False, rename="camel"):
    """A header as it is written, in Java's order; what is ``UNSET`` is left out."""

    code: int
    ext_fields: dict[str, str] | UnsetType
    flag: int
    language: str
    opaque: int
    remark: str | UnsetType
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


def encode_json_header(command: Command) -> bytes:
    """Return the header of a command."""
    ext = command.ext
    header = _WrittenHeader(
        command.code,
        ext if ext or command.flag & RESPONSE else UNSET,
        command.flag,
        command.language,
        command.opaque,
        UNSET if command.remark is None else command.remark,
        "JSON",
        command.version,
    )
    try:
        return _encode(header)
    except UnicodeEncodeError:  # half a surrogate pair somewhere
        header.remark = UNSET if command.remark is None else format_text(command.remark)
        header.ext_fields = texts_of(ext)
        return _encode(header)


def decode_json_header(text: bytes) -> Command:
    """Return the command that a header holds, still without its body.

    Raises:
        FrameError: Java's reader would refuse it too.
    """
    try:
        command = _decode(text)
    except UNREADABLE:
        return _decode_leniently(text)
    command.serialize = JSON  # whatever the header says: it is not a field of it
    return command


def _decode_leniently(text: bytes) -> Command:
    try:
        values = read_json(text, slow_bytes=SLOW_BYTES)
    except JsonError as error:
        raise FrameError(f"the header is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise FrameError(f"the header is no JSON object: {text[:64]!r}")
    table = cast("dict[Any, Any]", values)
    return Command(
        code=_integer(table, "code"),
        flag=_integer(table, "flag"),
        language=_language(table.get("language")),
        opaque=_integer(table, "opaque"),
        remark=None if table.get("remark") is None else format_text(table["remark"]),
        version=_integer(table, "version"),
        ext_table=_fields(table.get("extFields")),
    )


def _integer(table: dict[Any, Any], name: str) -> int:
    value = table.get(name)
    try:
        number = int(value or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise FrameError(f"the header's {name} is no number: {value!r:.64}") from error
    if not -(2**31) <= number < 2**31:
        raise FrameError(f"the header's {name} is {number}, a Java int ends at {2**31 - 1}")
    return number


def _language(value: object) -> LanguageName:
    if value is None:
        return "JAVA"
    if isinstance(value, int):
        return language_name(value)
    return value if value in LANGUAGE_NAMES else "OTHER"


def _fields(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FrameError(f"the header's extFields are no JSON object: {value!r:.64}")
    return texts_of(cast("dict[Any, Any]", value))
