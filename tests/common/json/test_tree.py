import json

import pytest

from rocketlet.common.errors import JsonError
from rocketlet.common.json.javajson import read_json
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
