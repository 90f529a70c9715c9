"""The walk over a file, and what it looks for, is the same through whatever windows the file is seen."""

import itertools
import os
import pathlib
import struct
from collections.abc import Iterator, Mapping, Sequence

import fsspec
import pytest
from fakes import fake_record
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.common.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Verdict
from rocketlet.export.plan import log_file, record_walk
from rocketlet.export.plan.filesystems import Storage
from rocketlet.export.plan.log_file import LogFile, RemoteLogFile, map_log_file
from rocketlet.export.plan.record_walk import (
    HEADS_ONLY,
    RecordWalk,
    find_anchor,
    find_candidates,
    find_first_record,
    find_next_sound,
    find_sound_record,
    has_queue_entry,
    iter_candidates,
    list_queues,
    stored_at,
)
from rocketlet.store.commitlog.record_blocks import ScanLimits

SIZES = [40, 10, 0, 700, 40, 1_500, 3, 90, 40]
BASE = 3 * 4_096
ENTRY_BYTES = 20
_numbers = itertools.count()


@pytest.fixture
def own(tmp_path: pathlib.Path) -> LogBuilder:
    """Return a log of one file, which begins in the middle of a log, with records of many sizes."""
    log = LogBuilder(tmp_path / "own", first_file=3)
    for number, size in enumerate(SIZES):
        log.add(bytes([97 + number]) * size, queue_id=number % 2)
    log.roll()
    log.save()
    return log


def places_of(log: LogBuilder) -> list[int]:
    """Return the positions of the records in their file, and of its blank."""
    ends = struct.iter_unpack(">i", log.files()[0].read_bytes()[log.offsets[-1] - BASE :][:4])
    return [*(at - BASE for at in log.offsets), log.offsets[-1] - BASE + next(ends)[0]]


def look_at(content: bytes, window_bytes: int | None, monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path) -> LogFile:
    """Return a log file behind a URL that is seen through such windows; with ``None``, a local one."""
    if window_bytes is None:
        path = folder / f"file{next(_numbers)}"
        path.write_bytes(content)
        return map_log_file(str(path), BASE, len(content))
    monkeypatch.setattr(log_file, "WINDOW_BYTES", window_bytes)
    name = f"/walks/{next(_numbers)}"
    fsspec.filesystem("memory").pipe_file(name, content)
    return RemoteLogFile(f"memory:/{name}", BASE, len(content), Storage())


