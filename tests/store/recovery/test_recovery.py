"""Opening after clean stops, kills and damage: what is kept, cut, written anew and refused."""

import pathlib
import shutil
from collections.abc import Callable
from itertools import islice

import pytest
from stores import StoreDirectory, file_bytes, new_record, read_all, sample

from rocketlet.common.errors import ConfigError, StoreDamagedError, StoreNotWritableError
from rocketlet.common.record import iter_records
from rocketlet.store.files.checkpoint import CHECKPOINT_BYTES

Copy = Callable[..., StoreDirectory]


def append_and_check(directory: StoreDirectory, before: dict[tuple[str, int], list[tuple[int, bytes]]]) -> None:
    """Append to every queue; what was there before and what is new must be read, now and after a reopening."""
    store = directory.open()
    assert read_all(store) == before
    expected = {key: list(messages) for key, messages in before.items()}
    for (topic, queue_id), messages in expected.items():
        new = new_record(topic, queue_id, b"after", UNIQ_KEY=f"after{queue_id}")
        offset = store.append(new).queue_offset
        store.commit()
        assert offset == len(messages)
        messages.append((offset, b"after"))
    for _ in range(2):
        assert read_all(store) == expected
        for topic, queue_id in before:
            assert len(store.query(topic, f"after{queue_id}", 64, 0, 1 << 62).log_offsets) == 1
        directory.close_all()
        store = directory.open()


@pytest.mark.feature("S26", "H6")
def test_clean_stop_and_reopening_keeps_everything(directory: StoreDirectory) -> None:
    """``abort`` is there while the store is open, gone after the stop, and all messages are read again."""
    store = directory.open()
    assert directory.abort.exists()
    for number in range(80):
        store.append(sample(number))
    store.commit()
    before = read_all(store)
    directory.close_all()
    assert not directory.abort.exists()
    assert (directory.root / "checkpoint").stat().st_size == CHECKPOINT_BYTES
    append_and_check(directory, before)


@pytest.mark.feature("S26")
@pytest.mark.parametrize("batch", [1, 7, 80])
def test_killed_store_keeps_everything_committed(directory: StoreDirectory, copy_of: Copy, batch: int) -> None:
    """A copy taken while the store is open has every committed message, in its queues and under its keys."""
    store = directory.open()
    for number in range(80):
        store.append(sample(number))
        if number % batch == batch - 1:
            store.commit()
    store.commit()
    twin = copy_of()
    assert twin.abort.exists()
    found = twin.open()
    for number in range(80):
        (log_offset,) = found.query("T", f"k{number}", 64, 0, 1 << 62).log_offsets
        assert store.query("T", f"k{number}", 64, 0, 1 << 62).log_offsets == [log_offset]
    twin.close_all()
    append_and_check(twin, read_all(store))


