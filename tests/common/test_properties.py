from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from javastores import java_cases

from rocketlet.common.properties import (
    PROPERTY_CRC_BYTES,
    crc31,
    encode_properties,
    find_tag,
    find_value,
    format_property_crc,
    index_hash,
    java_hash,
    parse_properties,
    tags_code,
    tags_code_in,
    tags_codes_in,
)

CASES = java_cases("codec/properties.json")
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


HASHES = java_cases("codec/tagscode.json")


def _hash_slowly(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@pytest.mark.parametrize("case", HASHES, ids=lambda case: case["text"][:12] or "empty")
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


CHECKSUMS = java_cases("codec/crc32.json")


@pytest.mark.parametrize("case", [case for case in CHECKSUMS if "crc32" in case])
def test_crc31_is_that_of_java(case: dict[str, Any]) -> None:
    """The checksum of every recorded text, and of a slice of one, equals Java's."""
    data = bytes.fromhex(case["hex"])
    start = case.get("offset", 0)
    view = memoryview(data)[start : start + case.get("length", len(data))]
    assert crc31(view) == crc31(bytes(view)) == case["crc32"]


@pytest.mark.parametrize("case", [case for case in CHECKSUMS if "crc32Property" in case])
def test_property_crc_is_written_as_java_does(case: dict[str, Any]) -> None:
    """The checksum property holds ten digits, least significant first."""
    assert format_property_crc(case["crc32Property"]).hex() == case["hex"]
    assert len(format_property_crc(case["crc32Property"])) == PROPERTY_CRC_BYTES


CHUNKS = st.one_of(
    st.tuples(st.sampled_from([b"TAGS", b"TAGS", b"TAGSX", b"XTAGS", b"KEYS", b""]), st.binary(max_size=3)).map(
        b"\x01".join
    ),
    st.sampled_from([b"TAGS", b"TAGS\x01", b"\x01", b"TAGS\x01" + b"a" * 65, b"TAGS\x01" + "日本".encode()]),
)


@given(st.lists(CHUNKS, max_size=4), st.booleans())
def test_code_of_a_tag_needs_no_parser(chunks: list[bytes], ends: bool) -> None:
    """The code in a text is that of its parsed tag: of the last one that is not empty, wherever it stands."""
    text = b"\x02".join(chunks) + (b"\x02" if ends else b"")
    parsed = parse_properties(text)
    assert tags_code_in(text) == tags_code(parsed.get("TAGS"))
    assert find_tag(text) == parsed.get("TAGS")
    for name in ("KEYS", "TAGSX"):
        value = find_value(text, f"\x02{name}\x01".encode())
        assert (None if value is None else str(value, "utf-8", "replace")) == parsed.get(name)


PLAIN = b"KEYS\x01k\x02TAGS\x01a\x02"


@given(st.lists(st.one_of(st.just(PLAIN), st.lists(CHUNKS, max_size=3).map(b"\x02".join)), max_size=4))
def test_codes_of_many_texts_are_those_of_each(texts: list[bytes]) -> None:
    """Whether all have the same tag, none has one, or a tag stands twice, at the beginning or in another value."""
    assert tags_codes_in(texts) == [tags_code_in(text) for text in texts]


@pytest.mark.parametrize(
    "texts",
    [
        [PLAIN, PLAIN],
        [PLAIN, b"KEYS\x01k\x02TAGS\x01b\x02"],
        [PLAIN + b"TAGS\x01b\x02", b"KEYS\x01k\x02"],
        [PLAIN + PLAIN, b"KEYS\x01k\x02"],
        [PLAIN, b"KEYS\x01kTAGS\x01a\x02", PLAIN],
        [b"TAGS\x01a\x02", b"TAGS\x01a\x02"],
        [b"KEYS\x01TA", b"GS\x01a\x02"],
        [],
    ],
)
def test_codes_of_texts_with_their_tags_elsewhere(texts: list[bytes]) -> None:
    """As many tags as texts are not one in each."""
    assert tags_codes_in(texts) == [tags_code_in(text) for text in texts]


def test_many_empty_values_are_passed_over() -> None:
    """However many: a text is at most 32 KiB, which one value of 5,000 may fill."""
    assert find_value(b"TAGS\x01first" + b"\x02TAGS\x01" * 5_000, b"\x02TAGS\x01") == b"first"
