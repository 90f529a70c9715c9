"""Typed headers: what their fields take, and which names errors give."""

from typing import ClassVar

import msgspec
import pytest

from rocketlet.common.errors import HeaderError
from rocketlet.common.java_json import Int32, Int64
from rocketlet.remoting.codec.command import (
    Command,
    decode_fields,
    decode_header,
    encode_fields,
    format_text,
)
from rocketlet.remoting.codec.frames import FrameParser, encode_command


class _Sample(msgspec.Struct, rename="camel", kw_only=True):
    topic: str
    queue_id: Int32
    at_ms: Int64 = msgspec.field(name="timestamp", default=-1)
    is_forced: bool = msgspec.field(name="force", default=False)
    note: str | None = None
    level: Int32 | None = None


class _Strict(_Sample, kw_only=True):
    is_strict: ClassVar[bool] = True


FULL = {"topic": "T", "queueId": "3", "timestamp": "9", "force": "true", "note": "n", "level": "-2"}


def _as_received(fields: dict[str, str], serialize: int) -> Command:
    command = Command.request(1, fields, serialize=serialize)
    return FrameParser().feed(encode_command(command))[0]


@pytest.mark.parametrize("serialize", [0, 1])
def test_fields_become_attributes(serialize: int):
    """Both header forms give the same struct, and the struct gives the same fields again."""
    sample = decode_header(_Sample, _as_received(FULL | {"unknown": "x"}, serialize))
    assert sample == _Sample(topic="T", queue_id=3, at_ms=9, is_forced=True, note="n", level=-2)
    assert encode_fields(sample) == FULL


def test_ext_can_be_read_before_the_header():
    """Looking at the field table first changes nothing about the typed header."""
    command = _as_received(FULL, 0)
    assert command.ext == FULL
    assert decode_header(_Sample, command).queue_id == 3


@pytest.mark.parametrize("serialize", [0, 1])
@pytest.mark.parametrize("name", ["topic", "queueId"])
def test_missing_field_is_named(name: str, serialize: int):
    """A mandatory field that is not there is an error with Java's text and the wire's name."""
    fields = {key: text for key, text in FULL.items() if key != name}
    with pytest.raises(HeaderError, match=f"^the custom field <{name}> is null$"):
        decode_header(_Sample, _as_received(fields, serialize))


def test_header_without_any_field_names_the_first():
    """A request without a field table misses its first mandatory field."""
    with pytest.raises(HeaderError, match=r"^the custom field <topic> is null$"):
        decode_header(_Sample, Command(code=1))


def test_empty_number_counts_as_missing():
    """An empty text in place of a number or boolean is as if the field were not there."""
    sample = decode_fields(_Sample, FULL | {"timestamp": "", "force": "", "level": ""})
    assert (sample.at_ms, sample.is_forced, sample.level) == (-1, False, None)
    with pytest.raises(HeaderError, match=r"^the custom field <queueId> is null$"):
        decode_fields(_Sample, FULL | {"queueId": ""})


def test_empty_text_stays():
    """An empty text is a text: Java's broker answers a send to the topic "" with "The specified topic is blank"."""
    assert decode_fields(_Sample, FULL | {"topic": ""}).topic == ""


@pytest.mark.parametrize("text", ["x", "1x", "0x10", "1.5", " 1", "2147483648", "-2147483649", "9" * 400, "9" * 5000])
def test_bad_number_is_named(text: str):
    """A text that is no Java int is an error that names the field and shows the text."""
    with pytest.raises(HeaderError, match=r"^the custom field <queueId> is not a valid number: "):
        decode_header(_Sample, _as_received(FULL | {"queueId": text}, 0))


@pytest.mark.parametrize(
    ("text", "number"), [("+7", 7), ("-0", 0), ("007", 7), ("\uff11", 1), ("2147483647", 2**31 - 1)]
)
def test_number_is_what_java_reads(text: str, number: int):
    """A number may have a sign, leading zeros and the digits of any script, as for Java's parseInt."""
    assert decode_header(_Sample, _as_received(FULL | {"queueId": text}, 0)).queue_id == number


def test_long_is_limited_to_64_bits():
    """A long takes its whole range and nothing beyond."""
    assert decode_fields(_Strict, FULL | {"timestamp": str(-(2**63))}).at_ms == -(2**63)
    with pytest.raises(HeaderError, match="<timestamp>"):
        decode_fields(_Strict, FULL | {"timestamp": str(2**63)})


@pytest.mark.parametrize("text", ["x", " ", "1.5", "9" * 30])
def test_bad_number_that_nobody_needs_is_passed_over(text: str):
    """A field with a default has it when its text is no number, as Java leaves it null; a strict header is refused."""
    assert decode_header(_Sample, _as_received(FULL | {"level": text}, 0)).level is None
    with pytest.raises(HeaderError, match="<level> is not a valid number"):
        decode_header(_Strict, _as_received(FULL | {"level": text}, 0))


def test_empty_number_of_a_strict_header_is_refused():
    """Where Java reads a header field by field, an empty text is no number either."""
    with pytest.raises(HeaderError, match="<level> is not a valid number: ''"):
        decode_fields(_Strict, FULL | {"level": ""})


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("yes", False), ("1", False), ("0", False)]
)
def test_boolean_is_true_only_when_it_says_so(text: str, value: bool):
    """Any text but ``true`` is false, as for Java's parseBoolean."""
    assert decode_header(_Sample, _as_received(FULL | {"force": text}, 0)).is_forced is value


def test_values_that_are_no_texts_are_taken():
    """Numbers, booleans and nulls in the field table, which Node's client sends, are read like their texts."""
    text = b'{"topic":5,"queueId":3,"force":true,"note":null,"level":1}'
    sample = decode_header(_Sample, Command(code=1, ext_text=msgspec.Raw(text)))
    assert sample == _Sample(topic="5", queue_id=3, is_forced=True, level=1)
    with pytest.raises(HeaderError, match="<queueId>"):
        decode_header(_Sample, Command(code=1, ext_text=msgspec.Raw(text.replace(b"3", b"[3]"))))


@pytest.mark.parametrize("text", [b"[1]", b"5", b'"x"', b'{"a":"\xff"}'])
def test_field_table_of_another_shape_is_an_error(text: bytes):
    """A field table that is no object is the sender's mistake."""
    with pytest.raises(HeaderError):
        decode_header(_Sample, Command(code=1, ext_text=msgspec.Raw(text)))


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (5, "5"), ("x", "x"), (1.5, "1.5"), ([1, {"a": None}], "[1,{}]")]
)
def test_values_have_javas_texts(value: object, text: str):
    """Values become the text that Java's String.valueOf gives."""
    assert format_text(value) == text


def test_request_without_a_header_has_no_fields():
    """A header that is not given, and one of nothing but None, are an empty table."""
    assert encode_fields(None) == Command.request(1).ext_table == {}
    assert encode_fields({"a": "b"}) == {"a": "b"}


def test_commands_say_who_sends_them():
    """A request and an answer without more are empty, in Python's name and the release that we are compatible with."""
    for command, flag in ((Command.request(11), 0), (Command.response(11), 1)):
        assert (command.code, command.flag, command.opaque, command.remark) == (11, flag, 0, None)
        assert (command.body, command.ext, command.language, command.version) == (b"", {}, "PYTHON", 479)
        assert (command.is_response, command.is_oneway, command.serialize) == (bool(flag), False, 0)
