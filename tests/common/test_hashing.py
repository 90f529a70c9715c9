import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.hashing import index_hash, java_hash, tags_code

CASES: list[dict[str, Any]] = json.loads(
    (pathlib.Path(__file__).parents[1] / "vectors/codec/tagscode.json").read_text("utf-8")
)


def _hash_slowly(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:12] or "empty")
def test_hashes_are_those_of_java(case: dict[str, Any]) -> None:
    """Hash, tags code and index hash of every recorded text equal Java's."""
    assert java_hash(case["text"]) == case["hashCode"]
    assert tags_code(case["text"]) == case["tagsCode"]
    assert index_hash(case["text"]) == case["absHashForIndex"]


@given(st.text() | st.text(min_size=250, max_size=600) | st.text(st.characters(max_codepoint=255)))
def test_java_hash_equals_the_loop_of_its_definition(text: str) -> None:
    """Any text, short, long, with characters outside the BMP, hashes as 31 * h + unit does."""
    assert java_hash(text) == _hash_slowly(text)


@pytest.mark.parametrize("text", ["\ud800", "x" * 256, "x" * 257, "\U0001d518" * 300, "k" * 20_000])
def test_java_hash_of_unusual_texts(text: str) -> None:
    """Lone surrogates, texts around the chunk size and texts above Python's digit limit are hashed."""
    assert java_hash(text) == _hash_slowly(text)


def test_tags_code_without_tag() -> None:
    """A message without a tag, or with an empty one, has the tags code 0."""
    assert tags_code(None) == tags_code("") == 0


@pytest.mark.parametrize("tags", ["Aa", "x" * 64, "x" * 65])
def test_tags_code_is_the_same_cached_or_not(tags: str) -> None:
    """Short tags come from a cache, long ones do not; both have their hash."""
    assert tags_code(tags) == tags_code(tags) == _hash_slowly(tags)
