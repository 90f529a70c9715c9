import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.export.plan.selection import parse_instant


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        (" -5 ", -5),
        ("1970-01-01", 0),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-15T00:13:20.123+02:00", 1_700_000_000_123),
    ],
)
def test_instants_are_read(text: str, at_ms: int) -> None:
    """Milliseconds and ISO 8601 name the same instant; without a zone it is UTC."""
    assert parse_instant(text, "--from") == at_ms


def test_seconds_are_noticed() -> None:
    """Seconds of our time are days of 1970 as milliseconds, which nobody means; small numbers are what they are."""
    with pytest.raises(ConfigError, match="--from is 1700000000, as epoch milliseconds 1970-01-20"):
        parse_instant("1700000000", "--from")
    assert parse_instant("99999999", "--from") == 99_999_999


@pytest.mark.parametrize("text", ["", "now", "2023-13-01", "17.5", "12x"])
def test_other_texts_are_refused(text: str) -> None:
    """What is neither is an error that names the option."""
    with pytest.raises(ConfigError, match="--from"):
        parse_instant(text, "--from")
