"""Instants as users write them: epoch milliseconds, or ISO 8601 where no zone means UTC."""

import datetime

from ..common.errors import ConfigError


def parse_instant(text: str, key: str) -> int:
    """Return epoch milliseconds.

    Raises:
        ConfigError: The text is neither; the message names the option ``key``.
    """
    word = text.strip()
    if word.removeprefix("-").isdecimal():
        return int(word)
    try:
        at = datetime.datetime.fromisoformat(word)
    except ValueError:
        raise ConfigError(f"{key} is {text!r}, neither epoch milliseconds nor an ISO 8601 time", key=key) from None
    zoned = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
    return (zoned - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
