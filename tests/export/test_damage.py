"""A reading that notes damage gives the valid prefix of each store, whatever is damaged, and says where it ends."""

import pathlib
import random

import pytest
from javastores import Row
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.export.plan.log_end import LogStop
from rocketlet.export.plan.read_plan import plan_prefixes
from rocketlet.export.report.report import StoreCounters
from rocketlet.export.write.log_reader import LogReader
from rocketlet.store.files.checkpoint import Checkpoint, save_checkpoint
from rocketlet.store.files.files import OS_FILES


def read_prefix(root: pathlib.Path) -> tuple[list[Row], StoreCounters]:
    """Read what there is before damage."""
    plan = plan_prefixes([str(root)])
    reading = LogReader(plan.splits, damages=plan.damages, ends=plan.ends)
    rows = [row for batch in reading for row in batch.to_pylist()]
    return rows, reading.report.of_store(str(root))


def file_of(log: LogBuilder, offset: int) -> pathlib.Path:
    """Return the file that holds a log offset."""
    return log.root / "commitlog" / f"{offset // log.segment_bytes * log.segment_bytes:020d}"


@pytest.mark.parametrize("seed", range(60))
def test_changed_byte_ends_the_prefix(seed: int, filled: LogBuilder) -> None:
    """One changed byte of a record that readers check ends the rows right before that record, and is named."""
    choose = random.Random(seed)
    number = choose.randrange(len(filled.offsets) - 1)
    offset = filled.offsets[number]
    path, position = file_of(filled, offset), offset % filled.segment_bytes
    at = position + choose.choice([*range(4, 8), *range(8, 12), *range(28, 36), 88])
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << choose.randrange(7)
    path.write_bytes(content)
    rows, counters = read_prefix(filled.root)
    assert [row["logOffset"] for row in rows] == filled.offsets[:number]
    assert counters.damage is not None
    assert (counters.damage.path, counters.damage.position) == (str(path), position)
    assert any("stopped before the end of the log" in fault for fault in counters.faults())


def test_missing_file_ends_the_prefix(filled: LogBuilder) -> None:
    """The files before a missing one are read, and the file behind the gap is named."""
    files = filled.files()
    files[1].unlink()
    rows, counters = read_prefix(filled.root)
    assert [row["logOffset"] for row in rows] == [at for at in filled.offsets if at < int(files[1].name)]
    assert counters.damage is not None
    assert counters.damage.path == str(files[2])
    assert "a file between them is missing" in str(counters.damage)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_missing_file_of_a_killed_store(filled: LogBuilder, *, is_flushed: bool) -> None:
    """Files behind a missing one that were not flushed for certain are what a power loss left: the log ends before."""
    files = filled.files()
    files[1].unlink()
    (filled.root / "abort").touch()
    flushed_at_ms = FIRST_MS + (80 if is_flushed else 5)
    save_checkpoint(OS_FILES, str(filled.root / "checkpoint"), Checkpoint(log_at_ms=flushed_at_ms))
    rows, counters = read_prefix(filled.root)
    assert [row["logOffset"] for row in rows] == [at for at in filled.offsets if at < int(files[1].name)]
    assert (counters.damage is not None) == is_flushed
    unproved = "abort is there: a broker has the store open, or was killed"
    assert counters.end == (None if is_flushed else LogStop(str(files[0]), 4096, "the file is full", unproved))


def test_torn_tail_is_no_damage(filled: LogBuilder) -> None:
    """A record that was not written whole at the end of the log leaves nothing to note."""
    path = filled.files()[-1]
    cut = filled.offsets[-1] % filled.segment_bytes + 40
    path.write_bytes(path.read_bytes()[:cut].ljust(filled.segment_bytes, b"\0"))
    rows, counters = read_prefix(filled.root)
    assert [row["logOffset"] for row in rows] == filled.offsets[:-1]
    assert counters.damage is None
    assert counters.faults() == []


def test_store_that_begins_with_damage_has_no_rows(filled: LogBuilder) -> None:
    """A log whose first record is damaged has an empty prefix."""
    path = filled.files()[0]
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    rows, counters = read_prefix(filled.root)
    assert rows == []
    assert counters.damage is not None
    assert counters.damage.position == 0
