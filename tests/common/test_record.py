import base64
import contextlib
import hashlib
import json
import pathlib
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from javastores import java_cases
from msgspec import structs

from rocketlet.common.compression import inflate
from rocketlet.common.errors import DecodeError, RecordError
from rocketlet.common.ids import encode_host
from rocketlet.common.message import MessageQueue
from rocketlet.common.properties import CRC32, encode_properties, parse_properties
from rocketlet.common.record import (
    BLANK_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEAD,
    BatchPart,
    NewRecord,
    Record,
    Verdict,
    check_record,
    decode_batch,
    decode_record,
    encode_batch,
    encode_record,
    encode_records,
    has_sealed_crc,
    iter_records,
    reserve_property_crc,
    seal_property_crc,
    split_batch,
)
from rocketlet.common.record_messages import decode_message

VECTORS = pathlib.Path(__file__).parents[1] / "vectors"
CASES = java_cases("codec/records.json")
RECORDS = [case for case in CASES if case["op"].startswith("MessageDecoder.encode") and "message" in case]
BATCH_RECORDS = [case for case in CASES if case["op"] == "MessageDecoder.encodeMessage"]
BATCH = next(case for case in CASES if case["op"] == "MessageDecoder.encodeMessages")
STORES = ["plain", "killed", "delay-retry", "batchcrc"]
# store.md §15.3: the first record of a log that the Java store wrote
FIRST_RECORD = bytes.fromhex(
    "0000008f daa320a7 516fa58a 00000000 00000000 0000000000000000 0000000000000000 00000000"
    "000001a1fbfe41b9 7f000001 000004d2 000001a1fbfe4205 7f000001 00002a9f 00000000 0000000000000000"
    "00000005 626f647930 02 5430 002d"
    "4b455953016b30206b6b02 554e49515f4b455901553135343838303531393734363202 54414753017461673002"
)
NUMBERS = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicOffset": "log_offset",
    "storeTimestamp": "stored_at_ms",
    "bornTimestamp": "born_at_ms",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "bodyCRC": "body_crc",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
HOSTS = st.sampled_from([encode_host("10.0.0.1", 1), encode_host("fd00::1", 65535)])
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
NEW_RECORDS = st.builds(
    NewRecord,
    topic=st.text(st.characters(exclude_categories=["Cs"]), max_size=140),
    queue_id=INTS,
    body=st.binary(max_size=200),
    property_text=st.binary(max_size=200),
    parsed=st.just({}),
    flag=INTS,
    sys_flag=INTS,
    born_at_ms=LONGS,
    born_host=HOSTS,
    reconsume_times=INTS,
    prepared_transaction_offset=LONGS,
)


def _host(text: str) -> bytes:
    address, _, port = text.partition("|")
    return encode_host(address, int(port))


