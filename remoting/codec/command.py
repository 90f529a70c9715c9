"""A command, the value that a frame carries, and its fields: typed headers on our side, texts on the wire.

    flag bit 0   it is an answer to a request
    flag bit 1   it is a one-way request, which is never answered

A command from the wire keeps its fields (``extFields``) as the JSON text that came: ``decode_header`` turns that
straight into the struct that the request needs, ``ext`` into a table for everybody else. Build own commands with
``Command.request`` and ``Command.response``; the defaults of the struct are those of a missing field on the wire.

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

``spec/remoting.md`` §1.2, §1.6, §4.1; upstream ``RemotingCommand``, ``makeCustomHeaderToNet`` and
``decodeCommandCustomHeader``.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeVar

import msgspec

from ...common.codes import VERSION
from ...common.errors import HeaderError, JsonError
from ...common.java_json import Int32, check_slow, read_json, write_json
from .request_codes import LanguageCode

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
    return tuple(field.name for field in _fields_of(kind) if _is_flag(field.type) and not _is_strict(kind))


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


RESPONSE = 1
ONEWAY = 2
JSON = 0
ROCKETMQ = 1

LanguageName = Literal[
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
]
LANGUAGE_NAMES: tuple[LanguageName, ...] = LanguageName.__args__
NO_FIELDS = msgspec.Raw(b"{}")


class Command(msgspec.Struct, gc=False, eq=False, repr_omit_defaults=True):
    """A request or an answer.

    The field order is that of Java's JSON; the last three do not come from a JSON header, hence their impossible
    names. ``ext_text`` is what came, ``ext_table`` what is sent or was asked for; use ``ext``.
    """

    code: Int32 = 0
    ext_text: msgspec.Raw = msgspec.field(name="extFields", default=NO_FIELDS)
    flag: Int32 = 0
    language: LanguageName = "JAVA"
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0
    body: bytes = msgspec.field(name=" body", default=b"")
    serialize: int = msgspec.field(name=" serialize", default=JSON)
    ext_table: dict[str, str] | None = msgspec.field(name=" ext", default=None)

    def __repr__(self) -> str:
        kind = "answer" if self.flag & RESPONSE else "one-way request" if self.flag & ONEWAY else "request"
        return f"<Command {self.code} {kind} opaque={self.opaque} body={len(self.body)} bytes remark={self.remark!r}>"

    @property
    def ext(self) -> dict[str, str]:
        """The header fields as texts.

        Raises:
            HeaderError: the other side sent something else than a table.
        """
        if self.ext_table is None:
            self.ext_table = parse_texts(self.ext_text)
        return self.ext_table

    def forget_content(self) -> None:
        """Keep what an answer needs, without fields, remark and body: the header was read, and the request waits."""
        self.ext_text, self.ext_table, self.remark, self.body = NO_FIELDS, None, None, b""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of the receiver."""
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer."""
        return self.flag & ONEWAY != 0

    @staticmethod
    def request(
        code: int, header: msgspec.Struct | Mapping[str, str] | None = None, body: bytes = b"", *, serialize: int = JSON
    ) -> "Command":
        """Build a request; the connection gives it its opaque and, if need be, the one-way flag."""
        return Command(
            code=code,
            language="PYTHON",
            version=VERSION,
            body=body,
            serialize=serialize,
            ext_table=encode_fields(header),
        )

    @staticmethod
    def response(
        code: int,
        remark: str | None = None,
        ext: msgspec.Struct | Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> "Command":
        """Build an answer; the connection gives it opaque and serialisation of its request."""
        return Command(
            code=code,
            flag=RESPONSE,
            language="PYTHON",
            remark=remark,
            version=VERSION,
            body=body,
            ext_table=encode_fields(ext),
        )


def decode_header(kind: type[HeaderT], command: Command) -> HeaderT:
    """Return the typed header of a command.

    Raises:
        HeaderError: a field is missing or not of its type; the text names the field.
    """
    return _readers(kind)(command)


def header_reader(kind: type[HeaderT]) -> Callable[[Command], HeaderT]:
    """Return ``decode_header`` for one kind, which need not be looked up each time."""
    decode, decode_with_care = fields_readers(kind)

    def read(command: Command) -> HeaderT:
        if command.ext_table is not None:
            return decode_fields(kind, command.ext_table)
        try:
            return decode(command.ext_text)
        except UNREADABLE:
            return decode_with_care(command.ext_text)

    return read


@cache
def _readers(kind: type[msgspec.Struct]) -> Callable[[Command], Any]:
    return header_reader(kind)


def language_name(ordinal: int) -> LanguageName:
    """Return the name of a language ordinal; what nobody knows is ``OTHER``."""
    return LANGUAGE_NAMES[ordinal] if 0 <= ordinal < len(LANGUAGE_NAMES) else "OTHER"


def language_ordinal(name: LanguageName) -> int:
    """Return the ordinal that binary headers carry."""
    return LanguageCode[name].value
