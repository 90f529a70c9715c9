"""The queues of a store: which directories can be used, which kind a topic has, which queues there are."""

import json
import pathlib
import re
import struct
from collections.abc import Callable

import pytest
from stores import StoreDirectory

from rocketlet.common.errors import ConfigError
from rocketlet.store.consumequeue.batch_queue import BatchQueue, encode_unit
from rocketlet.store.consumequeue.consume_queue import ENTRY, ConsumeQueue, QueueSpace
from rocketlet.store.consumequeue.queue_table import (
    BatchQueueTable,
    ExtQueues,
    ExtUnit,
    QueueTable,
    batch_space,
    check_kinds,
    is_same_entry,
    load_batch_topics,
)
from rocketlet.store.files.files import OS_FILES, Descriptors

SIZES = {"T": 200, "B": 460}
FOLDERS = {"T": "consumequeue", "B": "batchconsumequeue"}


@pytest.fixture
def table(tmp_path: pathlib.Path, descriptors: Descriptors) -> QueueTable:
    """Give the queues of a store with ten entries in each file of either kind, not yet looked for."""
    config = StoreDirectory(tmp_path, queue_file_bytes=200, batch_file_bytes=460).config
    space = QueueSpace(OS_FILES, f"{tmp_path}/consumequeue", config.queue_file_bytes, descriptors)
    return QueueTable(space, BatchQueueTable(batch_space(config, space)))


def load(table: QueueTable, topic: str) -> ConsumeQueue | BatchQueue:
    """Look for the queues of one kind and return queue 0 of its topic."""
    (table if topic == "T" else table.batches).load()
    queue = table.get(topic, 0)
    assert queue is not None
    return queue


def make_files(root: pathlib.Path, topic: str, files: list[tuple[str, int]]) -> pathlib.Path:
    """Make files of a queue, by name and size, which are full of entries."""
    folder = root / FOLDERS[topic] / topic / "0"
    folder.mkdir(parents=True)
    for name, size in files:
        (folder / name).write_bytes(b"\1" * size)
    return folder


def name(number: int, size: int) -> str:
    """Return the name of a file by its number."""
    return f"{number * size:020d}"


LAYOUTS: dict[str, Callable[[int], tuple[list[tuple[str, int]], int | None]]] = {
    "none": lambda size: ([], 0),
    "first": lambda size: ([(name(0, size), size)], 1),
    "two": lambda size: ([(name(0, size), size), (name(1, size), size)], 2),
    "later": lambda size: ([(name(7, size), size), (name(8, size), size)], 2),
    "cut-off creation": lambda size: ([(name(0, size), size), (name(1, size), 0)], 1),
    "cut-off creation alone": lambda size: ([(name(0, size), 0)], 0),
    "empty first": lambda size: ([(name(0, size), 0), (name(1, size), size)], None),
    "gap": lambda size: ([(name(0, size), size), (name(2, size), size)], None),
    "no multiple": lambda size: ([(f"{size // 2:020d}", size)], None),
    "short": lambda size: ([(name(0, size), size), (name(1, size), size - 1)], None),
    "single short": lambda size: ([(name(0, size), size - 1)], None),
    "one byte": lambda size: ([(name(0, size), size), (name(1, size), 1)], None),
    "long": lambda size: ([(name(0, size), size), (name(1, size), size + 20)], None),
    "letters": lambda size: ([("x" * 20, size)], None),
    "letters behind": lambda size: ([(name(0, size), size), ("x" * 20, size)], None),
    "other digits": lambda size: ([("²" * 20, size)], None),
    "few digits": lambda size: ([("0", size)], None),
    "many digits": lambda size: ([("1" + "0" * 24, size)], None),
}