def _new_again(record: Record) -> NewRecord:
    return NewRecord(
        topic=record.topic,
        queue_id=record.queue_id,
        body=bytes(record.body),
        property_text=record.property_text,
        parsed=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_at_ms=record.born_at_ms,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def _encode_again(record: Record) -> bytes:
    return encode_record(
        _new_again(record),
        queue_offset=record.queue_offset,
        log_offset=record.log_offset,
        stored_at_ms=record.stored_at_ms,
        store_host=record.store_host,
    )


def test_record_head_has_88_bytes() -> None:
    """The fixed part up to the body's length takes 88 bytes with IPv4 hosts."""
    assert RECORD_HEAD.size == 88


@pytest.mark.parametrize(
    "case", RECORDS, ids=lambda case: f"{case['message']['topic'][:8]}-{case['message']['sysFlag']}"
)
def test_record_of_java_is_read(case: dict[str, Any]) -> None:
    """Every recorded message comes out of Java's bytes, inflated where it is compressed."""
    message = case["message"]
    record = decode_record(bytes.fromhex(case["hex"]))
    assert (record.topic, record.queue_id, record.flag) == (message["topic"], message["queueId"], message["flag"])
    assert (record.queue_offset, record.log_offset) == (message["queueOffset"], message["physicOffset"])
    assert (record.sys_flag, record.body_crc) == (message["sysFlag"], message["bodyCRC"])
    assert (record.born_at_ms, record.stored_at_ms) == (message["bornTimestamp"], message["storeTimestamp"])
    assert (record.born_host, record.store_host) == (_host(message["bornHost"]), _host(message["storeHost"]))
    assert record.reconsume_times == message["reconsumeTimes"]
    assert record.prepared_transaction_offset == message["preparedTransactionOffset"]
    assert record.inflated_body().hex() == message["bodyHex"]
    assert record.properties == message["properties"]


@pytest.mark.parametrize(
    "case", RECORDS, ids=lambda case: f"{case['message']['topic'][:8]}-{case['message']['sysFlag']}"
)
def test_record_is_written_as_java_does(case: dict[str, Any]) -> None:
    """The same message at the same place becomes Java's bytes (whose checksum of a compressed body is its caller's)."""
    expected = bytearray.fromhex(case["hex"])
    record = decode_record(expected)
    if record.sys_flag & 1:
        expected[8:12] = _encode_again(record)[8:12]
    assert _encode_again(record) == expected


def test_first_record_of_a_log() -> None:
    """The record of the reference's text is read and written byte by byte."""
    record = decode_record(FIRST_RECORD)
    assert (record.topic, record.body, record.total_size) == ("T0", b"body0", 143)
    assert record.properties == {"KEYS": "k0 kk", "UNIQ_KEY": "U1548805197462", "TAGS": "tag0"}
    assert record.is_body_intact
    assert _encode_again(record) == FIRST_RECORD


@pytest.mark.parametrize("data", [FIRST_RECORD, *(bytes.fromhex(case["hex"]) for case in RECORDS[2:9])], ids=len)
def test_record_cut_at_every_length_is_refused(data: bytes) -> None:
    """A record without its end is a record error; bytes behind it and before it do no harm."""
    whole = decode_record(data)
    assert decode_record(b"xyz" + data + b"xyz", 3) == whole
    assert decode_record(memoryview(data)).body == whole.body
    for end in range(len(data)):
        with pytest.raises(RecordError):
            decode_record(data[:end])
        with pytest.raises(RecordError):
            decode_record(memoryview(b"x" + data[:end]), 1)


@pytest.mark.parametrize(
    ("position", "bytes_"),
    [
        (0, b"\x00\x00\x00\x8e"),  # one byte short
        (0, b"\x00\x00\x00\x90"),  # one byte long
        (0, b"\xff\xff\xff\xff"),
        (0, b"\x00\x00\x00\x00"),
        (4, b"\xcb\xd4\x31\x94"),  # a blank
        (4, b"\x00\x00\x00\x00"),
        (4, b"\xda\xa3\x20\xab"),  # v2 with a v1 topic
        (36, b"\x00\x00\x00\x10"),  # claims an IPv6 host
        (84, b"\xff\xff\xff\xff"),
        (84, b"\x7f\xff\xff\xff"),
        (93, b"\xff"),  # topic length
        (93, b"\x03"),
        (96, b"\xff\xff"),  # properties length
        (96, b"\x00\x2c"),
    ],
)
def test_record_with_a_wrong_length_is_refused(position: int, bytes_: bytes) -> None:
    """Sizes, magic and flags that do not fit each other are a record error."""
    data = bytearray(FIRST_RECORD + bytes(40))
    data[position : position + len(bytes_)] = bytes_
    with pytest.raises(RecordError):
        decode_record(data)


@given(st.binary(max_size=300), st.integers(0, 40))
def test_decode_of_arbitrary_bytes(data: bytes, position: int) -> None:
    """Arbitrary bytes are a record or a record error."""
    for buffer in (
        data,
        memoryview(data),
        RECORD_HEAD.pack(len(data) + 88, MAGIC_V1, *[0] * 7, b"", 0, b"", 0, 0, 1) + data,
    ):
        with contextlib.suppress(RecordError):
            decode_record(buffer, position if buffer is data else 0)


@given(st.sampled_from(RECORDS), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=4))
def test_decode_of_mutated_records(case: dict[str, Any], changes: list[tuple[int, int]]) -> None:
    """A valid record with changed bytes is a record or a record error, and its message at most a decode error."""
    data = bytearray.fromhex(case["hex"])
    for position, value in changes:
        data[position % len(data)] = value
    with contextlib.suppress(DecodeError):
        decode_message(decode_record(data), "b")


