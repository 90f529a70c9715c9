"""The end of a large file is found from a record near it, and is where a walk over the whole file finds it."""

import random
import struct
from collections.abc import Iterator

import pytest
from logbuilder import LogBuilder

from rocketlet.export.plan import log_end as tail
from rocketlet.export.plan.read_plan import plan_prefixes
from rocketlet.export.plan.record_walk import RecordWalk
from rocketlet.store.commitlog.record_blocks import Block

SEGMENT_BYTES = 1 << 17


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take files for large ones, and return where walks over them begin."""
    begun: list[int] = []

    class Noted(RecordWalk):
        def __iter__(self) -> Iterator[Block]:
            begun.append(self.position)
            return super().__iter__()

    monkeypatch.setattr(tail, "_LARGE_BYTES", 8_192)
    monkeypatch.setattr(tail, "_PROBE_BYTES", 2_048)
    monkeypatch.setattr(tail, "RecordWalk", Noted)
    return begun


@pytest.fixture
def large(log: LogBuilder) -> LogBuilder:
    """Return a log with one file, of which records fill the larger part."""
    large = LogBuilder(log.root, SEGMENT_BYTES)
    for number in range(500):
        large.add(b"body %d" % number * (number % 20), properties={"KEYS": f"k{number}"}, queue_id=number % 3)
    large.save()
    return large


def end_of(log: LogBuilder) -> int:
    """Plan, and return where the log ends."""
    plan = plan_prefixes([str(log.root)])
    assert not plan.damages
    (end,) = plan.ends.values()
    return end.position


def test_large_file_is_not_walked_from_its_start(large: LogBuilder, begun: list[int]) -> None:
    """The walk begins near the end, whatever the file's size."""
    assert end_of(large) == large.end
    assert large.end - 2 * 8_192 < begun[0] < large.end


@pytest.mark.parametrize("seed", range(12))
def test_torn_end_is_the_same(seed: int, large: LogBuilder, begun: list[int]) -> None:
    """A file that is cut off, or zeroed from a byte on, ends behind the last whole record."""
    path, draw = large.files()[0], random.Random(seed)
    cut = draw.randrange(1, large.end)
    content = path.read_bytes()[:cut]
    path.write_bytes(content if seed % 2 else content.ljust(SEGMENT_BYTES, b"\0"))
    ends = [at for at in [*large.offsets, large.end] if at <= cut]
    assert end_of(large) == ends[-1]


@pytest.mark.parametrize("kept", [60, 250, 480])
def test_records_that_a_cut_left_over_are_not_the_end(kept: int, large: LogBuilder, begun: list[int]) -> None:
    """Where a broker cut its log and went on, sound records of before follow, which have no entries in queues."""
    path = large.files()[0]
    old = path.read_bytes()
    again = LogBuilder(large.root, SEGMENT_BYTES)
    for number in range(kept):
        again.add(b"body %d" % number * (number % 20), properties={"KEYS": f"k{number}"}, queue_id=number % 3)
    again.next_ms += 10_000
    for number in range(3):
        again.add(b"new", queue_id=number)
    path.write_bytes(old[: large.offsets[kept]])
    new = (again.save() / "commitlog" / path.name).read_bytes()[: again.end]
    path.write_bytes(new + b"\xff" * 10 + old[again.end + 10 :])
    for queue_id in range(3):
        folder = large.root / "consumequeue" / "Topic" / str(queue_id)
        folder.mkdir(parents=True)
        offsets = [*again.offsets[queue_id:kept:3], again.offsets[kept + queue_id]]
        entries = [struct.pack(">qiq", at, int.from_bytes(new[at : at + 4], "big"), 0) for at in offsets]
        (folder / ("0" * 20)).write_bytes(b"".join(entries).ljust(20_000, b"\0"))
    assert end_of(large) == again.end


def test_log_whose_late_records_did_not_arrive_whole_is_walked_from_its_start(
    log: LogBuilder, begun: list[int]
) -> None:
    """Records whose properties end in zeros are no part of it, however many of them are at the end."""
    large = LogBuilder(log.root, SEGMENT_BYTES)
    for _ in range(100):
        large.add(b"body", properties=b"KEYS\x01k\x02")
    end = large.end
    for _ in range(400):
        large.add(b"body", properties=b"KEYS\x01k\x02\x00")
    large.save()
    assert end_of(large) == end
    assert begun[0] > end
    assert 0 in begun
