"""The bytes of a command on the wire, in both serialisations of its header; it knows no socket.

    int32  total          bytes that follow: 4 + header length + body length
    int32  header word    serialise type << 24 | header length
    bytes  header         JSON (type 0) or binary (type 1)
    bytes  body           the rest

Rule 1: Big-endian; ``total`` is checked as soon as its four bytes are there, so garbage never waits for more.
Rule 2: Everything that a read brought is parsed in one loop over that read; only a frame's header and body are copied.
Rule 3: A frame that comes in pieces is collected in one buffer that never grows beyond the frame.
Rule 4: What came whole before a bad frame is still delivered; after a bad frame the connection is lost.
Rule 5: A JSON header is written as Java writes it: compact, keys in this order, every field value a text, no nulls.
        Answers always have ``extFields``, even empty: Java's clients read them unasked. It is read by msgspec straight
        into a ``Command``; what that refuses (single quotes, numbers as texts, languages as numbers) goes through the
        lenient reader of ``common``.

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":9,"remark":"…",
     "serializeTypeCurrentRPC":"JSON","version":479}

Rule 6: In a binary header ("ROCKETMQ") texts are UTF-8, and a length of 0 reads back as "none", for the remark and for
        a value. A code or version above 32767 does not fit: such a command travels as JSON (``fits_binary``).

    int16 code | int8 language | int16 version | int32 opaque | int32 flag        13 bytes
    int32 remark length | remark
    int32 fields length | fields: repeat { int16 name length | name | int32 value length | value }

``spec/remoting.md`` §1.1, §1.2, §1.3; upstream ``NettyDecoder``, ``RemotingCommand.decode``, ``RemotingSerializable``,
``RocketMQSerializable``.
"""

import struct
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from ...common.codes import ResponseCode
from ...common.errors import FrameError, JsonError
from ...common.java_json import read_json
from ...common.properties import header_codecs
from .command import (
    JSON,
    LANGUAGE_NAMES,
    ONEWAY,
    RESPONSE,
    ROCKETMQ,
    SLOW_BYTES,
    UNREADABLE,
    Command,
    LanguageName,
    format_text,
    language_name,
    language_ordinal,
    texts_of,
)

Buffer = bytes | memoryview
Encoded = bytes | list[Buffer]
"""A whole frame, with the opaque of its request: one buffer, or several in order."""

MAX_FRAME_BYTES = 16_777_216
NO_ANSWER = "not set any response code"
PREFIX = struct.Struct(">ii")
_MAX_HEADER_BYTES = 2**24 - 1
_read_json = msgspec.json.Decoder(Command).decode


class FrameParser:
    """Collects the bytes of one direction of a connection and returns the commands in them."""

    __slots__ = ("_max_total", "_pending", "expected_bytes", "failure")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_total = max_frame_bytes - 4
        self._pending = bytearray()
        self.expected_bytes = 0  # what the pending frame needs, 0 while that is not known
        self.failure: FrameError | None = None

    def __repr__(self) -> str:
        return f"<FrameParser {len(self._pending)} of {self.expected_bytes} bytes pending, failure={self.failure!r}>"

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an incomplete frame are held."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Command]:
        """Take the next bytes and return the commands that are complete now.

        Raises:
            FrameError: the connection must be closed. Commands before the bad frame come first; the error is in
                ``failure`` then, and the next call raises it.
        """
        if self.failure is not None:
            raise self.failure
        commands, position, end = list[Command](), 0, len(data)
        try:
            if self._pending:
                position = self._complete_pending(data, commands)
            if header_codecs is not None:
                position = header_codecs.cut_commands(data, position, self._max_total, commands, _read_json)
            while end - position >= 8:
                total, word = PREFIX.unpack_from(data, position)
                frame_end = position + 4 + total
                if not 4 <= total <= self._max_total or frame_end > end:
                    break
                body_at = position + 8 + (word & _MAX_HEADER_BYTES)
                if body_at > frame_end:
                    raise FrameError(f"header is {body_at - position - 8} bytes, the frame holds {total - 4}")
                header = data[position + 8 : body_at]
                try:
                    command = _read_json(header) if word >> 24 == JSON else _decode_other_header(word >> 24, header)
                except UNREADABLE:
                    command = _decode_leniently(header)
                command.serialize = word >> 24  # whatever a JSON header says: it is not a field of it
                command.body = data[body_at:frame_end]
                commands.append(command)
                position = frame_end
            if position < end:
                self._pending += data[position:]
                self._measure_pending()
        except FrameError as error:
            self.failure = error
            if not commands:
                raise
        return commands

    def _complete_pending(self, data: bytes, commands: list[Command]) -> int:
        """Add to the pending frame what belongs to it, parse it if it is whole, and return where the next begins."""
        pending = self._pending
        taken = 0
        if not self.expected_bytes:
            taken = 4 - len(pending)
            pending += data[:taken]
            self._measure_pending()
            if not self.expected_bytes:
                return len(data)
        taken_end = taken + self.expected_bytes - len(pending)
        pending += data[taken:taken_end]
        if len(pending) == self.expected_bytes:
            frame = bytes(pending)
            pending.clear()
            self.expected_bytes = 0
            commands += self.feed(frame)
        return min(taken_end, len(data))

    def _measure_pending(self) -> None:
        if len(self._pending) >= 4:
            total = int.from_bytes(self._pending[:4], "big", signed=True)
            if not 4 <= total <= self._max_total:
                raise FrameError(f"frame is {total + 4} bytes, limit is {self._max_total + 4}")
            self.expected_bytes = total + 4


