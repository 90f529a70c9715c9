r"""Settings by Java's keys: the ``.properties`` text that holds them, and a frozen struct whose fields name them.

    class SomeConfig(Struct, frozen=True, kw_only=True):
        port: Annotated[int, Key("listenPort", "port to listen at", most=65_535)] = 10911

Fields are ``str``, ``bool`` or ``int``. ``parse_settings`` reads the values that a mapping of Java's keys holds,
``describe_settings`` lists them for ``--print-config``.

Rules of the text (broker.conf, KV configurations, the bodies of the configuration calls):

- It is read as ``java.util.Properties.load`` does: comments start with ``#`` or ``!``, a line that ends in an odd
  number of backslashes goes on in the next one without its leading blanks, a name ends at the first ``=``, ``:`` or
  blank that is not escaped, trailing blanks belong to the value. An escape that is cut off or not hex is an error.
- It is written with escapes for what the reader would misread, so that every mapping reads back as it is; characters
  outside ASCII are written as ``\uXXXX``, since Java reads the text as Latin-1.
- A file is UTF-8, or else Latin-1 as Java writes it. A value in it is changed line by line: comments and order stay.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from .errors import ConfigError, DecodeError

MAX_PROPERTY_LINES: Final = 10_000
"""Of a text that somebody sends."""
_BLANKS: Final = " \t\f"
_NAME: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_LINE_END_KEPT: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_WRITTEN: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_NAME_SPECIAL: Final = re.compile(r"[\\\t\n\r\f =:#!]|[^\x20-\x7e]")
_VALUE_SPECIAL: Final = re.compile(r"\A |[\\\t\n\r\f]|[^\x20-\x7e]")


def parse_java_properties(text: str) -> dict[str, str]:
    """Return the entries of a properties text; of equal names the last one counts.

    Raises:
        DecodeError: An escape is malformed.
    """
    entries: dict[str, str] = {}
    lines = _LINE_END.split(text)
    for line in _logical_lines(lines if lines[-1] else lines[:-1]):
        name, rest = _split_entry(line.text)
        entries[_unescape(name)] = _unescape(rest)
    return entries


def format_java_properties(entries: Mapping[str, str]) -> str:
    """Return one line per entry, in the order of the mapping."""
    return "".join([f"{_NAME_SPECIAL.sub(_escape, k)}={_VALUE_SPECIAL.sub(_escape, v)}\n" for k, v in entries.items()])


def change_java_properties(text: str, changes: Mapping[str, str]) -> str:
    """Return the text with other values: each in the place of the last one, or at the end if its name is new.

    Raises:
        DecodeError: An escape is malformed.
    """
    whole = _LINE_END_KEPT.findall(text)
    left = dict(changes)
    for line in reversed(list(_logical_lines([raw.rstrip("\r\n") for raw in whole]))):
        key = _unescape(_split_entry(line.text)[0])
        if key in left:
            whole[line.start : line.end] = [format_java_properties({key: left.pop(key)})]
        elif not line.text:  # a lone backslash at the end, which would take up what is added behind it
            whole[line.start : line.end] = [format_java_properties({"": ""})]
    if whole and left:
        whole[-1] = _close_line(whole[-1])
    return "".join(whole) + format_java_properties({key: value for key, value in changes.items() if key in left})


def _close_line(raw: str) -> str:
    line = raw.rstrip("\r\n")
    ended = raw if line != raw else f"{raw}\n"
    goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
    if not goes_on:
        return ended
    return f"{ended}\n" if ended[-1] == "\n" else f"{ended}\n\n"  # behind \r the first one belongs to it


def decode_java_properties(data: bytes) -> tuple[str, str]:
    """Return the text of a file, and in which encoding it is."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def _split_entry(line: str) -> tuple[str, str]:
    match = _NAME.match(line)
    return (match.group(1), line[match.end() :]) if match else ("", line)


class _LogicalLine(NamedTuple):
    """An entry, and in which lines it stands."""

    start: int
    end: int
    text: str


