"""The key index: batches against Java's put, one entry at a time; files, limits, ranges."""

import random
import struct
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from stores import StoreDirectory, file_bytes, new_record, sample

from rocketlet.common.properties import encode_properties, index_hash
from rocketlet.store.consumequeue.appended import Appended, has_keys
from rocketlet.store.files.files import OS_FILES, Descriptors
from rocketlet.store.index.index_file import HEADER, INDEX_ENTRY, IndexSpace
from rocketlet.store.index.key_index import KeyIndex

SLOTS, ENTRIES = 7, 30


class JavaIndex:
    """``IndexFile.putKey`` as store.md §4.3 tells it, one key at a time, in memory."""

    def __init__(self) -> None:
        self.files: list[bytearray] = []
        self.headers: list[list[int]] = []

    def put(self, text: str, log_offset: int, stored_at_ms: int) -> None:
        """Enter one key."""
        if not self.files or self.headers[-1][5] >= ENTRIES:
            end_at, end_offset = (self.headers[-1][1], self.headers[-1][3]) if self.files else (0, 0)
            self.files.append(bytearray(HEADER.size + 4 * SLOTS + 20 * ENTRIES))
            self.headers.append([end_at, end_at, end_offset, end_offset, 0, 1])
        file, header = self.files[-1], self.headers[-1]
        key_hash, count = index_hash(text), header[5]
        slot_at = HEADER.size + 4 * (key_hash % SLOTS)
        (previous,) = struct.unpack_from(">i", file, slot_at)
        seconds = max(0, stored_at_ms - header[0]) // 1000 if header[0] > 0 else 0
        entry_at = HEADER.size + 4 * SLOTS + 20 * count
        INDEX_ENTRY.pack_into(file, entry_at, key_hash, log_offset, min(seconds, 2**31 - 1), previous)
        struct.pack_into(">i", file, slot_at, count)
        if count <= 1:
            header[0], header[2] = stored_at_ms, log_offset
        header[1], header[3], header[4], header[5] = stored_at_ms, log_offset, header[4] + (previous == 0), count + 1
        HEADER.pack_into(file, 0, *header)


def make_index(directory: StoreDirectory, descriptors: Descriptors) -> KeyIndex:
    """Return an empty index with few slots and entries."""
    space = IndexSpace(OS_FILES, str(directory.root / "index"), (SLOTS, ENTRIES), descriptors)
    return KeyIndex(space, lambda: directory.now_ms)


def random_records(seed: int) -> Iterator[Appended]:
    """Yield records with all kinds of keys and tags, and times that stand, jump and go back."""
    draw = random.Random(seed)
    log_offset, stored_at_ms = 0, draw.choice([1_700_000_000_000, 5, 0])
    words = ["a", "b c", " lead", "two  blanks", "héllo", "🎉", "k" * 70, "Aa", "BB", ""]
    for _ in range(draw.randrange(1, 120)):
        properties = {"UNIQ_KEY": draw.choice(["", "7F000001" * 4, "x"]), "KEYS": draw.choice(words)}
        if draw.random() < 0.6:
            properties["TAGS"] = draw.choice(["TagA", "日本", "t t"])
        sys_flag = draw.choice([0, 0, 0x4, 0x8, 0xC])
        text = encode_properties(properties)
        yield Appended(log_offset, 0, 100, draw.choice(["T", "Töpic"]), 0, sys_flag, stored_at_ms, text, None)
        log_offset += 100
        stored_at_ms += draw.choice([0, 1, 999, 1000, 2_500_000_000_000, -5])


