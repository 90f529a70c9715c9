from javastores import Read
from logbuilder import LogBuilder

from rocketlet.common.compression import deflate
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.export.plan.selection import Reason, Selection
from rocketlet.export.write.log_reader import ReadOptions

PARTS = [
    BatchPart(7, b"one", b"TAGS\x01a\x02KEYS\x01k1 k2\x02"),
    BatchPart(8, b"two", b""),
    BatchPart(9, b"", b"x\x01y"),
]
BATCH = encode_batch(PARTS)


def test_batches_stand_in_order_among_single_messages(log: LogBuilder, read: Read) -> None:
    """Rows keep the order of the log; what a message of a batch does not have comes from its record."""
    log.add(b"before", properties={"TAGS": "t"}, queue_offset=4)
    log.add(BATCH, sys_flag=0xC0, queue_offset=5, properties={"INNER_NUM": "3", "UNIQ_KEY": "U"})
    log.add(b"between", queue_offset=8)
    log.add(deflate(BATCH), sys_flag=0x3C1, queue_offset=9)
    log.save()
    rows, report = read(log.root)
    assert [row["body"] for row in rows] == [b"before", b"one", b"two", b"", b"between", b"one", b"two", b""]
    assert [row["queueOffset"] for row in rows] == list(range(4, 12))
    assert [row["flag"] for row in rows[:5]] == [0, 7, 8, 9, 0]
    assert [row["tags"] for row in rows[:4]] == ["t", "a", None, None]
    assert [row["keys"] for row in rows[:4]] == [[], ["k1", "k2"], [], []]
    assert dict(rows[3]["properties"]) == {"x": "y"}
    assert [row["msgId"] for row in rows[1:4]] == [rows[1]["offsetMsgId"]] * 3
    assert (report.stores[0].records, report.stores[0].messages) == (4, 8)
    assert not report.faults()


def test_body_that_is_no_batch_stays_one_row_and_is_a_fault(log: LogBuilder, read: Read) -> None:
    """A record that says it is a batch and is not keeps its body, and the proof says so."""
    log.add(b"no batch", sys_flag=0xC0)
    log.add(b"no zlib", sys_flag=0x3C1)
    log.save()
    rows, report = read(log.root)
    assert [row["body"] for row in rows] == [b"no batch", None]
    assert report.stores[0].unreadable_bodies == 2


def test_messages_of_a_batch_are_selected_one_by_one(log: LogBuilder, read: Read) -> None:
    """A tag takes single messages out of a batch; the others count as left out."""
    log.add(BATCH, sys_flag=0xC0, queue_offset=0)
    log.add(b"single", queue_offset=3, properties={"TAGS": "a"})
    log.save()
    rows, report = read(log.root, options=ReadOptions(Selection(tags=frozenset({"a"}))))
    assert [row["body"] for row in rows] == [b"one", b"single"]
    assert report.stores[0].left_out == {Reason.TAG: 2}
    assert not report.faults()


def test_batch_that_is_left_out_counts_its_messages(log: LogBuilder, read: Read) -> None:
    """A batch of another topic is three messages that were left out, with the offsets of three."""
    log.add(BATCH, sys_flag=0xC0, queue_offset=0)
    log.add(b"single", queue_offset=3)
    log.save()
    rows, report = read(log.root, options=ReadOptions(Selection(topics=frozenset({"Other"}))))
    assert rows == []
    assert report.stores[0].left_out == {Reason.TOPIC: 4}
    assert not report.faults()
