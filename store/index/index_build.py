"""Index entries in batches, with numpy; the same bytes as if every key had been put alone.

Rules:

- Imported only when there is something to build: numpy costs start time and memory.
- Hashes are Java's ``String.hashCode``, computed for all keys of a batch at once: each UTF-16 unit times the power of
  31 that belongs to its distance from the end of its key, summed per key, modulo 2^32.
- Within a batch an entry points to the one before it with the same slot, the first of a slot to what the table says.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...common.message import TRANSACTION_ROLLBACK
from ...common.properties import KEYS, TAGS, UNIQ_KEY, index_hash, java_hash
from ..consumequeue.appended import Appended
from .index_file import HEADER, MAX_SECONDS, IndexFile, IndexSpace, SlotsUnreadableError

_ENTRY = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_SLOT_CHUNK = 16_384
_CHECK_ENTRIES = 1 << 17
H = TypeVar("H", bound=Hashable)


class IndexBatch(NamedTuple):
    """Entries that wait for their file, one row per key."""

    hashes: NDArray[np.int64]
    log_offsets: NDArray[np.int64]
    stored_at_ms: NDArray[np.int64]

    def split(self, count: int) -> tuple["IndexBatch", "IndexBatch"]:
        """Return the first entries and the rest."""
        return IndexBatch(*(column[:count] for column in self)), IndexBatch(*(column[count:] for column in self))

    def select(self, key_hash: int, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Return log offsets of a key's records, newest first, as ``IndexFile.select`` does."""
        is_wanted = (self.hashes == key_hash) & (self.stored_at_ms >= begin_ms) & (self.stored_at_ms <= end_ms)
        return self.log_offsets[is_wanted][::-1][:limit].tolist()


def collect(records: Sequence[Appended]) -> IndexBatch | None:
    """Return the entries of the records: unique key, keys, tags (store.md §4.2); ``None`` when there are none."""
    kept = [record for record in records if record.sys_flag & TRANSACTION_ROLLBACK != TRANSACTION_ROLLBACK]
    properties = [record.properties for record in kept]
    topics = [record.topic for record in kept]
    uniques = [one.get(UNIQ_KEY) or "" for one in properties]
    keys = [one.get(KEYS) or "" for one in properties]
    tags = [one.get(TAGS) or "" for one in properties]
    words, word_counts = _split_words(keys)
    has_unique, has_tags = np.array(list(map(bool, uniques)), bool), np.array(list(map(bool, tags)), bool)
    counts = has_unique + word_counts + has_tags
    total = int(counts.sum())
    if not total:
        return None
    prefixes = np.array(_look_up(_prefix_hash, topics), np.uint32)
    ends = np.cumsum(counts)
    hashes = np.empty(total, np.int64)
    is_word = np.ones(total, bool)
    if has_unique.any():
        rows = (ends - counts)[has_unique]
        hashes[rows] = hash_keys(list(filter(None, uniques)), prefixes[has_unique])
        is_word[rows] = False
    if has_tags.any():
        rows = (ends - 1)[has_tags]
        hashes[rows] = np.array(_look_up(_tags_hash, list(zip(topics, tags, strict=True))), np.int64)[has_tags]
        is_word[rows] = False
    if words:
        hashes[is_word] = hash_keys(words, np.repeat(prefixes, word_counts))
    return IndexBatch(
        hashes,
        np.repeat(np.array([record.log_offset for record in kept], np.int64), counts),
        np.repeat(np.array([record.stored_at_ms for record in kept], np.int64), counts),
    )


