"""Cleans a decoded JSON tree: drops nulls, finds queues in keys, resolves references.

References are fastjson's: ``$`` is the root, ``$.a.b`` a member, ``$.a[0]`` an element; ``..`` (the parent) and ``@``
(the object itself), like every path to something that holds the reference, would make a cycle. Those, and paths
that lead nowhere, drop their entry. A reference is replaced by a copy; the copies of one document are bounded.
"""

import re
from typing import Any, Final, cast

import msgspec

from ..errors import JsonError
from ..message import MessageQueue
from .reader import MAX_DEPTH, KeyReference, to_message_queue

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
