import contextlib
import json
from typing import Any

import pytest

from rocketlet.common.errors import JsonError
from rocketlet.common.java_json import read_json, read_json_as
from rocketlet.common.lenient_json import MAX_DEPTH, parse_lenient
from rocketlet.common.message import MessageQueue

QUEUE = MessageQueue("T", "b", 0)
RAW_QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":[{"x":1}],"b":{"$ref":"$.a[0]"}}', {"a": [{"x": 1}], "b": {"x": 1}}),
        ('{"a":{"x":{"y":1}},"b":{"$ref":"$.a.x"}}', {"a": {"x": {"y": 1}}, "b": {"y": 1}}),
        ('{"a":{"x y":1},"b":{"$ref":"$[\'a\'][\\"x y\\"]"}}', {"a": {"x y": 1}, "b": 1}),
        ('{"a":1,"b":{"$ref":"$.nothing"}}', {"a": 1}),
        ('{"a":1,"b":{"$ref":"$.a[0]"}}', {"a": 1}),
        ('{"a":[1],"b":{"$ref":"$.a[1]"},"c":{"$ref":"$.a.x"}}', {"a": [1]}),
        ('{"a":1,"b":{"$ref":"$x"},"c":{"$ref":"nonsense"}}', {"a": 1}),
        ('{"a":1,"b":{"$ref":"$"}}', {"a": 1}),
        ('{"a":1,"b":{"$ref":".."}}', {"a": 1}),
        ('{"a":1,"b":{"$ref":"@"}}', {"a": 1}),
        ('{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}', {}),
        ('{"a":{"$ref":"$.b"},"b":{"$ref":"$.c"},"c":{"x":1}}', {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}),
        ('{"a":[{"$ref":"$.nothing"},2]}', {"a": [2]}),
        ('{"a":{"b":{"c":{"$ref":"$.a"}}}}', {"a": {"b": {}}}),
        ('{"$ref":"$.a"}', None),
        ('{"a":{"$ref":1}}', {"a": {"$ref": 1}}),
        ('{"a":{"$ref":"$.b","x":1},"b":2}', {"a": {"$ref": "$.b", "x": 1}, "b": 2}),
        (f'{{"q":{RAW_QUEUE},"t":{{{{"$ref":"$.q"}}:5}}}}', {"q": json.loads(RAW_QUEUE), "t": {QUEUE: 5}}),
        ('{"mqTable":{{"$ref":"$.mqPopTable.null"}:{"x":1}},"y":2}', {"mqTable": {}, "y": 2}),
    ],
)
def test_references_are_resolved_or_dropped(text: str, expected: object) -> None:
    """A reference becomes what it names; one that leads nowhere or in a circle drops its entry."""
    assert read_json(text) == expected


def test_references_that_multiply_are_refused() -> None:
    """References of references cannot make a small text large."""
    tree: dict[str, object] = {"a0": [1]}
    for level in range(1, 12):
        tree[f"a{level}"] = [{"$ref": f"$.a{level - 1}"}] * 10
    with pytest.raises(JsonError, match="multiply"):
        read_json(json.dumps(tree))


ACCEPTED: list[tuple[str, Any]] = [
    ("{}", {}),
    ("[]", []),
    ("null", None),
    (" [ 1 , 2 ] ", [1, 2]),
    ("{'a':'b\"','c':\"d'\"}", {"a": 'b"', "c": "d'"}),
    ("{a:1,$b:2,_c:3,ä:4}", {"a": 1, "$b": 2, "_c": 3, "ä": 4}),
    ("{0:'a',-1:'b'}", {"0": "a", "-1": "b"}),
    ('{"0":"a"}', {"0": "a"}),
    ("{a:null,b:[null,1]}", {"b": [None, 1]}),
    ('{"a":null,"b":[null,{"c":null}]}', {"b": [None, {}]}),
    ("[1,2,]", [1, 2]),
    ("{a:1,}", {"a": 1}),
    ("{a:-1.5e3,b:1E2,c:0,d:-0}", {"a": -1500.0, "b": 100.0, "c": 0, "d": 0}),
    ("{a:true,b:false}", {"a": True, "b": False}),
    ("\ufeff{a:1}", {"a": 1}),
    (r"['\u00fc\n\t\\\/\'\"\x41\0\v\ud83d\ude00']", ["ü\n\t\\/'\"A\0\v😀"]),
    (r"'\ud83d'", "?"),
    ("'a\nb'", "a\nb"),
    (f"{{{RAW_QUEUE}:5}}", {QUEUE: 5}),
    ("{{topic:'T',queueId:'0',brokerName:'b'}:5}", {QUEUE: 5}),
    (json.dumps({RAW_QUEUE: 5}), {QUEUE: 5}),
    ("{{a:1}:2}", {"{a:1}": 2}),
    ('{"{a:1}":2,"{}":3}', {"{a:1}": 2, "{}": 3}),
]


@pytest.mark.parametrize(("text", "expected"), ACCEPTED)
def test_text_in_the_dialect(text: str, expected: Any) -> None:
    """What fastjson accepts is read, from bytes as from text."""
    assert read_json(text) == expected
    assert read_json(text.encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", " ",
        "{", "[", "[1", '{"a"', '{"a":', '{"a":1', "{a}", "{:1}", "{,}", "[,]", "[1 2]", "{a:1 b:2}", "{}x", "'a",
        '"a', r"'\q'", r"'\u12'", "True", "None",
        "nul", "nullx", "truex", "NaN", "-", "1.", ".5", "1e", "+1", "0x1", "1a",
        "1e999", "9" * 5000, "// note\n1", "{a:1}}", "]", "\x00", "{1a:2}",
    ],
)  # fmt: skip
def test_text_outside_the_dialect(text: str) -> None:
    """What fastjson refuses is a JSON error."""
    with pytest.raises(JsonError):
        read_json(text)
    with pytest.raises(JsonError):
        read_json(text.encode())


def test_bytes_that_are_not_utf_8() -> None:
    """Bytes outside UTF-8 read as U+FFFD, as Java decodes them."""
    assert read_json(b'{"a":"\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize("opening", ["[", '{"a":', "{a:", "[null,", '{"{":', "{{a:1}:"])
def test_nesting_is_limited(opening: str) -> None:
    """Any depth of nesting, closed or not, is a value or a JSON error, never a recursion error."""
    closing = "]" if opening.startswith("[") else "}"
    for depth in (MAX_DEPTH - 1, MAX_DEPTH + 1, 900, 100_000):
        for text in (opening * depth + "1" + closing * depth, opening * depth):
            with contextlib.suppress(JsonError):
                read_json(text)
            for kind in (object, list[object], dict[str, str]):
                with contextlib.suppress(JsonError):
                    read_json_as(text, kind)


def test_nesting_of_ordinary_depth_is_read() -> None:
    """The lenient reader takes nearly MAX_DEPTH levels."""
    tree, _ = parse_lenient("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert isinstance(tree, list)
    with pytest.raises(JsonError, match="deeper than"):
        parse_lenient("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_integer_beyond_doubles_is_refused() -> None:
    """An integer of 309 digits or more is an error of the dialect, as a fraction of that size is."""
    with pytest.raises(JsonError, match="number is out of range"):
        parse_lenient("[" + "1" * 400 + ",]")
