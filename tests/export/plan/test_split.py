"""However a log is cut into splits, each record is in exactly one of them, and neighbours fit together."""

import pathlib
import tempfile
from bisect import bisect_left
from dataclasses import replace
from typing import NamedTuple

import pytest
from fakes import TAIL_BYTES, add_with_fakes
from hypothesis import given, settings
from hypothesis import strategies as st
from javastores import JavaStores, Row
from logbuilder import LogBuilder
from stores import StoreDirectory, new_record

from examples import examples
from rocketlet.common.errors import StoreDamagedError
from rocketlet.common.record import BLANK_BYTES
from rocketlet.export.plan import record_walk as queueanchor
from rocketlet.export.plan.log_file import map_log_file
from rocketlet.export.plan.read_plan import PlanOptions, plan_prefixes, plan_stores
from rocketlet.export.plan.record_walk import find_first_record
from rocketlet.export.plan.selection import Selection
from rocketlet.export.plan.split import Split
from rocketlet.export.write.log_reader import LogReader, ReadOptions

OPTIONS = ReadOptions(Selection(includes_system=True))


class Part(NamedTuple):
    """A record of a log: a plain one, or one with fakes in its body."""

    gap: int
    fakes: int
    size: int
    reach: int


PLAIN_BYTES = 136
"""The size of a record with a body of 40 bytes."""
REACHES = [0, 150, TAIL_BYTES, *(TAIL_BYTES + count * PLAIN_BYTES for count in (1, 2, 5))]
GAPS = st.just(40) | st.integers(0, 300)
PARTS = st.lists(
    st.builds(Part, GAPS, st.sampled_from([0, 0, 1, 3]), st.integers(0, 200), st.sampled_from(REACHES)), max_size=40
)


def build(folder: str, parts: list[Part], segment_bytes: int = 4096) -> LogBuilder:
    """Write a log of plain records and of ones that hold copies."""
    log = LogBuilder(pathlib.Path(folder) / "store", segment_bytes)
    for part in parts:
        if part.fakes:
            add_with_fakes(log, part.gap, part.fakes, part.size, part.reach)
        else:
            log.add(bytes(part.gap))
    log.save()
    return log


def read_all(store: pathlib.Path, split_bytes: int) -> list[Row]:
    """Read a store in splits, and have the report say that nothing is wrong, seams included."""
    plan = plan_prefixes([str(store)], PlanOptions(split_bytes=split_bytes))
    assert all(len(split) <= split_bytes for split in plan.splits)
    reading = LogReader(plan.splits, OPTIONS, damages=plan.damages, ends=plan.ends)
    rows = [row for batch in reading for row in batch.to_pylist()]
    assert not reading.report.faults()
    return rows