@given(NEW_RECORDS, HOSTS, LONGS, LONGS)
def test_record_round_trip(new: NewRecord, store_host: bytes, log_offset: int, stored_at_ms: int) -> None:
    """What is written reads back, with the host flags that the hosts demand and the smallest version."""
    data = encode_record(new, queue_offset=1, log_offset=log_offset, stored_at_ms=stored_at_ms, store_host=store_host)
    record = decode_record(data)
    assert record.magic == (MAGIC_V1 if len(new.topic.encode()) <= 127 else MAGIC_V2)
    assert record.sys_flag & ~0x30 == new.sys_flag & ~0x30
    assert record.sys_flag >> 4 & 3 == (len(new.born_host) == 20) + 2 * (len(store_host) == 20)
    assert (record.log_offset, record.stored_at_ms, record.store_host) == (log_offset, stored_at_ms, store_host)
    assert record.total_size == len(data)
    new.sys_flag, new.parsed = record.sys_flag, record.properties
    assert _new_again(record) == new


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"property_text": bytes(32_768)}, "properties are 32768 bytes, limit is 32767"),
        ({"topic": "x" * 32_768}, "topic is 32768 bytes"),
        ({"born_host": b"\x00" * 9}, "hosts are 9 and 8 bytes"),
        ({"queue_id": 2**31}, "does not fit"),
        ({"flag": "7"}, "does not fit"),
        ({"born_at_ms": 2**63}, "does not fit"),
    ],
)
def test_record_that_does_not_fit_is_refused(
    make_record: Callable[..., NewRecord], changes: dict[str, Any], reason: str
) -> None:
    """A part that is too long or out of range is a value error of whoever stores it."""
    with pytest.raises(ValueError, match=reason):
        encode_record(
            make_record(**changes), queue_offset=0, log_offset=0, stored_at_ms=0, store_host=encode_host("10.0.0.2", 1)
        )


@pytest.mark.parametrize("text", [b"", b"a\x01b\x02", b"a\x01b", b"__CRC32#\x010000000001\x02a\x01b\x02"])
def test_property_crc_is_reserved_and_sealed(make_record: Callable[..., NewRecord], text: bytes) -> None:
    """A sealed record ends in one checksum, ours; any changed byte breaks it."""
    new = make_record(property_text=reserve_property_crc(text))
    place = {"queue_offset": 1, "log_offset": 2, "stored_at_ms": 3}
    data = seal_property_crc(encode_record(new, **place, store_host=encode_host("::1", 10911)))
    assert has_sealed_crc(memoryview(data))
    assert data.count(b"__CRC32#") == 1
    kept = {name: value for name, value in decode_record(data).properties.items() if name != CRC32}
    assert kept == {name: value for name, value in parse_properties(text).items() if name != CRC32}
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        assert not has_sealed_crc(changed)


def test_records_of_a_pull_answer_are_iterated(make_record: Callable[..., NewRecord]) -> None:
    """Records stand one behind the other; a damaged rest raises after those before it."""
    records = [bytes.fromhex(case["hex"]) for case in RECORDS]
    assert [record.total_size for record in iter_records(b"".join(records))] == [len(data) for data in records]
    found = iter_records(memoryview(records[0] + records[1][:-1]))
    assert next(found).total_size == len(records[0])
    with pytest.raises(RecordError):
        next(found)
    assert list(iter_records(b"")) == []


