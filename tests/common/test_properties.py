import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.properties import encode_properties, parse_properties

CASES: list[dict[str, Any]] = json.loads(
    (pathlib.Path(__file__).parents[1] / "vectors/codec/properties.json").read_text("utf-8")
)
ENCODED = [case for case in CASES if case["op"] == "encode"]
DECODED = [case for case in CASES if case["op"] == "decode"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)


@pytest.mark.parametrize("case", ENCODED, ids=lambda case: repr(case["text"])[:20])
def test_properties_are_written_as_java_does(case: dict[str, Any]) -> None:
    """Every recorded map becomes Java's text, without its missing values."""
    assert encode_properties(case["properties"]).hex() == case["hex"]


@pytest.mark.parametrize("case", DECODED, ids=lambda case: repr(case["text"])[:20])
def test_properties_are_read_as_java_does(case: dict[str, Any]) -> None:
    """Every recorded text, well formed or not, reads as in Java from text, bytes and a slice."""
    data = bytes.fromhex(case["hex"])
    assert parse_properties(data) == case["properties"]
    assert parse_properties(case["text"]) == case["properties"]
    assert parse_properties(memoryview(b"x" + data)[1:]) == case["properties"]


@pytest.mark.parametrize("case", ENCODED, ids=lambda case: repr(case["text"])[:20])
def test_properties_cut_anywhere_keep_what_is_whole(case: dict[str, Any]) -> None:
    """A text that is cut at any byte keeps its whole properties and raises nothing."""
    data = bytes.fromhex(case["hex"])
    expected = parse_properties(data)
    for end in range(len(data) + 1):
        found = parse_properties(data[:end])
        whole = data[:end].count(b"\x02")
        assert dict(list(expected.items())[:whole]).items() <= found.items()


@given(st.binary())
def test_properties_of_arbitrary_bytes(data: bytes) -> None:
    """No bytes make the parser raise; names and values are never empty."""
    for name, value in parse_properties(data).items():
        assert name
        assert value


@given(st.dictionaries(TEXTS, TEXTS))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    """What is written reads back."""
    assert parse_properties(encode_properties(properties)) == properties
