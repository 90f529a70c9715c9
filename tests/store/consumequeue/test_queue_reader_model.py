"""Reads of queues with limits and filters: those of a plain list of messages."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from queue_reading import open_reader
from stores import StoreDirectory, new_record

from rocketlet.common.properties import codecs, java_hash, parse_properties
from rocketlet.common.record import BatchPart, encode_batch, iter_records, read_property_text
from rocketlet.common.subscriptions.sql_filter import compile_sql
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS
from rocketlet.store.consumequeue.entry_filters import RecordFilter, Runs, TagCodeFilter
from rocketlet.store.consumequeue.queue_reader import QueueReader, ReadLimits, ReadResult, ReadStatus
from rocketlet.store.files.files import Descriptors
from rocketlet.store.files.store_config import StoreConfig

TAGS = ("A", "B", "C")
FILE_ENTRIES = 25
LEAST_JOINED = 4
SIZES = {"queue_file_bytes": 20 * FILE_ENTRIES, "batch_file_bytes": 46 * FILE_ENTRIES}


class Stored(NamedTuple):
    """A record of the log, and the offsets of its messages."""

    log_offset: int
    size: int
    tag: str
    number: str
    first_offset: int
    messages: int

    @property
    def next_offset(self) -> int:
        """The offset behind the last message."""
        return self.first_offset + self.messages


class SqlRecords(RecordFilter):
    """A filter of records that remembers verdicts, and finds many at once by them."""

    def __init__(self, expression: str) -> None:
        self.compiled = compile_sql(expression)

    def __call__(self, log: memoryview, start: int, end: int) -> bool:
        """Tell whether the record is wanted."""
        return self.compiled.matches_record(log, start, end)

    def find_runs(self, entries: bytes, log: memoryview, base: int, most: int) -> Runs | None:
        """Return where the first wanted records are."""
        found = self.compiled.find_runs(entries, log, base, most)
        return None if found is None else Runs(*found)


class Wishes(NamedTuple):
    """What a read asks for; none of the filters means that all is wanted."""

    limits: ReadLimits
    tags: frozenset[str] | None
    numbers: tuple[str, ...] | None
    finds_many: bool

    def accepts(self) -> Callable[[int], bool] | None:
        """Return the filter of tags codes, in one of the forms that there are."""
        if self.tags is None:
            return None
        codes = frozenset(map(java_hash, self.tags))
        return TagCodeFilter(codes) if self.finds_many else codes.__contains__

    def accepts_record(self) -> Callable[[memoryview, int, int], bool] | None:
        """Return the filter of records."""
        if self.numbers is None:
            return None
        if self.finds_many:
            return SqlRecords(" OR ".join(f"number = '{number}'" for number in self.numbers))
        numbers = self.numbers
        return lambda log, start, end: parse_properties(read_property_text(log, start, end)).get("number") in numbers

    def wants(self, one: Stored) -> bool:
        """Tell whether a record passes both filters."""
        return (self.tags is None or one.tag in self.tags) and (self.numbers is None or one.number in self.numbers)


def draw_wishes(draw: random.Random) -> Wishes:
    """Return limits and filters, few messages and bytes more often than many."""
    limits = ReadLimits(draw.choice([1, 2, 3, 7, 12, 40]), draw.choice([1, 300, 700, 1_500, 1 << 20, 1 << 20]))
    tags = draw.choice([None, None, frozenset("A"), frozenset("BC"), frozenset("D")])
    numbers = draw.choice([None, None, ("1",), ("0", "2"), ("7",)])
    return Wishes(limits, tags, numbers, draw.random() < 0.5)


def draw_config(directory: StoreDirectory, draw: random.Random) -> StoreConfig:
    """Return the settings of the store with other limits for batches and filters."""
    return replace(
        directory.config,
        max_memory_messages=draw.choice([5, 9]),
        max_disk_messages=draw.choice([2, 4]),
        max_memory_bytes=draw.choice([800, 2_000, 1 << 18]),
        max_disk_bytes=draw.choice([300, 600, 1 << 18]),
        max_scan_bytes=draw.choice([46, 200, 300]),
    )


def fill(directory: StoreDirectory, draw: random.Random, *, is_batch: bool) -> list[Stored]:
    """Write 60 records of any size and tag to a queue, with others in between, and return them."""
    stored: list[Stored] = []
    with directory.open() as store:
        if is_batch:
            store.set_batch_topics(["T"])
        for _ in range(60):
            tag, count = draw.choice(TAGS), draw.choice([1, 1, 2, 3]) if is_batch else 1
            number = str(draw.randrange(3 if draw.random() < 0.8 else 99))
            record = new_record(body=bytes(draw.randrange(150)), TAGS=tag, number=number)
            if count > 1:
                record.body = encode_batch(BatchPart(0, b"%d" % number, b"") for number in range(count))
                record.sys_flag |= INNER_BATCH_FLAGS
            placed = store.append(record)
            stored.append(Stored(placed.log_offset, placed.size, tag, number, placed.queue_offset, count))
            if draw.random() < 0.3:
                store.append(new_record("Other"))
        store.commit()
    return stored


def starts_of(result: ReadResult) -> list[int]:
    """Return where the records of a result lie."""
    return [record.log_offset for part in result.records for record in iter_records(part)]


@pytest.mark.parametrize("seed", range(4))
def test_read_is_that_of_a_list(directory: StoreDirectory, descriptors: Descriptors, seed: int) -> None:
    """Whatever is asked: the first wanted messages up to each limit, in slices of what follows each other.

    Many short slices are one copy, where that is compiled.
    """
    directory, draw = StoreDirectory(directory.root, **SIZES), random.Random(seed)
    stored = fill(directory, draw, is_batch=False)
    config = draw_config(directory, draw)
    reader, log, _ = open_reader(directory, descriptors, config)
    for _ in range(250):
        offset, wishes = draw.randrange(60), draw_wishes(draw)
        reader.near_bytes = log.max_offset - draw.choice(stored).log_offset + draw.choice([-1, 0, 1])
        result = reader.read("T", 0, offset, wishes.limits, wishes.accepts(), wishes.accepts_record())
        taken, seen, last = read_list(reader, config, stored[offset:], wishes)
        found = [one.log_offset for one in taken]
        status = ReadStatus.FOUND if taken else ReadStatus.NO_MATCHED_MESSAGE
        assert (result.status, result.next_offset, starts_of(result)) == (status, offset + seen, found)
        assert (result.message_count, result.size) == (len(taken), sum(one.size for one in taken))
        assert result.is_far_behind == (not reader.is_near(last.log_offset))
        gaps = sum(one.log_offset + one.size != other.log_offset for one, other in pairwise(taken))
        files = {at // config.segment_bytes for at in found}
        is_joined = codecs is not None and gaps >= LEAST_JOINED and len(files) == 1
        assert len(result.records) == (0 if not taken else 1 if is_joined else gaps + 1)


def read_list(
    reader: QueueReader, config: StoreConfig, stored: Sequence[Stored], wishes: Wishes
) -> tuple[list[Stored], int, Stored]:
    """Return the messages that a read takes from a list, how many it passes, and the last one that it looks at."""
    limits, is_filtered = wishes.limits, wishes.tags is not None or wishes.numbers is not None
    most = max(limits.max_messages, config.max_scan_bytes // 20) if is_filtered else limits.max_messages
    taken: list[Stored] = []
    passed, last = 0, stored[0]
    for last in stored[: min(most, FILE_ENTRIES - stored[0].first_offset % FILE_ENTRIES)]:
        is_near = reader.is_near(last.log_offset)
        most_count = config.max_memory_messages if is_near else config.max_disk_messages
        most_bytes = config.max_memory_bytes if is_near else config.max_disk_bytes
        size = sum(one.size for one in taken) + last.size
        is_full = len(taken) >= min(most_count, limits.max_messages) or size > min(most_bytes, limits.max_bytes)
        if taken and is_full:
            break
        passed += 1
        if wishes.wants(last):
            taken.append(last)
    return taken, passed, last


@pytest.mark.parametrize("seed", range(4))
def test_read_of_batches_is_that_of_a_list(directory: StoreDirectory, descriptors: Descriptors, seed: int) -> None:
    """Whatever is asked: the first wanted records, whole, up to each limit, from the one on that holds the offset."""
    directory, draw = StoreDirectory(directory.root, **SIZES), random.Random(seed)
    stored = fill(directory, draw, is_batch=True)
    config = draw_config(directory, draw)
    reader, log, _ = open_reader(directory, descriptors, config)
    for _ in range(250):
        offset, wishes = draw.randrange(stored[-1].next_offset), draw_wishes(draw)
        reader.near_bytes = log.max_offset - draw.choice(stored).log_offset + draw.choice([-1, 0, 1])
        result = reader.read("T", 0, offset, wishes.limits, wishes.accepts(), wishes.accepts_record())
        taken, last = read_batch_list(reader, config, stored, offset, wishes)
        status = ReadStatus.FOUND if taken else ReadStatus.NO_MATCHED_MESSAGE
        assert (result.status, starts_of(result)) == (status, [one.log_offset for one in taken])
        assert (result.next_offset, result.min_offset) == (last.next_offset, 0)
        assert result.max_offset == stored[-1].next_offset
        assert result.message_count == sum(one.messages for one in taken)
        assert result.size == sum(one.size for one in taken)
        assert result.is_far_behind == (not reader.is_near(last.log_offset))


def read_batch_list(
    reader: QueueReader, config: StoreConfig, stored: Sequence[Stored], offset: int, wishes: Wishes
) -> tuple[list[Stored], Stored]:
    """Return the records that a read takes from a list, and the last one that it passes."""
    limits = wishes.limits
    first = next(number for number, one in enumerate(stored) if one.next_offset > offset)
    stop = offset + max(limits.max_messages, config.max_scan_bytes // 46)
    taken: list[Stored] = []
    last = stored[first]
    for one in stored[first : first - first % FILE_ENTRIES + FILE_ENTRIES]:
        is_near = reader.is_near(one.log_offset)
        count, size = sum(each.messages for each in taken), sum(each.size for each in taken) + one.size
        is_full = (
            count + one.messages > limits.max_messages
            or count >= (config.max_memory_messages if is_near else config.max_disk_messages)
            or size > min(limits.max_bytes, config.max_memory_bytes if is_near else config.max_disk_bytes)
        )
        if one.first_offset >= stop or (taken and is_full):
            break
        last = one
        if wishes.wants(one):
            taken.append(one)
    return taken, last
