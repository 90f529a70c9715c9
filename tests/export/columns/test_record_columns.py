import datetime
import pathlib

import pytest
from javastores import JavaStores, Read
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.common.compression import CompressionKind, deflate
from rocketlet.common.errors import ConfigError
from rocketlet.common.ids import encode_host
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.export.columns.record_columns import RecordRows, inflate_in_pieces
from rocketlet.export.columns.schema import SCHEMA, pick_columns
from rocketlet.export.plan.log_file import MappedLogFile
from rocketlet.export.plan.selection import Reason, Selection
from rocketlet.export.write.log_reader import ReadOptions
from rocketlet.store.commitlog.record_blocks import BlockScan, ScanLimits

V4, V6 = encode_host("192.0.2.7", 65535), encode_host("fd00::a", 1)
UTC = datetime.UTC


def test_hosts_of_both_kinds_stand_in_their_rows(log: LogBuilder, read: Read) -> None:
    """IPv6 hosts are in brackets, and rows of both kinds keep their order."""
    hosts = [V4, V6, V6, V4, V6]
    for born_host, store_host in zip(hosts, reversed(hosts), strict=True):
        log.add(born_host=born_host, store_host=store_host)
    log.save()
    texts = {V4: "192.0.2.7:65535", V6: "[fd00::a]:1"}
    rows, _ = read(log.root)
    assert [row["bornHost"] for row in rows] == [texts[host] for host in hosts]
    assert [row["storeHost"] for row in rows] == [texts[host] for host in reversed(hosts)]
    ids = [f"{host.hex()}{at:016x}".upper() for host, at in zip(reversed(hosts), log.offsets, strict=True)]
    assert [row["offsetMsgId"] for row in rows] == ids == [row["msgId"] for row in rows]


def test_message_id_is_the_unique_key_where_there_is_one(log: LogBuilder, read: Read) -> None:
    """Rows with and without UNIQ_KEY stand in one batch."""
    log.add(properties={"UNIQ_KEY": "U1"})
    log.add()
    log.save()
    rows, _ = read(log.root)
    assert [row["msgId"] for row in rows] == ["U1", rows[1]["offsetMsgId"]]


def test_numbers_are_signed(log: LogBuilder, read: Read) -> None:
    """The extremes of each number come through."""
    log.add(queue_id=-(2**31), flag=2**31 - 1, reconsume_times=-1, prepared_transaction_offset=2**63 - 1)
    log.save()
    ((row,), _) = read(log.root)
    assert (row["queueId"], row["flag"], row["reconsumeTimes"]) == (-(2**31), 2**31 - 1, -1)
    assert row["preparedTransactionOffset"] == 2**63 - 1


