"""Queues of a store that is only read are believed as far as they can be, and no further."""

import pathlib
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence

import pytest
from pushing import configure, fill, plan
from stores import TINY, StoreDirectory, new_record

from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.export.plan import store_queues
from rocketlet.export.plan.read_plan import PlanOptions, plan_stores
from rocketlet.export.plan.split import PlannedLog
from rocketlet.export.plan.store_queues import MARGIN_MS, QueueView, StoreQueues, numbers, open_queue
from rocketlet.store.consumequeue.consume_queue import PRE_BLANK_SIZE
from rocketlet.store.files.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rocketlet.store.files.files import OS_FILES

ENTRY_BYTES = 20
FILE_ENTRIES = TINY["queue_file_bytes"] // ENTRY_BYTES
END = 10_000
Entry = tuple[int, int]


def entries_of(*entries: Entry) -> bytes:
    """Return entries of a queue, by log offset and size."""
    return b"".join(struct.pack(">qiq", at, size, 7) for at, size in entries)


def evenly(first: int, stop: int) -> list[Entry]:
    """Return entries of records of 100 bytes, which follow each other."""
    return [(100 * number, 100) for number in range(first, stop)]


def write_queue(home: pathlib.Path, files: Mapping[int, Sequence[Entry] | bytes], size: int = 200) -> None:
    """Write the files of queue 3 of topic T, by the number of their first entry."""
    directory = home / "consumequeue" / "T" / "3"
    directory.mkdir(parents=True, exist_ok=True)
    for first, content in files.items():
        data = content if isinstance(content, bytes) else entries_of(*content)
        (directory / f"{first * ENTRY_BYTES:020d}").write_bytes(data.ljust(size, b"\0"))


@pytest.mark.parametrize(
    ("files", "believed"),
    [
        ({0: []}, (0, 0)),
        ({0: evenly(0, 1)}, (0, 1)),
        ({0: evenly(0, 10)}, (0, 10)),
        ({0: evenly(0, 10), 10: []}, (0, 10)),
        ({0: evenly(0, 10), 10: evenly(10, 11)}, (0, 11)),
        ({0: evenly(0, 10), 10: evenly(10, 20), 20: evenly(20, 23)}, (0, 23)),
        ({20: evenly(20, 30), 30: evenly(30, 32)}, (20, 32)),
        ({20: []}, (20, 20)),
        # what lies behind the end of the log, before its predecessor, or is none
        ({0: [*evenly(0, 3), (END - 99, 100)]}, (0, 3)),
        ({0: [*evenly(0, 3), (END - 100, 100)]}, (0, 4)),
        ({0: [*evenly(0, 3), (200, 100), (700, 100)]}, (0, 3)),
        ({0: [*evenly(0, 3), (199, 100)]}, (0, 3)),
        ({0: [*evenly(0, 3), (300, -1), (700, 100)]}, (0, 3)),
        ({0: [*evenly(0, 3), (300, 1)]}, (0, 4)),
        ({0: [(-1, 100)]}, (0, 0)),
        ({0: [(5_000, 5_001)]}, (0, 0)),
        # entries that only fill up
        ({0: [(0, PRE_BLANK_SIZE)] * 3 + evenly(3, 5)}, (3, 5)),
        ({0: [(0, PRE_BLANK_SIZE)] * 9 + evenly(9, 10), 10: evenly(10, 12)}, (9, 12)),
        ({10: [(0, PRE_BLANK_SIZE)] * 2 + evenly(12, 20)}, (12, 20)),
    ],
)
def test_entries_are_believed_up_to_the_first_that_is_none(
    tmp_path: pathlib.Path, files: dict[int, Sequence[Entry]], believed: tuple[int, int]
) -> None:
    """Slots are counted over files from the first one that there is."""
    write_queue(tmp_path, files)
    queue = open_queue(str(tmp_path), "T", 3, END)
    assert queue is not None
    assert (queue.topic, queue.queue_id, queue.is_batch) == ("T", 3, False)
    assert (queue.first, queue.stop) == believed
    entries = queue.read(*believed)
    assert entries is not None
    assert len(entries) == believed[1] - believed[0]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {0: [*evenly(0, 3), (0, 0), *evenly(4, 5)]},
        {0: [*evenly(0, 3), (0, 0), (0, 0), (0, -1)]},
        {0: [(0, PRE_BLANK_SIZE)] * 10},
        {0: evenly(0, 10), 20: evenly(20, 21)},
        {0: evenly(0, 10), 10: entries_of(*evenly(10, 20)) + bytes(20)},
        {0: evenly(0, 10), 10: entries_of(*evenly(10, 20)) + bytes(20), 20: evenly(20, 21)},
        {0: bytes(210)},
    ],
    ids=["no file", "hole", "hole before what is none", "only fill", "gap", "last longer", "one longer", "odd size"],
)
def test_queue_that_is_not_understood_is_unknown(tmp_path: pathlib.Path, files: dict[int, Sequence[Entry]]) -> None:
    """Nothing is known of it then."""
    write_queue(tmp_path, files)
    assert open_queue(str(tmp_path), "T", 3, END) is None