def encode_command(command: Command) -> bytes:
    """Return the whole frame of a command, in the serialisation that it names and that it fits."""
    if command.serialize == ROCKETMQ and fits_binary(command):
        kind, header = ROCKETMQ, encode_binary_header(command)
    else:
        kind, header = JSON, encode_json_header(command)
    size = len(header)
    if size > _MAX_HEADER_BYTES:
        raise FrameError(f"header is {size} bytes, limit is {_MAX_HEADER_BYTES}")
    return b"".join((PREFIX.pack(4 + size + len(command.body), kind << 24 | size), header, command.body))


def encode_oneway(command: Command) -> bytes:
    """Return the frame of a request that is not answered."""
    command.flag |= ONEWAY
    return encode_command(command)


def encode_reply(command: Command, reply: Command | Encoded | None) -> Encoded:
    """Return the frame that answers a command, in the command's own form.

    Raises:
        FrameError: the answer is too large.
    """
    if isinstance(reply, (bytes, list)):
        return reply
    if reply is None:
        reply = Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER)
    reply.opaque = command.opaque
    reply.flag = RESPONSE
    reply.serialize = command.serialize
    return encode_command(reply)


def _decode_other_header(kind: int, header: bytes) -> Command:
    if kind == ROCKETMQ:
        return decode_binary_header(header)
    raise FrameError(f"serialise type {kind} is unknown")


_HEAD = struct.Struct(">hbhiii")  # up to and with the remark's length
_INT = struct.Struct(">i")
_MAX_SHORT = 2**15 - 1
MAX_FIELDS = 1_024


def fits_binary(command: Command) -> bool:
    """Tell whether code and version fit into their two bytes."""
    return -_MAX_SHORT <= command.code <= _MAX_SHORT and -_MAX_SHORT <= command.version <= _MAX_SHORT


def encode_binary_header(command: Command) -> bytes:
    """Return the header of a command that ``fits_binary``."""
    remark = (command.remark or "").encode(errors="replace")
    fields = b"".join(_encode_field(name, value) for name, value in command.ext.items())
    head = _HEAD.pack(
        command.code,
        language_ordinal(command.language),
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((head, remark, _INT.pack(len(fields)), fields))


def decode_binary_header(data: bytes) -> Command:
    """Return the command that a header holds, still without its body.

    Raises:
        FrameError: a length runs past the end, or a text is not UTF-8.
    """
    try:
        return _decode(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise FrameError(f"the binary header of {len(data)} bytes is broken: {error}") from error


def _decode(data: bytes) -> Command:
    code, language, version, opaque, flag, remark_size = _HEAD.unpack_from(data)
    fields_at = _HEAD.size + _checked_size(remark_size, len(data) - _HEAD.size)
    fields_size = _checked_size(_INT.unpack_from(data, fields_at)[0], len(data) - fields_at - 4)
    return Command(
        code=code,
        flag=flag,
        language=language_name(language),
        opaque=opaque,
        remark=data[_HEAD.size : fields_at].decode() or None,
        version=version,
        serialize=ROCKETMQ,
        ext_table=_decode_fields(data, fields_at + 4, fields_at + 4 + fields_size),
    )


def _checked_size(size: int, limit: int) -> int:
    if not 0 <= size <= limit:
        raise FrameError(f"a length in the binary header is {size}, {limit} bytes are left")
    return size


def _decode_fields(data: bytes, position: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    read_int = _INT.unpack_from
    while position < end:
        name_end = position + 2 + (data[position] << 8 | data[position + 1])
        value_at = name_end + 4
        size = read_int(data, name_end)[0]
        if len(fields) == MAX_FIELDS:
            raise FrameError(f"the binary header has more than {MAX_FIELDS} fields")
        if size < 0 or value_at + size > end:
            raise FrameError(f"a field of the binary header is {size} bytes, {end - value_at} are left")
        if size:
            fields[data[position + 2 : name_end].decode()] = data[value_at : value_at + size].decode()
        position = value_at + size
    return fields


def _encode_field(name: str, value: str) -> bytes:
    name_bytes = name.encode(errors="replace")
    value_bytes = value.encode(errors="replace")
    return b"".join((len(name_bytes).to_bytes(2, "big"), name_bytes, _INT.pack(len(value_bytes)), value_bytes))


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
    ext = command.ext if command.ext_table is None else command.ext_table
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


def _decode_leniently(text: bytes) -> Command:
    """Return the command that a JSON header holds as Java reads it (raises ``FrameError`` where Java refuses it)."""
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
