"""What a message becomes on its way into the timer wheel and out of it (store.md §10.3, §10.6).

Into the wheel (``HookUtils.transformTimerMessage``)
    1. The first of TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS counts. Who carries TIMER_OUT_MS has been
       through the wheel and asks for nothing.
    2. A time that has passed: the message goes where it belongs at once. One that is to delete another is refused.
    3. A time further ahead than ``timerMaxDelaySec``, or one that is no number, is refused.
    4. The time is floored to ``timerPrecisionMs``, an exact multiple to the one before: TIMER_OUT_MS. A slot is
       delivered when it is over, so never before the time that was asked for.
    5. A slot that holds more than ``timerCongestNumEachSlot`` refuses some, with twice as many all.
    6. The message waits in queue 0 of rmq_sys_wheel_timer; REAL_TOPIC and REAL_QID say where it belongs.

Out of it (``TimerMessageStore.convert``): ``delivered``, where REAL_TOPIC and REAL_QID say, or ``rolled``, into the
timer topic once more, with one roll more
    7. Both keep body, flags, born time and host, attempts, and all properties; so consumers see TIMER_OUT_MS and where
       the message was bound for. TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS are added.
    8. A message that was late when it was to be put into the wheel has the greatest number as TIMER_ENQUEUE_MS.
    9. When its properties leave no room for that, they stay as they are: the message matters more.

Sums are Java's, with 64 bits. Pure but for the chance of rule 5: it knows no clock and no store.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ...common.codes import ResponseCode
from ...common.errors import MessageRefusedError
from ...common.ids import RecallHandle, format_recall_handle
from ...common.java_numbers import parse_int64, wrap_int64
from ...common.names import RETRY_PREFIX, TIMER_TOPIC
from ...common.properties import (
    CRC32,
    MAX_PROPERTIES_BYTES,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    encode_properties,
    java_hash,
)
from ...common.record import NewRecord, Record
from ...store.files.store_config import TimerConfig
from ...store.timer.timers import TimedMessage
from .delayed_messages import deliverable, parked

NEVER_PUT_MS: Final = 2**63 - 1
_ROOM_BYTES: Final = 64  # of the encoder, for what it adds


def timed(record: Record) -> TimedMessage | None:
    """Return when a record of the timer topic is due, None when it does not say so."""
    properties = record.properties
    text = properties.get(TIMER_OUT_MS, "")
    if record.topic != TIMER_TOPIC or not text.isdecimal() or int(text) >= NEVER_PUT_MS:
        return None
    topic_hash = java_hash(properties.get(REAL_TOPIC, ""))
    return TimedMessage(int(text), record.log_offset, record.total_size, topic_hash, TIMER_DEL_UNIQKEY in properties)


def delivered(record: Record, put_at_ms: int, now_ms: int) -> NewRecord:
    """Return the message of a timer record, as it is stored where it belongs.

    Raises:
        MessageIllegalError: It is never to be delivered.
    """
    return _stamped(deliverable(record), put_at_ms, now_ms)


def rolled(record: Record, put_at_ms: int, now_ms: int) -> NewRecord:
    """Return the record that keeps a message for another round."""
    times = record.properties.get(TIMER_ROLL_TIMES, "")
    new = NewRecord(
        record.topic,
        record.queue_id,
        bytes(record.body),
        record.property_text,
        record.properties | {TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1)},
        record.flag,
        record.sys_flag,
        record.born_at_ms,
        record.born_host,
        record.reconsume_times,
    )
    return _stamped(new, put_at_ms, now_ms)


def deletion_keys(record: Record) -> tuple[str, ...]:
    """Return by which texts another message may delete this one."""
    properties = record.properties
    unique_key = properties.get(UNIQ_KEY)
    return () if unique_key is None else (unique_key, f"{properties.get(REAL_TOPIC)}+{unique_key}")


def _stamped(new: NewRecord, put_at_ms: int, now_ms: int) -> NewRecord:
    properties = new.properties | {TIMER_ENQUEUE_MS: str(put_at_ms), TIMER_DEQUEUE_MS: str(now_ms)}
    properties.pop(CRC32, None)
    text = encode_properties(properties)
    if len(text) > MAX_PROPERTIES_BYTES - _ROOM_BYTES:
        return new
    return msgspec.structs.replace(new, property_text=text, parsed=properties)


CountAt = Callable[[int], int]
"""Tells how many messages wait in the slot of an instant."""

AheadMs = Callable[[int], int]
"""Tells how far the wheel is ahead of a wall clock that was set back."""


class TimerRequests:
    """Sends messages that ask for a time to the topic of the timer wheel."""

    def __init__(self, config: TimerConfig, count_at: CountAt, ahead_ms: AheadMs) -> None:
        self._config = config
        self._count_at = count_at
        self._ahead_ms = ahead_ms
        self._is_bounded = config.most_in_slot < 2**31 - 1

    def __repr__(self) -> str:
        return f"<TimerRequests up to {self._config.most_delay_seconds} s ahead>"

    def ahead_ms(self, wall_ms: int) -> int:
        """Return how far the wheel is ahead of a wall clock that was set back."""
        return self._ahead_ms(wall_ms)

    def rewrite(self, new: NewRecord, now_ms: int) -> NewRecord | None:
        """Return the record that keeps a message until its time, None when it asks for none or for one that has passed.

        Raises:
            MessageRefusedError: It asks for something that cannot be.
        """
        properties = new.properties
        if new.topic == TIMER_TOPIC or TIMER_OUT_MS in properties:
            return None
        deliver_at_ms = self._wanted_at(properties, now_ms)
        if deliver_at_ms is None:
            return None
        if deliver_at_ms <= now_ms:
            if TIMER_DEL_UNIQKEY in properties:
                raise self._illegal()
            return None
        if deliver_at_ms - now_ms > self._config.most_delay_ms:
            raise self._illegal()
        precision_ms = self._config.precision_ms
        out_ms = (deliver_at_ms + self._ahead_ms(now_ms) - 1) // precision_ms * precision_ms
        if self._is_bounded and self._is_congested(self._count_at(out_ms)):
            raise self._congested()
        return parked(new, TIMER_TOPIC, 0, new.properties | {TIMER_OUT_MS: str(out_ms)})

    def _wanted_at(self, properties: Mapping[str, str], now_ms: int) -> int | None:
        """Return the instant that a message asks for, None when it asks for none."""
        if (text := properties.get(TIMER_DELAY_SEC)) is not None:
            return wrap_int64(now_ms + wrap_int64(self._parse(text) * 1_000))
        if (text := properties.get(TIMER_DELAY_MS)) is not None:
            return wrap_int64(now_ms + self._parse(text))
        text = properties.get(TIMER_DELIVER_MS)
        return None if text is None else self._parse(text)

    def _parse(self, text: str) -> int:
        """Return the number as ``Long.parseLong`` reads it."""
        number = parse_int64(text)
        if number is None:
            raise self._illegal()
        return number

    def _is_congested(self, count: int) -> bool:
        most = self._config.most_in_slot
        if count <= most or count >= 2 * most:
            return count > most
        return random.randrange(1_000) > 1_000 * (count - most) / (most + 0.1)

    def _illegal(self) -> MessageRefusedError:
        remark = (
            f"timer message illegal, the delay time should not be bigger than the max delay "
            f"{self._config.most_delay_ms}ms; or if set del msg, the delay time should be bigger than the current time"
        )
        return MessageRefusedError(ResponseCode.MESSAGE_ILLEGAL, remark, status="WHEEL_TIMER_MSG_ILLEGAL")

    def _congested(self) -> MessageRefusedError:
        most = self._config.most_in_slot
        remark = (
            f"timer message is under flow control, max num limit is {2 * most} or the current value is greater than "
            f"{most} and less than {2 * most}, trigger random flow control"
        )
        return MessageRefusedError(ResponseCode.SYSTEM_ERROR, remark, status="WHEEL_TIMER_FLOW_CONTROL")


def recall_handle_of(parked: NewRecord, broker_name: str) -> str | None:
    """Return by what a producer can recall a message that was just parked, None when it cannot."""
    properties = parked.properties
    topic, out_ms, unique_key = properties.get(REAL_TOPIC), properties.get(TIMER_OUT_MS), properties.get(UNIQ_KEY)
    if topic is None or out_ms is None or unique_key is None or topic.startswith(RETRY_PREFIX):
        return None
    return format_recall_handle(RecallHandle(topic, broker_name, str(int(out_ms) + 1), unique_key))
