"""Index entries in batches: hashes, chains and what a kill leaves, against one entry at a time."""

import pathlib
import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from stores import LimitedFiles

from rocketlet.common.message import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketlet.common.properties import encode_properties, index_hash, java_hash
from rocketlet.store.consumequeue.appended import Appended, AppendedRun
from rocketlet.store.files.files import OS_FILES, Descriptors, Files
from rocketlet.store.index import index_build
from rocketlet.store.index.index_build import IndexBatch, chain, collect, load_slots, restore, save_slots
from rocketlet.store.index.index_file import HEADER, INDEX_ENTRY, IndexFile, IndexSpace, SlotsUnreadableError
from rocketlet.store.index.key_index import KeyIndex

SLOTS, ENTRIES = 7, 64
FIRST_MS = 1_700_000_000_000
ENTRIES_AT = HEADER.size + 4 * SLOTS
ENDLESS = 1 << 62


def make_space(folder: pathlib.Path, descriptors: Descriptors, files: Files = OS_FILES) -> IndexSpace:
    """Return a space of small files."""
    return IndexSpace(files, str(folder / "index"), (SLOTS, ENTRIES), descriptors)


def record(number: int, *keys: str, at_ms: int = FIRST_MS) -> Appended:
    """Return a record with keys."""
    return Appended(100 * number, 0, 100, "T", 0, 0, at_ms, encode_properties({"KEYS": " ".join(keys)}), None)


def killed_file(space: IndexSpace, seed: int, entries: int = ENTRIES - 1) -> IndexFile:
    """Return a file of so many entries whose slots were never written; two or three records share a key."""
    draw = random.Random(seed)
    index = KeyIndex(space, lambda: FIRST_MS)
    at_ms, number = FIRST_MS, 0
    while entries:
        count = min(entries, draw.choice([1, 2, 3]))
        index.add([record(number, *(f"k{draw.randrange(30)}" for _ in range(count)), at_ms=at_ms)])
        at_ms += draw.choice([0, 300, 2_500])
        number, entries = number + 1, entries - count
    index.build()
    (file,) = index.files
    file.slots = None
    return file


@pytest.mark.parametrize(
    "texts",
    [
        ["a"],
        ["abc", "xyz"],
        ["a", "bc", "def"],
        ["k" * 300, "x"],
        ["é", "日本"],
        ["🎉🎉", "a"],
        ["Aa", "BB"],
        ["ajvakuzm", "b"],
        ["ajvakuzm"],
    ],
)
def test_hashes_are_those_of_single_keys(texts: list[str]) -> None:
    """Of equal and of different lengths, of any characters, as unique keys, words and tags; of one topic or several."""
    for topics in (["T"] * len(texts), [f"Töpic{number}" for number in range(len(texts))]):
        pairs = list(zip(topics, texts, strict=True))
        for name, infix in (("UNIQ_KEY", ""), ("KEYS", ""), ("TAGS", "T#")):
            count = len(pairs)
            batch = collect([encode_properties({name: text}) for text in texts], topics, [0] * count, [0] * count)
            assert batch is not None
            assert batch.hashes.tolist() == [index_hash(f"{topic}#{infix}{text}") for topic, text in pairs]


def test_hash_without_a_positive_counterpart_is_zero() -> None:
    """Java's ``Math.abs`` leaves the least number negative, for which the index takes 0."""
    assert java_hash("T#ajvakuzm") == -(2**31)
    assert index_hash("T#ajvakuzm") == 0


def test_records_without_keys_make_no_batch() -> None:
    """Neither those without properties, nor blanks."""
    texts = [record(0).property_text, record(2, "", "").property_text]
    assert collect(texts, ["T"] * 2, [0, 100], [0, 0]) is None


