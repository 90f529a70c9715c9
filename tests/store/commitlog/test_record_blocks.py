"""Blocks of records that are checked at once: the same as checking them one by one."""

import pathlib
import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logbuilder import LogBuilder

from rocketlet.common.ids import encode_host
from rocketlet.common.record import MAGIC_V2, Verdict, check_record
from rocketlet.store.commitlog.record_blocks import BlockScan, ScanLimits, SegmentBytes

V6 = encode_host("fd00::1", 10911)


def scan(path: pathlib.Path, limits: ScanLimits | None = None) -> tuple[BlockScan, list[int]]:
    """Scan a file to its end and return the scan and the positions of its records."""
    segment = SegmentBytes(str(path), int(path.name), memoryview(path.read_bytes()))
    done = BlockScan(segment, 0, segment.size, limits or ScanLimits())
    return done, [position for block in done for position in block.positions.tolist()]


def walk(data: bytes, base_offset: int) -> tuple[list[int], int, int]:
    """Return the positions of records, the end and the verdict there, as the store finds them."""
    positions: list[int] = []
    position = 0
    while (found := check_record(data, position, base_offset + position, reserved_bytes=0)) > 0:
        positions.append(position)
        position += found
    return positions, position, found


def test_scan_reads_every_kind_of_record(log: LogBuilder) -> None:
    """IPv4 and IPv6 hosts in all four mixtures and long topics pass, in one block, up to the zeros."""
    hosts = [b"\x7f\x00\x00\x01\x00\x00\x2a\x9f", V6]
    for born_host in hosts:
        for store_host in hosts:
            log.add(born_host=born_host, store_host=store_host)
    log.add(topic="%RETRY%" + "g" * 140)
    log.save()
    done, positions = scan(log.files()[0])
    assert positions == log.offsets
    assert (done.position, done.verdict) == (log.end, Verdict.ZEROS)


@pytest.mark.parametrize(("field", "value"), [(5, b"\0"), (20, b"\xff" * 8), (28, b"\0" * 8), (35, b"\0")])
def test_scan_ends_at_a_record_that_names_what_is_not_so(tmp_path: pathlib.Path, field: int, value: bytes) -> None:
    """Also where there is neither a topic nor a property whose length could be wrong."""
    log = LogBuilder(tmp_path, 4096, first_file=1)
    for _ in range(3):
        log.add(b"", topic="")
    path = log.save() / "commitlog" / f"{4096:020d}"
    second = log.offsets[1] - 4096
    data = path.read_bytes()
    path.write_bytes(data[: second + field] + value + data[second + field + len(value) :])
    done, positions = scan(path)
    assert (positions, done.position) == ([0], second)


def test_scan_of_a_full_file_ends_at_its_blank(log: LogBuilder) -> None:
    """The blank is met; its position is where the records end."""
    log.add()
    log.roll()
    log.save()
    done, positions = scan(log.files()[0])
    assert (len(positions), done.verdict) == (1, Verdict.BLANK)


@pytest.mark.parametrize(
    ("at", "data", "verdict"),
    [
        (0, struct.pack(">i", 90), Verdict.LENGTHS),
        (0, struct.pack(">i", 0x7FFFFFFF), Verdict.TORN),
        (4, b"\x00\x00\x00\x01", Verdict.MAGIC),
        (4, MAGIC_V2.to_bytes(4, "big"), Verdict.LENGTHS),
        (8, b"\x00\x00\x00\x01", Verdict.BODY_CRC),
        (28, struct.pack(">q", 7), Verdict.PLACE),
        (36, b"\x00\x00\x00\x30", Verdict.LENGTHS),
        (84, struct.pack(">i", -1), Verdict.LENGTHS),
        (88, b"\xff", Verdict.BODY_CRC),
        (92, b"\xff", Verdict.LENGTHS),
        (98, b"\x80\x00", Verdict.LENGTHS),
    ],
)
def test_scan_stops_at_a_bad_record(log: LogBuilder, at: int, data: bytes, verdict: Verdict) -> None:
    """Each field that is wrong in the middle record ends the scan there, for the reason ``check_record`` names."""
    for _ in range(3):
        log.add(properties={"a": "b"})
    log.save()
    path, bad = log.files()[0], log.offsets[1]
    content = bytearray(path.read_bytes())
    content[bad + at : bad + at + len(data)] = data
    path.write_bytes(content)
    done, positions = scan(path)
    assert positions == log.offsets[:1]
    assert (done.position, done.verdict) == (bad, verdict)


def test_scan_without_checksums_passes_a_changed_body(log: LogBuilder) -> None:
    """The checksum is the only check that the option leaves out."""
    log.add(b"body")
    log.save()
    path = log.files()[0]
    path.write_bytes(path.read_bytes().replace(b"body", b"bodY"))
    assert scan(path)[1] == []
    assert scan(path, ScanLimits(checks_crc=False))[1] == [0]


@pytest.mark.parametrize("size", [1, 7, 8, 50, 90, 91, 100])
def test_scan_of_a_short_file_finds_nothing(tmp_path: pathlib.Path, size: int) -> None:
    """Files smaller than a record are no trouble, whatever is in them."""
    for content in (bytes(size), random.Random(size).randbytes(size), b"\x00\x00\x00\x5b\xda\xa3\x20\xa7".ljust(size)):
        path = tmp_path / f"{0:020d}"
        path.write_bytes(content[:size])
        assert scan(path)[1] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), flips=st.integers(1, 3), limits=st.sampled_from([1, 3, 100]))
def test_scan_agrees_with_the_walk_of_the_store(tmp_path: pathlib.Path, seed: int, flips: int, limits: int) -> None:
    """Whatever bytes are changed, the scan finds the records that ``check_record`` finds one by one, and no more."""
    choose = random.Random(seed)
    log = LogBuilder(tmp_path / str(seed), 2048)
    for _ in range(8):
        host = choose.choice([encode_host("192.0.2.9", 1), V6])
        log.add(choose.randbytes(choose.randrange(9)), born_host=host, topic="t" * choose.choice([1, 127, 128]))
    log.save()
    path = log.files()[0]
    content = bytearray(path.read_bytes())
    for _ in range(flips):
        content[choose.randrange(log.end)] = choose.randrange(256)
    path.write_bytes(content)
    done, positions = scan(path, ScanLimits(block_records=limits))
    expected, end, verdict = walk(bytes(content), 0)
    assert (positions, done.position) == (expected, end)
    assert done.verdict == verdict