@pytest.mark.parametrize("topic", ["T", "B"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_directory_of_a_queue_is_used_or_broken(
    layout: str, topic: str, table: QueueTable, tmp_path: pathlib.Path
) -> None:
    """Used are files of the right size that follow each other; a last one of 0 bytes is removed first."""
    files, expected = LAYOUTS[layout](SIZES[topic])
    folder = make_files(tmp_path, topic, files)
    (folder / "directory").mkdir()
    queue = load(table, topic)
    broken = table.broken if topic == "T" else table.batches.broken
    slots = queue.slots if isinstance(queue, BatchQueue) else queue
    assert broken == ([queue] if expected is None else [])
    left = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    assert left == [name for name, size in files if size or name != files[-1][0]]
    used = left if expected else []
    assert [pathlib.Path(path).name for path in slots.paths()] == used
    if not broken:
        assert slots.max_offset == (int(used[-1]) // SIZES[topic] * 10 + 10 if used else 0)


@pytest.mark.parametrize("topic", ["T", "B"])
@pytest.mark.parametrize("entries", [1, 10, 11, 25])
def test_queues_are_found_with_their_ends(entries: int, topic: str, table: QueueTable, tmp_path: pathlib.Path) -> None:
    """What was written to them is there; other names than numbers are no queues."""
    queue = table.obtain(topic, 0) if topic == "T" else table.batches.obtain(topic, 0)
    for number in range(entries):
        entry = (100 * number, 100, 0)
        queue.pending.extend(ENTRY.pack(*entry) if topic == "T" else encode_unit(entry, 1, number, 1))
    queue.write_pending()
    for other in ("x", "²", "-1"):
        (tmp_path / FOLDERS[topic] / topic / other).mkdir()
    (tmp_path / FOLDERS[topic] / topic / "5").touch()
    (tmp_path / FOLDERS[topic] / "file").touch()
    again = QueueTable(table.space, BatchQueueTable(table.batches.space))
    assert (load(again, topic).min_offset, load(again, topic).max_offset) == (0, entries)
    assert [(one.topic, one.queue_id) for one in (*again, *again.batches)] == [(topic, 0)]
    assert again.batch_topics == ({"B"} if topic == "B" else set())
    assert not again.broken
    assert not again.batches.broken


@pytest.mark.parametrize(
    ("topic", "sizes", "is_setting"),
    [
        ("T", [180, 180], True),
        ("T", [190, 190], False),
        ("T", [220], True),
        ("T", [180], False),
        ("T", [220, 200], False),
        ("T", [180, 180, 0], True),
        ("B", [414], True),
        ("B", [414, 414], True),
        ("B", [413, 413], False),
        ("B", [414, 460], False),
        ("B", [506, 0], True),
    ],
)
def test_files_of_another_setting_stop_the_start(
    topic: str, sizes: list[int], is_setting: bool, table: QueueTable, tmp_path: pathlib.Path
) -> None:
    """They all have one other size that a setting may have; all else is damage."""
    folder = make_files(tmp_path, topic, [(name(number, sizes[0]), size) for number, size in enumerate(sizes)])
    if not is_setting:
        queue = load(table, topic)
        assert [*table.broken, *table.batches.broken] == [queue]
        return
    key = "mappedFileSizeConsumeQueue" if topic == "T" else "mapperFileSizeBatchConsumeQueue"
    where = folder.parent.parent if topic == "T" else folder
    words = f"the files in {where} have {sizes[0]} bytes, {key} is {SIZES[topic]}"
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}$") as caught:
        load(table, topic)
    assert caught.value.key == key


def test_queues_leave_and_stay(table: QueueTable) -> None:
    """While one leaves nobody finds it; one that could not be removed is there again, among its kind."""
    plain, batch = table.obtain("T", 1), table.batches.obtain("B", 1)
    assert (table.obtain("T", 1), table.batches.obtain("B", 1)) == (plain, batch)
    assert (table.get("T", 1), table.get("B", 1), table.get("T", 2)) == (plain, batch, None)
    for queue in (plain, batch):
        table.leave(queue)
        table.leave(queue)
    assert (table.get("T", 1), table.get("B", 1), table.leaving) == (None, None, {("T", 1), ("B", 1)})
    for queue in (plain, batch):
        table.stay(queue)
    assert (list(table), list(table.batches), table.leaving) == ([plain], [batch], set())
    assert (repr(table), repr(table.batches)) == ("<QueueTable 1>", "<BatchQueueTable 1 of 0 topics>")


def test_topic_is_of_one_kind(table: QueueTable) -> None:
    """One that has queues stays as it is, and those that were to change with it; a deleted one may become the other."""
    table.obtain("T", 0)
    with pytest.raises(ConfigError, match=r"^topic T has queues that are no batch queues$"):
        table.set_batch_topics(["B", "T"])
    assert table.batch_topics == set()
    table.remove_topic("T")
    table.set_batch_topics(["T"])
    assert table.batch_topics == {"T"}
    table.remove_topic("T")
    assert table.batch_topics == set()


def test_topics_that_are_not_listed_are_deleted_ones(table: QueueTable) -> None:
    """Where no list is known, nothing is known about that."""
    assert not table.is_deleted("T")
    table.known_topics = frozenset({"T"})
    assert [table.is_deleted(topic) for topic in ("T", "X")] == [False, True]


@pytest.mark.parametrize("topic", ["T", "B"])
def test_cleared_queue_has_no_files(topic: str, table: QueueTable, tmp_path: pathlib.Path) -> None:
    """Whatever lies in its directory goes, but not what lies in others; it begins anew at 0."""
    folder = make_files(tmp_path, topic, [("x" * 20, 10), ("y", 3)])
    other = make_files(tmp_path, "B" if topic == "T" else "T", [("kept", 1)])
    queue = load(table, topic)
    queue.begin_at(7)
    table.space.new_directories.clear()
    table.clear(queue)
    assert list(folder.iterdir()) == []
    assert [path.name for path in other.iterdir()] == ["kept"]
    assert (queue.max_offset, queue.next_offset, table.space.new_directories) == (0, 0, {str(folder)})


@pytest.mark.parametrize("topic", ["T", "B"])
def test_removed_topic_leaves_nothing(topic: str, table: QueueTable, tmp_path: pathlib.Path) -> None:
    """Neither files nor directories nor queues; other topics, also of the other kind, stay."""
    for key in (("T", 0), ("T", 3), ("U", 0)):
        table.obtain(*key)
    for key in (("B", 0), ("C", 0)):
        table.batches.obtain(*key)
        table.batches.topics.add(key[0])
    for queue in table:
        queue.pending.extend(ENTRY.pack(0, 1, 0))
        queue.write_pending()
    for queue in table.batches:
        queue.pending.extend(encode_unit((0, 1, 0), 1, 0, 1))
        queue.write_pending()
    make_foreign = tmp_path / FOLDERS[topic] / topic / "0" / "foreign"
    make_foreign.touch()
    table.remove_topic(topic)
    left = {(queue.topic, queue.queue_id) for queue in (*table, *table.batches)}
    assert left == {("T", 0), ("T", 3), ("U", 0), ("B", 0), ("C", 0)} - {(topic, 0), (topic, 3)}
    assert table.batch_topics == {"B", "C"} - {topic}
    assert not [path for path in table.space.dirty_paths.take() if f"/{topic}/" in path]
    names = {path.name for kind in FOLDERS.values() for path in (tmp_path / kind).iterdir()}
    assert names == {"T", "U", "B", "C"} - {topic}


# --- the kinds of topics


def test_kinds_are_those_of_the_topics(tmp_path: pathlib.Path) -> None:
    """Whatever else stands there: only BatchCQ among the attributes makes a topic one with batch queues."""
    assert load_batch_topics(OS_FILES, str(tmp_path)) == {}
    (tmp_path / "config").mkdir()
    table = {
        "Plain": {},
        "Batch": {"attributes": {"queue.type": "BatchCQ"}},
        "Simple": {"attributes": {"queue.type": "SimpleCQ"}},
        "Odd": {"attributes": ["queue.type"]},
    }
    path = tmp_path / "config" / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": table}))
    assert load_batch_topics(OS_FILES, str(tmp_path)) == {topic: topic == "Batch" for topic in table}
    for content in ("[]", "{}", '{"topicConfigTable":[]}'):
        path.write_text(content)
        assert load_batch_topics(OS_FILES, str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("folder", "is_batch", "is_wrong"),
    [
        ("consumequeue/T/0", True, True),
        ("consumequeue/T/0", False, False),
        ("consumequeue/T/0", None, False),
        ("consumequeue/T", True, False),
        ("batchconsumequeue/T/0", False, True),
        ("batchconsumequeue/T/0", True, False),
        ("batchconsumequeue/T/0", None, False),
        ("batchconsumequeue/T", False, False),
    ],
)
def test_queues_of_the_other_kind_stop_the_start(
    folder: str, is_batch: bool | None, is_wrong: bool, tmp_path: pathlib.Path
) -> None:
    """Queues in the directory of the other kind do; an empty directory and a topic that is not listed do not."""
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "batchconsumequeue").mkdir(exist_ok=True)
    (tmp_path / "batchconsumequeue" / "U").touch()
    kinds = {"U": False, "V": True} | ({} if is_batch is None else {"T": is_batch})
    if not is_wrong:
        check_kinds(OS_FILES, str(tmp_path), kinds)
        return
    kind = folder.partition("/")[0]
    words = f"{tmp_path}/{kind}/T cannot be used: {tmp_path}/config/topics.json says the other queue.type for topic T"
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}$") as caught:
        check_kinds(OS_FILES, str(tmp_path), kinds)
    assert caught.value.key == "storePathRootDir"


