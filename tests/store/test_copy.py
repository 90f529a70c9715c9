"""The log of a master is copied byte by byte into another store, as a replica does it."""

import pathlib
import random
from collections.abc import Sequence

import msgspec
import pytest
from stores import StoreDirectory, file_bytes, new_record, sample

from rocketlet.common.message import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from rocketlet.common.record import BatchPart, NewRecord, encode_batch
from rocketlet.store.consumequeue.appended import Placed
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS
from rocketlet.store.message_store import MessageStore

BATCHES = "Inner"
DELAYED = "SCHEDULE_TOPIC_XXXX"


def message(number: int) -> NewRecord:
    """Return one of all kinds of messages that get a queue entry, or none."""
    if number % 7 == 3:
        return new_record(DELAYED, 2, b"delayed", DELAY="3", TAGS="a")
    if number % 7 == 5:
        parts = [BatchPart(0, b"one", b""), BatchPart(0, b"two", b"")]
        return msgspec.structs.replace(new_record(BATCHES, 0, encode_batch(parts)), sys_flag=INNER_BATCH_FLAGS)
    if number % 7 == 6:
        flag = TRANSACTION_COMMIT if number % 2 else TRANSACTION_PREPARED
        return msgspec.structs.replace(sample(number, "Half"), sys_flag=flag)
    return sample(number)


def fill(store: MessageStore, count: int) -> None:
    """Store messages of all kinds."""
    store.set_batch_topics([BATCHES])
    for number in range(count):
        store.append(message(number))
        store.commit()


def copy(master: MessageStore, replica: MessageStore, chance: random.Random, start: int, end: int) -> None:
    """Copy a part of the log in frames of any length, none of which crosses the end of a file."""
    file_size = master.config.segment_bytes
    while start < end:
        size = min(chance.randrange(1, 500), end - start, file_size - start % file_size)
        path = f"{master.config.log_directories[0]}/{start - start % file_size:020d}"
        with open(path, "rb") as file:
            file.seek(start % file_size)
            replica.append_copy(start, file.read(size))
        replica.advance()
        start += size


@pytest.fixture
def pair(tmp_path: pathlib.Path) -> tuple[StoreDirectory, StoreDirectory]:
    """Return the directories of a master and of a replica."""
    return StoreDirectory(tmp_path / "master"), StoreDirectory(tmp_path / "replica")


def contents(directory: StoreDirectory) -> dict[str, bytes]:
    """Return log, queues and index of a closed store."""
    found = file_bytes(directory.root)
    kinds = ("commitlog", "consumequeue", "batchconsumequeue", "index")
    return {path: data for path, data in found.items() if path.startswith(kinds)}


@pytest.mark.parametrize("seed", range(3))
def test_copied_log_makes_the_same_queues(pair: tuple[StoreDirectory, StoreDirectory], seed: int) -> None:
    """Bytes that arrive in any pieces become the queues that the master wrote, and recovery finds nothing to add."""
    master, replica = pair
    with master.open() as source, replica.open() as target:
        target.set_batch_topics([BATCHES])
        arrived: list[Placed] = []

        def note(records: Sequence[Placed]) -> None:
            arrived.extend(records)

        target.subscribe(note)
        fill(source, 60)
        copy(source, target, random.Random(seed), 0, source.log_max_offset)
        assert len(arrived) == 60
        assert (target.log_max_offset, target.dispatch_behind_bytes) == (source.log_max_offset, 0)
        for topic, queue_id in source.queues():
            assert target.max_offset(topic, queue_id) == source.max_offset(topic, queue_id)
        assert len(target.query("T", "all", 64, 0, 1 << 62).records) == len(
            source.query("T", "all", 64, 0, 1 << 62).records
        )
    copied = {path: data for path, data in contents(replica).items() if not path.startswith("index")}
    assert copied == {path: data for path, data in contents(master).items() if not path.startswith("index")}
    before = contents(replica)
    replica.abort.touch()
    replica.open()
    replica.close_all()
    assert contents(replica) == before


