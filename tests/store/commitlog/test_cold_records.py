"""Records read beside the maps: one by one, and those that hold a text."""

import pytest
from stores import StoreDirectory, new_record, read_queue

from rocketlet.common.record import iter_records
from rocketlet.store.commitlog import cold_records


def test_walk_finds_every_record_with_a_text(directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the pieces in which the log is read, also where one record is longer, and from any record to any."""
    store = directory.open()
    for number in range(60):
        store.append(
            new_record(body=b"%d" % number * (1 + number * 13 % 250), KEYS="wanted" if number % 3 else "other")
        )
    store.commit()
    records = read_queue(store, "T", 0)
    places = [record.log_offset for record in records]
    expected = [place for place, record in zip(places, records, strict=True) if record.properties["KEYS"] == "wanted"]
    assert places[-1] > 2 * directory.config.segment_bytes
    for chunk_bytes in (40, 100, 150, 256, 1_000, 4_096):
        monkeypatch.setattr(cold_records, "_CHUNK_BYTES", chunk_bytes)
        for first, last in ((0, 60), (0, 1), (1, 2), (7, 33), (33, 33), (59, 60)):
            start, end = places[first], [*places, store.log_max_offset][last]
            with store.cold_records() as cold:
                found = [record for data in cold.walk(start, end, b"wanted") for record in iter_records(data)]
            assert [record.log_offset for record in found] == [place for place in expected if start <= place < end]


def test_record_is_read_at_its_place_and_size_only(directory: StoreDirectory) -> None:
    """Elsewhere, or with another size, there is none; nor before or behind the log."""
    store = directory.open()
    for _ in range(2):
        store.append(new_record())
    store.commit()
    (first, size, _), (second, _, _) = store.entries("T", 0, 0, 2)
    with store.cold_records() as cold:
        record = cold.read(first, size)
        assert record is not None
        assert record == store.record_at(first)
        assert cold.read(second, size) is not None
        wrong = [
            (first, size - 1),
            (first, size + 1),
            (first + 1, size),
            (second + size, size),
            (-size, size),
            (first, 0),
        ]
        assert [cold.read(*each) for each in wrong] == [None] * len(wrong)
