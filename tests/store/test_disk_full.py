"""A disk that has no room: nothing half written is published, reading goes on, and it works again with room."""

from collections.abc import Callable

import pytest
from stores import LimitedFiles, StoreDirectory, assert_recovered, new_part, new_record, read_all, sample

from rocketlet.common.errors import StoreError, StoreFullError
from rocketlet.store.files.checkpoint import load_checkpoint
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.message_store import MessageStore

Copy = Callable[..., StoreDirectory]


def fill_up(store: MessageStore, disk: LimitedFiles, room: int) -> list[int]:
    """Append until the disk is full, then give it room; return the numbers of messages whose commit succeeded."""
    disk.room = room
    kept: list[int] = []
    for number in range(100, 130):
        try:
            store.append(sample(number))
            store.commit()
        except StoreFullError:
            continue
        kept.append(number)
    disk.room = None
    return kept


@pytest.mark.parametrize("room", [*range(0, 600, 37), 1500, 3000])
def test_full_disk_keeps_what_was_committed(
    directory: StoreDirectory, copy_of: Copy, disk: LimitedFiles, room: int
) -> None:
    """Wherever the room ends, in the log, a queue or the index: committed messages are there, others are not."""
    store = directory.open(disk)
    for number in range(20):
        store.append(sample(number))
        store.commit()
    kept = fill_up(store, disk, room)
    assert len(kept) < 30
    store.append(sample(999))
    store.commit()
    expected = sorted(sample(number).body for number in (*range(20), *kept, 999))
    for opened in (store, copy_of().open()):
        assert sorted(body for queue in read_all(opened).values() for _, body in queue) == expected
        for queue in read_all(opened).values():
            assert [offset for offset, _ in queue] == list(range(len(queue)))
        for number in (*range(20), *kept, 999):
            assert len(opened.query("T", f"k{number}", 64, 0, 1 << 62).log_offsets) == 1
    directory.close_all()
    assert not directory.abort.exists()
    assert sorted(body for queue in read_all(directory.open()).values() for _, body in queue) == expected


