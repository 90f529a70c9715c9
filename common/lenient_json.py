"""The lenient JSON reader: what fastjson accepts and strict JSON does not, and the cleaning of what was read.

Rules of the text (remoting.md §1.2, §5.2):

- Accepted beyond JSON: single quotes, bare keys (integers, identifiers), objects as keys, trailing commas, all blanks
  and escapes of fastjson, bytes that are not UTF-8 (as U+FFFD). Not accepted: comments, ``True``, ``None``, ``NaN``,
  text behind the value, more than ``MAX_DEPTH`` levels.
- The tree holds builtins; a key is a text, a ``MessageQueue`` or a ``KeyReference``.

Rules of the cleaning, of any decoded tree: nulls are dropped, queues in keys found, references resolved. These are
fastjson's: ``$`` is the root, ``$.a.b`` a member, ``$.a[0]`` an element; ``..`` (the parent) and ``@`` (the object
itself), like every path to something that holds the reference, would make a cycle. Those, and paths that lead nowhere,
drop their entry. A reference is replaced by a copy; the copies of one document are bounded.
"""

import math
import re
from typing import Any, Final, NamedTuple, cast

import msgspec

from .errors import JsonError
from .message import MessageQueue

MAX_DEPTH: Final = 100

_BLANKS: Final = re.compile(r"[ \t\r\n\f\b]*+")
_DOUBLE_QUOTED: Final = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_SINGLE_QUOTED: Final = re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.])")
_WORD: Final = re.compile(r"(?:true|false|null)(?![\w$])")
_BARE_KEY: Final = re.compile(r"-?[0-9]+(?![\w$])|(?:[^\W\d]|\$)[\w$]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {
    **{character: character for character in "\"'\\/"},
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{str(digit): chr(digit) for digit in range(8)},
}
_WORDS: Final = {"true": True, "false": False, "null": None}


class KeyReference(NamedTuple):
    """A reference (``$ref``) in the place of a key."""

    path: str


