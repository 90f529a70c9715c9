"""Directories of a Java broker 5.4.0, opened by our store, against what Java answered about them."""

import shutil
from collections.abc import Callable

import pytest
from stores import GoldenStore, as_truth, file_bytes, read_queue

from rocketlet.common.record import decode_record
from rocketlet.store.consumequeue.consume_queue import ENTRY

Golden = Callable[[str], GoldenStore]


@pytest.fixture(params=["plain", "killed", "delay-retry", "batchcrc"])
def java(request: pytest.FixtureRequest, golden: Golden) -> GoldenStore:
    """Return a directory that a Java broker wrote, with its answers."""
    return golden(request.param)


@pytest.mark.feature("H9")
def test_log_and_queues_have_the_bounds_that_java_answered(java: GoldenStore) -> None:
    """Log ends, queue ends and earliest store times are Java's; so is the list of queues."""
    store = java.directory.open()
    assert (store.log_min_offset, store.log_max_offset) == (
        java.truth["commitLogMinOffset"],
        java.truth["commitLogMaxOffset"],
    )
    assert sorted(store.queues()) == sorted((topic, queue_id) for topic, queue_id, _ in java.queues())
    for topic, queue_id, queue in java.queues():
        assert store.min_offset(topic, queue_id) == queue["minOffset"]
        assert store.max_offset(topic, queue_id) == queue["maxOffset"]
        assert store.earliest_stored_at(topic, queue_id) == queue["earliestStoreTime"]


@pytest.mark.feature("P1")
def test_queues_read_back_what_java_pulled(java: GoldenStore) -> None:
    """Every message of every queue comes back with all its fields, in order."""
    store = java.directory.open()
    for topic, queue_id, queue in java.queues():
        found = [as_truth(record) for record in read_queue(store, topic, queue_id)]
        assert found == [{key: message[key] for key in found[0]} for message in queue["messages"]]


@pytest.mark.feature("Q6")
def test_record_at_finds_every_message_by_its_log_offset(java: GoldenStore) -> None:
    """Records of batch queues included, since these are read through the log."""
    store = java.directory.open()
    for message in java.messages():
        record = store.record_at(message["physicOffset"])
        assert record is not None
        found = as_truth(decode_record(record))
        assert found == {key: message[key] for key in found}
        assert store.record_at(message["physicOffset"] + 1) is None


def test_queue_entries_are_those_that_java_lists(java: GoldenStore) -> None:
    """Log offset, size and tags code of every entry, deliver times of delayed messages included."""
    java.directory.open()
    for topic, queue_id, queue in java.queues():
        folder = java.directory.root / "consumequeue" / topic / str(queue_id)
        if topic == "InnerBatch":  # a batch queue; Java lists its units more than once
            assert not folder.exists()
            continue
        data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        entries = [list(entry) for entry in ENTRY.iter_unpack(data) if entry[1]]
        assert entries[queue["minOffset"] :] == queue["consumeQueue"]


@pytest.mark.feature("Q8")
def test_time_searches_give_javas_offsets(java: GoldenStore) -> None:
    """Both boundaries, at, between, before and after the store times."""
    store = java.directory.open()
    for topic, queue_id, queue in java.queues():
        for at_ms, boundary, offset in queue["searchOffset"]:
            assert store.offset_by_time(topic, queue_id, at_ms, boundary) == offset, (topic, queue_id, at_ms, boundary)


@pytest.mark.feature("Q4", "Q5", "Q7")
def test_key_queries_give_javas_records(java: GoldenStore) -> None:
    """By key, unique key and tag, with limits and time ranges.

    After a kill Java enters the last message before its start file twice (store.md §4.3) and counts it twice against
    the limit; here it is entered once.
    """
    store = java.directory.open()
    for wanted in java.truth["queryMessage"]:
        count = 32 if wanted["uniqueKeyQuery"] else wanted["maxNum"]
        kind = wanted.get("indexType", "K")
        found = store.query(wanted["topic"], wanted["key"], count, wanted["begin"], wanted["end"], kind=kind)
        expected = sorted(set(wanted["physicOffsets"]))
        doubled = len(wanted["physicOffsets"]) - len(expected)
        assert doubled == 0 or java.name == "killed"
        assert found.log_offsets[-len(expected) :] == expected if expected else not found.log_offsets
        assert len(found.log_offsets) in (len(expected), len(expected) + doubled)
        assert [decode_record(record).log_offset for record in found.records] == found.log_offsets


def test_directory_reads_the_same_after_a_clean_stop_and_a_kill(java: GoldenStore) -> None:
    """Closing changes no file of a cleanly stopped store, and the next start finds what this one found."""
    java.directory.open()
    java.directory.close_all()
    before = file_bytes(java.directory.root / "consumequeue"), file_bytes(java.directory.root / "commitlog")
    java.directory.abort.write_text("1")
    java.directory.open()
    java.directory.close_all()
    assert not java.directory.abort.exists()
    assert (file_bytes(java.directory.root / "consumequeue"), file_bytes(java.directory.root / "commitlog")) == before


def test_queues_written_anew_are_javas_bytes(java: GoldenStore) -> None:
    """Without ``consumequeue/`` all queues are written from the log, to the same bytes."""
    java.directory.open()  # brings a killed store to its end first
    java.directory.close_all()
    before = file_bytes(java.directory.root / "consumequeue")
    shutil.rmtree(java.directory.root / "consumequeue")
    java.directory.open()
    java.directory.close_all()
    assert file_bytes(java.directory.root / "consumequeue") == before


@pytest.mark.parametrize("java", ["plain", "delay-retry", "batchcrc"], indirect=True)
def test_index_written_anew_is_javas_bytes(java: GoldenStore) -> None:
    """Without ``index/`` all keys are entered from the log, to the same headers, slots and entries."""
    before = file_bytes(java.directory.root / "index")
    shutil.rmtree(java.directory.root / "index")
    java.directory.open()
    java.directory.close_all()
    assert list(file_bytes(java.directory.root / "index").values()) == list(before.values())


def test_batch_queue_files_are_left_alone(golden: Golden) -> None:
    """A topic of inner batches gets no 20-byte queue, and its batch queue keeps its bytes."""
    java = golden("batchcrc")
    before = file_bytes(java.directory.root / "batchconsumequeue")
    shutil.rmtree(java.directory.root / "consumequeue")
    java.directory.open()
    java.directory.close_all()
    assert file_bytes(java.directory.root / "batchconsumequeue") == before
    assert not (java.directory.root / "consumequeue" / "InnerBatch").exists()


def test_killed_store_gets_its_missing_entry_and_index(golden: Golden) -> None:
    """The record that Java had not dispatched is in its queue, and the spare file is gone."""
    java = golden("killed")
    spare = java.directory.root / "commitlog" / "00000000000000393216"
    assert spare.exists()
    store = java.directory.open()
    assert not spare.exists()
    assert sum(store.max_offset(topic, queue_id) for topic, queue_id in store.queues()) == 653