def test_index_does_not_wait_for_what_was_rolled_back(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """It would have no entries."""
    index = KeyIndex(make_space(tmp_path, descriptors), lambda: FIRST_MS)
    rolled_back = record(1, "key")
    rolled_back.sys_flag = 0xC
    index.add([rolled_back])
    assert not index.is_behind
    index.add([record(2, "key"), rolled_back])
    assert index.waiting_records == 1


def test_run_has_the_entries_of_its_records(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """A batch of records is one thing on its way here."""
    one_by_one, together = (KeyIndex(make_space(tmp_path / name, descriptors), lambda: FIRST_MS) for name in "ab")
    texts = [record(number, f"k{number}").property_text for number in range(5)]
    run = AppendedRun(500, 3, 50, "T", 0, 0, FIRST_MS, texts, None, [500, 510, 520, 530, 540], [10] * 5)
    one_by_one.add(run.records())
    together.add([run])
    assert together.waiting_records == 5
    for index in (one_by_one, together):
        index.save()
    assert [pathlib.Path(index.files[0].path).read_bytes() for index in (one_by_one, together)] == put_one_by_one(
        run.records()
    ) * 2


def test_batch_is_split_and_searched() -> None:
    """The newest records of a hash in a range of times, both ends included, and no more than wanted."""
    hashes, offsets = np.array([5, 6, 5, 5, 5]), np.array([0, 100, 200, 300, 400])
    batch = IndexBatch(hashes, offsets, np.array([10, 20, 30, 40, 50]))
    assert batch.select(5, 0, 99, 9) == [400, 300, 200, 0]
    assert batch.select(5, 30, 40, 9) == [300, 200]
    assert batch.select(5, 31, 39, 9) == []
    assert batch.select(5, 0, 99, 2) == [400, 300]
    assert batch.select(6, 0, 99, 9) == [100]
    assert batch.select(7, 0, 99, 9) == []
    first, rest = batch.split(2)
    assert (first.log_offsets.tolist(), rest.log_offsets.tolist()) == ([0, 100], [200, 300, 400])
    assert [len(column) for column in (*first, *rest)] == [2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("seed", range(20))
def test_chains_are_those_of_single_entries(seed: int) -> None:
    """Each entry leads to the one before it in its slot; what a slot says is believed if there is such an entry."""
    draw = random.Random(seed)
    count = draw.randrange(1, 20)
    slots = [draw.randrange(SLOTS) for _ in range(draw.randrange(1, 15))]
    table = [draw.choice([-5, -1, 0, 1, count - 1, count, count + 1, draw.randrange(count)]) for _ in range(SLOTS)]
    newest = {slot: said if 0 <= said < count else 0 for slot, said in enumerate(table)}
    touched = sorted(set(slots))
    expected_firsts, expected = [newest[slot] for slot in touched], list[int]()
    for number, slot in enumerate(slots):
        expected.append(newest[slot])
        newest[slot] = count + number
    previous, firsts, last_rows = chain(np.array(slots), np.array(table, ">i4"), count)
    assert (previous.tolist(), firsts.tolist()) == (expected, expected_firsts)
    assert last_rows.tolist() == [newest[slot] - count for slot in touched]


def put_one_by_one(records: Sequence[Appended]) -> list[bytes]:
    """Return the files that hold the keys of the records, made as Java makes them, one entry after the other."""
    contents: list[bytes] = []
    begin_at_ms = end_at_ms = begin_offset = end_offset = used = 0
    slots, entries = [0] * SLOTS, [bytes(INDEX_ENTRY.size)]

    def finish() -> None:
        header = HEADER.pack(begin_at_ms, end_at_ms, begin_offset, end_offset, used, len(entries))
        data = header + struct.pack(f">{SLOTS}i", *slots) + b"".join(entries)
        contents.append(data.ljust(ENTRIES_AT + ENTRIES * INDEX_ENTRY.size, b"\0"))

    for record in records:
        for text in keys_of(record):
            if len(entries) == ENTRIES:
                finish()
                begin_at_ms, begin_offset, used = end_at_ms, end_offset, 0
                slots, entries = [0] * SLOTS, [bytes(INDEX_ENTRY.size)]
            seconds = max(0, (record.stored_at_ms - begin_at_ms) // 1_000) if begin_at_ms > 0 else 0
            key_hash = index_hash(f"{record.topic}#{text}")
            slot = key_hash % SLOTS
            if len(entries) == 1:
                begin_at_ms, begin_offset = record.stored_at_ms, record.log_offset
            used += not slots[slot]
            entries.append(INDEX_ENTRY.pack(key_hash, record.log_offset, min(seconds, 2**31 - 1), slots[slot]))
            slots[slot] = len(entries) - 1
            end_at_ms, end_offset = record.stored_at_ms, record.log_offset
    finish()
    return contents


def keys_of(record: Appended) -> list[str]:
    """Return unique key, words and tag of a record that was not rolled back."""
    said = record.properties
    if record.sys_flag == TRANSACTION_ROLLBACK:
        return []
    unique = [said["UNIQ_KEY"]] if "UNIQ_KEY" in said else []
    return [*unique, *said.get("KEYS", "").split(), *([f"T#{said['TAGS']}"] if "TAGS" in said else [])]


@pytest.mark.parametrize("first_ms", [0, 1, 2, 1_000, FIRST_MS])
@pytest.mark.parametrize("seed", range(4))
def test_files_are_those_of_single_entries(
    tmp_path: pathlib.Path, descriptors: Descriptors, seed: int, first_ms: int
) -> None:
    """However many records are built together: headers, slots and entries, and what the first one of a file gets."""
    draw = random.Random(seed)
    index, at_ms, records = KeyIndex(make_space(tmp_path, descriptors), lambda: FIRST_MS), first_ms, list[Appended]()
    for number in range(70):
        said = {
            "UNIQ_KEY": f"U{number}",
            "KEYS": draw.choice(["k", "a b", f" é  k{number} "]),
            "TAGS": f"t{number % 3}",
        }
        kept = {name: text for name, text in said.items() if draw.random() < 0.6}
        flag = draw.choice([0, 0, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
        records.append(Appended(100 * number, 0, 100, draw.choice("TU"), 0, flag, at_ms, encode_properties(kept), None))
        at_ms += draw.choice([0, 0, 1, 400, 999, 1_000, 2_500, 1 << 43] if number > 60 else [0, 0, 1, 400, 999, 1_000])
        index.add([records[-1]])
        if draw.random() < 0.2:
            index.build()
    index.save()
    expected = put_one_by_one(records)
    assert len(expected) > 1
    assert [pathlib.Path(file.path).read_bytes() for file in index.files] == expected


@pytest.mark.parametrize("end_ms", range(4))
def test_time_of_the_first_entry_counts_from_the_file_before(
    tmp_path: pathlib.Path, descriptors: Descriptors, end_ms: int
) -> None:
    """If that has a time: one that ends in 1970 at 0 has none."""
    index = KeyIndex(make_space(tmp_path, descriptors), lambda: FIRST_MS)
    times = [end_ms] * (ENTRIES - 1) + [5_000 + end_ms, 9_000]
    records = [record(number, "k", at_ms=at_ms) for number, at_ms in enumerate(times)]
    index.add(records)
    expected = put_one_by_one(records)
    index.save()
    assert [pathlib.Path(file.path).read_bytes() for file in index.files] == expected
    first = INDEX_ENTRY.unpack_from(expected[1], ENTRIES_AT + INDEX_ENTRY.size)
    assert first[2] == (5 if end_ms else 0)


# --- after a kill


class Restored(NamedTuple):
    """What is left of a file."""

    is_sound: bool
    count_after: int
    slots: list[int]
    end_log_offset: int
    end_at_ms: int


def restore_one_by_one(file: IndexFile, entries: list[tuple[int, int, int, int]], log_offset: int) -> Restored:
    """Go through the entries of a file as far as each is what Java's put would have made."""
    slots, is_sound, number = [0] * SLOTS, True, 1
    end_log_offset, end_at_ms = file.begin_log_offset, file.end_at_ms
    for key_hash, at, seconds, previous in entries[1 : file.count]:
        if at >= log_offset:
            break
        slot = max(key_hash, 0) % SLOTS
        is_sound = key_hash >= 0 and seconds >= 0 and at >= end_log_offset and previous == slots[slot]
        if not is_sound:
            break
        slots[slot] = number
        end_log_offset, end_at_ms = at, file.begin_at_ms + 1_000 * seconds
        number += 1
    if number == 1:
        end_log_offset = file.end_log_offset
    if number == file.count or number == 1:
        end_at_ms = file.end_at_ms
    return Restored(is_sound, number, slots, end_log_offset, end_at_ms)


def check_restored(space: IndexSpace, path: str, log_offset: int) -> None:
    """Compare the restoring of a file with that of its entries one by one."""
    file = IndexFile(space, path)
    file.load_header()
    entries = list(INDEX_ENTRY.iter_unpack(pathlib.Path(path).read_bytes()[ENTRIES_AT:]))
    expected = restore_one_by_one(file, entries, log_offset)
    is_sound = restore(space, file, log_offset)
    assert file.slots is not None
    assert expected == Restored(is_sound, file.count, file.slots.tolist(), file.end_log_offset, file.end_at_ms)
    assert file.used_slots == sum(map(bool, expected.slots))


@pytest.mark.parametrize("at_once", [1, 3, 10, 1 << 17])
@pytest.mark.parametrize("seed", range(3))
def test_damage_ends_a_file(
    tmp_path: pathlib.Path, descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch, at_once: int, seed: int
) -> None:
    """However many entries are looked at together: the file ends before the first that nobody would have put there."""
    monkeypatch.setattr(index_build, "_CHECK_ENTRIES", at_once)
    space = make_space(tmp_path, descriptors)
    file = killed_file(space, seed, 40)
    path = pathlib.Path(file.path)
    content = path.read_bytes()
    check_restored(space, file.path, ENDLESS)
    draw = random.Random(seed)
    for _ in range(60):
        changed = bytearray(content)
        for _ in range(draw.choice([1, 1, 2])):
            number = draw.randrange(1, 41)
            place, kind, values = draw.choice(
                [
                    (0, ">i", [-1, 0, draw.randrange(1 << 31)]),
                    (4, ">q", [-1, 0, 100 * draw.randrange(30)]),
                    (12, ">i", [-1, 0, 5]),
                    (16, ">i", [-1, 0, number, number - 1, number + 1, draw.randrange(41)]),
                ]
            )
            struct.pack_into(kind, changed, ENTRIES_AT + INDEX_ENTRY.size * number + place, draw.choice(values))
        path.write_bytes(changed)
        check_restored(space, file.path, ENDLESS)


@pytest.mark.parametrize("seed", range(3))
def test_entries_that_lead_elsewhere_end_a_file(tmp_path: pathlib.Path, descriptors: Descriptors, seed: int) -> None:
    """Each must lead to the one before it in its slot: not past it, into another slot, or where another one leads."""
    space = make_space(tmp_path, descriptors)
    file = killed_file(space, 1, 6)
    path = pathlib.Path(file.path)
    content = path.read_bytes()
    draw = random.Random(seed)
    for _ in range(200):
        changed, newest = bytearray(content), dict[int, int]()
        wrong = draw.randrange(1, 7)
        for number in range(1, 7):
            slot = draw.randrange(draw.choice([2, 3]))
            previous = draw.randrange(7) if number == wrong else newest.get(slot, 0)
            newest[slot] = number
            INDEX_ENTRY.pack_into(changed, ENTRIES_AT + INDEX_ENTRY.size * number, slot, 100 * number, 0, previous)
        path.write_bytes(changed)
        check_restored(space, file.path, ENDLESS)


@pytest.mark.parametrize("at_once", [1, 3, 1 << 17])
def test_file_ends_before_a_position_of_the_log(
    tmp_path: pathlib.Path, descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Entries of records from there on go, and nothing is wrong with those before."""
    monkeypatch.setattr(index_build, "_CHECK_ENTRIES", at_once)
    space = make_space(tmp_path, descriptors)
    file = killed_file(space, 1)
    for log_offset in (0, 1, 100, 101, 1_000, 1_050, file.end_log_offset, file.end_log_offset + 1):
        check_restored(space, file.path, log_offset)


# --- slots


def test_slots_are_written_in_parts(
    tmp_path: pathlib.Path, descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table on disk is the one in memory, however it is cut; parts that are still zero are left out."""
    space = make_space(tmp_path, descriptors)
    file = killed_file(space, 1)
    restore(space, file, ENDLESS)
    assert file.slots is not None
    file.slots[2:4] = 0
    monkeypatch.setattr(index_build, "_SLOT_CHUNK", 2)
    content = pathlib.Path(file.path).read_bytes()
    pathlib.Path(file.path).write_bytes(content[: HEADER.size] + b"\xff" * 4 * SLOTS + content[ENTRIES_AT:])
    save_slots(file)
    written = file.slots.tobytes()
    expected = written[:8] + b"\xff" * 8 + written[16:]
    assert pathlib.Path(file.path).read_bytes()[HEADER.size : ENTRIES_AT] == expected
    assert pathlib.Path(file.path).read_bytes()[ENTRIES_AT:] == content[ENTRIES_AT:]


def test_file_without_slots_in_memory_is_not_written(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Not even its header."""
    space = make_space(tmp_path, descriptors)
    file = killed_file(space, 1)
    space.dirty_paths.clear()
    save_slots(file)
    assert not space.dirty_paths


def test_slots_that_cannot_be_read_are_told_apart(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """A file without entries needs none of them; the error of another one names it."""
    space = make_space(tmp_path, descriptors)
    file = killed_file(space, 1)
    pathlib.Path(file.path).write_bytes(b"short")
    with pytest.raises(SlotsUnreadableError, match="read 0 bytes of 28 at 40") as caught:
        load_slots(space, file)
    assert caught.value.filename == file.path
    file.count = 1
    assert load_slots(space, file).tolist() == [0] * SLOTS
    assert file.slots is not None


@pytest.mark.parametrize("room", [0, 60, 100])
def test_entries_that_find_no_room_do_not_count(tmp_path: pathlib.Path, room: int) -> None:
    """They wait, are found meanwhile, and stand in the file as if nothing had happened once there is room."""
    expected = pathlib.Path(tmp_path / "other")
    with_room, disk = Descriptors(OS_FILES, 8), LimitedFiles()
    limited = Descriptors(disk, 8)
    whole = KeyIndex(make_space(expected, with_room), lambda: FIRST_MS)
    index = KeyIndex(make_space(tmp_path, limited, disk), lambda: FIRST_MS)
    for number in range(2):
        records = [record(10 * number + one, f"k{one}", "all", at_ms=FIRST_MS + 10 * number) for one in range(10)]
        whole.add(records)
        whole.build()
        index.add(records)
        if number:
            disk.room = room
            with pytest.raises(OSError, match="No space"):
                index.build()
            assert (index.files[0].count, index.is_behind) == (21, True)
            hits = index.find("T#all", 15, FIRST_MS, FIRST_MS + 10)
            assert hits.log_offsets == [100 * at for at in range(5, 20)]
            disk.room = None
        index.build()
    assert pathlib.Path(index.files[0].path).read_bytes() == pathlib.Path(whole.files[0].path).read_bytes()
    with_room.close()
    limited.close()