# --- extended entries


@pytest.mark.parametrize(("code", "is_address"), [(-2_147_483_649, True), (-2_147_483_648, False)])
def test_codes_below_every_hash_are_addresses(code: int, is_address: bool, tmp_path: pathlib.Path) -> None:
    """The least hash is a code; what is below names a unit, which may be missing: then all is let through."""
    assert is_same_entry(ENTRY.pack(5, 100, code), ENTRY.pack(5, 100, 7)) == is_address
    units = ExtQueues(OS_FILES, str(tmp_path), Descriptors(OS_FILES, 8))
    assert units.resolve("T", 0, code) == (None if is_address else code)
    assert units.accepting("T", 0, lambda _: False)(code) == is_address


@pytest.mark.parametrize(
    ("head", "bitmap", "is_whole"),
    [
        ((20, 0), b"", True),
        ((21, 1), b"x", True),
        ((20, -1), b"", True),
        ((21, 0), b"", False),
        ((20, 1), b"x", False),
        ((22, 2), b"x", False),
        ((21, 2), b"x", False),
        ((-1, 0), b"", False),
    ],
)
def test_unit_is_whole_or_none(
    head: tuple[int, int], bitmap: bytes, is_whole: bool, tmp_path: pathlib.Path, descriptors: Descriptors
) -> None:
    """Its size is that of head and bitmap, both of which are there; a negative length means no bitmap."""
    folder = tmp_path / "T" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(100))
    (folder / f"{100:020d}").write_bytes(
        bytes(100 - 20 - len(bitmap)) + struct.pack(">hqqh", head[0], 7, 8, head[1]) + bitmap
    )
    address = -(2**63) + 200 - 20 - len(bitmap)
    expected = ExtUnit(7, 8, bitmap) if is_whole else None
    assert ExtQueues(OS_FILES, str(tmp_path), descriptors).unit("T", 0, address) == expected


