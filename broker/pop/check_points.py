"""What the log keeps of messages that are handed out: check points and acknowledgements (pop.md §5).

Both are messages of the revive topic. They wait in the timer wheel until they are due, then they come into queue
``revive_queue_id`` of it; what is due already comes there at once. (``PopCheckPoint``, ``AckMsg``, ``BatchAckMsg``)

    record           TAGS    due                            UNIQ_KEY
    check point      ck      a second before the lease ends  topic@queue@start@group@popTime@broker@ck
    acknowledgement  ack     when the lease ends             topic@queue@offset@group@popTime@broker@ack
    several          bAck    when the lease ends             topic@queue@[offset, …]@group@popTime@bAck

1. Bodies are JSON with short names. A check point says which messages it covers by their distances from ``so``; an old
   one without them covers ``n`` that follow each other.
2. An acknowledgement belongs to the check point with the same topic, group, queue, start, time and broker.
3. Whoever reads takes long names of acknowledgements, too, and its own broker where none is named.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from ...common.errors import DecodeError, JsonError
from ...common.java_json import Int32, Int64, read_json_as, write_json
from ...common.properties import TAGS, TIMER_DELIVER_MS, UNIQ_KEY, encode_properties
from ...common.record import NewRecord, Record

ACK_INTERVAL_MS: Final = 1_000
CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
MOST_MESSAGES: Final = 32
_NO_OFFSET: Final = 0


class LeaseKey(NamedTuple):
    """By what an acknowledgement finds its check point."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    popped_at_ms: int
    broker_name: str


class CheckPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue that were handed out together; ``put_again`` counts how often it was stored anew."""

    key: LeaseKey
    invisible_ms: int
    queue_offsets: tuple[int, ...]
    put_again: int = 0

    @property
    def ends_at_ms(self) -> int:
        """When its messages come again."""
        return self.key.popped_at_ms + self.invisible_ms


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a check point that are done with."""

    key: LeaseKey
    queue_offsets: tuple[int, ...]


class ReviveTopic(NamedTuple):
    """Where a broker keeps such records, and whose host stands in them."""

    name: str
    host: bytes


class _CheckPointBody(msgspec.Struct, frozen=True, kw_only=True):
    bm: Int32 = 0
    bn: str | None = None
    c: str | None = None
    d: list[Int32] | None = None
    it: Int64 = 0
    n: Int32 = 0
    pt: Int64 = 0
    q: Int32 = 0
    revive_time: Int64 = msgspec.field(name="reviveTime", default=0)
    ro: Int64 = 0
    rp: str | None = None
    so: Int64 = 0
    t: str | None = None


class _AckBody(msgspec.Struct, frozen=True, kw_only=True):
    ao: Int64 = 0
    aol: list[Int64] | None = None
    bn: str | None = None
    c: str | None = None
    pt: Int64 = 0
    q: Int32 = 0
    so: Int64 = 0
    t: str | None = None


class _LongAckBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    ack_offset: Int64 = 0
    ack_offset_list: list[Int64] | None = None
    broker_name: str | None = None
    consumer_group: str | None = None
    pop_time: Int64 = 0
    queue_id: Int32 = 0
    start_offset: Int64 = 0
    topic: str | None = None

    def short(self) -> _AckBody:
        return _AckBody(
            ao=self.ack_offset,
            aol=self.ack_offset_list,
            bn=self.broker_name,
            c=self.consumer_group,
            pt=self.pop_time,
            q=self.queue_id,
            so=self.start_offset,
            t=self.topic,
        )


def check_point_record(point: CheckPoint, place: ReviveTopic, revive_queue_id: int, now_ms: int) -> NewRecord:
    """Return what the log keeps of messages that are handed out."""
    key = point.key
    body = _CheckPointBody(
        bn=key.broker_name,
        c=key.group,
        d=[offset - key.start_offset for offset in point.queue_offsets],
        it=point.invisible_ms,
        n=len(point.queue_offsets),
        pt=key.popped_at_ms,
        q=key.queue_id,
        revive_time=point.ends_at_ms,
        rp=str(point.put_again) if point.put_again else None,
        so=key.start_offset,
        t=key.topic,
    )
    unique = f"{key.topic}@{key.queue_id}@{key.start_offset}@{key.group}@{key.popped_at_ms}@{key.broker_name}@ck"
    named = _Named(CHECK_POINT_TAG, unique, point.ends_at_ms - ACK_INTERVAL_MS)
    return _record(write_json(body), named, place, revive_queue_id, now_ms)


