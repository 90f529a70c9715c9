"""The binary form of a command's header (serialise type 1, "ROCKETMQ").

    int16 code | int8 language | int16 version | int32 opaque | int32 flag        13 bytes
    int32 remark length | remark
    int32 fields length | fields: repeat { int16 name length | name | int32 value length | value }

Big-endian, texts UTF-8. A length of 0 reads back as "none", for the remark and for a value. A code or version above
32767 does not fit: such a command travels as JSON (``fits_binary``).

``spec/remoting.md`` §1.3; upstream ``RocketMQSerializable``.
"""

import struct

from ...common.errors import FrameError
from .command import ROCKETMQ, Command, language_name, language_ordinal

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
