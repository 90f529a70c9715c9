"""What an audit finds in queues: entries against records, records against entries."""

import json
from collections.abc import Callable

import pytest
from damage import audit, flip, overwrite, record_start
from stores import GoldenStore, StoreDirectory, sample

from rocketlet.store.consumequeue.batch_queue import encode_unit


@pytest.mark.parametrize(
    ("byte", "reason"), [(7, "log offset"), (11, "size"), (19, "tag code or delivery time"), (12, "tag code")]
)
def test_wrong_queue_entry_is_named(directory: StoreDirectory, byte: int, reason: str) -> None:
    """Each part of an entry is compared with its record, and the message is named."""
    directory.fill(60)
    flip(directory.queue_file(queue_id=2, number=1), 40 + byte)
    (found,) = audit(directory).findings
    assert (found.kind, found.position) == ("queue", 40)
    assert reason in found.reason
    (hit,) = found.hits
    assert (hit.topic, hit.queue_id, hit.queue_offset, hit.unique_key) == ("T", 2, 12, "ID00000038")


@pytest.mark.parametrize(
    ("field", "mask", "reason"),
    [
        (15, 0x40, "no record belongs to the entry"),
        (27, 0x20, "the record says queue offset"),
        (88 + 113, 2, "no record"),
    ],
    ids=["queue id", "queue offset", "topic"],
)
def test_record_in_a_wrong_place_is_found_by_its_entry(
    directory: StoreDirectory, field: int, mask: int, reason: str
) -> None:
    """Queue id, queue offset and topic have no checksum; the entry that was written along with the record shows it."""
    directory.fill(40)
    start = record_start(directory, 1)
    path = directory.segment()
    if field > 88:
        field = path.read_bytes().index(b"\x01T", start) + 1 - start
    flip(path, start + field, mask)
    report = audit(directory)
    assert any(reason in finding.reason for finding in report.findings if finding.kind == "queue")


@pytest.mark.parametrize("count", [1, 5, 6, 7, 10])
def test_entries_that_the_begin_of_a_queue_lacks(directory: StoreDirectory, count: int) -> None:
    """Each is told, also where they are all that a file of the log leads to; those behind them are found."""
    directory.fill(60)
    overwrite(directory.queue_file(), 0, bytes(20 * count))
    report = audit(directory)
    assert [(one.position, one.reason) for one in report.findings] == [
        (20 * number, "a record has no entry") for number in range(count)
    ]
    assert (report.totals, report.counts["queue entries"]) == ({"queue": count}, 60 - count)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_behind", [False, True])
def test_units_without_a_record(golden: Callable[[str], GoldenStore], is_killed: bool, is_behind: bool) -> None:
    """One that leads behind the end of the log is to be expected after a kill; another is damage then, too."""
    directory = golden("batchcrc").directory
    end = audit(directory).end
    (path,) = (directory.root / "batchconsumequeue" / "InnerBatch" / "0").iterdir()
    overwrite(path, 3 * 46, encode_unit((end if is_behind else end - 1, 100, 0), 1_750_000_000_000, 99, 1))
    if is_killed:
        directory.abort.touch()
    report = audit(directory)
    assert report.totals == ({} if is_killed and is_behind else {"batch queue": 1})
    told = report.notes if report.is_sound else list(map(str, report.findings))
    assert any(f"{path} at position 138 (log offset " in line and "no record belongs to" in line for line in told)


def test_lag_of_a_queue_is_damage_after_a_clean_stop_only(directory: StoreDirectory) -> None:
    """Entries that the end of a queue lacks are a note while a broker runs or after a kill."""
    directory.fill(30)
    path = directory.queue_file(queue_id=1)
    data = path.read_bytes()
    path.write_bytes(data[:140] + bytes(60))
    assert audit(directory).totals == {"queue": 3}
    directory.abort.touch()
    report = audit(directory)
    assert report.is_sound
    assert report.counts["records without queue entry yet"] == 3
    path.write_bytes(data[:140] + bytes(20) + data[160:])
    assert audit(directory).totals == {"queue": 1}


def test_entry_behind_the_end_of_the_log_is_found(directory: StoreDirectory) -> None:
    """An entry without a record at the end of a queue is damage after a clean stop."""
    directory.fill(9)
    path = directory.queue_file()
    data = bytearray(path.read_bytes())
    data[60:80] = (1 << 40).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    path.write_bytes(data)
    (found,) = audit(directory).findings
    assert (found.reason, found.position) == ("the entry points behind the end of the log", 60)


def test_entries_whose_records_have_expired_are_no_damage(directory: StoreDirectory) -> None:
    """When the first files of the log are gone, the entries before them are counted."""
    directory.fill(60)
    directory.segment().unlink()
    report = audit(directory)
    assert report.is_sound
    assert report.counts["expired entries"] > 10
    assert report.counts["expired index entries"] > 40


def bring_back(directory: StoreDirectory) -> None:
    """Delete the topic and store nine messages in it again."""
    with directory.open() as store:
        store.delete_topic("T")
        for number in range(9):
            store.append(sample(number))
        store.commit()


def test_topic_that_came_back_is_sound(directory: StoreDirectory) -> None:
    """Records of a deleted topic have no entries, and the topic's new numbering does not disturb."""
    directory.fill(20)
    bring_back(directory)
    report = audit(directory)
    assert report.is_sound, report.lines()
    assert report.counts["queues that began anew"] == 3


def test_topic_that_came_back_has_fewer_messages_than_before(directory: StoreDirectory) -> None:
    """The log has records of the old numbering behind the new one's end alone, and they are none of its queue."""
    directory.fill(60)
    bring_back(directory)
    directory.segment().unlink()  # the records with the first offsets
    report = audit(directory)
    assert report.is_sound, report.lines()
    assert report.counts["queues that began anew"] == 3


def test_deleted_topic_is_known_by_the_config(directory: StoreDirectory) -> None:
    """Records of a topic that topics.json does not list may lack their queue; those of one that it lists may not."""
    directory.fill(20, topic="Gone")
    with directory.open() as store:
        store.delete_topic("Gone")
    config = directory.root / "config"
    config.mkdir()
    for name, kinds in (("Other", {}), ("Gone", {"queue": 20})):
        (config / "topics.json").write_text(json.dumps({"topicConfigTable": {name: {"topicName": name}}}))
        assert audit(directory).totals == kinds


def test_queue_that_begins_late_has_pre_blanks(directory: StoreDirectory) -> None:
    """A queue whose first entries are pre-blank is sound; a pre-blank entry between others is not."""
    directory.fill(60)
    for number in range(2):
        directory.segment(number).unlink()
    for path in directory.queue_file().parent.iterdir():
        path.unlink()
    directory.abort.touch()
    directory.open()
    directory.close_all()
    report = audit(directory)
    assert report.is_sound, report.lines()
    assert report.counts["pre-blank entries"] > 0


def test_wrong_batch_unit_is_named(golden: Callable[[str], GoldenStore]) -> None:
    """A flip in a unit of a batch queue is reported with the message that the record begins with."""
    store = golden("batchcrc").directory
    (path,) = (store.root / "batchconsumequeue" / "InnerBatch" / "0").iterdir()
    flip(path, 46 + 11)
    (found,) = audit(store).findings
    assert (found.kind, found.position, found.reason) == ("batch queue", 46, "the unit is not that of its record")
    assert found.hits[0].topic == "InnerBatch"