def test_unit_at_the_last_address_is_read(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Though a queue would have to be very long to have one there; what is above is a hash."""
    place = 2**63 - 2_147_483_649
    base, position = place - place % 1_000, place % 1_000
    folder = tmp_path / "T" / "0"
    folder.mkdir(parents=True)
    content = bytes(position) + struct.pack(">hqqh", 20, 7, 8, 0) + struct.pack(">hqqh", 20, 9, 8, 0)
    (folder / f"{base:020d}").write_bytes(content.ljust(1_000, b"\0"))
    units = ExtQueues(OS_FILES, str(tmp_path), descriptors)
    assert units.unit("T", 0, -2_147_483_649) == ExtUnit(7, 8, b"")
    assert units.unit("T", 0, -2_147_483_648) is None


def test_units_of_a_removed_topic_are_gone(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Files that are made in their place are read, not those that were open; other topics stay."""
    units = ExtQueues(OS_FILES, str(tmp_path), descriptors)
    for code in (7, 9):
        for topic in ("T", "U"):
            (tmp_path / topic / "0").mkdir(parents=True, exist_ok=True)
            content = struct.pack(">hqqh", 20, code, 8, 0)
            if not (tmp_path / topic / "0" / f"{0:020d}").exists():
                (tmp_path / topic / "0" / f"{0:020d}").write_bytes(content)
        assert [units.resolve(topic, 0, -(2**63)) for topic in ("T", "U")] == [code, 7]
        units.remove_topic("T")
        assert [path.name for path in tmp_path.iterdir()] == ["U"]
        assert units.resolve("T", 0, -(2**63)) is None
    units.remove_topic("T")


def test_each_coming_and_going_of_a_queue_is_counted(table: QueueTable) -> None:
    """Of either kind, and also when one leaves and stays after all; a look-up of one that is there is not."""
    queue = table.obtain("T", 0)
    batch = table.batches.obtain("B", 0)
    steps: list[Callable[[], object]] = [
        lambda: table.obtain("T", 1),
        lambda: table.batches.obtain("B", 1),
        lambda: table.leave(queue),
        lambda: table.stay(queue),
        lambda: table.leave(batch),
        lambda: table.stay(batch),
        lambda: table.remove_topic("T"),
        lambda: table.batches.remove_topic("B"),
    ]
    seen = {table.change_count}
    for number, step in enumerate(steps, 2):
        step()
        seen.add(table.change_count)
        assert len(seen) == number
    table.obtain("T", 0)
    count = table.change_count
    table.obtain("T", 0)
    assert (table.get("B", 0), table.change_count) == (None, count)
