"""Settings as fields of a struct."""

import contextlib
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import ConfigError, DecodeError
from rocketlet.common.settings import (
    NOT_SHOWN,
    Key,
    Setting,
    change_java_properties,
    decode_java_properties,
    describe_settings,
    format_java_properties,
    parse_java_properties,
    parse_settings,
    setting_keys,
)


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """Each kind of setting."""

    name: Annotated[str, Key("theName", "a text")] = "default"
    count: Annotated[int, Key("theCount", "a number", least=1, most=9)] = 3
    is_on: Annotated[bool, Key("isOn", "a switch")] = True
    found: Annotated[str, Key("theHost", "found on this machine")] = msgspec.field(default_factory=lambda: "here")
    hidden: int = 7


def test_given_keys_are_parsed_and_others_left_alone() -> None:
    """Blanks around a value do not count; keys of others are no error."""
    given = {"theName": " n ", "theCount": " 5", "isOn": "FALSE", "foreign": "x"}
    assert parse_settings(Example, given) == {"name": "n", "count": 5, "is_on": False}
    assert setting_keys(Example) == {"theName", "theCount", "isOn", "theHost"}


@pytest.mark.parametrize(("key", "value"), [("theCount", "0"), ("theCount", "10"), ("theCount", "x"), ("isOn", "yes")])
def test_bad_value_is_named(key: str, value: str) -> None:
    """Range and kind are checked."""
    with pytest.raises(ConfigError, match=key) as refused:
        parse_settings(Example, {key: value})
    assert refused.value.key == key


def test_description_has_a_row_for_each_key() -> None:
    """Value, default and meaning; a default that is found on the machine is not repeated."""
    assert describe_settings(Example(count=4, is_on=False)) == [
        Setting("theName", "default", "default", "a text"),
        Setting("theCount", "4", "3", "a number"),
        Setting("isOn", "false", "true", "a switch"),
        Setting("theHost", "here", "(found)", "found on this machine"),
    ]


def test_secret_is_not_shown() -> None:
    """Neither its value nor its length; an empty one is shown as empty."""

    class Keeper(msgspec.Struct, frozen=True, kw_only=True):
        password: Annotated[str, Key("thePassword", "a secret", is_secret=True)] = ""

    given = Keeper(**parse_settings(Keeper, {"thePassword": "very secret"}))
    assert given.password == "very secret"  # noqa: S105 # the test's own
    assert describe_settings(given) == [Setting("thePassword", NOT_SHOWN, "", "a secret")]
    assert describe_settings(Keeper()) == [Setting("thePassword", "", "", "a secret")]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a=b\nc=d\r\ne=f\rg=h\n", {"a": "b", "c": "d", "e": "f", "g": "h"}),
        ("# note\n! note\n  # note\n\n \t\na=b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a\t=\fb", {"a": "b"}),
        ("a = = b", {"a": "= b"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("  a=b  ", {"a": "b  "}),
        ("brokerId=1 ", {"brokerId": "1 "}),
        ("a=b\na=c", {"a": "c"}),
        ("a=b#c!d", {"a": "b#c!d"}),
        ("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# no note", {"a": "1# no note"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ('a=\\t\\n\\r\\f\\\\\\z\\"', {"a": '\t\n\r\f\\z"'}),
        ("a=\\u4e2d\\uD83D\\uDE00", {"a": "中😀"}),
        ("a=ü", {"a": "ü"}),
        ("a=\\", {"a": ""}),
        ("\\", {"": ""}),
        ("\\\n# note", {}),
        ("a\x0bb\u00a0c d", {"a\x0bb\u00a0c": "d"}),
        ("a\\\n=b", {"a": "b"}),
        ("a\\\n  b=c", {"ab": "c"}),
        ("storePathRootDir=C\\:\\\\store", {"storePathRootDir": "C:\\store"}),
    ],
)  # fmt: skip
def test_text_is_read_as_java_does(text: str, expected: dict[str, str]) -> None:
    """Comments, separators, continuation lines and escapes follow java.util.Properties."""
    assert parse_java_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uxyzt", "\\u=1", "a=\\u"])
def test_malformed_escape_is_an_error(text: str) -> None:
    """Java refuses the whole text for one malformed escape."""
    with pytest.raises(DecodeError, match="malformed"):
        parse_java_properties(text)


def test_text_is_written_line_by_line() -> None:
    """The lines keep the order of the mapping, and only what would be misread is escaped."""
    entries = {"namesrvAddr": "10.0.0.1:9876;b:1", "a b": " x = y ", "path": "C:\\s", "n": "中😀"}
    assert format_java_properties(entries) == (
        "namesrvAddr=10.0.0.1:9876;b:1\na\\ b=\\ x = y \npath=C:\\\\s\nn=\\u4E2D\\uD83D\\uDE00\n"
    )


@given(st.dictionaries(TEXTS, TEXTS))
def test_entries_round_trip(entries: dict[str, str]) -> None:
    """Every mapping reads back as it was written."""
    assert parse_java_properties(format_java_properties(entries)) == entries


@given(st.text() | st.text("ab\\=: #!\n\r\tu01"))
def test_arbitrary_text(text: str) -> None:
    """Arbitrary text is read or is a decode error."""
    with contextlib.suppress(DecodeError):
        parse_java_properties(text)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", "a=1\nb=2\n"),
        ("# x\n\nb = 7\n!y\n", "# x\n\nb=2\n!y\na=1\n"),
        ("a:0\r\nc=3\r\na 5\r\n", "a:0\r\nc=3\r\na=1\nb=2\n"),
        ("b=long\\\n   er\nc=3", "b=2\nc=3\na=1\n"),
        ("c=3\\", "c=3\\\n\na=1\nb=2\n"),
        ("c=3\\\r", "c=3\\\r\n\na=1\nb=2\n"),
        ("\\u0061=x\n", "a=1\nb=2\n"),
        ("c=3\n\\", "c=3\n=\na=1\nb=2\n"),
        ("\\\n\n", "\\\n\na=1\nb=2\n"),
    ],
)
def test_values_are_changed_in_their_place(text: str, changed: str) -> None:
    """Of equal names it is the last one's; comments and all other lines stay as they are."""
    assert change_java_properties(text, {"a": "1", "b": "2"}) == changed


LINES = st.lists(st.text("ab=:# \t\\\r\n!1", max_size=8), max_size=8).map("\n".join)


@given(LINES | TEXTS, st.dictionaries(st.sampled_from(["a", "b", "ab", "1", "=", ""]) | TEXTS, TEXTS, max_size=4))
def test_changed_text_reads_back(text: str, changes: dict[str, str]) -> None:
    """It holds what it held, but for what was changed."""
    with contextlib.suppress(DecodeError):
        expected = parse_java_properties(text) | changes
        assert parse_java_properties(change_java_properties(text, changes)) == expected


def test_files_of_java_are_latin_1() -> None:
    """What is no UTF-8 is Latin-1."""
    assert decode_java_properties("ä".encode()) == ("ä", "utf-8")
    assert decode_java_properties(b"\xe4") == ("ä", "latin-1")