def hash_keys(texts: Sequence[str], prefixes: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the index hash of every text behind its prefix, whose hash is given (``indexKeyHashMethod``)."""
    joined = "".join(texts)
    if joined.isascii():
        units = np.frombuffer(joined.encode(), np.uint8).astype(np.uint32)
        lengths = np.array(list(map(len, texts)), np.int64)
    else:
        units = np.frombuffer(joined.encode("utf-16-le", "surrogatepass"), "<u2").astype(np.uint32)
        lengths = np.array([len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts], np.int64)
    most = int(lengths.max())
    powers = _powers(most + 1)
    if most == lengths.min():
        values = (units.reshape(-1, most) * powers[most - 1 :: -1][:most]).sum(axis=1, dtype=np.uint32)
    else:
        ends = np.cumsum(lengths)
        units *= powers[np.repeat(ends, lengths) - 1 - np.arange(len(units))]
        values = np.add.reduceat(units, ends - lengths, dtype=np.uint32)
    values += prefixes * powers[lengths]
    hashes = np.abs(values.view(np.int32).astype(np.int64))
    hashes[hashes == 2**31] = 0
    return hashes


def _powers(count: int) -> NDArray[np.uint32]:
    factors = np.full(count, 31, np.uint32)
    factors[0] = 1
    return factors.cumprod(dtype=np.uint32)


def _split_words(keys: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the words of all keys, and how many each has."""
    if " " not in "".join(keys):
        return list(filter(None, keys)), np.array(list(map(bool, keys)), np.int64)
    words = [list(filter(None, one.split(" "))) for one in keys]
    return [word for one in words for word in one], np.array(list(map(len, words)), np.int64)


def _look_up(find: Callable[[H], int], values: list[H]) -> list[int]:
    """Return what is found for each value, looked for once for equal ones."""
    found = {value: find(value) for value in set(values)}
    return list(map(found.__getitem__, values))


@lru_cache(maxsize=4096)
def _prefix_hash(topic: str) -> int:
    return java_hash(f"{topic}#") & 0xFFFFFFFF


@lru_cache(maxsize=4096)
def _tags_hash(topic_and_tags: tuple[str, str]) -> int:
    topic, tags = topic_and_tags
    return index_hash(f"{topic}#T#{tags}")


def insert(space: IndexSpace, file: IndexFile, batch: IndexBatch) -> None:
    """Write the entries, which fit the file, and its header (raises ``OSError``, nothing counts then)."""
    table = file.slots if file.slots is not None else load_slots(space, file)
    slots = batch.hashes % space.max_slots
    previous, firsts, last_rows = chain(slots, table, file.count)
    entries = np.empty(len(slots), _ENTRY)
    entries["hash"] = batch.hashes
    entries["log_offset"] = batch.log_offsets
    entries["seconds"] = _seconds(file, batch.stored_at_ms)
    entries["previous"] = previous
    file.write(entries.tobytes(), file.entry_position(file.count))
    if file.count == 1:
        file.begin_log_offset = int(batch.log_offsets[0])
        file.begin_at_ms = int(batch.stored_at_ms[0])
    table[slots[last_rows]] = file.count + last_rows
    file.used_slots += int(np.count_nonzero(firsts == 0))
    file.count += len(slots)
    file.end_log_offset = int(batch.log_offsets[-1])
    file.end_at_ms = int(batch.stored_at_ms[-1])
    file.write_header(has_slots=False)


def load_slots(space: IndexSpace, file: IndexFile) -> NDArray[np.int32]:
    """Bring the table of slots of a file into memory (raises ``SlotsUnreadableError``)."""
    if file.count == 1:
        file.slots = np.zeros(space.max_slots, ">i4")
    else:
        try:
            data = file.read_slots()
        except OSError as error:
            raise SlotsUnreadableError(error.errno, error.strerror, file.path) from error
        file.slots = np.frombuffer(data, ">i4").copy()
    return file.slots


def save_slots(file: IndexFile) -> None:
    """Write the table of slots, leaving out what is still zero, and the header (raises ``OSError``)."""
    table = file.slots
    if table is None:
        return
    for start in range(0, len(table), _SLOT_CHUNK):
        chunk = table[start : start + _SLOT_CHUNK]
        if chunk.any():
            file.write(chunk.tobytes(), HEADER.size + 4 * start)
    file.write_header(has_slots=True)


def chain(
    slots: NDArray[np.int64], table: NDArray[np.int32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the previous entry of every row, the table's value for every slot touched, and the last row of each."""
    order = np.argsort(slots, kind="stable")
    sorted_slots = slots[order]
    changes = sorted_slots[1:] != sorted_slots[:-1]
    is_first = np.concatenate(([True], changes))
    is_last = np.concatenate((changes, [True]))
    firsts = table[sorted_slots[is_first]].astype(np.int64)
    firsts[(firsts < 0) | (firsts >= count)] = 0
    in_order = np.empty(len(slots), np.int64)
    in_order[1:] = order[:-1] + count
    in_order[is_first] = firsts
    previous = np.empty(len(slots), np.int64)
    previous[order] = in_order
    return previous, firsts, order[is_last]


def _seconds(file: IndexFile, stored_at_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    begin_at_ms = file.begin_at_ms if file.count > 1 else int(stored_at_ms[0])
    seconds = (stored_at_ms - begin_at_ms) // 1000
    if file.count == 1 and file.begin_at_ms > 0:
        seconds[0] = (stored_at_ms[0] - file.begin_at_ms) // 1000
    if begin_at_ms <= 0:
        seconds[:] = 0
    return np.clip(seconds, 0, MAX_SECONDS)


def restore(space: IndexSpace, file: IndexFile, log_offset: int) -> bool:
    """Make the file end before ``log_offset`` and its slots anew; tell whether its entries are sound up to there.

    The chain of an entry follows from the hashes before it, so a page that never reached the disk shows.
    """
    table = np.zeros(space.max_slots, ">i4")
    end, end_at_ms = min(file.count, space.max_entries), file.end_at_ms
    number, is_sound, last_offset = 1, True, file.begin_log_offset
    while number < end and is_sound:
        chunk = np.frombuffer(file.read_entries(number, min(_CHECK_ENTRIES, end - number)), _ENTRY)
        before = int(np.searchsorted(chunk["log_offset"], log_offset, side="left"))
        keep = _sound_entries(chunk[:before], table, number, last_offset)
        is_sound = keep == before
        if keep:
            file.end_at_ms = file.begin_at_ms + int(chunk["seconds"][keep - 1]) * 1000
            file.end_log_offset = last_offset = int(chunk["log_offset"][keep - 1])
        number += keep
        if before < len(chunk):
            break
    if number == end:
        file.end_at_ms = end_at_ms  # to the millisecond, while entries know seconds
    file.slots = table
    file.used_slots = int(np.count_nonzero(table))
    file.count = number
    return is_sound


def _enter_chained(slots: NDArray[np.int64], previous: NDArray[np.int64], table: NDArray[np.int32], count: int) -> bool:
    """Enter entries into the table if each points to the one before it in its slot; else change nothing.

    It needs no sorting: when every pointer stays in its slot and goes back, no two go to the same entry, and a slot has
    one pointer out of these entries, which is what the table says, then each slot is one chain in order.
    """
    numbers = np.arange(count, count + len(slots))
    is_inner = previous >= count
    targets = previous[is_inner] - count
    before = table[slots]
    if (previous >= numbers).any() or (previous != before)[~is_inner].any():
        return False
    used = np.zeros(len(slots), bool)
    used[targets] = True
    if (slots[targets] != slots[is_inner]).any() or np.count_nonzero(used) != len(targets):
        return False
    table[slots] = numbers  # of equal slots the last one stays
    if np.count_nonzero(table[slots] == numbers) == len(slots) - len(targets):
        return True
    table[slots] = before
    return False


def _sound_entries(entries: NDArray[np.void], table: NDArray[np.int32], count: int, least_offset: int) -> int:
    """Enter the entries into the table as far as they are what Java's put would have made; return how many are."""
    hashes = entries["hash"].astype(np.int64)
    offsets = entries["log_offset"].astype(np.int64)
    if not len(entries):
        return 0
    slots = np.maximum(hashes, 0) % len(table)
    is_monotone = offsets[0] >= least_offset and bool((offsets[1:] >= offsets[:-1]).all())
    is_plain = is_monotone and hashes.min() >= 0 and entries["seconds"].min() >= 0
    if is_plain and _enter_chained(slots, entries["previous"].astype(np.int64), table, count):
        return len(entries)
    previous, _, _ = chain(slots, table, count)
    is_good = (previous == entries["previous"]) & (hashes >= 0) & (entries["seconds"] >= 0)
    is_good &= np.concatenate(([offsets[0] >= least_offset], offsets[1:] >= offsets[:-1]))
    return _sound_entries(entries[: int(np.argmin(is_good))], table, count, least_offset)
