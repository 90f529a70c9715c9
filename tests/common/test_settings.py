"""Settings as dataclass fields."""

from dataclasses import dataclass

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.common.settings import Setting, describe_settings, parse_settings, setting, setting_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Each kind of setting."""

    name: str = setting("theName", "default", "a text")
    count: int = setting("theCount", 3, "a number", least=1, most=9)
    is_on: bool = setting("isOn", True, "a switch")
    found: str = setting("theHost", lambda: "here", "found on this machine")
    hidden: int = 7


def test_given_keys_are_parsed_and_others_left_alone() -> None:
    """Blanks around a value do not count; keys of others are no error."""
    given = {"theName": " n ", "theCount": " 5", "isOn": "FALSE", "foreign": "x"}
    assert parse_settings(Example, given) == {"name": "n", "count": 5, "is_on": False}
    assert setting_keys(Example) == {"theName", "theCount", "isOn", "theHost"}


@pytest.mark.parametrize(("key", "value"), [("theCount", "0"), ("theCount", "10"), ("theCount", "x"), ("isOn", "yes")])
def test_bad_value_is_named(key: str, value: str) -> None:
    """Range and kind are checked."""
    with pytest.raises(ConfigError, match=key) as refused:
        parse_settings(Example, {key: value})
    assert refused.value.key == key


def test_description_has_a_row_for_each_key() -> None:
    """Value, default and meaning; a default that is found on the machine is not repeated."""
    assert describe_settings(Example(count=4, is_on=False)) == [
        Setting("theName", "default", "default", "a text"),
        Setting("theCount", "4", "3", "a number"),
        Setting("isOn", "false", "true", "a switch"),
        Setting("theHost", "here", "(found)", "found on this machine"),
    ]
