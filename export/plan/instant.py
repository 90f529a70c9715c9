"""Instants as users write them: epoch milliseconds, or ISO 8601 where no zone means UTC."""

import datetime
from typing import Final

from ...common.errors import ConfigError

# Seconds from 1973 to 5138. As milliseconds they are days of 1970 to 1973, when there was no message.
_SECONDS: Final = range(100_000_000, 100_000_000_000)


def parse_instant(text: str, key: str) -> int:
    """Return epoch milliseconds.

    Raises:
        ConfigError: The text is neither, or seconds; the message names the option ``key``.
    """
    word = text.strip()
    if word.removeprefix("-").isdecimal():
        return _checked(int(word), key)
    try:
        at = datetime.datetime.fromisoformat(word)
    except ValueError:
        raise ConfigError(f"{key} is {text!r}, neither epoch milliseconds nor an ISO 8601 time", key=key) from None
    zoned = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
    return (zoned - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)


def _checked(at_ms: int, key: str) -> int:
    if at_ms in _SECONDS:
        day = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).date()
        raise ConfigError(f"{key} is {at_ms}, as epoch milliseconds {day}; of seconds it would be {at_ms}000", key=key)
    return at_ms
