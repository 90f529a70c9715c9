"""What a store promises to its owner: places and times of records, what is refused and why, what waits, how it ends."""

import logging
import pathlib
import sys
from collections.abc import Callable

import pytest
from stores import HOST, LimitedFiles, StoreDirectory, new_part, new_record, read_all, read_queue
from syncs import CrowdedFiles, NamedFiles, RecordedSyncs, checkpoint, flush, write

from rocketlet.common.errors import MessageIllegalError, StoreDamagedError, StoreFullError, StoreNotWritableError
from rocketlet.common.message import TRANSACTION_PREPARED
from rocketlet.common.record import BLANK_BYTES, decode_record, iter_records
from rocketlet.store import index as index_package
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS
from rocketlet.store.index.key_index import INDEX_BATCH_RECORDS
from rocketlet.store.message_store import MessageStore

Copy = Callable[..., StoreDirectory]
EMPTY_BYTES = 92
"""How long the record of a message without a body is, in topic T."""


def put(store: MessageStore, size: int, queue_id: int = 0) -> int:
    """Store one record of so many bytes; return its log offset."""
    placed = store.append(new_record(queue_id=queue_id, body=bytes(size - EMPTY_BYTES)))
    store.commit()
    assert placed.size == size
    return placed.log_offset


# --- places and times


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize(("left", "expected"), [(0, 1000), (1, 4096), (8, 4096)])
def test_record_goes_to_the_next_file_when_8_bytes_behind_it_do_not_fit(
    directory: StoreDirectory, left: int, expected: int, *, is_batch: bool
) -> None:
    """A record that ends exactly 8 bytes before the end of its file is in it; it says where it stands."""
    with directory.open() as store:
        put(store, 1000)
        size = 4096 - 1000 - BLANK_BYTES + left
        if is_batch:
            parts = [new_part(bytes(100)), new_part(bytes(size - 2 * EMPTY_BYTES - 100))]
            placed = store.append_batch(new_record(), parts).records()
            store.commit()
            assert [one.log_offset for one in placed] == [expected, expected + EMPTY_BYTES + 100]
        else:
            assert put(store, size) == expected
        assert (store.log_max_offset, store.log_append_offset) == (expected + size, expected + size)
        found = [record.log_offset for record in read_queue(store, "T", 0)]
        assert found == ([0, expected, expected + EMPTY_BYTES + 100] if is_batch else [0, expected])


def test_batch_fits_one_file_or_is_refused(directory: StoreDirectory) -> None:
    """It may be as long as a file with a blank behind it; the answer to a longer one holds both numbers."""
    with directory.open() as store:
        head = new_record()
        fits = [new_part(bytes(2000)), new_part(bytes(4096 - 8 - 2 * EMPTY_BYTES - 2000))]
        assert [one.queue_offset for one in store.append_batch(head, fits).records()] == [0, 1]
        store.commit()
        assert store.log_max_offset == 4088
        too_long = [fits[0], new_part(bytes(4096 - 8 - 2 * EMPTY_BYTES - 2000 + 1))]
        with pytest.raises(MessageIllegalError, match=r"^batch is 4089 bytes, limit is 4088$"):
            store.append_batch(head, too_long)
        assert not store.has_planned
        assert store.append(new_record()).queue_offset == 2


def test_records_of_one_commit_have_one_store_time(directory: StoreDirectory) -> None:
    """That of the first; a batch among them takes its own, and no record an earlier one than that before it."""
    with directory.open() as store:
        before_ms = directory.now_ms
        times = [store.append(new_record()).stored_at_ms]
        directory.now_ms += 5
        times.append(store.append(new_record()).stored_at_ms)
        times.append(store.append_batch(new_record(), [new_part(), new_part()]).stored_at_ms)
        directory.now_ms += 5
        times.append(store.append(new_record()).stored_at_ms)
        store.commit()
        directory.now_ms += 5
        times.append(store.append(new_record()).stored_at_ms)
        store.commit()
        assert [at_ms - before_ms for at_ms in times] == [0, 0, 5, 5, 15]
        assert [record.stored_at_ms - before_ms for record in read_queue(store, "T", 0)] == [0, 0, 5, 5, 5, 15]