@pytest.mark.parametrize("seed", range(12))
def test_batches_make_the_bytes_of_single_puts(directory: StoreDirectory, descriptors: Descriptors, seed: int) -> None:
    """Whatever the batch borders: headers, slots and entries are those of Java's put, over several files."""
    java, index = JavaIndex(), make_index(directory, descriptors)
    draw = random.Random(seed)
    for record in random_records(seed):
        texts = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
        if record.sys_flag != 0xC:
            for text in filter(None, texts):
                java.put(f"{record.topic}#{text}", record.log_offset, record.stored_at_ms)
            if record.properties.get("TAGS"):
                java.put(f"{record.topic}#T#{record.properties['TAGS']}", record.log_offset, record.stored_at_ms)
        assert has_keys(record) == (record.sys_flag != 0xC and (any(texts) or "TAGS" in record.properties))
        index.add([record])
        if draw.random() < 0.3:
            index.build()
    index.save()
    assert list(file_bytes(directory.root / "index").values()) == [bytes(file) for file in java.files]


@pytest.mark.feature("H9")
def test_default_index_file_has_javas_length() -> None:
    """Header 40 bytes, 5,000,000 slots, 20,000,000 entries."""
    assert (HEADER.size, INDEX_ENTRY.size) == (40, 20)
    assert IndexSpace(OS_FILES, "", (5_000_000, 20_000_000), Descriptors(OS_FILES, 4)).file_bytes == 420_000_040


def test_index_files_are_named_by_rising_local_times(directory: StoreDirectory) -> None:
    """17 digits; files of the same millisecond, or made after the clock was set back, still sort in order."""
    with directory.open() as store:
        for number in range(90):
            directory.now_ms -= 1000 * (number == 50)
            store.append(sample(number))
            store.commit()
            store.query("T", "all", 1, 0, 1 << 62)  # builds what waits
    names = sorted(path.name for path in (directory.root / "index").iterdir())
    assert len(names) > 5
    assert all(len(name) == 17 and name.isdigit() for name in names)
    starts = [HEADER.unpack_from((directory.root / "index" / name).read_bytes())[2] for name in names]
    assert starts == sorted(starts)


@pytest.mark.feature("Q4", "Q7")
def test_query_gives_the_newest_up_to_the_limit_in_log_order(directory: StoreDirectory) -> None:
    """Across files; ``maxMsgsNumBatch`` 64 bounds what the caller asks for."""
    directory.fill(100)
    store = directory.open()
    everything = [store.query("T", f"k{number}", 1, 0, 1 << 62).log_offsets[0] for number in range(100)]
    assert store.query("T", "all", 1000, 0, 1 << 62).log_offsets == everything[-64:]
    assert store.query("T", "all", 5, 0, 1 << 62).log_offsets == everything[-5:]
    assert store.query("Other", "all", 5, 0, 1 << 62).log_offsets == []


@pytest.mark.feature("Q7")
def test_query_keeps_to_the_time_range(directory: StoreDirectory) -> None:
    """Times are whole seconds since the file began, so a range is widened by one second."""
    first = directory.now_ms + 100
    with directory.open() as store:
        for number in range(80):
            directory.now_ms += 100
            store.append(sample(number, size=0))
            store.commit()
        placed = {step: store.query("T", f"k{step}", 1, 0, 1 << 62).log_offsets[0] for step in range(80)}
        wide = store.query("T", "all", 64, first + 1500 - 1000, first + 1900 + 1000).log_offsets
        assert {placed[step] for step in range(15, 20)} <= set(wide)
        assert not {placed[step] for step in (*range(5), *range(40, 80))} & set(wide)
        assert store.query("T", "all", 64, first + 60_000, first + 70_000).log_offsets == []
        assert store.query("T", "all", 64, 0, first - 2000).log_offsets == []


def test_query_by_tag_and_by_unique_key(directory: StoreDirectory) -> None:
    """The tag index of 5.4.0 has its own key text, so a tag is no key."""
    directory.fill(9)
    store = directory.open()
    assert len(store.query("T", "t1", 64, 0, 1 << 62, kind="T").records) == 3
    assert store.query("T", "t1", 64, 0, 1 << 62).records == []
    assert len(store.query("T", "ID00000004", 64, 0, 1 << 62, kind="U").records) == 1


