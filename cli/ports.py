"""Who listens at a port that a server cannot have.

Linux names sockets in ``/proc/net/tcp`` and ``tcp6``, a line each, by their inodes, and a process's descriptors in
``/proc/PID/fd``. Of other users' processes, and on other systems, only the port is known.

    column of a line   1 local address, hex ``HOST:PORT``   3 state, 0A is LISTEN   9 inode
"""

import contextlib
import os
from collections.abc import Generator, Iterator

from ..common.errors import AddressInUseError, ConfigError

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"


@contextlib.contextmanager
def naming_holder(option: str) -> Generator[None]:
    """Let the error of an address in use name the process that has it, and the option of another port.

    Raises:
        ConfigError: the address is in use.
    """
    try:
        yield
    except AddressInUseError as error:
        holder = find_holder(error.port)
        by = f" by process {holder[0]} ({holder[1]})" if holder else ""
        raise ConfigError(f"{error}{by}; {option} takes another port, 0 a free one", key=option) from error


def find_holder(port: int) -> tuple[int, str] | None:
    """Return the number and the name of a process that listens at a port, if it can be seen."""
    wanted = {f"socket:[{inode}]" for table in _TABLES for inode in _listening_inodes(table, port)}
    for name in os.listdir("/proc") if wanted else ():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if name.isdecimal() and any(os.readlink(entry) in wanted for entry in os.scandir(f"/proc/{name}/fd")):
                with open(f"/proc/{name}/comm") as file:
                    return int(name), file.read().strip()
    return None


def _listening_inodes(table: str, port: int) -> Iterator[str]:
    with contextlib.suppress(OSError), open(table) as file:
        for line in file:
            columns = line.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]
