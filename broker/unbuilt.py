"""Messages whose delivery is not built: they are refused, never stored as something else.

A timer or transactional message that is stored as an ordinary one would be seen too early; so it is answered
MESSAGE_ILLEGAL, which clients raise at once and do not retry. So is a delayed message in a batch, as official clients
refuse to send it.

A delay level beats a timer, and a message that comes back with a delay is no transaction any more (behaviour.md
B.3.5, B.3.6): these are taken.
"""

from collections.abc import Iterable, Mapping

from ..common.properties import DELAY, TRANSACTION_PREPARED
from ..common.sysflag import TRANSACTION_MASK
from .delay import TIMER_NAMES

UNBUILT_NAMES = frozenset({TRANSACTION_PREPARED, *TIMER_NAMES})
_NO_TRANSACTION = "this broker does not take transactional messages yet; the message was not stored"


def unbuilt_remark(
    properties: Mapping[str, str], sys_flag: int = 0, *, is_delayed: bool = False, is_retry: bool = False
) -> str | None:
    """Return why a message cannot be taken, None when it can."""
    if sys_flag & TRANSACTION_MASK:
        return _NO_TRANSACTION
    if UNBUILT_NAMES.isdisjoint(properties):
        return None
    if properties.get(TRANSACTION_PREPARED, "").lower() == "true" and not (is_delayed and is_retry):
        return _NO_TRANSACTION
    if not is_delayed:
        for name in sorted(TIMER_NAMES & properties.keys()):
            return f"this broker does not deliver timer messages yet, {name} is set; the message was not stored"
    return None


def unbuilt_batch_remark(messages: Iterable[Mapping[str, str]], sys_flag: int) -> str | None:
    """Return why one of the messages of a batch cannot be taken, None when all can."""
    for properties in messages:
        if not UNBUILT_NAMES.isdisjoint(properties) or sys_flag & TRANSACTION_MASK:
            remark = unbuilt_remark(properties, sys_flag)
            if remark is not None:
                return remark
        if DELAY in properties and not _is_at_once(properties[DELAY]):
            return f"messages of a batch cannot be delayed, {DELAY} is {properties[DELAY]}; the batch was not stored"
    return None


def _is_at_once(level: str) -> bool:
    try:
        return int(level) <= 0
    except ValueError:
        return False