def test_short_write_is_zeroed_and_its_places_are_free_again(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """The bytes that went out are taken back: zeros where the record began, and the next one takes its offsets."""
    store = directory.open(disk)
    store.append(new_record())
    store.commit()
    end = store.log_max_offset
    store.append(new_record(queue_id=0))
    store.append(new_record(queue_id=1))
    disk.room = 150
    with pytest.raises(StoreFullError, match="no room to write"):
        store.commit()
    disk.room = None
    assert not any(directory.segment().read_bytes()[end:])
    assert store.log_max_offset == end
    again = [store.append(new_record(queue_id=0)), store.append(new_record(queue_id=1))]
    assert [(one.log_offset, one.queue_offset) for one in again] == [(end, 1), (again[1].log_offset, 0)]


def test_failed_commit_frees_the_offsets_of_all_its_messages(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """However many messages of one queue it held, the next one takes the offset of the first."""
    store = directory.open(disk)
    store.append(new_record())
    store.commit()
    for queue_id in (0, 1, 0):
        store.append(new_record(queue_id=queue_id))
    store.append_batch(new_record(), [new_part(), new_part()])
    disk.room = 0
    with pytest.raises(StoreFullError):
        store.commit()
    disk.room = None
    assert [store.append(new_record(queue_id=queue_id)).queue_offset for queue_id in (0, 0, 1)] == [1, 2, 0]
    store.commit()
    assert (store.max_offset("T", 0), store.max_offset("T", 1)) == (3, 1)


def test_short_write_over_two_files_removes_the_new_one(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """The blank is zeroed, too, and the file that was begun is gone."""
    store = directory.open(disk)
    store.append(new_record(body=bytes(3500)))
    store.commit()
    end = store.log_max_offset
    store.append(new_record(body=bytes(100)))
    store.append(new_record(body=bytes(1000)))
    disk.room = 500
    with pytest.raises(StoreFullError):
        store.commit()
    disk.room = None
    assert not any(directory.segment().read_bytes()[end:])
    assert not directory.segment(1).exists()
    assert store.append(new_record(body=bytes(1000))).log_offset == 4096


def test_full_disk_after_reopening_leaves_old_records_alone(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """The first write after a start may fail in a file that already holds records."""
    directory.fill(3)
    store = directory.open(disk)
    before = read_all(store)
    store.append(sample(5))
    disk.room = 10
    with pytest.raises(StoreFullError):
        store.commit()
    disk.room = None
    assert read_all(store) == before
    directory.close_all()
    assert read_all(directory.open()) == before


def test_queue_without_room_is_written_later(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """The record is in the log, so it is kept; no other is taken until its entry is written."""
    store = directory.open(disk)
    arrived: list[int] = []
    store.subscribe(lambda records: arrived.extend(record.queue_offset for record in records))
    placed = store.append(new_record())
    disk.room = placed.size + 10
    store.commit()
    assert (store.max_offset("T", 0), arrived) == (0, [])
    assert isinstance(store.refusal, StoreFullError)
    with pytest.raises(StoreFullError):
        store.append(new_record())
    disk.room = None
    store.tick()
    assert store.refusal is None
    assert (store.max_offset("T", 0), arrived) == (1, [0])
    assert store.append(new_record()).queue_offset == 1


@pytest.mark.parametrize("entries", range(9))
def test_dispatch_that_was_half_done_is_completed(
    directory: StoreDirectory, copy_of: Copy, disk: LimitedFiles, entries: int
) -> None:
    """Wherever the room for entries ends, between queues or files of one, the rest follows and nothing comes twice."""
    store = directory.open(disk)
    for _ in range(8):
        store.append(new_record())
    store.commit()
    arrived: list[tuple[int, int]] = []
    store.subscribe(lambda records: arrived.extend((record.queue_id, record.queue_offset) for record in records))
    placed = [store.append(new_record(queue_id=queue_id)) for queue_id in (0, 1, 0, 2, 0, 1, 0, 2)]
    log_bytes = placed[-1].log_offset + placed[-1].size - placed[0].log_offset
    disk.room = log_bytes + 20 * entries
    store.commit()
    is_half_done = entries < len(placed)
    assert isinstance(store.refusal, StoreFullError) is is_half_done
    assert bool(arrived) is not is_half_done
    disk.room = min(disk.room, 20)
    store.tick()
    disk.room = None
    store.tick()
    assert store.refusal is None
    assert arrived == [(record.queue_id, record.queue_offset) for record in placed]
    store.append(new_record(queue_id=1))
    store.commit()
    for opened in (store, copy_of().open()):
        found = {key: [queue_offset for queue_offset, _ in queue] for key, queue in read_all(opened).items()}
        assert found == {("T", 0): [*range(12)], ("T", 1): [0, 1, 2], ("T", 2): [0, 1]}


@pytest.mark.parametrize("entries", range(7))
def test_batch_whose_entries_were_half_written_is_completed(
    directory: StoreDirectory, copy_of: Copy, disk: LimitedFiles, entries: int
) -> None:
    """A batch whose entries lie in two files of the queue, of which the room ends in either, gets the others later."""
    store = directory.open(disk)
    for _ in range(8):
        store.append(new_record())
    store.commit()
    arrived: list[int] = []
    store.subscribe(lambda records: arrived.extend(one.queue_offset for placed in records for one in placed.records()))
    placed = store.append_batch(new_record(), [new_part(b"%d" % number) for number in range(5)])
    last = store.append(new_record())
    disk.room = placed.size + last.size + 20 * entries
    store.commit()
    assert isinstance(store.refusal, StoreFullError) is (entries < 6)
    assert bool(arrived) is (entries == 6)
    disk.room = None
    store.tick()
    assert (store.refusal, arrived) == (None, [*range(8, 14)])
    for opened in (store, copy_of().open()):
        assert [queue_offset for queue_offset, _ in read_all(opened)["T", 0]] == [*range(14)]


@pytest.mark.parametrize("filled", [0, 9])
def test_index_file_without_room_is_made_once(directory: StoreDirectory, disk: LimitedFiles, filled: int) -> None:
    """Tries that fail leave no file behind, and no checkpoint says more of the index than is on disk."""
    tiny = StoreDirectory(directory.root.with_name("tiny"), segment_bytes=1 << 20, index_entries=4 * 9 + 1)
    with tiny.open(disk) as store:
        store.prepare_index()
        for number in range(filled):
            store.append(sample(number))
        store.commit()
        store.tick()
        store.append(sample(filled))
        store.commit()
        disk.room = 4 * tiny.config.index_slots if filled else 0
        for _ in range(3):
            tiny.now_ms += 1000
            store.tick()
            assert isinstance(store.refusal, StoreFullError)
        disk.room = None
        store.flush()
        assert load_checkpoint(OS_FILES, str(tiny.root / "checkpoint")).index_at_ms == 0
        assert len(list((tiny.root / "index").glob("*"))) == filled // 9
        store.tick()
        assert len(list((tiny.root / "index").glob("*"))) == filled // 9 + 1
        assert len(store.query("T", f"k{filled}", 64, 0, 1 << 62).log_offsets) == 1


def test_stop_on_a_full_disk_keeps_abort(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """What could not be written is made good by the next start."""
    store = directory.open(disk)
    placed = store.append(new_record(UNIQ_KEY="a"))
    disk.room = placed.size
    store.commit()
    directory.close_all()
    assert directory.abort.exists()
    disk.room = None
    store = directory.open()
    assert read_all(store) == {("T", 0): [(0, b"body")]}
    assert len(store.query("T", "a", 1, 0, 1 << 62).log_offsets) == 1


def test_failing_disk_stops_writing_for_good(directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error other than "no room" leaves it open what is on disk: no more records, but reading goes on."""
    disk = LimitedFiles()
    store = directory.open(disk)
    store.append(new_record())
    store.commit()

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "pwritev", fail)
    store.append(new_record(body=b"lost"))
    with pytest.raises(StoreError, match="Input/output error"):
        store.commit()
    monkeypatch.undo()
    store.tick()
    with pytest.raises(StoreError, match="Input/output error"):
        store.append(new_record())
    assert read_all(store) == {("T", 0): [(0, b"body")]}
    assert_recovered(directory)


def test_keys_are_found_while_the_index_has_no_room(directory: StoreDirectory, disk: LimitedFiles) -> None:
    """A query is answered from what is on disk and what waits for room: newest first up to the limit, each once."""
    store = directory.open(disk)

    def send(numbers: range) -> None:
        for number in numbers:
            store.append(new_record(KEYS=f"k{number % 2}", UNIQ_KEY=f"u{number}"))
            store.commit()

    def find(key: str, most: int = 64, begin_ms: int = 0) -> list[int]:
        return store.query("T", key, most, begin_ms, 1 << 60).log_offsets

    send(range(4))
    assert len(find("k1")) == 2
    send(range(4, 8))
    disk.room = 0
    everything = find("k1")
    assert len(everything) == 4
    assert find("k1") == everything
    assert find("k1", 2) == everything[2:]
    assert find("k1", 3) == everything[1:]
    assert len(find("u6")) == 1
    assert find("k1", begin_ms=directory.now_ms + 1_000) == []
    disk.room = None
    assert find("k1") == everything
    directory.close_all()
