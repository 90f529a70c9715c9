import pathlib
import signal
import subprocess
import sys

import pytest
from logbuilder import LogBuilder

PROGRAM = """
import ctypes, dataclasses, mmap, sys
import numpy as np
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.write.log_reader import ReadOptions, SplitReader
from rocketlet.export.columns.schema import SCHEMA, pick_columns
from rocketlet.export.plan.selection import Selection
from rocketlet.export.plan.split import Split, SplitWalk
from rocketlet.store.commitlog.record_blocks import ScanLimits

class Guarded(Split):
    def open(self):
        file = super().open()
        libc = ctypes.CDLL(None)
        address = np.frombuffer(file.view, np.uint8).ctypes.data
        for start, stop in bodies:
            first = -(-(address + start) // mmap.PAGESIZE) * mmap.PAGESIZE
            size = (address + stop) // mmap.PAGESIZE * mmap.PAGESIZE - first
            assert libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(size), 0) == 0
        return file

split, = plan_stores([sys.argv[1]])
limits = ScanLimits(checks_crc=False)
block, = SplitWalk(split, limits)
bodies = list(zip(block.body_at.tolist(), (block.body_at + block.body_bytes).tolist()))
guarded = Guarded(**{field.name: getattr(split, field.name) for field in dataclasses.fields(split)})
names = [name for name in SCHEMA.names if name != sys.argv[2]]
selection = Selection(tags=frozenset(sys.argv[3:]))
reader = SplitReader(ReadOptions(selection, pick_columns(names), limits))
print(sum(batch.num_rows for batch in reader.read(guarded)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how memory is protected is a matter of the system")
@pytest.mark.parametrize(
    ("arguments", "ended", "rows"),
    [(["body"], 0, "8"), (["flag", "other tag"], 0, "0"), (["flag"], -signal.SIGSEGV, "")],
    ids=["metadata", "other tags", "bodies"],
)
def test_bodies_that_nobody_wants_are_not_touched(
    tmp_path: pathlib.Path, arguments: list[str], ended: int, rows: str
) -> None:
    """All columns but the body, or messages without the tag, are read while the pages of bodies cannot be."""
    log = LogBuilder(tmp_path / "store", segment_bytes=1 << 20)
    for number in range(8):
        log.add(b"x" * 100_000, properties={"TAGS": "t", "KEYS": f"k{number}"})
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(log.save()), *arguments], capture_output=True, check=False, text=True
    )
    assert run.returncode == ended, run.stderr
    assert run.stdout.strip() == rows