def test_query_sees_what_was_committed_just_now(directory: StoreDirectory) -> None:
    """What waits to be built is built before the look-up."""
    store = directory.open()
    for number in range(5):
        store.append(sample(number))
        store.commit()
        assert len(store.query("T", f"k{number}", 64, 0, 1 << 62).records) == 1


def test_store_without_index_answers_nothing(directory: StoreDirectory) -> None:
    """``messageIndexEnable=false`` makes no files; switched on again, the index is written from the log."""
    off = StoreDirectory(directory.root, has_index=False)
    off.fill(20)
    with off.open() as store:
        assert store.query("T", "k1", 64, 0, 1 << 62).records == []
    assert not (directory.root / "index").exists()
    assert len(directory.open().query("T", "k1", 64, 0, 1 << 62).records) == 1


@pytest.mark.parametrize("keep", range(0, 61, 6))
def test_killed_index_is_completed(
    directory: StoreDirectory, copy_of: Callable[..., StoreDirectory], keep: int
) -> None:
    """Whatever part of the keys was built before the kill, afterwards every key is there once."""
    store = directory.open()
    for number in range(61):
        store.append(sample(number))
        store.commit()
        if number == keep:
            store.query("T", "k0", 64, 0, 1 << 62)
    twin = copy_of()
    found = twin.open()
    for number in range(61):
        assert len(found.query("T", f"ID{number:08d}", 64, 0, 1 << 62).log_offsets) == 1
        assert len(found.query("T", f"k{number}", 64, 0, 1 << 62).log_offsets) == 1
    twin.close_all()
    entries = sum(HEADER.unpack_from(data)[5] - 1 for data in file_bytes(twin.root / "index").values())
    assert entries == 61 * 4


def test_colliding_keys_are_both_returned(directory: StoreDirectory) -> None:
    """The keys Aa and BB have one hash; the client tells them apart."""
    store = directory.open()
    for key in ("Aa", "BB"):
        store.append(new_record(KEYS=key))
    store.commit()
    assert len(store.query("T", "Aa", 64, 0, 1 << 62).records) == 2


MOST_READS = 50


def in_one_slot(count: int) -> list[str]:
    """Return keys whose hashes differ and lead to the same slot."""
    keys = [f"k{number}" for number in range(200)]
    slot = index_hash(f"T#{keys[0]}") % SLOTS
    return [key for key in keys if index_hash(f"T#{key}") % SLOTS == slot][:count]


