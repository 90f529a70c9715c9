"""Option values as Spark hands them over: names in any case, values as text.

    given = OptionValues(options, known=("path", "splitBytes"), role="the rocketmq source")
    given.size("splitBytes", 128 << 20)          "134217728", "128m", "128MiB" -> bytes

Rules:

- An unknown name is an error that names the known one that is like it, since a misspelt filter would change the result.
- Every error is a ``ConfigError`` of one sentence, with the option as its ``key``.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ...common.errors import ConfigError, nearest
from ...export.plan.selection import parse_instant

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.ASCII)
_INTEGER: Final = re.compile(r"-?\d+", re.ASCII)


class OptionValues:
    """The options of one reading or writing; values are parsed when they are asked for."""

    def __init__(self, options: Mapping[str, str], known: Collection[str], role: str) -> None:
        self._names = {name.lower(): name for name in known}
        self._role = role
        self._values = {name.lower(): value for name, value in options.items()}
        for name in options:
            if name.lower() not in self._names:
                raise ConfigError(f"{role} has no option {name}{nearest(name, known)}", key=name)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def plus(self, name: str, value: str) -> "OptionValues":
        """Return these options and one more."""
        return OptionValues({**self._values, name: value}, self._names.values(), self._role)

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return the value as it was given, without the blanks around it."""
        value = self._values.get(name.lower())
        return default if value is None else value.strip()

    def names(self, name: str) -> frozenset[str]:
        """Return names that commas separate."""
        return frozenset(filter(None, (part.strip() for part in (self.text(name) or "").split(","))))

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise _refused(name, f"is {text!r}, neither true nor false")
        return text == "true"

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """Return a whole number that is not below ``least``."""
        text = self.text(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text):
            raise _refused(name, f"is {text!r}, not a whole number")
        if int(text) < least:
            raise _refused(name, f"is {text}, but must be at least {least}")
        return int(text)

    def size(self, name: str, default: int) -> int:
        """Return a number of bytes, at least 1; ``k``, ``m``, ``g`` and ``t`` stand for powers of 1024."""
        text = self.text(name)
        if text is None:
            return default
        found = _SIZE.fullmatch(text.lower())
        if not found or not int(found[1]):
            raise _refused(name, f"is {text!r}, not a positive size as 134217728 or 128m")
        return int(found[1]) * _UNITS[found[2]]

    def instant(self, name: str) -> int | None:
        """Return epoch milliseconds, given as such or as ISO 8601 (UTC where no zone is named)."""
        text = self.text(name)
        return None if text is None else parse_instant(text, name)

    def one_of(self, name: str, words: Sequence[str], default: str) -> str:
        """Return one of some words, whatever its case."""
        text = self.text(name, default) or default
        for word in words:
            if word.lower() == text.lower():
                return word
        raise _refused(name, f"is {text!r}, none of {', '.join(words)}")

    def json(self, name: str) -> Any | None:
        """Return the value of a JSON text."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise _refused(name, f"is not JSON: {error}") from None

    def refuse_both(self, one: str, other: str) -> None:
        """Raise when both options are given."""
        if one in self and other in self:
            raise ConfigError(f"{one} and {other} contradict each other; give one of them", key=other)

    def refuse_others(self, fitting: Collection[str], reason: str) -> None:
        """Raise when an option is given that is none of these; the reason completes "X does not fit: …"."""
        allowed = {name.lower() for name in fitting}
        for name in self._values:
            if name not in allowed:
                raise ConfigError(f"{self._names[name]} does not fit: {reason}", key=self._names[name])


def _refused(name: str, reason: str) -> ConfigError:
    return ConfigError(f"{name} {reason}", key=name)
