"""Bits of consumer filters."""

import json
import pathlib

import pytest
from javastores import unpack_store

from rocketlet.broker.group.filters import BloomShape, murmur3_64

JAVA_DEFAULT = BloomShape.of(error_percent=20, consumers=32)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("hello", 0xCBD8A7B341BD9B02),
        ("The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_hash_of_a_text(text: str, hashed: int) -> None:
    """The hash is Murmur3 128 x64 of its author, seed 0, for texts of no, a part of one, and several blocks."""
    assert murmur3_64(text.encode()) == hashed


def test_bits_are_those_of_a_java_broker(vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The shape for Java's defaults and the bits of a filter are those in the file that a 5.4.0 broker wrote."""
    file = unpack_store(vectors, "delay-retry", tmp_path) / "config" / "consumerFilter.json"
    written = json.loads(file.read_text())["filterDataByTopic"]["DelayTopic"]["groupFilterData"]["CID_sql"]
    bits = {"bitNum": JAVA_DEFAULT.bits, "bitPos": JAVA_DEFAULT.positions_of("CID_sql#DelayTopic")}
    assert bits == written["bloomFilterData"]


@pytest.mark.parametrize(("error_percent", "consumers"), [(1, 1), (20, 1000), (50, 3), (99, 1)])
def test_positions_lie_inside(error_percent: int, consumers: int) -> None:
    """Whatever the settings, the bits are whole bytes and every position is one of them."""
    shape = BloomShape.of(error_percent=error_percent, consumers=consumers)
    assert shape.bits % 8 == 0
    for number in range(50):
        positions = shape.positions_of(f"group-{number}#topic")
        assert len(positions) == shape.positions
        assert all(0 <= position < shape.bits for position in positions)
