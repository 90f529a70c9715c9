import json
import pathlib
from typing import Any

import pytest

from rocketlet.common.hashing import PROPERTY_CRC_BYTES, crc31, format_property_crc

CASES: list[dict[str, Any]] = json.loads(
    (pathlib.Path(__file__).parents[1] / "vectors/codec/crc32.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", [case for case in CASES if "crc32" in case])
def test_crc31_is_that_of_java(case: dict[str, Any]) -> None:
    """The checksum of every recorded text, and of a slice of one, equals Java's."""
    data = bytes.fromhex(case["hex"])
    start = case.get("offset", 0)
    view = memoryview(data)[start : start + case.get("length", len(data))]
    assert crc31(view) == crc31(bytes(view)) == case["crc32"]


@pytest.mark.parametrize("case", [case for case in CASES if "crc32Property" in case])
def test_property_crc_is_written_as_java_does(case: dict[str, Any]) -> None:
    """The checksum property holds ten digits, least significant first."""
    assert format_property_crc(case["crc32Property"]).hex() == case["hex"]
    assert len(format_property_crc(case["crc32Property"])) == PROPERTY_CRC_BYTES