@pytest.fixture(params=[None, 1, 130, 701, 4_096])
def seen(
    request: pytest.FixtureRequest, own: LogBuilder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> LogFile:
    """Return the file of the log, seen through windows of a size."""
    monkeypatch.setattr(record_walk, "_LEAST_BYTES", 120)
    return look_at(own.files()[0].read_bytes(), request.param, monkeypatch, tmp_path)


def walked(walk: RecordWalk) -> list[int]:
    """Return the log offsets of the records of a walk."""
    return [int(at) + block.segment.base_offset for block in walk for at in block.positions]


def test_walk_meets_each_record(own: LogBuilder, seen: LogFile) -> None:
    """From any record on, up to the blank, which is judged."""
    places = places_of(own)
    for number, place in enumerate(places):
        walk = RecordWalk(seen, place, seen.size, ScanLimits())
        assert walked(walk) == own.offsets[number:]
        assert (walk.position, walk.verdict) == (places[-1], Verdict.BLANK)


def test_walk_stops_where_it_is_told(own: LogBuilder, seen: LogFile) -> None:
    """At the first record at or behind the stop, which is not judged; what is at the stop already has nothing."""
    places = places_of(own)
    for stop in (0, 1, places[3], places[3] + 1, places[5] + 700, places[-1]):
        walk = RecordWalk(seen, 0, stop, ScanLimits())
        assert walked(walk) == [BASE + at for at in places[:-1] if at < stop]
        assert (walk.position, walk.verdict) == (next(at for at in places if at >= stop), None)


def test_walk_ends_with_the_log(own: LogBuilder, seen: LogFile) -> None:
    """A record that ends behind the end is torn, and one that ends there is the last."""
    places = places_of(own)
    for number in (1, 4, 6):
        for end, count in ((places[number], number), (places[number] - 1, number - 1)):
            walk = RecordWalk(seen, 0, seen.size, HEADS_ONLY, end)
            assert walked(walk) == own.offsets[:count]
            assert walk.position == places[count]
            assert walk.verdict is not None
            assert walk.verdict < Verdict.BLANK


def test_walk_ends_at_damage(own: LogBuilder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong is named, bodies only if they are looked at."""
    monkeypatch.setattr(record_walk, "_LEAST_BYTES", 120)
    places = places_of(own)
    content = own.files()[0].read_bytes().replace(b"f" * 1_500, b"F" * 1_500)
    for window_bytes in (None, 1, 130, 701):
        file = look_at(content, window_bytes, monkeypatch, tmp_path)
        walk = RecordWalk(file, 0, file.size, ScanLimits())
        assert walked(walk) == own.offsets[:5]
        assert (walk.position, walk.verdict) == (places[5], Verdict.BODY_CRC)
        assert walked(RecordWalk(file, 0, file.size, HEADS_ONLY)) == own.offsets


def test_candidates_are_where_a_magic_stands(
    own: LogBuilder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them and no others, however many bytes are looked at together, also at the very ends."""
    content = bytearray(own.files()[0].read_bytes())
    magics = [magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)]
    for at in (4, 1_004, 1_006, 2_000):
        content[at : at + 4] = magics[1]
    content[-4:] = magics[0]
    for at, wrong in ((600, b"\xda\xa3\x20\xa8"), (700, b"\xda\xa3\x21\xa7"), (800, b"\xda\xa4\x20\xa7")):
        content[at : at + 4] = wrong
    for chunk, window_bytes in itertools.product((1, 9, 64, 1 << 20), (None, 1, 130)):
        monkeypatch.setattr(record_walk, "_CHUNK", chunk)
        file = look_at(bytes(content), window_bytes, monkeypatch, tmp_path)
        for start, stop in ((0, 4_096), (1, 1_000), (1_000, 1_002), (1_001, 1_003), (4_000, 4_088), (4_088, 4_089)):
            places = [at for at in range(start, min(stop, 4_089)) if bytes(content[at + 4 : at + 8]) in magics]
            assert list(iter_candidates(file, start, stop)) == places
            records = [at for at in places if bytes(content[at + 4 : at + 8]) != magics[2]]
            assert list(iter_candidates(file, start, stop, blanks=False)) == records
            assert [at for found in find_candidates(file, start, stop) for at in found.tolist()] == records


def test_holes_have_no_candidates(own: LogBuilder, tmp_path: pathlib.Path) -> None:
    """What is behind a hole is found, and a file that ends in one is left there."""
    path = tmp_path / "holes"
    content = own.files()[0].read_bytes()
    with path.open("wb") as file:
        file.write(content[:400])
        file.truncate(1 << 21)
        file.seek(1 << 20)
        file.write(content)
        file.truncate(1 << 22)
    mapped = map_log_file(str(path), BASE, 1 << 22)
    first = [at for at in places_of(own) if at + 8 <= 400]
    assert list(iter_candidates(mapped, 0, mapped.size)) == first + [(1 << 20) + at for at in places_of(own)]


def spoilt(own: LogBuilder, changes: Mapping[int, bytes]) -> bytes:
    """Return the file with other bytes at some positions."""
    content = bytearray(own.files()[0].read_bytes())
    for at, change in changes.items():
        content[at : at + len(change)] = change
    return bytes(content)


@pytest.mark.parametrize("window_bytes", [None, 1, 701])
def test_next_sound_record_behind_a_bad_one(
    own: LogBuilder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int | None
) -> None:
    """By its size where only its content is bad, else the next that is sound with its body, or the blank."""
    places = places_of(own)
    bad_body = {places[4] + 90: b"?"}

    def find(changes: Mapping[int, bytes], stop: int = 4_096, verdict: Verdict = Verdict.BODY_CRC) -> int | None:
        return find_next_sound(
            look_at(spoilt(own, changes), window_bytes, monkeypatch, tmp_path), places[3], stop, verdict
        )

    assert find({}) == find(bad_body) == places[4]
    assert find({places[3] + 4: b"?"}, verdict=Verdict.MAGIC) == places[4]
    assert find({places[3]: b"\0\0\0\x09"}) == places[4]
    assert find(bad_body, verdict=Verdict.TORN) == places[5]
    assert find({places[4] + 4: b"?"}) == places[5]
    assert find({places[3]: bytes(4)}) == places[4]
    assert find({places[3]: b"\xff" * 4}) == places[4]
    rest = {places[at] + 4: b"?" for at in range(4, 9)}
    assert find(rest) == places[9]
    assert find({**rest, places[9]: b"\0\0\0\x09"}) is None
    assert find({}, places[4] + 7) is None
    assert find({}, places[5]) == places[4]
    assert find({}, places[5] - 1) is None


def test_blank_behind_a_bad_record_may_have_its_head_only(
    own: LogBuilder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight bytes are left in the file then."""
    places = places_of(own)
    content = own.files()[0].read_bytes()[: places[9]] + struct.pack(">iI", 8, MAGIC_BLANK)
    file = look_at(content, None, monkeypatch, tmp_path)
    assert find_next_sound(file, places[8], file.size, Verdict.BODY_CRC) == places[9]


def test_first_sound_record_of_a_stretch(own: LogBuilder, seen: LogFile) -> None:
    """It begins before the stop, ends by the end, and its store time is covered; a blank is none."""
    places = places_of(own)
    assert find_sound_record(seen, 0, seen.size) == places[0]
    assert find_sound_record(seen, 1, seen.size) == places[1]
    assert find_sound_record(seen, places[1] + 1, places[2]) is None
    assert find_sound_record(seen, places[2], places[2] + 1) == places[2]
    assert find_sound_record(seen, places[3], seen.size, places[4]) == places[3]
    assert find_sound_record(seen, places[3], seen.size, places[4] - 1) is None
    assert find_sound_record(seen, places[9], seen.size) is None
    assert find_sound_record(seen, 0, seen.size, covers=lambda at_ms: at_ms >= FIRST_MS + 4) == places[4]
    assert find_sound_record(seen, 0, seen.size, covers=lambda _: False) is None
    assert [stored_at(seen, at) for at in places[:3]] == [FIRST_MS, FIRST_MS + 1, FIRST_MS + 2]


def test_first_record_at_or_behind_a_place(own: LogBuilder, seen: LogFile) -> None:
    """From the start of the file, or from a stretch before the place, however long that is."""
    places = places_of(own)
    for start in [*range(0, places[9], 83), *places]:
        expected = next(at for at in places if at >= start)
        for stretch_bytes in (100, 900, 1 << 20):
            assert find_first_record(seen, start, seen.size, stretch_bytes=stretch_bytes) == expected


def test_first_record_behind_damage(own: LogBuilder, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk goes on behind what is bad, up to the end if nothing sound follows."""
    places = places_of(own)
    file = look_at(spoilt(own, {places[3] + 4: b"?"}), None, monkeypatch, tmp_path)
    assert find_first_record(file, places[3] + 5, file.size) == places[4]
    bad = {places[at] + 4: b"?" for at in range(3, 10)}
    file = look_at(spoilt(own, bad), None, monkeypatch, tmp_path)
    assert find_first_record(file, places[3] + 5, file.size) == file.size
    assert find_first_record(file, places[3], file.size) == places[3]


@pytest.mark.parametrize(("shift", "is_rival"), [(0, True), (8, False)])
@pytest.mark.parametrize("window_bytes", [None, 130])
def test_stretch_with_a_copy_is_not_believed(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    shift: int,
    is_rival: bool,
    window_bytes: int | None,
) -> None:
    """One that names the place at which it stands may be the record; one that names another cannot."""
    log = LogBuilder(tmp_path / "fakes", 1 << 16, first_file=0)
    log._base = BASE  # pyright: ignore[reportPrivateUsage] # no multiple of the size of its files
    for _ in range(8):
        log.add(bytes(40))
    log.add(b"g" * 30 + fake_record(log.end + 88 + 30 + shift) + b"g" * 30)
    for _ in range(8):
        log.add(bytes(40))
    log.save()
    file = look_at(log.files()[0].read_bytes(), window_bytes, monkeypatch, tmp_path)
    begun: list[int] = []

    class Noted(RecordWalk):
        def __iter__(self) -> Iterator[record_walk.Block]:
            begun.append(self.position)
            return super().__iter__()

    monkeypatch.setattr(record_walk, "RecordWalk", Noted)
    last = log.offsets[-2] - BASE
    assert find_first_record(file, last - 5, file.size, stretch_bytes=1_200) == last
    assert (0 in begun) == is_rival


def write_entries(folder: pathlib.Path, log: LogBuilder, queues: Mapping[str, Sequence[int]], first: int = 0) -> str:
    """Write a queue of topic Topic for each name, with entries of the records of these numbers; return where."""
    content = log.files()[0].read_bytes()
    for name, numbers in queues.items():
        directory = folder / "consumequeue" / "Topic" / name
        directory.mkdir(parents=True, exist_ok=True)
        sizes = {at: struct.unpack_from(">i", content, at - BASE)[0] for at in log.offsets}
        entries = b"".join(struct.pack(">qiq", at, sizes[at], 0) for at in (log.offsets[number] for number in numbers))
        (directory / f"{first * ENTRY_BYTES:020d}").write_bytes(entries.ljust(200, b"\0"))
    return str(folder / "consumequeue")


def test_anchor_is_the_nearest_record_that_a_queue_names(
    own: LogBuilder, seen: LogFile, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At or before the place; of several queues the nearer one, of which the first that is near enough is taken."""
    places = places_of(own)
    queues = write_entries(tmp_path, own, {"0": [0, 2, 4, 6, 8], "1": [1, 3, 5, 7]})
    monkeypatch.setattr(record_walk, "_NEAR_BYTES", 0)
    for number in range(9):
        assert find_anchor(seen, places[number], queues) == places[number]
        assert find_anchor(seen, places[number] + 1, queues) == places[number]
    assert find_anchor(seen, places[3] - 1, queues) == places[2]
    monkeypatch.setattr(record_walk, "_NEAR_BYTES", places[3] - places[2])
    assert find_anchor(seen, places[3], queues) == places[2]
    monkeypatch.setattr(record_walk, "_NEAR_BYTES", places[3] - places[2] - 1)
    assert find_anchor(seen, places[3], queues) == places[3]
    monkeypatch.setattr(record_walk, "_MOST_QUEUES", 1)
    assert find_anchor(seen, places[3], queues) == places[2]


def test_anchor_may_not_be_far_away(
    own: LogBuilder, seen: LogFile, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor before the file, nor behind the place."""
    places = places_of(own)
    queues = write_entries(tmp_path, own, {"0": [0]})
    for far, anchor in ((places[5], 0), (places[5] - 1, None)):
        monkeypatch.setattr(record_walk, "_FAR_BYTES", far)
        assert find_anchor(seen, places[5], queues) == anchor
    queues = write_entries(tmp_path, own, {"0": [0, 2], "1": [7]})
    assert find_anchor(seen, places[2], queues) == places[2]
    assert find_anchor(seen, 0, str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(
    ("queues", "first"),
    [({"1": [0, 2, 4]}, 0), ({"0": [2, 4]}, 0), ({"0": [0, 2, 4]}, 1)],
    ids=["another queue", "another offset", "a later file"],
)
def test_entry_that_does_not_tell_of_its_record_is_no_anchor(
    own: LogBuilder, seen: LogFile, tmp_path: pathlib.Path, queues: Mapping[str, Sequence[int]], first: int
) -> None:
    """The record must be of that queue and have that offset there."""
    assert find_anchor(seen, 4_000, write_entries(tmp_path, own, queues, first)) is None


@pytest.mark.parametrize(("change", "at"), [(1, 11), (-1, 11), (1, 7), (127, 8)])
def test_entry_with_another_place_or_size_is_no_anchor(
    own: LogBuilder, seen: LogFile, tmp_path: pathlib.Path, change: int, at: int
) -> None:
    """It is of another log, or damaged."""
    queues = write_entries(tmp_path, own, {"0": [0]})
    path = next(pathlib.Path(queues).rglob("0" * 20))
    content = bytearray(path.read_bytes())
    content[at] = (content[at] + change) % 256
    path.write_bytes(content)
    assert find_anchor(seen, 4_000, queues) is None


def test_later_files_of_a_queue_come_first(own: LogBuilder, seen: LogFile, tmp_path: pathlib.Path) -> None:
    """Where none of a file's entries is before the place, the one before it is asked; foreign names are passed over."""
    places = places_of(own)
    queues = write_entries(tmp_path, own, {"0": [0, 2]})
    path = pathlib.Path(queues) / "Topic" / "0"
    (path / f"{0:020d}").write_bytes((path / f"{0:020d}").read_bytes()[:40])
    write_entries(tmp_path, own, {"0": [4, 6]}, first=2)
    (path / "notes").touch()
    assert [find_anchor(seen, places[number], queues) for number in (0, 2, 4, 6)] == [places[at] for at in (0, 2, 4, 6)]
    assert find_anchor(seen, places[4] - 1, queues) == places[2]
    assert [has_queue_entry(seen, places[number], queues) for number in range(9)] == [
        number in (0, 2, 4, 6) for number in range(9)
    ]
    (path / f"{40:020d}").unlink()
    assert [has_queue_entry(seen, places[number], queues) for number in (0, 2, 4)] == [True, True, False]
    (path / f"{0:020d}").unlink()
    assert not has_queue_entry(seen, places[0], queues)
    (path / f"{0:020d}").mkdir()
    assert not has_queue_entry(seen, places[0], queues)


def test_descriptors_of_queues_are_closed(own: LogBuilder, seen: LogFile, tmp_path: pathlib.Path) -> None:
    """However many queues are asked, none is left open."""
    queues = write_entries(tmp_path, own, {"0": [0], "1": [1]})
    before = len(os.listdir("/dev/fd"))
    find_anchor(seen, 4_000, queues)
    assert len(os.listdir("/dev/fd")) == before


def test_queues_are_directories_with_numbers(tmp_path: pathlib.Path) -> None:
    """Other names beside them are none."""
    for name in ("A/0", "A/12", "A/x", "A/٣", "B/1"):
        (tmp_path / name).mkdir(parents=True)
    found = [("A", 0, "A/0"), ("A", 12, "A/12"), ("B", 1, "B/1")]
    assert list(list_queues(str(tmp_path))) == [(topic, number, str(tmp_path / name)) for topic, number, name in found]
