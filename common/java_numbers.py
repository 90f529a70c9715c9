"""Numbers as Java reads them from texts: with a sign perhaps, in digits of any script, and inside their bounds."""

import re

_NUMBER = re.compile(r"[+-]?\d+")
_LONGEST = 100  # zeros in front count, too


def parse_int32(text: str) -> int | None:
    """Return the number that ``Integer.parseInt`` reads, None where it fails."""
    return _parse(text, 2**31)


def parse_int64(text: str) -> int | None:
    """Return the number that ``Long.parseLong`` reads, None where it fails."""
    return _parse(text, 2**63)


def _parse(text: str, end: int) -> int | None:
    number = int(text) if len(text) <= _LONGEST and _NUMBER.fullmatch(text) else end
    return number if -end <= number < end else None


def wrap_int64(number: int) -> int:
    """Return what the 64 bits of a ``long`` keep of a sum or product."""
    return (number + 2**63) % 2**64 - 2**63