@pytest.mark.parametrize(
    ("at_ms", "at"),
    [
        (FIRST_MS + 7, datetime.datetime(2023, 11, 14, 22, 13, 20, 7000, UTC)),
        (0, datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
        (-62_135_596_800_001, None),
        (253_402_300_800_000, None),
        (2**63 - 1, None),
    ],
)
def test_born_time_outside_of_the_calendar_is_null(
    log: LogBuilder, read: Read, at_ms: int, at: datetime.datetime | None
) -> None:
    """The producer sets the time; what no calendar holds is null, not another time."""
    log.add(born_at_ms=at_ms)
    log.save()
    ((row,), _) = read(log.root)
    assert row["bornTimestamp"] == at


@pytest.mark.parametrize("kind", CompressionKind)
def test_bodies_are_inflated_among_plain_ones(log: LogBuilder, read: Read, kind: CompressionKind) -> None:
    """Each kind of compression, and plain and empty bodies beside it, keep their rows."""
    log.add(b"plain")
    log.add(deflate(b"packed" * 9, kind), sys_flag=kind.sys_flag)
    log.add(b"")
    log.add(deflate(b"", kind), sys_flag=kind.sys_flag)
    log.save()
    rows, report = read(log.root)
    assert [row["body"] for row in rows] == [b"plain", b"packed" * 9, b"", b""]
    assert not report.faults()


def test_old_clients_compress_with_zlib_without_saying_so(log: LogBuilder, read: Read) -> None:
    """Kind 0 beside the compression bit means zlib."""
    log.add(deflate(b"old"), sys_flag=0x1)
    log.save()
    assert read(log.root)[0][0]["body"] == b"old"


def test_body_that_does_not_inflate_is_null_and_a_fault(log: LogBuilder, read: Read) -> None:
    """A producer's lie costs its own body only, and the proof says so."""
    log.add(b"good")
    log.add(b"no zlib", sys_flag=0x301)
    log.save()
    rows, report = read(log.root)
    assert [row["body"] for row in rows] == [b"good", None]
    assert report.faults() == [f"{log.root}: bodies that are not what their sysFlag says: 1"]


@pytest.mark.parametrize(
    ("max_bytes", "sizes"), [(1_000, [4, 4, 4, 4, 2]), (800, [4, 4, 4, 4, 2]), (799, [2] * 9), (300, [2] * 9)]
)
def test_large_inflated_bodies_are_spread_over_batches(log: LogBuilder, max_bytes: int, sizes: list[int]) -> None:
    """When inflated bodies become too many bytes for one batch, rows go on in the next."""
    bodies = [bytes([number]) * 400 for number in range(9)]
    for body in bodies:
        log.add(deflate(body), sys_flag=0x301)
        log.add(b"plain")
    path = log.save() / "commitlog" / f"{0:020d}"
    (block,) = BlockScan(MappedLogFile(str(path), 0, 4096), 0, 4096, ScanLimits())
    pieces = [RecordRows(*piece) for piece in inflate_in_pieces(block, max_bytes=max_bytes)]
    assert [len(piece) for piece in pieces] == sizes
    assert [row for piece in pieces for row in piece.bodies().to_pylist()[::2]] == bodies
    assert [at for piece in pieces for at in piece.column("logOffset").to_pylist()] == log.offsets
    assert {topic for piece in pieces for topic in piece.column("topic").to_pylist()} == {"Topic"}


def test_batch_has_up_to_128_mebibytes_of_inflated_bodies(tmp_path: pathlib.Path) -> None:
    """Which is more than most messages have, and less than Arrow can hold in one array."""
    log = LogBuilder(tmp_path / "store", 1 << 20)
    body = deflate(bytes(4 << 20))
    for _ in range(50):
        log.add(body, sys_flag=0x301)
    path = log.save() / "commitlog" / f"{0:020d}"
    (block,) = BlockScan(MappedLogFile(str(path), 0, log.end), 0, log.end, ScanLimits())
    assert [len(piece) for piece, _ in inflate_in_pieces(block)] == [32, 18]


def test_text_that_is_not_utf8_is_repaired(log: LogBuilder, read: Read) -> None:
    """Topic and properties with broken bytes read as U+FFFD, as in Java; their neighbours stay as they are."""
    log.add(topic="T\xff", properties={"a": "b"})
    log.add(properties=b"TAGS\x01x\xffy\x02")
    log.add(properties={"TAGS": "größe"})
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace("T\xff".encode(), b"T\xff\xff"))
    rows, _ = read(log.root)
    assert [row["topic"] for row in rows] == ["T\ufffd\ufffd", "Topic", "Topic"]
    assert [row["tags"] for row in rows] == [None, "x\ufffdy", "größe"]


@pytest.mark.parametrize("name", SCHEMA.names)
def test_each_column_alone_is_that_of_all(name: str, java_stores: JavaStores, read: Read) -> None:
    """Reading one column gives what reading all gives."""
    every, _ = read(java_stores["batchcrc"], options=ReadOptions())
    alone, _ = read(java_stores["batchcrc"], options=ReadOptions(schema=pick_columns([name])))
    assert alone == [{name: row[name]} for row in every]


def test_unknown_column_is_refused() -> None:
    """The error names the nearest column."""
    with pytest.raises(ConfigError, match="no column queueID; did you mean queueId"):
        pick_columns(["topic", "queueID"])
    with pytest.raises(ConfigError, match="named twice"):
        pick_columns(["topic", "topic"])


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
