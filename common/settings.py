"""Settings of a part as a frozen dataclass whose fields name Java's keys.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class SomeConfig:
        port: int = setting("listenPort", 10911, "port to listen at", most=65_535)

Fields are ``str``, ``bool`` or ``int``. ``parse_settings`` reads the values that a mapping of Java's keys holds,
``describe_settings`` lists them for ``--print-config``.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import ConfigError


class Setting(NamedTuple):
    """One row of ``--print-config``."""

    key: str
    value: str
    default: str
    meaning: str


def setting(key: str, default: Any, meaning: str, *, least: int = 0, most: int = 2**63 - 1) -> Any:
    """Return a dataclass field; ``default`` may be a function that finds the value on this machine."""
    metadata = {"key": key, "meaning": meaning, "least": least, "most": most}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def setting_keys(kind: type[Any]) -> frozenset[str]:
    """Return the keys that a config names."""
    return frozenset(field.metadata["key"] for field in _fields(kind))


def parse_settings(kind: type[Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields whose keys are given; other keys are left alone.

    Raises:
        ConfigError: a value does not parse or is out of range; ``key`` names it.
    """
    return {
        field.name: _parse(field, settings[field.metadata["key"]].strip())
        for field in _fields(kind)
        if field.metadata["key"] in settings
    }


def describe_settings(config: Any) -> list[Setting]:
    """Return a row for each setting of a config."""
    return [
        Setting(
            field.metadata["key"],
            format_setting(getattr(config, field.name)),
            "(found)" if field.default is dataclasses.MISSING else format_setting(field.default),
            field.metadata["meaning"],
        )
        for field in _fields(config)
    ]


def format_setting(value: object) -> str:
    """Return a value as it stands in a settings file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fields(config: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(config) if "key" in field.metadata]


def _parse(field: dataclasses.Field[Any], text: str) -> str | int | bool:
    if field.type is str:
        return text
    if field.type is bool:
        return _parse_flag(field.metadata["key"], text)
    return _parse_number(field.metadata["key"], text, field.metadata["least"], field.metadata["most"])


def _parse_flag(key: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ConfigError(f"{key} is {text!r}, expected true or false", key=key)
    return text.lower() == "true"


def _parse_number(key: str, text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{key} is {text!r}, expected a number", key=key) from None
    if not least <= number <= most:
        raise ConfigError(f"{key} is {number}, expected {least} to {most}", key=key)
    return number
