"""A store with far more queues than descriptors."""

import os
import pathlib
import resource

import pytest
from stores import StoreDirectory, new_record

from rocketlet.common.record import iter_records
from rocketlet.store.consumequeue.queue_reader import ReadLimits

QUEUES = 1_000
LIMIT = 256


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store believe that the process may have few descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def tell_few(_kind: int) -> tuple[int, int]:
        return LIMIT, hard

    monkeypatch.setattr(resource, "getrlimit", tell_few)


def count_descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"))


@pytest.mark.usefixtures("few_descriptors")
def test_many_queues_live_with_few_descriptors(directory: StoreDirectory) -> None:
    """After two rounds over all queues, a kill or a clean stop everything is read, with a quarter of the limit open."""
    before = count_descriptors()
    directory = StoreDirectory(directory.root, segment_bytes=1 << 20, index_entries=20_000)
    for number in range(2):
        store = directory.open()
        for queue in range(QUEUES):
            store.append(new_record(f"T{queue // 16}", queue % 16, b"%d" % number))
            if queue % 200 == 199:
                store.commit()
        assert count_descriptors() - before < LIMIT // 4 + 40
        if number == 0:
            directory.close_all()
    killed = directory.copy("killed", segment_bytes=1 << 20, index_entries=20_000)
    directory.close_all()
    for one in (directory, killed):
        store = one.open()
        assert sum(1 for _ in store.queues()) == QUEUES
        assert all(store.max_offset(f"T{queue // 16}", queue % 16) == 2 for queue in range(QUEUES))
        for queue in range(0, QUEUES, 97):
            result = store.read(f"T{queue // 16}", queue % 16, 1, ReadLimits())
            assert [bytes(record.body) for part in result.records for record in iter_records(part)] == [b"1"]
        assert count_descriptors() - before < LIMIT // 4 + 40
        one.close_all()


@pytest.mark.usefixtures("few_descriptors")
def test_stores_of_one_process_share_its_descriptors(tmp_path: pathlib.Path) -> None:
    """Four stores, each told that they are four, have together no more files open than one alone."""
    before = count_descriptors()
    stores = [StoreDirectory(tmp_path / str(number), sharers=4) for number in range(4)]
    for one in stores:
        store = one.open()
        for queue in range(100):
            store.append(new_record("T", queue))
        store.commit()
    assert count_descriptors() - before < LIMIT // 4 + 40
    for one in stores:
        one.close_all()
