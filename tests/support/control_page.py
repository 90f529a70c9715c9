"""The page about the control port: its tables are those of the routes, what stands above the mark is written by hand.

python tests/support/control_page.py docs/reference/control-port.md
"""

import pathlib
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from rocketlet.cli.control_port.openapi import type_name
from rocketlet.cli.control_port.requests import AskedNothing
from rocketlet.cli.control_port.routes import ROUTES, Route

PAGE: Final = pathlib.Path("docs", "reference", "control-port.md")
MARK: Final = "<!-- written by make control-port -->\n"
Schema = dict[str, Any]


def write(page: str) -> str:
    """Return the page with tables that are up to date."""
    head, mark, _ = page.partition(MARK)
    assert mark, f"{PAGE} has lost its mark"
    return head + mark + "\n" + "\n".join(_lines())


def _lines() -> Iterator[str]:
    for section in dict.fromkeys(route.section for route in ROUTES):
        yield f"## {section}"
        yield ""
        yield "| request | asks | answers | refusals |"
        yield "|---|---|---|---|"
        routes = [route for route in ROUTES if route.section == section]
        for route in routes:
            yield _row(route)
        yield ""
    yield "## What is said"
    yield ""
    asked = [kind for route in ROUTES for kind in (route.body, route.query) if _says_something(kind)]
    answered = [route.answer for route in ROUTES if route.answer is not None]
    _, components = msgspec.json.schema_components([*asked, *answered], ref_template="{name}")
    names = {_name_of(kind) for kind in asked}
    for name, schema in sorted(components.items()):
        yield from _table(name, schema, has_defaults=name in names)


def _says_something(kind: Any) -> bool:
    return kind is not None and kind is not AskedNothing


def _row(route: Route) -> str:
    asked = " ".join(
        f"[{type_name(kind)}](#{_anchor(kind)})" for kind in (route.body, route.query) if _says_something(kind)
    )
    asked = "a snapshot" if route.takes_file else asked
    answer = f"[{type_name(route.answer)}](#{_anchor(route.answer)})" if route.answer is not None else "nothing"
    answer = "a snapshot" if route.gives_file else answer
    refusals = ", ".join(map(str, route.refusals))
    return f"| `{route.method} {route.path}`: {route.summary} | {asked} | {answer} | {refusals} |"


def _name_of(kind: Any) -> str:
    return type_name(kind).removeprefix("list of ")


def _anchor(kind: Any) -> str:
    return _name_of(kind).lower()


def _table(name: str, schema: Schema, *, has_defaults: bool) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield schema["description"]
    yield ""
    yield "| field | type | default | meaning |" if has_defaults else "| field | type | meaning |"
    yield "|---|---|---|---|" if has_defaults else "|---|---|---|"
    for field, described in schema["properties"].items():
        cells = [f"`{field}`", _type_of(described), described.get("description", "")]
        if has_defaults:
            needed = "needed" if field in schema.get("required", ()) else ""
            cells.insert(2, f"`{_text_of(described['default'])}`" if "default" in described else needed)
        yield f"| {' | '.join(cells)} |"
    yield ""


def _text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _type_of(schema: Schema) -> str:
    if "$ref" in schema:
        return f"[{schema['$ref']}](#{schema['$ref'].lower()})"
    if "anyOf" in schema:
        return "; or ".join(map(_type_of, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type_of(schema['items'])}" if "items" in schema else "list"
    if kind == "object":
        return f"object of {_type_of(schema['additionalProperties'])}"
    bounds = "".join(f"{word} {schema[key]:g}" for key, word in _BOUNDS.items() if key in schema)
    name = "text in base64" if schema.get("contentEncoding") == "base64" else _WORDS.get(kind, kind)
    return f"{name}{bounds}"


_BOUNDS: Final = {"minimum": ", at least", "maximum": ", at most"}
_WORDS: Final = {"string": "text", "boolean": "true or false"}

if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.write_text(write(path.read_text()))
