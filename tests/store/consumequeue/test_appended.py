"""Records that have their place in the log: what queue and index need of them."""

import pathlib
from collections.abc import Mapping

import msgspec
import pytest
from stores import HOST, new_record

from rocketlet.common.properties import encode_properties
from rocketlet.common.record import decode_record, encode_record
from rocketlet.store.consumequeue.appended import Appended, describe, has_keys, leave_topic, place_run
from rocketlet.store.consumequeue.consume_queue import ConsumeQueue, QueueSpace
from rocketlet.store.files.files import OS_FILES, Descriptors

AT_MS = 1_700_000_000_000


@pytest.fixture
def queue(tmp_path: pathlib.Path, descriptors: Descriptors) -> ConsumeQueue:
    """Give a queue whose next offset is 7."""
    made = ConsumeQueue(QueueSpace(OS_FILES, str(tmp_path), 200, descriptors), "T", 3)
    made.begin_at(7)
    return made


def test_stored_record_is_described() -> None:
    """As it was placed, but for the queue, and the code, which nobody has worked out yet."""
    new = new_record("T", 3, b"body", KEYS="k", TAGS="t")
    new.sys_flag = 8
    data = encode_record(new, 7, 400, AT_MS, HOST)
    assert describe(memoryview(data)) == Appended(400, 7, len(data), "T", 3, 8, AT_MS, new.property_text, None)
    assert describe(memoryview(data)).tags_code == 0


@pytest.mark.parametrize("born_host", [HOST, bytes(16) + HOST[4:]])
@pytest.mark.parametrize("store_host", [HOST, bytes(16) + HOST[4:]])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128, "t" * 300, "täglich"])
def test_description_is_what_the_record_says(topic: str, store_host: bytes, born_host: bytes) -> None:
    """Whatever its hosts and its topic take in bytes."""
    new = msgspec.structs.replace(new_record(topic, 3, b"body", KEYS="k", TAGS="t"), born_host=born_host)
    data = encode_record(new, 7, 400, AT_MS, store_host)
    found, told = decode_record(data), describe(memoryview(data))
    assert (told.topic, told.property_text, told.stored_at_ms) == (topic, new.property_text, AT_MS)
    assert (told.log_offset, told.queue_offset, told.size) == (found.log_offset, found.queue_offset, found.total_size)
    assert (told.queue_id, told.sys_flag) == (found.queue_id, found.sys_flag)


@pytest.mark.parametrize("has_queue", [True, False])
def test_records_of_a_run_follow_each_other(queue: ConsumeQueue, has_queue: bool) -> None:
    """In the log and in their queue, whose next offset is behind them; without a queue all have offset 0."""
    head = new_record("T", 3)
    head.sys_flag = 8
    texts = [b"KEYS\x01k%d\x02" % number for number in range(3)]
    placed = place_run(head, texts, (100, 120, 90), 400, queue if has_queue else None, AT_MS)
    kept = queue if has_queue else None
    offsets = [7, 8, 9] if has_queue else [0, 0, 0]
    assert (placed.log_offset, placed.size, placed.queue_offset) == (400, 310, offsets[0])
    placed.tags_codes = [5, 0, 6]
    assert [record.tags_code for record in placed.records()] == [5, 0, 6]
    placed.tags_codes = ()
    assert placed.records() == [
        Appended(400, offsets[0], 100, "T", 3, 8, AT_MS, texts[0], kept),
        Appended(500, offsets[1], 120, "T", 3, 8, AT_MS, texts[1], kept),
        Appended(620, offsets[2], 90, "T", 3, 8, AT_MS, texts[2], kept),
    ]
    assert queue.next_offset == (10 if has_queue else 7)


def test_records_of_a_topic_leave_their_queue(queue: ConsumeQueue) -> None:
    """Those of other topics stay in theirs."""
    placed = [Appended(0, 0, 1, topic, 0, 0, AT_MS, b"", queue) for topic in ("T", "U", "T")]
    leave_topic(placed, "T")
    assert [one.queue for one in placed] == [None, queue, None]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, False),
        ({"UNIQ_KEY": "u"}, True),
        ({"TAGS": "t"}, True),
        ({"KEYS": "k"}, True),
        ({"KEYS": " k "}, True),
        ({"KEYS": "  "}, False),
        ({"KEYS": "\t"}, True),
        ({"UNIQ_KEY": "", "TAGS": "", "KEYS": ""}, False),
        ({"OTHER": "x"}, False),
    ],
)
@pytest.mark.parametrize(("sys_flag", "counts"), [(0, True), (4, True), (8, True), (12, False), (13, False)])
def test_index_has_entries_of_what_has_keys(
    properties: Mapping[str, str], expected: bool, sys_flag: int, counts: bool
) -> None:
    """A unique key, a tag or a word; nothing of what was rolled back."""
    record = Appended(0, 0, 1, "T", 0, sys_flag, AT_MS, encode_properties(properties), None)
    assert has_keys(record) == (expected and counts)
