"""The walk over a split says what it met, record by record or where it was led to."""

import itertools
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from logbuilder import LogBuilder

from rocketlet.common.errors import StoreDamagedError
from rocketlet.common.record import Verdict
from rocketlet.export.plan.read_plan import PlanOptions, cut_at_damage, plan_prefixes, plan_stores
from rocketlet.export.plan.split import PlannedLog, Skip, Split, SplitWalk, cut_file, is_in_queue, read_record
from rocketlet.store.commitlog.record_blocks import Longs, ScanLimits


@dataclass(frozen=True)
class Told:
    """Candidates that were told."""

    places: Sequence[int] | None

    def positions(self, split: Split) -> Longs | None:
        """Return them."""
        return None if self.places is None else np.array(self.places, np.int64)


@pytest.fixture
def many(log: LogBuilder) -> LogBuilder:
    """Return a log of two files with bodies of several sizes."""
    for number in range(40):
        log.add(bytes([number]) * (10 + 37 * (number % 4)), queue_id=number % 3)
    log.save()
    assert len(log.files()) == 2
    return log


def splits_of(log: LogBuilder, split_bytes: int = 1 << 20) -> list[Split]:
    """Plan the log."""
    return plan_stores([str(log.root)], PlanOptions(split_bytes=split_bytes))


def walk(walk: SplitWalk) -> list[int]:
    """Return the log offsets of the records of a walk."""
    return [int(at) + block.segment.base_offset for block in walk for at in block.positions]


@pytest.mark.parametrize(
    ("start", "stop", "size", "bounds"),
    [
        (0, 100, 100, [0, 100]),
        (0, 100, 99, [0, 50, 100]),
        (0, 100, 50, [0, 50, 100]),
        (0, 100, 49, [0, 33, 66, 100]),
        (10, 21, 4, [10, 13, 17, 21]),
        (5, 8, 1, [5, 6, 7, 8]),
    ],
)
def test_file_is_cut_in_equal_parts(start: int, stop: int, size: int, bounds: Sequence[int]) -> None:
    """As few as are small enough, without a gap."""
    whole = Split("store", "path", 4_096, start, stop, 200, ends_in_blank=True)
    parts = cut_file(whole, size)
    assert [(part.start, part.stop) for part in parts] == list(itertools.pairwise(bounds))
    assert all(replace(part, start=start, stop=stop) == whole for part in parts)
    assert sum(map(len, parts)) == len(whole) == stop - start


@pytest.mark.parametrize("split_bytes", [150, 700, 1 << 20])
def test_walks_meet_at_their_seams(many: LogBuilder, split_bytes: int) -> None:
    """Each begins where the one before it ended, and says that it came to its end."""
    found: list[int] = []
    ended: int | None = 0
    for split in splits_of(many, split_bytes):
        one = SplitWalk(split, ScanLimits())
        assert (one.position, one.began, one.ended) == (split.start, None, None)
        met = walk(one)
        found += met
        assert one.position == split.stop
        if not met:
            assert one.ended is None
            continue
        if split.start == 0:
            ended = 0
        assert one.began == met[0] - split.base_offset == ended
        ended = one.ended
        is_last = split.stop == split.end
        assert one.verdict == (Verdict.BLANK if is_last and split.ends_in_blank else None)
    assert found == many.offsets
    assert ended == many.end - 4_096


def skipping(split: Split, limits: ScanLimits | None = None) -> tuple[list[int], list[Skip], SplitWalk]:
    """Walk a split that may be damaged."""
    skips: list[Skip] = []
    one = SplitWalk(split, limits or ScanLimits(), skips.append)
    return walk(one), skips, one


def change(log: LogBuilder, number: int, at: int, byte: int) -> Split:
    """Write another byte into a record of the first file, and return its split."""
    (split, _) = splits_of(log)
    path = pathlib.Path(split.path)
    content = bytearray(path.read_bytes())
    content[log.offsets[number] + at] ^= byte
    path.write_bytes(content)
    return split


