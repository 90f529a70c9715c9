"""Where a message waits that is not to be seen yet, and what it becomes in the end (behaviour.md B.3.6, B.12).

Everybody who stores a message of a client asks here first: sends, messages that come back from consumers, and committed
transactions. Plain messages, whose properties need no care, need not come (``HookUtils.handleScheduleMessage``,
``ScheduleMessageService``).

Rules, the first that fits
    1. A message of a transaction that is open or was rolled back is kept as it is.
    2. A delay level above 0 beats a timer: the message is parked until the delay of its level is over.
    3. A message that asks for a timer is parked by the timers, or refused by them. When its time has passed already, it
       is kept as it is.
    4. Without a timer wheel a message that asks for a timer is refused; stored, it would be seen too early.

Rules of delay levels (store.md §10.1)
    5. The level is the property DELAY: 0 and below mean no delay, above the highest level means the highest.
    6. A parked message lies in queue level - 1 of SCHEDULE_TOPIC_XXXX. REAL_TOPIC and REAL_QID say where it belongs;
       DELAY stays, and properties that ask for a timer are dropped.
    7. What is delivered has the same property text, body, flags, born time and host, and count of attempts. So
       consumers see DELAY, REAL_TOPIC and REAL_QID; a delivery is not parked again, since it does not come this way.
    8. A message that belongs to the topic of half messages is never delivered, nor is one that does not say where to.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, MessageIllegalError, MessageRefusedError
from ...common.java_numbers import parse_int32
from ...common.message import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from ...common.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ...common.properties import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    encode_properties,
)
from ...common.record import NewRecord, Record

TIMER_NAMES = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})


class Delays:
    """The delay levels of a broker (``messageDelayLevel``)."""

    def __init__(self, delays_ms: tuple[int, ...]) -> None:
        self._highest = len(delays_ms)

    def __repr__(self) -> str:
        return f"<Delays of {self._highest} levels>"

    def level_of(self, properties: Mapping[str, str]) -> int:
        """Return the level that a message asks for, at most the highest; 0 when it is not to be delayed.

        Raises:
            DecodeError: DELAY is no number.
        """
        text = properties.get(DELAY)
        return 0 if text is None else max(0, min(_parse_level(text), self._highest))

    def park(self, new: NewRecord, level: int) -> NewRecord:
        """Return the record that keeps a message until the delay of its level is over."""
        level = min(level, self._highest)
        properties = {name: value for name, value in new.properties.items() if name not in TIMER_NAMES}
        return parked(new, SCHEDULE_TOPIC, level - 1, properties | {DELAY: str(level)})


def parked(new: NewRecord, topic: str, queue_id: int, properties: Mapping[str, str]) -> NewRecord:
    """Return the record that waits in a system topic in place of a message; it says where that belongs."""
    properties = {**properties, REAL_TOPIC: new.topic, REAL_QUEUE_ID: str(new.queue_id)}
    text = encode_properties(properties)
    return msgspec.structs.replace(new, topic=topic, queue_id=queue_id, property_text=text, parsed=properties)


def deliverable(parked: Record) -> NewRecord:
    """Return the message that was parked, as it is stored where it belongs.

    Raises:
        MessageIllegalError: It is never to be delivered.
    """
    properties = parked.properties
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if topic is None or topic == HALF_TOPIC or not queue_id.isdecimal():
        raise MessageIllegalError(f"it belongs to topic {topic}, queue {queue_id or None}")
    return NewRecord(
        topic,
        int(queue_id),
        bytes(parked.body),
        parked.property_text,
        properties,
        parked.flag,
        parked.sys_flag,
        parked.born_at_ms,
        parked.born_host,
        parked.reconsume_times,
    )


def _parse_level(text: str) -> int:
    """Return the number as ``Integer.parseInt`` reads it."""
    number = parse_int32(text)
    if number is None:
        raise DecodeError(f"property {DELAY} is {text!r}, which is no number")
    return number


_SEEN_SOMETIME = (TRANSACTION_NONE, TRANSACTION_COMMIT)
_NO_WHEEL = "accurate timer message is not enabled, timerWheelEnable is false"


class TimerRouting(Protocol):
    """Who sends messages that ask for a time to where they wait."""

    def ahead_ms(self, wall_ms: int) -> int:
        """Return how far their time is ahead of a wall clock that was set back."""
        ...

    def rewrite(self, new: NewRecord, now_ms: int) -> NewRecord | None:
        """Return the record that keeps a message until its time, None when it asks for none or for one that has passed.

        Raises:
            MessageRefusedError: It asks for something that cannot be.
        """
        ...


class DelayRouting:
    """Sends messages that ask for a delay or a time to where they wait."""

    def __init__(self, now_ms: Callable[[], int], delays: Delays, timers: TimerRouting | None = None) -> None:
        self.now_ms = now_ms
        self._delays = delays
        self._timers = timers

    def __repr__(self) -> str:
        return f"<DelayRouting {self._delays!r}, timers {self._timers!r}>"

    def place(self, new: NewRecord) -> NewRecord:
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
            return self._timers.rewrite(new, self.now_ms()) or new
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