def test_closed_store_takes_no_records(directory: StoreDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is written behind the lock; closing again does nothing, also when somebody else has opened it."""
    store = directory.open()
    store.close()
    directory.open()
    store.close()
    assert directory.abort.exists()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    with pytest.raises(StoreNotWritableError, match="is closed"):
        store.append(new_record())


def test_uncommitted_records_are_gone_after_a_kill(directory: StoreDirectory, copy_of: Copy) -> None:
    """What was planned and not committed was never promised, and leaves no gap."""
    store = directory.open()
    store.append(new_record(body=b"kept"))
    store.commit()
    store.append(new_record(body=b"planned"))
    append_and_check(copy_of(), {("T", 0): [(0, b"kept")]})


@pytest.mark.parametrize("is_clean", [True, False])
def test_torn_last_record_is_dropped_and_its_offset_used_again(
    directory: StoreDirectory, copy_of: Copy, is_clean: bool
) -> None:
    """Cut at every ninth byte: the record is not served, its bytes are zeroed, the next append takes its place."""
    directory.fill(5, queues=1)
    data = directory.segment().read_bytes()
    end = len(data.rstrip(b"\x00"))
    start = data.rfind(b"\xda\xa3\x20\xa7") - 4
    with directory.open() as store:
        before = {("T", 0): read_all(store)["T", 0][:4]}
    for keep in range(start, end, 9):
        twin = copy_of()
        twin.segment().write_bytes(data[:keep] + bytes(len(data) - keep))
        if not is_clean:
            twin.abort.touch()
        store = twin.open()
        assert not any(twin.segment().read_bytes()[start:])
        assert store.log_max_offset == start
        twin.close_all()
        append_and_check(twin, before)


@pytest.mark.parametrize("garbage", [b"\xff" * 200, b"\x00\x00\x00\x80\xda\xa3\x20\xa7" + b"\x01" * 200])
def test_garbage_behind_the_last_record_is_cut(directory: StoreDirectory, copy_of: Copy, garbage: bytes) -> None:
    """Bytes that are no record behind the last one are zeroed before anything is written."""
    directory.fill(5, queues=1)
    with directory.open() as store:
        before, end = read_all(store), store.log_max_offset
    twin = copy_of()
    twin.abort.touch()
    data = bytearray(twin.segment().read_bytes())
    data[end : end + len(garbage)] = garbage
    twin.segment().write_bytes(data)
    append_and_check(twin, before)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("part", [0, 4, 20, 28, 60, 100], ids=["size", "magic", "queue", "place", "times", "body"])
def test_damage_before_valid_data_stops_the_start(directory: StoreDirectory, part: int, is_clean: bool) -> None:
    """A damaged record that has sound, flushed ones behind it is not cut: the error names file and position."""
    directory.fill(12, queues=2)
    data = bytearray(directory.segment().read_bytes())
    start = data.find(b"\xda\xa3\x20\xa7", 1000) - 4
    data[start + part] ^= 0x55
    directory.segment().write_bytes(data)
    if not is_clean:
        directory.abort.touch()
    before = file_bytes(directory.root / "commitlog")
    if part in (20, 60):  # no field of the strict check: the queue offset shows in the queue, times nowhere
        directory.open()
        return
    with pytest.raises(StoreDamagedError) as caught:
        directory.open()
    assert (caught.value.path, caught.value.position) == (str(directory.segment()), start)
    assert str(directory.segment()) in str(caught.value)
    assert file_bytes(directory.root / "commitlog") == before
    assert directory.abort.exists() is not is_clean


def test_damage_in_an_earlier_file_stops_an_unclean_start(directory: StoreDirectory) -> None:
    """Without a checkpoint the whole log is walked, and a later file that begins with a record is not deleted."""
    directory.fill(60)
    (directory.root / "checkpoint").unlink()
    directory.abort.touch()
    data = bytearray(directory.segment(0).read_bytes())
    data[1000:1100] = b"\xee" * 100
    directory.segment(0).write_bytes(data)
    with pytest.raises(StoreDamagedError):
        directory.open()
    assert directory.segment(1).exists()


def test_missing_file_between_others_stops_the_start(directory: StoreDirectory) -> None:
    """The error names the file that is not there."""
    directory.fill(60)
    directory.segment(1).unlink()
    with pytest.raises(StoreDamagedError, match="00000000000000004096 is missing"):
        directory.open()


def test_missing_log_with_queues_stops_the_start(directory: StoreDirectory) -> None:
    """After a clean stop an empty log beside filled queues is a lost directory, not an empty store."""
    directory.fill(5)
    shutil.rmtree(directory.root / "commitlog")
    with pytest.raises(StoreDamagedError, match="is empty, but"):
        directory.open()


def test_killed_store_without_a_log_begins_anew(directory: StoreDirectory) -> None:
    """A power loss may keep queues of records that never reached the disk; nothing was promised then."""
    directory.fill(5)
    shutil.rmtree(directory.root / "commitlog")
    directory.abort.touch()
    store = directory.open()
    assert list(store.queues()) == []
    assert store.append(new_record()).queue_offset == 0


def remove(path: pathlib.Path) -> None:
    """Remove a file or a directory."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def shorten(path: pathlib.Path) -> None:
    """Cut a file."""
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: pathlib.Path) -> None:
    """Keep only the name of a file."""
    path.write_bytes(b"")


