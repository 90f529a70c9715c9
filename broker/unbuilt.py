"""Messages whose delivery is not built: they are refused, never stored as something else.

A delayed or transactional message that is stored as an ordinary one would be seen too early; so it is answered
MESSAGE_ILLEGAL, which clients raise at once and do not retry. A consumer that falls back to sending a failed message to
its retry topic with a delay keeps the message when that send is refused, and tries again by itself.
"""

from collections.abc import Iterable, Mapping

from ..common.properties import (
    DELAY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
)
from ..common.sysflag import TRANSACTION_MASK

_TIMERS = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
UNBUILT_NAMES = frozenset({DELAY, TRANSACTION_PREPARED, *_TIMERS})


def unbuilt_remark(properties: Mapping[str, str], sys_flag: int = 0) -> str | None:
    """Return why a message cannot be taken, None when it can."""
    if sys_flag & TRANSACTION_MASK:
        return "this broker does not take transactional messages yet; the message was not stored"
    if UNBUILT_NAMES.isdisjoint(properties):
        return None
    if properties.get(TRANSACTION_PREPARED, "").lower() == "true":
        return "this broker does not take transactional messages yet; the message was not stored"
    for name in _TIMERS:
        if name in properties:
            return f"this broker does not deliver timer messages yet, {name} is set; the message was not stored"
    level = properties.get(DELAY, "0")
    if _is_at_once(level):
        return None
    return f"this broker does not delay messages yet, {DELAY} is {level}; the message was not stored"


def unbuilt_batch_remark(messages: Iterable[Mapping[str, str]], sys_flag: int) -> str | None:
    """Return why one of the messages of a batch cannot be taken, None when all can."""
    for properties in messages:
        if not UNBUILT_NAMES.isdisjoint(properties) or sys_flag & TRANSACTION_MASK:
            remark = unbuilt_remark(properties, sys_flag)
            if remark is not None:
                return remark
    return None


def _is_at_once(level: str) -> bool:
    try:
        return int(level) <= 0
    except ValueError:
        return False
