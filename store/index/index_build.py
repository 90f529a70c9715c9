"""Index entries in batches, with numpy; the same bytes as if every key had been put alone.

Rules:

- Imported only when there is something to build: numpy costs start time and memory.
- The hashes of all keys of a batch are worked out at once, from the texts of their records' properties.
- Within a batch an entry points to the one before it with the same slot, the first of a slot to what the table says.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.properties import codecs
from .index_file import HEADER, MAX_SECONDS, IndexFile, IndexSpace, SlotsUnreadableError
from .property_keys import PropertyKeys, TopicNumbers, hash32, number_names

_ENTRY = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_SLOT_CHUNK = 16_384
_CHECK_ENTRIES = 1 << 17


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


def collect(
    texts: Sequence[bytes], topics: Sequence[str], log_offsets: Sequence[int], stored_at_ms: Sequence[int]
) -> IndexBatch | None:
    """Return the entries of records: unique key, keys, tags (store.md §4.2); ``None`` when there are none.

    ``texts`` are those of their properties.
    """
    rows, hashes = _entries(texts, topics)
    if not len(rows):
        return None
    return IndexBatch(hashes, np.array(log_offsets, np.int64)[rows], np.array(stored_at_ms, np.int64)[rows])


def _entries(texts: Sequence[bytes], topics: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the record of each entry, by its number, and its hash."""
    numbers, names = number_names(topics)
    if codecs is not None:
        prefixes = {topic: (hash32(f"{topic}#"), hash32(f"{topic}#T#")) for topic in names}
        found = codecs.key_entries(texts, topics, prefixes)
        if found is not None:
            return np.frombuffer(found[0], np.int64), np.frombuffer(found[1], np.int64)
    keys = PropertyKeys(texts, np.array(list(map(len, texts)), np.int64))
    rows, hashes, _ = keys.entries(TopicNumbers(numbers, names))
    return rows, hashes


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
