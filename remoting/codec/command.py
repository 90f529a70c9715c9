"""One command, the value that a frame carries: a request, or the answer to one.

    flag bit 0   it is an answer
    flag bit 1   it is a one-way request, which is never answered

A command from the wire keeps its fields as the JSON text that came: ``decode_header`` turns that straight into the
struct that the request needs, ``ext`` into a table for everybody else. The defaults of the struct are those of a
missing field on the wire (``spec/remoting.md`` §1.2); build own commands with ``Command.request`` and
``Command.response``.

Upstream: ``RemotingCommand``.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

import msgspec

from .codes import VERSION, LanguageCode
from .fields import UNREADABLE, HeaderT, Int32, decode_fields, encode_fields, fields_readers, parse_texts

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
