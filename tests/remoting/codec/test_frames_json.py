"""JSON headers: what Java's reader takes, and what we write."""

import json
import pathlib
from typing import Any

import pytest
from raw_calls import decode_json_header

from rocketlet.common.errors import FrameError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import FrameParser, encode_command, encode_json_header

CODEC = pathlib.Path(__file__).parent.parent.parent / "vectors" / "codec"
READING: list[dict[str, Any]] = [
    case for case in json.loads((CODEC / "json-reading.json").read_text()) if case["kind"] == "header"
]
HEADERS: list[dict[str, Any]] = json.loads((CODEC / "headers.json").read_text())
TAKEN_BY_OLDER_JAVA = {"unquoted keys"}  # fastjson 1.2 takes them, fastjson2 of 5.4.0 does not


def _decoded(command: Command) -> dict[str, Any]:
    names = ("code", "language", "version", "flag", "remark")
    return {**{name: getattr(command, name) for name in names}, "extFields": command.ext}


def _expected(result: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, str | None] = result["extFields"] or {}
    fields = {name: text for name, text in table.items() if text is not None}
    return result | {"extFields": fields, "language": result["language"] or "OTHER"}


@pytest.mark.parametrize("case", READING, ids=[case["note"] for case in READING])
def test_header_text_is_read_as_java_reads_it(case: dict[str, Any]):
    """Each header text that Java 5.4.0 was given has the same outcome here; null fields count as absent."""
    if isinstance(case["result"], str) and case["note"] not in TAKEN_BY_OLDER_JAVA:
        with pytest.raises(FrameError):
            decode_json_header(case["text"].encode())
        return
    command = decode_json_header(case["text"].encode())
    if isinstance(case["result"], str):
        assert (command.code, command.opaque) == (105, 7)
        return
    assert _decoded(command) == {name: _expected(case["result"])[name] for name in _decoded(command)}
    if "opaque" in case["text"]:
        assert command.opaque == case["result"]["opaque"]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ('{"flag":true}', "flag", 1),
        ('{"language":"13"}', "language", "OTHER"),
        ('{"language":99}', "language", "OTHER"),
        ('{"code":" 105 "}', "code", 105),
        ('{"remark":5}', "remark", "5"),
        ('{"remark":{"a":1}}', "remark", '{"a":1}'),
        ('{"opaque":null}', "opaque", 0),
        ('{"serializeTypeCurrentRPC":"ROCKETMQ"}', "serialize", 0),
        ('{"remark":"\xff"}', "remark", "\ufffd"),
        ('{" body":7," serialize":1}', "body", b""),
    ],
)
def test_odd_values_have_a_meaning(text: str, name: str, value: object):
    """Values of another type than Java's are brought into it, and no key reaches what is not part of a header."""
    assert getattr(decode_json_header(text.encode("latin-1")), name) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"code":"x"}',
        '{"code":[1]}',
        '{"code":2147483648}',
        '{"opaque":-2147483649}',
        '{"code":1e400}',
        '{"extFields":[1]}x',
        "\xff",
        '{"a":' + "[" * 100_000,
        "[" * 100_000,
        "1",
        "null",
        '"text"',
    ],
)
def test_unreadable_header_is_an_error(text: str):
    """What cannot be brought into a header's shape is refused with a FrameError."""
    with pytest.raises(FrameError):
        decode_json_header(text.encode("latin-1"))


@pytest.mark.parametrize("case", HEADERS, ids=[f"{case['code']}-{case['serialize']}" for case in HEADERS])
def test_header_vectors_decode(case: dict[str, Any]):
    """Frames that Java's own encoder wrote, in both forms, hold what Java's decoder found in them."""
    [command] = FrameParser().feed(bytes.fromhex(case["hex"]))
    expected = _expected(case) | {"remark": case["remark"] or None}
    decoded = _decoded(command) | {"remark": command.remark or None}
    assert decoded == {name: expected[name] for name in decoded}
    assert command.opaque == case["opaque"]
    assert command.body == bytes.fromhex(case["bodyHex"] or "")
    if case["extFields"] and None not in case["extFields"].values():
        assert encode_command(command) == bytes.fromhex(case["hex"])


def test_written_header_is_strict():
    """A written answer is compact JSON with sorted keys, text fields only, and always has its field table."""
    answer = Command.response(0, "ünï\u0001")
    answer.opaque = 9
    assert encode_json_header(answer).decode() == (
        '{"code":0,"extFields":{},"flag":1,"language":"PYTHON","opaque":9,"remark":"ünï\\u0001",'
        '"serializeTypeCurrentRPC":"JSON","version":479}'
    )


def test_request_without_fields_has_no_table():
    """A request without fields leaves the table out, as Java's do."""
    assert b"extFields" not in encode_json_header(Command.request(34))


def test_half_a_surrogate_pair_is_written_as_a_question_mark():
    """Text that UTF-8 cannot hold is written as Java writes it."""
    header = json.loads(encode_json_header(Command.response(1, "a\ud800b", {"k": "\udc00"})))
    assert (header["remark"], header["extFields"]) == ("a?b", {"k": "?"})