def _logical_lines(lines: list[str]) -> Iterator[_LogicalLine]:
    parts: list[str] = []  # of a line that goes on; none of them ends in an odd number of backslashes
    is_continued = False
    start = 0
    for number, raw in enumerate(lines):
        line = raw.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            is_continued = False
            continue
        start = start if parts else number
        backslashes = len(line) - len(line.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        if is_continued:
            parts += [line[:-1]] if len(line) > 1 else []
        else:
            yield _LogicalLine(start, number + 1, "".join([*parts, line]))
            parts = []
    if is_continued:  # Java makes an entry even of a last line that is a lone backslash
        yield _LogicalLine(start, len(lines), "".join(parts))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _join_surrogates(_ESCAPE.sub(_unescape_one, text))


def _unescape_one(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape == "u":
        raise DecodeError("malformed \\uXXXX escape in a properties text")
    return _ESCAPES.get(escape, escape)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character in _WRITTEN:
        return _WRITTEN[character]
    if " " <= character <= "~":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)])


def _join_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


FOUND: Final = "(found)"
"""Stands for a default that depends on the machine."""


NOT_SHOWN: Final = "******"
"""Stands for a value that is a secret."""


class Setting(NamedTuple):
    """One row of ``--print-config``."""

    key: str
    value: str
    default: str
    meaning: str


class Key(NamedTuple):
    """Which key a field is read by; of a default that a factory finds on this machine nothing is told.

    A secret is a text that is not shown; a struct that has one must keep it out of its ``repr`` as well.
    """

    name: str
    meaning: str
    least: int = 0
    most: int = 2**63 - 1
    is_secret: bool = False


class _KeyedField(NamedTuple):
    key: Key
    name: str
    kind: type
    default: str


def setting_keys(kind: type[Struct]) -> frozenset[str]:
    """Return the keys that a config names."""
    return frozenset(field.key.name for field in _keyed_fields(kind))


def secret_keys(kind: type[Struct]) -> frozenset[str]:
    """Return those of them whose values are secrets."""
    return frozenset(field.key.name for field in _keyed_fields(kind) if field.key.is_secret)


def parse_settings(kind: type[Struct], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields whose keys are given; other keys are left alone.

    Raises:
        ConfigError: a value does not parse or is out of range; ``key`` names it.
    """
    return {
        field.name: _parse(field, settings[field.key.name].strip())
        for field in _keyed_fields(kind)
        if field.key.name in settings
    }


def describe_settings(config: Struct) -> list[Setting]:
    """Return a row for each setting of a config, with ``NOT_SHOWN`` in the place of secrets."""
    return [
        Setting(field.key.name, _show(field, getattr(config, field.name)), field.default, field.key.meaning)
        for field in _keyed_fields(type(config))
    ]


def _show(field: _KeyedField, value: object) -> str:
    return NOT_SHOWN if field.key.is_secret and value else format_setting(value)


def format_setting(value: object) -> str:
    """Return a value as it stands in a settings file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def _keyed_fields(kind: type[Struct]) -> tuple[_KeyedField, ...]:
    return tuple(
        _KeyedField(
            field.type.__metadata__[0],
            field.name,
            field.type.__origin__,
            FOUND if field.default is NODEFAULT else format_setting(field.default),
        )
        for field in fields(kind)
        if hasattr(field.type, "__metadata__")
    )


def _parse(field: _KeyedField, text: str) -> str | int | bool:
    if field.kind is str:
        return text
    if field.kind is bool:
        return _parse_flag(field.key.name, text)
    return _parse_number(field.key.name, text, field.key.least, field.key.most)


def _parse_flag(key: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ConfigError(f"{key} is {text!r}, expected true or false", key=key)
    return text.lower() == "true"


def _parse_number(key: str, text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{key} is {text!r}, expected a number", key=key) from None
    if not least <= number <= most:
        raise ConfigError(f"{key} is {number}, expected {least} to {most}", key=key)
    return number
