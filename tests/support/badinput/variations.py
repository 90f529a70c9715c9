"""All the ways in which a good request can be wrong: ``vary`` makes the cases of one request code.

the header    no table, an empty one, null, all fields empty, fields nobody knows; both serialisations
a field       missing, null, empty, blank, over-long, illegal characters, another JSON type;
              a number: no number, fraction, signs, blanks, too large for an int, too large for a long, negative
the body      missing, no JSON, other JSON, far too deep, bytes that are no text, over-long
in the body   each value missing, null, of other types, negative, over-long
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from badinput.case import Case, LongBody, describe_body

MOST_BINARY_CODE = 32_767
LONG = "L" * 256
HUGE = "H" * 33_000  # more than a Java short holds
NUMBERS = {
    "empty": "",
    "blank": " ",
    "negative": "-1",
    "text": "no number",
    "fraction": "1.5",
    "plus sign": "+0",
    "blank behind": "0 ",
    "hexadecimal": "0x0",
    "least int": "-2147483648",
    "above int": "2147483648",
    "above long": "9223372036854775808",
    "unquoted": 0,
    "boolean": True,
    "list": [1],
}
TEXTS = {
    "empty": "",
    "blank": " ",
    "128 long": "M" * 128,
    "256 long": LONG,
    "huge": HUGE,
    "illegal characters": "a b/c!",
    "not ASCII": "消息😀",
    "half a character": "\ud83d",
    "number": 12,
    "object": {"a": 1},
}
FLAGS = {"empty": "", "text": "yes", "capitals": "TRUE", "number": "1", "unquoted": True, "unquoted number": 1}
BODIES = {
    "empty body": "",
    "body: broken": '{"a":',
    "body: null": "null",
    "body: empty object": "{}",
    "body: list": "[]",
    "body: number": "1",
    "body: text": '"text"',
    "body: no JSON": "no JSON at all",
    "body: no text": LongBody(base64="//4AgA=="),
    "body: deep": LongBody(text="[", times=5000),
    "body: long": LongBody(text="x", times=1 << 20),
}
IN_BODY: Mapping[type, Mapping[str, Any]] = {
    int: {"null": None, "text": "no number", "digits": "1", "empty": "", "negative": -1, "fraction": 1.5}
    | {"above int": 1 << 31, "above long": 1 << 63, "list": [], "boolean": True},
    bool: {"null": None, "text": "yes", "empty": "", "number": 1, "list": []},
    str: {"null": None, "empty": "", "blank": " ", "256 long": LONG, "illegal characters": "a b/c!"}
    | {"number": 12, "boolean": True, "list": [], "object": {}},
    list: {"null": None, "empty": [], "text": "text", "number": 1, "object": {}, "of null": [None], "of numbers": [1]},
    dict: {"null": None, "empty": {}, "text": "text", "number": 1, "list": []},
}


class Sample(NamedTuple):
    """A good request. Body: JSON whose values are varied, or bytes or a text that only other bodies replace."""

    code: int
    fields: Mapping[str, str] = {}
    body: Any = b""
    bodies: Mapping[str, str | LongBody] = {}
    """Further bad bodies of this request."""
    values: Mapping[str, Sequence[str]] = {}
    """Further bad values of its fields."""


def vary(sample: Sample) -> Iterator[Case]:
    """Yield the good request and everything that can be wrong with it; binary headers hold codes of 16 bits."""
    return (case for case in _vary_all(sample) if not (case.binary and case.code > MOST_BINARY_CODE))


def _vary_all(sample: Sample) -> Iterator[Case]:
    code, body = sample.code, describe_body(encode_body(sample.body))
    yield Case(code=code, title="good", fields=dict(sample.fields), body=body)
    yield Case(code=code, title="good, binary", fields=dict(sample.fields), body=body, binary=True)
    for title, fields in _headers(sample.fields):
        yield Case(code=code, title=title, fields=fields, body=body)
    yield Case(code=code, title="no fields, no body")
    yield Case(code=code, title="no fields, binary", body=body, binary=True)
    for name, value in sample.fields.items():
        for title, fields in _vary_field(sample.fields, name, value):
            yield Case(code=code, title=f"{name}: {title}", fields=fields, body=body)
        without = {other: text for other, text in sample.fields.items() if other != name}
        yield Case(code=code, title=f"{name}: missing, binary", fields=without, body=body, binary=True)
    for name, values in sample.values.items():
        for value in values:
            yield Case(code=code, title=f"{name}: {value!r}", fields={**sample.fields, name: value}, body=body)
    for title, other in (dict(BODIES) | dict(sample.bodies)).items():
        yield Case(code=code, title=title, fields=dict(sample.fields), body=other)
    if not isinstance(sample.body, bytes | str):
        for title, changed in vary_json(sample.body):
            yield Case(code=code, title=f"body: {title}", fields=dict(sample.fields), body=json.dumps(changed))


def encode_body(body: Any) -> bytes:
    """Return the bytes of a good body."""
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


def vary_json(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Yield a JSON value with one thing in it changed, and what that is."""
    for title, other in IN_BODY[type(value)].items():
        yield f"{path} {title}", other
    if isinstance(value, dict):
        yield from _vary_entries(cast("dict[str, Any]", value), path)
    if isinstance(value, list) and value:
        first, *others = cast("list[Any]", value)
        for title, item in vary_json(first, f"{path}[0]"):
            yield title, [item, *others]


def _vary_entries(table: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        yield f"{path}.{name} missing", {other: item for other, item in table.items() if other != name}
        for title, item in vary_json(value, f"{path}.{name}"):
            yield title, {**table, name: item}


def _headers(fields: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    yield "no fields", None
    yield "empty fields", {}
    yield "fields nobody knows", {"unheardOf": "1"}
    yield "one more field", {**fields, "unheardOf": "1"}
    if fields:
        yield "all fields empty", dict.fromkeys(fields, "")
        yield "all fields text", dict.fromkeys(fields, "no number")
        yield "all fields negative", dict.fromkeys(fields, "-1")
        yield "fields in capitals", {name.upper(): value for name, value in fields.items()}


def _vary_field(fields: Mapping[str, str], name: str, value: str) -> Iterator[tuple[str, Any]]:
    yield "missing", {other: text for other, text in fields.items() if other != name}
    yield "null", {**fields, name: None}
    table: Mapping[str, Any] = TEXTS
    if value.lstrip("-").isdigit():
        table = NUMBERS
    elif value in ("true", "false"):
        table = FLAGS
    for title, other in table.items():
        yield title, {**fields, name: other}