@pytest.mark.parametrize("is_batch", [False, True])
def test_clock_that_was_set_back_stores_nothing_before_the_last_record(
    directory: StoreDirectory, *, is_batch: bool
) -> None:
    """Not in this store, and not after a start; what only asks for the time gets the same."""
    with directory.open() as store:
        write(store, "T")
    last_ms = directory.now_ms
    directory.now_ms -= 60_000
    with directory.open() as store:
        assert store.stamp_ms() >= last_ms
        placed = store.append_batch(new_record(), [new_part()]) if is_batch else store.append(new_record())
        assert placed.stored_at_ms >= last_ms
        assert store.time_from(last_ms + 500).stamp_ms() >= last_ms + 500
        assert store.time_from(0).stamp_ms() >= placed.stored_at_ms


def test_inner_batch_needs_a_topic_of_its_kind(directory: StoreDirectory) -> None:
    """The kind of a topic that has queues cannot change."""
    with directory.open() as store:
        write(store, "T")
        store.set_batch_topics(["B"])
        assert "B" in store.batch_topics()
        with pytest.raises(Exception, match=r"^topic T has queues that are no batch queues$"):
            store.set_batch_topics(["T"])


def test_prepared_messages_have_no_place_in_a_queue(directory: StoreDirectory) -> None:
    """They take no offset, alone, in a batch, or as a batch that is kept whole; those behind them go on."""
    with directory.open() as store:
        store.set_batch_topics(["B"])
        write(store, "T")
        prepared, inner = new_record(), new_record("B")
        prepared.sys_flag = TRANSACTION_PREPARED
        inner.sys_flag = INNER_BATCH_FLAGS | TRANSACTION_PREPARED
        batch = store.append_batch(prepared, [new_part(), new_part()])
        placed = [*batch.records(), store.append(prepared), store.append(inner)]
        assert [(one.queue_offset, one.queue, one.properties) for one in placed] == [(0, None, {})] * 4
        batch = store.append_batch(new_record(), [new_part(), new_part()])
        assert [one.queue_offset for one in batch.records()] == [1, 2]
        assert store.append(new_record()).queue_offset == 3
        store.commit()
        assert [record.queue_offset for record in read_queue(store, "T", 0)] == [0, 1, 2, 3]
        assert (store.log_max_offset, list(store.queues())) == (8 * 96, [("T", 0)])
    written = iter_records(directory.segment().read_bytes()[: 8 * 96])
    assert [record.queue_offset for record in written] == [0, 0, 1, 0, 0, 1, 2, 3]  # those of a batch count on


def test_records_to_be_committed_of_a_deleted_topic_get_no_queue(directory: StoreDirectory) -> None:
    """They are in the log and in no queue; the numbering begins anew."""
    with directory.open() as store:
        write(store, "T", "U")
        store.append(new_record("T"))
        store.append(new_record("U"))
        store.delete_topic("T")
        store.commit()
        assert list(store.queues()) == [("U", 0)]
        assert store.max_offset("U", 0) == 2
        write(store, "T")
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 1)


# --- what is refused


def test_damaged_store_is_not_opened_unless_told_to_cut_it(directory: StoreDirectory) -> None:
    """By default nothing is lost that was flushed."""
    directory.fill(9, queues=1)
    data = bytearray(directory.segment().read_bytes())
    data[100] ^= 1
    directory.segment().write_bytes(data)
    with pytest.raises(StoreDamagedError, match="does not have its checksum"):
        MessageStore.open(directory.config, now_ms=lambda: directory.now_ms, store_host=HOST)
    with directory.open(repairs=True) as store:
        assert (store.log_min_offset, store.log_max_offset) == (0, 0)


def test_copy_is_taken_at_the_end_of_the_log_only(directory: StoreDirectory, copy_of: Copy) -> None:
    """Records of this broker that wait for their commit come first."""
    with directory.open() as store:
        write(store, "T", count=3)
        data = directory.segment().read_bytes()[: store.log_max_offset]
    twin = StoreDirectory(directory.root.with_name("twin"))
    with twin.open() as store:
        store.append(new_record())
        with pytest.raises(ValueError, match=r"^1 records of this broker wait for their commit, a copy takes none$"):
            store.append_copy(0, data)
        store.commit()
        with pytest.raises(ValueError, match="copied bytes stand at 5, the log ends at"):
            store.append_copy(5, data)
    other = StoreDirectory(directory.root.with_name("other"))
    other.now_ms -= 90_000
    with other.open() as store:
        store.append_copy(0, data)
        assert (store.max_offset("T", 0), store.has_planned) == (0, False)
        store.advance()
        assert store.max_offset("T", 0) == 3
        assert store.append(new_record()).stored_at_ms >= directory.now_ms


