"""How administrators ask a name server or a broker for other settings: a properties text, all of it or nothing."""

from collections.abc import Set as AbstractSet

from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...common.settings import MAX_PROPERTY_LINES, parse_java_properties
from .command import Command


def read_changes(body: bytes, black_list: AbstractSet[str]) -> dict[str, str] | Command:
    """Return the values by key, or the answer to a text that cannot be read or names a key of the black list.

    Raises:
        DecodeError: the text has too many lines.
    """
    lines = body.count(b"\n") + body.count(b"\r")
    if lines > MAX_PROPERTY_LINES:
        raise DecodeError(f"the settings have {lines} ends of lines, limit is {MAX_PROPERTY_LINES}")
    try:
        changes = parse_java_properties(body.decode(errors="replace"))
    except DecodeError:
        return Command.response(ResponseCode.SYSTEM_ERROR, "string2Properties error")
    if not black_list.isdisjoint(changes):
        return Command.response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    return changes
