"""A reading that skips damage goes on at the next sound record, and counts what it went past."""

import pathlib
import random

import pytest
from javastores import Row
from logbuilder import LogBuilder

from rocketlet.common.errors import StoreDamagedError
from rocketlet.export.plan.read_plan import PlanOptions, plan_prefixes, plan_stores
from rocketlet.export.plan.selection import Selection
from rocketlet.export.report.report import Report
from rocketlet.export.write.log_reader import LogReader, ReadOptions

OPTIONS = ReadOptions(Selection(includes_system=True), skips_damage=True)


def read_skipping(root: pathlib.Path, split_bytes: int) -> tuple[list[Row], Report]:
    """Read what there is before, between and behind damage."""
    plan = plan_prefixes([str(root)], PlanOptions(split_bytes=split_bytes, skips_damage=True))
    assert not plan.damages
    reading = LogReader(plan.splits, OPTIONS, ends=plan.ends)
    rows = [row for batch in reading for row in batch.to_pylist()]
    return rows, reading.report


def spoil(log: LogBuilder, offset: int, change: bytes, at: int) -> tuple[pathlib.Path, int]:
    """Overwrite bytes of the record at a log offset; return its file and position."""
    path, position = log.files()[offset // log.segment_bytes], offset % log.segment_bytes
    content = bytearray(path.read_bytes())
    content[position + at : position + at + len(change)] = change
    path.write_bytes(content)
    return path, position


@pytest.mark.parametrize("split_bytes", [200, 4_096])
@pytest.mark.parametrize(
    ("change", "at", "reason"),
    [
        (b"?", 89, "the body does not have its checksum"),
        (b"????", 4, "the magic is unknown"),
        (bytes(60), 0, "nothing was written"),
        (b"\x7f\xff\xff\xff", 0, "the record is longer than what is left of the file"),
        (b"\x00\x00\x01\x00", 0, "the lengths of the parts do not add up to the size of the record"),
        (b"\x00\x00\x00\x09", 28, "the record names another position in the log"),
    ],
)
@pytest.mark.parametrize("number", [0, 88])
def test_one_bad_record_is_skipped(
    filled: LogBuilder, number: int, change: bytes, at: int, reason: str, split_bytes: int
) -> None:
    """All other records are rows; file, position, bytes and reason of what is not are in the report."""
    path, position = spoil(filled, filled.offsets[number], change, at)
    rows, report = read_skipping(filled.root, split_bytes)
    assert [row["logOffset"] for row in rows] == filled.offsets[:number] + filled.offsets[number + 1 :]
    (counters,) = report.stores
    (skipped,) = counters.skipped
    ends = filled.offsets[number + 1] - filled.offsets[number]
    assert skipped == (str(path), position, ends, reason)
    assert counters.crc_failures == ("checksum" in reason)


@pytest.mark.parametrize("seed", range(12))
def test_any_damage_leaves_the_records_that_it_did_not_touch(filled: LogBuilder, seed: int) -> None:
    """Noise, zeros or a lost page anywhere: each record outside of it is a row, and splits of any size agree."""
    draw = random.Random(seed)
    at, size = draw.randrange(filled.end - 300), draw.randrange(1, 300)
    path, position = filled.files()[at // 4096], at % 4096
    content = bytearray(path.read_bytes())
    size = min(size, 4096 - position)
    content[position : position + size] = draw.choice([bytes(size), draw.randbytes(size), b"\xff" * size])
    path.write_bytes(content)
    ends = [*filled.offsets[1:], filled.end]
    touched = {start for start, end in zip(filled.offsets, ends, strict=True) if start < at + size and end > at}
    rows, report = read_skipping(filled.root, draw.choice([150, 700, 4_096]))
    found = [row["logOffset"] for row in rows]
    assert found == sorted(set(found))
    assert set(filled.offsets) - touched <= set(found)
    assert not [fault for fault in report.faults() if "begins at" in fault]


def test_lost_end_of_a_file_is_skipped(filled: LogBuilder) -> None:
    """Where no record and no blank follows in a file, the rest of it is what is lost."""
    path = filled.files()[1]
    base, end = int(path.name), int(filled.files()[2].name)
    inside = [offset for offset in filled.offsets if base <= offset < end]
    path.write_bytes(path.read_bytes()[: inside[-3] - base].ljust(4096, b"\x01"))
    rows, report = read_skipping(filled.root, 1_000)
    assert [row["logOffset"] for row in rows] == [at for at in filled.offsets if at not in inside[-3:]]
    assert sum(skipped.size_bytes for skipped in report.stores[0].skipped) == end - inside[-3]


@pytest.mark.parametrize("number", [0, 1])
def test_file_that_was_cut_short_is_skipped_and_told(filled: LogBuilder, number: int) -> None:
    """What it still holds is read, and all that is behind it; without skipping, file, size and position are named."""
    path = filled.files()[number]
    path.write_bytes(path.read_bytes()[:1500])
    rows, report = read_skipping(filled.root, 1 << 20)
    first = int(path.name)
    lost = [at for at in filled.offsets if at not in {row["logOffset"] for row in rows}]
    assert lost
    assert all(first + 1500 - 200 < at < first + 4096 for at in lost)
    assert any("missing queue offsets" in fault for fault in report.faults())
    plan = plan_prefixes([str(filled.root)], PlanOptions(skips_damage=True))
    assert plan.missing == [(str(filled.root), str(path), 1500, 2596, "the file has 1500 bytes")]
    with pytest.raises(StoreDamagedError, match="has 1500 bytes instead of 4096: it was cut short") as raised:
        plan_stores([str(filled.root)])
    assert (raised.value.path, raised.value.position) == (str(path), 1500)


def test_missing_file_is_skipped_and_told(filled: LogBuilder) -> None:
    """The files behind a missing one are read, and the plan tells which bytes are in no file."""
    files = filled.files()
    files[1].unlink()
    plan = plan_prefixes([str(filled.root)], PlanOptions(skips_damage=True))
    assert plan.missing == [(str(filled.root), str(files[2]), 0, 4096, "the file before it is missing")]
    rows, _ = read_skipping(filled.root, 4_096)
    assert [row["logOffset"] for row in rows] == [at for at in filled.offsets if not 4096 <= at < 8192]


def test_sound_store_is_the_same_when_damage_is_skipped(filled: LogBuilder) -> None:
    """Without damage nothing is skipped, and the log ends where it does."""
    rows, report = read_skipping(filled.root, 1_000)
    assert [row["logOffset"] for row in rows] == filled.offsets
    assert not report.faults()
    assert report.stores[0].skipped == []