def ack_record(
    key: LeaseKey, queue_offset: int, ends_at_ms: int, place: ReviveTopic, revive_queue_id: int, now_ms: int
) -> NewRecord:
    """Return what the log keeps of one message that is done with."""
    body = _ack_body(key, queue_offset, None, key.broker_name)
    named = _Named(ACK_TAG, f"{_ack_name(key, queue_offset)}@{key.broker_name}@ack", ends_at_ms)
    return _record(body, named, place, revive_queue_id, now_ms)


def batch_ack_record(
    key: LeaseKey, queue_offsets: Sequence[int], ends_at_ms: int, place: ReviveTopic, revive_queue_id: int, now_ms: int
) -> NewRecord:
    """Return what the log keeps of several messages of one check point."""
    listed = f"[{', '.join(map(str, queue_offsets))}]"
    body = _ack_body(key, _NO_OFFSET, list(queue_offsets), key.broker_name)
    return _record(
        body, _Named(BATCH_ACK_TAG, f"{_ack_name(key, listed)}@bAck", ends_at_ms), place, revive_queue_id, now_ms
    )


class _Named(NamedTuple):
    tag: str
    unique_key: str
    due_at_ms: int


def _ack_name(key: LeaseKey, which: object) -> str:
    return f"{key.topic}@{key.queue_id}@{which}@{key.group}@{key.popped_at_ms}"


def _ack_body(key: LeaseKey, queue_offset: int, queue_offsets: list[int] | None, broker_name: str) -> bytes:
    body = _AckBody(
        ao=queue_offset,
        aol=queue_offsets,
        bn=broker_name,
        c=key.group,
        pt=key.popped_at_ms,
        q=key.queue_id,
        so=key.start_offset,
        t=key.topic,
    )
    return write_json(body)


def _record(body: bytes, named: _Named, place: ReviveTopic, queue_id: int, now_ms: int) -> NewRecord:
    properties = {TAGS: named.tag, TIMER_DELIVER_MS: str(named.due_at_ms), UNIQ_KEY: named.unique_key}
    return NewRecord(place.name, queue_id, body, encode_properties(properties), properties, 0, 0, now_ms, place.host)


def parse_revive_record(record: Record, own_broker_name: str) -> CheckPoint | Acknowledgement | None:
    """Return what a record of the revive topic says; None when that is nothing of POP.

    Raises:
        DecodeError: It says nothing that can be understood, or of no topic or group.
    """
    tag, body = record.properties.get(TAGS), bytes(record.body)
    if tag not in (CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG):
        return None
    try:
        return (
            _read_check_point(body, own_broker_name)
            if tag == CHECK_POINT_TAG
            else _read_ack(body, tag, own_broker_name)
        )
    except (JsonError, msgspec.ValidationError) as error:
        raise DecodeError(f"the {tag} at queue offset {record.queue_offset} of {record.topic}: {error}") from error


def _read_check_point(data: bytes, own_broker_name: str) -> CheckPoint:
    body = read_json_as(data, _CheckPointBody)
    count = len(body.d) if body.d else body.n
    if not 0 <= count <= MOST_MESSAGES:
        raise JsonError(f"it covers {count} messages, the most are {MOST_MESSAGES}")
    distances = body.d or range(count)
    again = body.rp or "0"
    return CheckPoint(
        key=_key(body, own_broker_name),
        invisible_ms=body.it,
        queue_offsets=tuple(body.so + distance for distance in distances),
        put_again=int(again) if again.isdecimal() and len(again) < 10 else 0,
    )


def _read_ack(data: bytes, tag: str, own_broker_name: str) -> Acknowledgement:
    body = read_json_as(data, _AckBody)
    if body.t is None:
        body = read_json_as(data, _LongAckBody).short()
    offsets = (body.ao,) if tag == ACK_TAG else tuple(body.aol or ())
    return Acknowledgement(key=_key(body, own_broker_name), queue_offsets=offsets)


def _key(body: _CheckPointBody | _AckBody, own_broker_name: str) -> LeaseKey:
    if not body.t or not body.c:
        raise JsonError("it names no topic, or no group")
    return LeaseKey(body.t, body.c, body.q, body.so, body.pt, body.bn or own_broker_name)
