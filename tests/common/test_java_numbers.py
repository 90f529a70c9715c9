"""Numbers as Java reads them."""

from collections.abc import Callable

import pytest

from rocketlet.common.java_numbers import parse_int32, parse_int64, wrap_int64

NUMBERS = {"0": 0, "7": 7, "-7": -7, "+7": 7, "007": 7, "-0": 0, "0" * 99 + "7": 7, "٣": 3}
NO_NUMBERS = ("", "+", "-", "+-7", " 7", "7 ", "7\n", "7.0", "1_000", "0x7", "seven", "0" * 100 + "7", "9" * 5000)


@pytest.mark.parametrize("parse", [parse_int32, parse_int64])
def test_number_is_read_as_by_java(parse: Callable[[str], int | None]) -> None:
    """A sign and zeros may stand before the digits; nothing else may."""
    assert {text: parse(text) for text in NUMBERS} == NUMBERS
    assert [parse(text) for text in NO_NUMBERS] == [None] * len(NO_NUMBERS)


@pytest.mark.parametrize(("parse", "bits"), [(parse_int32, 32), (parse_int64, 64)])
def test_number_has_so_many_bits(parse: Callable[[str], int | None], bits: int) -> None:
    """The greatest and the least are read, their neighbours are not."""
    end = 2 ** (bits - 1)
    assert [parse(str(number)) for number in (-end - 1, -end, end - 1, end)] == [None, -end, end - 1, None]


def test_long_wraps() -> None:
    """One more than the greatest number is the least."""
    numbers = (0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 5 * 2**64 + 3)
    assert [wrap_int64(number) for number in numbers] == [0, -1, 2**63 - 1, -(2**63), -(2**63), 2**63 - 1, 3]