@pytest.mark.parametrize("is_copy", [False, True])
def test_failed_write_that_cannot_be_taken_back_ends_writing(
    directory: StoreDirectory, caplog: pytest.LogCaptureFixture, *, is_copy: bool
) -> None:
    """It is said once; each later record is refused with the same words, and reading goes on."""
    disk = FailingWrites()
    store = directory.open(disk)
    write(store, "T")
    data = directory.segment().read_bytes()[: store.log_max_offset]
    disk.fails = True
    if not is_copy:
        store.append(new_record(queue_id=1))
    with pytest.raises(StoreNotWritableError, match="Input/output error") as caught:
        store.append_copy(store.log_max_offset, data) if is_copy else store.commit()
    disk.fails = False
    store.tick()
    assert str(store.refusal) == str(caught.value)
    for call in (
        lambda: store.append(new_record()), lambda: store.append_batch(new_record(), [new_part()]),
        lambda: store.append_copy(0, data),
    ):  # fmt: skip
        with pytest.raises(StoreNotWritableError) as again:
            call()
        assert str(again.value) == str(caught.value)
        assert again.value is not store.refusal
    assert len(read_queue(store, "T", 0)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"rejecting writes: store {directory.root}: {caught.value}"
    ]


class FailingWrites(LimitedFiles):
    """A disk that fails to write while told so."""

    fails = False

    def _write(self, descriptor: int, data: bytes, position: int) -> int:
        if self.fails:
            raise OSError(5, "Input/output error")
        return super()._write(descriptor, data, position)


