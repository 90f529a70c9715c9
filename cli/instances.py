"""Which ``rocketlet up`` runs over which store: the file ``rocketlet.json`` in the directory of the store.

Rules

    1. The file is there from the moment that clients can connect until the stop begins. Its process holds a lock on it
       (``flock``) until it has ended, whatever it ends by. A file that nobody has locked is left over from a kill: the
       number of its process says nothing, another one may have it by now.
    2. It is written beside its place, locked, and renamed: who reads it finds all of it.
    3. To wait for the lock is to wait for the end of the process.
    4. A process is asked to stop only if the one with its number began when the file says; across containers that share
       a directory, numbers mean different processes.
"""

import errno
import fcntl
import logging
import os
import signal
from contextlib import suppress
from typing import Final, NamedTuple, Self

import msgspec

from ..common.errors import DecodeError

FILE_NAME: Final = "rocketlet.json"
LOG_NAME: Final = "rocketlet.log"
"""Where a start in the background logs to, in the same directory."""
_MOST_BYTES: Final = 1 << 20
_log = logging.getLogger(__name__)


class InstanceTls(msgspec.Struct, frozen=True):
    """The files of what clients on this machine show to servers that speak TLS alone; empty where there are none."""

    certificate_path: str = ""
    key_path: str = ""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What a running ``up`` tells of itself.

    ``addresses`` are those of the ready line, ``namesrv`` and ``brokers`` those where this machine reaches the servers,
    whatever other clients are told.
    """

    pid: int
    process_start: str
    store: str
    is_ephemeral: bool
    addresses: dict[str, str]
    namesrv: str
    brokers: list[str]
    master_count: int
    began_at_ms: int
    version: str
    log: str | None = None
    tls: InstanceTls | None = None

    def register(self) -> int | None:
        """Write the file; return the descriptor that holds the lock, which is the process's for the rest of its life.

        None if it cannot be written, which is no reason to stop.
        """
        path = os.path.join(self.store, FILE_NAME)
        try:
            descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, msgspec.json.encode(self))
            os.replace(f"{path}.new", path)
        except OSError as error:
            _log.warning(
                "%s cannot be written, rocketlet status and down will not know of this process: %s", path, error
            )
            return None
        return descriptor

    def unregister(self) -> None:
        """Remove the file; the lock stays until the process has ended."""
        with suppress(OSError):
            os.unlink(os.path.join(self.store, FILE_NAME))


def process_start(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty where the system does not tell, or it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


class RunningInstance(NamedTuple):
    """An instance that runs, and its open file; leaving the block closes that."""

    instance: Instance
    descriptor: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def terminate(self) -> bool:
        """Ask it to stop; tell whether its process is one of this machine's that is seen from here.

        Raises:
            PermissionError: it is another user's.
        """
        pid = self.instance.pid
        if not hasattr(os, "pidfd_open"):  # macOS, which has no containers that number processes anew
            os.kill(pid, signal.SIGTERM)
            return True
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            # What has this number now is the one of the file, or began at another time.
            if process_start(pid) != self.instance.process_start or not _is_locked(self.descriptor):
                return False
            signal.pidfd_send_signal(process, signal.SIGTERM)
        finally:
            os.close(process)
        return True

    def is_running(self) -> bool:
        """Tell whether its process has not ended."""
        return _is_locked(self.descriptor)

    def wait_end(self) -> None:
        """Wait until its process has ended."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)


def find_instance(store: str) -> RunningInstance | None:
    """Return the instance that runs over a store.

    Raises:
        DecodeError: another version of rocketlet has written its file.
        PermissionError: the file is another user's.
    """
    path = os.path.join(store, FILE_NAME)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if not _is_locked(descriptor):
            os.close(descriptor)
            return None
        return RunningInstance(msgspec.json.decode(os.read(descriptor, _MOST_BYTES), type=Instance), descriptor)
    except msgspec.MsgspecError as error:
        os.close(descriptor)
        raise DecodeError(f"{path} cannot be read: {error}") from error


def stop_hint(store: str, pid: int | None = None) -> str:
    """Return how what serves a store is stopped, to stand behind an error; empty for another process than that."""
    with suppress(OSError, DecodeError):
        running = find_instance(store)
        if running is not None:
            with running:
                if pid in {None, running.instance.pid}:
                    import shlex

                    return f"; rocketlet down --store {shlex.quote(store)} stops it"
    return ""


def _is_locked(descriptor: int) -> bool:
    """Tell whether a process holds the lock; whether it does is asked by taking it, together with others who ask."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return True
        raise
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