def test_message_of_a_record(make_record: Callable[..., NewRecord]) -> None:
    """A consumer's message has tags, keys and ids of the properties, and addresses as text."""
    properties = {"TAGS": "标签", "KEYS": "k1  k2", "UNIQ_KEY": "U1"}
    new = make_record(property_text=encode_properties(properties), body="😀".encode())
    data = encode_record(
        new, queue_offset=5, log_offset=1024, stored_at_ms=9, store_host=encode_host("10.0.0.2", 10911)
    )
    message = decode_message(decode_record(data), "broker-a")
    assert (message.tags, message.keys, message.body) == ("标签", ("k1", "k2"), "😀".encode())
    assert message.message_id == "U1"
    assert message.offset_message_id == "0A00000200002A9F0000000000000400"
    assert message.queue == MessageQueue("TopicA", "broker-a", 3)
    assert (message.born_host, message.store_host) == (("10.0.0.1", 50000), ("10.0.0.2", 10911))
    assert message.store_size == len(data)


def test_message_without_unique_key(make_record: Callable[..., NewRecord]) -> None:
    """Without a unique key the message is known by its offset id, and it may have neither tags nor keys."""
    new = make_record(property_text=b"")
    data = encode_record(new, queue_offset=0, log_offset=0, stored_at_ms=0, store_host=encode_host("::1", 1))
    message = decode_message(decode_record(data), "b")
    assert message.message_id == message.offset_message_id
    assert len(message.message_id) == 56
    assert (message.tags, message.keys) == (None, ())


@pytest.mark.parametrize("case", BATCH_RECORDS, ids=lambda case: case["bodyHex"])
def test_batch_record_is_that_of_java(case: dict[str, Any]) -> None:
    """Each recorded message of a batch is read and written as Java does."""
    data = bytes.fromhex(case["hex"])
    (part,) = decode_batch(data)
    assert (part.flag, part.body.hex()) == (case["flag"], case["bodyHex"])
    assert {f"{k}\x01{v}" for k, v in case["properties"].items()} == set(part.property_text.decode().split("\x02")[:-1])
    assert encode_batch([part]) == data


def test_batch_of_java() -> None:
    """A recorded batch comes apart into its messages and together again; cut anywhere else it is refused."""
    data = bytes.fromhex(BATCH["hex"])
    parts = decode_batch(memoryview(data))
    assert len(parts) == BATCH["count"]
    assert encode_batch(parts) == data
    ends = {len(encode_batch(parts[:count])) for count in range(len(parts) + 1)}
    for end in set(range(len(data))) - ends:
        with pytest.raises(RecordError):
            decode_batch(data[:end])


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda data: bytes(16) + data))
def test_batch_of_arbitrary_bytes(data: bytes) -> None:
    """Arbitrary bytes are a batch or a record error."""
    with contextlib.suppress(RecordError):
        decode_batch(data)


@given(st.lists(st.builds(BatchPart, INTS, st.binary(), st.binary())))
def test_batch_round_trip(parts: list[BatchPart]) -> None:
    """What is written reads back."""
    assert decode_batch(encode_batch(parts)) == parts


@pytest.mark.parametrize("part", [BatchPart(2**31, b"", b""), BatchPart(0, b"", bytes(32_768))], ids=["flag", "text"])
def test_batch_that_does_not_fit_is_refused(part: BatchPart) -> None:
    """A flag out of range and properties above the limit are a value error."""
    with pytest.raises(ValueError, match=r"fit|limit"):
        encode_batch([part])