def scramble(path: pathlib.Path) -> None:
    """Overwrite the middle of a file."""
    data = bytearray(path.read_bytes())
    data[45:95] = b"\x07" * 50
    path.write_bytes(data)


def forget(path: pathlib.Path) -> None:
    """Zero a file."""
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("what", "damage"),
    [
        ("consumequeue", remove),
        ("consumequeue/T/1", remove),
        ("consumequeue/T/1/00000000000000000000", remove),
        ("consumequeue/T/1/00000000000000000200", remove),
        ("consumequeue/T/1/00000000000000000000", shorten),
        ("consumequeue/T/1/00000000000000000200", shorten),
        ("consumequeue/T/1/00000000000000000400", empty),
        ("consumequeue/T/1/00000000000000000000", scramble),
        ("consumequeue/T/1/00000000000000000400", scramble),
        ("consumequeue/T/1/00000000000000000200", forget),
        ("consumequeue/T/1/00000000000000000400", forget),
        ("index", remove),
        ("checkpoint", remove),
        ("checkpoint", forget),
        ("checkpoint", empty),
    ],
)
def test_queues_index_and_checkpoint_are_written_anew(
    directory: StoreDirectory, what: str, damage: Callable[[pathlib.Path], None], is_clean: bool
) -> None:
    """Missing, short and wrong files that follow from the log are made again, to the same bytes."""
    directory.fill(80)
    with directory.open() as store:
        before = read_all(store)
    queues = file_bytes(directory.root / "consumequeue")
    damage(directory.root / what)
    if not is_clean:
        directory.abort.touch()
    store = directory.open()
    assert read_all(store) == before
    for number in range(80):
        assert len(store.query("T", f"k{number}", 64, 0, 1 << 62).log_offsets) == 1
    assert file_bytes(directory.root / "consumequeue") == queues
    directory.close_all()
    append_and_check(directory, before)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", [remove, shorten, scramble, forget])
def test_index_files_are_written_anew(
    directory: StoreDirectory, damage: Callable[[pathlib.Path], None], is_clean: bool
) -> None:
    """Every file of the index in turn, header and entries."""
    directory.fill(60)
    count = len(list((directory.root / "index").iterdir()))
    for position in range(count):
        damage(sorted((directory.root / "index").iterdir())[position])
        (directory.root / "checkpoint").write_bytes(bytes(CHECKPOINT_BYTES))
        if not is_clean:
            directory.abort.touch()
        if is_clean and damage in (scramble, forget):
            shutil.rmtree(directory.root / "index")  # a clean start trusts the files; `store check` reads them
        store = directory.open()
        for number in range(60):
            assert len(store.query("T", f"k{number}", 64, 0, 1 << 62).log_offsets) == 1, (position, number)
        directory.close_all()


def test_wrong_segment_size_stops_the_start(directory: StoreDirectory) -> None:
    """The error names Java's key and both numbers, and nothing is touched."""
    directory.fill(60)
    before = file_bytes(directory.root)
    with pytest.raises(ConfigError, match="has 4096 bytes, mappedFileSizeCommitLog is 8192") as caught:
        StoreDirectory(directory.root, segment_bytes=8192).open()
    assert caught.value.key == "mappedFileSizeCommitLog"
    assert file_bytes(directory.root) == before


def test_wrong_queue_size_stops_the_start(directory: StoreDirectory) -> None:
    """All queue files of one other size are a wrong setting; they are not written anew."""
    directory.fill(60)
    with pytest.raises(ConfigError, match="have 200 bytes, mappedFileSizeConsumeQueue is 400"):
        StoreDirectory(directory.root, queue_file_bytes=400).open()


