import json
import pathlib
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import RecordError
from rocketlet.common.ids import encode_host
from rocketlet.common.record import NewRecord, decode_record, encode_record
from rocketlet.common.walk import BLANK_BYTES, Verdict, check_record

VECTORS = pathlib.Path(__file__).parents[1] / "vectors"
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