def _messages(store: str) -> Iterator[tuple[Record, dict[str, Any]]]:
    with tarfile.open(VECTORS / f"store/{store}.tar.gz") as archive:
        segments = {
            int(pathlib.Path(member.name).name): file.read()
            for member in archive.getmembers()
            if "/commitlog/" in member.name and (file := archive.extractfile(member))
        }
    truth = json.loads((VECTORS / f"store/{store}.json").read_text("utf-8"))
    for message in (m for topic in truth["topics"] for queue in topic["queues"] for m in queue["messages"]):
        base = message["physicOffset"] - message["physicOffset"] % 65536
        yield decode_record(segments[base], message["physicOffset"] - base), message


def _format_host(host: bytes) -> str:
    return f"{host[:-4].hex()}:{int.from_bytes(host[-4:], 'big')}"


def _matches(body: bytes, expected: dict[str, Any]) -> bool:
    if "base64" in expected:
        return body == base64.b64decode(expected["base64"])
    return len(body) == expected["length"] and hashlib.sha256(body).hexdigest() == expected["sha256"]


@pytest.mark.parametrize("store", STORES)
def test_records_of_java_stores_are_read_and_written(store: str) -> None:
    """Every message that a Java broker served is read from its log as it was served, and written the same again."""
    count = 0
    for record, message in _messages(store):
        received = decode_message(record, "golden-a")
        assert record.total_size == message["storeSize"]
        assert received.properties == message["properties"]
        assert _matches(bytes(record.body), message["body"])
        assert _matches(inflate(record.body, record.sys_flag), message.get("decompressedBody", message["body"]))
        assert (received.message_id, received.offset_message_id) == (message["msgId"], message["offsetMsgId"])
        assert (_format_host(record.born_host), _format_host(record.store_host)) == (
            message["bornHost"],
            message["storeHost"],
        )
        assert {name: getattr(record, ours) for name, ours in NUMBERS.items()}.items() <= message.items()
        assert record.is_body_intact
        data = _encode_again(record)
        assert decode_record(data) == record
        assert has_sealed_crc(data) == (store == "batchcrc")
        count += 1
    assert count > 10


STORE_HOSTS = [encode_host("10.0.0.2", 10911), encode_host("fd00::2", 10911)]


BORN_HOSTS = [encode_host("10.0.0.1", 1), encode_host("fd00::1", 1)]


BASE = 65536


def _encode(new: NewRecord, position: int = 0, store_host: bytes = STORE_HOSTS[0]) -> bytes:
    return encode_record(new, queue_offset=0, log_offset=BASE + position, stored_at_ms=1, store_host=store_host)


@pytest.mark.parametrize("store_host", STORE_HOSTS, ids=len)
@pytest.mark.parametrize("born_host", BORN_HOSTS, ids=len)
@pytest.mark.parametrize("topic", ["T", "x" * 127, "x" * 128, "主题" * 40])
def test_record_that_is_whole(
    make_record: Callable[..., NewRecord], topic: str, born_host: bytes, store_host: bytes
) -> None:
    """Records of both versions and address families are accepted with their size, in bytes and in slices."""
    data = _encode(make_record(topic=topic, born_host=born_host), 100, store_host)
    segment = bytes(100) + data + bytes(500)
    assert check_record(segment, 100, BASE + 100) == len(data)
    assert check_record(memoryview(segment), 100, BASE + 100) == len(data)


def test_record_without_body_and_properties(make_record: Callable[..., NewRecord]) -> None:
    """An empty body has no checksum to check, and properties may be empty."""
    data = bytearray(_encode(make_record(body=b"", property_text=b"")))
    data[8:12] = b"\x00\x00\x00\x07"
    assert check_record(data + bytes(8), 0, BASE) == len(data)


def test_record_must_leave_room_for_a_blank(make_record: Callable[..., NewRecord]) -> None:
    """A record may end exactly a blank's head before the end of its file, and no later."""
    data = _encode(make_record())
    assert check_record(data + bytes(BLANK_BYTES), 0, BASE) == len(data)
    assert check_record(data + bytes(BLANK_BYTES - 1), 0, BASE) == Verdict.ROOM
    assert check_record(data, 0, BASE, reserved_bytes=0) == len(data)


