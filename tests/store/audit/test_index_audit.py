"""What an audit counts of an index that is wrong in more places than it tells one by one."""

import pathlib
import struct

import pytest
from damage import audit
from stores import StoreDirectory

from rocketlet.store.audit.audit_report import MOST_FINDINGS, AuditReport

SLOTS = 3_000
KEYS = 4
"""Of each message: a unique key, two words, a tag."""


def index_of(tmp_path: pathlib.Path, messages: int) -> tuple[StoreDirectory, pathlib.Path]:
    """Return a store whose index is one file, and that file."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=1 << 18, index_slots=SLOTS, index_entries=2_000)
    directory.fill(messages)
    (path,) = (directory.root / "index").iterdir()
    return directory, path


def slots_of(path: pathlib.Path) -> list[int]:
    """Return the entry that each slot of a file names."""
    return list(struct.unpack(f">{SLOTS}i", path.read_bytes()[40 : 40 + 4 * SLOTS]))


def overwrite(path: pathlib.Path, position: int, data: bytes) -> None:
    """Put bytes into a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def told(report: AuditReport, reason: str) -> int:
    """Return how many findings are told for this reason."""
    return sum(reason in finding.reason for finding in report.findings)


@pytest.mark.parametrize("messages", [100, 101, 102, 150])
def test_records_that_an_index_lacks_are_all_counted(tmp_path: pathlib.Path, messages: int) -> None:
    """An index that ends behind its first record: the keys of all others are missing, and slots name lost entries."""
    directory, path = index_of(tmp_path, messages)
    wrong_slots = sum(entry > KEYS for entry in slots_of(path))
    overwrite(path, 36, struct.pack(">i", KEYS + 1))
    report = audit(directory)
    header, used = 1, 1
    assert report.totals == {"index": messages - 1 + wrong_slots + header + used}
    assert len(report.findings) == MOST_FINDINGS
    assert report.counts["index entries"] == KEYS
    assert report.counts["tags without index entry"] == messages - 1


@pytest.mark.parametrize("wrong", [99, 100, 101, 120])
def test_slots_that_are_wrong_are_all_counted(tmp_path: pathlib.Path, wrong: int) -> None:
    """Those that name an entry which is not the last of theirs."""
    directory, path = index_of(tmp_path, 80)
    used = [slot for slot, entry in enumerate(slots_of(path)) if entry]
    assert len(used) > 120
    for slot in used[:wrong]:
        overwrite(path, 40 + 4 * slot, struct.pack(">i", 321))
    report = audit(directory)
    assert report.totals == {"index": wrong}
    assert told(report, "names entry 321, the last of the slot is") == min(wrong, MOST_FINDINGS)


@pytest.mark.parametrize(("count", "is_read"), [(-1, 0), (0, 0), (1, 0), (2, 1), (2_000, 40), (2_001, 40)])
def test_count_of_a_header_is_taken_as_far_as_it_can_be(tmp_path: pathlib.Path, count: int, is_read: int) -> None:
    """It counts one more than there are entries; what no file can hold is told."""
    directory, path = index_of(tmp_path, 10)
    overwrite(path, 36, struct.pack(">i", count))
    report = audit(directory)
    assert told(report, f"the header counts {count} entries") == (not 0 <= count <= 2_000)
    assert report.counts["index entries"] == is_read
