"""What lies behind the place where the records of a log end, and whether it may be cut."""

import shutil

import pytest
from stores import StoreDirectory, sample

from rocketlet.common.errors import StoreDamagedError
from rocketlet.common.record import iter_records


@pytest.mark.parametrize("is_clean", [True, False])
def test_hole_before_flushed_records_stops_the_start(directory: StoreDirectory, is_clean: bool) -> None:
    """A stretch of zeros with sound records behind it is a lost page, even when no queue knows of them."""
    directory.fill(12, queues=1)
    data = bytearray(directory.segment().read_bytes())
    start = data.find(b"\xda\xa3\x20\xa7", 1000) - 4
    data[start : start + 300] = bytes(300)
    directory.segment().write_bytes(data)
    shutil.rmtree(directory.root / "consumequeue")
    if not is_clean:
        directory.abort.touch()
    with pytest.raises(StoreDamagedError) as caught:
        directory.open()
    assert caught.value.position == start


def test_records_behind_a_hole_that_were_not_flushed_are_cut(directory: StoreDirectory) -> None:
    """A power failure may leave late records without earlier ones; what was not flushed promises nothing."""
    directory.fill(6, queues=1)
    store = directory.open()
    for number in range(6, 12):
        directory.now_ms += 1000
        store.append(sample(number, queues=1))
        store.commit()
    twin = directory.copy("twin")
    data = bytearray(twin.segment().read_bytes())
    start = [record.log_offset for record in iter_records(bytes(data[: store.log_max_offset]))][8]
    data[start : start + 40] = bytes(40)
    twin.segment().write_bytes(data)
    with twin.open() as cut:
        assert cut.log_max_offset == start
        assert cut.max_offset("T", 0) == 8
    assert not any(twin.segment().read_bytes()[start:])