@settings(max_examples=examples(30))
@given(PARTS, st.integers(1, 5_000))
def test_any_split_size_gives_each_record_once(parts: list[Part], split_bytes: int) -> None:
    """Bodies that hold sound records with the right log offsets do not change what is read."""
    with tempfile.TemporaryDirectory() as folder:
        log = build(folder, parts)
        assert [row["logOffset"] for row in read_all(log.root, max(split_bytes, log.end // 60))] == log.offsets


@settings(max_examples=examples(30))
@given(PARTS, st.data())
def test_first_record_is_found_from_a_stretch_before_it(parts: list[Part], data: st.DataObject) -> None:
    """The record that begins at or behind a place is found without the start of the file, as from there."""
    with tempfile.TemporaryDirectory() as folder:
        log = build(folder, parts, segment_bytes=1 << 16)
        file = map_log_file(str(log.files()[0]), 0, log.end) if log.end else None
        chain = [*log.offsets, log.end]
        for place in data.draw(st.lists(st.integers(0, max(0, log.end - 1)), max_size=20)) if file else []:
            assert file is not None
            assert find_first_record(file, place, log.end, stretch_bytes=1_500) == chain[bisect_left(chain, place)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_stretch_with_fakes_is_walked_from_the_start(tmp_path: pathlib.Path, count: int) -> None:
    """A copy that leads behind the records that follow it would be taken for one by who only looks at soundness."""
    log = LogBuilder(tmp_path / "store", 1 << 16)
    for _ in range(20):
        add_with_fakes(log, 300, 2, 0, TAIL_BYTES + count * PLAIN_BYTES)
        for _ in range(4):
            log.add(bytes(40))
    path = log.save() / "commitlog" / f"{0:020d}"
    file = map_log_file(str(path), 0, log.end)
    chain = [*log.offsets, log.end]
    for place in range(0, log.end, 37):
        assert find_first_record(file, place, log.end, stretch_bytes=600) == chain[bisect_left(chain, place)]


@pytest.mark.parametrize(
    ("name", "split_bytes"), [("plain", 7_001), ("killed", 3_000), ("delay-retry", 1_000), ("batchcrc", 500)]
)
def test_java_store_in_splits(name: str, split_bytes: int, java_stores: JavaStores) -> None:
    """What a Java broker wrote gives the same rows in splits of any size as in whole files, inner batches too."""
    assert read_all(java_stores[name], split_bytes) == read_all(java_stores[name], 1 << 20)


@pytest.fixture
def queued(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a store with queues, whose bodies hold fakes."""
    directory = StoreDirectory(tmp_path / "queued", segment_bytes=1 << 16)
    with directory.open() as store:
        for number in range(300):
            store.append(new_record(f"T{number % 3}", number % 2, b"x" * (number % 200)))
        store.flush()
    return directory


def test_entries_of_queues_anchor_a_split(queued: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """With queues, the walk to a split begins at a record near it; without the log's help no place is believed."""
    monkeypatch.setattr(queueanchor, "_NEAR_BYTES", 400)
    (split,) = plan_stores([str(queued.root)])
    queues = str(queued.root / "consumequeue")
    assert split.queues == queues
    file, places = split.open(), range(1_000, split.stop, 997)
    for place in places:
        anchor = queueanchor.find_anchor(file, place, queues)
        assert anchor is not None
        assert place - 1_000 < anchor <= place
        assert find_first_record(file, place, split.end, queues) == find_first_record(file, place, split.end)
    for path in (queued.root / "consumequeue").rglob("0" * 20):
        path.write_bytes(b"\0" * 7 + b"\x05" + path.read_bytes()[8:])  # the entry of the first record names no record
    assert queueanchor.find_anchor(file, 50, queues) is None


def test_wrong_start_is_a_fault_of_the_report(log: LogBuilder) -> None:
    """Splits that do not fit together show in the report, whoever made them."""
    for _ in range(20):
        log.add(bytes(40))
    log.save()
    first, second = plan_stores([str(log.root)], PlanOptions(split_bytes=log.end // 2 + 1))
    reading = LogReader([replace(first, stop=first.stop - 300), second], OPTIONS)
    assert sum(batch.num_rows for batch in reading) < len(log.offsets)
    assert any("missing queue offsets" in fault for fault in reading.report.faults())


@pytest.mark.parametrize("split_bytes", [300, 1_000, 4_096])
def test_damage_fails_the_split_that_it_begins_in(log: LogBuilder, split_bytes: int) -> None:
    """One split names the bad record; the others, before and behind, read theirs."""
    for number in range(90):
        log.add(b"body %d" % number, queue_id=number % 3)
    log.save()
    bad = log.offsets[40]
    path, position = log.files()[bad // 4096], bad % 4096
    content = bytearray(path.read_bytes())
    content[position + 4] ^= 1
    path.write_bytes(content)
    splits = plan_stores([str(log.root)], PlanOptions(split_bytes=split_bytes))
    failed = [split for split in splits if _fails(split)]
    assert [(split.path, split.start <= position < split.stop) for split in failed] == [(str(path), True)]


def fill_to_the_last_byte(log: LogBuilder) -> None:
    """End a file with a record instead of a blank, as no broker does."""
    log.segment_bytes += BLANK_BYTES
    log.add(bytes(4096 - log.end % 4096 - PLAIN_BYTES + 40))
    log.segment_bytes -= BLANK_BYTES
    log.roll()
    assert log.end % log.segment_bytes == 0


@pytest.mark.parametrize("split_bytes", [1_000, 1 << 20])
def test_file_without_its_blank_is_damage(log: LogBuilder, split_bytes: int) -> None:
    """A record may have been lost behind the last one of a file that others follow; the last file may end so."""
    for _ in range(29):
        log.add(bytes(40))
    fill_to_the_last_byte(log)
    log.save()
    options = PlanOptions(split_bytes=split_bytes)
    assert not any(map(_fails, plan_stores([str(log.root)], options)))
    log.add(bytes(40))
    log.save()
    *before, last = [split for split in plan_stores([str(log.root)], options) if split.base_offset == 0]
    assert not any(map(_fails, before))
    with pytest.raises(StoreDamagedError, match=r"at position 4096: the file does not end in a blank"):
        list(LogReader([last], OPTIONS))


def test_blank_where_records_were_planned_is_damage(log: LogBuilder) -> None:
    """A split that is to hold records up to its end does not end early at a blank."""
    log.add(bytes(40))
    log.roll()
    log.add(bytes(40))
    log.save()
    whole, _ = plan_stores([str(log.root)])
    assert not _fails(whole)
    with pytest.raises(StoreDamagedError, match=f"at position {log.offsets[0] + PLAIN_BYTES}: "):
        list(LogReader([replace(whole, ends_in_blank=False)], OPTIONS))


def _fails(split: Split) -> bool:
    try:
        list(LogReader([split], OPTIONS))
    except StoreDamagedError:
        return True
    return False