def test_bad_record_is_passed_and_told(many: LogBuilder) -> None:
    """With its queue where only the body is bad; without anybody who is told, it is an error."""
    split = change(many, 5, 89, 0xFF)
    inside = [at for at in many.offsets if at < 4_096]
    place, size = many.offsets[5], many.offsets[6] - many.offsets[5]
    found, skips, one = skipping(split)
    assert found == inside[:5] + inside[6:]
    assert skips == [Skip(split.path, place, size, "the body does not have its checksum", ("Topic", 2))]
    assert (one.began, one.verdict) == (0, Verdict.BLANK)
    strict = SplitWalk(split, ScanLimits())
    with pytest.raises(StoreDamagedError, match="checksum") as caught:
        walk(strict)
    assert (caught.value.path, caught.value.position) == (split.path, place)
    assert (strict.position, strict.verdict) == (place, Verdict.BODY_CRC)
    assert skipping(split, ScanLimits(checks_crc=False))[0] == inside
    split = change(many, 7, 4, 0xFF)
    assert skipping(split)[1][1] == Skip(split.path, many.offsets[7], many.offsets[8] - many.offsets[7],
                                         "the magic is unknown", None)  # fmt: skip


def test_candidates_alone_are_looked_at(many: LogBuilder) -> None:
    """Whatever stands between them; what cannot be told is walked."""
    (split, _) = splits_of(many)
    places = [many.offsets[number] for number in (1, 2, 9, 20)]
    for limits in (ScanLimits(), ScanLimits(block_records=1), ScanLimits(block_bytes=200)):
        found, skips, one = skipping(replace(split, candidates=Told(places)), limits)
        assert (found, skips) == (places, [])
        assert (one.began, one.ended, one.verdict, one.position) == (None, None, None, split.stop)
    assert skipping(replace(split, candidates=Told([])))[0] == []
    assert skipping(replace(split, candidates=Told(None)))[0] == [at for at in many.offsets if at < 4_096]


def test_candidates_come_in_blocks(many: LogBuilder) -> None:
    """That have no more records or bytes than they may."""
    (split, _) = splits_of(many)
    places = [at for at in many.offsets if at < 4_000]
    told = replace(split, candidates=Told(places))
    assert [len(block) for block in SplitWalk(told, ScanLimits(block_records=7))][:3] == [7, 7, 7]
    near = [len(block) for block in SplitWalk(told, ScanLimits(block_bytes=places[3]))]
    assert near[0] == 3
    one = SplitWalk(told, ScanLimits(block_records=2))
    positions = [one.position for _ in one]
    assert positions[:3] == [split.start, places[2], places[4]]
    assert one.position == split.stop


@pytest.mark.parametrize(
    ("at", "byte", "reason", "queue"),
    [
        (89, 0xFF, "the body does not have its checksum", ("Topic", 2)),
        (4, 0xFF, "the magic is unknown", None),
        (28, 0xFF, "the record names another position in the log", None),
    ],
)
def test_candidate_that_is_bad_is_told(
    many: LogBuilder, at: int, byte: int, reason: str, queue: tuple[str, int] | None
) -> None:
    """And the others are read; a checksum only if it is looked at."""
    split = change(many, 5, at, byte)
    places = [many.offsets[number] for number in (4, 5, 6, 7)]
    told = replace(split, candidates=Told(places))
    size = places[2] - places[1]
    found, skips, _ = skipping(told)
    assert found == [places[0], *places[2:]]
    assert skips == [Skip(split.path, places[1], size, reason, queue)]
    strict = SplitWalk(told, ScanLimits())
    with pytest.raises(StoreDamagedError, match=reason) as caught:
        walk(strict)
    assert (caught.value.path, caught.value.position) == (split.path, places[1])
    assert strict.verdict is not None
    assert strict.verdict.reason == reason
    assert (skipping(told, ScanLimits(checks_crc=False))[1] == []) == (at == 89)