@pytest.mark.parametrize("room", [8, 40, 91, 500])
def test_blank_and_zeros(room: int) -> None:
    """A blank ends a file with any room, zeros are what was never written; neither is damage."""
    blank = room.to_bytes(4, "big") + b"\xcb\xd4\x31\x94" + bytes(room - 8)
    assert check_record(blank, 0, BASE) is Verdict.BLANK
    assert check_record(bytes(room), 0, BASE) is Verdict.ZEROS
    assert not Verdict.BLANK.is_damage
    assert not Verdict.ZEROS.is_damage


@pytest.mark.parametrize(
    ("position", "bytes_", "verdict"),
    [
        (0, b"\x00\x00\x00\x00", Verdict.LENGTHS),
        (0, b"\xff\xff\xff\xff", Verdict.LENGTHS),
        (0, b"\x00\x00\xff\xff", Verdict.TORN),
        (4, b"\x00\x00\x00\x00", Verdict.MAGIC),
        (4, b"\xda\xa3\x20\xab", Verdict.LENGTHS),
        (4, b"\xcb\xd4\x31\x94", Verdict.BLANK),
        (8, b"\x00\x00\x00\x00", Verdict.BODY_CRC),
        (20, b"\x80\x00\x00\x00\x00\x00\x00\x01", Verdict.QUEUE_OFFSET),
        (28, b"\x00\x00\x00\x00\x00\x00\x00\x01", Verdict.PLACE),
        (36, b"\x00\x00\x00\x10", Verdict.LENGTHS),
        (84, b"\xff\xff\xff\xff", Verdict.LENGTHS),
        (84, b"\x7f\xff\xff\xff", Verdict.LENGTHS),
        (84, b"\x00\x00\x00\x03", Verdict.LENGTHS),
        (88, b"HI", Verdict.BODY_CRC),
        (90, b"\xff", Verdict.LENGTHS),
        (90, b"\x07", Verdict.LENGTHS),
        (97, b"\xff\xff", Verdict.LENGTHS),
        (97, b"\x00\x09", Verdict.LENGTHS),
    ],
)
def test_damage_has_a_reason(
    make_record: Callable[..., NewRecord], position: int, bytes_: bytes, verdict: Verdict
) -> None:
    """Each field that contradicts the others, or the place, gives its own verdict."""
    data = bytearray(_encode(make_record()) + bytes(100))
    data[position : position + len(bytes_)] = bytes_
    found = check_record(data, 0, BASE)
    assert found is verdict
    assert verdict.reason
    assert verdict.is_damage or verdict is Verdict.BLANK


def test_body_checksum_may_be_left_out(make_record: Callable[..., NewRecord]) -> None:
    """With the check of bodies off a changed body passes."""
    data = _encode(make_record()).replace(b"hi", b"ho") + bytes(8)
    assert check_record(data, 0, BASE) is Verdict.BODY_CRC
    assert check_record(data, 0, BASE, checks_crc=False) == len(data) - 8


def test_record_cut_at_every_length(make_record: Callable[..., NewRecord]) -> None:
    """A cut record is never accepted, but for one whose properties alone became zeros, which no checksum covers."""
    data = _encode(make_record(topic="x" * 130))
    for end in range(len(data)):
        assert check_record(data[:end], 0, BASE) is Verdict.TORN
    for end in range(data.index(b"TAGS") - 1):
        assert check_record(data[:end] + bytes(len(data) - end + 8), 0, BASE) < 0


@given(st.binary(max_size=200), st.integers(0, 220))
def test_check_of_arbitrary_bytes(data: bytes, position: int) -> None:
    """Arbitrary bytes, and positions behind the end, give a size or a verdict."""
    assert isinstance(check_record(data, position, 0), int)