@pytest.mark.parametrize(
    ("at", "value", "known"),
    [
        (HEADER.size + 4 * SLOTS + INDEX_ENTRY.size * 3 + 16, 3, [2, 3, 4]),
        (HEADER.size + 4 * SLOTS + INDEX_ENTRY.size * 3 + 16, 4, [2, 3, 4]),
        (HEADER.size + 4 * SLOTS + INDEX_ENTRY.size * 3 + 16, -1, [2, 3, 4]),
        (HEADER.size - 4, 4, []),
        (HEADER.size - 4, 5, []),
    ],
    ids=["to itself", "ahead", "to nothing", "from behind the last entry", "from just behind it"],
)
def test_chain_of_a_damaged_file_ends(
    at: int,
    value: int,
    known: list[int],
    directory: StoreDirectory,
    descriptors: Descriptors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An entry that does not lead back is the last one of its slot, and a slot behind the last entry is empty."""
    index, keys = make_index(directory, descriptors), in_one_slot(6)
    for number, key in enumerate(keys[:5]):
        text = encode_properties({"UNIQ_KEY": key})
        index.add([Appended(number, 0, 100, "T", 0, 0, directory.now_ms, text, None)])
    index.save()
    path = directory.root / "index" / index.files[0].path.rpartition("/")[2]
    content = bytearray(path.read_bytes())
    struct.pack_into(">i", content, at, value)
    path.write_bytes(content)
    damaged = make_index(directory, descriptors)
    damaged.load()
    reads, read = count(), IndexSpace.read

    def read_or_give_up(self: IndexSpace, path: str, size: int, position: int) -> bytes:
        assert next(reads) < MOST_READS, "it goes round"
        return read(self, path, size, position)

    monkeypatch.setattr(IndexSpace, "read", read_or_give_up)
    found = [damaged.find(f"T#{key}", 64, 0, 1 << 62).log_offsets for key in keys]
    assert found == [[number] if number in known else [] for number in range(6)]


@pytest.mark.parametrize("seed", range(3))
def test_query_is_that_of_a_list(directory: StoreDirectory, descriptors: Descriptors, seed: int) -> None:
    """The newest records of a key whose times, as the entries tell them, lie in the range."""
    records, index = keyed_records(seed), make_index(directory, descriptors)
    index.add(records)
    index.save()
    entries = [
        (key_hash, log_offset, HEADER.unpack_from(data)[0] + 1_000 * seconds)
        for data in file_bytes(directory.root / "index").values()
        for key_hash, log_offset, seconds, _ in INDEX_ENTRY.iter_unpack(data[HEADER.size + 4 * SLOTS :])
    ]
    draw = random.Random(seed)
    for _ in range(300):
        key, limit = f"T#{draw.choice('abcdefghijkl')}", draw.choice([1, 2, 5, 64])
        begin_ms, end_ms = (draw.choice(records).stored_at_ms + draw.choice([-1, 0, 1, 999]) for _ in range(2))
        known = [at for key_hash, at, at_ms in entries if key_hash == index_hash(key) and begin_ms <= at_ms <= end_ms]
        assert index.find(key, limit, begin_ms, end_ms).log_offsets == known[-limit:]


def test_file_without_slots_ends_behind_the_file_before_it(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """Java keeps files that end no later than the last full one after a kill; with all its slots, the end is exact."""
    index, at_ms = make_index(directory, descriptors), directory.now_ms
    for number in range(ENTRIES + 5):  # two files of one millisecond
        index.add([Appended(100 * number, 0, 100, "T", 0, 0, at_ms, b"UNIQ_KEY\x01k%d\x02" % number, None)])
    index.build()
    ends = [HEADER.unpack_from(data)[1] for data in file_bytes(directory.root / "index").values()]
    assert index.full_end_at_ms == at_ms
    assert ends == [at_ms, at_ms + 1]
    restored = make_index(directory, descriptors)
    restored.load()
    restored.restore(-1)
    assert [HEADER.unpack_from(data)[1] for data in file_bytes(directory.root / "index").values()] == ends
    index.save()
    assert [HEADER.unpack_from(data)[1] for data in file_bytes(directory.root / "index").values()] == [at_ms, at_ms]


# --- after a kill


DAMAGE = {"hash": (0, ">i", -5), "log offset": (4, ">q", -1), "seconds": (12, ">i", -1), "previous": (16, ">i", 29)}
"""Where in an entry a field stands, and what no entry has there."""


def killed_index(directory: StoreDirectory, descriptors: Descriptors, records: list[Appended]) -> KeyIndex:
    """Return a new index of some records, the slots of whose last file are in memory only."""
    index = make_index(directory, descriptors)
    index.add(records)
    index.build()
    return index


def keyed_records(seed: int) -> list[Appended]:
    """Return records of one to three keys, whose times rise."""
    draw = random.Random(seed)
    at_ms = 1_700_000_000_000
    records: list[Appended] = []
    for number in range(40):
        at_ms += draw.choice([0, 10, 2500])
        keys = " ".join(draw.sample("abcdefghij", draw.randrange(1, 4)))
        records.append(Appended(100 * number, 0, 100, "T", 0, 0, at_ms, encode_properties({"KEYS": keys}), None))
    return records


def offsets_by_file(directory: StoreDirectory) -> list[list[int]]:
    """Return the log offsets of the entries of each file."""
    found: list[list[int]] = []
    for data in file_bytes(directory.root / "index").values():
        entries = INDEX_ENTRY.iter_unpack(data[HEADER.size + 4 * SLOTS :])
        found.append([entry[1] for entry in entries][1 : HEADER.unpack_from(data)[5]])
    return found


def end_without_newest(files: list[list[int]]) -> int:
    """Return the last record when the newest of the last file is dropped, or file, if it holds no other; -1: none."""
    kept = [[offset for offset in offsets if offset < max(offsets)] for offsets in files]
    return max(next(filter(None, reversed(kept)), [-1]))


@pytest.mark.parametrize("field", DAMAGE)
@pytest.mark.parametrize("seed", range(4))
def test_index_ends_before_what_the_disk_has_lost(
    directory: StoreDirectory, copy_of: Callable[..., StoreDirectory], descriptors: Descriptors, seed: int, field: str
) -> None:
    """Files before it stay, but for the newest record; what is added again makes the bytes that would have been."""
    records = keyed_records(seed)
    killed_index(directory, descriptors, records)
    twin = copy_of()
    whole = killed_index(directory, descriptors, [])
    whole.load()
    whole.restore(-1)
    assert whole.end_log_offset == end_without_newest(offsets_by_file(twin))
    offset_at, kind, value = DAMAGE[field]
    draw = random.Random(seed)
    files = offsets_by_file(twin)
    expected = rebuilt(directory, descriptors, whole, records)
    assert len(files) > 2
    for number, offsets in enumerate(files):
        for entry in {0, len(offsets) - 1, draw.randrange(len(offsets))}:
            other = twin.copy(f"damaged-{number}-{entry}")
            path = sorted((other.root / "index").iterdir())[number]
            content = bytearray(path.read_bytes())
            at = HEADER.size + 4 * SLOTS + INDEX_ENTRY.size * (entry + 1) + offset_at
            struct.pack_into(kind, content, at, value)
            path.write_bytes(content)
            index = killed_index(other, descriptors, [])
            index.load()
            index.restore(-1)
            assert index.end_log_offset == end_without_newest(files[:number])
            assert rebuilt(other, descriptors, index, records) == expected


def rebuilt(
    directory: StoreDirectory, descriptors: Descriptors, index: KeyIndex, records: list[Appended]
) -> list[bytes]:
    """Add the records behind the end of an index, and return the bytes of its files."""
    index.add([record for record in records if record.log_offset > index.end_log_offset])
    index.save()
    return list(file_bytes(directory.root / "index").values())


@pytest.mark.parametrize("seed", range(4))
def test_index_ends_before_a_position_of_the_log(
    directory: StoreDirectory, copy_of: Callable[..., StoreDirectory], descriptors: Descriptors, seed: int
) -> None:
    """Entries of records from there on go, and those of the newest record that is left."""
    records = keyed_records(seed)
    killed_index(directory, descriptors, records).save()
    twin = copy_of()
    files = offsets_by_file(twin)
    before = list(file_bytes(twin.root / "index").values())
    for end in (0, 1, 100, 101, 1000, 2050, 3900, 3901):
        other = twin.copy(f"cut-{end}")
        index = killed_index(other, descriptors, [])
        index.load()
        index.restore(-1, end)
        assert index.end_log_offset == end_without_newest([[at for at in offsets if at < end] for offsets in files])
        assert rebuilt(other, descriptors, index, records) == before


def test_full_index_files_of_sure_times_are_not_looked_at(directory: StoreDirectory, descriptors: Descriptors) -> None:
    """The checkpoint says up to which millisecond they are on disk, that one too."""
    first, *others = killed_index(directory, descriptors, keyed_records(1)).files
    assert first.end_at_ms < others[0].end_at_ms
    with open(first.path, "r+b") as file:
        file.seek(HEADER.size + 4 * SLOTS + INDEX_ENTRY.size * 5)
        file.write(b"\xff")
    for sure_at_ms, left in ((first.end_at_ms, 1 + len(others)), (first.end_at_ms - 1, 0)):
        index = killed_index(directory, descriptors, [])
        index.load()
        index.restore(sure_at_ms)
        assert len(index.files) == left