def test_candidate_without_a_size_is_told_as_nothing(many: LogBuilder) -> None:
    """Nobody knows how many bytes were lost where the size itself is wrong."""
    split = change(many, 5, 0, 0x80)
    places = [many.offsets[number] for number in (4, 5, 6)]
    found, skips, _ = skipping(replace(split, candidates=Told(places)))
    assert found == [places[0], places[2]]
    assert [(skip.position, skip.size_bytes, skip.queue) for skip in skips] == [(places[1], 0, None)]


def test_candidate_that_the_end_cuts_is_bad(many: LogBuilder) -> None:
    """One that ends there is not."""
    (split, _) = splits_of(many)
    places = [many.offsets[number] for number in (0, 3)]
    for end, kept in ((many.offsets[4], 2), (many.offsets[4] - 1, 1), (many.offsets[3] + 50, 1)):
        found, skips, _ = skipping(replace(split, stop=end, end=end, candidates=Told(places)))
        assert found == places[:kept]
        assert len(skips) == 2 - kept
        assert all(skip.size_bytes == end - places[1] for skip in skips)


def test_records_of_a_planned_log(many: LogBuilder) -> None:
    """By log offset, in whichever file they are; the first of each file; none outside of the log."""
    log = PlannedLog(splits_of(many, 500))
    assert (log.start, log.end) == (0, many.end)
    for number, at in enumerate(many.offsets):
        record = log.record_at(at)
        assert record is not None
        assert (record.log_offset, record.body[0]) == (at, number)
        assert log.record_at(at + 1) is None
    assert log.record_at(many.end) is log.record_at(1 << 40) is log.record_at(-1) is None
    firsts = [(base, record and record.log_offset) for base, record in log.first_records()]
    assert firsts == [(0, 0), (4_096, 4_096)]
    later = PlannedLog([split for split in splits_of(many) if split.base_offset])
    assert (later.start, later.record_at(0)) == (4_096, None)


def test_record_is_read_though_its_body_is_bad(many: LogBuilder) -> None:
    """Not so if its head is."""
    file = change(many, 5, 89, 0xFF).open()
    record = read_record(file, many.offsets[5])
    assert record is not None
    assert record.queue_id == 2
    assert read_record(file, many.offsets[5] + 1) is None
    assert read_record(file, max(at for at in many.offsets if at < 4_096) + 200) is None


@pytest.mark.parametrize(("sys_flag", "is_queued"), [(0, True), (0x4, False), (0x8, True), (0xC, False), (0x1, True)])
def test_half_and_rolled_back_messages_are_in_no_queue(log: LogBuilder, sys_flag: int, is_queued: bool) -> None:
    """All others are."""
    log.add(sys_flag=sys_flag)
    log.save()
    record = PlannedLog(splits_of(log)).record_at(0)
    assert record is not None
    assert is_in_queue(record) == is_queued


def test_plan_is_cut_at_damage(many: LogBuilder) -> None:
    """The split with the damage ends there, those behind it are gone, and the end is not that of the log."""
    change(many, 5, 89, 0xFF)
    plan = plan_prefixes([str(many.root)], PlanOptions(split_bytes=500))
    place = many.offsets[5]
    cut = cut_at_damage(plan, ScanLimits())
    assert cut.splits[-1].stop == cut.splits[-1].end == place
    assert not cut.splits[-1].ends_in_blank
    assert sum(map(len, cut.splits)) == place
    assert [at for split in cut.splits for at in walk(SplitWalk(split, ScanLimits()))] == many.offsets[:5]
    assert cut.damages[str(many.root)].position == place
    assert cut.ends == {}
    unchecked = cut_at_damage(plan, ScanLimits(checks_crc=False))
    assert unchecked == plan