def test_copy_may_begin_at_any_file(pair: tuple[StoreDirectory, StoreDirectory]) -> None:
    """An empty store takes the start of a later file; its queues begin at the first record that it holds."""
    master, replica = pair
    with master.open() as source, replica.open() as target:
        target.set_batch_topics([BATCHES])
        fill(source, 120)
        start = 2 * source.config.segment_bytes
        with pytest.raises(ValueError, match=f"stand at {start + 1}, the log ends at 0"):
            target.append_copy(start + 1, b"x")
        copy(source, target, random.Random(1), start, source.log_max_offset)
        assert (target.log_min_offset, target.log_max_offset) == (start, source.log_max_offset)
        for topic, queue_id in target.queues():
            low = target.min_offset(topic, queue_id)
            assert low > 0 or topic != "T"
            assert target.max_offset(topic, queue_id) == source.max_offset(topic, queue_id)
            assert target.stored_at(topic, queue_id, low) == source.stored_at(topic, queue_id, low)
        assert "T" in {topic for topic, _ in target.queues()}


def test_piece_of_a_record_waits_for_the_rest(pair: tuple[StoreDirectory, StoreDirectory]) -> None:
    """Half a record is in the log and cannot be read; a restart cuts it, and the copy goes on where the log ends."""
    master, replica = pair
    with master.open() as source:
        first, second = source.append(sample(0)), source.append(sample(3))
        source.commit()
        data = master.segment().read_bytes()
        target = replica.open()
        half = second.log_offset + second.size // 2
        target.append_copy(0, data[:half])
        target.advance()
        assert (target.max_offset("T", 0), target.log_max_offset) == (1, half)
        replica.close_all()
        replica.abort.touch()
        target = replica.open()
        assert target.log_max_offset == first.size
        target.append_copy(first.size, data[first.size : source.log_max_offset])
        target.advance()
        assert target.max_offset("T", 0) == 2


def test_replica_goes_on_as_master(pair: tuple[StoreDirectory, StoreDirectory]) -> None:
    """What a store appends behind a copy takes the next offset of its queue and a later store time."""
    master, replica = pair
    with master.open() as source, replica.open() as target:
        fill(source, 10)
        newest_at_ms = source.stored_at("T", 0, source.max_offset("T", 0) - 1)
        target.set_batch_topics([BATCHES])
        copy(source, target, random.Random(2), 0, source.log_max_offset)
        with pytest.raises(ValueError, match="stand at 0, the log ends at"):
            target.append_copy(0, b"again")
        placed = target.append(sample(0))
        target.commit()
        assert placed.queue_offset == source.max_offset("T", 0)
        assert placed.stored_at_ms >= newest_at_ms
        assert target.max_offset("T", 0) == placed.queue_offset + 1


@pytest.mark.parametrize("is_readable", [True, False])
@pytest.mark.parametrize("topic", ["T", BATCHES])
def test_topic_that_was_deleted_and_made_again(
    pair: tuple[StoreDirectory, StoreDirectory], topic: str, is_readable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queues begin anew as those of the master, whether what was in them could be read by then or not."""
    master, replica = pair
    with master.open() as source, replica.open() as target:
        for store in (source, target):
            store.set_batch_topics([BATCHES])
        parts = [BatchPart(0, b"one", b""), BatchPart(0, b"two", b"")]
        batch = msgspec.structs.replace(new_record(topic, 0, encode_batch(parts)), sys_flag=INNER_BATCH_FLAGS)
        for count in (6, 2, 5):
            for _ in range(count):
                source.append(batch if topic == BATCHES else new_record(topic, 0))
                source.commit()
            start = target.log_max_offset
            target.append_copy(start, source.log_bytes(start, 1 << 20))
            if is_readable:
                target.advance()
            if count == 6:
                source.delete_topic(topic)
                source.set_batch_topics([BATCHES])
        target.advance()
        assert target.max_offset(topic, 0) == source.max_offset(topic, 0) == (14 if topic == BATCHES else 7)
        assert target.min_offset(topic, 0) == source.min_offset(topic, 0) == 0
        for offset in range(source.max_offset(topic, 0)):
            assert target.stored_at(topic, 0, offset) == source.stored_at(topic, 0, offset)
            assert target.entries(topic, 0, offset, 1) == source.entries(topic, 0, offset, 1)
    assert "begins anew at 0, it ended at" in caplog.text
    copied = {path: data for path, data in contents(replica).items() if not path.startswith("index")}
    assert copied == {path: data for path, data in contents(master).items() if not path.startswith("index")}