@given(data=st.data())
def test_what_passes_the_check_is_decoded(make_record: Callable[..., NewRecord], data: st.DataObject) -> None:
    """A mutated record that passes is decoded with the same size; one that the decoder refuses does not pass."""
    topic = data.draw(st.sampled_from(["T", "x" * 130]))
    segment = bytearray(
        _encode(make_record(topic=topic), store_host=data.draw(st.sampled_from(STORE_HOSTS))) + bytes(40)
    )
    for _ in range(data.draw(st.integers(1, 3))):
        segment[data.draw(st.integers(0, len(segment) - 1))] = data.draw(st.integers(0, 255))
    size = check_record(segment, 0, BASE, checks_crc=False)
    try:
        record = decode_record(segment)
    except RecordError:
        assert size <= 0
    else:
        assert size in (record.total_size, Verdict.PLACE, Verdict.ROOM, Verdict.QUEUE_OFFSET)


@pytest.mark.parametrize("store", ["plain", "killed", "delay-retry", "batchcrc"])
def test_logs_of_java_stores_are_walked(store: str) -> None:
    """Every segment of a Java broker ends in a blank or in zeros, and on the way all served messages are met."""
    truth = json.loads((VECTORS / f"store/{store}.json").read_text("utf-8"))
    served = {m["physicOffset"] for topic in truth["topics"] for queue in topic["queues"] for m in queue["messages"]}
    met: set[int] = set()
    with tarfile.open(VECTORS / f"store/{store}.tar.gz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if "/commitlog/" in member.name else None
            if file:
                base = int(pathlib.Path(member.name).name)
                met |= _walk(memoryview(file.read()), base)
    assert served <= met


def _walk(segment: memoryview, base: int) -> set[int]:
    position, met = 0, set[int]()
    while (size := check_record(segment, position, base + position)) > 0:
        met.add(base + position)
        position += size
    assert size in (Verdict.BLANK, Verdict.ZEROS)
    return met


def test_verdicts_are_never_sizes() -> None:
    """Every verdict is zero or negative and has words."""
    words: dict[Verdict, Any] = {verdict: verdict.reason for verdict in Verdict}
    assert max(words) == 0
    assert len(set(words.values())) == len(words)


SMALL_PARTS = st.builds(BatchPart, INTS, st.binary(max_size=40), st.binary(max_size=40))


@given(NEW_RECORDS, st.lists(SMALL_PARTS, min_size=1, max_size=5), HOSTS, st.integers(0, 1 << 40))
def test_records_of_a_batch_are_those_of_single_messages(
    head: NewRecord, parts: list[BatchPart], store_host: bytes, offset: int
) -> None:
    """Each is the record of a message that has all else of the head, behind the one before in queue and log."""
    data, sizes = encode_records(head, split_batch(encode_batch(parts)), (offset, 2 * offset), 7, store_host)
    expected: list[bytes] = []
    for part in parts:
        new = structs.replace(head, flag=part.flag, body=part.body, property_text=part.property_text)
        place = offset + len(expected), 2 * offset + sum(map(len, expected))
        expected.append(encode_record(new, *place, 7, store_host))
    assert (data, sizes) == (b"".join(expected), list(map(len, expected)))


def test_records_of_a_batch_must_fit_their_fields(make_record: Callable[..., NewRecord]) -> None:
    """As a single one."""
    with pytest.raises(ValueError, match="properties are 32768 bytes, limit is 32767"):
        encode_records(make_record(), [(0, b"", b""), (0, b"", bytes(32_768))], (0, 0), 7, bytes(8))


def test_batch_has_no_more_messages_than_allowed() -> None:
    """One more is refused, and named."""
    data = encode_batch([BatchPart(0, b"x", b"")] * 3)
    assert len(split_batch(data, 3)) == 3
    with pytest.raises(RecordError, match=f"^batch of {len(data)} bytes holds more than 2 messages$"):
        split_batch(data, 2)
