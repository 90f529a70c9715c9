"""Index files that are only read: what they find, and which part of the log they know."""

import pathlib
import shutil
import struct

import pytest
from pushing import fill, plan
from stores import TINY, StoreDirectory, new_record

from rocketlet.common.message import TRANSACTION_ROLLBACK
from rocketlet.common.properties import index_hash
from rocketlet.common.record import Record
from rocketlet.export.plan.split import PlannedLog
from rocketlet.export.pushdown import store_index
from rocketlet.export.pushdown.store_index import DEFAULT_SIZES, StoreIndex
from rocketlet.store.files.store_config import StoreConfig

SIZES = TINY["index_slots"], TINY["index_entries"]
HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")
ENTRIES_AT = 40 + 4 * TINY["index_slots"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> StoreDirectory:
    """Return a store of many index files, that was cleanly closed."""
    directory = StoreDirectory(tmp_path_factory.mktemp("index") / "store")
    fill(directory)
    return directory


@pytest.fixture
def root(original: StoreDirectory, tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a copy of it."""
    return pathlib.Path(shutil.copytree(original.root, tmp_path / "store"))


def log_of(root: pathlib.Path) -> PlannedLog:
    """Return the log of a store."""
    return PlannedLog(plan(root, 1 << 20))


def index_of(root: pathlib.Path, sure_at_ms: int | None = None, sizes: tuple[int, int] | None = SIZES) -> StoreIndex:
    """Return the index of a store."""
    return StoreIndex(str(root), log_of(root), sure_at_ms, sizes)


def files_of(root: pathlib.Path) -> list[pathlib.Path]:
    """Return the index files."""
    return sorted((root / "index").iterdir())


def header_of(path: pathlib.Path) -> tuple[int, ...]:
    """Return times and log offsets of the first and the last record, and the number of slots and entries."""
    return HEADER.unpack_from(path.read_bytes())


def change_header(path: pathlib.Path, **fields: int) -> None:
    """Write other numbers."""
    names = ("begin_at_ms", "end_at_ms", "begin", "end", "slots", "used")
    content = bytearray(path.read_bytes())
    HEADER.pack_into(content, 0, *(dict(zip(names, header_of(path), strict=True)) | fields).values())
    path.write_bytes(content)


def records_of(root: pathlib.Path) -> list[Record]:
    """Return all records of a log."""
    log, at, found = log_of(root), 0, list[Record]()
    while at < log.end:
        record = log.record_at(at)
        if record is None:
            at = (at // 4_096 + 1) * 4_096
        else:
            found.append(record)
            at += record.total_size
    return found


def keys_of(record: Record) -> list[str]:
    """Return the keys by which a record is found."""
    words = [record.properties["UNIQ_KEY"], *record.properties["KEYS"].split()]
    return [f"{record.topic}#{word}" for word in words]


def test_each_key_leads_to_its_records(root: pathlib.Path) -> None:
    """To all of them, in the order of the log, and to no others than those with an equal hash."""
    index, records = index_of(root), records_of(root)
    assert len(records) == 160
    for key in ["Orders#k7", "Orders#Aa", "Rare#other", "Orders#ID00000000", "Orders#ID00000159", "Orders#nothing"]:
        expected = [one.log_offset for one in records if index_hash(key) in map(index_hash, keys_of(one))]
        assert index.find([key]) == expected
    several = index.find(["Orders#k20", "Orders#k10", "Orders#k20"])
    assert several == [records[10].log_offset, records[20].log_offset]
    assert index.find([]) == []


def test_index_of_a_closed_store_knows_the_log(root: pathlib.Path) -> None:
    """From its first record to the end of its last."""
    assert index_of(root).ranges == [(0, log_of(root).end)]
    assert len(files_of(root)) > 5


def test_index_of_a_killed_store_knows_what_full_files_hold(root: pathlib.Path) -> None:
    """Of those that the checkpoint covers, up to the last record of the last one, which may go on in the next."""
    headers = list(map(header_of, files_of(root)))
    for number in (0, 2):
        at_ms, stop = headers[number][1], headers[number][3]
        assert index_of(root, at_ms).ranges == [(0, stop)]
        assert index_of(root, at_ms - 1).ranges == ([] if not number else [(0, headers[number - 1][3])])
    assert index_of(root, 0).ranges == []


def test_file_that_is_missing_leaves_a_part_unknown(root: pathlib.Path) -> None:
    """From the last record of the file before it, up to the first of the one behind it."""
    files = files_of(root)
    before, behind = header_of(files[1]), header_of(files[3])
    files[2].unlink()
    assert index_of(root).ranges == [(0, before[3]), (behind[2], log_of(root).end)]
    files[3].unlink()
    files[-1].unlink()
    last = log_of(root).record_at(header_of(files[-2])[3])
    assert last is not None
    assert index_of(root).ranges[-1].stop == last.log_offset + last.total_size


def test_files_that_touch_are_one_range(root: pathlib.Path) -> None:
    """A file may begin with the record with which the one before it ends, or behind it."""
    first, second, *others = files_of(root)
    for path in others:
        path.unlink()
    end, stop = header_of(first)[3], header_of(second)[3]
    record = log_of(root).record_at(end)
    last = log_of(root).record_at(stop)
    assert record is not None
    assert last is not None
    behind = end + record.total_size
    for begin, ranges in ((end, 1), (behind, 1), (behind + 1, 2)):
        change_header(second, begin=begin)
        found = index_of(root).ranges
        assert (len(found), found[-1].stop) == (ranges, stop + last.total_size)
    change_header(second, begin=end, end=5)
    assert index_of(root).ranges == [(0, behind)]
    change_header(second, begin=behind + 1, end=behind + 1)
    assert index_of(root).ranges == [(0, behind)]


def test_file_without_entries_knows_nothing(root: pathlib.Path) -> None:
    """As one that was just made."""
    first, *others = files_of(root)
    for path in others:
        path.unlink()
    for used, is_known in ((1, False), (2, True), (0, False)):
        change_header(first, used=used, begin=500, end=600)
        assert bool(index_of(root).ranges) == is_known


@pytest.mark.parametrize("name", ["1" * 16, "1" * 18, "x" * 17])
def test_foreign_files_are_passed_over(root: pathlib.Path, name: str) -> None:
    """Only seventeen digits name an index file."""
    (root / "index" / name).write_bytes(b"")
    assert index_of(root).ranges == [(0, log_of(root).end)]


@pytest.mark.parametrize("content", [b"", bytes(39), bytes(41), None])
def test_file_that_is_no_index_leaves_none(root: pathlib.Path, content: bytes | None) -> None:
    """Nor is one believed if another has another size, or cannot be read."""
    path = root / "index" / ("9" * 17)
    if content is None:
        path.symlink_to(root / "nothing")
    else:
        path.write_bytes(content)
    assert index_of(root).ranges == []


def test_sizes_are_given_or_follow_from_full_files(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or are the usual ones; without any of these, and with others, nothing is known."""
    whole = [(0, log_of(root).end)]
    for sizes in (None, (7, 11), (50, 41)):
        assert index_of(root, sizes=sizes).ranges == whole
    used = header_of(files_of(root)[0])[5]
    change_header(files_of(root)[0], used=used - 1)
    assert index_of(root, sizes=None).ranges == []
    change_header(files_of(root)[0], used=used)
    for path in files_of(root)[1:]:
        path.unlink()
    assert index_of(root, sizes=None).ranges == []
    monkeypatch.setattr(store_index, "DEFAULT_SIZES", SIZES)
    assert len(index_of(root, sizes=None).ranges) == len(index_of(root, sizes=(1, 1)).ranges) == 1


def test_usual_sizes_are_those_of_a_broker() -> None:
    """Of its settings."""
    config = StoreConfig("store")
    assert (config.index_slots, config.index_entries) == DEFAULT_SIZES


def test_index_without_the_first_record_of_a_file_is_not_used(root: pathlib.Path) -> None:
    """None was built for a while then."""
    for path in files_of(root):
        content = bytearray(path.read_bytes())
        for at in range(ENTRIES_AT, len(content), 20):
            key_hash, log_offset, seconds, previous = ENTRY.unpack_from(content, at)
            if log_offset == 4_096:
                ENTRY.pack_into(content, at, key_hash, 4_095, seconds, previous)
        path.write_bytes(content)
    assert index_of(root).ranges == []


@pytest.mark.parametrize(
    ("properties", "is_rolled_back"), [({}, False), ({"UNIQ_KEY": "U"}, True), ({"KEYS": "a b"}, True)]
)
def test_records_without_keys_need_no_entry(
    tmp_path: pathlib.Path, properties: dict[str, str], is_rolled_back: bool
) -> None:
    """Nor do those that were rolled back."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=1_024)
    with directory.open() as store:
        for number in range(20):
            record = new_record("Orders", 0, b"x" * 400, **properties)
            record.sys_flag |= TRANSACTION_ROLLBACK if is_rolled_back else 0
            store.append(record)
            store.append(new_record("Orders", 1, b"x" * 40, KEYS=f"k{number}"))
            store.commit()
    assert index_of(directory.root).ranges


def test_most_records_that_are_followed(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than these, nothing is told; keys with few are found as ever."""
    count = len(index_of(root).find(["Orders#Aa"]) or [])
    assert count > 20
    for most, is_told in ((count, True), (count - 1, False)):
        monkeypatch.setattr(store_index, "MOST_FOUND", most)
        assert (index_of(root).find(["Orders#Aa"]) is not None) == is_told
        assert index_of(root).ranges == [(0, log_of(root).end)]
    monkeypatch.setattr(store_index, "MOST_FOUND", 2)
    assert index_of(root).find(["Orders#k7"]) is not None


@pytest.mark.parametrize(("previous", "is_told"), [(0, True), (-1, False), (1 << 20, False), (2, False), (3, False)])
def test_chain_that_leads_nowhere_is_not_believed(tmp_path: pathlib.Path, previous: int, is_told: bool) -> None:
    """Each entry must name one before it, or none."""
    directory = StoreDirectory(tmp_path / "store")
    with directory.open() as store:
        for key in ("one", "two"):
            store.append(new_record("Orders", 0, KEYS=key))
            store.commit()
    (path,) = files_of(directory.root)
    content = bytearray(path.read_bytes())
    key_hash, log_offset, seconds, _ = ENTRY.unpack_from(content, ENTRIES_AT + 40)
    ENTRY.pack_into(content, ENTRIES_AT + 40, key_hash, log_offset, seconds, previous)
    path.write_bytes(content)
    assert index_of(directory.root).find(["Orders#two"]) == ([log_offset] if is_told else None)


@pytest.mark.parametrize(("number", "found"), [(1, [0]), (2, None), (-1, None), (0, [])])
def test_slot_that_names_no_entry_is_not_believed(tmp_path: pathlib.Path, number: int, found: list[int] | None) -> None:
    """A file of one entry has none behind it; a slot without a number tells that there is no record."""
    directory = StoreDirectory(tmp_path / "store")
    with directory.open() as store:
        store.append(new_record("Orders", 0, KEYS="one"))
        store.commit()
    (path,) = files_of(directory.root)
    assert header_of(path)[5] == 2
    content = bytearray(path.read_bytes())
    struct.pack_into(">i", content, 40 + 4 * (index_hash("Orders#one") % TINY["index_slots"]), number)
    path.write_bytes(content)
    assert index_of(directory.root).find(["Orders#one"]) == found


def test_record_at_the_end_of_what_is_known_need_not_be_there(root: pathlib.Path) -> None:
    """It is looked for in the part behind, which a file tells that is not sure."""
    files = files_of(root)
    last = max(number for number, path in enumerate(files) if header_of(path)[3] < 4_096)
    change_header(files[last], end=4_096)
    assert index_of(root, header_of(files[last])[1]).ranges == [(0, 4_096)]
    change_header(files[last], end=4_097)
    assert index_of(root, header_of(files[last])[1]).ranges == []
