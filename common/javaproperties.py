r"""Java's ``.properties`` text: broker.conf, KV configurations and the bodies of the configuration calls.

Reading follows ``java.util.Properties.load``: comments start with ``#`` or ``!``, a line that ends in an odd number of
backslashes goes on in the next one without its leading blanks, a name ends at the first ``=``, ``:`` or blank that is
not escaped, trailing blanks belong to the value. An escape that is cut off or not hex is an error.

Writing escapes what the reader would misread, so that every mapping reads back as it is; characters outside ASCII are
written as ``\uXXXX``, since Java reads the text as Latin-1.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from .errors import DecodeError

_BLANKS: Final = " \t\f"
_NAME: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_WRITTEN: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_NAME_SPECIAL: Final = re.compile(r"[\\\t\n\r\f =:#!]|[^\x20-\x7e]")
_VALUE_SPECIAL: Final = re.compile(r"\A |[\\\t\n\r\f]|[^\x20-\x7e]")


def parse_java_properties(text: str) -> dict[str, str]:
    """Return the entries of a properties text; of equal names the last one counts.

    Raises:
        DecodeError: An escape is malformed.
    """
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _NAME.match(line)
        name, rest = (match.group(1), line[match.end() :]) if match else ("", line)
        entries[_unescape(name)] = _unescape(rest)
    return entries


def format_java_properties(entries: Mapping[str, str]) -> str:
    """Return one line per entry, in the order of the mapping."""
    return "".join([f"{_NAME_SPECIAL.sub(_escape, k)}={_VALUE_SPECIAL.sub(_escape, v)}\n" for k, v in entries.items()])


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []  # of a line that goes on; none of them ends in an odd number of backslashes
    is_continued = False
    lines = _LINE_END.split(text)
    if not lines[-1]:
        lines.pop()
    for raw in lines:
        line = raw.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            is_continued = False
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        if is_continued:
            parts += [line[:-1]] if len(line) > 1 else []
        else:
            yield "".join([*parts, line])
            parts = []
    if is_continued:  # Java makes an entry even of a last line that is a lone backslash
        yield "".join(parts)


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
