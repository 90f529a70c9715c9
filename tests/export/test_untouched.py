import pathlib
import signal
import subprocess
import sys

import pytest
from logbuilder import LogBuilder

PROGRAM = """
import ctypes, dataclasses, mmap, sys
import numpy as np
from rocketlet.export.plan import plan_stores
from rocketlet.export.read import ReadOptions, SplitReader
from rocketlet.export.schema import SCHEMA, pick_columns
from rocketlet.export.split import Split, SplitScan
from rocketlet.store.blockscan import ScanLimits

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
block, = SplitScan(split, limits)
bodies = list(zip(block.body_at.tolist(), (block.body_at + block.body_bytes).tolist()))
guarded = Guarded(**{field.name: getattr(split, field.name) for field in dataclasses.fields(split)})
names = [name for name in SCHEMA.names if name != sys.argv[2]]
reader = SplitReader(ReadOptions(schema=pick_columns(names), limits=limits))
print(sum(batch.num_rows for batch in reader.read(guarded)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how memory is protected is a matter of the system")
def test_reading_of_metadata_touches_no_body(tmp_path: pathlib.Path) -> None:
    """All columns but the body are read while the pages of bodies cannot be; reading bodies then is fatal."""
    log = LogBuilder(tmp_path / "store", segment_bytes=1 << 20)
    for number in range(8):
        log.add(b"x" * 100_000, properties={"TAGS": "t", "KEYS": f"k{number}"})
    store = str(log.save())
    for left_out, ended in (("body", 0), ("flag", -signal.SIGSEGV)):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, store, left_out], capture_output=True, check=False, text=True
        )
        assert run.returncode == ended, run.stderr
        assert run.stdout.strip() == ("8" if left_out == "body" else "")
