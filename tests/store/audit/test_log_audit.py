"""What an audit takes for the end of the log, and what it makes of older bytes behind it."""

import shutil

import pytest
from damage import audit, record_start
from stores import HOST, StoreDirectory, new_record, sample

from rocketlet.common.record import encode_record


@pytest.mark.parametrize("is_killed", [False, True])
def test_records_older_than_the_last_one_do_not_count(directory: StoreDirectory, *, is_killed: bool) -> None:
    """Java's broker leaves them behind the end when it cuts: they are sound, and no part of the log any more."""
    directory.fill(12, queues=1)
    old = directory.segment().read_bytes()
    cut = record_start(directory, 4)
    directory.segment().write_bytes(old[:cut] + bytes(len(old) - cut))
    for name in ("consumequeue", "index"):
        shutil.rmtree(directory.root / name)
    directory.abort.touch()
    directory.now_ms += 100_000
    with directory.open() as store:
        store.append(new_record(body=b"shorter"))
        store.commit()
        end = store.log_max_offset
    data = directory.segment().read_bytes()
    directory.segment().write_bytes(data[:end] + old[end:])
    if is_killed:
        directory.abort.touch()
    report = audit(directory)
    assert (report.end, report.counts["records"], report.counts["queue entries"]) == (end, 5, 5)
    assert (report.totals, report.cut_at) == (({}, None) if is_killed else ({"log": 1}, end))
    told = report.notes[-1] if is_killed else str(report.findings[0])
    assert f"at position {end} (log offset {end}): the end of the log is torn: " in told
    assert report.sound_behind == 0


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_record_right_behind_bad_bytes_is_found(directory: StoreDirectory, size: int) -> None:
    """However few they are: what follows them counts as sound records that a cut would lose."""
    directory.fill(3, queues=1)
    with directory.open() as store:
        end = store.log_max_offset
    start = end + size
    record = encode_record(sample(3, queues=1), 3, start, directory.now_ms + 1, HOST)
    data = directory.segment().read_bytes()
    directory.segment().write_bytes(data[:end] + b"\xee" * size + record + data[start + len(record) :])
    report = audit(directory)
    assert f"; {size} bytes are unreadable up to position {start}" in str(report.findings[0])
    assert (report.cut_at, report.sound_behind, report.end) == (end, 1, start + len(record))
