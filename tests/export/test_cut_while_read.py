"""Files of a store that somebody cuts while they are read through a map."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from logbuilder import LogBuilder
from pushing import fill
from stores import StoreDirectory

from rocketlet.common.errors import StoreDamagedError
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.plan.split import PlannedLog
from rocketlet.export.plan.store_queues import QueueView, open_queue
from rocketlet.export.pushdown.store_index import StoreIndex
from rocketlet.export.write.log_reader import LogReader, ReadOptions
from rocketlet.store.audit.audit_report import AuditReport
from rocketlet.store.audit.log_audit import LogAudit
from rocketlet.store.commitlog.record_blocks import ScanLimits
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.segments import SegmentFile

FILE_BYTES = 65_536
_EXPORT_AND_CUT = """
import os, sys
import rocketlet.export.write.log_reader as blockread
import rocketlet.export.columns.record_columns as columns
from rocketlet.cli.main import main

place, log, *arguments = sys.argv[1:]
find_batches, inflate = blockread.find_batches, blockread.inflate_in_pieces

def cut_and_go_on(block):
    os.truncate(log, 0)
    return find_batches(block)

def hand_over_and_cut(block):
    yield from inflate(block)
    os.truncate(log, 5_000)

if place == "inside a block":
    blockread.find_batches, blockread.check_map = cut_and_go_on, len
else:
    blockread.inflate_in_pieces = hand_over_and_cut
main(["export", *arguments])
"""


def saved(folder: pathlib.Path, *, records: int = 17_000) -> LogBuilder:
    """Return a log of one file of more than one block."""
    log = LogBuilder(folder / "store", segment_bytes=4 << 20)
    for _ in range(records):
        log.add()
    log.save()
    return log


def export_and_cut(tmp_path: pathlib.Path, place: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an export to Parquet whose log is cut at some place of it."""
    log = saved(tmp_path)
    command = (sys.executable, "-c", _EXPORT_AND_CUT, place, str(log.files()[0]), str(log.root))
    to = ("--to", str(tmp_path / "out.parquet"), "--jobs", "1")
    return subprocess.run((*command, *to, *arguments), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("on_damage", "code", "is_there"), [("prefix", 1, True), ("fail", 2, False)])
def test_export_whose_log_is_cut_names_file_and_sizes(
    tmp_path: pathlib.Path, on_damage: str, code: int, is_there: bool
) -> None:
    """The command ends as for damage, with what was read before the cut, and one sentence."""
    done = export_and_cut(tmp_path, "between blocks", "--on-damage", on_damage)
    sentences = [line for line in done.stderr.splitlines() if line.startswith("rocketlet:")]
    assert (done.returncode, len(sentences)) == (code, 1), done.stderr
    assert "/00000000000000000000 cannot be read: it has 5000 bytes and had" in sentences[0]
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out.parquet").exists() == is_there


def test_export_that_dies_of_a_cut_inside_a_block_names_the_file(tmp_path: pathlib.Path) -> None:
    """Between the check and the reading of a block there is the signal; what is printed then names the file."""
    done = export_and_cut(tmp_path, "inside a block")
    assert done.returncode == -signal.SIGBUS
    assert f'File "<map of {tmp_path}/store/commitlog/00000000000000000000>"' in done.stderr


@pytest.mark.parametrize("is_sparse", [False, True])
def test_reading_ends_at_the_block_behind_the_cut(tmp_path: pathlib.Path, is_sparse: bool) -> None:
    """The batch before it is handed out; a file with holes is looked at as well."""
    log = saved(tmp_path, records=300)
    if is_sparse:
        os.truncate(log.files()[0], log.end)
        os.truncate(log.files()[0], 4 << 20)
    reading = iter(LogReader(plan_stores([str(log.root)]), ReadOptions(limits=ScanLimits(block_records=100))))
    assert next(reading).num_rows == 100
    os.truncate(log.files()[0], 4_096)
    with pytest.raises(StoreDamagedError, match="it has 4096 bytes and had") as caught:
        next(reading)
    assert (caught.value.path, caught.value.position) == (str(log.files()[0]), 4_096)


def test_queue_that_is_cut_between_two_looks_is_named(tmp_path: pathlib.Path) -> None:
    """A search in the entries of a queue says which of its files is short."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=FILE_BYTES, queue_file_bytes=20_000)
    fill(directory)
    files = open_queue(str(directory.root), "Orders", 0, FILE_BYTES)
    assert files is not None
    view = QueueView(files)
    assert view.log_offset(0) == 0
    os.truncate(directory.queue_file("Orders"), 10)
    with pytest.raises(StoreDamagedError, match=r"Orders/0/0+ cannot be read: it has 10 bytes and had 20000"):
        view.log_offset(1)


def test_index_that_is_cut_between_two_searches_is_named(tmp_path: pathlib.Path) -> None:
    """A search for a key says which index file is short."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=FILE_BYTES, index_entries=1_000)
    fill(directory)
    log = PlannedLog(plan_stores([str(directory.root)]))
    index = StoreIndex(str(directory.root), log, None, (50, 1_000))
    assert index.find(["Orders#k1"])
    os.truncate(next((directory.root / "index").iterdir()), 10)
    with pytest.raises(StoreDamagedError, match="cannot be read: it has 10 bytes and had 20240"):
        index.find(["Orders#k1"])


def test_audit_of_a_log_that_is_cut_reports_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``rocketlet store check`` finds the file and goes on with the next one, instead of a signal."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=FILE_BYTES)
    directory.fill(400)
    monkeypatch.setattr("rocketlet.store.audit.log_audit._LIMITS", ScanLimits(checks_crc=False, block_records=100))
    report = AuditReport(str(directory.root))
    segments = [
        SegmentFile(str(path), int(path.name), FILE_BYTES) for path in sorted(directory.segment().parent.iterdir())
    ]
    blocks = LogAudit(OS_FILES, segments, report, sure_at_ms=0, needs_seal=False).blocks()
    next(blocks)
    os.truncate(directory.segment(), 4_096)
    assert {block.segment.path for block in blocks} == {segment.path for segment in segments[1:]}
    (finding,) = report.findings
    assert str(finding) == (
        f"{directory.segment()} at position 4096 (log offset 4096): "
        "cannot be read: it has 4096 bytes and had 65536, somebody has cut it"
    )
    assert report.cut_at == 4_096
