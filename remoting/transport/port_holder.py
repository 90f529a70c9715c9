"""Which process listens at a port that is taken, so that the error can name it.

Linux names sockets in ``/proc/net/tcp`` and ``tcp6``, a line each, by their inodes, and the descriptors of a process in
``/proc/PID/fd``. Of other users' processes, and on other systems, only the port is known. Imported when one is taken.

    column of a line   1 local address, hex ``HOST:PORT``   3 state, 0A is LISTEN   9 inode
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN: Final = "0A"


class PortHolder(NamedTuple):
    """A process that listens at a port."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


def find_holder(port: int) -> PortHolder | None:
    """Return a process that listens at a port, if it can be seen."""
    wanted = {f"socket:[{inode}]" for table in _TABLES for inode in _listening_inodes(table, port)}
    for name in os.listdir("/proc") if wanted else ():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            folder = f"/proc/{name}/fd"
            if name.isdecimal() and any(os.readlink(f"{folder}/{entry}") in wanted for entry in os.listdir(folder)):
                with open(f"/proc/{name}/comm") as file:
                    return PortHolder(int(name), file.read().strip())
    return None


def _listening_inodes(table: str, port: int) -> Iterator[str]:
    with contextlib.suppress(OSError), open(table) as file:
        for line in file:
            columns = line.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]