def parse_lenient(data: bytes | str) -> tuple[Any, int]:
    """Return the tree of a text and the text's length.

    Raises:
        JsonError: The text is outside the dialect.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    reader = _Reader(text.removeprefix("\ufeff"))
    return reader.read_document(), len(text)


def to_message_queue(value: dict[Any, Any]) -> MessageQueue | None:
    """Return the queue that an object describes, if it does."""
    topic, broker_name, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
    if isinstance(queue_id, str) and re.fullmatch(r"-?[0-9]{1,10}", queue_id):
        queue_id = int(queue_id)
    if isinstance(topic, str) and isinstance(broker_name, str) and isinstance(queue_id, int):
        return MessageQueue(topic, broker_name, queue_id)
    return None


class _Reader:
    __slots__ = ("_depth", "_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0

    def read_document(self) -> Any:
        value = self._read_value()
        if self._peek():
            raise self._error("text behind the value")
        return value

    def _error(self, problem: str) -> JsonError:
        return JsonError(f"JSON at character {self._position} of {len(self._text)}: {problem}")

    def _peek(self) -> str:
        match = _BLANKS.match(self._text, self._position)
        self._position = match.end() if match else self._position
        return self._text[self._position : self._position + 1]

    def _take(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = pattern.match(self._text, self._position)
        if match is None:
            raise self._error(f"expected {expected}")
        self._position = match.end()
        return match

    def _read_value(self) -> Any:
        first = self._peek()
        if first == "{":
            return self._read_object()
        if first == "[":
            return self._read_array()
        if first in ('"', "'"):
            return self._read_text(first)
        if first in ("t", "f", "n"):
            return _WORDS[self._take(_WORD, "a value").group()]
        return self._read_number()

    def _read_number(self) -> int | float:
        match = self._take(_NUMBER, "a value")
        try:
            number = int(match.group()) if match.lastindex is None else float(match.group())
            is_in_range = math.isfinite(number)
        except ValueError:  # Python reads no integer of more than some thousand digits
            raise self._error("number is too long") from None
        except OverflowError:  # an integer of more than 308 digits
            raise self._error("number is out of range") from None
        if not is_in_range:
            raise self._error("number is out of range")
        return number

    def _read_text(self, quote: str) -> str:
        text = self._take(_DOUBLE_QUOTED if quote == '"' else _SINGLE_QUOTED, "the end of a text").group(1)
        if "\\" not in text:
            return text
        text = _ESCAPE.sub(self._unescape, text)
        # Halves of a pair become one character; a lone half becomes "?", as when Java writes it.
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return whole.encode(errors="replace").decode()

    def _unescape(self, match: re.Match[str]) -> str:
        escape = match.group(1)
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPES:
            raise self._error(f"unknown escape {escape!r}")
        return _ESCAPES[escape]

    def _enter(self) -> None:
        self._position += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"nesting is deeper than {MAX_DEPTH}")

    def _leave_or_continue(self, closing: str) -> bool:
        """Step over a comma or the closing bracket; tell whether it was the bracket."""
        found = self._peek()
        if found == ",":
            self._position += 1
            found = self._peek()
            if found != closing:
                return False
        if found != closing:
            raise self._error(f"expected , or {closing}")
        self._position += 1
        self._depth -= 1
        return True

    def _read_array(self) -> list[Any]:
        self._enter()
        result: list[Any] = []
        if self._peek() == "]":
            self._leave_or_continue("]")
            return result
        while True:
            result.append(self._read_value())
            if self._leave_or_continue("]"):
                return result

    def _read_object(self) -> dict[Any, Any]:
        self._enter()
        result: dict[Any, Any] = {}
        if self._peek() == "}":
            self._leave_or_continue("}")
            return result
        while True:
            key = self._read_key()
            if self._peek() != ":":
                raise self._error("expected :")
            self._position += 1
            result[key] = self._read_value()
            if self._leave_or_continue("}"):
                return result

    def _read_key(self) -> str | MessageQueue | KeyReference:
        first = self._peek()
        if first in ('"', "'"):
            return self._read_text(first)
        if first != "{":
            return self._take(_BARE_KEY, "a key").group()
        start = self._position
        value = self._read_object()
        path = value.get("$ref")
        if isinstance(path, str):
            return KeyReference(path)
        return to_message_queue(value) or self._text[start : self._position]


_ABSENT: Final = object()
_SPARE_NODES: Final = 100_000
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")


def clean_tree(tree: Any, text_length: int) -> Any:
    """Return the cleaned copy of a tree that was read from a text of the given length.

    Raises:
        JsonError: It is too deep, or its references multiply it.
    """
    # A document without references has fewer nodes than characters.
    value = _Cleaner(tree, text_length + _SPARE_NODES).clean(tree, 0)
    return None if value is _ABSENT else value


class _Cleaner:
    __slots__ = ("_nodes_left", "_open", "_root")

    def __init__(self, root: Any, max_nodes: int) -> None:
        self._root = root
        self._nodes_left = max_nodes
        self._open: set[int] = set()  # the objects that are being copied: a reference to one of them is a cycle

    def clean(self, node: Any, depth: int) -> Any:
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise JsonError("references in the JSON text multiply its content")
        if not isinstance(node, dict | list):
            return node
        if depth > MAX_DEPTH:
            raise JsonError(f"nesting is deeper than {MAX_DEPTH}")
        marker = id(cast("object", node))
        if marker in self._open:
            return _ABSENT
        self._open.add(marker)
        try:
            if isinstance(node, list):
                items = [self.clean(item, depth + 1) for item in cast("list[Any]", node)]
                return [item for item in items if item is not _ABSENT]
            return self._clean_object(cast("dict[Any, Any]", node), depth)
        finally:
            self._open.discard(marker)

    def _clean_object(self, node: dict[Any, Any], depth: int) -> Any:
        path = node.get("$ref")
        if isinstance(path, str) and len(node) == 1:
            return self.clean(self._find(path), depth + 1)
        result: dict[Any, Any] = {}
        for key, item in node.items():
            value = self.clean(item, depth + 1)
            if value is None or value is _ABSENT:
                continue
            clean_key = self._clean_key(key)
            if clean_key is not None:
                result[clean_key] = value
        return result

    def _clean_key(self, key: Any) -> str | MessageQueue | None:
        if isinstance(key, KeyReference):
            target = self._find(key.path)
            return to_message_queue(cast("dict[Any, Any]", target)) if isinstance(target, dict) else None
        if isinstance(key, str) and key.startswith("{"):
            return _parse_queue_key(key) or key
        return key

    def _find(self, path: str) -> Any:
        if not path.startswith("$"):
            return _ABSENT
        node, position = self._root, 1
        while position < len(path):
            step = _STEP.match(path, position)
            if step is None:
                return _ABSENT
            node = _member(node, step)
            position = step.end()
        return node


def _member(node: Any, step: re.Match[str]) -> Any:
    index = step.group(2)
    if index is None:
        name = step.group(step.lastindex or 1)
        return cast("dict[Any, Any]", node).get(name, _ABSENT) if isinstance(node, dict) else _ABSENT
    items = cast("list[Any]", node) if isinstance(node, list) else []
    return items[int(index)] if int(index) < len(items) else _ABSENT


def _parse_queue_key(text: str) -> MessageQueue | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return to_message_queue(cast("dict[Any, Any]", value)) if isinstance(value, dict) else None
