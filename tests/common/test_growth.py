"""Every reader of what others send takes twice as many steps for twice as much, and keeps no more than it was given.

A scan inside a regular expression is no call and cannot be counted. So the longest inputs are some megabytes long: a
reader that looks at the rest of its input again and again would not come to an end before the test is given up.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from growth import GROWTH, measure
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_calls import decode_json_header

from examples import examples
from rocketlet.common import names
from rocketlet.common.errors import RocketletError
from rocketlet.common.ids import parse_recall_handle
from rocketlet.common.java_json import read_json
from rocketlet.common.message import split_keys
from rocketlet.common.properties import parse_properties
from rocketlet.common.record import decode_batch
from rocketlet.common.settings import parse_java_properties
from rocketlet.common.subscriptions.sql_filter import END, Words, compile_sql
from rocketlet.common.subscriptions.sql_terms import read_double, read_int32
from rocketlet.common.subscriptions.subscription import parse_tag_expression
from rocketlet.remoting.codec.frames import decode_binary_header

Read = Callable[[str], object]
LONGEST = 1_000_000
KEPT_PER_CHARACTER = 1_000


def read_words(text: str) -> None:
    """Read all words of an SQL92 expression; a parser ends at the second of two numbers, as at ``00``."""
    words = Words(text)
    while words.take().kind != END:
        pass


def read_tags(text: str) -> object:
    """Read a tag expression."""
    return parse_tag_expression("T", text)


def read_binary(text: str) -> object:
    """Read a binary header with these bytes as its fields."""
    fields = text.encode()
    return decode_binary_header(bytes(17) + len(fields).to_bytes(4, "big") + fields)


def read_batch(text: str) -> object:
    """Read the body of a batch."""
    return decode_batch(text.encode())


def read_names(text: str) -> object:
    """Look at the name of a topic and of a group, as broker and client do."""
    checks = (
        names.broker_topic_remark,
        names.broker_group_remark,
        names.client_topic_remark,
        names.client_group_remark,
    )
    return [check(text) for check in checks]


READERS: dict[str, tuple[Read, tuple[str, ...]]] = {
    "SQL92": (compile_sql, ("a=1 OR ", "NOT ", "a IN ('b')AND ", "a IS NULL AND ", "- ")),
    "SQL92 words": (
        read_words,
        ("- ", "--", "--x", "'' ", "''", "1", "1e", "a ", "\n--", "/**/", "/*", "*/", "--\r"),
    ),
    "SQL92 values": (read_double, ("0", "1", ".", " ", "e", "0x")),
    "SQL92 numbers": (read_int32, ("0", "1", "+", "\u0665")),
    "tags": (read_tags, ("a||", "||", "|", " ", "a")),
    "keys": (split_keys, ("a ", " ", "a")),
    "properties": (parse_properties, ("a\x01b\x02", "\x01", "\x02", "a")),
    "JSON": (read_json, ("[", '{"a":', "'a',", "1", "-", '"', "\\", "{a:", '"\\u0061",', '{"$ref":"$"},')),
    "JSON list": (
        lambda text: read_json(f"[{text}'']"),
        ("1,", "'a',", "{a:1},", "[[1],2],", '{"$ref":"$[0]"},', "{{}:1},"),
    ),
    "JSON header": (lambda text: decode_json_header(text.encode()), ("{", '{"code":', "'", "[")),
    "header fields": (lambda text: decode_json_header(b"{'extFields':{%b'':1}}" % text.encode()), ("'a':[1],", "b:1,")),
    "binary header": (read_binary, ("\0\1a\0\0\0\1b", "\0\0\0\0\0\0", "\0", "a")),
    "properties file": (
        parse_java_properties,
        ("a=b\n", "\\\n", "a\\\n", "\\", "#\n", "\\u0041", " ", "a\\\\\\\n", "!", ":"),
    ),
    "batch": (read_batch, ("\0", "a", "\0\0\0\x16" + "\0" * 18)),
    "recall handle": (parse_recall_handle, ("a", "=", "dg==")),
    "names": (read_names, ("a", "%", " ", "|")),
}
CASES = [(name, piece) for name, (_, pieces) in READERS.items() for piece in pieces]


def tried(read: Read, text: str) -> Callable[[], object]:
    """Return a call that reads, and may refuse."""

    def run() -> object:
        with suppress(RocketletError, ValueError):
            return read(text)
        return None

    return run


@pytest.mark.parametrize(("name", "piece"), CASES)
def test_twice_as_much_takes_twice_as_long(name: str, piece: str) -> None:
    """Calls grow with the input, bytes held stay below a multiple of it."""
    read = READERS[name][0]
    once, twice = (measure(tried(read, piece * count)) for count in (1_000, 2_000))
    assert twice.calls <= GROWTH * once.calls + 100
    assert twice.peak_bytes <= KEPT_PER_CHARACTER * len(piece) * 2_000


@pytest.mark.parametrize(("name", "piece"), CASES)
def test_longest_input_comes_to_an_end(name: str, piece: str) -> None:
    """Megabytes are read, or refused, before anybody loses patience."""
    tried(READERS[name][0], piece * (LONGEST // len(piece) // (20 if "JSON" in name or "fields" in name else 1)))()


@settings(deadline=None, max_examples=examples(40))
@given(st.sampled_from(sorted(READERS)), st.data())
def test_any_piece_again_and_again(name: str, data: st.DataObject) -> None:
    """What hypothesis makes of the pieces and repeats grows no faster either.

    A length in it may end the shorter text early; then a call for each character of the longer one is no growth.
    """
    read, pieces = READERS[name]
    piece = "".join(data.draw(st.lists(st.sampled_from([*pieces, *"\n'-/*\\\"{[1a "]), min_size=1, max_size=6)))
    calls: list[Any] = [measure(tried(read, piece * count)).calls for count in (300, 600)]
    assert calls[1] <= GROWTH * calls[0] + 600 * len(piece)