def test_queue_of_empty_files_is_unknown(tmp_path: pathlib.Path) -> None:
    """A file without bytes says nothing, nor does a queue that is a file."""
    write_queue(tmp_path, {0: b""}, size=0)
    assert open_queue(str(tmp_path), "T", 3, END) is None
    (tmp_path / "consumequeue" / "T" / "4").touch()
    assert open_queue(str(tmp_path), "T", 4, END) is None
    assert open_queue(str(tmp_path), "T", 5, END) is None


def test_last_file_may_be_short(tmp_path: pathlib.Path) -> None:
    """As in a copy that was cut; other files and names beside them do not disturb."""
    write_queue(tmp_path, {0: evenly(0, 10)})
    write_queue(tmp_path, {10: evenly(10, 13)}, size=60)
    for name in ("x" * 20, "1" * 19, "1" * 21, "٣" * 20):
        (tmp_path / "consumequeue" / "T" / "3" / name).touch()
    queue = open_queue(str(tmp_path), "T", 3, END)
    assert queue is not None
    assert (queue.first, queue.stop) == (0, 13)


@pytest.mark.parametrize(("first", "stop"), [(0, 23), (3, 10), (9, 11), (10, 20), (22, 23), (5, 5)])
def test_slots_are_read_over_files(tmp_path: pathlib.Path, first: int, stop: int) -> None:
    """Their entries come in order, and nothing where a file was cut or is gone meanwhile."""
    write_queue(tmp_path, {0: evenly(0, 10), 10: evenly(10, 20), 20: evenly(20, 23)})
    queue = open_queue(str(tmp_path), "T", 3, END)
    assert queue is not None
    entries = queue.read(first, stop)
    assert entries is not None
    assert numbers(entries, "log_offset").tolist() == [100 * number for number in range(first, stop)]
    assert set(numbers(entries, "size").tolist()) <= {100}
    path = tmp_path / "consumequeue" / "T" / "3" / f"{(stop - 1) // 10 * 200:020d}"
    if first < stop:
        path.write_bytes(path.read_bytes()[: (stop - 1) % 10 * 20 + 19])
        assert queue.read(first, stop) is None
        path.unlink()
        assert queue.read(first, stop) is None


