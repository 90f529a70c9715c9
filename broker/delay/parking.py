"""Where a message is kept when it is not to be seen yet (``HookUtils.handleScheduleMessage``).

Rules (spec behaviour.md B.3.6, B.12), in this order

    1. A message of a transaction that is open or was rolled back is kept as it is.
    2. A delay level above 0 beats a timer: the message is parked until the delay of its level is over.
    3. A message that asks for a timer is parked by the timers, or refused by them. When its time has passed already, it
       is kept as it is.
    4. Without a timer wheel a message that asks for a timer is refused; stored, it would be seen too early.

Everybody who stores a message of a client asks here first: sends, messages that come back from consumers, and committed
transactions. Plain messages, whose properties need no care, need not come.
"""

from collections.abc import Mapping
from typing import Protocol

from ...common.errors import MessageRefusedError
from ...common.message import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from ...common.names import TIMER_TOPIC
from ...common.properties import TIMER_OUT_MS
from ...common.record import NewRecord
from ...remoting.codec.codes import ResponseCode
from .delay import TIMER_NAMES, Delays

_SEEN_SOMETIME = (TRANSACTION_NONE, TRANSACTION_COMMIT)
_NO_WHEEL = "accurate timer message is not enabled, timerWheelEnable is false"


class TimerRequests(Protocol):
    """Those who park messages until a time."""

    def ahead_ms(self, wall_ms: int) -> int:
        """Return how far their time is ahead of a wall clock that was set back."""
        ...

    def rewrite(self, new: NewRecord, now_ms: int) -> NewRecord | None:
        """Return the record that keeps a message until its time, None when it asks for none or for one that has passed.

        Raises:
            MessageRefusedError: It asks for something that cannot be.
        """
        ...


class Parking:
    """Sends messages that ask for it to where they wait."""

    def __init__(self, delays: Delays, timers: TimerRequests | None = None) -> None:
        self._delays = delays
        self._timers = timers

    def __repr__(self) -> str:
        return f"<Parking {self._delays!r}, timers {self._timers!r}>"

    def place(self, new: NewRecord, now_ms: int) -> NewRecord:
        """Return what is to be stored for a message.

        Raises:
            MessageRefusedError: It may not be stored.
            DecodeError: Its delay level is no number.
        """
        if new.sys_flag & TRANSACTION_MASK not in _SEEN_SOMETIME:
            return new
        if level := self._delays.level_of(new.properties):
            return self._delays.park(new, level)
        if self._timers is not None:
            return self._timers.rewrite(new, now_ms) or new
        if _asks_for_timer(new.topic, new.properties):
            raise MessageRefusedError(ResponseCode.SYSTEM_ERROR, _NO_WHEEL, status="WHEEL_TIMER_NOT_ENABLE")
        return new

    def timers_ahead_ms(self, wall_ms: int) -> int:
        """Return how far the time of timer messages is ahead of a wall clock that was set back."""
        return 0 if self._timers is None else self._timers.ahead_ms(wall_ms)

    def is_delayed(self, properties: Mapping[str, str]) -> bool:
        """Tell whether a message has a delay level above 0 (raises ``DecodeError``)."""
        return self._delays.level_of(properties) > 0

    def is_to_wait(self, topic: str, properties: Mapping[str, str]) -> bool:
        """Tell whether a message asks for a delay or a timer (raises ``DecodeError``); a batch can have neither."""
        return self.is_delayed(properties) or _asks_for_timer(topic, properties)


def _asks_for_timer(topic: str, properties: Mapping[str, str]) -> bool:
    """Tell whether a message without a delay level asks for a timer; one that has had its timer does not."""
    return topic != TIMER_TOPIC and TIMER_OUT_MS not in properties and not TIMER_NAMES.isdisjoint(properties)
