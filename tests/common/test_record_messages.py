"""Pull answers as messages: what the short way makes of records is what the long way makes of them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from javastores import java_cases

from rocketlet.common.errors import DecodeError, RecordError
from rocketlet.common.ids import encode_host
from rocketlet.common.message import COMPRESSED, INNER_BATCH, NEEDS_UNWRAP, ReceivedMessage
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import BatchPart, NewRecord, decode_record, encode_batch, encode_record
from rocketlet.common.record_messages import decode_message, decode_messages

HOST = encode_host("10.0.0.2", 10911)
CASES = java_cases("codec/records.json")
RECORDS = [
    bytes.fromhex(case["hex"]) for case in CASES if case["op"].startswith("MessageDecoder.encode") and "message" in case
]
MakeRecord = Callable[..., NewRecord]


def encoded(new: NewRecord, **place: int) -> bytes:
    """Return the bytes of a record at any place."""
    return encode_record(new, **{"queue_offset": 5, "log_offset": 1024, "stored_at_ms": 9} | place, store_host=HOST)


def never(_queue_offset: int, error: DecodeError) -> None:
    """Leave nothing out."""
    raise AssertionError(error)


@pytest.mark.parametrize("data", RECORDS, ids=lambda data: str(len(data)))
def test_java_record_is_the_same_both_ways(data: bytes) -> None:
    """Each recorded record of Java, of the usual kind or not, gives one and the same message."""
    assert decode_messages(data, "b", never) == [decode_message(decode_record(data), "b")]


def test_records_follow_each_other(make_record: MakeRecord) -> None:
    """Usual records and one that is compressed come in their order, all fields as the long way has them."""
    texts = [b"", encode_properties({"UNIQ_KEY": "U", "TAGS": "标签", "KEYS": "a  b"}), b"TAGS\x01x"]
    parts = [encoded(make_record(property_text=text), queue_offset=at) for at, text in enumerate(texts)]
    parts.insert(1, next(data for data in RECORDS if decode_record(data).sys_flag & COMPRESSED))
    messages = decode_messages(b"".join(parts), "b", never)
    assert messages == [decode_message(decode_record(part), "b") for part in parts]
    assert messages[0].message_id == messages[0].offset_message_id == "0A00000200002A9F0000000000000400"


def test_batch_comes_as_its_messages(make_record: MakeRecord) -> None:
    """A record that holds a batch gives its messages, each at its own queue offset."""
    body = encode_batch([BatchPart(0, b"one", b""), BatchPart(0, b"two", b"")])
    batch = encoded(make_record(body=body, sys_flag=INNER_BATCH | NEEDS_UNWRAP))
    messages = decode_messages(batch + encoded(make_record(), queue_offset=7), "b", never)
    assert [(each.queue_offset, each.body) for each in messages[:2]] == [(5, b"one"), (6, b"two")]
    assert messages[2].queue_offset == 7


@pytest.mark.parametrize("sys_flag", [COMPRESSED, INNER_BATCH | NEEDS_UNWRAP])
def test_unreadable_body_is_left_out(make_record: MakeRecord, sys_flag: int) -> None:
    """A body that does not inflate, or is no batch, is reported with its offset; the others are there."""
    left_out: list[int] = []
    data = encoded(make_record(body=b"garbage", sys_flag=sys_flag)) + encoded(make_record(), queue_offset=6)
    messages = decode_messages(data, "b", lambda queue_offset, _error: left_out.append(queue_offset))
    assert left_out == [5]
    assert [message.queue_offset for message in messages] == [6]


@given(st.data())
def test_damage_is_an_error_or_the_same_message(data: st.DataObject) -> None:
    """One changed byte anywhere, or a cut, is a RecordError exactly when the long way raises one."""
    record = bytearray(data.draw(st.sampled_from(RECORDS)))
    if data.draw(st.booleans()):
        record = record[: data.draw(st.integers(1, len(record) - 1))]
    else:
        record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    assert outcome(lambda: decode_messages(bytes(record), "b", never)) == outcome(lambda: long_way(bytes(record)))


def long_way(data: bytes) -> list[ReceivedMessage]:
    """Return the messages of records, one by one."""
    messages: list[ReceivedMessage] = []
    while data:
        record = decode_record(data)
        if record.sys_flag & INNER_BATCH and record.sys_flag & NEEDS_UNWRAP:  # it takes both to be a batch
            raise AssertionError
        messages.append(decode_message(record, "b"))
        data = data[record.total_size :]
    return messages


def outcome(read: Callable[[], list[ReceivedMessage]]) -> list[ReceivedMessage] | str:
    """Return the messages, or that there are none."""
    try:
        return read()
    except RecordError:
        return "no record"
    except AssertionError:
        return "a body that cannot be read, or a batch"
    except DecodeError:
        return "a body that cannot be read, or a batch"