def test_wrong_index_size_stops_the_start(directory: StoreDirectory) -> None:
    """The header does not record the sizes, but the length of the file does."""
    directory.fill(60)
    with pytest.raises(ConfigError, match=r"maxHashSlotNum and maxIndexNum make 1440"):
        StoreDirectory(directory.root, index_slots=150).open()


def test_foreign_file_in_the_log_stops_the_start(directory: StoreDirectory) -> None:
    """The Java broker would refuse to start or delete it; so it is named."""
    directory.fill(5)
    (directory.root / "commitlog" / "notes.txt").write_text("hello")
    with pytest.raises(ConfigError, match=r"notes\.txt does not belong"):
        directory.open()


def test_empty_last_file_is_removed(directory: StoreDirectory) -> None:
    """A creation that was cut off leaves a file of 0 bytes."""
    directory.fill(5)
    directory.segment(1).touch()
    with directory.open() as store:
        assert store.max_offset("T", 0) == 2
    assert not directory.segment(1).exists()


def test_root_that_cannot_be_used_is_one_sentence(tmp_path: pathlib.Path) -> None:
    """A file where the directory should be is a wrong setting."""
    (tmp_path / "store").write_text("not a directory")
    with pytest.raises(ConfigError, match="cannot use the store directory") as caught:
        StoreDirectory(tmp_path / "store").open()
    assert caught.value.key == "storePathRootDir"
    assert "\n" not in str(caught.value)


def test_stale_records_of_a_java_broker_behind_the_end_are_cut(directory: StoreDirectory) -> None:
    """Java does not zero what it cuts; sound but older records behind the end are no reason to refuse."""
    directory.fill(12, queues=1)
    old = directory.segment().read_bytes()
    cut = next(islice(iter_records(old), 4, None)).log_offset
    directory.segment().write_bytes(old[:cut] + bytes(len(old) - cut))
    shutil.rmtree(directory.root / "consumequeue")
    shutil.rmtree(directory.root / "index")
    directory.abort.touch()
    directory.now_ms += 100_000
    with directory.open() as store:
        store.append(new_record(body=b"shorter"))
        store.commit()
        end, before = store.log_max_offset, read_all(store)
    data = directory.segment().read_bytes()
    directory.segment().write_bytes(data[:end] + old[end:])
    append_and_check(directory, before)


@pytest.mark.parametrize("what", ["consumequeue/T/0/00000000000000000000", "index"])
def test_single_short_file_is_damage_and_no_wrong_setting(directory: StoreDirectory, what: str) -> None:
    """A file cut at a whole entry says nothing of the setting: it is written anew."""
    directory.fill(6, queues=1)
    with directory.open() as store:
        before = read_all(store)
    found = directory.root / what
    path = next(found.iterdir()) if found.is_dir() else found
    path.write_bytes(path.read_bytes()[:60])
    append_and_check(directory, before)


def test_deleted_head_of_the_log_is_no_damage(directory: StoreDirectory) -> None:
    """The store begins where its first file begins; queues start at the first message that is left."""
    directory.fill(60)
    with directory.open() as store:
        before = read_all(store)
    directory.segment(0).unlink()
    store = directory.open()
    assert store.log_min_offset == 4096
    after = read_all(store)
    for key, messages in before.items():
        assert 0 < len(after[key]) < len(messages)
        assert messages[-len(after[key]) :] == after[key]


@pytest.mark.parametrize("demands", [True, False])
def test_demanded_seals_end_the_log_at_a_record_without(directory: StoreDirectory, demands: bool) -> None:
    """``forceVerifyPropCRC``: a record that does not end in its checksum is damage, whatever its body."""
    sealed = StoreDirectory(directory.root, seals_records=True)
    sealed.fill(5, queues=1)
    plain = StoreDirectory(directory.root)
    plain.now_ms = sealed.now_ms
    with plain.open() as store:
        end = store.log_max_offset
        store.append(sample(6))
        store.commit()
    strict = StoreDirectory(directory.root, seals_records=True, demands_seals=demands)
    strict.abort.touch()
    with strict.open() as store:
        assert (store.log_max_offset == end) is demands
