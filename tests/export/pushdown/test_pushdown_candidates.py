"""What entries of queues and index files name is believed where the log says the same, and told in words."""

import pathlib
import shutil
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
from pushing import TOPICS, fill, plan, read
from stores import TINY, StoreDirectory, new_record

from rocketlet.common.errors import StoreDamagedError
from rocketlet.common.properties import tags_code
from rocketlet.common.record import MAGIC_V1, MAGIC_V2
from rocketlet.export.plan.log_end import LogStop
from rocketlet.export.plan.read_plan import MissingBytes, Plan
from rocketlet.export.plan.selection import Selection
from rocketlet.export.plan.split import Split
from rocketlet.export.plan.store_queues import QueueFiles, open_queue
from rocketlet.export.pushdown.pushdown import (
    IndexCandidates,
    PushdownOptions,
    PushedFilters,
    QueueCandidates,
    QueueSlice,
    planned_report,
    push_down,
)
from rocketlet.store.consumequeue.consume_queue import PRE_BLANK_SIZE
from rocketlet.store.files.files import OS_FILES

RECORDS: Final = 12
ENTRY: Final = struct.Struct(">qiq")
INDEX_SIZES: Final = TINY["index_slots"], TINY["index_entries"]
TAGS: Final = ("Aa", "C", "D")
FIVE: Final = Selection(frozenset({"Orders"}), keys=frozenset({"k100", "k101", "k102", "k103", "k105"}))
SIX: Final = replace(FIVE, keys=FIVE.keys | {"k106"})


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a store of one file with a topic of two queues, whose records take turns, and are of one size."""
    made = StoreDirectory(tmp_path / "store", queue_file_bytes=400)
    with made.open() as store:
        for number in range(RECORDS):
            store.append(new_record("T", number % 2, b"%03d" % number, TAGS=TAGS[number // 2 % 3].ljust(2)))
            store.commit()
    return made


def queue_of(directory: StoreDirectory, queue_id: int) -> QueueFiles:
    """Return a queue of the store."""
    found = open_queue(str(directory.root), "T", queue_id, 1 << 30)
    assert found is not None
    return found


def whole(directory: StoreDirectory) -> Split:
    """Return the only split."""
    (split,) = plan(directory.root, 1 << 20)
    return split


def places(directory: StoreDirectory) -> list[int]:
    """Return where the records begin."""
    split = whole(directory)
    assert len(split) % RECORDS == 0
    return list(range(0, len(split), len(split) // RECORDS))


def named(candidates: QueueCandidates | IndexCandidates, split: Split) -> list[int] | None:
    """Return the places that candidates name."""
    found = candidates.positions(split)
    return None if found is None else found.tolist()


def slices(directory: StoreDirectory, *bounds: tuple[int, int, int]) -> QueueCandidates:
    """Return entries of queues as candidates."""
    return QueueCandidates(tuple(QueueSlice(queue_of(directory, number), *rest) for number, *rest in bounds))


@pytest.mark.parametrize("bounds", [[(0, 1, 3)], [(1, 0, 3), (0, 2, 4)], [(1, 5, 6)], [(0, 0, 3), (1, 0, 3)]])
def test_entries_name_their_records_in_log_order(
    directory: StoreDirectory, bounds: Sequence[tuple[int, int, int]]
) -> None:
    """Whatever queues they are of; nothing is named by no entry."""
    at = places(directory)
    expected = sorted(at[2 * slot + queue] for queue, first, stop in bounds for slot in range(first, stop))
    candidates = slices(directory, *bounds)
    assert candidates.count == len(expected)
    assert named(candidates, whole(directory)) == expected
    assert named(QueueCandidates(()), whole(directory)) == []


def test_entries_of_most_of_a_split_are_not_used(directory: StoreDirectory) -> None:
    """Of more than half of its bytes; walking it costs less then."""
    split, size = whole(directory), places(directory)[1]
    half = slices(directory, (0, 0, 3))
    for length, is_used in ((6 * size, True), (6 * size - 1, False), (7 * size, True)):
        assert (named(half, replace(split, stop=length)) is not None) == is_used
    tagged = QueueCandidates(half.slices, frozenset({tags_code("C ")}))
    assert named(tagged, replace(split, stop=5 * size)) == [2 * size]


@pytest.mark.parametrize("queue", [0, 1])
def test_records_outside_of_a_split_are_not_believed(directory: StoreDirectory, queue: int) -> None:
    """Entries and index name those that begin in the split and end in its file."""
    at, split = places(directory), whole(directory)
    queued, indexed = slices(directory, (queue, 1, 4)), IndexCandidates(tuple(at[2 + queue : 8 + queue : 2]))
    first, last = at[2 + queue], at[6 + queue]
    for change, is_inside in (
        ({}, True),
        ({"start": first}, True),
        ({"start": first + 1}, False),
        ({"stop": last + 1}, True),
        ({"stop": last}, False),
        ({"end": last + 91}, True),
        ({"end": last + 90}, False),
    ):
        inside = replace(split, **change)
        room = replace(inside, stop=max(inside.stop, 1 << 12)) if "stop" not in change else inside
        assert (named(indexed, inside) == at[2 + queue : 8 + queue : 2]) == is_inside
        assert (indexed.positions(inside) is None) == (not is_inside)
        if len(room) > 6 * at[1]:
            assert (named(queued, room) is not None) == is_inside


def change_log(directory: StoreDirectory, position: int, content: bytes) -> None:
    """Overwrite bytes of the log."""
    path = directory.segment()
    data = bytearray(path.read_bytes())
    data[position : position + len(content)] = content
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "content", "by_queues", "by_index"),
    [
        (0, b"\0\0\0\1", False, True),
        (4, struct.pack(">I", MAGIC_V1), True, True),
        (4, struct.pack(">I", MAGIC_V2), True, True),
        (4, b"\0\0\0\1", False, False),
        (12, struct.pack(">i", 7), False, True),
        (20, struct.pack(">q", 9), False, True),
        (28, struct.pack(">q", 9), False, False),
    ],
    ids=["size", "magic 1", "magic 2", "no magic", "queue", "queue offset", "log offset"],
)
@pytest.mark.parametrize("number", [0, 2, 4])
def test_record_must_be_the_one_that_is_named(
    directory: StoreDirectory, at: int, content: bytes, number: int, *, by_queues: bool, by_index: bool
) -> None:
    """By size, queue and queue offset, where a queue names it; any of those that are named."""
    position = places(directory)[number]
    split = whole(directory)
    change_log(directory, position + at, content)
    assert (named(slices(directory, (0, 0, 3)), split) is not None) == by_queues
    assert (named(IndexCandidates(tuple(places_of(split)[:6:2])), split) is not None) == by_index


def places_of(split: Split) -> list[int]:
    """Return where records of one size begin."""
    return list(range(0, len(split), len(split) // RECORDS))


@pytest.mark.parametrize(
    ("slot", "change"),
    [
        (0, (0, 0)),
        (1, (0, -5)),
        (2, (0, PRE_BLANK_SIZE)),
        (1, (-1 << 40, 100)),
        (2, (0, 1)),
    ],
)
def test_entries_that_are_none_are_not_believed(directory: StoreDirectory, slot: int, change: tuple[int, int]) -> None:
    """Without a size, or out of order; the planner may have seen others."""
    candidates, split = slices(directory, (0, 0, 3), (1, 0, 1)), whole(directory)
    path = directory.queue_file(queue_id=0)
    path = next(each for each in path.parent.iterdir() if int(each.name) == 0)
    content = bytearray(path.read_bytes())
    at, _, code = ENTRY.unpack_from(content, slot * ENTRY.size)
    ENTRY.pack_into(content, slot * ENTRY.size, at + change[0], change[1], code)
    assert named(candidates, split) is not None
    path.write_bytes(content)
    assert candidates.positions(split) is None


@pytest.mark.parametrize(
    ("code", "is_named"), [(-2_147_483_648, False), (-2_147_483_649, True), (-2_147_483_650, True), (0, False)]
)
def test_entries_of_an_extended_queue_have_no_tag(directory: StoreDirectory, code: int, is_named: bool) -> None:
    """Their number is an address behind all hashes, so each may be wanted; others are left out by their hash."""
    candidates, split = slices(directory, (0, 0, 6)), whole(directory)
    at = places(directory)
    path = next(each for each in directory.queue_file().parent.iterdir() if int(each.name) == 0)
    content = bytearray(path.read_bytes())
    log_offset, size, _ = ENTRY.unpack_from(content, 2 * ENTRY.size)
    ENTRY.pack_into(content, 2 * ENTRY.size, log_offset, size, code)
    path.write_bytes(content)
    tagged = QueueCandidates(candidates.slices, frozenset({tags_code("C "), tags_code("Other")}))
    assert named(tagged, split) == sorted([at[2], at[8], *([at[4]] if is_named else [])])


def test_neighbours_are_joined_queue_by_queue(directory: StoreDirectory) -> None:
    """Each queue from its first entry of the first to its last of the second; a queue may be in one of them alone."""
    one, other = slices(directory, (0, 0, 1)), slices(directory, (0, 2, 3), (1, 1, 2))
    both = one.joined(other)
    assert [(each.files.queue_id, each.first, each.stop) for each in both.slices] == [(0, 0, 3), (1, 1, 2)]
    assert QueueCandidates(one.slices, frozenset({5})).joined(other).tags_codes == {5}
    assert both.count == 4


def test_queues_that_vanish_are_left_alone(
    filled: StoreDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """When a broker deletes the files of queues while they are looked at, only times are pushed down."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    splits = plan(root)
    map_written = OS_FILES.map_written

    def vanish(path: str, size: int) -> memoryview:
        if "consumequeue" in path:
            raise FileNotFoundError(2, "No such file or directory", path)
        return map_written(path, size)

    monkeypatch.setattr(OS_FILES, "map_written", vanish)
    options = PushdownOptions(index_sizes=INDEX_SIZES)
    wanted = frozenset({"Orders"})
    assert push_down(splits, Selection(wanted), options) == (splits, {})
    assert push_down(splits, Selection(wanted, keys=frozenset({"k100"})), options) == (splits, {})
    timed = push_down(splits, Selection(wanted, until_ms=0), options)
    assert [text.partition(":")[0] for text in timed.stores[str(root)].texts] == ["store time until 0"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> StoreDirectory:
    """Return a store that was cleanly closed."""
    made = StoreDirectory(tmp_path_factory.mktemp("filled") / "store")
    fill(made)
    return made


@pytest.mark.parametrize("most", [3, 2])
def test_topics_of_very_many_queues_are_walked(
    most: int, filled: StoreDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than these, the splits are left as they are."""
    monkeypatch.setattr("rocketlet.export.pushdown.pushdown._MOST_QUEUES", most)
    splits = plan(filled.root)
    pushed = push_down(splits, Selection(frozenset({"Orders"})))
    assert (pushed == (splits, {})) == (most < TOPICS["Orders"])


@pytest.mark.parametrize(
    ("selection", "texts"),
    [
        (Selection(frozenset({"Rare"})), ["topic in (Rare): 4 records by 2 queues"]),
        (Selection(frozenset({"Rare", "Orders"})), ["topic in (Orders, Rare): 145 records by 5 queues"]),
        (FIVE, ["key in (k100, k101, k102, k103, k105): 5 records by index files"]),
        (SIX, ["key in (k100, k101, k102, k103, k105, …): 6 records by index files"]),
        (Selection(frozenset({"Rare"}), among=frozenset()), ["no topic is wanted"]),
        (Selection(from_ms=1, until_ms=2), ["store time from 1 until 2: 0 of {whole} bytes of log"]),
    ],
)
def test_report_says_what_was_pushed_down(selection: Selection, texts: list[str], filled: StoreDirectory) -> None:
    """In words, the first five names of each kind, in order."""
    splits = plan(filled.root)
    pushed = push_down(splits, selection, PushdownOptions(index_sizes=INDEX_SIZES))
    size = sum(map(len, splits))
    found = pushed.stores.get(str(filled.root), PushedFilters()).texts
    assert found == [text.format(whole=size) for text in texts]


def test_nothing_is_left_to_read_in_vain(filled: StoreDirectory) -> None:
    """Neither parts without a byte, nor any part when no queue is wanted."""
    splits, options = plan(filled.root), PushdownOptions(index_sizes=INDEX_SIZES)
    nobody = Selection(frozenset({"Orders"}), queue_ids=frozenset())
    assert push_down(splits, nobody, options).splits == []
    for keys in ({"k0"}, {"k0", "k70"}, {"k158", "k159"}):
        pushed = push_down(splits, Selection(frozenset({"Orders"}), keys=frozenset(keys)), options)
        assert 0 < len(pushed.splits) <= len(keys)
        assert all(map(len, pushed.splits))


def test_index_and_queues_serve_different_parts_of_a_log(filled: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """Where the last index files are missing, queues tell more than they; no part is without a byte."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    for path in sorted((root / "index").iterdir())[3:]:
        path.unlink()
    selection = Selection(frozenset({"Rare"}), keys=frozenset({"k7", "k87", "other"}))
    pushed = push_down(plan(root), selection, PushdownOptions(index_sizes=INDEX_SIZES))
    texts = [text.partition(":")[0] for text in pushed.stores[str(root)].texts]
    assert texts == ["key in (k7, k87, other)", "topic in (Rare)"]
    assert all(map(len, pushed.splits))
    assert {type(split.candidates) for split in pushed.splits} == {IndexCandidates, QueueCandidates}
    assert read(pushed.splits, selection)[0] == read(plan(root), selection)[0]


def test_index_is_used_though_a_queue_is_not_understood(filled: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """Any of them tells of what kind the topic's queues are; topics without one are not looked for in the index."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    (root / "consumequeue" / "Orders" / "0" / f"{1:020d}").write_bytes(b"x")
    for topic, is_used in (("Orders", True), ("Other", False)):
        pushed = push_down(
            plan(root), replace(FIVE, topics=frozenset({topic})), PushdownOptions(index_sizes=INDEX_SIZES)
        )
        texts = pushed.stores.get(str(root), PushedFilters()).texts
        assert [text[:6] for text in texts] == (["key in"] if is_used else [])


def test_offsets_that_must_be_read_are_those_of_plain_selections(filled: StoreDirectory) -> None:
    """With tags, keys or times, nobody knows before which of them are rows."""
    splits, topics = plan(filled.root), frozenset({"Rare"})
    for selection, count in (
        (Selection(topics), 2),
        (Selection(topics, frozenset({"Aa"})), 0),
        (Selection(topics, keys=frozenset({"Aa"})), 0),
        (Selection(topics, from_ms=1), 0),
        (Selection(topics, until_ms=1 << 50), 0),
    ):
        assert len(push_down(splits, selection).stores[str(filled.root)].expected) == count


def test_neighbours_join_up_to_a_number_of_entries(filled: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one file; what is between them is in the join."""
    splits, selection = plan(filled.root, 700), Selection(frozenset({"Orders"}))
    counts: dict[int, int] = {}
    for most in (0, 6, 7, 10_000):
        monkeypatch.setattr("rocketlet.export.pushdown.pushdown._MOST_CANDIDATES", most)
        pushed = push_down(splits, selection).splits
        sizes = [one.candidates.count for one in pushed if isinstance(one.candidates, QueueCandidates)]
        assert sum(sizes) == 141
        assert most == 0 or all(size <= most for size in sizes)
        assert most != 7 or max(sizes) == most
        assert len(sizes) == len(pushed)
        counts[most] = len(pushed)
        assert len(read(pushed, selection)[0]) == 141
    assert counts[10_000] == len({split.path for split in splits})
    assert counts[0] > counts[6] > counts[10_000]


def test_planned_report_holds_what_is_known_before() -> None:
    """Damage and ends of stores, what was pushed down and expected, what was lost, and what was skipped."""
    damage, stop = StoreDamagedError("bad", path="f", position=3), LogStop("f", 9, "zeros", None)
    made = Plan(
        [], {"a": damage}, {"a": stop, "b": stop}, [MissingBytes("c", "f", 1, 2, "gone")], {"b": {("T", 1): (4, 6)}}
    )
    narrowed = {"b": PushedFilters(["topic in (T)"], [(("T", 0), 2, 5), (("T", 2), 5, 5)])}
    report = planned_report(made, narrowed, ["tags = a"], checks_crc=False)
    assert not report.checks_crc
    assert planned_report(made, {}).checks_crc
    found = {counters.store: counters for counters in report.stores}
    assert list(found) == ["a", "b", "c"]
    assert (found["a"].damage, found["a"].end, found["b"].end) == (damage, None, stop)
    assert (found["a"].pushed, found["b"].pushed) == ([], ["tags = a", "topic in (T)"])
    assert {key: list(queue.expected) for key, queue in found["b"].queues.items()} == {
        ("T", 0): [(2, 5)],
        ("T", 1): [(4, 6)],
    }
    assert found["c"].skipped == [("f", 1, 2, "gone")]
