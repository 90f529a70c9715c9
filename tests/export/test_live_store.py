"""Reading stores that ``rocketlet`` itself writes, also while it does."""

import itertools
import pathlib
import random
import threading

import pytest
from javastores import Read
from logbuilder import HOST

from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.write.log_reader import LogReader
from rocketlet.store.consumequeue.appended import Appended
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore


@pytest.fixture
def config(tmp_path: pathlib.Path) -> StoreConfig:
    """Return a store of small files."""
    return StoreConfig(str(tmp_path / "store"), segment_bytes=65_536, index_slots=100, index_entries=1000)


def message(number: int, choose: random.Random) -> NewRecord:
    """Return a message with a body of random size."""
    properties = {"KEYS": f"key {number}", "TAGS": f"t{number % 3}", "UNIQ_KEY": f"{number:032X}"}
    return NewRecord(
        topic=f"Topic{number % 2}",
        queue_id=number % 4,
        body=choose.randbytes(choose.randrange(1, 3000)),
        property_text=encode_properties(properties),
        parsed=properties,
        flag=number,
        sys_flag=0,
        born_at_ms=number,
        born_host=HOST,
    )


def test_store_of_ours_reads_as_it_was_written(config: StoreConfig, read: Read) -> None:
    """Every message that was appended is a row with what was given, after a clean stop."""
    choose, clock = random.Random(1), itertools.count(1_700_000_000_000)
    with MessageStore.open(config, now_ms=lambda: next(clock), store_host=HOST) as store:
        sent: list[tuple[Appended, NewRecord]] = []
        for number in range(300):
            new = message(number, choose)
            sent.append((store.append(new), new))
            if number % 7 == 0:
                store.commit()
        store.commit()
    rows, report = read(config.root)
    assert not report.faults()
    assert [row["logOffset"] for row in rows] == [appended.log_offset for appended, _ in sent]
    for row, (appended, new) in zip(rows, sent, strict=True):
        assert (row["topic"], row["queueId"], row["queueOffset"]) == (new.topic, new.queue_id, appended.queue_offset)
        assert (row["body"], dict(row["properties"]), row["flag"]) == (new.body, new.properties, new.flag)
        assert (row["tags"], row["keys"], row["msgId"]) == (
            new.properties["TAGS"],
            new.properties["KEYS"].split(),
            new.properties["UNIQ_KEY"],
        )


def test_store_that_is_written_to_reads_as_a_prefix(config: StoreConfig) -> None:
    """Readings during writes hold gapless offsets from the first message on, and at least what was committed before."""
    choose, clock = random.Random(2), itertools.count(1_700_000_000_000)
    allowed = threading.Semaphore(0)

    def write(store: MessageStore) -> None:
        for number in range(20 * 60):
            allowed.acquire()
            store.append(message(number, choose))
            store.commit()

    def read_now() -> tuple[int, int]:
        reading = LogReader(plan_stores([config.root]))
        log_offsets = [at for batch in reading for at in batch.column("logOffset").to_pylist()]
        assert not reading.report.faults()
        assert log_offsets == sorted(set(log_offsets))
        return len(log_offsets), reading.report.stores[0].log_bytes

    with MessageStore.open(config, now_ms=lambda: next(clock), store_host=HOST) as store:
        store.append(message(0, choose))
        store.commit()
        writer = threading.Thread(target=write, args=(store,))
        writer.start()
        try:
            counts: list[int] = []
            for _ in range(20):
                allowed.release(60)
                committed = store.log_max_offset
                count, log_bytes = read_now()
                assert log_bytes >= committed
                counts.append(count)
        finally:
            allowed.release(20 * 60)
            writer.join()
        assert counts == sorted(counts)
        assert read_now() == (1 + 20 * 60, store.log_max_offset)