@pytest.mark.parametrize("at", range(3))
def test_file_that_is_deleted_while_it_is_read_makes_the_queue_unknown(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Whichever of the readings does not find it."""
    write_queue(tmp_path, {0: evenly(0, 10), 10: []})
    calls: list[str] = []
    read = store_queues.np.fromfile

    def read_or_fail(path: str, *arguments: object, **options: object) -> object:
        calls.append(path)
        if len(calls) > at:
            raise FileNotFoundError(path)
        return read(path, *arguments, **options)  # type: ignore[call-overload] # passed on

    monkeypatch.setattr(store_queues.np, "fromfile", read_or_fail)
    assert open_queue(str(tmp_path), "T", 3, END) is None
    assert len(calls) == at + 1


def view_of(home: pathlib.Path) -> QueueView:
    """Return the queue that a test has written."""
    queue = open_queue(str(home), "T", 3, END)
    assert queue is not None
    return QueueView(queue)


def test_view_searches_by_log_offset(tmp_path: pathlib.Path) -> None:
    """The first slot whose record begins at a place or behind it is found, from a slot on if that is given."""
    write_queue(tmp_path, {10: evenly(10, 20), 20: evenly(20, 23)})
    view = view_of(tmp_path)
    found = [view.first_at(at) for at in (0, 1_000, 1_001, 1_100, 1_950, 2_200, 2_201, 9_999)]
    assert found == [10, 10, 11, 11, 20, 22, 23, 23]
    assert [view.first_at(at, 15) for at in (0, 1_500, 1_501)] == [15, 15, 16]
    assert [(view.log_offset(slot), view.record_end(slot)) for slot in (10, 20)] == [(1_000, 1_100), (2_000, 2_100)]
    assert view.end_offset == 23


@pytest.mark.parametrize(
    ("files", "sure_from"), [({0: evenly(0, 2)}, 0), ({0: []}, 0), ({10: evenly(10, 12)}, 1_000), ({10: []}, None)]
)
def test_queue_is_sure_from_its_first_entry_on(
    tmp_path: pathlib.Path, files: dict[int, Sequence[Entry]], sure_from: int | None
) -> None:
    """From the start of the log if it begins at 0; without an entry it says nothing then."""
    write_queue(tmp_path, files)
    assert view_of(tmp_path).sure_from == sure_from


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> StoreDirectory:
    """Return a store that was cleanly closed."""
    directory = StoreDirectory(tmp_path_factory.mktemp("queues") / "store")
    fill(directory)
    return directory


@pytest.fixture
def root(original: StoreDirectory, tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a copy of it."""
    return pathlib.Path(shutil.copytree(original.root, tmp_path / "store"))


def queues_of(root: pathlib.Path) -> StoreQueues:
    """Return the queues of a store."""
    return StoreQueues(str(root), PlannedLog(plan(root, 1 << 20)))


def clear_last(root: pathlib.Path, topic: str, queue_id: int, count: int = 1) -> Iterator[Entry]:
    """Fill the last entries of a queue with zeros, and yield where their records began and ended."""
    for _ in range(count):
        files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
        path = next(path for path in reversed(files) if path.read_bytes().strip(b"\0"))
        content = path.read_bytes()
        last = max(at for at in range(0, len(content), ENTRY_BYTES) if any(content[at : at + ENTRY_BYTES]))
        at, size, _ = struct.unpack_from(">qiq", content, last)
        path.write_bytes(content[:last].ljust(len(content), b"\0"))
        yield at, at + size


def test_queues_of_a_closed_store_know_the_log_up_to_their_last_record(root: pathlib.Path) -> None:
    """All of it, or up to what the last entry names; a queue without entries takes nothing away."""
    log = PlannedLog(plan(root, 1 << 20))
    assert queues_of(root).sure_until([]) == log.end
    (root / "consumequeue" / "Orders" / "9").mkdir()
    (root / "consumequeue" / "Orders" / "9" / f"{0:020d}").write_bytes(bytes(200))
    assert queues_of(root).sure_until([]) == log.end
    ((begin, end),) = clear_last(root, "%RETRY%group", 0)
    assert end == log.end
    assert queues_of(root).sure_until([]) == begin


def test_closed_store_whose_queues_name_nothing_knows_nothing(root: pathlib.Path) -> None:
    """As one whose queues are elsewhere."""
    shutil.rmtree(root / "consumequeue")
    assert queues_of(root).sure_until([]) == 0


def test_file_that_begins_with_damage_takes_nothing_away(root: pathlib.Path) -> None:
    """What is not there is in no queue."""
    path = sorted((root / "commitlog").iterdir())[1]
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    splits = plan_stores([str(root)], PlanOptions(split_bytes=1 << 20, skips_damage=True))
    queues = StoreQueues(str(root), PlannedLog(splits))
    assert queues.sure_until([]) == queues.log.end


def test_file_that_begins_where_the_sure_part_ends_is_not_asked(root: pathlib.Path) -> None:
    """Of a killed store; its queues may not have been flushed."""
    log = PlannedLog(plan(root, 1 << 20))
    last = [record for _, record in log.first_records() if record is not None][-1]
    (root / "abort").touch()
    sure_at_ms = last.stored_at_ms + MARGIN_MS + 3_000
    path = str(root / "checkpoint")
    checkpoint = load_checkpoint(OS_FILES, path)
    save_checkpoint(OS_FILES, path, checkpoint._replace(log_at_ms=sure_at_ms, queues_at_ms=sure_at_ms))
    assert queues_of(root).sure_until([]) == last.log_offset
    view = queues_of(root).view(last.topic, last.queue_id)
    assert view is not None
    list(clear_last(root, last.topic, last.queue_id, view.files.stop - last.queue_offset))
    assert queues_of(root).sure_until([]) == last.log_offset


@pytest.mark.parametrize(("most", "is_judged"), [(6, True), (5, False)])
def test_very_many_queues_are_not_all_opened(
    root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, most: int, is_judged: bool
) -> None:
    """Of a closed store with more queues than are asked, all is taken to be known."""
    monkeypatch.setattr(store_queues, "_MOST_OPENED", most)
    ((begin, end),) = clear_last(root, "%RETRY%group", 0)
    assert queues_of(root).sure_until([]) == (begin if is_judged else end)


def test_queue_that_lacks_the_first_record_of_a_file_ends_what_is_known(root: pathlib.Path) -> None:
    """From the end of that queue on nothing is known; without an entry at all, from the start."""
    files = sorted((root / "commitlog").iterdir())
    last = int([path for path in files if path.read_bytes().strip(b"\0")][-1].name)
    record = PlannedLog(plan(root, 1 << 20)).record_at(last)
    assert record is not None
    queue = queues_of(root).view(record.topic, record.queue_id)
    assert queue is not None
    behind = queue.files.stop - record.queue_offset
    cleared = list(clear_last(root, record.topic, record.queue_id, behind - 1))
    assert queues_of(root).sure_until([]) > last
    cleared += clear_last(root, record.topic, record.queue_id)
    assert cleared[-1][0] == last
    before = queues_of(root).view(record.topic, record.queue_id)
    assert before is not None
    assert queues_of(root).sure_until([]) == before.record_end(record.queue_offset - 1) < last


def test_flushed_part_of_a_killed_store_is_known(tmp_path: pathlib.Path) -> None:
    """Up to the last record that is older than the checkpoint by a margin, of any of the asked queues."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=1 << 16)
    fill(directory, step_ms=1_000)
    directory.abort.touch()
    queues = queues_of(directory.root)
    record = queues.log.record_at(queues.view("Orders", 1).log_offset(20))  # type: ignore[union-attr] # it is there
    assert record is not None
    path = str(directory.root / "checkpoint")
    checkpoint = load_checkpoint(OS_FILES, path)
    sure_at_ms = record.stored_at_ms + MARGIN_MS + 3_000
    for late_ms, last in ((-1, 19), (0, 20), (2_999, 20), (3_000, 21)):
        times = checkpoint._replace(log_at_ms=sure_at_ms + late_ms, queues_at_ms=sure_at_ms + late_ms)
        save_checkpoint(OS_FILES, path, times)
        queues = queues_of(directory.root)
        view = queues.view("Orders", 1)
        assert view is not None
        assert queues.sure_until([view]) == view.record_end(last)
    assert queues_of(directory.root).sure_until([]) == 0
    save_checkpoint(OS_FILES, path, Checkpoint())
    assert queues_of(directory.root).sure_until([view]) == 0


def test_marks_of_the_store(root: pathlib.Path) -> None:
    """It is closed without the file abort; a checkpoint that cannot be read says nothing."""
    assert queues_of(root).is_closed
    assert queues_of(root).checkpoint.log_at_ms > 0
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()
    assert not queues_of(root).is_closed
    assert queues_of(root).checkpoint == Checkpoint()


def test_topics_and_queues_of_a_store(root: pathlib.Path) -> None:
    """Topics are known by their queues or by the configuration, queues by their directories."""
    configure(root, {"Orders": 3, "Empty": 4})
    (root / "batchconsumequeue" / "Batches" / "7").mkdir(parents=True)
    (root / "consumequeue" / "Orders" / "x").mkdir()
    queues = queues_of(root)
    assert [queues.knows(topic) for topic in ("Orders", "Rare", "Empty", "Batches", "Order")] == [True] * 4 + [False]
    assert queues.known_topics() == {"Orders", "Rare", "Empty", "Batches", "%RETRY%group"}
    assert set(queues.every_queue()) == {
        *(("Orders", number) for number in range(3)),
        ("Rare", 0),
        ("Rare", 1),
        ("%RETRY%group", 0),
        ("Batches", 7),
    }
    assert sorted(queues.queue_ids("Orders")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("topics", "has_every_queue", "of_orders"),
    [
        ({"Orders": 3, "Rare": 2, "%RETRY%group": 1}, True, [0, 1, 2]),
        ({"Orders": 2, "Rare": 2, "%RETRY%group": 1}, True, [0, 1, 2]),
        ({"Orders": 4, "Rare": 2, "%RETRY%group": 1}, False, None),
        ({"Orders": 3, "Rare": 2}, False, [0, 1, 2]),
        ({"Rare": 2, "%RETRY%group": 1}, False, None),
    ],
)
def test_queues_that_a_topic_should_have(
    root: pathlib.Path, topics: dict[str, int], has_every_queue: bool, of_orders: list[int] | None
) -> None:
    """One that has no files, and a topic that is not configured, leave a doubt; one too many is taken."""
    configure(root, topics)
    queues = queues_of(root)
    assert queues.has_every_queue() == has_every_queue
    views = queues.views_of("Orders", None)
    assert (None if views is None else [view.files.queue_id for view in views]) == of_orders
    some = queues.views_of("Orders", {2, 0})
    assert some is not None
    assert [view.files.queue_id for view in some] == [0, 2]
    assert queues.views_of("Orders", {0, 7}) is None


@pytest.mark.parametrize(
    ("readable", "writable", "is_whole"), [(3, 1, True), (1, 3, True), (4, 1, False), (1, 4, False)]
)
def test_topic_has_the_larger_number_of_queues(
    root: pathlib.Path, readable: int, writable: int, is_whole: bool
) -> None:
    """Of readable and writable ones."""
    configure(root)
    path = root / "config" / "topics.json"
    counts = f'"readQueueNums": {readable}, "writeQueueNums": {writable}'
    path.write_text(path.read_text().replace('"readQueueNums": 3, "writeQueueNums": 3', counts))
    assert queues_of(root).has_every_queue() == is_whole


def test_system_topics_need_not_have_all_queues(tmp_path: pathlib.Path) -> None:
    """A broker configures more of them than it uses."""
    directory = StoreDirectory(tmp_path / "store")
    with directory.open() as store:
        store.append(new_record(SCHEDULE_TOPIC, 1))
        store.append(new_record("Orders", 0))
        store.commit()
    configure(directory.root, {"Orders": 1, SCHEDULE_TOPIC: 18})
    assert queues_of(directory.root).has_every_queue()
    assert queues_of(directory.root).views_of(SCHEDULE_TOPIC, None) is None


@pytest.mark.parametrize("text", ["", "[]", '{"topicConfigTable": 7}', "{"])
def test_configuration_that_cannot_be_read_names_no_topic(root: pathlib.Path, text: str) -> None:
    """Then only directories tell."""
    (root / "config" / "topics.json").write_text(text)
    assert queues_of(root).known_topics() == {"Orders", "Rare", "%RETRY%group"}
    assert not queues_of(root).has_every_queue()
