"""What a check does with an open half message (``TransactionalMessageServiceImpl.check``; behaviour.md B.11).

    asked about often enough, or older than files are kept                    GIVE_UP
    stored since the round began                                              STOP: a later round
    with an immunity of its own that is not over, from its born time on       SPARE
    without one, born less than the time-out ago                              STOP: those behind it are younger
    otherwise, also if it was born in the future                              ASK

Java's loop also waits for op messages that are on their way; here none is, memory knows what is settled. Pure.
"""

import enum
import re
from collections.abc import Mapping
from typing import NamedTuple

from ...common.properties import CHECK_IMMUNITY_TIME, TRANSACTION_CHECK_TIMES
from ...common.record import Record

_NUMBER = re.compile(r"[+-]?\d{1,18}")
_UNREADABLE = -1


class CheckRules(NamedTuple):
    """How long nobody is asked, how often somebody is, and how long files are kept."""

    timeout_ms: int = 6_000
    most_checks: int = 15
    reserved_ms: int = 72 * 3_600_000


class Verdict(enum.Enum):
    """What to do with a half message."""

    GIVE_UP = enum.auto()
    STOP = enum.auto()
    SPARE = enum.auto()
    ASK = enum.auto()


def judge(half: Record, rules: CheckRules, began_at_ms: int, now_ms: int) -> Verdict:
    """Return what a round that began then does with an open half message now."""
    properties, age_ms = half.properties, now_ms - half.born_at_ms
    if check_times(properties) >= rules.most_checks or age_ms > rules.reserved_ms:
        return Verdict.GIVE_UP
    if half.stored_at_ms >= began_at_ms:
        return Verdict.STOP
    immunity = properties.get(CHECK_IMMUNITY_TIME)
    if immunity is not None:
        return Verdict.SPARE if age_ms <= _immunity_ms(immunity, rules.timeout_ms) else Verdict.ASK
    return Verdict.STOP if 0 <= age_ms <= rules.timeout_ms else Verdict.ASK


def check_times(properties: Mapping[str, str]) -> int:
    """Return how often producers have been asked; a number that cannot be read counts as -1, as with Java."""
    text = properties.get(TRANSACTION_CHECK_TIMES)
    return 0 if text is None else _read(text)


def is_too_late(half: Record, rules: CheckRules, now_ms: int) -> bool:
    """Tell whether only the answer to a check may end the transaction: its own immunity is over."""
    immunity = half.properties.get(CHECK_IMMUNITY_TIME)
    if immunity is None:
        return False
    seconds = _read(immunity) if _NUMBER.fullmatch(immunity) else 0
    return now_ms - half.born_at_ms > max(1_000 * seconds, rules.timeout_ms)


def _immunity_ms(text: str, timeout_ms: int) -> int:
    seconds = _read(text)
    return timeout_ms if seconds == _UNREADABLE else 1_000 * seconds


def _read(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else _UNREADABLE