def test_full_disk_is_told_until_there_is_room(directory: StoreDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """Each try takes up what waits; the next record is taken when there is room, and that is said once."""
    disk = LimitedFiles()
    store = directory.open(disk)
    size = store.append(new_record()).size
    disk.room = size + 5
    store.commit()
    for _ in range(2):
        with pytest.raises(StoreFullError, match="no room in the store"):
            store.append_batch(new_record(), [new_part()])
    disk.room = None
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            store.tick()
            said = [record.getMessage() for record in caplog.records]
            assert said == [f"accepting writes again: store {directory.root}"]
        assert store.append_batch(new_record(), [new_part()]).queue_offset == 1


def test_places_that_were_not_written_are_free_again(directory: StoreDirectory) -> None:
    """Those of all messages of the commit, with and without a place in a queue."""
    disk = LimitedFiles()
    store = directory.open(disk)
    prepared = new_record()
    prepared.sys_flag = TRANSACTION_PREPARED
    for record in (new_record(), prepared, new_record(), prepared):
        store.append(record)
    disk.room = 0
    with pytest.raises(StoreFullError, match="no room to write"):
        store.commit()
    assert not store.has_planned
    disk.room = None
    placed = store.append(new_record())
    assert (placed.log_offset, placed.queue_offset) == (0, 0)


# --- what becomes readable, and when


def test_synchronous_flush_comes_before_reading(tmp_path: pathlib.Path) -> None:
    """Under SYNC_FLUSH records may be read when they are on disk and the owner has gone on."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=True)
    store = directory.open()
    placed = store.append(new_record())
    store.commit()
    assert (store.confirm_offset, store.dispatch_behind_bytes, store.max_offset("T", 0)) == (0, placed.size, 0)
    assert store.record_at(0) is None
    store.advance()
    assert store.max_offset("T", 0) == 0
    assert flush(store) is None
    assert (store.confirm_offset, store.dispatch_behind_bytes, store.max_offset("T", 0)) == (
        placed.size,
        placed.size,
        0,
    )
    store.advance()
    assert (store.dispatch_behind_bytes, store.max_offset("T", 0)) == (0, 1)
    assert store.record_at(0) is not None
    assert store.record_at(placed.size) is None
    write(store, "T")
    store.flush()
    assert store.max_offset("T", 0) == 2
    directory.close_all()


def test_records_on_their_way_to_a_deleted_topic_are_told_without_a_queue(tmp_path: pathlib.Path) -> None:
    """They were committed and not yet readable; nothing of the topic comes back with them."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=True)
    with directory.open() as store:
        heard: list[tuple[str, bool]] = []
        store.subscribe(lambda records: heard.extend((record.topic, record.queue is None) for record in records))
        write(store, "T", "U")
        store.delete_topic("T")
        store.flush()
        assert heard == [("T", True), ("U", False)]
        assert list(store.queues()) == [("U", 0)]
        assert not (directory.root / "consumequeue" / "T").exists()


def test_otherwise_a_commit_is_enough(directory: StoreDirectory) -> None:
    """Records are readable at once; the listeners hear of all that a commit held."""
    store = directory.open()
    heard: list[list[int]] = []
    end = store.subscribe(lambda records: heard.append([record.queue_offset for record in records]))
    store.commit()
    write(store, "T", count=3)
    assert (store.confirm_offset, store.flushed_offset) == (store.log_max_offset, 0)
    end()
    write(store, "T")
    assert heard == [[0, 1, 2]]


def test_index_is_built_when_enough_waits(directory: StoreDirectory) -> None:
    """As many records as make a batch; fewer wait for the next tick, or for somebody who asks."""
    store = directory.open()
    store.prepare_index()
    index = directory.root / "index"
    for number in range(INDEX_BATCH_RECORDS):
        assert not index.exists()
        assert not store.needs_index_tools  # they are loaded
        store.append(new_record(KEYS=f"k{number}"))
        store.commit()
    files = len(list(index.iterdir()))
    assert files > 1
    for number in range(40):
        store.append(new_record(KEYS=f"m{number}"))
    store.commit()
    assert len(list(index.iterdir())) == files
    store.tick()
    assert len(list(index.iterdir())) > files


def test_tools_of_the_index_are_loaded_ahead(directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until somebody has loaded them entries wait: the owner does not wait for an import."""
    monkeypatch.delitem(sys.modules, f"{index_package.__name__}.index_build", raising=False)
    monkeypatch.delattr(index_package, "index_build", raising=False)
    with directory.open() as store:
        assert not store.needs_index_tools
        store.append(new_record(KEYS="k"))
        store.commit()
        for is_loaded in (False, True):
            store.tick()
            assert (store.needs_index_tools, (directory.root / "index").exists()) == (not is_loaded, is_loaded)
            store.prepare_index()
            assert store.needs_index_tools is False


def test_index_without_room_ends_writing_until_there_is(directory: StoreDirectory) -> None:
    """A query that has to build it says so to those who send, and finds what waits all the same."""
    disk = FullIndexDisk()
    store = directory.open(disk)
    store.append(new_record(KEYS="k"))
    store.commit()
    disk.is_full = True
    assert len(store.query("T", "k", 9, 0, 1 << 60).records) == 1
    assert isinstance(store.refusal, StoreFullError)
    disk.is_full = False
    store.tick()
    assert store.refusal is None
    assert len(store.query("T", "k", 9, 0, 1 << 60).records) == 1


class FullIndexDisk(NamedFiles):
    """The disk of the index has no room while told so."""

    is_full = False

    def _write(self, descriptor: int, data: bytes, position: int) -> int:
        if self.is_full and "/index/" in self.opened[descriptor]:
            raise OSError(28, "No space left on device")
        return super()._write(descriptor, data, position)


def test_query_names_keys_and_tags(directory: StoreDirectory) -> None:
    """A tag is asked for by its kind; no more are told than are asked for, and than the settings allow."""
    directory = StoreDirectory(directory.root, max_query_messages=3)
    with directory.open() as store:
        for _ in range(5):
            store.append(new_record(KEYS="word", TAGS="tag"))
        store.commit()

        def ask(key: str, count: int, kind: str = "K", begin_ms: int = 0) -> int:
            return len(store.query("T", key, count, begin_ms, 1 << 60, kind="T" if kind == "T" else "K").records)

        assert [ask("word", count) for count in (1, 2, 3, 4)] == [1, 2, 3, 3]
        assert (ask("tag", 2, "T"), ask("tag", 2), ask("word", 2, "T")) == (2, 0, 0)
        assert ask("word", 3, begin_ms=directory.now_ms + 60_000) == 0


def test_store_without_an_index_finds_no_key(tmp_path: pathlib.Path) -> None:
    """It asks for no tools and makes no files."""
    directory = StoreDirectory(tmp_path / "store", has_index=False)
    with directory.open() as store:
        store.append(new_record(KEYS="k"))
        store.commit()
        store.prepare_index()
        store.tick()
        found = store.query("T", "k", 9, 0, 1 << 60)
        assert (found.log_offsets, found.records, store.needs_index_tools) == ([], [], False)
    assert not (directory.root / "index").exists()
    assert not directory.abort.exists()


# --- flushing and the end


def test_checkpoint_leaves_out_the_time_of_planned_records(directory: StoreDirectory) -> None:
    """They get the time of their planning, and may be on the disk much later."""
    store = directory.open()
    write(store, "T")
    planned = store.append(new_record())
    directory.now_ms += 5_000
    store.flush()
    assert checkpoint(directory).log_at_ms == planned.stored_at_ms - 1
    store.commit()
    store.flush()
    directory.now_ms += 1_000
    store.flush()
    assert checkpoint(directory).log_at_ms == planned.stored_at_ms


def test_stop_makes_what_was_flushed_last_readable(tmp_path: pathlib.Path) -> None:
    """Under SYNC_FLUSH, too, a clean stop leaves nothing for the next start to write."""
    directory = StoreDirectory(tmp_path / "store", is_sync_flush=True)
    store = directory.open()
    store.append(new_record())
    store.close()
    assert directory.queue_file().exists()


def test_due_files_are_flushed_on_their_thread(directory: StoreDirectory) -> None:
    """Nothing is asked for when nothing is due; what had no descriptor is asked for again."""
    disk = CrowdedFiles()
    store = directory.open(disk)
    store.flush()
    write(store, "T")
    assert flush(store) is None
    disk.synced.clear()
    store.flush_when_due()
    directory.now_ms += 60_000
    disk.is_crowded = True
    store.flush_when_due()
    assert settled(store) == []
    disk.is_crowded = False
    store.flush_when_due()
    store.close()
    assert "consumequeue/T/0/00000000000000000000" in disk.synced
    assert not directory.abort.exists()


def settled(store: MessageStore) -> list[str]:
    """Wait for what was asked for, as far as a flush of the log tells; return why it failed."""
    failure = flush(store)
    return [] if failure is None else [str(failure)]


def test_failed_flush_is_told_and_ends_writing(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """Every later flush fails likewise; only a start ends it, which recovers."""
    store = directory.open(disk)
    write(store, "T")
    assert (store.flush_failure, store.refusal) == (None, None)
    disk.fails_sync = True
    failure = flush(store)
    disk.fails_sync = False
    assert failure is not None
    assert store.flush_failure is failure is store.refusal
    for call in (store.flush, lambda: store.append(new_record())):
        with pytest.raises(StoreNotWritableError, match="a flush failed, rejecting writes"):
            call()
    assert len(read_queue(store, "T", 0)) == 1
    directory.close_all()
    assert directory.abort.exists()
    with directory.open() as again:
        assert not again.was_closed_cleanly
        assert read_all(again) == {("T", 0): [(0, b"body")]}
    with directory.open() as again:
        assert again.was_closed_cleanly


def test_stop_writes_what_was_planned(directory: StoreDirectory) -> None:
    """Then nothing more is taken, and the next start finds everything."""
    store = directory.open()
    store.append(new_record(KEYS="k"))
    store.close()
    with pytest.raises(StoreNotWritableError, match=f"^store {directory.root} is closed$"):
        store.append(new_record())
    with directory.open() as again:
        assert (again.was_closed_cleanly, again.flushed_offset) == (True, again.log_max_offset)
        assert len(again.query("T", "k", 9, 0, 1 << 60).records) == 1


def test_stop_with_a_full_disk_leaves_it_to_the_next_start(
    directory: StoreDirectory, disk: LimitedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """What has no room at the end is said; when there is room again by then, the stop is a clean one."""
    for has_room in (False, True):
        store = directory.open(disk)
        placed = store.append(new_record())
        disk.room = placed.size + 5
        store.commit()
        disk.room = None if has_room else 0
        caplog.clear()
        directory.close_all()
        disk.room = None
        said = [record.getMessage() for record in caplog.records if "closed" in record.getMessage()]
        assert directory.abort.exists() is not has_room
        assert [text.partition(": no room")[0] for text in said] == [
            f"store {directory.root} is not closed cleanly, the next start recovers it"
        ] * (not has_room)
    assert [at for at, _ in read_all(directory.open())["T", 0]] == [0, 1]


def test_stop_removes_the_file_that_was_prepared(directory: StoreDirectory) -> None:
    """Once half a file is full the next one is made; a clean stop leaves the log as long as it is."""
    disk = RecordedSyncs()
    store = directory.open(disk)
    put(store, 2100)
    store.flush()
    assert directory.segment(1).exists()
    store.close()
    assert [path.name for path in sorted((directory.root / "commitlog").iterdir())] == [f"{0:020d}"]
    assert disk.synced[-1] == "/"


def test_host_of_records_can_be_told_later(directory: StoreDirectory) -> None:
    """A broker on a free port learns its port after the start."""
    with directory.open() as store:
        other = b"\x7f\x00\x00\x01\x00\x00\x00\x50"
        write(store, "T")
        before, _ = store.store_host, store.set_store_host(other)
        write(store, "T")
        assert store.store_host == other
        hosts = [
            decode_record(store.record_at(record.log_offset) or b"").store_host for record in read_queue(store, "T", 0)
        ]
        assert hosts == [before, other]
