"""Delayed messages: how one is parked until its time, and what it becomes then (``ScheduleMessageService``).

Rules (spec behaviour.md B.3.6 and B.12, store.md §10.1)

    1. The level is the property DELAY: 0 and below mean no delay, above the highest level means the highest.
    2. A parked message lies in queue level - 1 of SCHEDULE_TOPIC_XXXX. REAL_TOPIC and REAL_QID say where it belongs;
       DELAY stays, and properties that ask for a timer are dropped.
    3. What is delivered has the same property text, body, flags, born time and host, and count of attempts. So
       consumers see DELAY, REAL_TOPIC and REAL_QID; a delivery is not parked again, since it does not come this way.
    4. A message that belongs to the topic of half messages is never delivered, nor is one that does not say where to.

Pure: it knows no clock and no store. Its queue entry says when it is due (``store/recovery/dispatcher.py``).
"""

import re
from collections.abc import Mapping

import msgspec

from ...common.errors import DecodeError, MessageIllegalError
from ...common.names import HALF_TOPIC, SCHEDULE_TOPIC
from ...common.properties import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    encode_properties,
)
from ...common.record import NewRecord, Record

TIMER_NAMES = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})
_NUMBER = re.compile(r"[+-]?\d+")
_MOST = 2**31


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
        properties |= {DELAY: str(level), REAL_TOPIC: new.topic, REAL_QUEUE_ID: str(new.queue_id)}
        return msgspec.structs.replace(
            new,
            topic=SCHEDULE_TOPIC,
            queue_id=level - 1,
            property_text=encode_properties(properties),
            properties=properties,
        )


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
    number = int(text) if _NUMBER.fullmatch(text) and len(text) < 100 else _MOST
    if not -_MOST <= number < _MOST:
        raise DecodeError(f"property {DELAY} is {text!r}, which is no number")
    return number
