"""A disk on which reading can fail while writing goes on."""

import errno
import os
import sys
from collections.abc import Mapping

from slow_disk import SlowDisk

ERRNOS: Mapping[str, int] = {"EIO": errno.EIO, "ENOMEM": errno.ENOMEM, "EMFILE": errno.EMFILE}
FAULTS = (*ERRNOS, "short read", "RuntimeError")


class FaultyReads(SlowDisk):
    """Fails reads while ``fault`` names one of ``FAULTS``, at most ``most_faults``; ``failed_reads`` counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = ""
        self.most_faults = sys.maxsize
        self.failed_reads = 0
        self.has_queue_room = True

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write if there is room in queues and index."""
        if not self.has_queue_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(descriptor, data, position)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read, unless a fault is wanted."""
        if not self.fault or self.failed_reads >= self.most_faults:
            return super().pread(descriptor, size, position)
        self.failed_reads += 1
        if self.fault == "short read":
            return super().pread(descriptor, size - 1, position)
        if self.fault == "RuntimeError":
            raise RuntimeError("the reader has a fault")
        raise OSError(ERRNOS[self.fault], os.strerror(ERRNOS[self.fault]))
