"""Records with the checksum property (``enabledAppendPropCRC``)."""

import pathlib

import pytest
from stores import HOST, StoreDirectory, new_part, new_record, read_all, read_queue

from rocketlet.common.errors import MessageIllegalError
from rocketlet.common.properties import MAX_PROPERTIES_BYTES
from rocketlet.common.record import BatchPart, NewRecord, decode_record, encode_batch, has_sealed_crc
from rocketlet.store.commitlog.commit_log import RecordEncoder
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS
from rocketlet.store.consumequeue.queue_reader import ReadLimits
from rocketlet.store.files.store_config import StoreConfig

SEAL_BYTES = 20


@pytest.fixture
def sealed(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a store directory whose records are sealed, and must be."""
    return StoreDirectory(tmp_path / "store", seals_records=True, demands_seals=True)


def test_every_record_is_sealed_at_its_final_place(sealed: StoreDirectory) -> None:
    """Single records, batches and inner batches end in the checksum of all their bytes, behind a roll-over, too."""
    with sealed.open() as store:
        store.set_batch_topics(["B"])
        for number in range(40):
            store.append(new_record(body=b"x" * 150, TAGS=f"t{number}"))
            store.append_batch(new_record(), [new_part(b"part")] * 3)
            inner = new_record("B", 0, encode_batch([BatchPart(0, b"a", b""), BatchPart(0, b"b", b"")]))
            inner.sys_flag |= INNER_BATCH_FLAGS
            store.append(inner)
            store.commit()
        assert store.log_max_offset > 2 * sealed.config.segment_bytes
        placed = [
            (record.log_offset, record.total_size) for key in store.queues() for record in read_queue(store, *key)
        ]
        assert len(placed) == 40 * 5
        for log_offset, size in placed:
            record = store.record_at(log_offset, size)
            assert record is not None
            assert has_sealed_crc(record)


def test_given_checksum_is_replaced(sealed: StoreDirectory) -> None:
    """A ``__CRC32#`` of the sender does not stay, and what it sent otherwise does."""
    record = new_record(TAGS="t")
    record.property_text = b"__CRC32#\x010000000000\x02TAGS\x01t"
    with sealed.open() as store:
        store.append(record)
        store.commit()
        stored = decode_record(store.read("T", 0, 0, ReadLimits()).records[0])
        assert stored.property_text.startswith(b"TAGS\x01t\x02__CRC32#\x01")
        assert stored.property_text.count(b"__CRC32#") == 1


@pytest.mark.parametrize("over", [0, 1])
def test_limit_of_the_properties_includes_the_checksum(over: int, tmp_path: pathlib.Path) -> None:
    """32,767 bytes with the checksum are taken, one more is not."""
    encoder = RecordEncoder(StoreConfig(str(tmp_path), seals_records=True), HOST)
    text = b"k\x01" + b"v" * (MAX_PROPERTIES_BYTES - SEAL_BYTES - 3 + over) + b"\x02"
    record = NewRecord("T", 0, b"body", text, {}, 0, 0, 1, HOST)
    if over:
        with pytest.raises(MessageIllegalError, match="32768"):
            encoder.encode(record, 0, 0, 1)
    else:
        assert has_sealed_crc(encoder.encode(record, 0, 0, 1))


def test_unsealed_records_are_no_records_when_seals_are_demanded(tmp_path: pathlib.Path) -> None:
    """After a crash the log ends at the first record without the checksum; without the demand it is kept."""
    plain = StoreDirectory(tmp_path / "plain")
    with plain.open() as store:
        store.append(new_record(body=b"plain"))
        store.commit()
    plain.abort.write_text("1")
    kept = plain.copy("kept", seals_records=True)
    with kept.open() as store:
        assert [body for _, body in read_all(store)["T", 0]] == [b"plain"]
    demanding = plain.copy("demanding", demands_seals=True)
    with demanding.open() as store:
        assert read_all(store) == {}
