"""How the SQL92 filter reads and orders values: text as Java's ``Integer``, ``Long`` and ``Double`` read it.

Rules (``java.lang`` as RocketMQ 5.4 ``ComparisonExpression.__compare`` calls it)
    1. A whole number has an optional sign and decimal digits, no blanks; it fits 32 bits, or 64 beside a long constant.
    2. A double may have blanks around it, an exponent, a suffix ``f`` or ``d``, or be ``NaN``, ``Infinity`` or hex.
    3. Doubles are ordered as ``Double.compareTo`` does: ``-0.0`` below ``0.0``, ``NaN`` above all and equal to itself.

Doubles are compared by their order key, a whole number, so that Python's operators do for everything.
"""

import re
import struct
from typing import Final

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
_MAX_DIGITS: Final = 19
_WHOLE: Final = re.compile("([+-]?)(\\d+)")
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
)
_BLANKS: Final = "".join(map(chr, range(33)))  # what String.trim removes
_BITS: Final = struct.Struct(">q")
_FLOAT: Final = struct.Struct(">d")


class SqlValueError(ValueError):
    """A value that the filter cannot read; the broker does not deliver the message (behaviour.md B.6.2)."""


def read_int32(text: str) -> int:
    """Return the number in a text as ``Integer.valueOf`` does.

    Raises:
        SqlValueError: it is no whole number, or needs more than 32 bits.
    """
    return _read_whole(text, MAX_INT32)


def read_int64(text: str) -> int:
    """Return the number in a text as ``Long.valueOf`` does.

    Raises:
        SqlValueError: it is no whole number, or needs more than 64 bits.
    """
    return _read_whole(text, MAX_INT64)


def read_double(text: str) -> int:
    """Return the order key of the number in a text as ``Double.valueOf`` reads it.

    Raises:
        SqlValueError: it is no number.
    """
    trimmed = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(trimmed):
        return order_key(float(trimmed if trimmed[-1] in "yN" else trimmed.rstrip("fFdD")))
    hexadecimal = _HEX_DOUBLE.fullmatch(trimmed)
    if hexadecimal is None:
        raise SqlValueError(f"{text[:64]!r} is no number")
    return order_key(_read_hex(hexadecimal[1]))


def order_key(number: float) -> int:
    """Return a whole number that is ordered among its like as ``Double.compareTo`` orders doubles."""
    if number != number:
        return 0x7FF8_0000_0000_0000  # every NaN is the same one
    (bits,) = _BITS.unpack(_FLOAT.pack(number))
    return bits if bits >= 0 else bits ^ MAX_INT64


def _read_whole(text: str, most: int) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None or max(text) > "\uffff":  # Java reads digits of any script, but not by surrogate pairs
        raise SqlValueError(f"{text[:64]!r} is no whole number")
    digits = match[2].lstrip("0")
    if len(digits) > _MAX_DIGITS:
        raise SqlValueError(f"{text[:64]!r} is beyond {most}")
    number = int(match[1] + (digits or "0"))
    if not -most - 1 <= number <= most:
        raise SqlValueError(f"{text[:64]!r} is beyond {most}")
    return number


def _read_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")
