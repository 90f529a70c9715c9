"""What messages in topics of the broker's own are waiting for, as columns (spec behaviour.md B.9, B.11, B.12).

    topic                        state         realTopic                            dueTimestamp
    SCHEDULE_TOPIC_XXXX          delayed       REAL_TOPIC                           store time + delay of DELAY
    rmq_sys_wheel_timer          timer         REAL_TOPIC                           TIMER_OUT_MS
      with TIMER_DEL_UNIQKEY     timer-delete  REAL_TOPIC                           TIMER_OUT_MS
    RMQ_SYS_TRANS_HALF_TOPIC     half          REAL_TOPIC
    TRANS_CHECK_MAX_TIME_TOPIC   discarded     REAL_TOPIC
    RMQ_SYS_TRANS_OP_HALF_TOPIC  op
    %RETRY%…                     retry         RETRY_TOPIC, or what the name says
    %DLQ%…                       dead-letter   DLQ_ORIGIN_TOPIC, RETRY_TOPIC
    rmq_sys_REVIVE_LOG_…         check-point   of the lease, by its unique key      TIMER_OUT_MS
                                 ack           of the lease, by its unique key      TIMER_OUT_MS
    other system topics          system
    all others

Rules:

- ``realTopic`` is the topic that the message was sent to. A retry that waits has its retry topic as REAL_TOPIC; then
  RETRY_TOPIC counts. ``realQueueId`` is REAL_QID where REAL_TOPIC counts: retries have no queue of their own.
- A check point says which messages were handed out by POP, an ack which of them are done with. Their unique keys begin
  with topic and queue of the messages, ``<topic>@<queue>@…``. Before they are due they are in the timer topic.
- A record says what was asked for when it was stored; whether a half message was settled, or a delayed one delivered,
  is told by other records.
- What is absent, or no number, is null. The work per record is Arrow's; blocks without such topics cost nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...common.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_DISCARD_TOPIC,
    is_system_topic,
)
from ...common.properties import (
    DELAY,
    DLQ_ORIGIN_TOPIC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from ...store.commitlog.record_blocks import Longs, Mask
from ...store.files.store_config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from .property_table import PropertyTable
from .schema import SYSTEM_FIELDS, make_timestamps

DEFAULT_DELAYS_MS: Final = parse_delay_levels(DEFAULT_DELAY_LEVELS)
_STATES: Final = {
    SCHEDULE_TOPIC: "delayed",
    TIMER_TOPIC: "timer",
    HALF_TOPIC: "half",
    OP_HALF_TOPIC: "op",
    TRANSACTION_DISCARD_TOPIC: "discarded",
}
_PARKED: Final = frozenset({"delayed", "timer", "half", "discarded"})
_ORIGIN_GROUP: Final = "ORIGIN_GROUP"
_LEASED: Final = "check-point"
_TAGS: Final = {"check-point": ["ck"], "ack": ["ack", "bAck"]}
_LEASE: Final = r"^(?P<topic>[^@]+)@(?P<queue>[0-9]{1,10})@"
_NUMBER: Final = r"^[0-9]{1,18}$"
_MOST_QUEUE_ID: Final = 2**31 - 1


def state_of(topic: str) -> str | None:
    """Return the state of messages in a topic, ``None`` for topics that applications use."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead-letter"
    if topic.startswith(REVIVE_TOPIC_PREFIX):
        return _LEASED
    return _STATES.get(topic, "system" if is_system_topic(topic) else None)


class SystemColumns:
    """The columns of the messages of a block, by their topics, properties and store times."""

    def __init__(
        self,
        topics: tuple[Longs, Sequence[str]],
        properties: Callable[[], PropertyTable],
        stored_at_ms: Longs,
        delays_ms: Sequence[int],
    ) -> None:
        self._codes, names = topics
        self._names = pa.array(names, pa.string())
        self._states = [state_of(name) for name in names]
        self._properties = properties
        self._stored_at_ms = stored_at_ms
        self._delays_ms = delays_ms

    def column(self, name: str) -> pa.Array:
        """Return one column of ``SYSTEM_FIELDS``."""
        if not any(self._states):
            return pa.nulls(len(self._codes), SYSTEM_FIELDS[name].type)
        return _MAKERS[name](self)

    def real_topics(self) -> pa.Array:
        """Return the topics that the messages were sent to."""
        failed = self._is_in("delayed", "retry", "dead-letter")
        origins = self._text(RETRY_TOPIC, failed)
        dead = self._text(DLQ_ORIGIN_TOPIC, self._is_in("dead-letter"))
        leased = pc.struct_field(self._leased, "topic")
        return pc.coalesce(self._parked_in, dead, origins, self._popped_topics(), leased)

    def real_queue_ids(self) -> pa.Array:
        """Return the queues that they were sent to."""
        numbers, is_number = _parse(self._text(REAL_QUEUE_ID, self._is_in(*_PARKED)))
        usable = is_number & np.asarray(self._parked_in.is_valid())
        leased, is_leased = _parse(pc.struct_field(self._leased, "queue"))
        numbers, usable = np.where(is_leased, leased, numbers), usable | is_leased
        usable &= numbers <= _MOST_QUEUE_ID
        return pa.array(np.where(usable, numbers, 0).astype(np.int32), pa.int32(), mask=~usable)

    def due_at(self) -> pa.Array:
        """Return when they are due."""
        levels, is_level = _parse(self._text(DELAY, self._is_in("delayed")))
        is_level &= levels > 0
        delays = np.array(self._delays_ms, np.int64)
        by_level = self._stored_at_ms + delays[np.clip(levels, 1, len(delays)) - 1]
        by_timer, is_timer = _parse(self._text(TIMER_OUT_MS, self._is_in("timer", _LEASED)))
        return make_timestamps(np.where(is_timer, by_timer, by_level), is_level | is_timer)

    def states(self) -> pa.Array:
        """Return what they wait for, in a word."""
        states = pa.array(self._states, pa.string()).take(pa.array(self._codes))
        deletes = self._text(TIMER_DEL_UNIQKEY, self._is_in("timer")).is_valid()
        states = pc.if_else(deletes, "timer-delete", states)
        is_leased = self._is_in(_LEASED)
        states, tags = pc.if_else(pa.array(is_leased), "system", states), self._text(TAGS, is_leased)
        for state, known in _TAGS.items():
            states = pc.if_else(pc.is_in(tags, pa.array(known, pa.string())), state, states)
        return states

    @cached_property
    def _table(self) -> PropertyTable:
        return self._properties()

    def _is_in(self, *states: str) -> Mask:
        return np.array([state in states for state in self._states])[self._codes]

    def _text(self, name: str, rows: Mask) -> pa.Array:
        """Return a property of these rows, null for the others."""
        return pc.if_else(pa.array(rows), self._table.column(name), pa.nulls(len(rows), pa.string()))

    @cached_property
    def _parked_in(self) -> pa.Array:
        """REAL_TOPIC where it is the topic that the message was sent to."""
        found = self._text(REAL_TOPIC, self._is_in(*_PARKED))
        is_retry = pc.starts_with(found, RETRY_PREFIX).fill_null(False)
        has_origin = self._table.column(RETRY_TOPIC).is_valid()
        return pc.if_else(pc.and_(is_retry, has_origin), None, found)

    @cached_property
    def _leased(self) -> pa.Array:
        """Return topic and queue of the messages that check points and acks are about."""
        return pc.extract_regex(self._text(UNIQ_KEY, self._is_in(_LEASED)), _LEASE)

    def _popped_topics(self) -> pa.Array:
        """Return the topics of ``%RETRY%<group>_<topic>``, which pop consumers have; messages there name the group."""
        rows = self._is_in("retry")
        groups = self._text(_ORIGIN_GROUP, rows)
        if groups.null_count == len(rows):
            return pa.nulls(len(rows), pa.string())
        names: list[str] = self._names.to_pylist()
        pairs: Iterable[tuple[int, str | None]] = zip(self._codes.tolist(), groups.to_pylist(), strict=True)
        return pa.array([group and _after(names[code], f"{RETRY_PREFIX}{group}") for code, group in pairs], pa.string())


_MAKERS: Final[Mapping[str, Callable[[SystemColumns], pa.Array]]] = {
    "realTopic": SystemColumns.real_topics,
    "realQueueId": SystemColumns.real_queue_ids,
    "dueTimestamp": SystemColumns.due_at,
    "state": SystemColumns.states,
}


def _after(topic: str, start: str) -> str | None:
    """Return what follows the group and one separator, ``_`` or since 5.2 ``+``."""
    rest = topic.removeprefix(start)
    return rest[1:] or None if rest != topic and rest[:1] in ("_", "+") else None


def _parse(texts: pa.Array) -> tuple[Longs, Mask]:
    is_number = pc.match_substring_regex(texts, _NUMBER).fill_null(False)
    numbers = pc.if_else(is_number, texts, "0").cast(pa.int64())
    return np.asarray(numbers), np.asarray(is_number)
